"""`jax.numpy.lax_numpy`: the functions of `jax.numpy`, and the one that makes dtypes equal."""

from __future__ import annotations

from typing import Any

from toile import numpy
from toile.compat.removed.arrays import promote_dtypes as _promote_dtypes

__all__ = ["_promote_dtypes"]


def __getattr__(name: str) -> Any:
    return getattr(numpy, name)
