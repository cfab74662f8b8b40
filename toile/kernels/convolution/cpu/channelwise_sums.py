"""Convolutions of tiny groups with few outputs of long sums: gradients of depthwise kernels.

    out[n, o, t, g] = sum over c, e of x[n, c, e*dilation + t*stride - low, g] * w[o, c, e, g]

Rows of w pass through the cache once: each adds to all outputs, a few vectors of groups at a time
in registers. Rows are split among private sums, which are then added in order.
"""

from __future__ import annotations

from functools import cache

from toile.compiler.ir.extents import larger, smaller
from toile.kernels.convolution.cpu import tiles
from toile.kernels.convolution.cpu.arguments import Arguments, tap_bounds
from toile.kernels.convolution.cpu.channelwise import AXIS
from toile.kernels.convolution.cpu.outer import sum_of_private
from toile.kernels.convolution.cpu.problem import Problem, axis_numbers
from toile.kernels.convolution.cpu.tiles import Tile
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.text import Function, typed

_VECTORS = 4
_PRIVATE = 1 << 22  # bytes of private sums


def supports(p: Problem) -> bool:
    """Whether sums are longer than the number of outputs, and the operand is not dilated."""
    return p.taps > p.positions and all(a.base == 1 for a in p.axes)


def lower(p: Problem, plan: Planner) -> None:
    """Add the stages: private sums, then their sum. Groups are contiguous; y has no gaps."""
    t = tiles.indirect_tile(p.type, 2)._replace(rows=1, vectors=_VECTORS)
    size = p.itemsize
    total = p.images * p.features * p.positions * p.groups
    rows = p.channels * p.axes[0].taps * p.axes[1].taps
    splits = larger(1, smaller(4 * plan.threads, rows, _PRIVATE // (total * size)))
    if p.flops < 200_000:
        splits = 1
    per_split = -(-rows // splits)
    splits = -(-rows // per_split)
    private = p.y if splits == 1 else plan.scratch(splits * total * size)
    numbers = p.numbers(_NAMES, rows=rows, per_split=per_split, total=total)
    plan.stage(Launch(text(t), (p.x, p.w, private, *numbers, *axis_numbers(p.axes, size, "xwy")),
                      splits, 1, "gradient of depthwise kernels"))
    if splits > 1:
        plan.stage(sum_of_private(t, private, p.y, splits, total, plan.threads))


_NAMES = (
    "groups rows per_split images features x_image x_channel w_feature w_channel y_image "
    "y_feature total"
).split()


@cache
def text(t: Tile) -> str:
    """Private sums; unit = split."""
    f = tiles.kernel()
    a = Arguments(f, 3, _NAMES, AXIS)
    n, (x_base, w_base, y_base) = a.n, a.buffers
    with f.loop("%lo", "%hi") as split:
        y = f.at(y_base, f.mul(split, n["total"]), t.type)
        with f.loop(0, n["total"]) as i:
            f.store(t.type, "0.0", f.at(y, i, t.type))
        low, high = f.part(split, n["per_split"], n["rows"])
        with f.loop(low, high) as row:
            rest, e1 = f.divided(row, a.axes[1]["taps"])
            c, e0 = f.divided(rest, a.axes[0]["taps"])
            x = f.step(x_base, c, n["x_channel"])
            w = f.step(w_base, c, n["w_channel"])
            for e, axis in zip((e0, e1), a.axes[:2], strict=True):
                w = f.step(w, e, axis["w"])
            with f.loop(0, n["images"]) as i, f.loop(0, n["features"]) as o:
                _outputs(f, t, a, (e0, e1), (
                    f.step(x, i, n["x_image"]), f.step(w, o, n["w_feature"]),
                    f.offset(y, f.add(f.mul(i, n["y_image"]), f.mul(o, n["y_feature"]))),
                ))  # fmt: skip
    return ir.module(f)


def _outputs(
    f: Function, t: Tile, a: Arguments, row: tuple[str, str], at: tuple[str, str, str]
) -> None:
    """Add the products of one row of w with x to the outputs of one image and feature."""
    x, w, y = at
    with f.loop(0, a.axes[0]["outs"]) as t0, f.loop(0, a.axes[1]["outs"]) as t1:
        inside, here, target = "true", x, y
        for e, tap, axis in zip(row, (t0, t1), a.axes[:2], strict=True):
            place = f.sub(f.add(f.mul(e, axis["dilation"]), f.mul(tap, axis["stride"])),
                          axis["low"])
            inside = f.all(inside, f.compare("ult", place, axis["size"]))
            here = f.step(here, place, axis["x"])
            target = f.step(target, tap, axis["y"])
        with f.when(inside):
            last = a.axes[2]
            with f.loop(0, last["outs"]) as t2:
                start = f.sub(f.mul(t2, last["stride"]), last["low"])
                span = (start, *tap_bounds(f, last, start))
                _groups(f, t, a, span, (here, w, f.step(target, t2, last["y"])))


def _groups(
    f: Function, t: Tile, a: Arguments, span: tuple[str, str, str], at: tuple[str, str, str]
) -> None:
    """One output of all groups += the sum along one row."""
    (start, first, last), axis = span, a.axes[2]
    low: str = "0"
    for width in (t.columns, t.lanes, 1):
        high = a.n["groups"]
        if width > 1:
            high = f.add(low, f.mul(f.udiv(f.sub(high, low), width), width))
        lanes = min(width, t.lanes)
        kind = typed(t.type, lanes)
        with f.loop(low, high, width, vectorize=False) as g:
            x, w, y = (f.at(pointer, g, t.type) for pointer in at)
            outs = [f.at(y, i, t.type) for i in range(0, width, t.lanes)]
            slots = [f.variable(kind, f.load(kind, out, t.itemsize)) for out in outs]
            with f.loop(first, last, vectorize=False) as e:
                place = f.add(start, f.mul(e, axis["dilation"]))
                xe, we = f.step(x, place, axis["x"]), f.step(w, e, axis["w"])
                for v, slot in enumerate(slots):
                    one, other = (
                        f.load(kind, f.at(q, v * t.lanes, t.type), t.itemsize) for q in (xe, we)
                    )
                    old = f.load(kind, slot)
                    f.store(kind, f.multiply_add(one, other, old, t.type, lanes), slot)
            for out, slot in zip(outs, slots, strict=True):
                f.store(kind, f.load(kind, slot), out, t.itemsize)
        low = high
