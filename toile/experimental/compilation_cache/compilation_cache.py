"""The folder of the compilation cache."""

from __future__ import annotations

from typing import Any

from toile.engine.config import config

__all__ = ["reset_cache", "set_cache_dir"]


def set_cache_dir(path: Any) -> None:
    """Keep compiled programs in a folder."""
    config.update("jax_compilation_cache_dir", str(path))


def reset_cache() -> None:
    """Forget the folder, so that the next compilation looks it up again."""
