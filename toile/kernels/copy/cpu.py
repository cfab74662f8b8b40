"""Copies between strided arrays, and code shared by kernels that compute addresses.

A copy is arranged once, when it is planned: axes are ordered by the strides of the destination and
merged where both sides allow. The copy then runs as rows (`memcpy`), as strided loops, or, if the
two sides disagree on which axis is dense, as a transposition in blocks that fit vector registers.
Positions that are known only at run time are read, clamped and added by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import Arranged, Dynamic, arranged, bits_of
from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.copy.shared import Moves, tiles_of, turned
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.elements import transposed
from toile.targets.llvm.launches import Launch

CHUNK = 1 << 17  # approximate bytes that one chunk of a copy moves
_UNROLL = 8  # elements per iteration of a strided loop
_TILE = 128  # bytes of a row of a transposed tile


def _arranged(dst: Operand, src: Operand) -> Arranged:
    """The axes of a copy, with dense inner axes turned into wider elements."""
    a = arranged(dst, src)
    size = a.size
    while a.shape and a.to[-1] == a.source[-1] == size and a.shape[-1] * size in (2, 4, 8, 16):
        size *= a.shape.pop()  # a few dense elements move as one
        a.to.pop()
        a.source.pop()
    return a._replace(size=size)


def _inner_last(a: Arranged) -> Arranged:
    """The copy with a long axis innermost, if the innermost one is too short for a loop."""
    if len(a.shape) < 2 or a.shape[-1] >= 8:
        return a
    if a.to[-1] == a.source[-1] == a.size and a.shape[-1] * a.size >= 16:
        return a  # a row that memcpy copies
    best = max(range(len(a.shape)), key=lambda i: (min(a.shape[i], 64), i))
    order = [i for i in range(len(a.shape)) if i != best] + [best]
    pick = lambda t: [t[i] for i in order]
    return a._replace(shape=pick(a.shape), to=pick(a.to), source=pick(a.source))


# --------------------------------------------------------------------------------- parts of kernels


def element_type(size: int) -> str:
    """The LLVM type that moves `size` bytes at once."""
    return f"i{8 * size}" if size <= 8 else f"<{size // 8} x i64>"


def decode(
    f: ir.Function, index: str, extents: Sequence[str], *strides: Sequence[str]
) -> list[str]:
    """Offsets of a row-major index: the sums of its coordinates times each set of strides."""
    totals = ["0"] * len(strides)
    for i in range(len(extents) - 1, -1, -1):
        if i:
            index, place = f.divided(index, extents[i])
        else:
            place = index
        totals = [f.add(t, f.mul(place, s[i])) for t, s in zip(totals, strides, strict=True)]
    return totals


def integer(f: ir.Function, dtype: Any, pointer: str) -> str:
    """An integer of any dtype as i64 (uint64 keeps its bits)."""
    size = dtype.itemsize
    x = f.load(f"i{8 * size}", pointer, size)
    if size == 8:
        return x
    return f.value(f"{'sext' if dtype.kind == 'i' else 'zext'} i{8 * size} {x} to i64")


def clamped(f: ir.Function, dtype: Any, x: str, limit: ir.Operand) -> str:
    """An index clamped to 0..limit."""
    if dtype.kind == "u":
        return f.value(f"call i64 @llvm.umin.i64(i64 {x}, i64 {limit})")
    return f.smin(f.smax(x, 0), limit)


class Reader:
    """Reads the entries of a kernel's arguments one after the other."""

    def __init__(self, f: ir.Function):
        self.f, self.place = f, 0

    def one(self) -> str:
        self.place += 1
        return self.f.argument(self.place - 1)

    def many(self, count: int) -> list[str]:
        return [self.one() for _ in range(count)]

    def buffer(self) -> str:
        self.place += 2
        return self.f.buffer(self.place - 2)


@contextmanager
def rows_of_chunk(f: ir.Function, n: str) -> Iterator[tuple[str, str, str]]:
    """A loop over the rows of `n` elements in a chunk: row, and its elements [a, b)."""
    first = f.udiv("%lo", n)
    last = f.udiv(f.add("%hi", f.sub(n, 1)), n)
    with f.loop(first, last) as row:
        start = f.mul(row, n)
        a = f.sub(f.smax("%lo", start), start)
        b = f.sub(f.smin("%hi", f.add(start, n)), start)
        yield row, a, b


