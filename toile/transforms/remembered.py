"""Eager reverse mode that differentiates an operation once for all operands of the same types.

For small arrays, differentiating an operation takes several times as long as computing it: the rule
of the operation is run, and each linear operation that the rule creates is inferred, recorded and
later transposed. All of this work depends only on the types of the operands. After an operation has
occurred a few times, a `GradTrace` does the work once, on a Program that consists of this
operation, and caches two plain functions of NumPy arrays. One returns the result and the residuals,
and the other returns the cotangents. They run the same rules in the same order, so results are
bit-for-bit identical. Under other traces, or if operands are not plain arrays, `JVPTrace` is used.
This module may import the engine and the other transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine import config
from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval
from toile.engine.config import flags
from toile.engine.conversion import as_array
from toile.engine.operation import Operation
from toile.engine.platform_registry import registry
from toile.engine.program import Literal, Program, Var, derive, evaluate
from toile.engine.trace import state
from toile.transforms.jvp import JVPTrace, JVPTracer, jvp_program
from toile.transforms.linearize import (
    LinearTrace,
    LinearTracer,
    Tape,
    linearize_flat,
    split_program,
)
from toile.transforms.transpose import accumulate, transpose_program

OFTEN = 3  # occurrences of an operation before its derivative is cached
MOST = 4096  # cached derivatives at most, for each setting of the flags
MOST_TABLES = 16

ndarray = np.ndarray


class Derivative(NamedTuple):
    """An operation and its reverse, for operands of certain types, some of them differentiated."""

    forward: Callable[..., tuple[Any, tuple[Any, ...]]]  # operands -> result, residuals
    backward: Callable[..., tuple[Any, ...]]  # residuals, cotangent -> cotangents
    program: Program  # what `backward` does
    arriving: tuple[int, ...]  # the operands that `backward` returns cotangents for
    tangent: Aval
    op: Operation
    operand: tuple[int, ...]  # the shape of the first differentiated operand


class Remembered:
    """An entry of a tape: what one operation saves for the backward pass."""

    __slots__ = ("derivative", "residuals", "slots", "slot")

    def __init__(self, derivative: Derivative, residuals: tuple[Any, ...], slots: list[int],
                 slot: int):
        self.derivative, self.residuals = derivative, residuals
        self.slots, self.slot = slots, slot  # of differentiated operands, of the result

    def send(self, env: list[Any]) -> None:
        """Add the cotangents of the operands to those accumulated so far."""
        ct = env[self.slot]
        if ct is None:
            return
        env[self.slot] = None
        found = self.derivative
        if ct.__class__ is DeviceArray and state.trace is None:
            raws = state.quiet(found.backward, *self.residuals, ct._data)
            arrived = [DeviceArray(c, False) for c in raws]
        else:
            arrived = evaluate(found.program, [*map(DeviceArray, self.residuals), ct])
        for i, c in zip(found.arriving, arrived, strict=True):
            accumulate(env, self.slots[i], c)


# By flags, then by operation and types: a count, later a Derivative or None (unsuitable).
_tables: dict[tuple[Any, ...], dict[Any, Any]] = {}


class GradTrace(JVPTrace):
    """Forward mode that records on a tape, with no other trace around it."""

    __slots__ = ("flags", "table")
    parent: LinearTrace

    def __init__(self, tape: LinearTrace):
        super().__init__(tape)
        self.flags: Any = None
        self.table: dict[Any, Any] = {}

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        raws: list[Any] = []
        slots: list[int] = []
        key: list[Any] = [op]
        tape = self.parent
        for a in args:
            if a.__class__ is JVPTracer and a._trace is self:
                tangent = a.tangent
                if tangent.__class__ is not LinearTracer or tangent._trace is not tape:
                    return JVPTrace.process(self, op, args)
                a = a.primal
                slots.append(tangent.slot)
                key.append(True)
            else:
                key.append(False)
            if a.__class__ is not DeviceArray or a.weak_type:
                return JVPTrace.process(self, op, args)
            data = a._data
            raws.append(data)
            key.append(data.shape)
            key.append(data.dtype)
        if not slots or registry.active or flags.default_device is not None:
            return JVPTrace.process(self, op, args)
        found = self._derivative(op, tuple(key))
        if found is None:
            return JVPTrace.process(self, op, args)
        out, residuals = state.quiet(found.forward, *raws)
        slot = tape.slots
        tape.slots = slot + 1
        tape.entries.append(Remembered(found, residuals, slots, slot))
        return JVPTracer(self, DeviceArray(out, False), LinearTracer(tape, found.tangent, slot))

    def _derivative(self, op: Operation, key: tuple[Any, ...]) -> Derivative | None:
        """The cached derivative of an operation; None if there is none (yet)."""
        values = config.trace_context()
        if values is not self.flags:
            if len(_tables) >= MOST_TABLES:
                _tables.clear()
            self.flags, self.table = values, _tables.setdefault(values, {})
        table = self.table
        found = table.get(key, 0)
        if found.__class__ is not int:
            return found
        if len(table) >= MOST:
            table.clear()
        if found + 1 < OFTEN:
            table[key] = found + 1
            return None
        state.trace = None
        try:
            table[key] = made = _made(op, key)
        finally:
            state.trace = self
        return made


# ----------------------------------------------------------------------------- making derivatives


def _made(op: Operation, key: tuple[Any, ...]) -> Derivative | None:
    """The derivative of an operation; None if it cannot be two functions of plain arrays."""
    if not _is_plain(op) or hasattr(op, "split") or not op.interned:
        return None
    moving = key[1::3]
    avals = [Aval(s, d) for s, d in zip(key[2::3], key[3::3], strict=True)]
    try:
        whole = derive(lambda *xs: [op(*xs)], avals, op.name)
        both, tangents = jvp_program(whole, moving)
        if tangents != [True]:
            return None
        n = len(avals)
        split = split_program(both, [i >= n for i in range(len(both.inputs))])
        if split.is_linear != [False, True]:
            return None
        residuals = len(split.residuals)
        linear = [i >= residuals for i in range(len(split.linear.inputs))]
        back, nonzero = transpose_program(split.linear, linear, [True])
    except Exception:
        return None  # the general path raises the error in the user's terms
    if not (_has_plain_equations(split.known) and _has_plain_equations(back)):
        return None
    places = [i for i, m in enumerate(nonzero) if m]
    tangent = split.linear.outputs[0].aval
    if tangent.weak_type or not places:
        return None
    operand = avals[moving.index(True)].shape
    functions = _forward(split), _function(back, "backward")
    return Derivative(*functions, back, tuple(places), tangent, op, operand)


def _is_plain(op: Operation) -> bool:
    """Whether it has one result, whose type follows from the operands' buffers."""
    return not (op.multiple or op.makes_weak or op.effects)


