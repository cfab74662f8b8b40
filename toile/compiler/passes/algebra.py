"""Algebraic identities; each operation defines its own (see `primitives.simplification`)."""

from __future__ import annotations

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine.program import Equation, Program


def simplify(program: Program) -> Program:
    """Apply the identities wherever they hold."""
    return rewrite(program, _rule)


def _rule(new: Rewriter, e: Equation) -> Replacement:
    found = e.op.simplified
    return None if found is None else found(new, e)
