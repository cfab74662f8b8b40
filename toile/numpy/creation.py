"""Creation of arrays from Python and NumPy data, of constant arrays, and of ranges.

Existing data is converted to a concrete array immediately. `zeros`, `arange`, `eye` and similar
functions call `lax`, so inside `jit` they are staged and allocate no memory. This module may import
the engine, primitives.shapes, `lax`, `api.devices` and other modules of `toile.numpy`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, overload

import numpy as np

from toile import lax
from toile.api.devices import device_put
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike, HasDType, ShapeLike
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import Aval
from toile.engine.config import flags
from toile.engine.conversion import from_numpy, new_array, wrap
from toile.engine.errors import conversion_error
from toile.engine.host_memory import memory_error
from toile.engine.platform_registry import array_platforms, default_device, platform_of, registry
from toile.engine.promotion import narrowed, user_stack_level
from toile.engine.sharded import sharding_like
from toile.engine.source import describe, here
from toile.engine.trace import Tracer, runs_at_once, state
from toile.lax._operands import integer
from toile.numpy._axes import canonicalize_axis, canonicalize_shape
from toile.numpy._dtypes import (
    BOOL,
    COMPLEX,
    INTEGERS,
    default_float,
    default_int,
    to_inexact,
    user_dtype,
)
from toile.numpy._operands import as_array, as_operand, check_arraylike, convert, number_array
from toile.numpy._promotion import broadcast_shapes, broadcast_to, filler
from toile.primitives import shapes

if TYPE_CHECKING:
    from toile.engine.devices import Device
    from toile.engine.shardings import Sharding
    from toile.parallel.specs import ShardingLike


class HasShape(HasDType, Protocol):
    """Anything with a shape and a dtype, such as an array or `toile.ShapeDtypeStruct`."""

    @property
    def shape(self) -> tuple[int, ...]: ...


_NUMBERS = frozenset((bool, int, float, complex))
_KeyDType = dtypes.KeyDType


# From data.


def _target(device: Any, out_sharding: Any) -> Any:
    """Where a result is put: both arguments say it, and `out_sharding` has precedence."""
    return device if out_sharding is None else out_sharding


def asarray(a: ArrayLike | HasDType | Sequence[Any], dtype: DTypeLike | None = None,
            order: Literal["K"] | None = None, *,
            copy: bool | None = None, device: Device | Sharding | None = None,
            out_sharding: ShardingLike | None = None) -> Array:
    """Convert a value to an array; an array that needs no conversion is returned unchanged.

    Args:
        a: a number, an array, a NumPy array, or nested lists or tuples of numbers and arrays.
        dtype: dtype of the result; None for the dtype that `array` chooses.
        order: must be "K" or None; other memory orders are not supported.
        copy: True to copy an array even if it needs no conversion.
        device: device or sharding to place the result on; if None, an array stays where it is, and
            other values are put on the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        The array.

    Raises:
        TypeError: the elements are not numbers.
        ValueError: an element is None, or nested sequences at the same depth differ in length.
        OverflowError: a Python integer is out of the dtype's range.

    >>> jnp.asarray([1, 2.5])
    Array([1. , 2.5], dtype=float32)
    """
    device = _target(device, out_sharding)
    if type(a) is DeviceArray and dtype is None and device is None and not copy:
        return a
    return _build(a, dtype, bool(copy), order, 0, device)


def array(object: ArrayLike | HasDType | Sequence[Any], dtype: DTypeLike | None = None,
          copy: bool = True, order: Literal["K"] | None = "K", ndmin: int = 0, *,
          device: Device | Sharding | None = None,
          out_sharding: ShardingLike | None = None) -> Array:
    """Create an array from a number, nested sequences or another array.

    Args:
        object: a number, an array, a NumPy array, or nested lists or tuples of numbers and arrays.
        dtype: dtype of the result; None for the dtype that the elements promote to. Unless
            `jax_enable_x64` is set, Python numbers count as int32, float32 or complex64, and the
            64-bit dtypes of NumPy arrays are replaced with the corresponding narrower dtypes. An
            empty list becomes a float array.
        copy: False to return an array unchanged if it needs no conversion.
        order: must be "K" or None; other memory orders are not supported.
        ndmin: minimum number of axes; leading axes of length 1 are added to reach it.
        device: device or sharding to place the result on; if None, an array stays where it is, and
            other values are put on the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        The array. If `object` is a Python number and `dtype` is None, the array is weakly typed: if
        it is combined with another array of the same kind of number, the result has the dtype of
        the other array.

    Raises:
        TypeError: the elements are not numbers.
        ValueError: an element is None, or nested sequences at the same depth differ in length.
        OverflowError: a Python integer is out of the dtype's range.

    >>> jnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    device = _target(device, out_sharding)
    return _build(object, dtype, copy, order, ndmin, device)


