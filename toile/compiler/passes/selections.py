"""A choice between two cheap results becomes a selection of elements.

    cond(p, lambda: f(x), lambda: x) = select(p, f(x), x)     if f costs little

On a GPU, a choice is a node of a graph that waits for all others, and starts another graph.
Computing both results and selecting one takes a single kernel, which is fused with its neighbors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite, splice
from toile.compiler.scalar.fusible import by_element
from toile.engine.program import Atom, Equation, Literal, Program
from toile.primitives.bits import Gt
from toile.primitives.elementwise import SelectN

MOST_EQUATIONS = 8  # of both branches together
MOST_BYTES = 16 << 20  # of the results


def select_results(program: Program) -> Program:
    """Replace choices between results that are cheap to compute."""
    if not any(map(_is_cheap, program.equations)):
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        return _selected(new, e) if _is_cheap(e) else None

    return rewrite(program, rule)


def _is_cheap(e: Equation) -> bool:
    """Whether an equation is a choice between two branches that cost little."""
    if not e.op.chooses_program or e.effects:
        return False
    branches: Sequence[Program] = e.op.programs()
    equations = [x for b in branches for x in b.equations]
    return (len(branches) == 2 and len(equations) <= MOST_EQUATIONS
            and sum(o.aval.nbytes for o in e.outs) <= MOST_BYTES
            and all((by_element(x) or x.op.moves_axes) and not x.op.costly for x in equations))


def _selected(new: Rewriter, e: Equation) -> list[Atom]:
    index, *operands = e.ins
    first, second = (splice(b, operands, new.keep, e) for b in e.op.programs())
    which: Any = None
    found: list[Atom] = []
    for out, a, b in zip(e.outs, first, second, strict=True):
        if a is not b:
            if which is None:
                zero = Literal(np.zeros((), index.aval.dtype), index.aval)
                which = new.add(Gt(), [index, zero], e)
            a = new.add(SelectN(), [which, a, b], e, out.aval)
        found.append(a)
    return found
