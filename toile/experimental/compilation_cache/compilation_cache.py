"""The folder of the compilation cache."""

from __future__ import annotations

import os

from toile.engine.config import config

__all__ = ["reset_cache", "set_cache_dir"]


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Record a folder for compiled programs in `toile.config`; it has no other effect.

    toile keeps compiled kernels in a folder of its own, which the environment variable
    TOILE_CACHE_DIR changes before Python starts.

    Args:
        path: folder.
    """
    config.update("jax_compilation_cache_dir", str(path))


def reset_cache() -> None:
    """Do nothing; JAX forgets the folder so that the next compilation looks it up again."""
