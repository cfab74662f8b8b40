"""Sums with small padded arrays become updates in place.

    x + pad(y, low, high) = dynamic_update_slice(x, x[low : low + n] + y, low)

The padded array would be as large as x, and would be stored unless a loop nest computes the sum and
can read the small array in place. This is exact except for the sign of zeros outside the block,
where -0 + 0 is 0 but the update keeps -0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, is_zero, readers_of, rewrite
from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program, without_dead_code
from toile.primitives.dynamic_slices import DynamicUpdateSlice
from toile.primitives.shapes import Slice

LEAST = 4096  # elements of a sum
SHARE = 4  # the sum has at least this many times the elements of the small array
INT32 = np.dtype(np.int32)


def patch_sums(program: Program, can_fuse: Callable[[Equation], bool]) -> Program:
    """The Program with such sums replaced; `can_fuse(e)`: whether a loop nest can compute `e`."""
    if all(e.op.margins is None for e in program.equations):
        return program
    readers = readers_of(program)
    shared = {a for a, found in readers.items() if len(found) > 1} | {*program.outputs}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.is_sum or e.outs[0].aval.size < LEAST:
            return None
        for whole, small in (e.ins, e.ins[::-1]):
            made, into = new.producer(small), new.producer(whole)
            if made is None or into is None or whole in shared or not _is_patch(made):
                continue
            in_nest = can_fuse(made) and (can_fuse(into) or into.op.is_view)
            if into.op.margins is None and not in_nest:
                return [_patched(new, e, whole, made)]
        return None

    return without_dead_code(rewrite(program, rule))


def _is_patch(made: Equation) -> bool:
    """Whether an array is a small one, padded with zeros."""
    config = made.op.margins
    if config is None or not config or not is_zero(made.ins[1]):
        return False
    plain = all(low >= 0 and high >= 0 and not inner for low, high, inner in config)
    small = 0 < made.ins[0].aval.size * SHARE <= made.outs[0].aval.size
    return plain and small


def _patched(new: Rewriter, e: Equation, whole: Atom, made: Equation) -> Atom:
    """The sum as an update."""
    y = made.ins[0]
    starts = tuple(low for low, _, _ in made.op.margins or ())
    limits = tuple(s + n for s, n in zip(starts, y.aval.shape, strict=True))
    block = new.add(Slice(starts, limits, (1,) * len(starts)), [whole], e)
    update = new.add(e.op, [block, y], e)
    at = [Literal(np.asarray(s, INT32), Aval((), INT32)) for s in starts]
    return new.add(DynamicUpdateSlice(), [whole, update, *at], e, e.outs[0].aval)
