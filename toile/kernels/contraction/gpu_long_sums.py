"""The pass that divides long sums of products with few rows, so that more blocks share the work.

    x W = x[:, :k] W[:k] + x[:, k:] W[k:]

The time of such a product is that of reading the matrix, which takes a whole GPU. If the matrix has
few columns, there are fewer blocks than multiprocessors, and narrower strips of columns would be
read more slowly. The parts are added by the kernel that uses the result element by element; if
there is none, the product is left as it is.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine.program import Equation, Program
from toile.kernels.contraction.gpu_narrow import BYTES
from toile.kernels.contraction.gpu_vectors import BUSY, MOST_ROWS, STRIP
from toile.primitives.contractions import DotGeneral
from toile.primitives.elementwise import convert
from toile.primitives.families import add
from toile.primitives.shapes import slice_axis
from toile.targets.cuda.launches import blocks_of

LEAST_TERMS = 2048  # of a sum that is divided
FLOAT32 = np.dtype(np.float32)


def divide_long_sums(program: Program) -> Program:
    """Divide the long sums of a Program."""
    stored = {*program.inputs}
    if not any(_is_long(e, stored) for e in program.equations):
        return program
    readers, returned = readers_of(program), {*program.outputs}

    def is_added(x: Any) -> bool:
        """Whether one kernel reads a value, element by element."""
        found = [] if x in returned else readers.get(x, [])
        if len(found) != 1:
            return False
        e = found[0]
        return by_element(e) or (e.op.is_view and is_added(e.outs[0]))

    def rule(new: Rewriter, e: Equation) -> Replacement:
        applies = _is_long(e, stored) and is_added(e.outs[0])
        return [spliced(new, e, _sum_of_halves, e.ins)] if applies else None

    return rewrite(program, rule)


def _is_long(e: Equation, stored: Set[Any]) -> bool:
    """Whether an equation multiplies up to four rows by a `stored` matrix, whose first axes are
    summed, and has too few blocks."""
    op: Any = e.op
    if op.kernel_family != "contraction" or op.combines != "products":
        return False
    x, y = (a.aval for a in e.ins)
    names = {np.dtype(a.dtype).name for a in (x, y, e.outs[0].aval)}
    if len(names) != 1 or not names <= BYTES.keys() or not e.outs[0].aval.size:
        return False
    if e.ins[0 if x.size > y.size else 1] not in stored:
        return False
    size = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    terms = _terms(op, *_sides(op, x, y), size)
    if terms < LEAST_TERMS or size[_sides(op, x, y)[0][0]] % 2:
        return False
    nbytes = max(x.size, y.size) // terms * BYTES[names.pop()]
    return min(x.size, y.size) <= MOST_ROWS * terms and 2 * blocks_of(nbytes, STRIP) <= BUSY


def _terms(op: DotGeneral, matrix: str, vectors: str, size: dict[str, int]) -> int:
    """The terms of a sum over the first axes of a matrix, without a batch; 0: it is none."""
    columns, summed = ([c for c in matrix if (c in vectors) == shared] for shared in (False, True))
    if {*summed} & {*op.out} or matrix != "".join(summed + columns):
        return 0
    return prod(size[c] for c in summed)


def _sides(op: DotGeneral, x: Any, y: Any) -> tuple[str, str]:
    """The labels of the larger operand, and of the other one."""
    return (op.lhs, op.rhs) if x.size > y.size else (op.rhs, op.lhs)


def _sum_of_halves(op: DotGeneral, x: Any, y: Any) -> Any:
    label = _sides(op, x, y)[0][0]
    half = x.shape[op.lhs.index(label)] // 2
    exact = replace(op, dtype=FLOAT32)
    halves = [exact(slice_axis(x, n * half, (n + 1) * half, op.lhs.index(label)),
                         slice_axis(y, n * half, (n + 1) * half, op.rhs.index(label)))
              for n in range(2)]
    return convert(add(*halves), op.dtype or x.dtype)
