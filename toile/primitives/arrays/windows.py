"""Reductions over sliding windows of raw arrays, and two that select an element of each window.

Windows are never materialized: tap t of all windows is a strided slice of the padded operand, as
large as the result, so a reduction is a few whole-array calls. For the six monoids the axes are
reduced one after the other. Out-of-range positions count as the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from toile.primitives.arrays.contraction import accumulator, dtype_kind
from toile.primitives.arrays.pad_arrays import pad, padded_size

Array = Any
Module = Any
Sizes = Sequence[int]
Pairs = Sequence[tuple[int, int]]

_UFUNCS = {
    "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum",
    "and": "bitwise_and", "or": "bitwise_or",
}  # fmt: skip
_DIRECT_TAPS = 16  # up to this many slices are combined one by one


def identity(kind: str, dtype: np.dtype) -> Any:
    """The neutral element of a monoid ('add', 'mul', 'max', 'min', 'and', 'or') as a scalar."""
    type_ = dtype_kind(dtype)
    if kind in ("add", "or"):
        return dtype.type(0)
    if kind == "mul":
        return dtype.type(1)
    if kind == "and":
        return np.True_ if type_ == "b" else ~dtype.type(0)
    if type_ == "b":
        return np.bool_(kind == "min")
    if type_ in "iu":
        bounds = ml_dtypes.iinfo(dtype)
        return dtype.type(bounds.min if kind == "max" else bounds.max)
    extreme = dtype.type(-np.inf if kind == "max" else np.inf)
    if type_ == "f" and not np.isinf(np.float64(extreme)):  # a type without infinities
        range_ = ml_dtypes.finfo(dtype)
        return dtype.type(range_.min if kind == "max" else range_.max)
    return extreme


def window_output_shape(
    shape: Sizes, window: Sizes, strides: Sizes, padding: Pairs,
    base_dilation: Sizes, window_dilation: Sizes,
) -> tuple[int, ...]:  # fmt: skip
    """Number of window positions along each axis."""
    out = []
    for n, w, stride, (low, high), base, dilation in zip(
        shape, window, strides, padding, base_dilation, window_dilation, strict=True
    ):
        room = padded_size(n, low, high, base - 1) - ((w - 1) * dilation + 1)
        out.append(room // stride + 1 if room >= 0 else 0)
    return tuple(out)


def _tap(tap: int, dilation: int, stride: int, count: int) -> slice:
    """The slice of a padded axis with element `tap` of each of `count` windows."""
    start = tap * dilation
    return slice(start, start + (count - 1) * stride + 1, stride) if count else slice(0, 0)


def _taps(
    window: Sizes, dilation: Sizes, strides: Sizes, out_shape: Sizes
) -> Iterator[tuple[slice, ...]]:
    """The slices of all window elements, in row-major order."""
    for taps in product(*(range(w) for w in window)):
        yield tuple(
            _tap(t, d, s, n) for t, d, s, n in zip(taps, dilation, strides, out_shape, strict=True)
        )


def reduce_window(
    xp: Module, x: Array, init: Any, kind: str, window: Sizes, strides: Sizes, padding: Pairs,
    base_dilation: Sizes, window_dilation: Sizes,
) -> Array:  # fmt: skip
    """Combine the elements of each window and `init` with the monoid `kind`."""
    ufunc, dtype = getattr(xp, _UFUNCS[kind]), x.dtype
    out_shape = window_output_shape(
        x.shape, window, strides, padding, base_dilation, window_dilation
    )
    neutral = identity(kind, dtype)
    work = accumulator(dtype)
    config = [(lo, hi, b - 1) for (lo, hi), b in zip(padding, base_dilation, strict=True)]
    result = pad(xp, x, neutral, config).astype(work, copy=False)
    if 0 in out_shape:
        return xp.zeros(out_shape, dtype)
    # Axes that shrink most go first, so that the later ones have less to read.
    for axis in sorted(range(x.ndim), key=lambda a: out_shape[a] / max(result.shape[a], 1)):
        result = _reduce_axis(
            xp, ufunc, result, axis, window[axis], strides[axis], window_dilation[axis],
            out_shape[axis],
        )  # fmt: skip
    if init is not None and not _is_identity(init, neutral):
        result = ufunc(xp.asarray(init, dtype).astype(work), result)
    return xp.asarray(result).astype(dtype, copy=False)


def _is_identity(init: Any, neutral: Any) -> bool:
    """Whether `init` is a host scalar equal to the neutral element."""
    if isinstance(init, (bool, int, float, np.generic, np.ndarray)):
        return bool(np.asarray(init) == neutral)
    return False


def _reduce_axis(
    xp: Module, ufunc: Any, x: Array, axis: int, window: int, stride: int, dilation: int, count: int
) -> Array:
    """Combine the windows along one axis."""
    before = (slice(None),) * axis
    if window == 1:
        if stride == 1 and count == x.shape[axis]:
            return x
        return x[before + (_tap(0, dilation, stride, count),)]
    if window <= _DIRECT_TAPS:
        first, second = (x[before + (_tap(t, dilation, stride, count),)] for t in (0, 1))
        result = ufunc(first, second)
        for t in range(2, window):
            ufunc(result, x[before + (_tap(t, dilation, stride, count),)], out=result)
        return result
    if window * count <= 2 * x.shape[axis] * window.bit_length():
        shape = x.shape[:axis] + (count, window) + x.shape[axis + 1 :]
        step = x.strides[axis]
        steps = x.strides[:axis] + (stride * step, dilation * step) + x.strides[axis + 1 :]
        view = xp.lib.stride_tricks.as_strided(x, shape, steps)
        return ufunc.reduce(view, axis=axis + 1, dtype=x.dtype)
    return _reduce_axis_by_doubling(ufunc, x, axis, window, stride, dilation, count)


def _reduce_axis_by_doubling(
    ufunc: Any, x: Array, axis: int, window: int, stride: int, dilation: int, count: int
) -> Array:
    """Combine windows of 1, 2, 4 … elements according to the binary digits of `window`."""
    before = (slice(None),) * axis
    result, done, size = None, 0, 1
    while window:
        if window & 1:
            start = done * dilation
            part = x[before + (slice(start, start + (count - 1) * stride + 1, stride),)]
            result = part if result is None else ufunc(result, part)
            done += size
        window >>= 1
        if window:
            shift = size * dilation
            x = ufunc(x[before + (slice(None, -shift),)], x[before + (slice(shift, None),)])
            size *= 2
    return result


def reduce_window_with(
    xp: Module, operands: Sequence[Array], inits: Sequence[Any],
    function: Callable[[tuple[Array, ...], tuple[Array, ...]], tuple[Array, ...]],
    window: Sizes, strides: Sizes, padding: Pairs, base_dilation: Sizes, window_dilation: Sizes,
) -> tuple[Array, ...]:  # fmt: skip
    """Fold each window of several operands, in row-major order, with any vectorized function."""
    out_shape = window_output_shape(
        operands[0].shape, window, strides, padding, base_dilation, window_dilation
    )
    config = [(lo, hi, b - 1) for (lo, hi), b in zip(padding, base_dilation, strict=True)]
    padded = [pad(xp, x, i, config) for x, i in zip(operands, inits, strict=True)]
    result = tuple(
        xp.full(out_shape, i, dtype=x.dtype) for x, i in zip(operands, inits, strict=True)
    )
    if 0 in out_shape:
        return result
    inside = None
    if any(any(c) for c in config):  # padding takes no part, whatever the function
        inside = pad(xp, xp.ones(operands[0].shape, bool), False, config)
    for index in _taps(window, window_dilation, strides, out_shape):
        after = tuple(function(result, tuple(p[index] for p in padded)))
        if inside is not None:
            here = inside[index]
            after = tuple(xp.where(here, a, b) for a, b in zip(after, result, strict=True))
        result = after
    return result


def _kept(xp: Module, select: str, chosen: Array, candidate: Array) -> Array:
    """Where the element chosen so far stays chosen."""
    return (chosen >= candidate) if select == "ge" else (chosen <= candidate)


def select_and_scatter_add(
    xp: Module, source: Array, operand: Array, select: str, window: Sizes, strides: Sizes,
    padding: Pairs,
) -> Array:  # fmt: skip
    """Add each source element at the largest ('ge') or least ('le') element of its window."""
    dtype = source.dtype
    work = accumulator(dtype)
    ones = (1,) * operand.ndim
    out_shape = window_output_shape(operand.shape, window, strides, padding, ones, ones)
    neutral = identity("max" if select == "ge" else "min", operand.dtype)
    padded = pad(xp, operand, neutral, [(lo, hi, 0) for lo, hi in padding])
    padded = padded.astype(accumulator(operand.dtype), copy=False)
    total = xp.zeros(padded.shape, work)
    if 0 not in out_shape:
        source = source.astype(work, copy=False)
        taps = list(_taps(window, ones, strides, out_shape))
        chosen, place = padded[taps[0]], xp.zeros(out_shape, np.int32)
        for number, index in enumerate(taps[1:], 1):
            candidate = padded[index]
            keep = _kept(xp, select, chosen, candidate)
            chosen = xp.where(keep, chosen, candidate)
            place = xp.where(keep, place, np.int32(number))
        nothing = work.type(0)
        for number, index in enumerate(taps):
            total[index] += xp.where(place == number, source, nothing)
    total = pad(xp, total, 0, [(-lo, -hi, 0) for lo, hi in padding])
    return total.astype(dtype, copy=False)


def select_and_gather_add(
    xp: Module, tangents: Array, operand: Array, select: str, window: Sizes, strides: Sizes,
    padding: Pairs, base_dilation: Sizes, window_dilation: Sizes,
) -> Array:  # fmt: skip
    """The tangent at the largest or least element of each window of the operand."""
    key_type = accumulator(operand.dtype)
    neutral = identity("max" if select == "ge" else "min", key_type)

    def choose(chosen: tuple[Array, ...], candidate: tuple[Array, ...]) -> tuple[Array, ...]:
        keep = _kept(xp, select, chosen[0], candidate[0])
        return tuple(xp.where(keep, a, b) for a, b in zip(chosen, candidate, strict=True))

    _, result = reduce_window_with(
        xp, (operand.astype(key_type, copy=False), tangents), (neutral, tangents.dtype.type(0)),
        choose, window, strides, padding, base_dilation, window_dilation,
    )  # fmt: skip
    return result
