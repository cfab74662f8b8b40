"""Checks Programs: every variable is defined once, before its use, with the inferred aval."""

from __future__ import annotations

from toile.engine.operation import infer_list
from toile.engine.program import Literal, Program, Var


class MalformedProgramError(AssertionError):
    """A pass produced an invalid Program."""


def verify(program: Program) -> None:
    """Raise if the Program is not well formed."""
    known: set[Var] = set()

    def define(v: Var, what: str) -> None:
        if v in known:
            raise MalformedProgramError(f"{program.name}: {what} defines {v} a second time")
        known.add(v)

    for v in program.inputs:
        define(v, "an input")
    for e in program.equations:
        for a in e.ins:
            if a.__class__ is not Literal and a not in known:
                raise MalformedProgramError(f"{program.name}: {e.op} uses {a}, which is undefined")
        avals = infer_list(e.op, [a.aval for a in e.ins])
        for o, aval in zip(e.outs, avals, strict=True):
            define(o, str(e.op))
            if (o.aval.shape, o.aval.dtype) != (aval.shape, aval.dtype):
                raise MalformedProgramError(
                    f"{program.name}: {e.op} gives {aval.short()}, its result says {o.aval.short()}"
                )
    for a in program.outputs:
        if a.__class__ is not Literal and a not in known:
            raise MalformedProgramError(f"{program.name}: the output {a} is undefined")