def _build(a: Any, dtype: Any, copied: bool, order: Any, ndmin: int, device: Any) -> Any:
    if order is not None and order != "K":
        raise NotImplementedError("Only implemented for order='K'" + here())
    if dtype is not None:
        dtype = user_dtype(dtype, "array")
    if type(a) in _NUMBERS:
        result = number_array(a) if dtype is None else wrap(np.asarray(a, dtype))
    else:
        result = _from_object(a, dtype, copied)
    if result.ndim < ndmin:
        result = lax.reshape(result, (1,) * (ndmin - result.ndim) + result.shape)
    return result if device is None else device_put(result, device)


def _from_object(a: Any, dtype: Any, copied: bool) -> Array:
    if isinstance(a, Array):
        return _from_array(a, dtype, copied)
    if isinstance(a, (np.ndarray, np.generic)):
        return _from_host(a, a, dtype)
    if platform_of(a) is not None:
        made = from_numpy(a)
        return made if dtype is None else convert(made, dtype)
    if getattr(a, "__jax_array__", None) is not None:
        return _build(a.__jax_array__(), dtype, copied, None, 0, None)
    if isinstance(a, (list, tuple)):
        return _from_sequence(a, dtype)
    if a is None:
        raise ValueError(_NO_NONE + here())
    if isinstance(a, (int, float, complex)):  # IntEnum members and other subclasses of numbers
        return _build(as_operand("array", a), dtype, copied, None, 0, None)
    if isinstance(a, (memoryview, bytearray)):
        return _from_host(np.asarray(memoryview(a)), a, dtype)
    return _from_host(np.asarray(a), a, dtype)


def _from_array(a: Any, dtype: Any, copied: bool) -> Any:
    if dtype is not None and (a.dtype != dtype or a.weak_type):
        return convert(a, dtype)
    if copied and runs_at_once():
        if type(a) is DeviceArray:
            return wrap(a._data.copy(), a.weak_type)
        if isinstance(a, tuple(array_platforms)):
            return shapes.copy(a)
    return a


_NO_NONE = ("None is not a valid value for jnp.array: needed numbers (replace None by a number, "
            "such as jnp.nan)")


def _from_host(values: Any, original: Any, dtype: Any) -> Any:
    if values.dtype not in dtypes.SUPPORTED:
        if values.dtype == object and any(v is None for v in values.ravel()):
            raise ValueError(_NO_NONE + here())
        fix = "pass numbers instead"
        if isinstance(original, Mapping):
            fix = "pass list(x.values()), or convert each value with toile.tree.map"
        elif isinstance(original, Iterable) and not isinstance(original, (str, list, np.ndarray)):
            fix = "pass a list of numbers: list(x)"
        raise TypeError(f"Value '{describe(original)}' with dtype {values.dtype} is not a valid "
                        "JAX array type. Only arrays of numeric types are supported by JAX "
                        f"({fix}).{here()}")
    if values.dtype == dtypes.float0:
        return values if dtype is None else zeros(values.shape, dtype)
    # `from_numpy` narrows 64-bit values, and `dtype` has 64 bits only where that is allowed.
    if dtype is not None and (values.dtype != dtype or narrowed(dtype) != dtype):
        return new_array(np.asarray(values).astype(dtype))
    return from_numpy(np.asarray(values))


def _leaves(nested: Any, out: list[Any]) -> list[Any]:
    """List the members of nested lists and tuples, from left to right."""
    for x in nested:
        if type(x) in _NUMBERS:
            out.append(x)
        elif isinstance(x, (list, tuple)):
            _leaves(x, out)
        else:
            out.append(x.__jax_array__() if getattr(x, "__jax_array__", None) is not None else x)
    return out


