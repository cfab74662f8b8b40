"""Common subexpressions: equations that compute the same thing are merged.

Loops and branches get each constant once, so that their bodies can be simplified, too."""

from __future__ import annotations

from typing import Any

from toile.compiler.passes.rewriter import Replacement, Rewriter, literal_key, rewrite
from toile.engine.program import Equation, Literal, Program


def merge_common(program: Program) -> Program:
    """Of equations with equal operations and operands, keep the first."""
    seen: dict[Any, Equation] = {}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if e.effects or e.op.is_distinct or getattr(e.op, "prevent_cse", False):
            return None
        try:
            key = (e.op, *[literal_key(a) if a.__class__ is Literal else a for a in e.ins])
            first = seen.setdefault(key, e)
        except TypeError:  # an operation with parameters that cannot be hashed
            return None
        return None if first is e else first.outs

    return rewrite(program, rule)


def share_operands(program: Program) -> Program:
    """Give loops and branches the constants that are given twice only once."""
    equations = []
    for e in program.equations:
        found = e.op.without_duplicates and e.op.without_duplicates(e.ins)
        if found:
            op, ins = found
            e = Equation(op, ins, e.outs, e.source, e.scope)
        equations.append(e)
    if all(a is b for a, b in zip(equations, program.equations, strict=True)):
        return program
    return Program(program.inputs, equations, program.outputs, program.name)
