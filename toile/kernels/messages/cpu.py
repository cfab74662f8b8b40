"""Sums of rows along the edges of a graph: sort the edges by target, then sum.

The sums are parallel over targets: each row of the result is summed by one thread, in registers,
in the order of its edges, and written once.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.extents import larger
from toile.compiler.ir.geometry import with_dense_rows
from toile.compiler.ir.operands import Args, Operand
from toile.compiler.passes.messages import EdgesByTarget, GatherScatter
from toile.kernels.copy.cpu import Reader, clamped, integer
from toile.kernels.messages.shared import copy_sums, room_for_sums
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.product_types import (
    Element,
    convert,
    element,
    plus,
    plus_product,
    work_element,
)
from toile.targets.llvm.text import typed

BLOCK = 256  # bytes of a row that are summed at a time, in registers
AHEAD = 6  # edges between prefetching a row and using it
WORK = 1 << 15  # approximate number of additions per chunk

_FETCH = "call void @llvm.prefetch.p0(ptr {}, i32 0, i32 3, i32 1)"


def lower_edges(op: EdgesByTarget, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """A counting sort by one thread: with several, each would have to read all edges."""
    *given, targets = (plan.contiguous(x) for x in ins)
    ends, ordered = outs
    kind = given[0].dtype if given else None
    text = _edges_text(kind, targets.dtype, op.clips_sources, op.clips_targets, op.numbered)
    args: Args = (
        ends.ref, ordered.ref, targets.ref, targets.size, op.targets - 1, op.sources - 1,
        *(x.ref for x in given))  # fmt: skip
    plan.stage(Launch(text, args, 1, 1, "sort of edges"))
    return True


@lru_cache(maxsize=64)
def _edges_text(
    sources: Any, targets: Any, clips_sources: bool, clips_targets: bool, numbered: bool
) -> str:
    """Edges that do not count are written to `nowhere`, without a branch."""
    f = ir.kernel()
    r = Reader(f)
    ends, ordered, at_targets = (r.buffer() for _ in range(3))
    edges, last_target, last_source = r.many(3)
    at_sources = r.buffer() if sources is not None else ""
    nowhere, total = f.variable("i32", 0), f.variable("i32", 0)
    rows = f.add(last_target, 1)

    def edge(e: str) -> tuple[str, str, str]:
        """The number stored for an edge, the address of its target's count, and whether it
        counts."""
        t = integer(f, targets, f.at(at_targets, e, f"i{8 * targets.itemsize}"))
        legal, s = "true", e
        if sources is not None:
            s = integer(f, sources, f.at(at_sources, e, f"i{8 * sources.itemsize}"))
            if clips_sources:
                s = clamped(f, sources, s, last_source)
            else:
                legal = f.compare("ule", s, last_source)  # negative numbers are huge here
        if clips_targets:
            t = clamped(f, targets, t, last_target)
        else:
            legal = f.all(legal, f.compare("ule", t, last_target))
        place = f.select(legal, f.step(ends, t, 4), nowhere, "ptr")
        return e if numbered else s, place, legal

    with f.loop(0, rows) as row:
        f.store("i32", 0, f.at(ends, row, "i32"), 4)
    with f.loop(0, edges, vectorize=False) as e:
        _, place, _ = edge(e)
        f.store("i32", f.value(f"add i32 {f.load('i32', place, 4)}, 1"), place, 4)
    with f.loop(0, rows, vectorize=False) as row:  # counts become start positions
        place, first = f.at(ends, row, "i32"), f.load("i32", total)
        count = f.load("i32", place, 4)
        f.store("i32", first, place, 4)
        f.store("i32", f.value(f"add i32 {first}, {count}"), total)
    with f.loop(0, edges, vectorize=False) as e:  # and, edge by edge, end positions
        s, place, legal = edge(e)
        at = f.load("i32", place, 4)
        f.store("i32", f.value(f"add i32 {at}, 1"), place, 4)
        to = f.step(ordered, f.value(f"zext i32 {at} to i64"), 4)
        to = f.select(legal, to, nowhere, "ptr")
        f.store("i32", f.value(f"trunc i64 {s} to i32"), to, 4)
    with f.loop(f.value(f"zext i32 {f.load('i32', total)} to i64"), edges) as e:
        f.store("i32", 0, f.at(ordered, e, "i32"), 4)
    return ir.module(f)


def lower(op: GatherScatter, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """One launch over the rows of the result."""
    kind, work = element(outs[0].dtype), work_element(outs[0].dtype)
    if kind is None or work is None or kind.kind == "b":
        return False
    (out,) = outs
    h, step = with_dense_rows(ins[0], len(out.shape) - 1, plan)
    ends, sources, *more = (plan.contiguous(x) for x in ins[1:])
    starts = len(more) > 2 * op.weighted
    made = room_for_sums(out, starts, plan)
    rows, width, edges = out.shape[0], prod(out.shape[1:]), sources.size
    text = _sums_text(kind, work, starts, op.weighted, native.vector_bytes() // work.size)
    grain = larger(1, rows * WORK // larger(1, (edges + rows) * width))
    args: Args = (made.ref, h.ref, ends.ref, sources.ref, width, made.strides[0], step,
                  edges - 1, op.heads, *(x.ref for x in more))
    plan.stage(Launch(text, args, rows, grain, "sums of rows"))
    copy_sums(out, made, plan)
    return True


@lru_cache(maxsize=64)
def _sums_text(kind: Element, work: Element, starts: bool, weighted: bool, lanes: int) -> str:
    """Rows [lo, hi) in blocks of columns: of a few vectors, then fewer, then single numbers."""
    f = ir.kernel()
    r = Reader(f)
    out, h, ends, sources = (r.buffer() for _ in range(4))
    width, to, step, last, heads = r.many(5)
    order, weights = (r.buffer(), r.buffer()) if weighted else (out, out)
    start = r.buffer() if starts else out
    most = max(1, BLOCK // (lanes * work.size))
    blocks = [(n, lanes) for n in dict.fromkeys((most, max(1, most // 4), 1))] + [(1, 1)]
    functions = [_sum_function(kind, work, starts, weighted, n, some) for n, some in blocks]
    with f.loop("%lo", "%hi") as row:
        none = f.compare("eq", row, 0)
        before = f.at(ends, f.select(none, 0, f.sub(row, 1)), "i32")
        first = f.select(none, 0, f.load("i32", before, 4), "i32")
        first = f.value(f"zext i32 {first} to i64")
        end = f.value(f"zext i32 {f.load('i32', f.at(ends, row, 'i32'), 4)} to i64")
        place, part = f.mul(row, to), f.udiv(width, heads)
        with f.loop("0", heads, vectorize=False) as head:
            at = f.mul(head, part)
            stop, own = f.add(at, part), f.at(weights, head, kind.llvm)
            for (n, some), function in zip(blocks, functions, strict=True):
                columns = n * some
                whole = f.add(at, f.mul(f.udiv(f.sub(stop, at), columns), columns))
                with f.loop(at, whole, columns, vectorize=False) as j:
                    p, q, x = (f.at(base, f.add(place if base is not h else 0, j), kind.llvm)
                               for base in (out, h, start))
                    f.call(function, p, q, x, sources, order, own, first, end, step, last, heads)
                at = whole
    return ir.module(*functions, f)


def _sum_function(
    kind: Element, work: Element, starts: bool, weighted: bool, n: int, lanes: int
) -> ir.Function:
    """out = start + the sum of (weights[order[e] * heads]) h[sources[e]], for `n` vectors of
    columns."""
    f = ir.inner(
        f"sum{n}x{lanes}",
        "ptr %out, ptr noalias %h, ptr %x, ptr noalias %sources, ptr %order, "
        "ptr %weights, i64 %first, i64 %end, i64 %step, i64 %last, i64 %heads", ir.NOINLINE)
    memory, vector = typed(kind.llvm, lanes), typed(work.llvm, lanes)

    def read(base: str, i: int) -> str:
        value = f.load(memory, f.at(base, i * lanes, kind.llvm), kind.size)
        return convert(f, value, kind, work, lanes)

    zero = "zeroinitializer" if lanes > 1 else work.zero
    sums = [f.variable(vector, read("%x", i) if starts else zero) for i in range(n)]

    def number(base: str, e: str) -> str:
        return f.value(f"zext i32 {f.load('i32', f.at(base, e, 'i32'), 4)} to i64")

    def source(e: str) -> str:
        return f.at("%h", f.mul(number("%sources", e), "%step"), kind.llvm)

    def weight(e: str) -> str:
        at = f.mul(number("%order", e), "%heads")
        one = f.load(kind.llvm, f.at("%weights", at, kind.llvm), kind.size)
        return f.splat(work.llvm, convert(f, one, kind, work), lanes)

    with f.loop("%first", "%end", vectorize=False) as e:
        if n > 1:
            later = source(f.smin(f.add(e, AHEAD), "%last"))
            for byte in range(0, n * lanes * kind.size, 64):
                f.do(_FETCH.format(f.offset(later, byte)))
        row, times = source(e), weight(e) if weighted else ""
        for i, slot in enumerate(sums):
            old, value = f.load(vector, slot), read(row, i)
            total = (plus_product(f, work, old, value, times, lanes) if weighted else
                     plus(f, work, old, value, lanes))
            f.store(vector, total, slot)
    for i, slot in enumerate(sums):
        value = convert(f, f.load(vector, slot), work, kind, lanes)
        f.store(memory, value, f.at("%out", i * lanes, kind.llvm), kind.size)
    return f
