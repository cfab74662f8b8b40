"""Reductions over windows, and the operations that select one element of each window.

One axis without a window, dense in memory, provides the lanes of vectors (channels); the others
without a window are batch axes. Up to three axes have windows. If windows move by single steps
along the last axis, the lanes are its positions, and the operand is padded first. The gradient of a
sum is a sum over a dilated operand, which is several plain sums, one for each phase. Maxima
propagate NaN as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from toile.compiler.ir.extents import larger
from toile.compiler.ir.geometry import part, permuted, room
from toile.compiler.ir.operands import Operand
from toile.engine.records import dataclass
from toile.kernels.convolution.cpu import tiles
from toile.kernels.convolution.cpu.arguments import Arguments, lane_blocks, start_bounds, tap_bounds
from toile.kernels.convolution.cpu.problem import (
    WINDOW,
    Axis,
    axis_numbers,
    grain_of,
    lanes_per_block,
    plain_parts,
)
from toile.kernels.copy import cpu as copies
from toile.kernels.window.shared import EXTREMA, KINDS, Window, kind_of, windows_of
from toile.primitives.arrays.windows import identity
from toile.targets.llvm import elements, native, spans
from toile.targets.llvm import text as ir
from toile.targets.llvm.elements import Lanes
from toile.targets.llvm.launches import Launch, Planner, Rows
from toile.targets.llvm.text import Function

_BLOCK = 4  # vectors of lanes that are processed together
_MOST = 3  # axes with windows
_MOST_OVERLAP = 256  # windows that may share an element
_LEAST = 16  # the fewest positions along the last axis that become lanes
_UNROLLED = 9  # taps of a window up to which its loop is unrolled


@dataclass(frozen=True)
class Geometry:
    """Windows over x; strides count elements. Batch and lanes have no window."""

    batch: int
    lanes: int
    axes: tuple[Axis, ...]
    x_batch: int
    y_batch: int


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Add the stages of a window operation; False if there is no kernel for it."""
    windows, kind = windows_of(op), kind_of(op, ins)
    slides = len(ins) == 1 and outs[0].shape[-1:] >= (_LEAST,) and _single_steps(windows[-1])
    order = _order(windows, slides)
    if order is None or _declines(op, kind, ins, outs):
        return False
    if slides:
        ins = [_padded(ins[0], windows[-1], kind, plan)]
    ins = [plan.contiguous(permuted(x, order)) for x in ins]
    result = permuted(outs[0], order)
    target = result if result.contiguous else room(plan, result.shape, result.dtype)
    windows = [windows[i] for i in order]
    if op.scatters:
        _scatter(kind, _geometry(windows, target, ins[0]), ins, target, plan)
    else:
        _windows(kind, _geometry(windows, ins[0], target, slides), ins[::-1], target, plan)
    if target is not result:
        copies.copy(result, target, plan)
    return True


def _declines(op: Any, kind: str, ins: list[Operand], outs: list[Operand]) -> bool:
    """Whether there is no kernel, or NumPy needs less work."""
    return (
        not all(elements.supported(x.dtype) and x.size for x in (*ins, *outs))
        or kind not in KINDS or ins[0].dtype.kind == "b" and kind in EXTREMA
        or _repeats(op, outs[0].shape, ins[-1].shape)
    )  # fmt: skip


# --------------------------------------------------------------------------------------- geometry


def _order(windows: Sequence[Window], slides: bool) -> tuple[int, ...] | None:
    """Axes as (batch ..., windows ..., lanes); None if too many have windows.

    The last axis without a window provides the lanes, unless the windows slide; if it is not the
    last of all axes, operands are transposed."""
    moves = [i for i, w in enumerate(windows) if w.moves]
    still = [i for i in range(len(windows)) if i not in moves]
    if len(moves) > _MOST:
        return None
    return (*still, *moves) if slides else (*still[:-1], *moves, *still[-1:])


def _single_steps(w: Window) -> bool:
    """Whether windows move by one element at a time."""
    return w.moves and w.stride == w.base == 1


