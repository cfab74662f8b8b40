"""Long sums of tiny products: one accumulator in a register for each element of the result.

The gradients of small weights are such sums, over all steps of a loop or all rows of a batch. The
longest axis that is summed over is cut into parts; a unit of work sums one, and the parts are added
in their order. Arguments in 64-bit words: extent of that axis; of each operand slot, offset and
stride along the axis, in bytes; slot and offset of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from toile.backends.cpu import ir, native
from toile.backends.cpu.launches import Launch, Planner
from toile.backends.cpu.tiny import Writer
from toile.backends.cpu.tiny_blocks import Elements
from toile.backends.cpu.tiny_sums import product_dtype
from toile.compiler.operands import Operand, Ref
from toile.compiler.scalars import Unsupported, Value
from toile.primitives.contractions import DotGeneral

SHORTEST = 256  # steps of the axis
PART = 512  # steps that are summed before the sums are: rounding errors stay those of a part
MOST_RESULTS, MOST_TERMS = 36, 128  # of the result, and products of a step
CHUNK = 8  # parts that a thread takes at once


class Sum(NamedTuple):
    """A product as a loop: for each operand and step, where its elements lie; what is summed."""

    trips: int
    strides: tuple[int, int]  # of the operands along the axis, in elements
    offsets: tuple[tuple[int, ...], tuple[int, ...]]  # of the elements of a step
    terms: tuple[tuple[tuple[int, int], ...], ...]  # for each result, numbers of elements


def arranged(op: DotGeneral, x: Operand, y: Operand) -> Sum | None:
    """The product as a long sum of tiny ones, where it is one that other kernels do badly."""
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    summed = [c for c in size if c not in op.out and c in op.lhs and c in op.rhs]
    if not summed or any(c not in op.lhs or c not in op.rhs for c in size if c not in op.out):
        return None
    axis = max(summed, key=lambda c: size[c])
    inner = [c for c in summed if c != axis]
    rows, columns = (prod(size[c] for c in labels if c in op.out) for labels in (op.lhs, op.rhs))
    results = prod(size[c] for c in op.out)
    fits = size[axis] >= SHORTEST and results <= MOST_RESULTS
    if not fits or results * prod(size[c] for c in inner) > MOST_TERMS:
        return None
    if min(rows, columns) == 1:
        return None  # a matrix times a vector
    steps = [dict(zip(labels, v.strides, strict=True)) for labels, v in ((op.lhs, x), (op.rhs, y))]
    places: tuple[dict[int, int], dict[int, int]] = ({}, {})
    terms = []
    for out in np.ndindex(*(size[c] for c in op.out)):
        pairs = []
        for rest in np.ndindex(*(size[c] for c in inner)):
            at = dict(zip((*op.out, *inner), (*out, *rest), strict=True))
            pair = [sum(s * at.get(c, 0) for c, s in step.items()) for step in steps]
            pairs.append(tuple(p.setdefault(i, len(p)) for p, i in zip(places, pair, strict=True)))
        terms.append(tuple(pairs))
    far = max(abs(i) for p in places for i in p)
    if far > 4 * MOST_TERMS:
        return None  # offsets are part of the text
    return Sum(size[axis], (steps[0][axis], steps[1][axis]),
               (tuple(places[0]), tuple(places[1])), tuple(terms))


def lower(op: DotGeneral, x: Operand, y: Operand, out: Operand, plan: Planner) -> bool:
    """Add the stages of a long sum; False where another kernel is better."""
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
    """The kernel of the parts."""
    f = ir.kernel()
    w = Writer(f)
    trips, room = f.argument(0), f.buffer(7)
    operands = [(f.buffer(1 + 3 * i), f.argument(3 + 3 * i)) for i in range(2)]
    with f.loop("%lo", "%hi") as part:
        zero = w.k.constant(0, work)
        slots = w.slots([zero] * len(x.terms))
        first = f.mul(part, PART)
        with f.loop(first, f.smin(f.add(first, PART), trips), vectorize=False) as i:
            elements: list[Elements] = []
            for (pointer, stride), offsets, dtype in zip(operands, x.offsets, dtypes, strict=True):
                here = f.offset(pointer, f.mul(i, stride))
                loaded = w.loaded(here, offsets, dtype)
                elements.append([w.k.convert(v, work) for v in loaded])
            totals: list[Value] = list(w.read(slots))
            for n, pairs in enumerate(x.terms):
                for a, b in pairs:
                    totals[n] = w.plus_product(totals[n], elements[0][a], elements[1][b])
            w.write([slots], [totals])
        place = f.offset(room, f.mul(part, len(x.terms) * work.itemsize))
        for n, value in enumerate(w.read(slots)):
            w.k.store(value, place, n)
    return native.STRAIGHT_LINE + ir.module(f)


def _join_text(size: int, work: np.dtype, dtype: np.dtype) -> str:
    """The kernel that adds the parts."""
    f = ir.kernel()
    w = Writer(f)
    parts, room, out = f.argument(0), f.buffer(1), f.buffer(3)
    slots = w.slots(w.loaded(room, range(size), work))
    with f.loop(1, parts, vectorize=False) as i:
        here = f.offset(room, f.mul(i, size * work.itemsize))
        more = w.loaded(here, range(size), work)
        w.write([slots], [[w.k.add(a, b) for a, b in zip(w.read(slots), more, strict=True)]])
    for n, value in enumerate(w.read(slots)):
        w.k.store(w.k.convert(value, dtype), out, n)
    return native.STRAIGHT_LINE + ir.module(f)


__all__ = ["arranged", "lower"]
