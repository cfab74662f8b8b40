"""`jax._src.util`: the names of `jax.util`."""

from toile.compat.faces.jax.util import (
    cache,
    concatenate,
    partial,
    safe_map,
    safe_zip,
    split_list,
    unzip2,
    unzip3,
    wraps,
)

__all__ = [
    "cache", "concatenate", "partial", "safe_map", "safe_zip", "split_list", "unzip2", "unzip3",
    "wraps",
]