def _ends(r: Reader, moving: str, starts: int, dtype: Any) -> tuple[str, str]:
    """Destination and source; the `moving` one is at a window whose starts are read at run time."""
    f, ends = r.f, {"to": r.buffer(), "source": r.buffer()}
    for _ in range(starts):
        at = r.buffer()
        limit, stride = r.many(2)
        place = clamped(f, dtype, integer(f, dtype, at), limit)
        ends[moving] = f.step(ends[moving], place, stride)
    return ends["to"], ends["source"]


# ----------------------------------------------------------------------------------------- kernels


@lru_cache(maxsize=512)
def _rows_text(
    size: int, align: int, rank: int, inner: str, moving: str, starts: int, dtype: Any
) -> str:
    """Copy over element numbers; `inner`: the innermost axis, "rows" or stride classes."""
    f = ir.kernel()
    r = Reader(f)
    to, source = _ends(r, moving, starts, dtype)
    n, ds, ss = r.many(3)
    extents, tos, sources = (r.many(rank) for _ in range(3))
    body = _row_function(size, align, inner)
    with rows_of_chunk(f, n) as (row, a, b):
        d, s = decode(f, row, extents, tos, sources)
        d, s = f.add(d, f.mul(a, ds)), f.add(s, f.mul(a, ss))
        p, q = f.offset(to, d), f.offset(source, s)
        f.call(body, p, q, f.sub(b, a), ds, ss)
    return ir.module(body, f)


def _row_function(size: int, align: int, inner: str) -> ir.Function:
    """One run along the innermost axis."""
    f = ir.inner("row", "ptr noalias %to, ptr noalias %from, i64 %n, i64 %ds, i64 %ss")
    type = element_type(size)
    if inner == "rows":
        f.copy("%to", "%from", f.mul("%n", size))
        return f
    ds = str(size) if inner[0] == "1" else "%ds"
    ss = {"0": "0", "1": str(size)}.get(inner[1], "%ss")
    if ss == "0":
        x = f.load(type, "%from", align)
    plain = inner[0] == "1" and inner[1] != "s" and size <= 8
    if plain:
        with f.loop(0, "%n", vectorize=True) as i:
            if ss != "0":
                x = f.load(type, f.step("%from", i, ss), align)
            f.store(type, x, f.step("%to", i, ds), align)
        return f
    whole = f.sub("%n", f.urem("%n", _UNROLL))
    for lo, hi, step in ((0, whole, _UNROLL), (whole, "%n", 1)):
        with f.loop(lo, hi, step, vectorize=False) as i:
            p, q = f.step("%to", i, ds), f.step("%from", i, ss)
            xs = [f.load(type, f.step(q, ss, k), align) for k in range(step)]
            for k, x in enumerate(xs):
                f.store(type, x, f.step(p, ds, k), align)
    return f


@lru_cache(maxsize=64)
def _tiles_text(size: int, align: int, rank: int, moving: str, starts: int, dtype: Any) -> str:
    """Transpose tile by tile: the destination is dense along axis a, the source along axis b."""
    f = ir.kernel()
    r = Reader(f)
    to, source = _ends(r, moving, starts, dtype)
    na, nb, sa, db = r.many(4)  # sizes; byte strides of a in the source, of b in the destination
    tile, body = _TILE // size, _tile_function(size, align)
    ta, tb = r.many(2)  # numbers of tiles
    extents, tos, sources = (r.many(rank) for _ in range(3))
    with f.loop("%lo", "%hi") as unit:
        rest, b = f.divided(unit, tb)
        b0 = f.mul(b, tile)
        outer, a = f.divided(rest, ta)
        a0 = f.mul(a, tile)
        d, s = decode(f, outer, extents, tos, sources)
        p = f.offset(to, f.add(d, f.add(f.mul(a0, size), f.mul(b0, db))))
        q = f.offset(source, f.add(s, f.add(f.mul(a0, sa), f.mul(b0, size))))
        ea, eb = f.smin(f.sub(na, a0), tile), f.smin(f.sub(nb, b0), tile)
        f.call(body, p, q, ea, eb, sa, db)
    return native.WRITTEN_OUT + ir.module(body, f)


