"""Running sums and products along an axis.

May import the engine, `lax`, `_promotion`, `reductions` and `ufuncs`.
"""

from __future__ import annotations

from typing import Any

from toile import lax
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axis
from toile.numpy._dtypes import BOOL, INEXACT, default_int, user_dtype
from toile.numpy._operands import as_array, convert, no_out
from toile.numpy._promotion import select
from toile.numpy.reductions import promoted_integer
from toile.numpy.ufuncs import isnan

__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "nancumprod", "nancumsum"]


def _cumulative(name: str, run: Any, a: Any, axis: Any, dtype: Any, out: Any, nan_as: Any = None,
                promote: bool = False) -> Any:
    a = as_array(name, a)
    no_out(name, out)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
    if axis is None or a.ndim == 0:
        if axis is not None:
            canonicalize_axis(axis, 1)
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonicalize_axis(axis, a.ndim)
    if nan_as is not None and a.dtype in INEXACT:
        a = select(isnan(a), nan_as, a)
    if dtype is None:
        if promote:
            dtype = promoted_integer(a.dtype)
        else:
            dtype = default_int() if a.dtype == BOOL else a.dtype
    # The sum of booleans as booleans is no arithmetic: computed on integers, then tested.
    work = default_int() if dtype == BOOL else dtype
    return convert(run(convert(a, work), axis=axis), dtype)


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Sums of the elements up to each one along `axis`."""
    return _cumulative("cumsum", lax.cumsum, a, axis, dtype, out)


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """Products of the elements up to each one along `axis`."""
    return _cumulative("cumprod", lax.cumprod, a, axis, dtype, out)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """`cumsum` with NaN taken as 0."""
    return _cumulative("nancumsum", lax.cumsum, a, axis, dtype, out, nan_as=0)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
    """`cumprod` with NaN taken as 1."""
    return _cumulative("nancumprod", lax.cumprod, a, axis, dtype, out, nan_as=1)


def _from_initial(name: str, what: str, run: Any, x: Any, axis: Any, dtype: Any,
                  include_initial: bool, first: int, promote: bool) -> Any:
    x = as_array(name, x)
    if x.ndim == 0:
        raise ValueError(f"The input must be non-scalar to take a cumulative {what}, however a "
                         "scalar value or scalar array was given." + here())
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"The input array has rank {x.ndim}, however axis was not set to an "
                             "explicit value. The axis argument is only optional for "
                             "one-dimensional arrays." + here())
        axis = 0
    axis = canonicalize_axis(axis, x.ndim)
    out = _cumulative(name, run, x, axis, dtype, None, promote=promote)
    if not include_initial:
        return out
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return lax.concatenate([lax.full(shape, first, out.dtype), out], axis)


def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None,
                   include_initial: bool = False) -> Any:
    """Sums of the elements up to each one; with `include_initial`, a 0 before them."""
    return _from_initial("cumulative_sum", "sum", lax.cumsum, x, axis, dtype, include_initial, 0,
                         True)


def cumulative_prod(x: Any, /, *, axis: Any = None, dtype: Any = None,
                    include_initial: bool = False) -> Any:
    """Products of the elements up to each one; with `include_initial`, a 1 before them."""
    return _from_initial("cumulative_prod", "product", lax.cumprod, x, axis, dtype, include_initial,
                         1, False)
