"""Reductions that skip NaN: each replaces NaN by the identity and reduces.

May import the engine, `lax`, `reductions` and what that imports.
"""

from __future__ import annotations

import math
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.numpy._dtypes import COMPLEX, INEXACT, default_int, real_part, to_inexact, user_dtype
from toile.numpy._operands import as_array, convert, literal, no_out
from toile.numpy._promotion import broadcast_to, select
from toile.numpy.reductions import _position, checked_where, highest, lowest, widened
from toile.numpy.ufuncs import isnan

__all__ = [
    "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum",
    "nanvar",
]


def _without_nan(name: str, a: Any, value: Any) -> Any:
    """`a` with NaN replaced by a number."""
    a = as_array(name, a)
    return select(isnan(a), value, a) if a.dtype in INEXACT else a


def _nan_extreme(name: str, reduce: Any, identity: Any, a: Any, axis: Any, out: Any, keepdims: bool,
                 initial: Any, where: Any) -> Any:
    a = as_array(name, a)
    no_out(name, out)
    if a.dtype not in INEXACT:
        return reduce(a, axis, None, keepdims, initial, where)
    filled = _without_nan(name, a, identity(a.dtype))
    result = reduce(filled, axis, None, keepdims, initial, where)
    if initial is not None:
        return result
    return select(jnp.all(isnan(a), axis, None, keepdims), math.nan, result)


def nanmax(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Any:
    """The greatest element that is a number; NaN if none is."""
    return _nan_extreme("nanmax", jnp.max, lowest, a, axis, out, keepdims, initial, where)


def nanmin(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Any:
    """The least element that is a number; NaN if none is."""
    return _nan_extreme("nanmin", jnp.min, highest, a, axis, out, keepdims, initial, where)


def nansum(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
           initial: Any = None, where: Any = None) -> Any:
    """The sum of the elements that are numbers."""
    no_out("nansum", out)
    return jnp.sum(_without_nan("nansum", a, 0), axis, dtype, None, keepdims, initial, where)


def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
            initial: Any = None, where: Any = None) -> Any:
    """The product of the elements that are numbers."""
    no_out("nanprod", out)
    return jnp.prod(_without_nan("nanprod", a, 1), axis, dtype, None, keepdims, initial, where)


def _numbers(a: Any, where: Any) -> Any:
    """Which elements are numbers and selected."""
    numbers = lax.bitwise_not(isnan(a))
    if where is None:
        return numbers
    return lax.bitwise_and(numbers, broadcast_to(checked_where("nanmean", where), a.shape))


def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
            where: Any = None) -> Any:
    """The mean of the elements that are numbers."""
    a = as_array("nanmean", a)
    no_out("nanmean", out)
    if a.dtype not in INEXACT:
        return jnp.mean(a, axis, dtype, None, keepdims, where=where)
    dtype = a.dtype if dtype is None else user_dtype(dtype, "nanmean")
    count = jnp.sum(_numbers(a, where), axis, dtype, keepdims=keepdims)
    return lax.div(nansum(a, axis, dtype, None, keepdims, where=where), count)


def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0,
           keepdims: bool = False, where: Any = None, mean: Any = None) -> Any:
    """The variance of the elements that are numbers."""
    a = as_array("nanvar", a)
    no_out("nanvar", out)
    if a.dtype not in INEXACT:
        return jnp.var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    if dtype is not None:
        dtype = user_dtype(dtype, "nanvar")
        if a.dtype in COMPLEX and dtype not in COMPLEX:
            raise ValueError(f"nanvar: needed a complex dtype for complex values, got {dtype} "
                             f"(take dtype=None, which gives a real result){here()}")
    result_dtype = real_part(to_inexact(a.dtype)) if dtype is None else dtype
    work = widened(a.dtype if dtype is None else dtype)
    a = convert(a, work)
    centre = (
        nanmean(a, axis, work, None, True, where) if mean is None
        else convert(as_array("nanvar", mean), work)
    )
    valid = _numbers(a, where)
    centred = select(valid, lax.sub(a, broadcast_to(centre, a.shape)), 0)
    if work in COMPLEX:
        squares = lax.real(lax.mul(centred, lax.conj(centred)))
    else:
        squares = lax.square(centred)
    index = default_int()
    count = jnp.sum(valid, axis, index, keepdims=keepdims)
    divisor = lax.sub(count, convert(as_array("nanvar", ddof), index))
    none = lax.le(divisor, literal(0, index))
    total = select(none, math.nan, jnp.sum(squares, axis, keepdims=keepdims))
    divisor = convert(select(none, 1, divisor), total.dtype)
    return convert(lax.div(total, divisor), result_dtype)


def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: Any = 0,
           keepdims: bool = False, where: Any = None, mean: Any = None) -> Any:
    """The standard deviation of the elements that are numbers."""
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


def _nan_position(name: str, search: Any, identity: Any, a: Any, axis: Any, out: Any,
                  keepdims: Any) -> Any:
    a = as_array(name, a)
    if a.dtype not in INEXACT:
        return _position(name, search, a, axis, out, keepdims)
    result = _position(name, search, _without_nan(name, a, identity(a.dtype)), axis, out, keepdims)
    return select(jnp.all(isnan(a), axis, None, bool(keepdims)), -1, result)


def nanargmax(a: Any, axis: Any = None, out: None = None, keepdims: bool | None = None) -> Any:
    """Where the greatest number along `axis` is; -1 if there is none."""
    return _nan_position("nanargmax", lax.argmax, lowest, a, axis, out, keepdims)


def nanargmin(a: Any, axis: Any = None, out: None = None, keepdims: bool | None = None) -> Any:
    """Where the least number along `axis` is; -1 if there is none."""
    return _nan_position("nanargmin", lax.argmin, highest, a, axis, out, keepdims)
