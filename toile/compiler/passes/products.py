"""Products of matrices and vectors, many at a time, as multiplications and sums that can be fused.

    einsum("bijd,bjd->bid", x, y) = sum(x * y[:, None], 2)
    einsum("bi,bj->bij", x, y)    = x[:, :, None] * y[:, None]

Such a product reads each number once, or a few times from a cache: its time is that of reading
memory. A library would need copies, or tables of addresses; a loop nest reads the operands in place
and computes what is around it, too. On a CPU, products of bytes are fast. If a program converts
bytes to int32 before a product, the product therefore reads the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.compiler.scalar.builder import BFLOAT16, FLOAT16, FLOAT32
from toile.engine.program import Atom, Equation, Program, without_dead_code
from toile.primitives.contractions import DotGeneral
from toile.primitives.elementwise import convert
from toile.primitives.families import broadcast_in_dim, mul, reduce_sum, transpose

FEW = 4  # vectors: libraries have tiles for more of them, and leave most of a tile unused
MANY_TERMS = 64  # of each of their sums
LITTLE = 1 << 23  # terms of all sums
LEAST = 257  # multiplications; loops with fewer may run in registers
MOST_IN_ROW = 8  # terms of a sum over a row that a nest on a CPU computes for many rows at a time
NUMBERS = frozenset(("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "uint8",
                     "uint16", "uint32"))  # fmt: skip


def multiply_vectors(program: Program) -> Program:
    """Replace products of many vectors."""
    return _replaced(program, _applies)


def multiply_small_vectors(program: Program) -> Program:
    """Replace products of many small vectors, as `vmap` makes them: calling a kernel for each of
    them takes longer than their arithmetic."""
    return _replaced(program, _is_small)


def _replaced(program: Program, applies: Callable[[Equation], bool]) -> Program:
    if not any(map(applies, program.equations)):
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        return [spliced(new, e, _multiplied, e.ins)] if applies(e) else None

    return rewrite(program, rule)


def _is_small(e: Equation) -> bool:
    """Whether nothing is summed, or vectors of a few elements are multiplied by rows of as many
    matrices: a loop nest on a CPU computes many such sums at a time."""
    if not _applies(e) or np.dtype(e.outs[0].aval.dtype).name not in ("float32", "float64"):
        return False
    op: Any = e.op
    x, y = (a.aval for a in e.ins)
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    long = {c for c, n in size.items() if n > 1}
    if math.prod(size.values()) < LEAST:
        return False
    both = long & set(op.lhs) & set(op.rhs)
    summed = both - set(op.out)
    if long & set(op.lhs) - both and long & set(op.rhs) - both:
        return not summed
    last = [c for c in (op.lhs if x.size >= y.size else op.rhs) if c in long][-1]
    return not summed or last in summed and math.prod(size[c] for c in summed) <= MOST_IN_ROW


def _applies(e: Equation) -> bool:
    """Whether nothing is summed, or there are many products of which one operand is a vector, or
    there is a small product with a few vectors."""
    if e.op.kernel_family != "contraction":
        return False
    x, y = (a.aval for a in e.ins)
    op: Any = e.op
    out = e.outs[0].aval
    if any(np.dtype(a.dtype).name not in NUMBERS for a in (x, y, out)) or not (x.size and y.size):
        return False
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    if any((c in op.lhs) + (c in op.rhs) + (c in op.out) < 2 for c in size):
        return False
    return _is_by_memory(op, size, out.size)


def _is_by_memory(op: Any, size: dict[str, int], results: int) -> bool:
    """Whether the time of a product is that of reading its operands."""
    long = {c for c, n in size.items() if n > 1}
    rows, columns = (long & set(some) for some in (op.lhs, op.rhs))
    kept, both = long & set(op.out), rows & columns
    if not both - kept:
        return bool(long)
    beside = [math.prod(size[c] for c in some - both) for some in (rows, columns)]
    terms = math.prod(size[c] for c in both - kept)
    few = 1 < min(beside) <= FEW and terms >= MANY_TERMS and results * terms <= LITTLE
    return few or min(beside) == 1 and bool(both & kept)


def _multiplied(op: DotGeneral, x: Any, y: Any) -> Any:
    dtype = np.dtype(op.dtype or x.dtype)
    work = FLOAT32 if dtype in (BFLOAT16, FLOAT16) else dtype
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    summed = [c for c in size if c not in op.out]
    most = op.lhs if x.size >= y.size else op.rhs
    # The axes of the larger operand keep their order, in which its elements are stored.
    order = op.out if not summed else "".join([*(c for c in size if c not in most), *most])
    full = tuple(size[c] for c in order)
    product = mul(*(_spread(convert(a, work), labels, order, full)
                    for a, labels in ((x, op.lhs), (y, op.rhs))))
    if summed:
        product = reduce_sum(product, tuple(i for i, c in enumerate(order) if c in summed))
        left = [c for c in order if c not in summed]
        product = transpose(product, tuple(left.index(c) for c in op.out))
    return convert(product, dtype)


def _spread(x: Any, labels: str, order: str, full: tuple[int, ...]) -> Any:
    """An operand with all axes, repeated along those that it does not have."""
    mine = [c for c in order if c in labels]
    x = transpose(x, tuple(labels.index(c) for c in mine))
    return broadcast_in_dim(x, full, tuple(order.index(c) for c in mine))


_WIDE = ("int16", "int32", "uint32")


def multiply_bytes(program: Program) -> Program:
    """Replace products of bytes that were converted to wider integers by products of bytes."""

    def rule(new: Rewriter, e: Equation) -> Replacement:
        out = e.outs[0].aval if e.op.kernel_family == "contraction" else None
        if out is None or np.dtype(out.dtype).name not in ("int32", "uint32"):
            return None
        ins = [x for x in (_bytes_of(new, a) for a in e.ins) if x is not None]
        if len(ins) < len(e.ins):
            return None
        op: Any = e.op
        return [new.add(replace(op, dtype=out.dtype), ins, e, out)]

    found = rewrite(program, rule)
    return program if found is program else without_dead_code(found)


def _bytes_of(new: Rewriter, a: Atom) -> Atom | None:
    """The 8-bit integers that an atom was converted from without a change modulo 2**32, or None."""
    made = new.producer(a)
    if made is None or not made.op.only_rounds or a.aval.dtype.name not in _WIDE:
        return None
    source = made.ins[0].aval.dtype
    return made.ins[0] if np.dtype(source).name in ("int8", "uint8") else None
