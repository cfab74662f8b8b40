"""Convolutions with few outputs of long sums, such as the gradient of a kernel.

    out[t, n, o] = sum over c, e of x[c, e*step + t*stride - low, n] * w[c, e, o]

with n and o contiguous in memory: a sum of outer products. Rows of both operands are packed in
blocks that stay in the cache, and register tiles of outputs run through them. Work is divided over
taps t, channels n and features o, and over rows (c, e) into private sums, which are added in order.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod

from toile.compiler.ir.extents import larger, smaller
from toile.compiler.ir.operands import Args, Ref
from toile.engine.records import dataclass
from toile.kernels.convolution.cpu import tiles
from toile.kernels.convolution.cpu.arguments import Arguments, Coordinates
from toile.kernels.convolution.cpu.problem import Problem, grain_of
from toile.kernels.convolution.cpu.tiles import Tile
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.text import Function

_FEATURES = 384  # packed at a time: with a block of rows they fill half the cache
_BYTES = 512  # of one column of a block of rows
_PRIVATE = 1 << 23  # bytes of private sums


def fits(p: Problem) -> bool:
    """Whether x is not dilated, or no axis of w has gaps."""
    return all(a.base == 1 for a in p.axes) or all(a.dilation == 1 for a in p.axes)


def supports(p: Problem) -> bool:
    """Whether `fits` holds, and images and features are contiguous."""
    inner = (p.x_image == 1 or p.images == 1) and p.w_feature == 1 and p.y_feature == 1
    return inner and fits(p)


def lower(p: Problem, plan: Planner) -> None:
    """Add the stages: sums of outer products, then the sum of the private sums."""
    t = tiles.outer_tile(p.type, p.images)
    if any(a.base > 1 for a in p.axes):
        places = product(*(range(a.outs) for a in p.axes))
        plan.stage(*(_launch(p, t, _gathered(p, place), plan, 1, p.y) for place in places))
        return
    total = p.images * p.groups * p.positions * p.features
    rows = p.channels * p.taps
    block = _BYTES // t.itemsize
    splits = smaller(4 * plan.threads, rows // (2 * block), _PRIVATE // (total * t.itemsize))
    if splits < 2 or p.flops < 200_000:
        plan.stage(_launch(p, t, _plain(p), plan, 1, p.y))
        return
    splits = -(-rows // (-(-rows // (splits * block)) * block))
    private = plan.scratch(splits * total * t.itemsize)
    plan.stage(_launch(p, t, _plain(p), plan, splits, private))
    plan.stage(sum_of_private(t, private, p.y, splits, total, plan.threads))


def sum_of_private(
    t: Tile, private: Ref, y: Ref, splits: int, total: int, threads: int
) -> Launch:
    """The launch that adds private sums of `total` numbers each."""
    units = -(-total // 1024)
    return Launch(sum_text(t), (private, y, splits, total), units,
                  grain_of(units, threads, splits * total * 4), "sum of private gradients")


@dataclass(frozen=True)
class _Walk:
    """The steps of rows and taps along one axis; in w too, if x is dilated."""

    extent: int
    x_size: int
    x_step: int
    x_low: int
    x: int
    w_size: int
    w_step: int
    w_low: int
    w: int
    taps: int
    stride: int
    y: int


def _plain(p: Problem) -> tuple[list[_Walk], int]:
    """Walks whose rows are the elements of w."""
    return [
        _Walk(a.taps, a.size, a.dilation, a.low, a.x, a.taps, 1, 0, a.w, a.outs, a.stride, a.y)
        for a in p.axes
    ], 0


def _gathered(p: Problem, place: tuple[int, ...]) -> tuple[list[_Walk], int]:
    """Walks whose rows are the elements q of a dilated x; w's are at q*base + low - t*stride."""
    walks = [
        _Walk(a.size, a.size, 1, 0, a.x, a.taps, a.base, t * a.stride - a.low, a.w, 1, 0, 0)
        for t, a in zip(place, p.axes, strict=True)
    ]
    return walks, sum(t * a.y for t, a in zip(place, p.axes, strict=True))


