"""Convolution of raw arrays in the layout lhs (N, C, *S), rhs (O, I, *K), out (N, O, *P).

Every case reduces to matrix products over x as (N, G, C, *S) and w as (G, O, C, *K), one group of
channels for each G. Which product is used depends on shapes and on memory order: patches with
channels first or last, one product for each output position when these are few (the gradient of a
kernel), or a sum over kernel taps when groups are tiny (depthwise).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from toile.engine.locks import linear_algebra
from toile.primitives.arrays.contraction import (
    accumulator,
    contract,
    dtype_kind,
    from_workspace,
    integer_workspace,
)
from toile.primitives.arrays.pad_arrays import pad, padded_size

Array = Any
Module = Any
Sizes = Sequence[int]
Pairs = Sequence[tuple[int, int]]

_PATCH_BYTES = 1 << 23  # patches are made for as many samples at a time as fit into this
_TINY_GROUP = 8  # groups of at most this many products per tap avoid matrix products


def conv_output_shape(
    lhs_shape: Sizes, rhs_shape: Sizes, strides: Sizes, padding: Pairs, lhs_dilation: Sizes,
    rhs_dilation: Sizes, batch_group_count: int = 1,
) -> tuple[int, ...]:  # fmt: skip
    """Shape (N, O, *P) of the convolution of (N, C, *S) with (O, I, *K)."""
    spatial = []
    for n, k, stride, (low, high), base, dilation in zip(
        lhs_shape[2:], rhs_shape[2:], strides, padding, lhs_dilation, rhs_dilation, strict=True
    ):
        extent = (k - 1) * dilation + 1 if k else 0
        room = padded_size(n, low, high, base - 1) - extent
        spatial.append(room // stride + 1 if room >= 0 else 0)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general(
    xp: Module, x: Array, w: Array, strides: Sizes, padding: Pairs, lhs_dilation: Sizes,
    rhs_dilation: Sizes, feature_group_count: int, batch_group_count: int, dtype: np.dtype,
) -> Array:  # fmt: skip
    """Correlate each group of channels of x with its kernels in w."""
    dtype = np.dtype(dtype)
    out_shape = conv_output_shape(
        x.shape, w.shape, strides, padding, lhs_dilation, rhs_dilation, batch_group_count
    )
    if 0 in out_shape or 0 in x.shape or 0 in w.shape:
        return xp.zeros(out_shape, dtype)
    if dtype_kind(dtype) in "biu":
        products = prod(out_shape) * prod(w.shape[1:])
        work = integer_workspace(xp, x, w, prod(w.shape[1:]), products, dtype)
    else:
        work = accumulator(dtype)
    x, w = x.astype(work, copy=False), w.astype(work, copy=False)
    groups = max(feature_group_count, batch_group_count)
    if batch_group_count > 1:  # batch group g uses kernel group g: make it a channel group
        x = x.reshape((groups, x.shape[0] // groups) + x.shape[1:]).swapaxes(0, 1)
    else:
        x = x.reshape((x.shape[0], groups, x.shape[1] // groups) + x.shape[2:])
    w = w.reshape((groups, w.shape[0] // groups) + w.shape[1:])
    if all(d == 1 for d in lhs_dilation):
        result = _conv(xp, x, w, strides, padding, rhs_dilation)
    else:
        grouped_shape = x.shape[:2] + w.shape[1:2] + out_shape[2:]
        result = _conv_of_dilated(
            xp, x, w, strides, padding, lhs_dilation, rhs_dilation, grouped_shape
        )
    return from_workspace(result.reshape(out_shape), dtype)


def _phases(
    size: int, kernel: int, out: int, stride: int, low: int, base: int, dilation: int
) -> list[tuple[slice, slice, int, tuple[int, int], int]]:
    """Split one axis of a convolution of a dilated operand into plain convolutions.

    Output o combines kernel element k with position o*stride + k*dilation - low, which is an
    element of the operand iff base divides it. That depends on o modulo base/gcd(stride, base)
    only, and for each residue the matching k form an arithmetic progression. Returns, for each
    residue: the outputs, the kernel elements, the stride, the padding and the kernel dilation.
    """
    period, common = base // gcd(stride, base), gcd(dilation, base)
    step = base // common
    phases = []
    for residue in range(min(period, out)):
        shift = residue * stride - low
        fitting = [k for k in range(min(step, kernel)) if (shift + k * dilation) % base == 0]
        if not fitting:
            continue
        first = fitting[0]
        count = -((residue - out) // period)
        elements = -((first - kernel) // step)
        new_stride, new_dilation = stride * period // base, dilation // common
        new_low = -((shift + first * dilation) // base)
        reach = (count - 1) * new_stride + (elements - 1) * new_dilation + 1
        new_padding = (new_low, reach - new_low - size)
        phases.append((
            slice(residue, None, period), slice(first, None, step),
            new_stride, new_padding, new_dilation,
        ))  # fmt: skip
    return phases


def _conv_of_dilated(
    xp: Module, x: Array, w: Array, strides: Sizes, padding: Pairs, lhs_dilation: Sizes,
    rhs_dilation: Sizes, out_shape: tuple[int, ...],
) -> Array:  # fmt: skip
    """Convolve without multiplying by the zeros between the elements of x."""
    per_axis = [
        _phases(n, k, out, s, low, base, d)
        for n, k, out, s, (low, _), base, d in zip(
            x.shape[3:], w.shape[3:], out_shape[3:], strides, padding, lhs_dilation,
            rhs_dilation, strict=True,
        )
    ]  # fmt: skip
    result = _zeros_like_memory_of(xp, x, out_shape)
    for phase in product(*per_axis):
        outputs, elements, new_strides, new_padding, new_dilation = zip(*phase, strict=True)
        everything = (slice(None),) * 3
        result[everything + outputs] = _conv(
            xp, x, w[everything + elements], new_strides, new_padding, new_dilation
        )
    return result


def _channels_last(x: Array) -> bool:
    """Whether the channels of (N, G, C, *S) are closer together in memory than the positions."""
    spatial = [s for s, n in zip(x.strides[3:], x.shape[3:], strict=True) if n > 1]
    channels = [s for s, n in zip(x.strides[1:3], x.shape[1:3], strict=True) if n > 1]
    return bool(spatial and channels) and min(channels) < min(spatial)


def _zeros_like_memory_of(xp: Module, x: Array, shape: tuple[int, ...]) -> Array:
    """Zeros of `shape` (N, G, O, *P), with channels last in memory if x has them there."""
    if not _channels_last(x):
        return xp.zeros(shape, x.dtype)
    return xp.moveaxis(xp.zeros((shape[0],) + shape[3:] + shape[1:3], x.dtype), (-2, -1), (1, 2))


def _conv(
    xp: Module, x: Array, w: Array, strides: Sizes, padding: Pairs, dilation: Sizes
) -> Array:
    """Convolve (N, G, C, *S) with (G, O, C, *K) to (N, G, O, *P), without dilation of x."""
    groups, channels, spatial = x.shape[1], x.shape[2], x.shape[3:]
    outs, kernel = w.shape[1], w.shape[3:]
    if not spatial:
        return contract(xp, x, w, "ngc", "goc", "ngo", x.dtype)
    positions = tuple(
        (n + low + high - (k - 1) * d - 1) // s + 1
        for n, k, s, (low, high), d in zip(spatial, kernel, strides, padding, dilation, strict=True)
    )
    last = _channels_last(x)
    if any(low or high for low, high in padding):
        config = [(low, high, 0) for low, high in padding]
        if last:  # pad in memory order
            x = pad(xp, xp.moveaxis(x, (1, 2), (-2, -1)), 0, [(0, 0, 0), *config, *[(0, 0, 0)] * 2])
            x = xp.moveaxis(x, (-2, -1), (1, 2))
        else:
            x = pad(xp, x, 0, [(0, 0, 0)] * 3 + config)
    if groups > 1 and channels * outs <= _TINY_GROUP and prod(kernel) <= prod(positions):
        return _by_taps(xp, x, w, strides, dilation, positions, last)
    if prod(positions) < prod(kernel):
        return _by_positions(xp, x, w, strides, dilation, positions)
    return _by_patches(xp, x, w, strides, dilation, positions, last)


def _windows(
    xp: Module, x: Array, kernel: Sizes, strides: Sizes, dilation: Sizes, positions: Sizes
) -> Array:
    """View of (N, G, C, *S) as (N, G, C, *K, *P)."""
    steps = x.strides[3:]
    return xp.lib.stride_tricks.as_strided(
        x,
        x.shape[:3] + tuple(kernel) + tuple(positions),
        x.strides[:3]
        + tuple(s * d for s, d in zip(steps, dilation, strict=True))
        + tuple(s * t for s, t in zip(steps, strides, strict=True)),
    )


def _by_patches(
    xp: Module, x: Array, w: Array, strides: Sizes, dilation: Sizes, positions: tuple[int, ...],
    last: bool,
) -> Array:  # fmt: skip
    """Lay the patches out as a matrix, some samples at a time, and multiply by the kernels."""
    batch, groups, channels = x.shape[:3]
    outs, kernel = w.shape[1], w.shape[3:]
    windows = _windows(xp, x, kernel, strides, dilation, positions)
    rank, length, count = len(kernel), channels * prod(kernel), prod(positions)
    taps, places = tuple(range(3, 3 + rank)), tuple(range(3 + rank, 3 + 2 * rank))
    last = last or (groups == 1 and count < 32)  # else products of single samples are too small
    step = min(batch, max(1, _PATCH_BYTES // max(1, groups * length * count * x.dtype.itemsize)))
    if length == channels and all(s == 1 for s in strides):  # x itself holds the patches
        step = batch
    if last:
        matrix = w.transpose((0, *taps, 2, 1)).reshape(groups, length, outs)
        windows = windows.transpose((1, 0, *places, *taps, 2))
        result = xp.empty((groups, batch * count, outs), x.dtype)
    else:
        matrix = w.reshape(groups, outs, length)
        windows = windows.transpose((0, 1, 2, *taps, *places))
        result = xp.empty((batch, groups, outs, count), x.dtype)
    # One buffer is reused for all parts: fresh pages cost more than the copy.
    buffer: Any = None
    for start in range(0, batch, step):
        stop = min(start + step, batch)
        if last:
            part, rows = windows[:, start:stop], slice(start * count, stop * count)
            patches, buffer = _materialise(xp, part, buffer, step < batch)
            patches = patches.reshape(groups, (stop - start) * count, length)
            with linear_algebra:
                xp.matmul(patches, matrix, out=result[:, rows])
        else:
            patches, buffer = _materialise(xp, windows[start:stop], buffer, step < batch)
            patches = patches.reshape(stop - start, groups, length, count)
            with linear_algebra:
                xp.matmul(matrix, patches, out=result[start:stop])
    if last:  # (G, N, *P, O) -> (N, G, O, *P)
        result = result.reshape((groups, batch, *positions, outs))
        return result.transpose((1, 0, rank + 2, *range(2, 2 + rank)))
    return result.reshape((batch, groups, outs, *positions))


def _materialise(xp: Module, part: Array, buffer: Array | None, reuse: bool) -> tuple[Array, Any]:
    """The part; with `reuse`, a copy in a buffer that is reused for later parts (no larger
    ones)."""
    if not reuse:
        return part, None
    if buffer is None:
        buffer = xp.empty(part.size, part.dtype)
    copy = buffer[: part.size].reshape(part.shape)
    copy[...] = part
    return copy, buffer


def _by_positions(
    xp: Module, x: Array, w: Array, strides: Sizes, dilation: Sizes, positions: tuple[int, ...]
) -> Array:
    """Sum over large kernels for few output positions, such as the gradient of a kernel."""
    batch, groups = x.shape[:2]
    outs, kernel, rank = w.shape[1], w.shape[3:], len(positions)
    # The summed axes (C, *K) are in the memory order of w, so that w need not be copied.
    summed = sorted(range(2, w.ndim), key=lambda a: (w.shape[a] == 1, -w.strides[a]))
    windows = _windows(xp, x, kernel, strides, dilation, positions)
    step = max(1, _PATCH_BYTES // max(1, x.dtype.itemsize * windows.size // w.shape[summed[0]]))
    if groups > 1 and batch * outs <= _TINY_GROUP:
        return _by_positions_of_tiny_groups(xp, windows, w, rank)
    total: Any = None
    for start in range(0, w.shape[summed[0]], step):
        part = (slice(None),) * summed[0] + (slice(start, start + step),)
        patches = _stack(windows[part], 1, (*range(3 + rank, 3 + 2 * rank), 0), summed)
        with linear_algebra:
            term = xp.matmul(patches, _stack(w[part], 0, (1,), summed).swapaxes(-1, -2))
        total = term if total is None else total + term
    result = total.reshape((groups, *positions, batch, outs))
    return result.transpose((rank + 1, 0, rank + 2, *range(1, rank + 1)))


def _by_positions_of_tiny_groups(xp: Module, windows: Array, w: Array, rank: int) -> Array:
    """Multiply and sum in memory order, one output position, sample and kernel at a time."""
    batch, groups, outs = windows.shape[0], windows.shape[1], w.shape[1]
    positions = windows.shape[3 + rank :]
    # Axes (G, C, *K) of one kernel, outermost in memory first; only G is kept.
    axes = sorted(range(2 + rank), key=lambda a: -w[:, 0].strides[a])
    group_axis = axes.index(0)
    summed = tuple(a for a in range(2 + rank) if a != group_axis)
    chunk = max(1, _PATCH_BYTES // 16 // max(1, w[:, 0].nbytes // w[:, 0].shape[axes[0]]))
    chunk = chunk if group_axis else w[:, 0].shape[axes[0]]
    result = xp.zeros((batch, groups, outs) + positions, windows.dtype)
    for n, o in product(range(batch), range(outs)):
        weights = w[:, o].transpose(axes)
        for place in product(*(range(p) for p in positions)):
            values = windows[(n, ..., *place)].transpose(axes)
            for start in range(0, weights.shape[0], chunk):
                part = slice(start, start + chunk)
                term = (values[part] * weights[part]).sum(axis=summed)
                result[(n, slice(None), o, *place)] += term
    return result


def _stack(x: Array, group: int, kept: tuple[int, ...], summed: list[int]) -> Array:
    """x as (group, product of kept, product of summed), copied, if needed, in memory order."""
    size, length = prod(x.shape[a] for a in kept), prod(x.shape[a] for a in summed)
    last, inner = kept[-1], [x.strides[a] for a in summed if x.shape[a] > 1]
    if x.shape[last] > 1 and inner and x.strides[last] < min(inner):
        tall = x.transpose((group, *summed, *kept)).reshape(-1, length, size)
        return tall.swapaxes(-1, -2)
    return x.transpose((group, *kept, *summed)).reshape(-1, size, length)


def _by_taps(
    xp: Module, x: Array, w: Array, strides: Sizes, dilation: Sizes, positions: tuple[int, ...],
    last: bool,
) -> Array:  # fmt: skip
    """Sum over kernel taps of shifted x times one weight for each channel."""
    batch, groups, channels = x.shape[:3]
    outs, kernel, rank = w.shape[1], w.shape[3:], len(positions)
    if last:  # work on (N, *S, G, C) and (*K, C, G, O) -> (N, *P, G, O)
        x = xp.moveaxis(x, (1, 2), (-2, -1))
        w = xp.ascontiguousarray(w.transpose((*range(3, 3 + rank), 2, 0, 1)))
        shape = (batch, *positions, groups, outs)
    else:  # (N, G, C, *S) and (*K, C, G, O, 1...) -> (N, G, O, *P)
        w = w.transpose((*range(3, 3 + rank), 2, 0, 1)).reshape(
            kernel + (channels, groups, outs) + (1,) * rank
        )
        shape = (batch, groups, outs, *positions)
    slices = {
        tap: tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilation, positions, strides, strict=True)
        )
        for tap in product(*(range(k) for k in kernel))
    }
    total = xp.zeros(shape, x.dtype)
    step = max(1, _PATCH_BYTES // 16 // max(1, total.nbytes // batch))
    for start in range(0, batch, step):  # few samples at a time stay in the cache
        values, sums = x[start : start + step], total[start : start + step]
        term = xp.empty_like(sums)
        for (tap, index), c in product(slices.items(), range(channels)):
            if last:
                part = values[(slice(None), *index, slice(None), c, None)]
            else:
                part = values[(slice(None), slice(None), c, None, *index)]
            xp.multiply(part, w[(*tap, c)], out=term)
            sums += term
    return xp.moveaxis(total, (-2, -1), (1, 2)) if last else total
