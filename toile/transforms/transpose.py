"""Reverse mode: a linear tape or Program read backwards.

`backward` passes cotangents to the transpose rules of the recorded operations, the last one first,
and accumulates them at each value. This module may import the engine, transforms.linearize,
transforms.masks and, for adding cotangents, primitives.families.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval, Zero
from toile.engine.program import Program, derive, evaluate
from toile.engine.trace import state
from toile.primitives.families import add
from toile.transforms.linearize import Entry, LinearTracer, Tape, record_linear
from toile.transforms.masks import fill, merge, nonzero_mask, pick, spread


def backward(tape: Tape, cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the tape's inputs from those of its outputs; symbolic zeros in and out."""
    env: list[Any] = [None] * tape.slots
    trace = tape.inputs[0]._trace if tape.inputs else None
    for o, given in zip(tape.outputs, cts, strict=True):
        if o.__class__ is LinearTracer and o._trace is trace and given.__class__ is not Zero:
            accumulate(env, o.slot, given)
    previous = state.source, state.scope, state.mark
    try:
        for e in reversed(tape.entries):
            if e.__class__ is Entry:
                _send(e, env, trace)
            else:
                e.send(env)
    finally:
        state.source, state.scope, state.mark = previous
    return [Zero(x.aval) if env[x.slot] is None else env[x.slot] for x in tape.inputs]


def accumulate(env: list[Any], slot: int, ct: Any) -> None:
    """Add a cotangent to those accumulated at a value."""
    have = env[slot]
    env[slot] = ct if have is None else add(have, ct)


def _send(e: Entry, env: list[Any], trace: Any) -> None:
    """Transpose one operation and add the results to its linear operands' cotangents."""
    ct = _arrived(e, env)
    if ct is None:
        return
    if e.source is not None:
        state.source, state.scope = e.source.in_backward(), e.scope
    operands: list[Any] = []
    linear: list[Any] = []  # None for other operands
    for a in e.args:
        if a.__class__ is LinearTracer and a._trace is trace:
            operands.append(a.aval)
            linear.append(a)
        else:
            operands.append(a)
            linear.append(None)
    result = e.op.transpose(ct, *operands)
    if result.__class__ is not tuple and result.__class__ is not list:
        linear = [a for a in linear if a is not None][:1]
        result = (result,)
    for a, r in zip(linear, result, strict=True):
        if a is not None and r is not None and r.__class__ is not Zero:
            accumulate(env, a.slot, r)


def _arrived(e: Entry, env: list[Any]) -> Any:
    """Take the cotangents accumulated at the results of an operation; None if there are none."""
    if not e.op.multiple:
        slot = e.outs[0].slot
        ct, env[slot] = env[slot], None
        return ct
    cts = [env[o.slot] for o in e.outs]
    for o in e.outs:
        env[o.slot] = None
    if all(c is None for c in cts):
        return None
    return [Zero(o.aval) if c is None else c for c, o in zip(cts, e.outs, strict=True)]


def transpose_flat(fun: Any, avals: Sequence[Aval], cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the inputs of a linear flat function."""
    _, tape = record_linear(fun, avals)
    return backward(tape, cts)


def backward_program(program: Program, args: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """Transpose a Program at `args`, where linear operands are avals and the others values.

    Returns a cotangent (perhaps a symbolic zero) for each linear operand, None for the others."""
    linear = [type(a) is Aval for a in args]
    known = pick(args, linear, False)
    body = lambda *xs: evaluate(program, merge(linear, xs, known))
    return fill(transpose_flat(body, pick(args, linear), cts), linear)


def transpose_program(program: Program, linear: Sequence[bool],
                      arriving: Sequence[bool]) -> tuple[Program, list[bool]]:
    """Return the Program that maps the nonlinear inputs, and those cotangents for which `arriving`
    is True, to the cotangents of the linear inputs.

    The second result specifies which cotangents of linear inputs are nonzero; only these are
    outputs."""
    key = ("transpose", tuple(linear), tuple(arriving))
    return program.memoized(key, lambda: _transpose_program(program, linear, arriving))


def _transpose_program(program: Program, linear: Sequence[bool],
                       arriving: Sequence[bool]) -> tuple[Program, list[bool]]:
    n = sum(not z for z in linear)
    nonzero: list[bool] = []

    def run(*args: Any) -> list[Any]:
        operands = merge(linear, pick(program.in_avals, linear), args[:n])
        cts = spread(args[n:], arriving, program.out_avals)
        found = pick(backward_program(program, operands, cts), linear)
        nonzero.extend(nonzero_mask(found))
        return pick(found, nonzero)

    avals = pick(program.in_avals, linear, False)
    avals += [a.strip_weak_type() for a in pick(program.out_avals, arriving)]
    return derive(run, avals, f"transpose_{program.name}"), nonzero
