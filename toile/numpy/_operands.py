"""Checking of user arguments, and conversion to operands: arrays and Python numbers.

This module may import the engine, `lax` and `_dtypes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import is_masked
from toile.engine.conversion import from_numpy
from toile.engine.foreign_names import conversion_of
from toile.engine.promotion import narrowed
from toile.engine.source import describe, here
from toile.numpy._dtypes import BOOL, COMPLEX, INEXACT, INTEGERS

_NUMBERS: tuple[Any, ...] = (bool, int, float, complex)
NUMBER_TYPES = frozenset(_NUMBERS)
_ALLOWED = frozenset((BOOL, *INEXACT, *INTEGERS))


def _refuse(name: str, x: Any, position: int) -> TypeError:
    return TypeError(
        f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position} "
        f"(needed an array or a number: {conversion_of(x) or 'convert it with jnp.array'}){here()}"
    )


def as_operand(name: str, x: Any, position: int = 0) -> Any:
    """Convert `x` to an Array or a Python number; other types raise a TypeError."""
    if isinstance(x, Array) or type(x) in NUMBER_TYPES:
        return x
    if isinstance(x, (np.ndarray, np.generic)):
        return _from_host(x)
    if getattr(x, "__jax_array__", None) is not None:
        return as_operand(name, x.__jax_array__(), position)
    for kind in _NUMBERS:
        if isinstance(x, kind):  # IntEnum members and other subclasses of numbers
            return kind(x)
    raise _refuse(name, x, position)


def _from_host(x: Any) -> Any:
    dtype = x.dtype
    if is_masked(x):
        raise ValueError("numpy masked arrays are not supported: needed a plain array (fill the "
                         f"masked elements with x.filled()){here()}")
    if dtype not in _ALLOWED:
        if dtype == dtypes.float0:
            return x
        raise TypeError(f"Value {describe(x)} with dtype {dtype} is not a valid array type: needed "
                        "a numeric or boolean dtype (convert it with .astype)." + here())
    return from_numpy(np.asarray(x, narrowed(dtype)))


def as_array(name: str, x: Any, position: int = 0) -> Array:
    """Convert `x` to an Array; a Python number becomes a weakly typed array of rank 0."""
    if type(x) is DeviceArray:
        return x
    x = as_operand(name, x, position)
    return x if type(x) not in NUMBER_TYPES else number_array(x)


def unwrapped(x: Any) -> Any:
    """The array of an object that has `__jax_array__`; other values unchanged."""
    convert = getattr(x, "__jax_array__", None)
    return x if convert is None else convert()


def number_array(x: Any) -> Array:
    """Convert a Python number to a rank-0 array of its default dtype, weak unless it is a bool."""
    dtype = dtypes.scalar_dtype(x)
    return from_numpy(np.asarray(x, dtype), weak_type=type(x) is not bool)


def check_arraylike(name: str, *args: Any) -> None:
    """Raise a TypeError if an argument is neither an array nor a number."""
    for position, x in enumerate(args):
        if type(x) is not DeviceArray and not is_arraylike(x):
            raise _refuse(name, x, position)


def is_arraylike(x: Any) -> bool:
    """Whether `x` is an array or a number."""
    known = isinstance(x, (Array, np.ndarray, np.generic, *_NUMBERS))
    return known or getattr(x, "__jax_array__", None) is not None


def no_out(name: str, out: Any) -> None:
    """Raise an error if `out` is given, because arrays are immutable."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.{here()}")


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an operand; () for a Python number."""
    return () if type(x) in NUMBER_TYPES else x.shape


def pair_of(x: Any) -> tuple[Any, bool]:
    """Return (dtype, weak) of an operand."""
    kind = type(x)
    if kind in NUMBER_TYPES:
        return dtypes.scalar_dtype(x), kind is not bool
    try:
        return x.dtype, x.weak_type
    except AttributeError:  # the one NumPy array that is no operand
        raise TypeError("Called with a float0 array. float0s do not support any operations by "
                        "design, because they are not compatible with non-trivial vector spaces: "
                        "needed numbers (the gradient of an integer is float0; compare its dtype "
                        f"with toile.float0){here()}") from None


# Rank-0 operands made from numbers, by (type, value, dtype, weak). They are never results, so
# they cannot be deleted. 0.0 and NaN are not kept: 0.0 equals -0.0, and NaN equals nothing.
_literals: dict[tuple[Any, ...], Any] = {}


def literal(value: Any, dtype: Any, weak_type: bool = False) -> Array:
    """Convert the Python number `value` to a rank-0 operand of the given dtype."""
    key = (value.__class__, value, dtype, weak_type)
    found = _literals.get(key)
    if found is not None:
        return found
    made = value
    if dtype in INTEGERS:
        # Out of range wraps, as it does for arrays: -1 is 255 among uint8.
        made = np.array(value, dtypes.scalar_dtype(value)).astype(dtype)
    elif type(value) is complex and dtype not in COMPLEX:
        made = value.real
    with np.errstate(over="ignore"):  # a number too large for the dtype is infinite
        made = DeviceArray(np.array(made, dtype), weak_type)
    kind = type(value)
    if kind is int or kind is bool or (kind is float and value and value == value):
        if len(_literals) >= 4096:
            _literals.clear()
        _literals[key] = made
    return made


def convert(x: Any, dtype: Any, weak_type: bool = False) -> Array:
    """Convert the array or Python number `x` to the given dtype and weak bit."""
    if type(x) in NUMBER_TYPES:
        return literal(x, dtype, weak_type)
    if x.dtype == dtype and x.weak_type == weak_type:
        return x
    return lax._convert_element_type(x, dtype, weak_type)


def strengthen(x: Any) -> Array:
    """Return `x` without its weak bit."""
    return lax._convert_element_type(x, x.dtype, False) if x.weak_type else x
