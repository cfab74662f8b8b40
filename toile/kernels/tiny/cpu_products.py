"""Long sums of tiny products: one accumulator in a register for each element of the result.

The gradients of small weights are such sums, over all steps of a loop or all rows of a batch. The
longest summed axis is divided into parts; a unit of work sums one, and the parts are added in
order. The arguments, in 64-bit words, are the extent of that axis; for each operand its slot, its
offset, and its stride along the axis in bytes; then the slot and offset of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.scalar.builder import Unsupported
from toile.kernels.tiny.cpu import Writer
from toile.kernels.tiny.cpu_blocks import Elements
from toile.kernels.tiny.cpu_sums import product_dtype
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner

SHORTEST = 256  # steps of the axis
PART = 512  # steps of a part, which limits the accumulation of rounding errors
MOST_RESULTS, MOST_TERMS = 36, 128  # elements of the result, and products of a step
CHUNK = 8  # parts that a thread takes at once


class Sum(NamedTuple):
    """A product as a loop: the offsets of the operands' elements in a step, and what is summed."""

    trips: int
    strides: tuple[int, int]  # of the operands along the axis, in elements
    offsets: tuple[tuple[int, ...], tuple[int, ...]]  # of the elements of a step
    terms: tuple[tuple[tuple[int, int], ...], ...]  # for each result, pairs of element numbers


def arranged(op: DotGeneral, x: Operand, y: Operand) -> Sum | None:
    """The product as a long sum of tiny products, if other kernels would be slow; else None."""
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    summed = [c for c in size if c not in op.out]
    if not summed or any(c not in op.lhs or c not in op.rhs for c in summed):
        return None
    axis = max(summed, key=lambda c: size[c])
    inner = [c for c in summed if c != axis]
    if size[axis] < SHORTEST or not _is_tiny(op, size, inner):
        return None
    steps = [dict(zip(labels, v.strides, strict=True)) for labels, v in ((op.lhs, x), (op.rhs, y))]
    (a, b), terms = _terms(op, size, inner, steps)
    if max(map(abs, (*a, *b))) > 4 * MOST_TERMS:
        return None  # offsets are part of the text
    return Sum(size[axis], (steps[0][axis], steps[1][axis]), (tuple(a), tuple(b)), terms)


def _terms(
    op: DotGeneral, size: dict[str, int], inner: list[str], steps: list[dict[str, int]]
) -> tuple[tuple[dict[int, int], dict[int, int]], tuple[tuple[Any, ...], ...]]:
    """The elements of a step, numbered by their offsets in each operand, and those of each sum."""
    places: tuple[dict[int, int], dict[int, int]] = ({}, {})
    terms = []
    for out in np.ndindex(*(size[c] for c in op.out)):
        pairs = []
        for rest in np.ndindex(*(size[c] for c in inner)):
            at = dict(zip((*op.out, *inner), (*out, *rest), strict=True))
            pair = [sum(s * at.get(c, 0) for c, s in step.items()) for step in steps]
            pairs.append(tuple(p.setdefault(i, len(p)) for p, i in zip(places, pair, strict=True)))
        terms.append(tuple(pairs))
    return places, tuple(terms)


def _is_tiny(op: DotGeneral, size: dict[str, int], inner: list[str]) -> bool:
    """Whether a step is a product of tiny matrices, neither of which is a vector."""
    count = lambda labels: prod(size[c] for c in labels)
    rows, columns = (count(set(labels) & set(op.out)) for labels in (op.lhs, op.rhs))
    results = count(op.out)
    few = results <= MOST_RESULTS and results * count(inner) <= MOST_TERMS
    return few and min(rows, columns) > 1


def lower(op: DotGeneral, x: Operand, y: Operand, out: Operand, plan: Planner) -> bool:
    """Add the stages of a long sum; False if another kernel is better."""
    found = arranged(op, x, y)
    if found is None:
        return False
    try:
        work = product_dtype(x.dtype, y.dtype, out.dtype)
        text = _sum_text(found, (x.dtype, y.dtype), work)
    except Unsupported:
        return False
    parts = -(-found.trips // PART)
    room = plan.scratch(parts * out.size * work.itemsize)
    args: list[int | Ref] = [found.trips]
    for v, stride in zip((x, y), found.strides, strict=True):
        args += [v.ref, stride * v.dtype.itemsize]
    plan.stage(Launch(text, (*args, room), parts, CHUNK, "product of few"))
    last = _join_text(out.size, work, out.dtype)
    plan.stage(Launch(last, (parts, room, out.ref), 1, 1, "sum of parts", cost=parts * out.size))
    return True


def _sum_text(x: Sum, dtypes: Sequence[np.dtype], work: np.dtype) -> str:
    """The kernel that computes the parts."""
    f = ir.kernel()
    w = Writer(f)
    trips, room = f.argument(0), f.buffer(7)
    operands = [(f.buffer(1 + 3 * i), f.argument(3 + 3 * i)) for i in range(2)]
    with f.loop("%lo", "%hi") as part:
        slots = w.new_slots([w.k.constant(0, work)] * len(x.terms))
        first = f.mul(part, PART)
        with f.loop(first, f.smin(f.add(first, PART), trips), vectorize=False) as i:
            elements: list[Elements] = []
            for (pointer, stride), offsets, dtype in zip(operands, x.offsets, dtypes, strict=True):
                loaded = w.loaded(f.step(pointer, i, stride), offsets, dtype)
                elements.append([w.k.convert(v, work) for v in loaded])
            totals = w.read_slots(slots)
            for n, pairs in enumerate(x.terms):
                for a, b in pairs:
                    totals[n] = w.plus_product(totals[n], elements[0][a], elements[1][b])
            w.write([slots], [totals])
        place = f.step(room, part, len(x.terms) * work.itemsize)
        w.store_all(w.read_slots(slots), place)
    return native.STRAIGHT_LINE + ir.module(f)


def _join_text(size: int, work: np.dtype, dtype: np.dtype) -> str:
    """The kernel that adds the parts."""
    f = ir.kernel()
    w = Writer(f)
    parts, room, out = f.argument(0), f.buffer(1), f.buffer(3)
    slots = w.new_slots(w.loaded(room, range(size), work))
    with f.loop(1, parts, vectorize=False) as i:
        more = w.loaded(f.step(room, i, size * work.itemsize), range(size), work)
        w.write([slots], [[w.k.add(a, b) for a, b in zip(w.read_slots(slots), more, strict=True)]])
    for n, value in enumerate(w.read_slots(slots)):
        w.k.store(w.k.convert(value, dtype), out, n)
    return native.STRAIGHT_LINE + ir.module(f)
