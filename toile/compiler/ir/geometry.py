"""Axes of operands: merged, ordered and split, before any kernel is chosen.

Strides of operands count elements; strides passed to kernels count bytes. Both backends plan
their copies, gathers and scatters with these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.views import row_major
from toile.engine import dtypes
from toile.primitives.addresses import fill_number
from toile.primitives.arrays.gather_arrays import default_fill


def collapse(shape: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """The axes without those of size 1; neighbors are merged where all strides allow it."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for i, n in enumerate(shape):
        if n == 1:
            continue
        if sizes and all(m[-1] == s[i] * n for m, s in zip(merged, strides, strict=True)):
            sizes[-1] *= n
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[i]
            continue
        sizes.append(n)
        for m, s in zip(merged, strides, strict=True):
            m.append(s[i])
    return sizes, merged


def byte_strides(x: Operand) -> tuple[int, ...]:
    return tuple(s * x.dtype.itemsize for s in x.strides)


def part(x: Operand, starts: Sequence[int], shape: Sequence[int]) -> Operand:
    """The block of `shape` at `starts`."""
    offset = sum(i * s for i, s in zip(starts, x.strides, strict=True)) * x.dtype.itemsize
    return Operand(x.ref.at(offset), tuple(shape), x.strides, x.dtype)


def dense(ref: Ref, shape: Sequence[int], dtype: Any) -> Operand:
    """A row-major array that begins at `ref`."""
    return Operand(ref, tuple(shape), row_major(shape), dtype)


def room(plan: Any, shape: Sequence[int], dtype: Any) -> Operand:
    """A row-major array in the scratch memory of a plan."""
    return dense(plan.scratch(prod(shape) * dtype.itemsize), shape, dtype)


def with_dense_rows(x: Operand, inner: int, plan: Any) -> tuple[Operand, int]:
    """The operand, or a copy of it if there are gaps in its rows, and the number of elements from
    one row to the next. A row consists of the last `inner` axes."""
    step = row_step(x, inner)
    if step is None:
        return plan.contiguous(x), prod(x.shape[len(x.shape) - inner :])
    return x, step


def row_step(x: Operand, inner: int) -> int | None:
    """The elements from the start of one row to the next, if there may be gaps only between rows,
    as in a part of a concatenation. None for others, for rows that overlap, and if 32-bit numbers
    cannot count all elements and gaps."""
    outer = len(x.shape) - inner
    shape, strides = x.shape[:outer], x.strides[:outer]
    step, count = strides[-1], prod(shape)
    merges = all(strides[i] == strides[i + 1] * shape[i + 1] for i in range(outer - 1))
    dense = x.strides[outer:] == row_major(x.shape[outer:])
    return step if dense and merges and x.size <= step * count < 1 << 31 else None


def permuted(x: Operand, order: Sequence[int]) -> Operand:
    """The same elements with the axes in another order."""
    return x._replace(shape=tuple(x.shape[d] for d in order),
                      strides=tuple(x.strides[d] for d in order))


def in_place(x: Operand, out: Operand) -> bool:
    """Whether an operand already lies where the result is to be stored."""
    same = x.ref.buffer is out.ref.buffer and x.ref.offset == out.ref.offset
    return same and x.contiguous and out.contiguous


def is_plain(dtype: Any) -> bool:
    """Whether elements are numbers of 1, 2, 4, 8 or 16 bytes."""
    return not dtypes.is_extended(dtype) and dtype.itemsize in (1, 2, 4, 8, 16)


def integral(dtype: Any) -> bool:
    """Whether a dtype is an integer that kernels can load as an index."""
    return isinstance(dtype, np.dtype) and dtype.kind in "iu"


def bits_of(value: bytes) -> tuple[int, int]:
    """Up to 16 bytes as two signed 64-bit integers."""
    low, high = np.frombuffer(value.ljust(16, b"\0"), "<i8").tolist()
    return low, high


