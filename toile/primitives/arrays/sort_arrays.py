"""Sorting, top-k and arg-extrema of raw arrays, in XLA's order.

In `sort` floats compare as numbers, with -0.0 equal to 0.0 and every NaN after +inf; complex
numbers compare by real, then imaginary part. `top_k` uses the total order of the bit patterns
(-NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN). Equal keys keep the lower index first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.primitives.arrays.contraction import accumulator, dtype_kind

Array = Any
Module = Any


def sort(
    xp: Module, operands: Sequence[Array], axis: int, num_keys: int, stable: bool
) -> tuple[Array, ...]:
    """Sort all operands along `axis` by the first `num_keys` of them, the first one leading."""
    first = operands[0]
    if first.ndim == 0 or first.shape[axis] < 2 or first.size == 0:
        return tuple(operands)
    if len(operands) == 1 and dtype_kind(first.dtype) in "biuf":
        return (_sort_values(xp, first, axis, stable),)
    keys: list[Array] = []
    for x in operands[:num_keys]:
        if dtype_kind(x.dtype) == "c":
            keys += [x.real, x.imag]
        else:
            keys.append(_comparable(x))
    order = _order(xp, keys, axis)
    return tuple(xp.take_along_axis(x, order, axis) for x in operands)


def _comparable(x: Array) -> Array:
    """The same keys in a dtype whose NaNs and order the array module supports."""
    kind = dtype_kind(x.dtype)
    if kind == "f":
        return x.astype(accumulator(x.dtype), copy=False)
    return x if x.dtype.kind in "biu" else x.astype(np.int8 if kind == "i" else np.uint8)


def _sort_values(xp: Module, x: Array, axis: int, stable: bool) -> Array:
    """Sort one operand; stability matters only for the signs of zeros."""
    keys = _comparable(x)
    signed_zero = (
        stable and keys.dtype.kind == "f" and bool(xp.any((keys == 0) & xp.signbit(keys)))
    )
    kind = {"kind": "stable"} if signed_zero else {}
    return xp.sort(keys, axis=axis, **kind).astype(x.dtype, copy=False)


def _order(xp: Module, keys: list[Array], axis: int) -> Array:
    """Stable lexicographic argsort: by the last key first, the leading key last."""
    options = {"kind": "stable"} if xp is np else {}  # cupy's argsort is always stable
    order = xp.argsort(keys[-1], axis=axis, **options)
    for key in reversed(keys[:-1]):
        step = xp.argsort(xp.take_along_axis(key, order, axis), axis=axis, **options)
        order = xp.take_along_axis(order, step, axis)
    return order


def _descending_key(xp: Module, x: Array) -> Array:
    """Integers whose ascending order is the descending total order of x."""
    kind = dtype_kind(x.dtype)
    if kind == "b":
        return (~x).astype(np.int8)
    if kind in "iu":
        return ~_comparable(x)
    if kind == "c":
        raise TypeError(f"top_k: needed real numbers, got {x.dtype}{here()}")
    keys = _comparable(x)
    bits = xp.ascontiguousarray(keys).view(f"i{keys.dtype.itemsize}")
    # Negative floats are ordered backwards as integers: flip all their bits but the sign.
    return ~xp.where(bits < 0, bits ^ xp.asarray(np.iinfo(bits.dtype).max, bits.dtype), bits)


def top_k(xp: Module, x: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along `axis`, in descending order, and their int32 indices."""
    axis %= x.ndim
    moved = xp.moveaxis(x, axis, -1)
    n = moved.shape[-1]
    if k == 0 or moved.size == 0:
        shape = moved.shape[:-1] + (k,)
        values, index = xp.zeros(shape, x.dtype), xp.zeros(shape, np.int32)
        return xp.moveaxis(values, -1, axis), xp.moveaxis(index, -1, axis)
    key = _descending_key(xp, moved)
    if k == 1:
        index = xp.argmin(key, axis=-1)[..., None]
    elif 4 * k < n and n > 64:
        index = _smallest(xp, key, k)
    else:
        index = _order(xp, [key], key.ndim - 1)[..., :k]
    values = xp.take_along_axis(moved, index, -1)
    return xp.moveaxis(values, -1, axis), xp.moveaxis(index.astype(np.int32), -1, axis)


def _smallest(xp: Module, key: Array, k: int) -> Array:
    """Indices of the k smallest keys in order, ties by index, without sorting the others."""
    n, batch = key.shape[-1], key.shape[:-1]
    rows = key.reshape(-1, n)
    limit = xp.partition(rows, k - 1, axis=-1)[:, k - 1 : k]
    taken = rows <= limit
    if int(taken.sum()) > k * rows.shape[0]:  # ties at the limit: keep only the first ones
        below, equal = rows < limit, rows == limit
        missing = k - below.sum(axis=-1, keepdims=True)
        taken = below | (equal & (xp.cumsum(equal, axis=-1, dtype=np.int32) <= missing))
    index = xp.nonzero(taken)[1].reshape(-1, k)
    order = _order(xp, [xp.take_along_axis(rows, index, -1)], 1)
    return xp.take_along_axis(index, order, -1).reshape(batch + (k,))


def argmax(xp: Module, x: Array, axis: int, index_dtype: np.dtype) -> Array:
    """Index of the first largest element along `axis`; a NaN counts as the largest."""
    return xp.asarray(xp.argmax(_comparable(x), axis=axis)).astype(index_dtype, copy=False)


def argmin(xp: Module, x: Array, axis: int, index_dtype: np.dtype) -> Array:
    """Index of the first least element along `axis`; a NaN counts as the least."""
    return xp.asarray(xp.argmin(_comparable(x), axis=axis)).astype(index_dtype, copy=False)
