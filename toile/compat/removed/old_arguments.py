"""Functions that take keyword arguments under names which JAX has removed, such as `a_min`.

The functions that they call are imported from the modules that define them, because in `jax.numpy`
and the like, the names stand for the functions of this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.api.programs import jit
from toile.lax import miscellany
from toile.numpy import manipulation, quantiles, ufuncs_numeric
from toile.scipy.linalg import _decompositions

__all__ = [
    "METHODS", "broadcast", "broadcast_in_dim", "clip", "nanpercentile", "nanquantile",
    "percentile", "pjit", "quantile", "reshape", "solve", "split", "with_sharding_constraint",
]


def _renaming(function: Callable[..., Any], **names: str) -> Callable[..., Any]:
    """A function that also takes keyword arguments under their old names: `old=new`."""

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{names.get(name, name): x for name, x in kwargs.items()})

    return renamed


_clip = _renaming(ufuncs_numeric.clip, a_min="min", a_max="max")


def clip(*args: Any, **kwargs: Any) -> Any:
    """`toile.numpy.clip`, which also takes `a`, `a_min` and `a_max`."""
    first = (kwargs.pop("a"),) if "a" in kwargs else ()
    return _clip(*first, *args, **kwargs)


reshape = _renaming(manipulation.reshape, newshape="shape")
quantile = _renaming(quantiles.quantile, interpolation="method")
percentile = _renaming(quantiles.percentile, interpolation="method")
nanquantile = _renaming(quantiles.nanquantile, interpolation="method")
nanpercentile = _renaming(quantiles.nanpercentile, interpolation="method")
pjit = _renaming(jit, in_axis_resources="in_shardings", out_axis_resources="out_shardings")
with_sharding_constraint = _renaming(
    miscellany.with_sharding_constraint, axis_resources="shardings")


def solve(a: Any, b: Any, sym_pos: bool = False, **kwargs: Any) -> Any:
    """`toile.scipy.linalg.solve`; `sym_pos` means a symmetric positive definite matrix."""
    if sym_pos:
        kwargs["assume_a"] = "pos"
    return _decompositions.solve(a, b, **kwargs)


def split(self: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """`toile.numpy.split` as a method of arrays."""
    return jnp.split(self, indices_or_sections, axis)


def broadcast(self: Any, sizes: Any) -> Any:
    """`toile.lax.broadcast` as a method of arrays."""
    return lax.broadcast(self, sizes)


def broadcast_in_dim(self: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    """`toile.lax.broadcast_in_dim` as a method of arrays."""
    return lax.broadcast_in_dim(self, shape, broadcast_dimensions)


METHODS = {"broadcast": broadcast, "broadcast_in_dim": broadcast_in_dim, "split": split}
