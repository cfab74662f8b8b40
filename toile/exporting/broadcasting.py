"""Finds broadcasts that need not be written, because the target broadcasts operands itself."""

from __future__ import annotations

from typing import Any

from toile.engine.program import Equation, Program, Var
from toile.primitives.choices import SelectN
from toile.primitives.families import BroadcastInDim, Elementwise


def implied_broadcasts(program: Program, within_modules: bool = True) -> set[Var]:
    """Find results of broadcasts that are read only by elementwise operations with a full operand.

    `within_modules`: both operations must belong to the same module."""
    made: dict[Any, Equation] = {
        e.outs[0]: e for e in program.equations
        if isinstance(e.op, BroadcastInDim) and e.ins[0].aval.ndim}
    refused: set[Any] = {o for o in program.outputs if isinstance(o, Var)}
    for e in program.equations:
        arrays = [a for a in e.ins if a.aval.ndim]
        full = [a for a in arrays if a not in made]
        for a in arrays:
            home = made.get(a)
            inside = home is not None and (home.scope == e.scope or not within_modules)
            if not (inside and full and isinstance(e.op, (Elementwise, SelectN))):
                refused.add(a)
    return {v for v in made if v not in refused}
