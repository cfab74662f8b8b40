"""Products of matrices and vectors, many at a time, as multiplications and sums that can be fused.

    einsum("bijd,bjd->bid", x, y) = sum(x * y[:, None], 2)
    einsum("bi,bj->bij", x, y)    = x[:, :, None] * y[:, None]

    einsum("bik,bkj->bij", x, y)  = x[:, :, :1] * y[:, :1] + x[:, :, 1:] * y[:, 1:]  (k < 2)

Such a product reads each number once, or a few times from a cache: its time is that of reading
memory. A library would need copies, or tables of addresses; a loop nest reads the operands in place
and computes what is around it, too. On a CPU, products of bytes are fast. If a program converts
bytes to int32 before a product, the product therefore reads the bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.builder import BFLOAT16, FLOAT16, FLOAT32
from toile.engine.program import Atom, Equation, Program, without_dead_code
from toile.primitives.contractions import DotGeneral
from toile.primitives.elementwise import convert
from toile.primitives.families import (
    add,
    broadcast_in_dim,
    mul,
    reduce_sum,
    reshape,
    transpose,
)
from toile.primitives.shapes import slice_

FEW = 4  # vectors: libraries have tiles for more of them, and leave most of a tile unused
MANY_TERMS = 64  # of each of their sums
LITTLE = 1 << 23  # terms of all sums
LEAST = 257  # multiplications; loops with fewer may run in registers
SHORT = 8  # most terms of a sum that is written out as additions
NARROW = 4  # rows, or columns, of a matrix; nests on CPUs compute many products of such matrices
NUMBERS = frozenset(("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "uint8",
                     "uint16", "uint32"))  # fmt: skip
_WIDE_NUMBERS = frozenset(("float32", "float64", "int32", "uint32"))
_HALVES = frozenset(("float16", "bfloat16"))
_UNMIXED = frozenset(("int32", "uint32", "complex64"))  # types that are not mixed with others
_IN_SHORT_SUMS = _WIDE_NUMBERS | _HALVES | _UNMIXED


def multiply_vectors(program: Program) -> Program:
    """Replace products of many vectors."""
    return _replaced(program, _applies, _multiplied)


def multiply_small_matrices(program: Program) -> Program:
    """Replace products of many small matrices or vectors, as `vmap` makes them, on CPUs: calling a
    kernel for each of them takes longer than their arithmetic."""
    costly = {tuple(sorted(a.aval.shape)) for e in program.equations if e.op.costly for a in e.outs}

    def applies(e: Equation, op: Any = None) -> bool:
        """Whether to write sums out. Costly functions of as many elements may join the nest, and
        are not vectorized in rows of 2 or 3, above all in loops."""
        if e.op.kernel_family != "contraction":
            return False
        shape = e.outs[0].aval.shape
        row = next((n for n in reversed(shape) if n > 1), 0)
        joined = tuple(sorted(shape)) in costly and row < NARROW
        return not joined and _is_short(e, op or e.op)

    program = _replaced(_in_order(program, applies), applies, _written_out)
    return _replaced(program, _is_small, _multiplied)


def _in_order(program: Program, applies: Callable[[Equation, Any], bool]) -> Program:
    """Let products with short sums write results in the order that a transposition gives them."""
    if not any(e.op.kernel_family == "contraction" for e in program.equations):
        return program
    shared = {a for a, found in readers_of(program).items() if len(found) > 1} | {*program.outputs}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        permutes = e.op.is_always_view and hasattr(e.op, "perm")
        made = new.producer(e.ins[0]) if permutes else None
        if made is None or made.op.kernel_family != "contraction" or e.ins[0] in shared:
            return None
        moved: Any = e.op
        was: Any = made.op
        op, out = replace(was, out="".join(was.out[i] for i in moved.perm)), e.outs[0].aval
        return [new.add(op, made.ins, e, out)] if applies(made, op) else None

    found = rewrite(program, rule)
    return program if found is program else without_dead_code(found)


def _replaced(program: Program, applies: Callable[[Equation], bool],
              build: Callable[..., Any]) -> Program:
    if not any(map(applies, program.equations)):
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        return [spliced(new, e, build, e.ins)] if applies(e) else None

    return rewrite(program, rule)


def _sizes(e: Equation) -> dict[str, int] | None:
    """The extents of the axes of a product; None if it is empty, or sums an operand alone."""
    if e.op.kernel_family != "contraction":
        return None
    op: Any = e.op
    x, y = (a.aval for a in e.ins)
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    alone = any((c in op.lhs) + (c in op.rhs) + (c in op.out) < 2 for c in size)
    return None if alone or not (x.size and y.size) else size


def _dtypes(e: Equation) -> set[str]:
    return {np.dtype(a.aval.dtype).name for a in (*e.ins, *e.outs)}


def _applies(e: Equation) -> bool:
    """Whether nothing is summed, or there are many products of which one operand is a vector, or
    there is a small product with a few vectors."""
    size = _sizes(e)
    return size is not None and _dtypes(e) <= NUMBERS and _is_by_memory(
        e.op, size, e.outs[0].aval.size)


def _is_small(e: Equation) -> bool:
    """Whether nothing is summed, or vectors of a few elements are multiplied by rows of as many
    matrices, in a type of which a loop nest on a CPU computes many at a time."""
    if not _applies(e) or np.dtype(e.outs[0].aval.dtype).name not in ("float32", "float64"):
        return False
    op: Any = e.op
    x, y = (a.aval for a in e.ins)
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    if math.prod(size.values()) < LEAST:
        return False
    summed = {c for c, n in size.items() if n > 1 and c not in op.out}
    last = [c for c in (op.lhs if x.size >= y.size else op.rhs) if size[c] > 1][-1]
    free = [any(size[c] > 1 for c in some if c not in other)
            for some, other in ((op.lhs, op.rhs), (op.rhs, op.lhs))]
    return not summed or (
        not all(free) and last in summed and math.prod(size[c] for c in summed) <= SHORT)


def _is_short(e: Equation, op: Any) -> bool:
    """Whether the sums of a product have a few terms, and a loop nest on a CPU computes them faster
    than a kernel for matrices does. The result of `op` may have another order than that of `e`."""
    size, kinds = _sizes(e), _dtypes(e)
    if size is None or not kinds <= _IN_SHORT_SUMS or len(kinds) > 1 and kinds & _UNMIXED:
        return False
    return math.prod(size.values()) >= LEAST and _Short(op, size).is_faster(kinds)


class _Short:
    """A product with short sums: the labels of its axes that have several elements."""

    def __init__(self, op: Any, size: dict[str, int]):
        self.size = size
        self.lhs, self.rhs, self.out = (
            [c for c in some if size[c] > 1] for some in (op.lhs, op.rhs, op.out))
        self.batch = [c for c in self.out if c in op.lhs and c in op.rhs]
        self.rows, self.columns = ([c for c in self.out if c in some and c not in self.batch]
                                   for some in (op.lhs, op.rhs))
        self.terms = math.prod(n for c, n in size.items() if c not in op.out)

    def is_faster(self, kinds: set[str]) -> bool:
        """Whether a loop nest is faster, according to measurements."""
        if not 1 < self.terms <= SHORT:
            return False
        if not (self.rows and self.columns):
            return self.are_vectors()
        if max(self.count(self.rows), self.count(self.columns)) <= NARROW:
            return self.terms <= (NARROW if "complex64" in kinds else SHORT)
        return self.terms <= NARROW and (self.is_by_row(kinds) or self.is_by_point(kinds))

    def count(self, labels: list[str]) -> int:
        return math.prod(self.size[c] for c in labels)

    def are_vectors(self) -> bool:
        """Whether there are many products of vectors, with rows or with a few short columns."""
        free = self.rows or self.columns
        matrix = self.lhs if self.rows else self.rhs
        if not self.batch or self.terms <= NARROW or not free:
            return bool(self.batch)
        if matrix[-1] in free:
            return self.count(free) <= 2 * NARROW
        return matrix[-1] in self.batch or matrix[0] in self.batch

    def is_by_row(self, kinds: set[str]) -> bool:
        """Whether a few rows of the result are sums of a few rows of an operand."""
        if kinds & _HALVES or "float64" in kinds and not self.batch:
            return False
        few, many, whole = self.rows, self.columns, self.rhs
        if self.out[-1] in few:
            few, many, whole = many, few, self.lhs
        return (self.out == self.batch + few + many and self.out[-1] == whole[-1]
                and self.count(few) <= NARROW and self.count(few) * self.terms <= 3 * NARROW)

    def is_by_point(self, kinds: set[str]) -> bool:
        """Whether there are many points, which one matrix or a few take to a few numbers each."""
        if "complex64" in kinds:
            return False
        own = self.lhs if self.out[-1] in self.rows else self.rhs
        inner = len(self.out)
        while inner and self.out[inner - 1] not in self.batch and self._is_narrow(inner - 1):
            inner -= 1
        points, results = self.out[:inner], self.out[inner:]
        if not points or self.out[-1] != own[-1]:
            return False
        if not any(some[:inner] == points for some in (self.lhs, self.rhs)):
            return False
        if not self.batch:
            return True
        few = max(self.terms, self.count(results)) < NARROW
        return few and kinds <= _WIDE_NUMBERS and points[-1] in self.batch

    def _is_narrow(self, inner: int) -> bool:
        """Whether the axes of the result from `inner` on have a few rows and columns."""
        return all(self.count([c for c in self.out[inner:] if c in some]) <= NARROW
                   for some in (self.rows, self.columns))


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


def _written_out(op: DotGeneral, x: Any, y: Any) -> Any:
    """A short sum, term by term."""
    dtype = np.dtype(op.dtype or x.dtype)
    work = FLOAT32 if dtype in (BFLOAT16, FLOAT16) else dtype
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    summed = [c for c in size if c not in op.out]
    full = tuple(size[c] for c in op.out)
    total = None
    for place in itertools.product(*(range(size[c]) for c in summed)):
        at = dict(zip(summed, place, strict=True))
        term = mul(*(_spread(convert(_part(a, labels, at), work),
                             "".join(c for c in labels if c not in at), op.out, full)
                     for a, labels in ((x, op.lhs), (y, op.rhs))))
        total = term if total is None else add(total, term)
    return convert(total, dtype)


def _part(x: Any, labels: str, at: dict[str, int]) -> Any:
    """The part of an operand at one place of some axes, which it loses."""
    starts = [at.get(c, 0) for c in labels]
    limits = [at[c] + 1 if c in at else n for c, n in zip(labels, x.shape, strict=True)]
    left = tuple(n for c, n in zip(labels, x.shape, strict=True) if c not in at)
    return reshape(slice_(x, starts, limits), left)


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
