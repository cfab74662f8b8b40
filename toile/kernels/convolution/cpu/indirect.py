"""Convolution as a product of gathered rows with packed kernels, without copying x.

For a tile of output positions a table on the stack holds the address of x's channels at every tap
(or of a row of zeros outside x), and a register tile of outputs runs through the table.
Kernels are packed first as panels [group][features / columns][tap][channel][columns]. A convolution
of a dilated operand is several such convolutions, one for each phase.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from toile.compiler.ir.extents import larger, smaller
from toile.compiler.ir.operands import Args, Ref
from toile.kernels.convolution.cpu import tiles
from toile.kernels.convolution.cpu.arguments import Arguments, Coordinates
from toile.kernels.convolution.cpu.problem import WINDOW, Problem, axis_numbers, grain_of, undilated
from toile.kernels.convolution.cpu.tiles import Tile
from toile.targets.llvm import spans
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner, Rows, Span
from toile.targets.llvm.text import Function

_TABLE = 1 << 15  # addresses in the table of one tile of positions: 256 KB of stack
_PANELS = 1 << 19  # bytes of panels that one unit of work reads
_SUBTILES = 8
_LEAST = 4  # fewest subtiles of a unit in a chain
_ROWS = 16  # rows of kernels packed at a time


def fits(p: Problem) -> bool:
    """Whether the table of taps fits."""
    return p.taps * tiles.indirect_tile(p.type, p.features).rows <= _TABLE


def supports(p: Problem) -> bool:
    """Whether the table fits, and channels and features are contiguous."""
    return p.x_channel == 1 and p.y_feature == 1 and fits(p)


def lower(p: Problem, plan: Planner) -> None:
    """Add the stages: pack the kernels, multiply."""
    packs, products = [], []
    for part in undilated(p):
        pack, launch = _launches(part, plan)
        packs += pack
        products.append(launch)
    if packs:
        plan.stage(*packs)
    plan.stage(*products)


def _launches(p: Problem, plan: Planner) -> tuple[list[Launch], Launch]:
    t = tiles.indirect_tile(p.type, p.features)
    group = -(-p.features // t.columns) * p.taps * p.channels * t.columns
    packed = plan.scratch((p.groups * group + p.channels) * p.itemsize)
    zeros = packed.at(p.groups * group * p.itemsize)
    launch = _product(p, t, (packed, zeros), plan.threads)
    return _pack_launches(p, t, packed, zeros, plan), launch


def _product(
    p: Problem, t: Tile, held: tuple[Ref, Ref], threads: int, height: int = 0
) -> Launch:
    """The launch of the product with packed kernels; `height`: positions per unit, if given."""
    packed, zeros = held
    size, length = p.itemsize, p.taps * p.channels
    panels = -(-p.features // t.columns)
    group = panels * length * t.columns
    rows = p.images * p.positions
    table = _TABLE // max(1, p.taps * t.rows)
    subtiles = larger(1, smaller(_SUBTILES, table, -(-rows // t.rows)))
    given, height = bool(height), height or subtiles * t.rows
    tiles_ = -(-rows // height)
    blocks = 1 if given else _blocks(
        tiles_ * p.groups, panels, length * t.columns * size, threads)
    per_block = -(-panels // blocks)
    blocks = -(-panels // per_block)
    numbers = p.numbers(_NAMES, rows=rows, height=height, tiles=tiles_, blocks=blocks,
                        per_block=per_block, panels=panels, w_group=group * size)
    args: Args = (p.x, packed, p.y, zeros, *numbers, *axis_numbers(p.axes, size, "xy"))
    extent = p.groups * blocks * tiles_
    grain = grain_of(extent, threads, p.flops)
    launch = Launch(product_text(t), args, extent, grain, "convolution")
    if p.groups * blocks > 1:
        return replace(launch, apart="its rows are shared by several units")
    found = spans_of(p)
    if p.y.buffer not in found:
        return replace(launch, apart="its rows are not stored in order")
    return replace(launch, rows=Rows(
        found, frozenset({p.y.buffer}), Fraction(height), True, rows,
        lambda count: _product(p, t, held, threads, count), t.rows, t.rows * min(_LEAST, table),
        t.rows * table))  # fmt: skip


def spans_of(p: Problem) -> dict[Any, Span]:
    """The bytes that belong to each position: of y, and of x if windows do not overlap."""
    size = p.itemsize

    def at(ref: Ref, image: int, side: str, inner: tuple[int, int]) -> tuple[Any, Span | None]:
        outer = [(p.images, image), *((a.outs, getattr(a, side)) for a in p.axes)]
        across = [(n, stride * size) for n, stride in outer]
        return ref.buffer, spans.span(ref.offset, size, across, [(inner[0], inner[1] * size)])

    found = [at(p.y, p.y_image, "y", (p.features, p.y_feature))]
    alone = all((a.taps, a.stride, a.low, a.base, a.size) == (1, 1, 0, 1, a.outs) for a in p.axes)
    x = at(p.x, p.x_image, "x", (p.channels, p.x_channel)) if alone else (p.x.buffer, None)
    return spans.together([*found, x, (p.w.buffer, None)])


def _blocks(tiles_: int, panels: int, panel_bytes: int, threads: int) -> int:
    """How many parts the panels are split into: each fits the cache, and all threads have work."""
    fitting = -(-panels * panel_bytes // _PANELS)
    needed = -(-4 * threads // tiles_)
    return larger(1, smaller(panels, larger(fitting, needed)))


# ---------------------------------------------------------------------------------------- packing


def _pack_launches(p: Problem, t: Tile, packed: Ref, zeros: Ref, plan: Planner) -> list[Launch]:
    panels = -(-p.features // t.columns)
    kind = "rows" if p.w_feature == 1 else "columns" if p.w_channel == 1 else "any"
    by_rows = kind == "rows" and panels > 1
    size = p.itemsize
    units = p.groups * p.taps * (-(-p.channels // _ROWS) if by_rows else panels)
    launches = [Launch(zero_text(t.type), (zeros, p.channels), 1, 1, "zeros for padding")]
    if units:
        launches.append(Launch(
            rows_text(t) if by_rows else pack_text(t, kind),
            (p.w, packed, panels, p.channels, p.features, p.w_group * size, p.w_channel * size,
             p.w_feature * size, *(n for a in p.axes for n in (a.taps, a.w * size))),
            units, grain_of(units, plan.threads, 4 * p.groups * p.taps * p.channels * p.features),
            "pack kernels",
        ))  # fmt: skip
    return launches


@cache
def zero_text(type: str) -> str:
    """A kernel that writes zeros."""
    f = tiles.kernel()
    out, count = f.buffer(0), f.argument(2)
    with f.loop(0, count) as i:
        f.store(type, "0.0", f.at(out, i, type))
    return ir.module(f)


def _kernels(f: Function) -> tuple[str, str, list[str], list[str], list[str]]:
    """The arguments of packing: kernels, target, numbers; taps and strides of the axes."""
    return (f.buffer(0), f.buffer(2), [f.argument(i) for i in range(4, 10)],
            [f.argument(10 + 2 * d) for d in range(3)], [f.argument(11 + 2 * d) for d in range(3)])


@cache
def pack_text(t: Tile, kind: str) -> str:
    """Panels of kernels; unit = (group, panel, tap)."""
    f = tiles.kernel()
    w, packed, (panels, channels, features, group, channel, feature), taps, steps = _kernels(f)
    inner = f.mul(taps[1], taps[2])
    count = f.mul(taps[0], inner)
    length = f.mul(channels, t.columns)
    with f.loop("%lo", "%hi") as unit:
        panel, tap = f.divided(unit, count)
        g, first = f.divided(panel, panels)
        first = f.mul(first, t.columns)
        place = f.add(f.mul(g, group), f.mul(first, feature))
        t0, rest = f.divided(tap, inner)
        t1, t2 = f.divided(rest, taps[2])
        for index, step in zip((t0, t1, t2), steps, strict=True):
            place = f.add(place, f.mul(index, step))
        source = f.offset(w, place)
        into = f.at(packed, f.mul(unit, length), t.type)
        valid = f.smin(f.sub(features, first), t.columns)
        full = f.compare("eq", valid, t.columns)
        with f.when(full):
            _pack_full(f, t, kind, source, into, channels, channel, feature)
        with f.unless(full):
            _pack_any(f, t, source, into, channels, channel, feature, valid)
    return ir.module(f)


@cache
def rows_text(t: Tile) -> str:
    """The panels of `pack_text`, from kernels with contiguous features, read row by row.

    Unit = (group, tap, block of channels)."""
    f = tiles.kernel()
    w, packed, (panels, channels, features, group, channel, _), taps, steps = _kernels(f)
    count = f.mul(f.mul(taps[0], taps[1]), taps[2])
    blocks = f.udiv(f.add(channels, _ROWS - 1), _ROWS)
    length = f.mul(channels, t.columns)
    with f.loop("%lo", "%hi") as unit:
        whole, low = f.divided(unit, blocks)
        low, high = f.part(low, _ROWS, channels)
        g, tap = f.divided(whole, count)
        source, rest = f.step(w, g, group), tap
        for extent, step in zip(reversed(taps), reversed(steps), strict=True):
            rest, index = f.divided(rest, extent)
            source = f.step(source, index, step)
        with f.loop(0, panels) as panel:
            place = f.mul(f.add(f.mul(f.add(f.mul(g, panels), panel), count), tap), length)
            into, first = f.at(packed, place, t.type), f.mul(panel, t.columns)
            valid = f.smin(f.sub(features, first), t.columns)
            full = f.compare("eq", valid, t.columns)
            with f.loop(low, high, vectorize=False) as c:
                row = f.at(f.step(source, c, channel), first, t.type)
                out = f.at(into, f.mul(c, t.columns), t.type)
                with f.when(full):
                    _copy_row(f, t, row, out)
                with f.unless(full):
                    _pack_row(f, t, row, out, str(t.itemsize), valid)
    return ir.module(f)


def _pack_full(
    f: Function, t: Tile, kind: str, source: str, into: str, channels: str, channel: str,
    feature: str,
) -> None:  # fmt: skip
    """A panel whose features all exist."""
    if kind == "rows":
        with f.loop(0, channels) as c:
            row, out = f.step(source, c, channel), f.at(into, f.mul(c, t.columns), t.type)
            _copy_row(f, t, row, out)
    elif kind == "columns":
        whole = f.mul(f.udiv(channels, t.lanes), t.lanes)
        starts = [f.step(source, feature, j) for j in range(t.columns)]
        with f.loop(0, whole, t.lanes) as c:
            out = f.at(into, f.mul(c, t.columns), t.type)
            for v in range(0, t.columns, t.lanes):
                square = [tiles.load(f, t, start, c) for start in starts[v : v + t.lanes]]
                for i, column in enumerate(tiles.transposed(f, t, square)):
                    tiles.store(f, t, column, out, i * t.columns + v)
        with f.loop(whole, channels) as c:
            _pack_row(f, t, f.at(source, c, t.type), f.at(into, f.mul(c, t.columns), t.type),
                      feature, t.columns)
    else:
        _pack_any(f, t, source, into, channels, channel, feature, str(t.columns))


def _pack_any(
    f: Function, t: Tile, source: str, into: str, channels: str, channel: str, feature: str,
    valid: str,
) -> None:  # fmt: skip
    """A panel of `valid` features; the others are zero."""
    with f.loop(0, channels) as c:
        out = f.at(into, f.mul(c, t.columns), t.type)
        _pack_row(f, t, f.step(source, c, channel), out, feature, valid)


def _copy_row(f: Function, t: Tile, source: str, into: str) -> None:
    """A whole row of contiguous features."""
    for v in range(t.vectors):
        tiles.store(f, t, tiles.load(f, t, source, v * t.lanes), into, v * t.lanes)


def _pack_row(
    f: Function, t: Tile, source: str, into: str, feature: str, valid: str | int
) -> None:
    """A row of `valid` features; the others are zero."""
    with f.loop(0, valid) as j:
        f.store(t.type, f.load(t.type, f.step(source, j, feature)), f.at(into, j, t.type))
    if valid != t.columns:  # unless the row is known to be complete
        with f.loop(valid, t.columns) as j:
            f.store(t.type, "0.0", f.at(into, j, t.type))


# ---------------------------------------------------------------------------------------- product


_NAMES = (
    "rows height tiles blocks per_block panels channels features x_group w_group y_group x_image "
    "y_image"
).split()
_AXIS = [*WINDOW, "x", "y"]


class _Room:
    """The stack memory of a kernel for a tile of positions."""

    def __init__(self, f: Function, height: str, count: str):
        self.table = f.alloca("ptr", f.add(f.mul(height, count), 1))
        self.targets, self.sources = f.alloca("ptr", height), f.alloca("ptr", height)
        self.starts = [f.alloca("i64", height) for _ in range(3)]


@cache
def product_text(t: Tile) -> str:
    """Tiles of outputs; unit = (group, block of panels, tile of positions)."""
    f, tile = tiles.kernel(), tile_function(t)
    a = Arguments(f, 4, _NAMES, _AXIS)
    n, (x, packed, y, zeros) = a.n, a.buffers
    count = f.mul(f.mul(a.axes[0]["taps"], a.axes[1]["taps"]), a.axes[2]["taps"])
    stride = f.mul(count, t.rows)
    room = _Room(f, n["height"], count)
    panel_bytes = f.mul(f.mul(count, n["channels"]), t.columns * t.itemsize)
    with f.loop("%lo", "%hi") as unit:
        gb, first = f.divided(unit, n["tiles"])
        first = f.mul(first, n["height"])
        g, low = f.divided(gb, n["blocks"])
        low, high = f.part(low, n["per_block"], n["panels"])
        height_here = f.smin(n["height"], f.sub(n["rows"], first))
        subtiles = f.udiv(f.add(height_here, t.rows - 1), t.rows)
        xg, yg = f.step(x, g, n["x_group"]), f.step(y, g, n["y_group"])
        wg = f.step(packed, g, n["w_group"])
        _write_table(f, t, a, count, (xg, yg, zeros),
                     (first, f.mul(subtiles, t.rows), f.sub(n["rows"], 1)), room)
        with f.loop(low, high) as panel:
            column = f.mul(panel, t.columns)
            valid = f.smin(f.sub(n["features"], column), t.columns)
            w = f.step(wg, panel, panel_bytes)
            with f.loop(0, subtiles) as s:
                f.call(tile, count, n["channels"], f.at(room.table, f.mul(s, stride), "ptr"), w,
                       f.at(room.targets, f.mul(s, t.rows), "ptr"), f.mul(column, t.itemsize),
                       valid)
    return ir.module(tile, f)


def _write_table(
    f: Function, t: Tile, a: Arguments, count: str, places: tuple[str, str, str],
    span: tuple[str, str, str], room: _Room,
) -> None:  # fmt: skip
    """Write addresses for some positions: of x at each tap, with a tile's rows adjacent, and of y.

    Rows beyond the last position repeat it: they compute and store the same sums again."""
    (x, y, zeros), (first, height, last) = places, span
    at = Coordinates(f, first, [axis["outs"] for axis in a.axes])
    with f.loop(0, height, vectorize=False) as r:
        image = f.load("i64", at.outer)
        source = f.step(x, image, a.n["x_image"])
        target = f.step(y, image, a.n["y_image"])
        for slot, axis, starts in zip(at.slots, a.axes, room.starts, strict=True):
            i = f.load("i64", slot)
            target = f.step(target, i, axis["y"])
            start = f.sub(f.mul(i, axis["stride"]), axis["low"])
            f.store("i64", start, f.at(starts, r, "i64"))
            source = f.step(source, start, axis["x"])
        f.store("ptr", target, f.at(room.targets, r, "ptr"))
        f.store("ptr", source, f.at(room.sources, r, "ptr"))
        carry = at.advance(f.value(f"zext i1 {f.compare('slt', f.add(first, r), last)} to i64"))
        f.store("i64", f.add(f.load("i64", at.outer), carry), at.outer)
    subtiles = f.udiv(height, t.rows)
    tap = f.variable("i64", 0)
    with ExitStack() as loops:
        taps = [loops.enter_context(f.loop(0, axis["taps"])) for axis in a.axes]
        shifts = [f.mul(i, axis["dilation"]) for i, axis in zip(taps, a.axes, strict=True)]
        offset: str = "0"
        for shift, axis in zip(shifts, a.axes, strict=True):
            offset = f.add(offset, f.mul(shift, axis["x"]))
        into = f.at(room.table, f.mul(f.load("i64", tap), t.rows), "ptr")
        with f.loop(0, subtiles) as s, f.loop(0, t.rows, vectorize=False) as i:
            row, inside = f.add(f.mul(s, t.rows), i), ""
            for shift, axis, starts in zip(shifts, a.axes, room.starts, strict=True):
                index = f.add(f.load("i64", f.at(starts, row, "i64")), shift)
                inside = f.all(inside, f.compare("ult", index, axis["size"]))
            place = f.offset(f.load("ptr", f.at(room.sources, row, "ptr")), offset)
            slot = f.at(into, f.add(f.mul(f.mul(s, t.rows), count), i), "ptr")
            f.store("ptr", f.select(inside, place, zeros, "ptr"), slot)
        f.store("i64", f.add(f.load("i64", tap), 1), tap)


def tile_function(t: Tile) -> Function:
    """@tile: `rows` x `columns` outputs, summed over taps and channels."""
    f = ir.inner(
        "tile",
        "i64 %taps, i64 %channels, ptr noalias %table, ptr noalias %panel, ptr noalias %targets, "
        "i64 %column, i64 %valid", ir.NOINLINE)
    slots = tiles.sums(f, t)
    panel = f.variable("ptr", "%panel")
    step = t.lanes if t.by_lane else 1
    whole = f.mul(f.udiv("%channels", step), step)
    with f.loop(0, "%taps", vectorize=False) as tap:
        base = f.at("%table", f.mul(tap, t.rows), "ptr")
        rows = [f.load("ptr", f.at(base, r, "ptr")) for r in range(t.rows)]
        if t.by_lane:
            with f.loop(0, whole, step, vectorize=False) as c:
                values = [tiles.load(f, t, row, c) for row in rows]
                w = f.load("ptr", panel)
                for lane in range(t.lanes):
                    columns = _columns(f, t, w, lane * t.columns)
                    for value, sums in zip(values, slots, strict=True):
                        scalar = tiles.splat_lane(f, t, value, lane)
                        tiles.accumulate(f, t, sums, scalar, columns)
                f.store("ptr", f.at(w, t.lanes * t.columns, t.type), panel)
        with f.loop(whole if t.by_lane else 0, "%channels", vectorize=False) as c:
            w = f.load("ptr", panel)
            columns = _columns(f, t, w, 0)
            for row, sums in zip(rows, slots, strict=True):
                scalar = tiles.splat(f, t, f.load(t.type, f.at(row, c, t.type)))
                tiles.accumulate(f, t, sums, scalar, columns)
            f.store("ptr", f.at(w, t.columns, t.type), panel)
    _store_tile(f, t, slots)
    return f


def _columns(f: Function, t: Tile, panel: str, first: int) -> list[str]:
    return [tiles.load(f, t, panel, first + v * t.lanes) for v in range(t.vectors)]


def _store_tile(f: Function, t: Tile, slots: list[list[str]]) -> None:
    """Store sums to their rows; of the last panel only the features that exist."""
    full = f.compare("eq", "%valid", t.columns)
    with f.when(full):
        for r, row in enumerate(slots):
            target = f.offset(f.load("ptr", f.at("%targets", r, "ptr")), "%column")
            tiles.store_row(f, t, row, target)
    with f.unless(full):
        spare = f.alloca(t.type, t.rows * t.columns, 64)
        for r, row in enumerate(slots):
            tiles.store_row(f, t, row, spare, r * t.columns)
        with f.loop(0, t.rows) as i:
            target = f.offset(f.load("ptr", f.at("%targets", i, "ptr")), "%column")
            here = f.at(spare, f.mul(i, t.columns), t.type)
            with f.loop(0, "%valid", vectorize=False) as j:
                value = f.load(t.type, f.at(here, j, t.type))
                f.store(t.type, value, f.at(target, j, t.type))