def _from_sequence(nested: Any, dtype: Any) -> Any:
    leaves = _leaves(nested, [])
    if _NUMBERS.issuperset(set(map(type, leaves))):
        made = np.array(nested, dtype) if dtype is not None else _from_numbers(nested, not leaves)
        return new_array(made)
    if any(x is None for x in leaves):
        raise ValueError(_NO_NONE + here())
    if not all(isinstance(x, (Array, np.ndarray, np.generic, *_NUMBERS)) for x in leaves):
        return _from_host(np.array(nested), nested, dtype)
    if dtype is None:
        dtype = dtypes.result_type(*leaves)
    if state.trace is None and not any(
        isinstance(x, Array) and type(x) is not DeviceArray for x in leaves
    ):
        return new_array(np.array(_raw(nested), dtype))
    return _stacked(nested, dtype)


def _from_numbers(nested: Any, empty: bool) -> Any:
    """Convert nested sequences of Python numbers to a NumPy array of a default dtype."""
    try:
        values = np.array(nested)
    except ValueError as error:
        fix = "give all rows one length, or keep a list of arrays"
        raise ValueError(f"array: {error} ({fix}){here()}") from None
    wanted = default_float() if empty else narrowed(values.dtype)
    if values.dtype == wanted and wanted.kind != "O":
        return values
    if values.dtype == object:  # it has integers that no NumPy integer holds
        return np.array(nested, dtypes.scalar_dtype(sum(_leaves(nested, []))))
    if wanted in INTEGERS:
        values = np.array(nested, default_int())  # an integer too large is an error
    return values.astype(wanted)


def _raw(nested: Any) -> Any:
    """Replace the arrays in nested sequences with their buffers."""
    if isinstance(nested, (list, tuple)):
        return [_raw(x) for x in nested]
    if getattr(nested, "__jax_array__", None) is not None:
        nested = nested.__jax_array__()
    return nested._data if type(nested) is DeviceArray else nested


def _stacked(nested: Any, dtype: Any) -> Any:
    """Join nested sequences that have traced members, by one concatenation for each level."""
    if not isinstance(nested, (list, tuple)):
        return convert(as_array("array", nested), dtype)
    parts = [_stacked(x, dtype) for x in nested]
    if not parts:
        return zeros((0,), dtype)
    if any(p.shape != parts[0].shape for p in parts):
        raise ValueError(
            "array: needed members of one shape, got shapes "
            + str([p.shape for p in parts])
            + here()
        )
    return lax.concatenate([lax.expand_dims(p, (0,)) for p in parts], 0)


class _ComplexToReal(np.exceptions.ComplexWarning, DeprecationWarning):
    """A warning that an imaginary part is dropped; it will be replaced by an error."""


def astype(x: ArrayLike, dtype: DTypeLike | None, /, *, copy: bool = False,
           device: Device | Sharding | None = None) -> Array:
    """Convert an array to another dtype.

    Conversion of floats to integers truncates toward zero. Conversion of complex numbers to real
    numbers drops the imaginary part and issues a warning. Conversion to booleans makes every
    nonzero element True.

    Args:
        x: array or number.
        dtype: dtype of the result; None for the default float dtype.
        copy: whether to copy the array even if it already has this dtype.
        device: device or sharding to place the result on; None for the device of `x`.

    Returns:
        An array with the shape of `x`.

    >>> jnp.astype(jnp.array([1.7, -1.7]), "int32")
    Array([ 1, -1], dtype=int32)
    """
    x = as_array("astype", x)
    dtype = default_float() if dtype is None else user_dtype(dtype, "astype")
    if not dtypes.is_extended(dtype) and x.dtype in COMPLEX:
        if dtype == BOOL:
            x = lax.ne(x, lax.full_like(x, 0))
        elif dtype not in COMPLEX:
            warnings.warn(
                "Casting from complex to real dtypes will discard the imaginary part. For "
                "real-valued input, use x.real.astype(dtype) instead.",
                _ComplexToReal,
                stacklevel=user_stack_level(),
            )
            x = lax.real(x)
    x = convert(x, dtype)
    x = _from_object(x, None, True) if copy else x
    return x if device is None else device_put(x, device)


