"""Equal inputs of a Program: it needs only one of them.

A layer that converts the same small NumPy array in every call, such as the angles of rotary
embeddings, gives a deep network one array per layer. What is computed from them is computed once if
they are one variable, also in the bodies of loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toile.engine.arrays import DeviceArray
from toile.engine.program import LABELS, Atom, Equation, Literal, Program, Var

MOST_BYTES = 1 << 12  # of an array that is compared with others


def without_inputs(program: Program, same: Mapping[Any, Var]) -> Program:
    """A Program without the inputs that are keys of `same`: it reads their values instead."""

    def get(a: Atom) -> Atom:
        return a if a.__class__ is Literal else same.get(a, a)

    equations = [
        Equation(e.op, [get(a) for a in e.ins], e.outs, e.source, e.scope)
        if any(get(a) is not a for a in e.ins) else e for e in program.equations
    ]
    inputs = [v for v in program.inputs if v not in same]
    return Program(inputs, equations, [get(a) for a in program.outputs], program.name)


def without_equal_constants(
    program: Program, consts: Sequence[Any]
) -> tuple[Program, list[Any]]:
    """A Program whose leading inputs are `consts`, without those that equal an earlier one."""
    same = _same(program.inputs[: len(consts)], consts)
    if not same or not program.memo.keys() <= {LABELS}:  # other notes may count inputs
        return program, list(consts)
    kept = [c for v, c in zip(program.inputs, consts, strict=False) if v not in same]
    new = without_inputs(program, same)
    new.memo, new.hidden = program.memo, len(kept)
    return new, kept


def _same(inputs: Sequence[Var], consts: Sequence[Any]) -> dict[Any, Var]:
    """The variables of later arrays, each with that of the first equal array."""
    alike: dict[Any, list[tuple[Var, Any]]] = {}
    for var, value in zip(inputs, consts, strict=True):
        if isinstance(value, DeviceArray) and var.aval.nbytes <= MOST_BYTES:
            alike.setdefault(value._signature, []).append((var, value))
    found = {}
    for group in alike.values():
        firsts: dict[bytes, Var] = {}
        for var, value in group if len(group) > 1 else ():
            if value.is_deleted():
                continue
            first = firsts.setdefault(value.__array__().tobytes(), var)
            if first is not var:
                found[var] = first
    return found


def given_twice(
    program: Program, operands: Sequence[Atom], where: range
) -> dict[Any, Var]:
    """The inputs, at positions in `where`, whose operand is also that of an earlier one, which they
    are mapped to."""
    firsts: dict[Atom, Var] = {}
    found = {}
    for i in where:
        if operands[i].__class__ is Var:
            first = firsts.setdefault(operands[i], program.inputs[i])
            if first is not program.inputs[i]:
                found[program.inputs[i]] = first
    return found