def _padded(x: Operand, w: Window, kind: str, plan: Planner) -> Operand:
    """The operand with its last axis padded (or cut) as its windows say."""
    *outer, n = x.shape
    low, high = w.padding
    starts = [0] * len(outer)
    kept = max(0, n + min(low, 0) + min(high, 0))
    x = part(x, [*starts, max(0, -low)], (*outer, kept))
    if low <= 0 and high <= 0:
        return x
    whole = room(plan, (*outer, n + low + high), x.dtype)
    copies.fill(whole, identity(kind, x.dtype), plan)
    copies.copy(part(whole, [*starts, max(0, low)], x.shape), x, plan)
    return whole


def _repeats(op: Any, outs: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether windows overlap so much that NumPy's doubling of windows is less work."""
    return prod(op.window_dimensions) * prod(outs) > _MOST_OVERLAP * prod(shape)


def _geometry(
    windows: Sequence[Window], x: Operand, y: Operand, slides: bool = False
) -> Geometry:
    """The windows of dense operands whose axes are in order.

    `x` has the shape of the operand, `y` that of windows. If windows slide, the lanes are the
    positions along the last axis, whose taps lie one dilation apart."""
    moves = [
        Axis(x.shape[i], w.taps, y.shape[i], w.stride, w.padding[0], w.base, w.dilation,
             x.strides[i], 0, y.strides[i])
        for i, w in enumerate(windows) if w.moves
    ]  # fmt: skip
    if slides:
        batch = len(windows) - len(moves)
        last = moves[-1]
        moves[-1] = Axis(1 + (last.taps - 1) * last.dilation, last.taps, 1,
                         dilation=last.dilation, x=1)
        return Geometry(
            prod(x.shape[:batch]), last.outs, (*[Axis()] * (_MOST - len(moves)), *moves),
            prod(x.shape[batch:]), prod(y.shape[batch:]),
        )  # fmt: skip
    has_lanes = len(moves) < len(windows)
    batch = len(windows) - len(moves) - has_lanes
    inner = lambda z: prod(z.shape[batch:])
    return Geometry(
        prod(x.shape[:batch]), x.shape[-1] if has_lanes else 1,
        (*[Axis()] * (_MOST - len(moves)), *moves), inner(x), inner(y),
    )  # fmt: skip


# ------------------------------------------------------------------------- reductions, selections


def _width(dtype: Any) -> int:
    """Lanes of a vector."""
    return native.vector_bytes() // (4 if elements.is_short(dtype) else dtype.itemsize)


def _identity(kind: str, dtype: Any) -> str:
    """The neutral element of a reduction as text; for a selection, its worst element."""
    value = identity(EXTREMA.get(kind, kind), dtype)
    if not elements.is_float(dtype):
        return str(int(value))
    return {"0.0": "0.0", "1.0": "1.0", "-inf": "0xFFF0000000000000",
            "inf": "0x7FF0000000000000"}[str(float(value))]  # fmt: skip


_ROW = "lanes per_block blocks x_batch y_batch".split()
_AXIS = [*WINDOW, "x", "y"]


def _numbers(g: Geometry, size: int, per_block: int) -> tuple[int, ...]:
    return (g.lanes, per_block, -(-g.lanes // per_block), g.x_batch * size, g.y_batch * size,
            *axis_numbers(g.axes, size, "xy"))


def _windows(kind: str, g: Geometry, ins: list[Operand], y: Operand, plan: Planner) -> None:
    """One stage: every window reduced, or the tangent at its selected element."""
    dtype, size = y.dtype, y.dtype.itemsize
    launches = []
    for axes, place, _ in plain_parts(g.axes):
        part = replace(g, axes=axes)
        rows = g.batch * axes[0].outs * axes[1].outs
        per_block = lanes_per_block(_BLOCK * _width(dtype), g.lanes, rows, plan.threads)
        blocks = -(-g.lanes // per_block)
        extent = rows * blocks
        work = 4 * g.batch * g.lanes * prod(a.outs * max(a.taps, 1) for a in axes)
        launches.append(Launch(
            window_text(kind, dtype, any(a.dilation > 1 for a in axes), _width(dtype)),
            (*(x.ref for x in ins), y.ref.at(place * size), *_numbers(part, size, per_block)),
            extent, grain_of(extent, plan.threads, work), "windows",
            rows=_rows(part, ins, y) if blocks == 1 else None,
        ))  # fmt: skip
    plan.stage(*launches)


def _rows(g: Geometry, ins: list[Operand], y: Operand) -> Rows | None:
    """The rows of x and y of each row of windows, if windows neither overlap nor are cut off."""
    a, b, c = g.axes
    size = y.dtype.itemsize
    if any(axis.low or axis.base > 1 for axis in g.axes):
        return None
    units = [[(g.batch, g.x_batch), (a.outs, a.stride * a.x), (b.outs, b.stride * b.x)],
             [(g.batch, g.y_batch), (a.outs, a.y), (b.outs, b.y)]]  # fmt: skip
    window = [(1 + (axis.taps - 1) * axis.dilation, axis.x) for axis in (a, b)]
    inner = [[*window, (c.size, c.x), (g.lanes, 1)], [(c.outs, c.y), (g.lanes, 1)]]
    at = [spans.span(0, size, *([(n, s * size) for n, s in axes] for axes in (units[i], inner[i])))
          for i in range(2)]
    found = [(x.ref, at[0]) for x in ins] + [(y.ref, at[1])]
    return Rows(spans.together((ref.buffer, spans.moved(s, ref.offset)) for ref, s in found),
                frozenset({y.ref.buffer}))


@cache
def window_text(kind: str, dtype: Any, dilated: bool, wide: int) -> str:
    """Rows of windows; unit = (batch, position except last axis, block of lanes)."""
    selects = kind in ("ge", "le")
    f = tiles.kernel()
    a = Arguments(f, 3 if selects else 2, _ROW, _AXIS, dilated)
    buffers, n, axes = a.buffers, a.n, a.axes
    size = dtype.itemsize
    with f.loop("%lo", "%hi") as unit:
        rest, at = unit, []
        for count in (n["blocks"], axes[1]["outs"], axes[0]["outs"]):
            rest, place = f.divided(rest, count)
            at.append(place)
        xs = [f.step(b, rest, n["x_batch"]) for b in buffers[:-1]]
        y = f.step(buffers[-1], rest, n["y_batch"])
        bounds, y = start_bounds(f, axes[:2], (at[2], at[1]), y)
        low, high = f.part(at[0], n["per_block"], n["lanes"])
        less = (wide // 4,) if wide >= 32 else ()  # shorter vectors for the ends of rows of bytes
        for width, lane in lane_blocks(f, low, high, (_BLOCK * wide, wide, *less, 1)):
            here = [f.step(p, lane, size) for p in (*xs, y)]
            lanes = min(width, wide)
            _row(f, kind, Lanes(dtype, lanes), axes, bounds, here, width // lanes)
    return ir.module(f)


def _row(
    f: Function, kind: str, v: Lanes, axes: list[dict[str, str]],
    bounds: list[tuple[str, str, str]], here: list[str], count: int,
) -> None:  # fmt: skip
    """All windows along the last axis for `count` vectors."""
    *xs, y = here
    last = axes[2]
    neutral = v.splat(_identity(kind, v.dtype))
    with f.loop(0, last["outs"], vectorize=False) as p:
        start = f.sub(f.mul(p, last["stride"]), last["low"])
        bounds_here = [*bounds, (start, *tap_bounds(f, last, start))]
        slots = [f.alloca(v.type) for _ in range(count)]
        tangents = [f.alloca(v.type) for _ in range(count if len(xs) > 1 else 0)]
        for slot in slots:
            f.store(v.type, neutral, slot)
        for slot in tangents:
            f.store(v.type, "zeroinitializer" if v.width > 1 else _zero(v), slot)
        with ExitStack() as loops:
            place = "0"
            for axis, (low, first, end) in zip(axes, bounds_here, strict=True):
                tap = loops.enter_context(f.loop(first, end, vectorize=False))
                index = f.add(low, f.mul(tap, axis["dilation"]))
                place = f.add(place, f.mul(index, axis["x"]))
            _add_tap(f, kind, v, xs, place, slots, tangents)
        target = f.step(y, p, last["y"])
        for i, slot in enumerate(tangents or slots):
            v.store(f, f.load(v.type, slot), v.at(f, target, i * v.width))


def _zero(v: Lanes) -> str:
    return "0.0" if elements.is_float(v.dtype) else "0"


def _add_tap(
    f: Function, kind: str, v: Lanes, xs: list[str], place: str, slots: list[str],
    tangents: list[str],
) -> None:  # fmt: skip
    """Combine one tap with the results so far, or select it and its tangent."""
    for i, slot in enumerate(slots):
        shift = f.add(place, i * v.width * v.dtype.itemsize)
        value, old = v.load(f, f.offset(xs[0], shift)), f.load(v.type, slot)
        if not tangents:
            f.store(v.type, v.combine(f, kind, old, value), slot)
            continue
        keep = v.keeps(f, kind, old, value)
        f.store(v.type, v.choose(f, keep, old, value), slot)
        tangent, before = v.load(f, f.offset(xs[1], shift)), f.load(v.type, tangents[i])
        f.store(v.type, v.choose(f, keep, before, tangent), tangents[i])


# ----------------------------------------------------------------------------------------- scatter


def _scatter(select: str, g: Geometry, ins: list[Operand], out: Operand, plan: Planner) -> None:
    """Add source elements at selected positions: a unit owns a batch's windows for some lanes."""
    source, operand = ins
    dtype = out.dtype
    target = out
    if elements.is_short(dtype):  # sums are float32
        target = room(plan, out.shape, np.dtype("float32"))
    copies.fill(target, 0, plan)
    width = _width(dtype)
    per_block = larger(
        width, -(-g.lanes // larger(1, 8 * plan.threads // g.batch) // width) * width)
    extent = g.batch * -(-g.lanes // per_block)
    size = dtype.itemsize
    args = (
        operand.ref, target.ref, source.ref, *_numbers(g, size, per_block),
        g.x_batch * target.dtype.itemsize, *(a.x * target.dtype.itemsize for a in g.axes),
    )  # fmt: skip
    work = 8 * g.batch * g.lanes * prod(a.outs * a.taps for a in g.axes)
    taps = tuple(a.taps for a in g.axes)
    taps = taps if prod(taps) <= _UNROLLED else ()
    text = scatter_text(select, dtype, taps, width)
    grain = grain_of(extent, plan.threads, work)
    plan.stage(Launch(text, args, extent, grain, "gradient of pooling"))
    if target is not out:
        text = round_text(dtype)
        plan.stage(Launch(text, (target.ref, out.ref), out.size, 1 << 14, "round"))


@cache
def round_text(dtype: Any) -> str:
    """Round float32 elements to a shorter float."""
    f = ir.kernel()
    x, y = f.buffer(0), f.buffer(2)
    with f.loop("%lo", "%hi") as i:
        value = f.load("float", f.at(x, i, "float"), 4)
        elements.store(f, dtype, value, f.step(y, i, dtype.itemsize))
    return ir.module(f)


@cache
def scatter_text(select: str, dtype: Any, taps: tuple[int, ...], wide: int) -> str:
    """All windows of a batch, in order; unit = (batch, block of lanes); `taps`: of small windows,
    else none."""
    f = tiles.kernel()
    a = Arguments(f, 3, _ROW, _AXIS, dilated=False)
    (x, total, source), n, axes = a.buffers, a.n, a.axes
    first = 6 + len(_ROW) + _MOST * len(_AXIS)
    steps = [f.argument(first + i) for i in range(1 + _MOST)]
    with f.loop("%lo", "%hi") as unit:
        batch, block = f.divided(unit, n["blocks"])
        low, high = f.part(block, n["per_block"], n["lanes"])
        here = [f.step(x, batch, n["x_batch"]), f.step(total, batch, steps[0]),
                f.step(source, batch, n["y_batch"])]  # fmt: skip
        whole = f.add(low, f.mul(f.udiv(f.sub(high, low), wide), wide))
        spans = ((wide, low, whole), (1, whole, high))
        writer = _Scatter(f, select, dtype, axes, steps[1:], taps)
        with f.loop(0, axes[0]["outs"]) as i, f.loop(0, axes[1]["outs"]) as j, f.loop(
            0, axes[2]["outs"], vectorize=False
        ) as k:
            writer.window(here, (i, j, k), spans)
    return ir.module(f)


class _Scatter:
    """Writes the scatter of one window: find the selected tap, add the source there."""

    def __init__(
        self, f: Function, select: str, dtype: Any, axes: list[dict[str, str]], steps: list[str],
        taps: tuple[int, ...],
    ):  # fmt: skip
        self.f, self.select, self.dtype, self.axes = f, select, dtype, axes
        self.steps, self.taps = steps, taps

    def window(
        self, at: list[str], window: tuple[str, str, str], spans: tuple[tuple[int, str, str], ...]
    ) -> None:
        """One window of all lanes; bounds are not checked if it is inside the operand."""
        f, (x, total, source) = self.f, at
        start, interior = [], "true"
        for index, axis in zip(window, self.axes, strict=True):
            first = f.sub(f.mul(index, axis["stride"]), axis["low"])
            start.append(first)
            source = f.step(source, index, axis["y"])
            room = f.sub(axis["size"], axis["taps"])
            fits = f.all(f.compare("sge", first, 0), f.compare("sle", first, room))
            interior = f.all(interior, fits)
        for checked in (False, True):
            with f.when(interior, not checked):
                for width, low, high in spans:
                    v = Lanes(self.dtype, width)
                    with f.loop(low, high, width, vectorize=False) as lane:
                        term = v.load(f, v.at(f, source, lane))
                        places = (v.at(f, x, lane), _wide(v).at(f, total, lane), term)
                        self._choose_and_add(v, places, start, checked)

    def _choose_and_add(
        self, v: Lanes, at: tuple[str, str, str], start: list[str], checked: bool
    ) -> None:
        """Find the selected tap of a window, lane by lane, then add the source there.

        Positions in the padding take part as the worst element, as in NumPy's version; what is
        added there is dropped."""
        f, select, (x, total, source) = self.f, self.select, at
        word = v.words
        neutral = v.splat(_identity(select, v.dtype))
        zero = "0" if v.width == 1 else "zeroinitializer"
        one = ir.constant(1, v.width)
        chosen, place = f.variable(v.type, neutral), f.variable(word, zero)
        number, add = f.variable(word, zero), _wide(v)

        def consider(offset: str, inside: str) -> None:
            slot = f.variable(v.type, neutral)
            with f.when(inside) if checked else nullcontext():
                f.store(v.type, v.load(f, f.offset(x, offset)), slot)
            value, old, k = f.load(v.type, slot), f.load(v.type, chosen), f.load(word, number)
            # The first tap is always selected: there is nothing to compare it with.
            keep = v.keeps(f, select, old, value)
            later = f.value(f"icmp ne {word} {k}, {zero}")
            keep = f.value(f"and {v.truths} {keep}, {later}")
            f.store(v.type, v.choose(f, keep, old, value), chosen)
            f.store(word, v.choose(f, keep, f.load(word, place), k, word), place)
            f.store(word, f.value(f"add {word} {k}, {one}"), number)

        def give(offset: str, inside: str) -> None:
            k = f.load(word, number)
            hit = f.value(f"icmp eq {word} {f.load(word, place)}, {k}")
            term = v.choose(f, hit, source, v.splat(_zero(v)))
            there = f.offset(total, offset)
            with f.when(inside) if checked else nullcontext():
                add.store(f, add.combine(f, "add", add.load(f, there), term), there)
            f.store(word, f.value(f"add {word} {k}, {one}"), number)

        self._all_taps(start, [a["x"] for a in self.axes], consider, checked)
        f.store(word, zero, number)
        self._all_taps(start, self.steps, give, checked)

    def _all_taps(
        self, start: list[str], steps: list[str], visit: Callable[[str, str], None],
        checked: bool, place: str = "0", inside: str = "true",
    ) -> None:  # fmt: skip
        """Call `visit` in loops, with the offset of each tap and whether it is inside the
        operand."""
        if not start:
            visit(place, inside)
            return
        f, depth = self.f, len(self.axes) - len(start)
        axis = self.axes[depth]

        def one(tap: str | int) -> None:
            index, here = f.add(start[0], tap), inside
            if checked:
                here = f.all(inside, f.compare("ult", index, axis["size"]))
            self._all_taps(start[1:], steps[1:], visit, checked,
                           f.add(place, f.mul(index, steps[0])), here)

        if self.taps and not checked:
            for known in range(self.taps[depth]):
                one(known)
            return
        with f.loop(0, axis["taps"], vectorize=False) as tap:
            one(tap)


def _wide(v: Lanes) -> Lanes:
    """The lanes in which sums of `v` are accumulated."""
    return replace(v, dtype=np.dtype("float32")) if elements.is_short(v.dtype) else v
