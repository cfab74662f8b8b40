"""Operations that only move elements, as copies: reversals, concatenations, padding, slices.

Each is one stage of copies between strided views, or two if one copy overwrites another. A
backend supplies its launches, and gets the lowerings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.geometry import Arranged, Dynamic, dense, in_place, integral, part
from toile.compiler.ir.operands import Operand

Operands = list[Operand]


class Moves:
    """The lowerings of a backend with these launches.

    `copy_launch(dst, src, moving, dynamic, note)` copies between arrays of equal shapes; the
    `moving` one ("to" or "source") starts at `dynamic`. `fill_launch(ref, nbytes, bits)` fills a
    dense run with equal elements, given as the bytes of one."""

    def __init__(self, copy_launch: Callable[..., Any], fill_launch: Callable[..., Any]):
        self.copy_launch, self.fill_launch = copy_launch, fill_launch

    def fill(self, dst: Operand, value: Any, plan: Any) -> None:
        """dst[...] = value, a number known at compile time; dst is contiguous. One stage."""
        bits = np.asarray(value).astype(dst.dtype).tobytes()
        if dst.size:
            plan.stage(self.fill_launch(dst.ref, dst.size * dst.dtype.itemsize, bits))

    def copy(self, dst: Operand, src: Operand, plan: Any) -> None:
        """dst[...] = src[...]: one stage. Shapes are equal; either side may be any strided view."""
        if dst.size and dst.dtype.itemsize:  # tangents of integers have no bytes
            plan.stage(self.copy_launch(dst, src))

    def lower(self, op: Any, ins: Operands, outs: Operands, plan: Any) -> bool:
        """Copy, and operations that the plan has already turned into a view of the operand."""
        self.copy(outs[0], ins[0], plan)
        return True

    def lower_rev(self, op: Any, ins: Operands, outs: Operands, plan: Any) -> bool:
        """Rev: a copy with negative strides."""
        x = ins[0]
        starts = [n - 1 if i in op.axes else 0 for i, n in enumerate(x.shape)]
        strides = tuple(-s if i in op.axes else s for i, s in enumerate(x.strides))
        self.copy(outs[0], part(x, starts, x.shape)._replace(strides=strides), plan)
        return True

    def lower_concatenate(self, op: Any, ins: Operands, outs: Operands, plan: Any) -> bool:
        """Concatenate: one stage of copies."""
        launches, start = [], 0
        for x in ins:
            at = [start if i == op.axis else 0 for i in range(len(x.shape))]
            place = part(outs[0], at, x.shape)
            there = (place.ref, place.strides) == (x.ref, x.strides)
            if x.size and not there:
                launches.append(self.copy_launch(place, x, note="concatenate"))
            start += x.shape[op.axis]
        plan.stage(*launches)
        return True

    def lower_pad(self, op: Any, ins: Operands, outs: Operands, plan: Any) -> bool:
        """Pad: the block in the middle, and slabs of the value around it (or beneath it)."""
        (x, value), (out,) = ins, outs
        first, count, start, step = _landed(x.shape, out.shape, op.config)
        spread = lambda shape: value._replace(shape=tuple(shape), strides=(0,) * len(shape))
        if not prod(count):
            self.copy(out, spread(out.shape), plan)
            return True
        strides = tuple(a * b for a, b in zip(out.strides, step, strict=True))
        target = part(out, start, count)._replace(strides=strides)
        source = part(x, first, count)
        there = (target.ref, target.strides) == (source.ref, source.strides)
        block = [] if there else [self.copy_launch(target, source, note="pad")]
        if any(s > 1 and n > 1 for s, n in zip(step, count, strict=True)):
            self.copy(out, spread(out.shape), plan)
            plan.stage(*block)
            return True
        slabs = [self.copy_launch(part(out, corner, sizes), spread(sizes), note="pad")
                 for corner, sizes in _around(start, count, out.shape)]
        plan.stage(*block, *slabs)
        return True

    def lower_reshape(self, op: Any, ins: Operands, outs: Operands, plan: Any) -> bool:
        """The elements of a view in order: a copy with the operand's shape."""
        x, out = ins[0], outs[0]
        self.copy(dense(out.ref, x.shape, x.dtype), x, plan)
        return True

    def lower_dynamic_slice(self, op: Any, ins: Operands, outs: Operands, plan: Any) -> bool:
        """DynamicSlice: a copy whose source offset is read at run time."""
        x, *starts = ins
        dynamic = _dynamic(starts, x, op.sizes)
        if dynamic is None:
            return False
        window = x._replace(shape=tuple(op.sizes))
        plan.stage(self.copy_launch(outs[0], window, "source", dynamic, "dynamic_slice"))
        return True

    def lower_dynamic_update_slice(
        self, op: Any, ins: Operands, outs: Operands, plan: Any
    ) -> bool:
        """DynamicUpdateSlice: copy the operand, if not in place; then copy the update over it.

        If the update was computed at its final position, copy only the elements around it."""
        (x, update, *starts), (out,) = ins, outs
        if update.ref.buffer is out.ref.buffer and update.strides == out.strides:
            start = _position((update.ref.offset - out.ref.offset) // out.dtype.itemsize, out)
            plan.stage(*[
                self.copy_launch(part(out, corner, sizes), part(x, corner, sizes), note="around")
                for corner, sizes in _around(start, update.shape, out.shape)])
            return True
        dynamic = _dynamic(starts, out, update.shape)
        if dynamic is None:
            return False
        if update.shape != x.shape and not in_place(x, out):
            self.copy(out, x, plan)
        if update.size:
            window = out._replace(shape=update.shape)
            plan.stage(self.copy_launch(window, update, "to", dynamic, "dynamic_update_slice"))
        return True


class Tiles(NamedTuple):
    """A copy that transposes, in tiles: the destination is dense along axis a, the source along
    axis b; all other axes are outer loops."""

    sizes: tuple[int, int]  # of a and b
    steps: tuple[int, int]  # byte strides: of a in the source, of b in the destination
    counts: tuple[int, int]  # of tiles along a and b
    shape: list[int]
    to: list[int]
    source: list[int]

    @property
    def number(self) -> int:
        return prod(self.counts) * prod(self.shape)


def turned(a: Arranged) -> Arranged:
    """The copy for `tiles_of`: an axis along which the source runs backward, one element after the
    other, is reversed on both sides."""
    backward = [i for i, s in enumerate(a.source[:-1]) if s == -a.size]
    if not backward or a.size in a.source[:-1]:
        return a
    b = max(backward, key=lambda i: a.shape[i])
    last = a.shape[b] - 1
    flipped = lambda steps: [-s if i == b else s for i, s in enumerate(steps)]
    return a._replace(
        to=flipped(a.to), source=flipped(a.source), to_offset=a.to_offset + last * a.to[b],
        source_offset=a.source_offset + last * a.source[b])


def tiles_of(a: Arranged, least: int, tile: int) -> Tiles | None:
    """The tiles of a copy; None if it does not transpose, or its axes are too short."""
    if len(a.shape) < 2 or a.size > 8 or a.to[-1] != a.size or a.shape[-1] < 8:
        return None
    across = [i for i, s in enumerate(a.source[:-1]) if s == a.size and a.shape[i] >= least]
    if a.source[-1] in (0, a.size) or not across:
        return None
    b = max(across, key=lambda i: a.shape[i])
    sizes = a.shape[-1], a.shape[b]
    others = [i for i in range(len(a.shape) - 1) if i != b]
    pick = lambda t: [t[i] for i in others]
    return Tiles(sizes, (a.source[-1], a.to[b]), (-(-sizes[0] // tile), -(-sizes[1] // tile)),
                 pick(a.shape), pick(a.to), pick(a.source))


def _landed(
    shape: Sequence[int], room: Sequence[int], config: Sequence[tuple[int, int, int]]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """For a padded array, by axis: the first element that falls inside the result, how many do, the
    position of the first one, and the distance between them."""
    first, count, start, step = [], [], [], []
    for n, m, (low, _, interior) in zip(shape, room, config, strict=True):
        s = interior + 1
        a, b = max(0, -(low // s)), min(n, -((low - m) // s))
        first.append(a)
        count.append(max(0, b - a))
        start.append(low + a * s)
        step.append(s)
    return first, count, start, step


def _position(number: int, a: Operand) -> list[int]:
    """Where an element of a row-major array is, given its number."""
    found = []
    for s, n in zip(a.strides, a.shape, strict=True):
        place = number // s if n > 1 else 0
        found.append(place)
        number -= place * s
    return found


def _around(
    start: Sequence[int], count: Sequence[int], room: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Corners and shapes of the slabs around a block."""
    at, shape = [0] * len(count), list(room)
    for i, (a, n) in enumerate(zip(start, count, strict=True)):  # axes before i: only the block
        for lo, hi in ((0, a), (a + n, room[i])):
            if hi > lo:
                yield [*at[:i], lo, *at[i + 1 :]], [*shape[:i], hi - lo, *shape[i + 1 :]]
        at[i], shape[i] = a, n


def _dynamic(starts: Sequence[Operand], whole: Operand, sizes: Sequence[int]) -> Dynamic | None:
    """The starts that can differ from 0; None if their dtype is not a plain integer."""
    if any(not integral(s.dtype) for s in starts):
        return None
    free = [i for i, n in enumerate(sizes) if n < whole.shape[i]]
    return Dynamic(
        tuple(starts[i].ref for i in free),
        tuple(whole.shape[i] - sizes[i] for i in free),
        tuple(whole.strides[i] for i in free),
        starts[0].dtype if starts else np.dtype(np.int32),
    )
