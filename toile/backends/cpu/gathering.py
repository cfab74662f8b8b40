"""Gather as loops over the result: an address from the index vector, a run of elements from there.

Each axis of the result steps through the result, the operand (window and batching axes) and the
indices (batch axes); axes merge where all three allow. A dense tail of window axes is one run: a
row of an embedding moves as a whole. Elements are bytes: the kernel does not know their dtype.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.backends.cpu import ir
from toile.backends.cpu.copies import (
    CHUNK,
    Reader,
    clamped,
    decode,
    element_type,
    integer,
    rows_of_chunk,
)
from toile.backends.cpu.launches import Launch, Planner
from toile.compiler.geometry import (
    axes_of,
    bits_of,
    byte_strides,
    collapse,
    fill_bits,
    integral,
    is_plain,
)
from toile.compiler.operands import Operand
from toile.primitives.addressing import GatherScatterMode

_WIDEST = 64  # bytes that move as one element


def lower_gather(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Gather, in all modes."""
    (x, indices), (out,) = ins, outs
    if not integral(indices.dtype) or not is_plain(x.dtype):
        return False
    fills = op.mode is GatherScatterMode.FILL_OR_DROP
    bits = fill_bits(op, x.dtype) if fills else b""
    if bits is None:
        return False
    offset, collapsed, mapped, batching, index_batching = op.dimension_numbers
    axes = axes_of(offset, collapsed, batching, index_batching, out, x, indices)
    shape, (to, source, index) = collapse(axes.shape, *axes[1:4])
    size, run, spread = x.dtype.itemsize, 1, 1
    if shape and index[-1] == 0 and to[-1] == source[-1] == size:
        run = shape.pop()
        for steps in (to, source, index):
            steps.pop()
        if run * size in (2, 4, 8, 16, 32, _WIDEST):
            size, spread, run = run * size, run, 1
    components = [
        (c, source_step, limit)
        for c, d in enumerate(mapped)
        for source_step, limit in [(byte_strides(x)[d], x.shape[d] - op.slice_sizes[d])]
        if limit or fills
    ]
    step = byte_strides(indices)[-1]
    *outer, n = shape or (1,)
    split = lambda steps: (steps[:-1], steps[-1]) if steps else ([], 0)
    (tos, dt), (sources, ds), (indexes, di) = split(to), split(source), split(index)
    key = _Key(
        size, min(x.dtype.itemsize, 8), len(outer), run > 1, indices.dtype.str[1:], fills,
        len(components), spread if fills else 1,
    )  # fmt: skip
    args = [out.ref, x.ref, indices.ref, n, run, dt, ds, di, *bits_of(bits)]
    for c, source_step, limit in components:
        args += [c * step, source_step, limit]
    args += [*outer, *tos, *sources, *indexes]
    total = prod(outer) * n
    grain = max(1, CHUNK // (run * size + 8))
    plan.stage(Launch(_text(key), tuple(args), total, grain, "gather"))
    return True


class _Key(NamedTuple):
    """What a kernel's text depends on."""

    size: int  # bytes of an element; several of the array's where a window is short and dense
    align: int
    rank: int  # of the axes around the innermost loop
    runs: bool
    letters: str  # of the indices' dtype
    fills: bool
    components: int
    spread: int  # elements of the array in one element here: the fill value is repeated


@lru_cache(maxsize=512)
def _text(key: _Key) -> str:
    f = ir.kernel()
    r = Reader(f)
    to, source, indices = r.buffer(), r.buffer(), r.buffer()
    n, run, dt, ds, di, low, high = r.many(7)
    components = [tuple(r.many(3)) for _ in range(key.components)]
    extents, tos, sources, indexes = (r.many(key.rank) for _ in range(4))
    fill = _fill_value(f, key, low, high) if key.fills else ""
    with rows_of_chunk(f, n) as (row, a, b):
        d, s, i = decode(f, row, extents, tos, sources, indexes)
        p, q, v = f.offset(to, d), f.offset(source, s), f.offset(indices, i)
        with f.loop(a, b, vectorize=False) as j:
            place = f.offset(p, f.mul(j, dt))
            vector = f.offset(v, f.mul(j, di))
            window = f.offset(q, f.mul(j, ds))
            _element(f, key, components, place, vector, window, run, fill)
    return ir.module(f)


def _fill_value(f: ir.Function, key: _Key, low: str, high: str) -> str:
    """The fill value as an element of the kernel's."""
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
    wide = f"<{key.spread} x i{8 * single}>"
    first = f.value(f"insertelement {wide} poison, i{8 * single} {one}, i32 0")
    zeros = f"<{key.spread} x i32> zeroinitializer"
    every = f.value(f"shufflevector {wide} {first}, {wide} poison, {zeros}")
    return f.value(f"bitcast {wide} {every} to {type}")


def _element(
    f: ir.Function, key: _Key, components: list[Any], place: str, vector: str, window: str,
    run: str, fill: str,
) -> None:  # fmt: skip
    """One element, or one run of them."""
    dtype = np.dtype(key.letters)
    inside, offset = "", "0"
    for c, step, limit in components:
        at = integer(f, dtype, f.offset(vector, c))
        if key.fills:
            legal = f.compare("ule", at, limit)  # negative numbers are huge here
            inside = legal if not inside else f.value(f"and i1 {inside}, {legal}")
        else:
            at = clamped(f, dtype, at, limit)
        offset = f.add(offset, f.mul(at, step))
    if key.fills and inside:
        offset = f.select(inside, offset, 0)
    found = f.offset(window, offset)
    type = element_type(key.size)
    if not key.runs:
        x = f.load(type, found, key.align)
        if inside:
            x = f.select(inside, x, fill, type)
        f.store(type, x, place, key.align)
        return

    def moved() -> None:
        bytes = f.mul(run, key.size)
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {found}, i64 {bytes}, i1 false)")

    if not inside:
        moved()
        return
    with f.when(inside):
        moved()
    with f.unless(inside), f.loop(0, run, vectorize=True) as k:
        f.store(type, fill, f.offset(place, f.mul(k, key.size)), key.align)