def _launch(
    p: Problem, t: Tile, way: tuple[list[_Walk], int], plan: Planner, splits: int, y: Ref
) -> Launch:
    walks, shift = way
    size = t.itemsize
    rows = p.channels * prod(a.extent for a in walks)
    block = _BYTES // size
    per_split = -(-rows // (splits * block)) * block
    panels = -(-p.features // t.columns)
    feature_blocks = -(-panels // (_FEATURES // t.columns))
    per_features = -(-panels // feature_blocks)
    feature_blocks = -(-panels // per_features)
    units = prod(a.taps for a in walks) * -(-p.images // t.rows)
    unit_blocks = smaller(
        units, larger(1, -(-4 * plan.threads // (splits * p.groups * feature_blocks))))
    per_units = -(-units // unit_blocks)
    unit_blocks = -(-units // per_units)
    total = p.images * p.groups * p.positions * p.features * size
    extent = splits * p.groups * feature_blocks * unit_blocks
    args: Args = (
        p.x, p.w, y.at(shift * size), rows, per_split, p.groups, feature_blocks, unit_blocks,
        per_features, per_units, p.images, p.features, units, p.x_group * size, p.w_group * size,
        p.y_group * size, p.x_channel * size, p.w_channel * size, p.y_image * size, total,
        int(p.slack),
        *(n for a in walks for n in (
            a.extent, a.x_size, a.x_step, a.x_low, a.x * size, a.w_size, a.w_step, a.w_low,
            a.w * size, a.taps, a.stride, a.y * size)),
    )  # fmt: skip
    grain = grain_of(extent, plan.threads, p.flops)
    return Launch(product_text(t), args, extent, grain, "gradient of kernels")


_NAMES = (
    "rows per_split groups feature_blocks unit_blocks per_features per_units channels features "
    "units x_group w_group y_group x_image w_image y_channel y_split slack"
).split()
_AXIS = "extent x_size x_step x_low x w_size w_step w_low w taps stride y".split()


class _Stack:
    """Stack memory for one block: packed rows and their sources."""

    def __init__(self, f: Function, t: Tile, block: int):
        self.columns = f.alloca(t.type, block * _FEATURES, 64)
        self.rows = f.alloca(t.type, block * t.rows, 64)
        self.sources = f.alloca("ptr", block)
        self.images = f.alloca("ptr", block)
        self.places = [f.alloca("i64", block) for _ in range(3)]
        self.zeros = f.alloca(t.type, max(t.rows, t.columns), 64)
        for i in range(max(t.rows, t.columns)):
            f.store(t.type, "0.0", f.at(self.zeros, i, t.type))


@cache
def product_text(t: Tile) -> str:
    """Blocks of outputs; unit = (split, group, block of features, block of taps and channels)."""
    f, product_ = tiles.kernel(), outer_function(t)
    a = Arguments(f, 3, _NAMES, _AXIS)
    block = _BYTES // t.itemsize
    stack = _Stack(f, t, block)
    n, (x_base, w_base, y_base) = a.n, a.buffers
    with f.loop("%lo", "%hi") as unit:
        rest, ub = f.divided(unit, n["unit_blocks"])
        rest, fb = f.divided(rest, n["feature_blocks"])
        split, g = f.divided(rest, n["groups"])
        x, w = f.step(x_base, g, n["x_group"]), f.step(w_base, g, n["w_group"])
        y = f.offset(y_base, f.add(f.mul(split, n["y_split"]), f.mul(g, n["y_group"])))
        column = f.mul(f.mul(fb, n["per_features"]), t.columns)
        width = f.smin(f.sub(n["features"], column), f.mul(n["per_features"], t.columns))
        y, w = f.at(y, column, t.type), f.at(w, column, t.type)
        low, high = f.part(ub, n["per_units"], n["units"])
        start, stop = f.part(split, n["per_split"], n["rows"])
        with f.loop(start, stop, block) as row:
            count = f.smin(f.sub(stop, row), block)
            first = f.compare("eq", row, start)
            _write_places(f, a, stack, row, count, x, w)
            _pack_columns(f, t, stack, block, count, width)
            _units(f, t, a, stack, (low, high), (count, width, first), y, product_)
    return ir.module(product_, f)


def _write_places(
    f: Function, a: Arguments, stack: _Stack, row: str, count: str, x: str, w: str
) -> None:
    """For each row of a block: the image in x, the position in it at tap 0, the address in w."""
    at = Coordinates(f, row, [axis["extent"] for axis in a.axes])
    with f.loop(0, count, vectorize=False) as r:
        n = f.load("i64", at.outer)
        source, inside = f.step(w, n, a.n["w_image"]), "true"
        for slot, axis, places in zip(at.slots, a.axes, stack.places, strict=True):
            index = f.load("i64", slot)
            place = f.sub(f.mul(index, axis["x_step"]), axis["x_low"])
            f.store("i64", place, f.at(places, r, "i64"))
            there = f.sub(f.mul(index, axis["w_step"]), axis["w_low"])
            inside = f.all(inside, f.compare("ult", there, axis["w_size"]))
            source = f.step(source, there, axis["w"])
        f.store("ptr", f.select(inside, source, "null", "ptr"), f.at(stack.sources, r, "ptr"))
        image = f.step(x, n, a.n["x_image"])
        f.store("ptr", f.select(inside, image, "null", "ptr"), f.at(stack.images, r, "ptr"))
        f.store("i64", f.add(n, at.advance("1")), at.outer)


def _pack_columns(
    f: Function, t: Tile, stack: _Stack, block: int, count: str, width: str
) -> None:
    """Pack rows of w as panels [features / columns][row][columns]."""
    with f.loop(0, width, t.columns) as column:
        into = f.at(stack.columns, f.mul(column, block), t.type)
        valid = f.smin(f.sub(width, column), t.columns)
        _pack(f, t, stack, into, column, valid, count, t.columns)


def _pack(
    f: Function, t: Tile, stack: _Stack, into: str, first: str, valid: str, count: str, width: int
) -> None:
    """Pack `width` elements of each row from element `first` on, zeros where there are none."""
    full = f.compare("eq", valid, width)

    def row(r: str) -> tuple[str, str]:
        source = f.load("ptr", f.at(stack.sources, r, "ptr"))
        there = f.at(source, first, t.type)
        there = f.select(f.compare("eq", source, "null", "ptr"), stack.zeros, there, "ptr")
        return there, f.at(into, f.mul(r, width), t.type)

    with f.when(full):
        with f.loop(0, count, vectorize=False) as r:
            source, out = row(r)
            place = 0
            while place < width:  # in vectors of powers of two
                lanes = min(t.lanes, 1 << (width - place).bit_length() - 1)
                kind = f"<{lanes} x {t.type}>"
                value = f.load(kind, f.at(source, place, t.type), t.itemsize)
                f.store(kind, value, f.at(out, place, t.type), t.itemsize)
                place += lanes
    with f.unless(full):
        with f.loop(0, count, vectorize=False) as r:
            source, out = row(r)
            with f.loop(0, valid, vectorize=False) as i:
                f.store(t.type, f.load(t.type, f.at(source, i, t.type)), f.at(out, i, t.type))
            with f.loop(valid, width, vectorize=False) as i:
                f.store(t.type, "0.0", f.at(out, i, t.type))


def _units(
    f: Function, t: Tile, a: Arguments, stack: _Stack, span: tuple[str, str],
    shape: tuple[str, str, str], y: str, product_: Function,
) -> None:  # fmt: skip
    """For each tap and `rows` channels: pack them and multiply them with all panels."""
    count, width, first = shape
    blocks = f.udiv(f.add(a.n["channels"], t.rows - 1), t.rows)
    last = f.variable("i64", -1)
    with f.loop(*span) as unit:
        tap, c = f.divided(unit, blocks)
        channel = f.mul(c, t.rows)
        valid = f.smin(f.sub(a.n["channels"], channel), t.rows)
        index: list[str] = []
        rest = tap
        for axis in reversed(a.axes):
            rest, at = f.divided(rest, axis["taps"])
            index.insert(0, at)
        with f.when(f.compare("ne", tap, f.load("i64", last))):
            f.store("i64", tap, last)
            _write_sources(f, a, stack, index, count)
        # Elements read beyond the last channel are added to sums that are not stored.
        readable = f.select(f.compare("ne", a.n["slack"], 0), t.rows, valid)
        _pack(f, t, stack, stack.rows, channel, readable, count, t.rows)
        target = f.step(y, channel, a.n["y_channel"])
        for at, axis in zip(index, a.axes, strict=True):
            target = f.step(target, at, axis["y"])
        with f.loop(0, width, t.columns) as column:
            panel = f.at(stack.columns, f.mul(column, _BYTES // t.itemsize), t.type)
            f.call(product_, count, stack.rows, panel, f.at(target, column, t.type),
                   a.n["y_channel"], valid, f.smin(f.sub(width, column), t.columns), first)


def _write_sources(
    f: Function, a: Arguments, stack: _Stack, index: list[str], count: str
) -> None:
    """The addresses of x for the rows of a block at one tap; null outside x."""
    shifts = [f.mul(i, axis["stride"]) for i, axis in zip(index, a.axes, strict=True)]
    with f.loop(0, count, vectorize=False) as r:
        image = f.load("ptr", f.at(stack.images, r, "ptr"))
        inside = f.compare("ne", image, "null", "ptr")
        for shift, axis, places in zip(shifts, a.axes, stack.places, strict=True):
            place = f.add(f.load("i64", f.at(places, r, "i64")), shift)
            inside = f.all(inside, f.compare("ult", place, axis["x_size"]))
            image = f.step(image, place, axis["x"])
        f.store("ptr", f.select(inside, image, "null", "ptr"), f.at(stack.sources, r, "ptr"))


def outer_function(t: Tile) -> Function:
    """@outer: `rows` x `columns` outputs, summed over packed rows; the first block sets them."""
    f = ir.inner(
        "outer",
        "i64 %count, ptr noalias %rows, ptr noalias %columns, ptr noalias %out, i64 %step, "
        "i64 %valid_rows, i64 %valid, i1 %first", ir.NOINLINE)
    slots = tiles.sums(f, t)
    with f.loop(0, "%count", vectorize=False) as r:
        row = f.at("%rows", f.mul(r, t.rows), t.type)
        panel = f.at("%columns", f.mul(r, t.columns), t.type)
        columns = [tiles.load(f, t, panel, v * t.lanes) for v in range(t.vectors)]
        if t.by_lane:
            values = [tiles.load(f, t, row, i) for i in range(0, t.rows, t.lanes)]
        for i in range(t.rows):
            if t.by_lane:
                scalar = tiles.splat_lane(f, t, values[i // t.lanes], i % t.lanes)
            else:
                scalar = tiles.splat(f, t, f.load(t.type, f.at(row, i, t.type)))
            tiles.accumulate(f, t, slots[i], scalar, columns)
    _store_sums(f, t, slots)
    return f


def _store_sums(f: Function, t: Tile, slots: list[list[str]]) -> None:
    """Store sums (in the first block) or add them; only for rows and features that exist."""
    full = f.all(f.compare("eq", "%valid", t.columns), f.compare("eq", "%valid_rows", t.rows))
    spare = f.alloca(t.type, t.rows * t.columns, 64)
    with f.when(full):
        with f.unless("%first"):
            for r, row in enumerate(slots):
                out = f.step("%out", "%step", r)
                for v, slot in enumerate(row):
                    old = tiles.load(f, t, out, v * t.lanes)
                    total = f.value(f"fadd {t.vector} {f.load(t.vector, slot)}, {old}")
                    f.store(t.vector, total, slot)
        for r, row in enumerate(slots):
            out = f.step("%out", "%step", r)
            tiles.store_row(f, t, row, out)
    with f.unless(full):
        for r, row in enumerate(slots):
            tiles.store_row(f, t, row, spare, r * t.columns)
        with f.loop(0, "%valid_rows", vectorize=False) as i:
            out = f.step("%out", i, "%step")
            here = f.at(spare, f.mul(i, t.columns), t.type)
            with f.loop(0, "%valid", vectorize=False) as j:
                value, place = f.load(t.type, f.at(here, j, t.type)), f.at(out, j, t.type)
                total = f.value(f"fadd {t.type} {value}, {f.load(t.type, place)}")
                f.store(t.type, f.select("%first", value, total, t.type), place)


@cache
def sum_text(t: Tile) -> str:
    """The sum of private arrays, in order; unit = 1024 elements."""
    f = tiles.kernel()
    private, out, splits, total = f.buffer(0), f.buffer(2), f.argument(4), f.argument(5)
    with f.loop("%lo", "%hi") as unit:
        start, stop = f.part(unit, 1024, total)
        whole = f.add(start, f.mul(f.udiv(f.sub(stop, start), t.columns), t.columns))
        with f.loop(start, whole, t.columns, vectorize=False) as i:
            slots = [f.alloca(t.vector) for _ in range(t.vectors)]
            for v, slot in enumerate(slots):
                value = tiles.load(f, t, private, f.add(i, v * t.lanes))
                f.store(t.vector, value, slot)
            with f.loop(1, splits, vectorize=False) as s:
                place = f.add(f.mul(s, total), i)
                for v, slot in enumerate(slots):
                    value = tiles.load(f, t, private, f.add(place, v * t.lanes))
                    f.store(t.vector, f.value(
                        f"fadd {t.vector} {f.load(t.vector, slot)}, {value}"), slot)
            for v, slot in enumerate(slots):
                tiles.store(f, t, f.load(t.vector, slot), out, f.add(i, v * t.lanes))
        with f.loop(whole, stop, vectorize=False) as i:
            slot = f.variable(t.type, f.load(t.type, f.at(private, i, t.type)))
            with f.loop(1, splits, vectorize=False) as s:
                value = f.load(t.type, f.at(private, f.add(f.mul(s, total), i), t.type))
                f.store(t.type, f.value(f"fadd {t.type} {f.load(t.type, slot)}, {value}"), slot)
            f.store(t.type, f.load(t.type, slot), f.at(out, i, t.type))
    return ir.module(f)
