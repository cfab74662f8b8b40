"""Reverse mode: a linear tape or Program read backwards.

`backward` hands cotangents to the transpose rules of the recorded operations, last one first, and
adds up what arrives at each value. May import the engine, transforms.linearize and, for adding
cotangents, primitives.families.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval, Zero
from toile.engine.program import Program, derive, evaluate
from toile.engine.tracing import state
from toile.primitives.families import add
from toile.transforms.linearize import Entry, LinearTracer, Tape, record_linear


def backward(tape: Tape, cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the tape's inputs from those of its outputs; symbolic zeros in and out."""
    env: list[Any] = [None] * tape.slots
    trace = tape.inputs[0]._trace if tape.inputs else None
    for o, given in zip(tape.outputs, cts, strict=True):
        if o.__class__ is LinearTracer and o._trace is trace and given.__class__ is not Zero:
            have = env[o.slot]
            env[o.slot] = given if have is None else add(have, given)
    previous_source, previous_scope = state.source, state.scope
    try:
        for e in reversed(tape.entries):
            if e.__class__ is Entry:
                _send(e, env, trace)
            else:
                e.send(env)
    finally:
        state.source, state.scope = previous_source, previous_scope
    return [Zero(x.aval) if env[x.slot] is None else env[x.slot] for x in tape.inputs]


def _send(e: Entry, env: list[Any], trace: Any) -> None:
    """Transpose one operation and add the results to its linear operands' cotangents."""
    op, outs, args = e.op, e.outs, e.args
    if op.multiple:
        ct: Any = [env[o.slot] for o in outs]
        if all(c is None for c in ct):
            return
        ct = [Zero(o.aval) if c is None else c for c, o in zip(ct, outs, strict=True)]
        for o in outs:
            env[o.slot] = None
    else:
        slot = outs[0].slot
        ct = env[slot]
        if ct is None:
            return
        env[slot] = None
    if e.source is not None:
        state.source, state.scope = e.source, e.scope
    operands = []
    linear = []
    for a in args:
        if a.__class__ is LinearTracer and a._trace is trace:
            operands.append(a._aval)
            linear.append(a)
        else:
            operands.append(a)
    result = op.transpose(ct, *operands)
    if result.__class__ is not tuple and result.__class__ is not list:
        arrivals = [(linear[0], result)]
    else:
        arrivals = [
            (a, r)
            for a, r in zip(args, result, strict=True)
            if r is not None and a.__class__ is LinearTracer and a._trace is trace
        ]
    for a, r in arrivals:
        if r.__class__ is Zero:
            continue
        have = env[a.slot]
        env[a.slot] = r if have is None else add(have, r)


def transpose_flat(fun: Any, avals: Sequence[Aval], cts: Sequence[Any]) -> list[Any]:
    """Cotangents of the inputs of a linear flat function."""
    _, tape = record_linear(fun, avals)
    return backward(tape, cts)


def backward_program(program: Program, args: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """Transpose a Program at `args`, where linear operands are avals and the others values.

    Returns a cotangent (perhaps a symbolic zero) for each linear operand, None for the others."""
    linear = [type(a) is Aval for a in args]
    avals = [a for a, z in zip(args, linear, strict=True) if z]

    def body(*xs: Any) -> list[Any]:
        moving = iter(xs)
        full = [next(moving) if z else a for a, z in zip(args, linear, strict=True)]
        return evaluate(program, full)

    found = iter(transpose_flat(body, avals, cts))
    return [next(found) if z else None for z in linear]


def transpose_program(
    program: Program, linear: Sequence[bool], arriving: Sequence[bool]
) -> tuple[Program, list[bool]]:
    """The Program (nonlinear inputs, cotangents where `arriving`) -> cotangents of linear inputs.

    The second result says which of the linear inputs' cotangents are not zero: only those are
    outputs."""
    key = ("transpose", tuple(linear), tuple(arriving))
    return program.memoized(key, lambda: _transpose_program(program, linear, arriving))


def _transpose_program(
    program: Program, linear: Sequence[bool], arriving: Sequence[bool]
) -> tuple[Program, list[bool]]:
    n = sum(not z for z in linear)
    nonzero: list[bool] = []

    def run(*args: Any) -> list[Any]:
        known, cts = iter(args[:n]), iter(args[n:])
        operands = [
            a if z else next(known) for a, z in zip(program.in_avals, linear, strict=True)
        ]
        full = [
            next(cts) if c else Zero(o)
            for o, c in zip(program.out_avals, arriving, strict=True)
        ]
        found = [c for c in backward_program(program, operands, full) if c is not None]
        nonzero.extend(c.__class__ is not Zero for c in found)
        return [c for c in found if c.__class__ is not Zero]

    avals = [a for a, z in zip(program.in_avals, linear, strict=True) if not z]
    avals += [
        a.strip_weak_type() for a, c in zip(program.out_avals, arriving, strict=True) if c
    ]
    made = derive(run, avals, f"transpose_{program.name}")
    return made, nonzero
