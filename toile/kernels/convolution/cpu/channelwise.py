"""Convolutions of many tiny groups (depthwise); group g is in lane g of a vector.

    out[n, o, p, g] = sum over c, t of x[n, c, p*stride + t*dilation - low, g] * w[o, c, t, g]

The gradient of the kernels has the same form: few positions, many taps. Taps outside x are
skipped by bounds that are computed once for each row of outputs.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import chain

from toile.kernels.convolution.cpu import tiles
from toile.kernels.convolution.cpu.arguments import Arguments, lane_blocks, start_bounds, tap_bounds
from toile.kernels.convolution.cpu.problem import (
    WINDOW,
    Problem,
    axis_numbers,
    grain_of,
    lanes_per_block,
    undilated,
)
from toile.kernels.convolution.cpu.tiles import Tile
from toile.targets.llvm import spans
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner, Rows
from toile.targets.llvm.text import Function, typed

_VECTORS = 4
_AT_ONCE = {16: 4, 32: 2, 64: 4}  # outputs of a row that share loads of the kernels


def suits(p: Problem) -> bool:
    """Whether groups are many and so small that matrix products would be mostly padding."""
    inner = p.images if p.taps > p.positions else p.channels
    return p.groups >= 4 and inner * p.features <= 4


def lower(p: Problem, plan: Planner) -> None:
    """Add one stage."""
    plan.stage(*(_launch(part, plan) for part in undilated(p)))


def _launch(p: Problem, plan: Planner) -> Launch:
    t = tiles.indirect_tile(p.type, 2)._replace(rows=1, vectors=_VECTORS)
    size = p.itemsize
    rows = p.images * p.features * p.axes[0].outs * p.axes[1].outs
    per_block = lanes_per_block(t.columns, p.groups, rows, plan.threads)
    blocks = -(-p.groups // per_block)
    numbers = p.numbers(_NAMES, per_block=per_block, blocks=blocks)
    extent = rows * blocks
    grain = grain_of(extent, plan.threads, 4 * p.flops)
    dilated = any(a.dilation > 1 for a in p.axes)
    launch = Launch(text(t, dilated), (p.x, p.w, p.y, *numbers, *axis_numbers(p.axes, size, "xwy")),
                    extent, grain, "depthwise convolution")
    if blocks > 1:
        return replace(launch, apart="its rows are shared by several units")
    outer = [(p.images, p.y_image), (p.features, p.y_feature), (p.axes[0].outs, p.axes[0].y),
             (p.axes[1].outs, p.axes[1].y)]  # fmt: skip
    inner = [(p.axes[2].outs, p.axes[2].y), (p.groups, 1)]
    found = spans.span(p.y.offset, size, *([(n, s * size) for n, s in axes]
                                           for axes in (outer, inner)))
    if found is None or p.y.buffer in (p.x.buffer, p.w.buffer):
        return replace(launch, apart="its rows are not stored in order")
    return replace(launch, rows=Rows({p.y.buffer: found}, frozenset({p.y.buffer}), leads=True))


_NAMES = (
    "groups per_block blocks features channels x_image x_channel w_feature w_channel y_image "
    "y_feature"
).split()
AXIS = [*WINDOW, "x", "w", "y"]


@cache
def text(t: Tile, dilated: bool) -> str:
    """Rows of outputs; unit = (image, feature, position except last axis, block of groups)."""
    f = tiles.kernel()
    a = Arguments(f, 3, _NAMES, AXIS, dilated)
    n, (x_base, w_base, y_base) = a.n, a.buffers
    with f.loop("%lo", "%hi") as unit:
        rest, at = unit, {}
        for name, count in (
            ("block", n["blocks"]), ("p1", a.axes[1]["outs"]), ("p0", a.axes[0]["outs"]),
            ("feature", n["features"]),
        ):  # fmt: skip
            rest, at[name] = f.divided(rest, count)
        x = f.step(x_base, rest, n["x_image"])
        w = f.step(w_base, at["feature"], n["w_feature"])
        y = f.offset(y_base, f.add(f.mul(rest, n["y_image"]), f.mul(at["feature"], n["y_feature"])))
        bounds, y = start_bounds(f, a.axes[:2], (at["p0"], at["p1"]), y)
        low, high = f.part(at["block"], n["per_block"], n["groups"])
        for width, g in lane_blocks(f, low, high, (t.columns, t.lanes, 1)):
            here = [f.at(pointer, g, t.type) for pointer in (x, w, y)]
            _Outputs(f, t, a, bounds, here, width).row()
    return ir.module(f)


class _Outputs:
    """Writes the outputs along the last axis for `width` groups; `here`: addresses of x, w, y."""

    def __init__(
        self, f: Function, t: Tile, a: Arguments, bounds: list[tuple[str, str, str]],
        here: list[str], width: int,
    ):  # fmt: skip
        self.f, self.t, self.a, self.bounds, self.here = f, t, a, bounds, here
        self.lanes = t.lanes if width > 1 else 1
        self.kind = typed(t.type, self.lanes)
        self.offsets = range(0, width, t.lanes)
        self.several = _AT_ONCE[t.lanes * t.itemsize] if width > 1 else 1

    def row(self) -> None:
        """Write all outputs; several at once if all their taps exist."""
        f, last, several = self.f, self.a.axes[2], self.several
        reach = f.mul(f.sub(last["taps"], 1), last["dilation"])
        room = f.add(f.sub(f.sub(last["size"], reach), 1), last["low"])  # p*stride <= room
        first = f.udiv(f.sub(f.add(f.smax(last["low"], 0), last["stride"]), 1), last["stride"])
        first = f.smin(first, last["outs"])
        after = f.add(f.udiv(f.smax(room, 0), last["stride"]), 1)
        after = f.select(f.compare("slt", room, 0), 0, after)
        count = f.smax(f.sub(f.smin(after, last["outs"]), first), 0)
        whole = f.add(first, f.mul(f.udiv(count, several), several))
        if several == 1:
            self._loop(0, last["outs"])
            return
        self._loop(0, first)
        self._loop(first, whole, several)
        self._loop(whole, last["outs"])

    def _loop(self, low: str | int, high: str, several: int = 1) -> None:
        """Outputs from `low` to `high`; for `several` at once, all taps must exist."""
        f, last = self.f, self.a.axes[2]
        with f.loop(low, high, several, vectorize=False) as p:
            start = f.sub(f.mul(p, last["stride"]), last["low"])
            taps = ("0", last["taps"]) if several > 1 else tap_bounds(f, last, start)
            self._outputs([*self.bounds, (start, *taps)], p, several)

    def _outputs(self, bounds: list[tuple[str, str, str]], p: str, several: int) -> None:
        """`several` outputs from position p on; the bounds of taps are those of the first."""
        f, kind, last = self.f, self.kind, self.a.axes[2]
        slots = [[f.alloca(kind) for _ in self.offsets] for _ in range(several)]
        for slot in chain(*slots):
            f.store(kind, "zeroinitializer" if kind == self.t.vector else "0.0", slot)
        step = f.mul(last["stride"], last["x"])
        with ExitStack() as loops:
            c = loops.enter_context(f.loop(0, self.a.n["channels"], vectorize=False))
            x, w, y = self.here
            x = f.step(x, c, self.a.n["x_channel"])
            w = f.step(w, c, self.a.n["w_channel"])
            for axis, (start, first, end) in zip(self.a.axes, bounds, strict=True):
                tap = loops.enter_context(f.loop(first, end, vectorize=False))
                place = f.add(start, f.mul(tap, axis["dilation"]))
                x, w = f.step(x, place, axis["x"]), f.step(w, tap, axis["w"])
            self._add(slots, x, w, step)
        for q, row in enumerate(slots):
            target = f.step(y, f.add(p, q), last["y"])
            for i, slot in zip(self.offsets, row, strict=True):
                f.store(kind, f.load(kind, slot), f.at(target, i, self.t.type), self.t.itemsize)

    def _add(self, slots: list[list[str]], x: str, w: str, step: str) -> None:
        """Add one tap of each output."""
        f, t, kind = self.f, self.t, self.kind
        weights = [f.load(kind, f.at(w, i, t.type), t.itemsize) for i in self.offsets]
        for q, row in enumerate(slots):
            source = f.step(x, step, q) if q else x
            for i, slot, weight in zip(self.offsets, row, weights, strict=True):
                value = f.load(kind, f.at(source, i, t.type), t.itemsize)
                old = f.load(kind, slot)
                f.store(kind, f.multiply_add(value, weight, old, t.type, self.lanes), slot)
