"""Dtypes of arrays: conversion, reduced precision, and the dtype of a value.

Weak types are dropped unless requested, 64-bit dtypes are narrowed with a warning when x64 is off,
floats saturate at the ends of integer ranges, and Python integers of any size are accepted. This
module may import the engine, primitives and `_operands`.
"""

from __future__ import annotations

import operator
import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike
from toile.engine.arrays import Array, DeviceArray
from toile.engine.conversion import as_array
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.promotion import user_stack_level
from toile.engine.source import here
from toile.engine.trace import state
from toile.lax._operands import checked, dtypes_of, user_dtype
from toile.primitives.elementwise import ConvertElementType, convert_raw
from toile.primitives.families import broadcast_in_dim, scalar
from toile.primitives.shapes import ReducePrecision

__all__ = ["convert_element_type", "dtype", "reduce_precision"]

_conversion = lru_cache(maxsize=1024)(ConvertElementType)
_FLOATS = frozenset(d for d in dtypes_of("fc") if d.itemsize > 1)  # all hold 6e4
_NUMERIC = frozenset(dtypes.SUPPORTED) - {dtypes.float0}
_NUMBERS = (bool, int, float, complex, np.generic)


def dtype(x: ArrayLike | DTypeLike) -> np.dtype[Any]:
    """Return the dtype of a value, or the dtype to which a type or a name refers.

    Args:
        x: array, Python number, NumPy scalar, or a dtype in any form.

    Returns:
        A NumPy dtype. For Python numbers and their types, it is the default dtype: int32 for `int`
        and float32 for `float`, unless 64-bit types are enabled.

    >>> lax.dtype(3.5), lax.dtype("int8"), lax.dtype(jnp.array([True]))
    (dtype('float32'), dtype('int8'), dtype('bool'))
    """
    return dtypes.dtype(x)


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Convert the elements of an array to another dtype.

    Floats that are converted to integers are truncated. A float that is out of range becomes the
    nearest integer of the dtype, and NaN becomes 0. Integers that do not fit into a narrower dtype
    wrap around. If 64-bit types are not enabled, a 64-bit dtype is replaced with the corresponding
    32-bit dtype, and a warning is issued.

    Args:
        operand: array or number.
        new_dtype: dtype of the result.

    Returns:
        An array of dtype `new_dtype` with the shape of `operand`. If no conversion is needed, the
        result is `operand` itself.

    >>> lax.convert_element_type(jnp.array([1.7, -1.7, 1e10]), jnp.int32)
    Array([         1,         -1, 2147483647], dtype=int32)
    """
    return _convert_element_type(operand, user_dtype(new_dtype, "convert_element_type"))


def _convert_element_type(operand: Any, new_dtype: Any = None, weak_type: bool = False,
                          sharding: Any = None, warn_on_complex_to_real_cast: bool = True) -> Any:
    """The same values in another dtype and with the given weak bit; None keeps the dtype."""
    x = operand
    if x.__class__ is not DeviceArray and not isinstance(x, Array):
        return _from_other(x, new_dtype, weak_type, warn_on_complex_to_real_cast)
    old = x.dtype
    new = old if new_dtype is None else new_dtype
    if old == new and x.weak_type == weak_type:
        return x
    if not (old in _NUMERIC and new in _NUMERIC):
        return _special(x, old, new)
    if old.kind == "c" and new.kind != "c" and warn_on_complex_to_real_cast:
        _warn_of_lost_part()
    if state.trace is None and x.__class__ is DeviceArray:
        return _converted(x._data, new, weak_type)
    return _conversion(new, weak_type)(x)


def _converted(data: Any, new: Any, weak: bool) -> Any:
    """An array with the values of a NumPy array, converted to a dtype."""
    if data.dtype == new:
        return DeviceArray(data, weak)
    token = ignore_errors()
    try:
        return DeviceArray(np.asarray(convert_raw(np, data, new)), weak)
    finally:
        restore_errors(token)


def _from_other(x: Any, new: Any, weak: bool, warn: bool) -> Any:
    """Convert a value that is not an `Array`."""
    if getattr(x, "__jax_array__", None) is None and isinstance(x, _NUMBERS):
        return _from_number(x, new, weak)
    x = x.__jax_array__() if getattr(x, "__jax_array__", None) is not None else as_array(x)
    return _convert_element_type(x, new, weak, None, warn)


def _special(x: Any, old: Any, new: Any) -> Any:
    """Handle keys, which cannot be converted, and float0, whose values are zeros."""
    if dtypes.is_extended(old) or dtypes.is_extended(new):
        if old == new:
            return x
        raise ValueError(f"Cannot convert_element_type from {dtypes.name_of(old)} to "
                         f"{dtypes.name_of(new)} (see toile.random.key_data){here()}")
    if old == dtypes.float0:
        return broadcast_in_dim(scalar(0, new), x.shape, ())
    return DeviceArray(np.zeros(x.shape, dtypes.float0))


def _warn_of_lost_part() -> None:
    warnings.warn("Casting complex values to real discards the imaginary part",
                  np.exceptions.ComplexWarning, stacklevel=user_stack_level())


def _from_number(x: Any, new: Any, weak: bool) -> Any:
    """A rank-0 array with the value of a Python or NumPy number."""
    if type(x) is float and new in _FLOATS and -6e4 < x < 6e4:
        return DeviceArray(np.asarray(x, new), weak)
    if new is None:
        new = dtypes.dtype(x)
    if new == dtypes.float0:
        return DeviceArray(np.zeros((), dtypes.float0))
    if dtypes.is_extended(new):
        raise ValueError("Cannot convert_element_type from a number to "
                         f"{dtypes.name_of(new)}{here()}")
    if isinstance(x, int) and not isinstance(x, bool):
        value = np.asarray(int(x))
        if value.dtype == object and dtypes.kind(new) in "iu":
            value = np.asarray(int(x) & (2**64 - 1), np.uint64)
        with np.errstate(over="ignore"):  # a number too large for the dtype is infinite
            return DeviceArray(value.astype(new), weak)
    value = np.asarray(x)
    if value.dtype.kind == "c" and new.kind != "c":
        _warn_of_lost_part()
    return _converted(value, new, weak)


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round each element to a floating-point format with fewer bits, without changing the dtype.

    Use this function to see the effect of a narrow format. For example, bfloat16 has 8 exponent
    bits and 7 mantissa bits; float16 has 5 exponent bits and 10 mantissa bits. A format with fewer
    exponent bits than the dtype of `operand` has no subnormal numbers.

    Args:
        operand: array or number of a float dtype.
        exponent_bits: number of exponent bits, at least 1. Values that are too large for the
            exponent become infinite, and values that are too small become 0.
        mantissa_bits: number of mantissa bits. Ties are rounded to even.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.reduce_precision(jnp.array([1.2345678, 1e10]), 5, 10)
    Array([1.234375,      inf], dtype=float32)
    """
    bits = operator.index(exponent_bits), operator.index(mantissa_bits)
    return checked(ReducePrecision(*bits), [as_array(operand)])