def _has_plain_equations(program: Program) -> bool:
    return all(_is_plain(e.op) and not any(a.aval.weak_type for a in (e.outs[0], *e.ins))
               for e in program.equations) and all(o.__class__ is Var for o in program.outputs)


def _forward(split: Any) -> Callable[..., Any]:
    """The function that maps the operands to (result, residuals)."""
    known: Program = split.known
    names, lines, env = _lines(known)
    saved = iter(known.outputs[1:])
    residuals = [names[next(saved)] if f is None else f"x{f}" for f in split.forwarded]
    inside = "".join(r + ", " for r in residuals)
    lines.append(f"return {names[known.outputs[0]]}, ({inside})")
    return _compiled("forward", len(known.inputs), lines, env)


def _function(program: Program, name: str) -> Callable[..., Any]:
    names, lines, env = _lines(program)
    lines.append(f"return ({''.join(names[o] + ', ' for o in program.outputs)})")
    return _compiled(name, len(program.inputs), lines, env)


def _lines(program: Program) -> tuple[dict[Any, str], list[str], dict[str, Any]]:
    """Names of the variables, a line of Python for each equation, and the objects they use."""
    names: dict[Any, str] = {v: f"x{i}" for i, v in enumerate(program.inputs)}
    env: dict[str, Any] = {"np": np, "ndarray": ndarray, "asarray": np.asarray}
    lines = []
    for i, e in enumerate(program.equations):
        env[f"rule{i}"] = e.op.eager
        ins = []
        for j, a in enumerate(e.ins):
            if isinstance(a, Literal):
                env[f"c{i}_{j}"] = as_array(a.value())._data
                ins.append(f"c{i}_{j}")
            else:
                ins.append(names[a])
        out = names[e.outs[0]] = f"v{i}"
        lines.append(f"{out} = rule{i}(np, {', '.join(ins)})")
        lines.append(f"if {out}.__class__ is not ndarray: {out} = asarray({out})")
    return names, lines, env


def _compiled(name: str, inputs: int, lines: list[str], env: dict[str, Any]) -> Callable[..., Any]:
    head = f"def {name}({', '.join(f'x{i}' for i in range(inputs))}):\n "
    exec(head + "\n ".join(lines), env)
    return env[name]


# -------------------------------------------------------------------------------------- the tape


def grad_tape(fun: Callable[..., Sequence[Any]], primals: Sequence[Any],
              moving: Sequence[bool]) -> tuple[list[Any], Tape]:
    """Results of a flat function and a tape that only `transpose.backward` can read."""
    alone = state.trace is None
    return linearize_flat(fun, primals, moving, GradTrace if alone else JVPTrace)
