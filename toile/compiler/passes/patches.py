"""Sums with small padded arrays become updates in place.

    x + pad(y, low, high) = dynamic_update_slice(x, x[low : low + n] + y, low)

The padded array would be as large as x, and would be stored: loop nests do not read what is padded
along the innermost axis in place. Exact except for the sign of zeros outside the block, where
-0 + 0 is 0 and the update keeps -0.
"""

from __future__ import annotations

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program
from toile.primitives.gathers import DynamicUpdateSlice
from toile.primitives.shapes import Slice

LEAST = 4096  # elements of a sum
SHARE = 4  # the sum has at least so many times the elements of the small array
INT32 = np.dtype(np.int32)


def patch_sums(program: Program) -> Program:
    """The Program with such sums replaced."""
    if all(e.op.margins is None for e in program.equations):
        return program
    readers = readers_of(program)
    shared = {a for a, found in readers.items() if len(found) > 1} | {*program.outputs}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.is_sum or e.outs[0].aval.size < LEAST:
            return None
        for whole, small in (e.ins, e.ins[::-1]):
            made = new.producer(small)
            if made is not None and _is_patch(made) and _is_free(new, whole, shared):
                return [_patched(new, e, whole, made)]
        return None

    return rewrite(program, rule)


def _is_patch(made: Equation) -> bool:
    """Whether an array is a small one, padded with zeros along the innermost axis and others."""
    config = made.op.margins
    if config is None or not config or not _is_zero(made.ins[1]):
        return False
    plain = all(low >= 0 and high >= 0 and not inner for low, high, inner in config)
    small = 0 < made.ins[0].aval.size * SHARE <= made.outs[0].aval.size
    return plain and small and config[-1] != (0, 0, 0)


def _is_free(new: Rewriter, a: Atom, shared: set[Atom]) -> bool:
    """Whether the update can be in place: the array is computed here and read only by the sum."""
    made = new.producer(a)
    return made is not None and a not in shared and made.op.margins is None


def _is_zero(a: Atom) -> bool:
    return isinstance(a, Literal) and not a.val.any()


def _patched(new: Rewriter, e: Equation, whole: Atom, made: Equation) -> Atom:
    """The sum as an update."""
    y = made.ins[0]
    starts = tuple(low for low, _, _ in made.op.margins or ())
    limits = tuple(s + n for s, n in zip(starts, y.aval.shape, strict=True))
    block = new.add(Slice(starts, limits, (1,) * len(starts)), [whole], e)
    update = new.add(e.op, [block, y], e)
    at = [Literal(np.asarray(s, INT32), Aval((), INT32)) for s in starts]
    return new.add(DynamicUpdateSlice(), [whole, update, *at], e, e.outs[0].aval)
