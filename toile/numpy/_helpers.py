"""Helpers that prepare the arguments and results of functions in `toile.numpy`.

They convert values to arrays and axes to nonnegative integers, distinguish concrete values from
traced ones, broadcast arrays, convert indices, and wrap NumPy buffers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile import lax
from toile.engine import conversion, dtypes, errors
from toile.engine import trace as tracing
from toile.engine.arrays import Array, DeviceArray
from toile.engine.arrays import KeyArray as KeyArray
from toile.engine.source import here
from toile.lax._operands import integer_error
from toile.numpy import _axes, _operands, _promotion, creation

Tracer = tracing.Tracer

check = _operands.check_arraylike
as_array = _operands.as_array
canonical_axis = _axes.canonicalize_axis
one_or_more = _axes.one_or_more
promote = _promotion.promote_dtypes
promote_inexact = _promotion.promote_dtypes_inexact
with_dtype = _operands.convert
unwrapped = _operands.unwrapped
result_type = dtypes.result_type
issubdtype = dtypes.issubdtype
canonical_dtype = dtypes.canonicalize_dtype


def arr(x: Any) -> Array:
    """Convert `x` to an Array; Python scalars become weakly typed arrays."""
    return x if isinstance(x, Array) else creation.asarray(x)


def as_arrays(name: str, *xs: Any) -> list[Array]:
    """Check that all operands are arrays or numbers, and convert them to arrays."""
    return [as_array(name, x, i) for i, x in enumerate(xs)]


def is_eager() -> bool:
    """Whether operations run immediately, because nothing is being traced."""
    return tracing.state.trace is None


def raw_buffer(x: Any) -> np.ndarray | None:
    """The NumPy buffer of a concrete array if nothing is being traced, else None."""
    if type(x) is DeviceArray and tracing.state.trace is None:
        data = x._data
        if type(data) is np.ndarray:
            return data
    return None


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` (not only its shape) is known now."""
    return not isinstance(x, Tracer) or x.concrete() is not None


def is_weak(x: Any) -> bool:
    """Whether `x` has the weak type of a Python scalar."""
    if isinstance(x, Array):
        return x.weak_type
    return type(x) in (int, float, complex)


def canonical_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Convert one axis or a sequence of axes to a tuple of nonnegative integers."""
    if type(axes) is int:
        return (canonical_axis(axes, ndim),)
    return tuple([canonical_axis(a, ndim) for a in one_or_more(axes)])


def with_axis(a: Array, axis: Any) -> tuple[Array, int]:
    """Return `a` and a nonnegative axis; if `axis` is None, flatten `a`."""
    if axis is None:
        return lax.reshape(a, (a.size,)), 0
    return a, canonical_axis(axis, a.ndim)


def at_rank(x: Any, ndim: int) -> Any:
    """`x` with leading axes of length 1, so that it has `ndim` axes."""
    return x.reshape((1,) * (ndim - x.ndim) + x.shape)


def from_end(index: Array, n: int) -> Array:
    """Make positions on an axis of length n nonnegative; negative positions count from the end."""
    negative = lax.lt(index, lax.full_like(index, 0))
    return lax.select(negative, lax.add(index, lax.full_like(index, n)), index)


def concrete(x: Any, what: str, because: str = "") -> np.ndarray:
    """Convert `x` to a NumPy array; a traced value raises an error that names `what`."""
    if isinstance(x, Tracer):
        value = x.concrete()
        if value is None:
            raise errors.conversion_error(x, what, because)
        x = value
    return np.asarray(x)


def default_inexact(x: Array) -> Array:
    """Convert integers and booleans to the default float dtype; other dtypes stay."""
    if issubdtype(x.dtype, np.inexact):
        return x
    return lax.convert_element_type(x, dtypes.default_float_dtype())


def static_int(x: Any, what: str) -> int:
    """Convert `x` to a Python integer; a traced value raises an error that names `what`."""
    if type(x) is int:
        return x
    try:
        known: Any = x if isinstance(x, float) else concrete(x, what)[()]
        return operator.index(known)
    except TypeError as error:
        if isinstance(x, Tracer):
            raise
        raise integer_error(error, x, what) from None


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which `shapes` broadcast under NumPy's rules."""
    return lax.broadcast_shapes(*shapes) if shapes else ()


def broadcast_to(x: Array, shape: Sequence[int]) -> Array:
    """Broadcast the Array `x` to `shape` under NumPy's rules."""
    shape = tuple(shape)
    have = x.shape
    if have == shape:
        return x
    lead = len(shape) - len(have)
    if lead < 0:
        raise ValueError("Cannot broadcast to shape with fewer dimensions: "
                         f"arr_shape={have} shape={shape}{here()}")
    if any(n not in (1, m) for n, m in zip(have, shape[lead:])):
        raise ValueError(f"Incompatible types for broadcasting: input type={x.aval.str_short()} "
                         f"and requested type={x.aval.with_shape(shape).str_short()} (only axes "
                         f"of size 1 can be stretched, aligned from the last: insert an axis with "
                         f"x[:, None], or reshape){here()}")
    return _promotion.spread(x, shape)


def fitting(index: Array, size: int) -> Array:
    """Convert `index` to int32 if its dtype cannot hold `size` (int8 wraps around at 128)."""
    if size <= int(dtypes.iinfo(index.dtype).max):
        return index
    return lax.convert_element_type(index, np.int32)


def index_dtype() -> np.dtype:
    """The dtype of index results: int64 with x64 enabled, else int32."""
    return canonical_dtype(np.int64)


def wrap_raw(data: Any, like: Array) -> Array:
    """Wrap the NumPy buffer `data` in a DeviceArray with the weak bit of `like`."""
    return conversion.wrap(data, like.weak_type)
