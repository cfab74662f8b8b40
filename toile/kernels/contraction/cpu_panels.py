"""Packing of matrices into panels that the tiles of toile's own matrix products read in order.

A panel holds `width` columns (of B; rows of A) for each term of the sum: [terms][width]. Packing
converts to the accumulator type and pads with zeros.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from toile.targets.llvm.elements import transposed
from toile.targets.llvm.product_types import Element, convert
from toile.targets.llvm.text import Function, inner, kernel, module, typed

DEPTH = 256  # terms of the sum per pass over packed panels
SPACING = DEPTH + 4  # from panel to panel, so that they do not map to the same cache sets
PLAIN = "nounwind noinline optsize"  # loops are unrolled by hand: further unrolling only costs time


_PARAMS = "ptr noalias %to, ptr noalias %from, i64 %sk, i64 %sn, i64 %count, i64 %valid"


class Tile(NamedTuple):
    """A block of C in registers: rows x vectors of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def pack_function(name: str, width: int, lanes: int, source: Element, work: Element) -> Function:
    """Copy `count` rows of `valid` elements (at most `width` are taken) to [count][width].

    Vectors of `lanes` are copied at once if either stride is 1; missing elements become zeros."""
    f = inner(name, _PARAMS, PLAIN)
    flat, deep = f.compare("eq", "%sn", 1), f.compare("eq", "%sk", 1)
    for j in range(0, width, lanes):
        group = min(lanes, width - j)
        start, to = f.at("%from", f.mul("%sn", j), source.llvm), f.at("%to", j, work.llvm)
        whole = f.compare("sge", "%valid", j + group)
        rows = f.value(f"and i1 {whole}, {flat}")
        across = f.value(f"and i1 {whole}, {deep}")
        across = f.value(f"and i1 {across}, {f.value(f'xor i1 {flat}, true')}")
        done = f.select(rows, "%count", f.select(across, f.value(f"and i64 %count, {-group}"), 0))
        with f.when(rows), f.loop(0, "%count", vectorize=False) as k:
            type = typed(source.llvm, group)
            value = f.load(type, f.at(start, f.mul(k, "%sk"), source.llvm), source.size)
            value = convert(f, value, source, work, group)
            f.store(typed(work.llvm, group), value, f.at(to, f.mul(k, width), work.llvm),
                    work.size)
        if group & (group - 1) == 0:
            with f.when(across), f.loop(0, done, group, vectorize=False) as k:
                _transpose(f, f.at(start, k, source.llvm), f.at(to, f.mul(k, width), work.llvm),
                           group, width, source, work)
        else:
            done = f.select(rows, "%count", 0)
        left = f.smin(f.smax(f.sub("%valid", j), 0), group)
        with f.loop(done, "%count", vectorize=False) as k:
            row, place = f.at(start, f.mul(k, "%sk"), source.llvm), f.at(
                to, f.mul(k, width), work.llvm)
            with f.loop(0, left, vectorize=False) as i:
                value = f.load(source.llvm, f.at(row, f.mul(i, "%sn"), source.llvm), source.size)
                f.store(work.llvm, convert(f, value, source, work), f.at(place, i, work.llvm),
                        work.size)
            with f.loop(left, group, vectorize=False) as i:
                f.store(work.llvm, work.zero, f.at(place, i, work.llvm), work.size)
    return f


def group_function(
    pack: Function, width: int, lanes: int, source: Element, work: Element
) -> Function:
    """Pack several panels, SPACING rows apart; `valid` counts the columns of all of them.

    Contiguous rows are read as a whole, others by `pack`, panel by panel."""
    f = inner(f"{pack.name}_group", _PARAMS, PLAIN)
    flat = f.compare("eq", "%sn", 1)
    whole = f.mul(f.udiv(f.select(flat, "%valid", 0), width), width)
    with f.loop(0, "%count", vectorize=False) as k:
        row = f.at("%from", f.mul(k, "%sk"), source.llvm)
        place = f.at("%to", f.mul(k, width), work.llvm)
        with f.loop(0, whole, width, vectorize=False) as n:
            start, panel = f.at(row, n, source.llvm), f.at(place, f.mul(n, SPACING), work.llvm)
            for j in range(0, width, lanes):
                group = min(lanes, width - j)
                value = f.load(typed(source.llvm, group), f.at(start, j, source.llvm), source.size)
                value = convert(f, value, source, work, group)
                f.store(typed(work.llvm, group), value, f.at(panel, j, work.llvm), work.size)
    with f.loop(whole, "%valid", width) as n:
        f.call(pack, f.at("%to", f.mul(n, SPACING), work.llvm),
               f.at("%from", f.mul(n, "%sn"), source.llvm), "%sk", "%sn", "%count",
               f.sub("%valid", n))
    return f


def _transpose(f: Function, start: str, to: str, n: int, width: int, source: Element,
               work: Element) -> None:
    """Transpose an n x n block whose columns have unit stride."""
    type, out = typed(source.llvm, n), typed(work.llvm, n)
    rows = []
    for i in range(n):
        value = f.load(type, f.at(start, f.mul("%sn", i), source.llvm), source.size)
        rows.append(convert(f, value, source, work, n))
    for i, row in enumerate(transposed(f, rows, out)):
        f.store(out, row, f.at(to, i * width, work.llvm), work.size)


@cache
def pack_kernel(tile: Tile, source: Element, work: Element) -> str:
    """A kernel that packs all of b: units are panels; args: b, packed (refs), K, N, strides."""
    f, pack = kernel(), pack_function("pack_b", tile.columns, tile.lanes, source, work)
    b, held = f.buffer(0), f.buffer(2)
    k, n, sk, sn = (f.argument(i) for i in range(4, 8))
    with f.loop("%lo", "%hi") as panel:
        first = f.mul(panel, tile.columns)
        f.call(pack, f.at(held, f.mul(first, k), work.llvm),
               f.at(b, f.mul(first, sn), source.llvm), sk, sn, k, f.sub(n, first))
    return module(pack, f)
