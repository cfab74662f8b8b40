"""Dtypes of arrays: conversion, bit casts, reduced precision, and what dtype a value has.

Conversion follows the target: weak bits are dropped unless asked for, 64-bit requests narrow with a
warning when x64 is off, floats saturate at the ends of integer ranges, and Python integers of any
size are taken. May import the engine, primitives and `_operands`.
"""

from __future__ import annotations

import operator
import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.conversion import as_array
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.promotion import user_stack_level
from toile.engine.source import here
from toile.engine.trace import state
from toile.lax._operands import checked, dtypes_of, operand, user_dtype
from toile.primitives.elementwise import ConvertElementType, convert_raw
from toile.primitives.families import broadcast_in_dim, scalar
from toile.primitives.shapes import BitcastConvertType, ReducePrecision

__all__ = ["bitcast_convert_type", "convert_element_type", "dtype", "reduce_precision"]

_conversion = lru_cache(maxsize=1024)(ConvertElementType)
_FLOATS = frozenset(d for d in dtypes_of("fc") if d.itemsize > 1)  # all hold 6e4
_NUMERIC = frozenset(dtypes.SUPPORTED) - {dtypes.float0}
_NUMBERS = (bool, int, float, complex, np.generic)
_operand = operand  # the public functions call their first parameter `operand`


def dtype(x: Any) -> Any:
    """The dtype of a value, or the one that a type stands for."""
    return dtypes.dtype(x)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The same values in another dtype."""
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
    """An array of NumPy's values in a dtype."""
    if data.dtype == new:
        return DeviceArray(data, weak)
    token = ignore_errors()
    try:
        return DeviceArray(np.asarray(convert_raw(np, data, new)), weak)
    finally:
        restore_errors(token)


def _from_other(x: Any, new: Any, weak: bool, warn: bool) -> Any:
    """What is no Array, converted."""
    if not hasattr(x, "__jax_array__") and isinstance(x, _NUMBERS):
        return _from_number(x, new, weak)
    x = x.__jax_array__() if hasattr(x, "__jax_array__") else as_array(x)
    return _convert_element_type(x, new, weak, None, warn)


def _special(x: Any, old: Any, new: Any) -> Any:
    """Keys, which are not converted, and float0, which are zeros."""
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
        return DeviceArray(value.astype(new), weak)
    value = np.asarray(x)
    if value.dtype.kind == "c" and new.kind != "c":
        _warn_of_lost_part()
    return _converted(value, new, weak)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The same bits as another dtype; where widths differ a last axis appears or goes."""
    new = user_dtype(new_dtype, "bitcast_convert_type")
    return checked(BitcastConvertType(new), [_operand("bitcast_convert_type", operand)])


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round to a float format with fewer exponent and mantissa bits, kept in the same dtype."""
    bits = operator.index(exponent_bits), operator.index(mantissa_bits)
    return checked(ReducePrecision(*bits), [as_array(operand)])