def copy(a: ArrayLike, order: Literal["K"] | None = None) -> Array:
    """Copy an array.

    Args:
        a: array or number.
        order: must be "K" or None; other memory orders are not supported.

    Returns:
        A new array with the elements of `a`.
    """
    check_arraylike("copy", a)
    return array(a, copy=True, order=order)


# Constants.


def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, *,
         device: Device | Sharding | None = None,
         out_sharding: ShardingLike | None = None) -> Array:
    """Create an array filled with one value.

    Args:
        shape: shape of the result; an integer for one axis.
        fill_value: number, or array that is broadcast to `shape`.
        dtype: dtype of the result; None for the dtype of `fill_value`.
        device: device or sharding to place the result on; None for the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        An array of the given shape.

    >>> jnp.full((2, 2), jnp.array([1, 2]))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    device = _target(device, out_sharding)
    shape = canonicalize_shape(shape, "full")
    if dtype is not None:
        dtype = user_dtype(dtype, "full")
    fill = filler("full", fill_value, dtype)
    if fill.shape:
        if broadcast_shapes(fill.shape, shape) != shape:
            raise ValueError(f"full: needed a fill value that broadcasts to {shape}, got "
                             f"{fill.shape}{here()}")
        result = broadcast_to(fill if dtype is None else convert(fill, dtype), shape)
    elif device is None and type(fill) is DeviceArray and _eager_on_host() \
            and dtype.__class__ is not _KeyDType:
        weak = dtype is None and fill.weak_type
        one: Any = fill if dtype is None else convert(fill, dtype)
        try:
            made = np.empty(shape, one.dtype)
        except MemoryError:
            raise memory_error("full", [Aval(shape, one.dtype)]) from None
        made.fill(one._data)
        return DeviceArray(made, weak)
    else:
        result = lax.full(shape, fill, dtype)
    return result if device is None else device_put(result, device)


def _eager_on_host() -> bool:
    """Whether NumPy may create a new array immediately."""
    on_host = not registry.active or default_device() is None
    return on_host and state.trace is None and flags.default_device is None


def _constant(name: str, shape: Any, value: int, dtype: Any, device: Any) -> Any:
    try:
        dtype = default_float() if dtype is None else user_dtype(dtype, name)
    except TypeError as error:
        if not isinstance(shape, int) or not isinstance(dtype, int):
            raise
        raise TypeError(f"{error}\n\nDid you accidentally write `jax.numpy.{name}({shape}, "
                        f"{dtype})` when you meant `jax.numpy.{name}(({shape}, {dtype}))`, that "
                        "is, one tuple for the shape?") from None
    shape = canonicalize_shape(shape, name)
    if dtype == dtypes.float0:
        return np.zeros(shape, dtype)  # as in JAX
    if device is None and _eager_on_host() and dtype.__class__ is not _KeyDType:
        return DeviceArray(_ones_or_zeros(value, shape, dtype))
    result = lax.full(shape, value, dtype)
    return result if device is None else device_put(result, device)


def zeros(shape: ShapeLike, dtype: DTypeLike | None = None, *,
          device: Device | Sharding | None = None,
          out_sharding: ShardingLike | None = None) -> Array:
    """Create an array of zeros.

    Args:
        shape: shape of the result; an integer for one axis.
        dtype: dtype of the result; None for the default float dtype.
        device: device or sharding to place the result on; None for the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        An array of the given shape.
    """
    device = _target(device, out_sharding)
    return _constant("zeros", shape, 0, dtype, device)


def ones(shape: ShapeLike, dtype: DTypeLike | None = None, *,
         device: Device | Sharding | None = None,
         out_sharding: ShardingLike | None = None) -> Array:
    """Create an array of ones.

    Args:
        shape: shape of the result; an integer for one axis.
        dtype: dtype of the result; None for the default float dtype.
        device: device or sharding to place the result on; None for the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        An array of the given shape.
    """
    device = _target(device, out_sharding)
    return _constant("ones", shape, 1, dtype, device)


def empty(shape: ShapeLike, dtype: DTypeLike | None = None, *,
          device: Device | Sharding | None = None,
          out_sharding: ShardingLike | None = None) -> Array:
    """Create an array of zeros, as `zeros` does.

    Args:
        shape: shape of the result; an integer for one axis.
        dtype: dtype of the result; None for the default float dtype.
        device: device or sharding to place the result on; None for the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        An array of the given shape.

    Differences:
        NumPy does not initialize the elements.
    """
    device = _target(device, out_sharding)
    return _constant("empty", shape, 0, dtype, device)


def _like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any) -> Any:
    """Do the work of the *_like functions; `a` may be anything with a shape and a dtype."""
    plain = dtype is None and shape is None and device is None and type(value) is int
    if plain and type(a) is DeviceArray and state.trace is None and type(a._data) is np.ndarray:
        return DeviceArray(_ones_or_zeros(value, a.shape, a.dtype), a.weak_type)
    return _general_like(name, a, value, dtype, shape, device)


def _ones_or_zeros(value: int, shape: Any, dtype: Any) -> Any:
    try:
        return np.ones(shape, dtype) if value else np.zeros(shape, dtype)
    except MemoryError:
        raise memory_error("ones" if value else "zeros", [Aval(shape, np.dtype(dtype))]) from None


def _general_like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any) -> Any:
    if type(a) is not DeviceArray and not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = as_array(name, a)
    weak = dtype is None and getattr(a, "weak_type", False)
    if dtype is None:
        dtype = dtypes.canonicalize_dtype(a.dtype, allow_extended_dtype=True)
    else:
        dtype = user_dtype(dtype, name)
    shape = a.shape if shape is None else canonicalize_shape(shape, name)
    if dtype == dtypes.float0:
        return np.zeros(shape, dtype)
    result = lax.full(shape, value, dtype)
    if weak:
        result = convert(result, dtype, True)
    elif device is None:
        device = sharding_like(a, tuple(shape))
    return result if device is None else device_put(result, device)


def zeros_like(a: ArrayLike | HasShape, dtype: DTypeLike | None = None,
               shape: ShapeLike | None = None, *, device: Device | Sharding | None = None,
               out_sharding: ShardingLike | None = None) -> Array:
    """Create an array of zeros with the shape and dtype of another array.

    Args:
        a: array or number, or any object with a shape and a dtype.
        dtype: dtype of the result; None for the dtype of `a`.
        shape: shape of the result; None for the shape of `a`.
        device: device or sharding to place the result on; None for the sharding of `a`, or for the
            default device if `a` has no sharding.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        The array of zeros.
    """
    device = _target(device, out_sharding)
    return _like("zeros_like", a, 0, dtype, shape, device)


def ones_like(a: ArrayLike | HasShape, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None, *, device: Device | Sharding | None = None,
              out_sharding: ShardingLike | None = None) -> Array:
    """Create an array of ones with the shape and dtype of another array.

    Args:
        a: array or number, or any object with a shape and a dtype.
        dtype: dtype of the result; None for the dtype of `a`.
        shape: shape of the result; None for the shape of `a`.
        device: device or sharding to place the result on; None for the sharding of `a`, or for the
            default device if `a` has no sharding.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        The array of ones.
    """
    device = _target(device, out_sharding)
    return _like("ones_like", a, 1, dtype, shape, device)


def empty_like(prototype: ArrayLike | HasShape, dtype: DTypeLike | None = None,
               shape: ShapeLike | None = None, *,
               device: Device | Sharding | None = None) -> Array:
    """Create an array of zeros with the shape and dtype of another array, as `zeros_like` does.

    Args:
        prototype: array or number, or any object with a shape and a dtype.
        dtype: dtype of the result; None for the dtype of `prototype`.
        shape: shape of the result; None for the shape of `prototype`.
        device: device or sharding to place the result on; None for the sharding of `prototype`, or
            for the default device if `prototype` has no sharding.

    Returns:
        The array of zeros.

    Differences:
        NumPy does not initialize the elements.
    """
    return _like("empty_like", prototype, 0, dtype, shape, device)


def full_like(a: ArrayLike | HasShape, fill_value: ArrayLike, dtype: DTypeLike | None = None,
              shape: ShapeLike | None = None, *, device: Device | Sharding | None = None,
              out_sharding: ShardingLike | None = None) -> Array:
    """Create an array filled with one value, with the shape and dtype of another array.

    Args:
        a: array or number, or any object with a shape and a dtype.
        fill_value: number, or array that is broadcast to the shape of the result; it is converted
            to the dtype of the result.
        dtype: dtype of the result; None for the dtype of `a`.
        shape: shape of the result; None for the shape of `a`.
        device: device or sharding to place the result on; None for the sharding of `a`, or for the
            default device if `a` has no sharding.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        The filled array.

    >>> jnp.full_like(jnp.arange(2), 1.7)
    Array([1, 1], dtype=int32)
    """
    device = _target(device, out_sharding)
    fill = fill_value if type(fill_value) in _NUMBERS else as_array("full_like", fill_value, 1)
    if not np.shape(fill):
        return _general_like("full_like", a, fill, dtype, shape, device)
    shape = np.shape(a) if shape is None else canonicalize_shape(shape, "full_like")
    return full(shape, fill, dtypes.dtype(a) if dtype is None else dtype, device=device)


# Ranges.


def _bound(x: Any, what: str) -> Any:
    """Convert an end or the step of a range to a Python number; it must be concrete."""
    if type(x) in (int, float):
        return x
    if isinstance(x, Tracer):
        because = f"It arose in the jnp.arange argument '{what}'"
        raise conversion_error(x, f"the {what} of jnp.arange", because)
    value = x.item() if hasattr(x, "item") else x
    if isinstance(value, complex):
        raise ValueError("Passing complex start/stop/step to jnp.arange is no longer supported: "
                         f"needed real {what}, got the complex {value}{here()}")
    if not isinstance(value, (int, float)):
        raise TypeError(f"must be real number, not {type(value).__name__}{here()}")
    return value


def arange(start: ArrayLike, stop: ArrayLike | None = None, step: ArrayLike | None = None,
           dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None,
           out_sharding: ShardingLike | None = None) -> Array:
    """Create an array of evenly spaced numbers in a half-open interval.

    The arguments determine the size of the result, so under `jit` they cannot be traced values.

    Args:
        start: first number. If `stop` is None, the interval begins at 0 and `start` is its end.
        stop: end of the interval, not included; None to use `start` as the end.
        step: difference between neighbors; 1 by default. It may be negative.
        dtype: dtype of the result; None for the dtype that the arguments promote to.
        device: device or sharding to place the result on; None for the default device.
        out_sharding: sharding or `PartitionSpec` to use instead of `device`; None to use `device`.

    Returns:
        A one-dimensional array, which is empty if `stop` does not lie beyond `start` in the
        direction of `step`.

    Raises:
        ZeroDivisionError: `step` is 0.
        ValueError: an argument is complex or has more than one element.

    >>> jnp.arange(5, 0, -2)
    Array([5, 3, 1], dtype=int32)
    """
    device = _target(device, out_sharding)
    given = [x for x in (start, stop, step) if x is not None]
    dtype = dtypes.result_type(*given) if dtype is None else user_dtype(dtype, "arange")
    if stop is None:
        start, stop = 0, start
    first, last = _bound(start, "start"), _bound(stop, "stop")
    stride = 1 if step is None else _bound(step, "step")
    if stride == 0:
        raise ZeroDivisionError(f"arange: needed a step other than 0, got {step!r}{here()}")
    size = _range_size(first, last, stride)
    if device is None and dtype in INTEGERS and _eager_on_host():
        if type(first) is int and type(stride) is int:
            return wrap(np.arange(first, first + size * stride, stride).astype(dtype, copy=False))
    result = _progression(first, stride, size, dtype)
    return result if device is None else device_put(result, device)


def _progression(first: Any, stride: Any, size: int, dtype: Any) -> Any:
    """Compute first, first + stride, ... with traced or eager operations."""
    result = lax.iota(dtype, size)
    if stride != 1:
        result = lax.mul(_wrapped(stride, dtype), result)
    if first != 0 or (stride != 1 and dtype not in INTEGERS):
        result = lax.add(_wrapped(first, dtype), result)
    return result


def _range_size(first: Any, last: Any, stride: Any) -> int:
    if type(first) is int and type(last) is int and type(stride) is int:
        return max(0, -((first - last) // stride))
    return max(0, math.ceil((last - first) / stride))


def _wrapped(value: Any, dtype: Any) -> Any:
    return DeviceArray(np.asarray(value).astype(dtype), False)


@overload
def linspace(start: ArrayLike, stop: ArrayLike, num: SupportsIndex = 50, endpoint: bool = True,
             retstep: Literal[False] = False, dtype: DTypeLike | None = None, axis: int = 0, *,
             device: Device | Sharding | None = None) -> Array: ...
@overload
def linspace(start: ArrayLike, stop: ArrayLike, num: SupportsIndex = 50, endpoint: bool = True,
             *, retstep: Literal[True], dtype: DTypeLike | None = None, axis: int = 0,
             device: Device | Sharding | None = None) -> tuple[Array, Array]: ...
def linspace(start: ArrayLike, stop: ArrayLike, num: SupportsIndex = 50, endpoint: bool = True,
             retstep: bool = False, dtype: DTypeLike | None = None, axis: int = 0, *,
             device: Device | Sharding | None = None) -> Array | tuple[Array, Array]:
    """Create an array of evenly spaced numbers in an interval.

    Args:
        start, stop: ends of the interval; arrays are broadcast against each other.
        num: number of elements.
        endpoint: whether `stop` is the last number; if False, the last number is one step before
            `stop`.
        retstep: whether to also return the distance between neighbors.
        dtype: dtype of the result; None for the float (or complex) dtype that `start` and `stop`
            promote to. If `dtype` is an integer dtype, the numbers are rounded down.
        axis: position of the new axis in the result; the new axis has length `num`.
        device: device or sharding to place the result on; None for the default device.

    Returns:
        The numbers. If `retstep` is True, a tuple of the numbers and the step. The step is NaN if
        `num` is 0, or if `num` is 1 and `endpoint` is True.

    >>> jnp.linspace(0, 1, 3)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    count = integer(num, "num")
    if count < 0:
        raise ValueError(f"Number of samples, {count}, must be non-negative.{here()}")
    start, stop, dtype, work = range_ends("linspace", start, stop, dtype)
    shape = start.shape
    parts = count - 1 if endpoint else count
    step = lax.full((), math.nan, work)
    if count > 1:
        step = lax.div(lax.sub(stop, start), _wrapped(parts, work))
        out = _between(start, stop, parts, work)
        if endpoint:
            out = lax.concatenate([out, lax.expand_dims(stop, (0,))], 0)
    elif count == 1:
        step = step if endpoint else lax.sub(stop, start)
        out = lax.reshape(start, (1, *shape))
    else:
        out = lax.full((0, *shape), 0, work)
    if dtype in INTEGERS and count:
        out = lax.floor(out)
    out = convert(first_axis_to(out, axis), dtype)
    out = out if device is None else device_put(out, device)
    return (out, step) if retstep else out