def sort_keys(xs: Sequence[Operand]) -> list[Operand]:
    """The operands to compare by; a complex operand becomes its real and imaginary parts."""
    out = []
    for x in xs:
        if x.dtype.kind == "c":
            half = np.dtype(f"f{x.dtype.itemsize // 2}")
            strides = tuple(2 * s for s in x.strides)
            out.append(Operand(x.ref, x.shape, strides, half))
            out.append(Operand(x.ref.at(half.itemsize), x.shape, strides, half))
        else:
            out.append(x)
    return out


def fill_bits(op: Any, dtype: Any) -> bytes | None:
    """The element that a gather returns out of bounds; None if the dtype cannot hold it."""
    try:
        value = fill_number(op.fill_value, dtype)
        value = default_fill(dtype) if value is None else value
        return np.asarray(value).astype(dtype).tobytes()
    except (OverflowError, ValueError, TypeError):
        return None


class Dynamic(NamedTuple):
    """Starts of a window, known only at run time: the address, largest value and stride of each."""

    starts: tuple[Ref, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: Any

    def words(self, size: int) -> list[int | Ref]:
        """The kernel arguments that locate the window; elements have `size` bytes."""
        each = zip(self.starts, self.limits, self.strides, strict=True)
        return [w for ref, limit, stride in each for w in (ref, limit, stride * size)]


class Arranged(NamedTuple):
    """A copy. Outer axes come first; strides, offsets and the element size are in bytes."""

    shape: list[int]
    to: list[int]
    source: list[int]
    to_offset: int
    source_offset: int
    size: int


def arranged(dst: Operand, src: Operand) -> Arranged:
    """The axes of a copy, merged, in the order of the destination's memory."""
    size = src.dtype.itemsize
    offsets = [0, 0]
    axes = []
    for n, d, s in zip(dst.shape, dst.strides, src.strides, strict=True):
        if n == 1:
            continue
        if d < 0:  # run along it from its other end
            offsets[0] += (n - 1) * d * size
            offsets[1] += (n - 1) * s * size
            d, s = -d, -s
        axes.append((n, d * size, s * size))
    axes.sort(key=lambda a: -a[1])
    shape, (to, source) = collapse(*zip(*axes, strict=True)) if axes else ([], ([], []))
    return Arranged(shape, to, source, offsets[0], offsets[1], size)


class Axes(NamedTuple):
    """Axes of a gather's result or a scatter's updates, with their strides in bytes."""

    shape: list[int]
    result: list[int]  # strides in the result of a gather, or the updates of a scatter
    operand: list[int]
    indices: list[int]
    windows: list[int]  # the operand axis that it is a window of; -1 for a batch axis
    paired: list[int]  # the operand axis that a batch axis runs along, or -1

    def append(self, *values: int) -> None:
        """Add one more axis, innermost."""
        for column, value in zip(self, values, strict=True):
            column.append(value)


def axes_of(windows: Sequence[int], collapsed: Sequence[int], batching: Sequence[int],
            index_batching: Sequence[int], result: Operand, operand: Operand,
            indices: Operand) -> Axes:
    """The geometry that gather and scatter share; `windows`: the result axes inside a window."""
    to, source, index = byte_strides(result), byte_strides(operand), byte_strides(indices)
    dropped = {*collapsed, *batching}
    stay = iter(d for d in range(len(operand.shape)) if d not in dropped)
    pairs = dict(zip(index_batching, batching, strict=True))
    axes = Axes([], [], [], [], [], [])
    batch = 0
    for d, n in enumerate(result.shape):
        window, pair, step, vector = -1, -1, 0, 0
        if d in windows:
            window = next(stay)
            step = source[window]
        else:
            pair, vector = pairs.get(batch, -1), index[batch]
            step = source[pair] if pair >= 0 else 0
            batch += 1
        axes.append(n, to[d], step, vector, window, pair)
    return axes
