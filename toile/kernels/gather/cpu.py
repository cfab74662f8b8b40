"""Gather as loops over the result: the index vector gives the address of a run of elements.

Each axis of the result steps through the result, the operand (window and batching axes) and the
indices (batch axes); axes are merged where all three allow. Dense trailing window axes are one run:
a row of an embedding moves as a whole. Elements are bytes: the kernel does not know their dtype.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.extents import larger
from toile.compiler.ir.geometry import bits_of
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import (
    CHUNK,
    Reader,
    clamped,
    decode,
    element_type,
    integer,
    rows_of_chunk,
)
from toile.kernels.gather.shared import gathering_of
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner

_WIDEST = 64  # bytes that move as one element


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower Gather, in all modes."""
    (x, indices), (out,) = ins, outs
    found = gathering_of(op, x, indices, out)
    if found is None:
        return False
    shape, to, source, index, components, bits = found
    size, run, spread = x.dtype.itemsize, 1, 1
    if shape and index[-1] == 0 and to[-1] == source[-1] == size:
        run, *_ = (column.pop() for column in (shape, to, source, index))
        if run * size in (2, 4, 8, 16, 32, _WIDEST):
            size, spread, run = run * size, run, 1
    *outer, n = shape or (1,)
    (*tos, dt), (*sources, ds), (*indexes, di) = to or [0], source or [0], index or [0]
    plain = (dt, ds, di) == (size, 0, indices.dtype.itemsize) and [c[1] for c in components] == [
        size]
    key = _Key(
        size, min(x.dtype.itemsize, 8), len(outer), run > 1, indices.dtype.str[1:], op.fills,
        len(components), spread if op.fills else 1, plain,
    )  # fmt: skip
    args: Args = (
        out.ref, x.ref, indices.ref, n, run, dt, ds, di, *bits_of(bits), *chain(*components),
        *outer, *tos, *sources, *indexes,
    )  # fmt: skip
    grain = larger(1, CHUNK // (run * size + 8))
    plan.stage(Launch(_text(key), args, prod(outer) * n, grain, "gather"))
    return True


class _Key(NamedTuple):
    """What determines the text of a kernel."""

    size: int  # bytes of an element; several array elements if a window is short and dense
    align: int
    rank: int  # number of axes around the innermost loop
    runs: bool
    letters: str  # index dtype
    fills: bool
    components: int
    spread: int  # array elements per element here: the fill value is repeated
    plain: bool  # indices, elements and results are dense: steps are constants, not factors


@lru_cache(maxsize=512)
def _text(key: _Key) -> str:
    f = ir.kernel()
    r = Reader(f)
    to, source, indices = r.buffer(), r.buffer(), r.buffer()
    n, run, *steps, low, high = r.many(7)
    components: list[Any] = [tuple(r.many(3)) for _ in range(key.components)]
    extents, tos, sources, indexes = (r.many(key.rank) for _ in range(4))
    dt, ds, di = (key.size, 0, np.dtype(key.letters).itemsize) if key.plain else steps
    if key.plain:
        components = [(c, key.size, limit) for c, _, limit in components]
    fill = _fill_value(f, key, low, high) if key.fills else ""
    with rows_of_chunk(f, n) as (row, a, b):
        d, s, i = decode(f, row, extents, tos, sources, indexes)
        p, q, v = f.offset(to, d), f.offset(source, s), f.offset(indices, i)
        with f.loop(a, b, vectorize=False) as j:
            place, vector = f.step(p, j, dt), f.step(v, j, di)
            _element(f, key, components, place, vector, f.step(q, j, ds), run, fill)
    return ir.module(f)


def _fill_value(f: ir.Function, key: _Key, low: str, high: str) -> str:
    """The fill value as an element of the kernel."""
    type, single = element_type(key.size), key.size // key.spread
    if single == 16:
        pair = f.value(f"insertelement <2 x i64> poison, i64 {low}, i32 0")
        pair = f.value(f"insertelement <2 x i64> {pair}, i64 {high}, i32 1")
        if key.size == 16:
            return pair
        mask = ", ".join(f"i32 {k % 2}" for k in range(key.size // 8))
        return f.value(f"shufflevector <2 x i64> {pair}, <2 x i64> poison, "
                       f"<{key.size // 8} x i32> <{mask}>")
    one = low if single == 8 else f.value(f"trunc i64 {low} to i{8 * single}")
    if key.spread == 1:
        return one
    every = f.splat(f"i{8 * single}", one, key.spread)
    return f.value(f"bitcast <{key.spread} x i{8 * single}> {every} to {type}")


def _element(
    f: ir.Function, key: _Key, components: list[Any], place: str, vector: str, window: str,
    run: str, fill: str,
) -> None:  # fmt: skip
    """Copy one element, or one run of elements."""
    dtype = np.dtype(key.letters)
    inside, offset = "", "0"
    for c, step, limit in components:
        at = integer(f, dtype, f.offset(vector, c))
        if key.fills:
            inside = f.all(inside, f.compare("ule", at, limit))  # unsigned: negative ones are huge
        else:
            at = clamped(f, dtype, at, limit)
        offset = f.add(offset, f.mul(at, step))
    if inside:
        offset = f.select(inside, offset, 0)
    found = f.offset(window, offset)
    type = element_type(key.size)
    if not key.runs:
        x = f.load(type, found, key.align)
        if inside:
            x = f.select(inside, x, fill, type)
        f.store(type, x, place, key.align)
        return
    with f.when(inside) if inside else nullcontext():
        f.copy(place, found, f.mul(run, key.size))
    if inside:
        with f.unless(inside), f.loop(0, run, vectorize=True) as k:
            f.store(type, fill, f.step(place, k, key.size), key.align)