def range_ends(name: str, start: Any, stop: Any, dtype: Any) -> tuple[Array, Array, Any, Any]:
    """Return the broadcast ends of a range, its dtype, and the dtype to compute in."""
    start, stop = as_array(name, start), as_array(name, stop, 1)
    if dtype is None:
        dtype = to_inexact(dtypes.result_type(start, stop))
    else:
        dtype = user_dtype(dtype, name)
    work = to_inexact(dtype)
    shape = broadcast_shapes(start.shape, stop.shape)
    start, stop = (broadcast_to(convert(x, work), shape) for x in (start, stop))
    return start, stop, dtype, work


def _between(start: Any, stop: Any, parts: int, dtype: Any) -> Any:
    """Compute start (1 - i/parts) + stop i/parts for i = 0, 1, ..., which is exact at the start.

    It is rounded as in JAX, where XLA computes i (stop/parts): whole numbers remain whole."""
    shape = (parts, *start.shape)
    i = lax.broadcast_in_dim(lax.iota(dtype, parts), shape, (0,))
    part = lax.div(_wrapped(1, dtype), _wrapped(parts, dtype))
    rest = lax.sub(_wrapped(1, dtype), lax.mul(i, part))
    end = lax.mul(i, broadcast_to(lax.mul(stop, part), shape))
    return lax.add(lax.mul(broadcast_to(start, shape), rest), end)


