"""Bit casts, including those of integers that are narrower than a byte.

An array stores such an integer in a byte of its own, so its bits are packed before they are read as
another dtype. This module may import the engine, primitives and other modules of `toile.lax`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike
from toile.engine.arrays import Array
from toile.engine.errors import shape_error
from toile.lax._operands import checked, operand, user_dtype
from toile.lax.comparisons import bitwise_and, shift_left, shift_right_logical
from toile.lax.conversion import convert_element_type
from toile.lax.reductions import reduce_or
from toile.lax.shapes import broadcast_in_dim, full, reshape
from toile.primitives.shapes import BitcastConvertType

__all__ = ["bitcast_convert_type"]

_operand = operand  # the public functions call their first parameter `operand`
_BYTE = np.dtype(np.uint8)


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Reinterpret the bits of each element as another dtype.

    Args:
        operand: array or number.
        new_dtype: dtype to read the bits as.

    Returns:
        An array of dtype `new_dtype`. It has the shape of `operand` if both dtypes have the same
        number of bits. If the new dtype is narrower, each element is split into parts along a new
        last axis, lowest bits first. If the new dtype is wider, the elements along the last axis of
        `operand` are joined in the same order, and that axis is removed.

    Raises:
        ShapeError: the new dtype is wider, and the elements along the last axis of `operand` do not
            make up exactly one element of the new dtype.

    >>> lax.bitcast_convert_type(jnp.array([1.0]), jnp.uint32)
    Array([1065353216], dtype=uint32)
    >>> lax.bitcast_convert_type(jnp.array([258], dtype=jnp.uint16), jnp.uint8)
    Array([[2, 1]], dtype=uint8)
    """
    new = user_dtype(new_dtype, "bitcast_convert_type")
    x = _operand("bitcast_convert_type", operand)
    old_bits, new_bits = _bits_in_byte(x.dtype), _bits_in_byte(new)
    if old_bits == new_bits:
        return checked(BitcastConvertType(new), [x])
    if old_bits < 8:
        return _packed(x, old_bits, new)
    return _unpacked(x, new_bits, new)


def _bits_in_byte(dtype: Any) -> int:
    """The number of bits of an integer dtype that is narrower than a byte; 8 for all others."""
    return min(8, dtypes.itemsize_bits(dtype)) if dtypes.kind(dtype) in "iu" else 8


def _places(bits: int, shape: tuple[int, ...]) -> Array:
    """The first bit of each of the parts of a byte, which are along the last axis."""
    places = convert_element_type(np.arange(0, 8, bits), _BYTE)
    return broadcast_in_dim(places, shape, (len(shape) - 1,))


def _packed(x: Array, bits: int, new: Any) -> Array:
    """Numbers of dtype `new`, each of which has the bits along the last axis of `x`."""
    size = max(8, dtypes.itemsize_bits(new)) // bits
    if not x.shape or x.shape[-1] != size:
        raise shape_error("bitcast_convert_type", f"a last axis of size {size} to become "
                          f"{dtypes.name_of(new)}", [x.aval], "reshape the last axis to that size")
    x = convert_element_type(x, _BYTE)  # -1 becomes 255
    x = bitwise_and(x, full(x.shape, 2**bits - 1, _BYTE))
    x = reshape(x, (*x.shape[:-1], size * bits // 8, 8 // bits))
    found = reduce_or(shift_left(x, _places(bits, x.shape)), (x.ndim - 1,))
    if size * bits == 8:
        found = reshape(found, found.shape[:-1])
    return checked(BitcastConvertType(new), [found]) if new != _BYTE else found


def _unpacked(x: Array, bits: int, new: Any) -> Array:
    """The bits of `x` as numbers of dtype `new` along a new last axis, the low bits first."""
    data = x if x.dtype == _BYTE else checked(BitcastConvertType(_BYTE), [x])
    shape = (*data.shape, 8 // bits)
    parts = broadcast_in_dim(data, shape, tuple(range(data.ndim)))
    parts = shift_right_logical(parts, _places(bits, shape))
    parts = bitwise_and(parts, full(shape, 2**bits - 1, _BYTE))
    return convert_element_type(reshape(parts, (*x.shape, math.prod(shape[x.ndim:]))), new)
