"""Convolution as a product of gathered rows with packed kernels, nothing of x copied.

For a tile of output positions a table on the stack holds the address of x's channels at every tap
(or of a row of zeros outside of x), and a register tile of outputs runs through the table.
Kernels are packed first as panels [group][features / columns][tap][channel][columns]. A
convolution of a dilated operand is several of these, one for each phase.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from toile.backends.cpu import ir, spans
from toile.backends.cpu.convolution import tiles
from toile.backends.cpu.convolution.problem import Problem, axis_numbers, grain_of, undilated
from toile.backends.cpu.convolution.tiles import Tile
from toile.backends.cpu.ir import Function
from toile.backends.cpu.launches import Launch, Planner, Rows, Span
from toile.compiler.operands import Ref

_TABLE = 1 << 15  # addresses in the table of one tile of positions: 256 KB of stack
_PANELS = 1 << 19  # bytes of panels that one unit of work goes through
_SUBTILES = 8
_LEAST = 4  # of them in a unit of a chain
_ROWS = 16  # of kernels packed at a time


def fits(p: Problem) -> bool:
    """Whether the table of taps fits."""
    return p.taps * tiles.indirect_tile(p.type, p.features).rows <= _TABLE


def supports(p: Problem) -> bool:
    """Whether channels and features lie side by side as well."""
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
    """The launch that multiplies, by packed kernels; `height`: positions of a unit, if given."""
    packed, zeros = held
    size, length = p.itemsize, p.taps * p.channels
    panels = -(-p.features // t.columns)
    group = panels * length * t.columns
    rows = p.images * p.positions
    table = _TABLE // max(1, p.taps * t.rows)
    subtiles = max(1, min(_SUBTILES, table, -(-rows // t.rows)))
    given, height = bool(height), height or subtiles * t.rows
    tiles_ = -(-rows // height)
    blocks = 1 if given else _blocks(
        tiles_ * p.groups, panels, length * t.columns * size, threads)
    per_block = -(-panels // blocks)
    blocks = -(-panels // per_block)
    args: tuple[int | Ref, ...] = (
        p.x, packed, p.y, zeros, rows, height, tiles_, blocks, per_block, panels, p.channels,
        p.features, p.x_group * size, group * size, p.y_group * size, p.x_image * size,
        p.y_image * size,
        *axis_numbers([
            (a.size, a.taps, a.outs, a.stride, a.low, a.dilation, a.x * size, a.y * size)
            for a in p.axes
        ]),
    )  # fmt: skip
    extent = p.groups * blocks * tiles_
    grain = grain_of(extent, threads, p.flops)
    launch = Launch(product_text(t), args, extent, grain, "convolution")
    if p.groups * blocks > 1:
        return replace(launch, apart="its rows are shared by several units")
    found = spans_of(p)
    if p.y.buffer not in found:
        return replace(launch, apart="its rows do not lie in order")
    return replace(launch, rows=Rows(
        found, frozenset({p.y.buffer}), Fraction(height), True, rows,
        lambda count: _product(p, t, held, threads, count), t.rows, t.rows * min(_LEAST, table),
        t.rows * table))  # fmt: skip


def spans_of(p: Problem) -> dict[Any, Span]:
    """The bytes that belong to each position: those of y, and of x where no windows overlap."""
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
    """Into how many parts the panels go: each fits the cache, and there is work for all threads."""
    fitting = -(-panels * panel_bytes // _PANELS)
    needed = -(-4 * threads // tiles_)
    return max(1, min(panels, max(fitting, needed)))


# ---------------------------------------------------------------------------------------- packing


def _pack_launches(p: Problem, t: Tile, packed: Ref, zeros: Ref, plan: Planner) -> list[Launch]:
    panels = -(-p.features // t.columns)
    kind = "rows" if p.w_feature == 1 else "columns" if p.w_channel == 1 else "any"
    size = p.itemsize
    units = p.groups * panels * p.taps
    if kind == "rows" and panels > 1:
        units = p.groups * p.taps * -(-p.channels // _ROWS)
    launches = [Launch(
        zero_text(t.type), (zeros, p.channels), 1, 1, "zeros for padding",
    )]  # fmt: skip
    if units:
        launches.append(Launch(
            rows_text(t) if kind == "rows" and panels > 1 else pack_text(t, kind),
            (p.w, packed, panels, p.channels, p.features, p.w_group * size, p.w_channel * size,
             p.w_feature * size,
             *axis_numbers([(a.taps, a.w * size) for a in p.axes])),
            units, grain_of(units, plan.threads, 4 * p.groups * p.taps * p.channels * p.features),
            "pack kernels",
        ))  # fmt: skip
    return launches


@cache
def zero_text(type: str) -> str:
    """Zeros."""
    f = tiles.kernel()
    out, count = f.buffer(0), f.argument(2)
    with f.loop(0, count) as i:
        f.store(type, "0.0", f.at(out, i, type))
    return ir.module(f)


@cache
def pack_text(t: Tile, kind: str) -> str:
    """Panels of kernels; unit = (group, panel, tap)."""
    f = tiles.kernel()
    w, packed = f.buffer(0), f.buffer(2)
    panels, channels, features, group, channel, feature = (f.argument(i) for i in range(4, 10))
    taps = [f.argument(10 + 2 * d) for d in range(3)]
    steps = [f.argument(11 + 2 * d) for d in range(3)]
    inner = f.mul(taps[1], taps[2])
    count = f.mul(taps[0], inner)
    length = f.mul(channels, t.columns)
    with f.loop("%lo", "%hi") as unit:
        panel = f.udiv(unit, count)
        tap = f.sub(unit, f.mul(panel, count))
        g = f.udiv(panel, panels)
        first = f.mul(f.sub(panel, f.mul(g, panels)), t.columns)
        place = f.add(f.mul(g, group), f.mul(first, feature))
        t0 = f.udiv(tap, inner)
        rest = f.sub(tap, f.mul(t0, inner))
        t1 = f.udiv(rest, taps[2])
        t2 = f.sub(rest, f.mul(t1, taps[2]))
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
    """The same panels from kernels with features side by side, read row by row.

    Unit = (group, tap, block of channels)."""
    f = tiles.kernel()
    w, packed = f.buffer(0), f.buffer(2)
    panels, channels, features, group, channel, _ = (f.argument(i) for i in range(4, 10))
    taps = [f.argument(10 + 2 * d) for d in range(3)]
    steps = [f.argument(11 + 2 * d) for d in range(3)]
    count = f.mul(f.mul(taps[0], taps[1]), taps[2])
    blocks = f.udiv(f.add(channels, _ROWS - 1), _ROWS)
    length = f.mul(channels, t.columns)
    with f.loop("%lo", "%hi") as unit:
        whole, low = f.divided(unit, blocks)
        low = f.mul(low, _ROWS)
        high = f.smin(f.add(low, _ROWS), channels)
        g, tap = f.divided(whole, count)
        source, rest = f.offset(w, f.mul(g, group)), tap
        for extent, step in zip(reversed(taps), reversed(steps), strict=True):
            rest, index = f.divided(rest, extent)
            source = f.offset(source, f.mul(index, step))
        with f.loop(0, panels) as panel:
            place = f.mul(f.add(f.mul(f.add(f.mul(g, panels), panel), count), tap), length)
            into, first = f.at(packed, place, t.type), f.mul(panel, t.columns)
            valid = f.smin(f.sub(features, first), t.columns)
            full = f.compare("eq", valid, t.columns)
            with f.loop(low, high, vectorize=False) as c:
                row = f.at(f.offset(source, f.mul(c, channel)), first, t.type)
                out = f.at(into, f.mul(c, t.columns), t.type)
                with f.when(full):
                    for v in range(t.vectors):
                        tiles.store(f, t, tiles.load(f, t, row, v * t.lanes), out, v * t.lanes)
                with f.unless(full):
                    _pack_row(f, t, row, out, str(t.itemsize), valid)
                    with f.loop(valid, t.columns) as j:
                        f.store(t.type, "0.0", f.at(out, j, t.type))
    return ir.module(f)


def _pack_full(
    f: Function, t: Tile, kind: str, source: str, into: str, channels: str, channel: str,
    feature: str,
) -> None:  # fmt: skip
    """A panel whose features all exist."""
    if kind == "rows":
        with f.loop(0, channels) as c:
            row, out = f.offset(source, f.mul(c, channel)), f.at(into, f.mul(c, t.columns), t.type)
            for v in range(t.vectors):
                tiles.store(f, t, tiles.load(f, t, row, v * t.lanes), out, v * t.lanes)
    elif kind == "columns":
        whole = f.mul(f.udiv(channels, t.lanes), t.lanes)
        starts = [f.offset(source, f.mul(feature, j)) for j in range(t.columns)]
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
    """A panel of `valid` features, the others zero."""
    with f.loop(0, channels) as c:
        out = f.at(into, f.mul(c, t.columns), t.type)
        _pack_row(f, t, f.offset(source, f.mul(c, channel)), out, feature, valid)
        with f.loop(valid, t.columns) as j:
            f.store(t.type, "0.0", f.at(out, j, t.type))


def _pack_row(
    f: Function, t: Tile, source: str, into: str, feature: str, valid: str | int
) -> None:
    with f.loop(0, valid) as j:
        f.store(t.type, f.load(t.type, f.offset(source, f.mul(j, feature))), f.at(into, j, t.type))


# ---------------------------------------------------------------------------------------- product


class _Room:
    """What a kernel keeps on its stack for a tile of positions."""

    def __init__(self, f: Function, height: str, count: str):
        self.table = f.alloca("ptr", f.add(f.mul(height, count), 1))
        self.targets, self.sources = f.alloca("ptr", height), f.alloca("ptr", height)
        self.starts = [f.alloca("i64", height) for _ in range(3)]


@cache
def product_text(t: Tile) -> str:
    """Tiles of outputs; unit = (group, block of panels, tile of positions)."""
    f = tiles.kernel()
    x, packed, y, zeros = (f.buffer(2 * i) for i in range(4))
    (rows, height, tiles_, blocks, per_block, panels, channels, features, x_group, w_group,
     y_group, x_image, y_image) = (f.argument(8 + i) for i in range(13))
    axes = [[f.argument(21 + 8 * d + i) for i in range(8)] for d in range(3)]
    count = f.mul(f.mul(axes[0][1], axes[1][1]), axes[2][1])
    stride = f.mul(count, t.rows)
    room = _Room(f, height, count)
    panel_bytes = f.mul(f.mul(count, channels), t.columns * t.itemsize)
    with f.loop("%lo", "%hi") as unit:
        gb = f.udiv(unit, tiles_)
        first = f.mul(f.sub(unit, f.mul(gb, tiles_)), height)
        g = f.udiv(gb, blocks)
        low = f.mul(f.sub(gb, f.mul(g, blocks)), per_block)
        high = f.smin(f.add(low, per_block), panels)
        height_here = f.smin(height, f.sub(rows, first))
        subtiles = f.udiv(f.add(height_here, t.rows - 1), t.rows)
        xg, yg = f.offset(x, f.mul(g, x_group)), f.offset(y, f.mul(g, y_group))
        wg = f.offset(packed, f.mul(g, w_group))
        _write_table(f, t, axes, count, (xg, yg, zeros), (x_image, y_image),
                     (first, f.mul(subtiles, t.rows), f.sub(rows, 1)), room)
        with f.loop(low, high) as panel:
            column = f.mul(panel, t.columns)
            valid = f.smin(f.sub(features, column), t.columns)
            w = f.offset(wg, f.mul(panel, panel_bytes))
            with f.loop(0, subtiles) as s:
                f.do(
                    f"call void @tile(i64 {count}, i64 {channels}, "
                    f"ptr {f.at(room.table, f.mul(s, stride), 'ptr')}, ptr {w}, "
                    f"ptr {f.at(room.targets, f.mul(s, t.rows), 'ptr')}, "
                    f"i64 {f.mul(column, t.itemsize)}, i64 {valid})")
    return ir.module(tile_function(t), f)


def _write_table(
    f: Function, t: Tile, axes: list[list[str]], count: str, places: tuple[str, str, str],
    images: tuple[str, str], span: tuple[str, str, str], room: _Room,
) -> None:  # fmt: skip
    """Addresses of x at each tap, `rows` of a tile side by side, and of y, for some positions.

    Rows beyond the last position repeat it: they give the same sums and store them once more."""
    (x, y, zeros), (first, height, last) = places, span
    rest = first
    at: list[str] = []
    for axis in reversed(axes):
        rest, index = f.divided(rest, axis[2])
        at.insert(0, f.variable("i64", index))
    image = f.variable("i64", rest)
    with f.loop(0, height, vectorize=False) as r:
        n = f.load("i64", image)
        source, target = f.offset(x, f.mul(n, images[0])), f.offset(y, f.mul(n, images[1]))
        for slot, axis, starts in zip(at, axes, room.starts, strict=True):
            i = f.load("i64", slot)
            target = f.offset(target, f.mul(i, axis[7]))
            start = f.sub(f.mul(i, axis[3]), axis[4])
            f.store("i64", start, f.at(starts, r, "i64"))
            source = f.offset(source, f.mul(start, axis[6]))
        f.store("ptr", target, f.at(room.targets, r, "ptr"))
        f.store("ptr", source, f.at(room.sources, r, "ptr"))
        carry = f.value(f"zext i1 {f.compare('slt', f.add(first, r), last)} to i64")
        for slot, axis in zip(reversed(at), reversed(axes), strict=True):
            following = f.add(f.load("i64", slot), carry)
            wraps = f.compare("eq", following, axis[2])
            f.store("i64", f.select(wraps, 0, following), slot)
            carry = f.value(f"zext i1 {wraps} to i64")
        f.store("i64", f.add(f.load("i64", image), carry), image)
    subtiles = f.udiv(height, t.rows)
    tap = f.variable("i64", 0)
    with f.loop(0, axes[0][1]) as t0, f.loop(0, axes[1][1]) as t1, f.loop(0, axes[2][1]) as t2:
        shifts = [f.mul(i, axis[5]) for i, axis in zip((t0, t1, t2), axes, strict=True)]
        offset: str = "0"
        for shift, axis in zip(shifts, axes, strict=True):
            offset = f.add(offset, f.mul(shift, axis[6]))
        into = f.at(room.table, f.mul(f.load("i64", tap), t.rows), "ptr")
        with f.loop(0, subtiles) as s, f.loop(0, t.rows, vectorize=False) as i:
            row, inside = f.add(f.mul(s, t.rows), i), "true"
            for shift, axis, starts in zip(shifts, axes, room.starts, strict=True):
                index = f.add(f.load("i64", f.at(starts, row, "i64")), shift)
                here = f.compare("ult", index, axis[0])
                inside = here if inside == "true" else f.value(f"and i1 {inside}, {here}")
            place = f.offset(f.load("ptr", f.at(room.sources, row, "ptr")), offset)
            slot = f.at(into, f.add(f.mul(f.mul(s, t.rows), count), i), "ptr")
            f.store("ptr", f.select(inside, place, zeros, "ptr"), slot)
        f.store("i64", f.add(f.load("i64", tap), 1), tap)


def tile_function(t: Tile) -> Function:
    """@tile: `rows` x `columns` outputs, summed over taps and channels."""
    f = Function(
        "tile",
        ["i64 %taps", "i64 %channels", "ptr noalias %table", "ptr noalias %panel",
         "ptr noalias %targets", "i64 %column", "i64 %valid"],
        internal=True, attributes="nounwind noinline",
    )  # fmt: skip
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
    """Sums to their rows; of the last panel only the features that exist."""
    full = f.compare("eq", "%valid", t.columns)
    with f.when(full):
        for r, row in enumerate(slots):
            target = f.offset(f.load("ptr", f.at("%targets", r, "ptr")), "%column")
            for v, slot in enumerate(row):
                tiles.store(f, t, f.load(t.vector, slot), target, v * t.lanes)
    with f.unless(full):
        spare = f.alloca(t.type, t.rows * t.columns, 64)
        for r, row in enumerate(slots):
            for v, slot in enumerate(row):
                tiles.store(f, t, f.load(t.vector, slot), spare, r * t.columns + v * t.lanes)
        with f.loop(0, t.rows) as i:
            target = f.offset(f.load("ptr", f.at("%targets", i, "ptr")), "%column")
            here = f.at(spare, f.mul(i, t.columns), t.type)
            with f.loop(0, "%valid", vectorize=False) as j:
                value = f.load(t.type, f.at(here, j, t.type))
                f.store(t.type, value, f.at(target, j, t.type))
