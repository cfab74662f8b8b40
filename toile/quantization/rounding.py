"""Rounding of arrays to integers or float8 numbers with one scale for each group of elements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike
from toile.engine.source import describe, here
from toile.primitives.quantized import NIBBLE_ZERO
from toile.quantization.arrays import QuantizedArray

__all__ = ["quantize_array"]

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


class Form(NamedTuple):
    """How numbers are stored."""

    bits: int
    symmetric: bool
    stored: np.dtype[Any]  # dtype of a stored number
    most: float  # the largest stored number
    least: float

    @property
    def is_float(self) -> bool:
        return self.stored.name in FLOAT8

    def rounded(self, x: Any) -> Any:
        """The nearest numbers that can be stored, in the dtype of x."""
        x = jnp.clip(x, self.least, self.most)
        return x.astype(self.stored).astype(x.dtype) if self.is_float else jnp.round(x)


def form_of(bits: int, symmetric: bool, dtype: DTypeLike | None) -> Form:
    """Return the form with these properties; raises an error if they are not supported."""
    if dtype is not None:
        stored = np.dtype(dtypes.canonicalize_dtype(dtype))
        if stored.name not in FLOAT8 or bits != 8 or not symmetric:
            raise ValueError(
                f"quantize: needed dtype=None, float8_e4m3fn or float8_e5m2 (with bits=8 and "
                f"symmetric=True), got dtype={stored.name}, {bits=}, {symmetric=} (integers need "
                f"no dtype: choose bits){here()}"
            )
        most = float(dtypes.finfo(stored).max)
        return Form(8, True, stored, most, -most)
    if bits not in (4, 8):
        raise ValueError(f"quantize: needed bits=4 or bits=8, got {bits=} (8 bits lose less, 4 bits"
                         f" need half the memory){here()}")
    levels = 2**bits
    if symmetric:
        most = levels // 2 - 1
        return Form(bits, True, np.dtype(np.int8), most, -most)
    return Form(bits, False, np.dtype(np.uint8), levels - 1, 0)


class Grouped(NamedTuple):
    """An array whose groups are rows: axes (..., groups, group), padded with the last elements."""

    rows: Any
    length: int
    group: int
    axis: int


def grouped(w: Any, group: int | None, axis: int) -> Grouped:
    """Divide an array into groups along an axis; groups and their elements become the last axes."""
    length = w.shape[axis]
    group = max(1, length if group is None else min(group, length))
    w = jnp.moveaxis(w, axis, -1)
    extra = -length % group
    if extra:
        w = jnp.pad(w, [(0, 0)] * (w.ndim - 1) + [(0, extra)], mode="edge")
    return Grouped(w.reshape(*w.shape[:-1], -1, group), length, group, axis)


def scales_of(rows: Any, form: Form, shrink: Any = 1.0) -> tuple[Any, Any]:
    """Compute scales, and zeros or None, such that each row fits the range of stored numbers.

    `shrink`: the fraction of the range that is represented; other numbers are clipped."""
    if form.symmetric:
        scales = jnp.abs(rows).max(-1) * (shrink / form.most)
        return jnp.where(scales > 0, scales, 1), None
    low, high = rows.min(-1) * shrink, rows.max(-1) * shrink
    scales = (high - low) / form.most
    scales = jnp.where(scales > 0, scales, 1)
    return scales, -low / scales


def stored_numbers(rows: Any, form: Form, scales: Any, zeros: Any) -> Any:
    """Return the numbers that are stored for rows, in the dtype of the rows."""
    numbers = rows / scales[..., None]
    return form.rounded(numbers if zeros is None else numbers + zeros[..., None])


def packed(numbers: Any, form: Form, axis: int) -> Any:
    """Convert stored numbers, whose last axis is that of the groups, to the array `values`."""
    if form.is_float:
        return jnp.moveaxis(numbers.astype(form.stored), -1, axis)
    if form.bits == 8:
        return jnp.moveaxis(numbers.astype(form.stored), -1, axis)
    numbers = (numbers + (NIBBLE_ZERO if form.symmetric else 0)).astype(jnp.uint8)
    if numbers.shape[-1] % 2:
        numbers = jnp.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, 1)])
    return jnp.moveaxis(numbers[..., ::2] | (numbers[..., 1::2] << 4), -1, axis)


def assembled(
    numbers: Any, scales: Any, zeros: Any, form: Form, where: Grouped, dtype: Any
) -> QuantizedArray:
    """Create a quantized array from stored numbers in rows, and from their scales and zeros."""
    flat = numbers.reshape(*numbers.shape[:-2], -1)[..., : where.length]
    axis = where.axis
    return QuantizedArray(
        packed(flat, form, axis), jnp.moveaxis(scales, -1, axis),
        None if zeros is None else jnp.moveaxis(zeros, -1, axis), bits=form.bits,
        group=where.group, length=where.length, axis=axis, dtype=np.dtype(dtype))


def checked_array(w: Any, axis: int) -> tuple[Any, int]:
    """Return an array in the dtype used for computing, and the axis as a negative number."""
    w = jnp.asarray(w)
    if not jnp.issubdtype(w.dtype, jnp.floating) or w.ndim == 0:
        raise ValueError(f"quantize: needed a floating array with an axis, got {describe(w)} "
                         f"(select other parameters){here()}")
    if not -w.ndim <= axis < w.ndim:
        raise ValueError(f"quantize: needed an axis of {describe(w)}, got {axis=} (the axis over "
                         f"which products sum is often -2){here()}")
    return w.astype(jnp.promote_types(w.dtype, jnp.float32)), axis - w.ndim if axis >= 0 else axis


def quantize_array(
    w: ArrayLike, *, bits: int = 8, group: int | None = None, axis: int = -2,
    symmetric: bool = True, dtype: DTypeLike | None = None,
) -> QuantizedArray:
    """Round an array to integers, or to float8 numbers, with one scale for each group.

    For integers, the difference between an element and its rounded value is at most half of the
    scale of its group. Groups of zeros are exact. With `symmetric=False`, groups of equal numbers
    are also exact.

    Args:
        w: floating-point array.
        bits: number of bits of an element, 8 or 4.
        group: number of adjacent elements along `axis` that share a scale; None for all
            elements along the axis. The last group may be shorter.
        axis: the axis of the groups. In products, this should be the axis that is summed over.
        symmetric: whether the range of each group is symmetric about 0. If False, each group also
            has a zero point, and its range extends from its smallest to its largest number.
        dtype: float8_e4m3fn or float8_e5m2 to store float8 numbers; None for integers.

    Returns:
        A `QuantizedArray` with the shape and the dtype of `w`.

    Raises:
        ValueError: `w` is not a floating-point array or does not have the axis `axis`, or the
            values of `bits`, `symmetric` and `dtype` cannot be combined.

    >>> from toile.quantization import quantize_array
    >>> w = jnp.linspace(-1, 1, 12).reshape(6, 2)
    >>> q = quantize_array(w, bits=4, group=4)
    >>> q.values.shape, q.scales.shape, bool((jnp.abs(q - w) <= 0.072).all())
    ((3, 2), (2, 2), True)
    """
    form = form_of(bits, symmetric, dtype)
    check_group(group)
    given = jnp.asarray(w).dtype
    w, axis = checked_array(w, axis)
    where = grouped(w, group, axis)
    scales, zeros = scales_of(where.rows, form)
    numbers = stored_numbers(where.rows, form, scales, zeros)
    return assembled(numbers, scales, zeros, form, where, given)


def most_stored(dtype: Any) -> float:
    """The largest number of int8 (with both signs) or of a float8 type."""
    return 127.0 if np.dtype(dtype).kind in "iu" else float(dtypes.finfo(dtype).max)


def check_group(group: Any) -> None:
    """Raise an error if the group size is not a positive integer."""
    if group is not None and (not isinstance(group, int) or group < 1):
        raise ValueError(f"quantize: needed a positive group size or None, got {group=} (64 and 128"
                         f" are usual){here()}")