def _tile_function(size: int, align: int) -> ir.Function:
    """One tile: blocks in registers, the rest element by element."""
    f = ir.inner("tile", "ptr noalias %to, ptr noalias %from, i64 %ea, i64 %eb, i64 %sa, i64 %db")
    n = 16 // size  # a register of 16 bytes holds a row of a block
    scalar, vector = element_type(size), f"<{n} x {element_type(size)}>"
    wa, wb = (f.sub(e, f.urem(e, n)) for e in ("%ea", "%eb"))
    source = lambda a, b: f.offset("%from", f.add(f.mul(a, "%sa"), f.mul(b, size)))
    target = lambda a, b: f.offset("%to", f.add(f.mul(a, size), f.mul(b, "%db")))
    with f.loop(0, wb, n) as b, f.loop(0, wa, n) as a:
        q = source(a, b)
        rows = [f.load(vector, f.step(q, "%sa", k), align) for k in range(n)]
        p = target(a, b)
        for k, row in enumerate(transposed(f, rows, vector)):
            f.store(vector, row, f.step(p, "%db", k), align)
    for rest_b, rest_a in (((0, "%eb"), (wa, "%ea")), ((wb, "%eb"), (0, wa))):
        with f.loop(*rest_b) as b, f.loop(*rest_a) as a:
            q, p = source(a, b), target(a, b)
            f.store(scalar, f.load(scalar, q, align), p, align)
    return f


# ------------------------------------------------------------------------------------------ copies


def copy_launch(
    dst: Operand, src: Operand, moving: str = "", dynamic: Dynamic | None = None, note: str = "copy"
) -> Launch:
    """Copy `src` to `dst`, which has the same shape. `moving` names the side ("to" for dst,
    "source" for src) that starts at the indices in `dynamic`, which are known only at run time."""
    a = _arranged(dst, src)
    align = min(src.dtype.itemsize, 8)
    window: list[int | Ref] = []
    way: tuple[str, int, Any] = (moving, 0, None)
    if dynamic is not None:
        way = (moving, len(dynamic.starts), dynamic.dtype)
        window = dynamic.words(src.dtype.itemsize)
    head = lambda a: [dst.ref.at(a.to_offset), src.ref.at(a.source_offset), *window]
    tile = _TILE // a.size
    tiles = tiles_of(turned(a), max(4, 16 // a.size), tile)
    if tiles is not None:
        text = _tiles_text(a.size, align, len(tiles.shape), *way)
        args = (*head(turned(a)), *tiles.sizes, *tiles.steps, *tiles.counts, *tiles.shape,
                *tiles.to, *tiles.source)
        return Launch(text, args, tiles.number, max(1, CHUNK // (tile * tile * a.size)), note)
    a = _inner_last(a)
    *outer, n = a.shape or (1,)
    *tos, ds = a.to or (a.size,)
    *sources, ss = a.source or (a.size,)
    total = prod(outer) * n
    if ds == ss == a.size:
        inner = "rows"
    else:
        inner = ("1" if ds == a.size else "s") + {0: "0", a.size: "1"}.get(ss, "s")
    text = _rows_text(a.size, align, len(outer), inner, *way)
    args = (*head(a), n, ds, ss, *outer, *tos, *sources)
    return Launch(text, args, total, max(1, CHUNK // a.size), note)


@lru_cache(maxsize=32)
def _fill_text(size: int) -> str:
    f = ir.kernel()
    r = Reader(f)
    to = r.buffer()
    low, high = r.many(2)
    if size < 8:
        low = f.value(f"trunc i64 {low} to i{8 * size}")
    with f.loop("%lo", "%hi", vectorize=True if size <= 8 else None) as i:
        if size <= 8:
            f.store(f"i{8 * size}", low, f.at(to, i, f"i{8 * size}"), size)
        else:
            place = f.at(to, i, "[2 x i64]")
            f.store("i64", low, place, 8)
            f.store("i64", high, f.offset(place, 8), 8)
    return ir.module(f)


def _fill_launch(ref: Ref, nbytes: int, bits: bytes) -> Launch:
    size = len(bits)
    args = (ref, *bits_of(bits))
    return Launch(_fill_text(size), args, nbytes // size, max(1, CHUNK // size), "fill")


moves = Moves(copy_launch, _fill_launch)
copy, fill, lower, lower_rev = moves.copy, moves.fill, moves.lower, moves.lower_rev
lower_concatenate, lower_reshape, lower_pad = (
    moves.lower_concatenate, moves.lower_reshape, moves.lower_pad)
lower_dynamic_slice = moves.lower_dynamic_slice
lower_dynamic_update_slice = moves.lower_dynamic_update_slice
