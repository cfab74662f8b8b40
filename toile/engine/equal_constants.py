"""Equal arrays that a jitted function closes over: the Program needs only one of them.

A layer that converts the same small NumPy array in every call, such as the angles of rotary
embeddings, gives a deep network one array per layer. What is computed from them is computed once if
they are one variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.arrays import DeviceArray
from toile.engine.program import LABELS, Equation, Literal, Program, Var

MOST_BYTES = 1 << 12  # of an array that is compared with others


def without_equal_constants(
    program: Program, consts: Sequence[Any]
) -> tuple[Program, list[Any]]:
    """A Program whose leading inputs are `consts`, without those that equal an earlier one."""
    found = _replaced(program.inputs[: len(consts)], consts)
    if not found or not program.memo.keys() <= {LABELS}:  # other notes may count inputs
        return program, list(consts)

    def get(a: Any) -> Any:
        return a if a.__class__ is Literal else found.get(a, a)

    equations = [
        Equation(e.op, [get(a) for a in e.ins], e.outs, e.source, e.scope)
        if any(get(a) is not a for a in e.ins) else e for e in program.equations
    ]
    kept = [(v, c) for v, c in zip(program.inputs, consts, strict=False) if v not in found]
    inputs = [*(v for v, _ in kept), *program.inputs[len(consts):]]
    new = Program(inputs, equations, [get(a) for a in program.outputs], program.name)
    new.memo, new.hidden = program.memo, len(kept)
    return new, [c for _, c in kept]


def _replaced(inputs: Sequence[Var], consts: Sequence[Any]) -> dict[Any, Var]:
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