def first_axis_to(x: Any, axis: int) -> Any:
    """Move the first axis of `x` to position `axis`."""
    axis = canonicalize_axis(axis, x.ndim)
    if axis == 0:
        return x
    order = (*range(1, axis + 1), 0, *range(axis + 1, x.ndim))
    return lax.transpose(x, order)


# Matrices of zeros and ones.


def eye(N: SupportsIndex, M: SupportsIndex | None = None, k: ArrayLike = 0,
        dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None) -> Array:
    """Create a matrix with ones on one diagonal and zeros elsewhere.

    Args:
        N: number of rows.
        M: number of columns; None for the number of rows.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.
        dtype: dtype of the result; None for the default float dtype.
        device: device or sharding to place the result on; None for the default device.

    Returns:
        An array of shape (N, M).

    >>> jnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    rows, columns = (
        n if type(n) is int else canonicalize_shape((n,), "eye")[0]
        for n in (N, N if M is None else M)
    )
    if rows < 0 or columns < 0:
        raise ValueError(f"negative dimensions are not allowed, got {(rows, columns)}{here()}")
    dtype = default_float() if dtype is None else user_dtype(dtype, "eye")
    row, column = _row_and_column((rows, columns), k, "eye")
    result = lax.convert_element_type(lax.eq(row, column), dtype)
    return result if device is None else device_put(result, device)


def _row_and_column(shape: tuple[int, ...], k: Any, name: str = "") -> tuple[Any, Any]:
    """Return the row number plus `k` and the column number of each element of a matrix."""
    index = np.dtype("int32")
    row = lax.broadcasted_iota(index, shape, 0)
    if not isinstance(k, int) or k:
        if name == "eye" and isinstance(k, int):
            k = max(-shape[0], min(k, shape[1]))  # further out the diagonal is empty
        row = lax.add(row, convert(as_array("eye", k), index))
    return row, lax.broadcasted_iota(index, shape, 1)


def identity(n: SupportsIndex, dtype: DTypeLike | None = None) -> Array:
    """Create a square matrix with ones on the main diagonal and zeros elsewhere.

    Args:
        n: number of rows and of columns.
        dtype: dtype of the result; None for the default float dtype.

    Returns:
        An array of shape (n, n).
    """
    return eye(n, dtype=dtype)


def tri(N: SupportsIndex, M: SupportsIndex | None = None, k: ArrayLike = 0,
        dtype: DTypeLike | None = None) -> Array:
    """Create a matrix with ones on and below one diagonal and zeros above it.

    Args:
        N: number of rows.
        M: number of columns; None for the number of rows.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.
        dtype: dtype of the result; None for the default float dtype.

    Returns:
        An array of shape (N, M).

    >>> jnp.tri(2, 3)
    Array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)
    """
    shape = canonicalize_shape((N, N if M is None else M), "tri")
    dtype = user_dtype(float if dtype is None else dtype, "tri")
    return lax.convert_element_type(lax.ge(*_row_and_column(shape, k)), dtype)


def _triangle(name: str, m: Any, k: Any, keep_lower: bool) -> Any:
    m = as_array(name, m)
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D{here()}")
    row, column = _row_and_column(m.shape[-2:], k)
    mask = broadcast_to(lax.ge(row, column) if keep_lower else lax.gt(row, column), m.shape)
    nothing = lax.full_like(m, 0)
    return lax.select(mask, m, nothing) if keep_lower else lax.select(mask, nothing, m)


def tril(m: ArrayLike, k: ArrayLike = 0) -> Array:
    """Set the elements above one diagonal of each matrix to zero.

    Args:
        m: array with at least two axes; the matrices are in the last two axes.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.

    Returns:
        An array with the shape and dtype of `m`.

    >>> jnp.tril(jnp.ones((2, 3), "int32"))
    Array([[1, 0, 0],
           [1, 1, 0]], dtype=int32)
    """
    return _triangle("tril", m, k, True)


def triu(m: ArrayLike, k: ArrayLike = 0) -> Array:
    """Set the elements below one diagonal of each matrix to zero.

    Args:
        m: array with at least two axes; the matrices are in the last two axes.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.

    Returns:
        An array with the shape and dtype of `m`.

    >>> jnp.triu(jnp.ones((2, 3), "int32"))
    Array([[1, 1, 1],
           [0, 1, 1]], dtype=int32)
    """
    return _triangle("triu", m, k, False)
