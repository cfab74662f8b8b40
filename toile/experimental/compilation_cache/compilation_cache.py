"""Functions of `jax.experimental.compilation_cache`, which do not affect toile's cache."""

from __future__ import annotations

import os

from toile.engine.config import config

__all__ = ["reset_cache", "set_cache_dir"]


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Record a folder for compiled programs in `toile.config`, without any other effect.

    toile stores compiled kernels in a different folder. To change that folder, set the environment
    variable TOILE_CACHE_DIR before Python starts.

    Args:
        path: path of the folder.
    """
    config.update("jax_compilation_cache_dir", str(path))


def reset_cache() -> None:
    """Do nothing; in JAX, this function makes the next compilation look up the folder again."""
