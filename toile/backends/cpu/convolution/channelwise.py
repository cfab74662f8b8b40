"""Convolutions of many tiny groups (depthwise), group g in lane g of a vector.

    out[n, o, p, g] = sum over c, t of x[n, c, p*stride + t*dilation - low, g] * w[o, c, t, g]

The gradient in the kernels has the same form: few positions, many taps. Taps outside of x are
skipped by bounds that are computed once for each row of outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from toile.backends.cpu import ir, spans
from toile.backends.cpu.convolution import tiles
from toile.backends.cpu.convolution.arguments import Arguments, tap_bounds
from toile.backends.cpu.convolution.problem import Problem, axis_numbers, grain_of, undilated
from toile.backends.cpu.convolution.tiles import Tile
from toile.backends.cpu.ir import Function
from toile.backends.cpu.launches import Launch, Planner, Rows
from toile.compiler.operands import Ref

_VECTORS = 4
_AT_ONCE = {16: 4, 32: 2, 64: 4}  # outputs of a row that share the loads of kernels


def suits(p: Problem) -> bool:
    """Whether groups are many and so small that products of matrices would be mostly padding."""
    inner = p.images if p.taps > p.positions else p.channels
    return p.groups >= 4 and inner * p.features <= 4


def supports(p: Problem) -> bool:
    """Whether groups lie side by side everywhere."""
    return p.x_group == p.w_group == p.y_group == 1


def lower(p: Problem, plan: Planner) -> None:
    """Add one stage."""
    plan.stage(*(_launch(part, plan) for part in undilated(p)))


def _launch(p: Problem, plan: Planner) -> Launch:
    t = tiles.indirect_tile(p.type, 2)._replace(rows=1, vectors=_VECTORS)
    size = p.itemsize
    rows = p.images * p.features * p.axes[0].outs * p.axes[1].outs
    per_block = t.columns
    while rows * -(-p.groups // per_block) > 64 * plan.threads and per_block < p.groups:
        per_block *= 2
    blocks = -(-p.groups // per_block)
    args: tuple[int | Ref, ...] = (
        p.x, p.w, p.y, p.groups, per_block, blocks, p.features, p.channels, p.x_image * size,
        p.x_channel * size, p.w_feature * size, p.w_channel * size, p.y_image * size,
        p.y_feature * size,
        *axis_numbers([
            (a.size, a.taps, a.outs, a.stride, a.low, a.dilation, a.x * size, a.w * size,
             a.y * size)
            for a in p.axes
        ]),
    )  # fmt: skip
    extent = rows * blocks
    grain = grain_of(extent, plan.threads, 4 * p.flops)
    dilated = any(a.dilation > 1 for a in p.axes)
    launch = Launch(text(t, dilated), args, extent, grain, "depthwise convolution")
    if blocks > 1:
        return replace(launch, apart="its rows are shared by several units")
    outer = [(p.images, p.y_image), (p.features, p.y_feature), (p.axes[0].outs, p.axes[0].y),
             (p.axes[1].outs, p.axes[1].y)]  # fmt: skip
    inner = [(p.axes[2].outs, p.axes[2].y), (p.groups, 1)]
    found = spans.span(p.y.offset, size, *([(n, s * size) for n, s in axes]
                                           for axes in (outer, inner)))
    if found is None or p.y.buffer in (p.x.buffer, p.w.buffer):
        return replace(launch, apart="its rows do not lie in order")
    return replace(launch, rows=Rows({p.y.buffer: found}, frozenset({p.y.buffer}), leads=True))


_NAMES = (
    "groups per_block blocks features channels x_image x_channel w_feature w_channel y_image "
    "y_feature"
).split()
_AXIS = "size taps outs stride low dilation x w y".split()


@cache
def text(t: Tile, dilated: bool) -> str:
    """Rows of outputs; unit = (image, feature, position but for the last axis, block of groups)."""
    f = tiles.kernel()
    a = Arguments(f, 3, _NAMES, _AXIS, dilated)
    n, (x_base, w_base, y_base) = a.n, a.buffers
    with f.loop("%lo", "%hi") as unit:
        rest, at = unit, {}
        for name, count in (
            ("block", n["blocks"]), ("p1", a.axes[1]["outs"]), ("p0", a.axes[0]["outs"]),
            ("feature", n["features"]),
        ):  # fmt: skip
            rest, at[name] = f.divided(rest, count)
        x = f.offset(x_base, f.mul(rest, n["x_image"]))
        w = f.offset(w_base, f.mul(at["feature"], n["w_feature"]))
        y = f.offset(y_base, f.add(f.mul(rest, n["y_image"]), f.mul(at["feature"], n["y_feature"])))
        bounds = []
        for axis, index in zip(a.axes[:2], (at["p0"], at["p1"]), strict=True):
            start = f.sub(f.mul(index, axis["stride"]), axis["low"])
            bounds.append((start, *tap_bounds(f, axis, start)))
            y = f.offset(y, f.mul(index, axis["y"]))
        low = f.mul(at["block"], n["per_block"])
        high = f.smin(f.add(low, n["per_block"]), n["groups"])
        for width in (t.columns, t.lanes, 1):
            stop = f.add(low, f.mul(f.udiv(f.sub(high, low), width), width)) if width > 1 else high
            with f.loop(low, stop, width, vectorize=False) as g:
                here = [f.at(pointer, g, t.type) for pointer in (x, w, y)]
                _row(f, t, a, bounds, here, width)
            low = f.smax(low, stop)
    return ir.module(f)


def _row(
    f: Function, t: Tile, a: Arguments, bounds: list[tuple[str, str, str]], here: list[str],
    width: int,
) -> None:  # fmt: skip
    """All outputs along the last axis, for `width` groups; several at once where taps all exist."""
    last = a.axes[2]
    reach = f.mul(f.sub(last["taps"], 1), last["dilation"])
    room = f.add(f.sub(f.sub(last["size"], reach), 1), last["low"])  # p*stride <= room
    first = f.udiv(f.sub(f.add(f.smax(last["low"], 0), last["stride"]), 1), last["stride"])
    first = f.smin(first, last["outs"])
    after = f.add(f.udiv(f.smax(room, 0), last["stride"]), 1)
    after = f.select(f.compare("slt", room, 0), 0, after)
    count = f.smax(f.sub(f.smin(after, last["outs"]), first), 0)
    several = _AT_ONCE[t.lanes * t.itemsize] if width > 1 else 1
    whole = f.add(first, f.mul(f.udiv(count, several), several))

    def single(low: str | int, high: str) -> None:
        with f.loop(low, high, vectorize=False) as p:
            start = f.sub(f.mul(p, last["stride"]), last["low"])
            _outputs(f, t, a, [*bounds, (start, *tap_bounds(f, last, start))], here, width, p, 1)

    if several == 1:
        single(0, last["outs"])
        return
    single(0, first)
    with f.loop(first, whole, several, vectorize=False) as p:
        start = f.sub(f.mul(p, last["stride"]), last["low"])
        _outputs(f, t, a, [*bounds, (start, "0", last["taps"])], here, width, p, several)
    single(whole, last["outs"])


def _outputs(
    f: Function, t: Tile, a: Arguments, bounds: list[tuple[str, str, str]], here: list[str],
    width: int, p: str, several: int,
) -> None:  # fmt: skip
    """`several` outputs from position p on; the bounds of taps are those of the first."""
    x, w, y = here
    last, single = a.axes[2], width == 1
    kind = t.type if single else t.vector
    suffix = f"f{8 * t.itemsize}" if single else t.suffix
    offsets = range(0, width, t.lanes)
    slots = [[f.alloca(kind) for _ in offsets] for _ in range(several)]
    for row in slots:
        for slot in row:
            f.store(kind, "0.0" if single else "zeroinitializer", slot)
    step = f.mul(last["stride"], last["x"])

    def add(x: str, w: str) -> None:
        weights = [f.load(kind, f.at(w, i, t.type), t.itemsize) for i in offsets]
        for q, row in enumerate(slots):
            source = f.offset(x, f.mul(step, q)) if q else x
            for i, slot, weight in zip(offsets, row, weights, strict=True):
                value = f.load(kind, f.at(source, i, t.type), t.itemsize)
                f.store(kind, f.value(
                    f"call {kind} @llvm.fmuladd.{suffix}({kind} {value}, {kind} {weight}, "
                    f"{kind} {f.load(kind, slot)})"), slot)

    with f.loop(0, a.n["channels"], vectorize=False) as c:
        _taps(f, a.axes, bounds, f.offset(x, f.mul(c, a.n["x_channel"])),
              f.offset(w, f.mul(c, a.n["w_channel"])), add)
    for q, row in enumerate(slots):
        target = f.offset(y, f.mul(f.add(p, q), last["y"]))
        for i, slot in zip(offsets, row, strict=True):
            f.store(kind, f.load(kind, slot), f.at(target, i, t.type), t.itemsize)


def _taps(
    f: Function, axes: list[dict[str, str]], bounds: list[tuple[str, str, str]], x: str, w: str,
    add: Callable[[str, str], None],
) -> None:  # fmt: skip
    """Call `add` inside loops over the taps within the bounds."""
    if not axes:
        add(x, w)
        return
    (start, first, last), axis = bounds[0], axes[0]
    with f.loop(first, last, vectorize=False) as tap:
        place = f.add(start, f.mul(tap, axis["dilation"]))
        _taps(f, axes[1:], bounds[1:], f.offset(x, f.mul(place, axis["x"])),
              f.offset(w, f.mul(tap, axis["w"])), add)
