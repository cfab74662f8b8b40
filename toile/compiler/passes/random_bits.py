"""Random keys become arrays of numbers, and random bits become integer arithmetic.

`lower_random` writes threefry2x32 as an elementwise operation on words, which fuses with the code
that uses the bits; keys are unwrapped before it and wrapped after it. `physical_keys` then gives
every key variable, here and in the Programs that operations carry, the type of its uint32 buffer
with one more axis: later passes see no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite, splice
from toile.control.call import Call
from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Atom, Equation, Program, Var, derive
from toile.engine.records import dataclass
from toile.primitives.random import RandomUnwrap, RandomWrap
from toile.primitives.threefry_words import WORDS

_UINT32 = np.dtype(np.uint32)

Build = Callable[..., Any]  # called with an operation and traced values


# ------------------------------------------------------------------------- equations of a function


@lru_cache(maxsize=1024)
def _derived(build: Build, op: Operation, avals: tuple[Aval, ...]) -> Program:
    """The Program of build(op, *xs); cached."""
    return derive(lambda *xs: [build(op, *xs)], list(avals), op.name)


def spliced(new: Rewriter, e: Equation, build: Build, ins: Sequence[Atom]) -> Atom:
    """Add the equations of build(op, *ins) and return its result."""
    program = _derived(build, e.op, tuple(a.aval for a in ins))
    return splice(program, ins, new.keep, e)[0]


# ------------------------------------------------------------------------------------ lower_random


def lower_random(program: Program) -> Program:
    """Write random operations on threefry keys as integer arithmetic that gives the same bits."""
    if all(e.op.hash_words is None for e in program.equations):
        return program
    return rewrite(program, _random_rule)


def _random_rule(new: Rewriter, e: Equation) -> Replacement:
    if e.op.hash_words is None:
        return None
    keys = next((a.aval for a in (*e.ins, e.outs[0]) if _is_key(a)), None)  # None if all are words
    if keys is not None and dtypes.key_words(keys.dtype) != WORDS:
        return None
    ins = [_unwrapped(new, e, a) if _is_key(a) else a for a in e.ins]
    result = spliced(new, e, e.op.__class__.hash_words, ins)
    if keys is None or not _is_key(e.outs[0]):
        return [result]
    return [new.add(RandomWrap(keys.dtype), [result], e, e.outs[0].aval)]


def _unwrapped(new: Rewriter, e: Equation, keys: Atom) -> Atom:
    """The words of keys; if the keys were just wrapped, the words they were wrapped from."""
    made = new.producer(keys)
    if made is not None and made.op.retypes_keys:
        return made.ins[0]
    return new.add(RandomUnwrap(), [keys], e, physical_aval(keys.aval))


# ----------------------------------------------------------------------------------- physical_keys


def physical_aval(aval: Aval) -> Aval:
    """The aval of the buffer behind an array: keys are uint32 words along a new last axis."""
    if not dtypes.is_extended(aval.dtype):
        return aval
    return Aval((*aval.shape, dtypes.key_words(aval.dtype)), _UINT32)


def physical_keys(program: Program) -> Program:
    """The Program on the buffers of its keys, so that no variable has an extended dtype."""
    return program.memoized("physical_keys", lambda: _physical(lower_random(program)))


def _has_keys(program: Program) -> bool:
    """Whether a Program has keys; most have none and are left unchanged."""
    if any(map(_is_key, program.inputs)):
        return True
    for e in program.equations:
        op = e.op
        if op.retypes_keys or not op.interned and _carrying_physical(op) is not op:
            return True
        if any(map(_is_key, e.outs)):
            return True
    return False


def _physical(program: Program) -> Program:
    if not _has_keys(program):
        return program
    new = _Keyless(program)
    for e in program.equations:
        new.take(e)
    inputs = [new.variable(v) for v in program.inputs]
    return Program(inputs, new.equations, new.finish().outputs, program.name)


def _is_key(a: Atom) -> bool:
    return dtypes.is_extended(a.aval.dtype)


class _Keyless(Rewriter):
    """The equations on buffers, and the replacements of the variables of the old Program."""

    __slots__ = ()

    def variable(self, v: Var) -> Var:
        """The replacement of an input or result variable."""
        found = self.atom(v)
        assert isinstance(found, Var)
        return found

    def atom(self, a: Atom) -> Atom:
        """The replacement of an atom: for keys, the variable of their buffer."""
        if a.__class__ is not Var:
            return a
        found = self.env.get(a)
        if found is None:
            found = Var(physical_aval(a.aval)) if _is_key(a) else a
            self.env[a] = found
        return found

    def take(self, e: Equation) -> None:
        """Rewrite one equation of the old Program."""
        if e.op.retypes_keys:
            self.env[e.outs[0]] = self.atom(e.ins[0])
            return
        ins = [self.atom(a) for a in e.ins]
        op = _carrying_physical(e.op)
        if not any(map(_is_key, [*e.ins, *e.outs])):
            self.keep(Equation(op, ins, [self.variable(o) for o in e.outs], e.source, e.scope))
            return
        if e.op.on_words is not None:
            self.env[e.outs[0]] = spliced(self, e, e.op.__class__.on_words, ins)
            return
        if op is e.op:
            op = _on_buffers(e)
        self.keep(Equation(op, ins, [self.variable(o) for o in e.outs], e.source, e.scope))


def _carrying_physical(op: Operation) -> Operation:
    """An operation whose inner Programs have been rewritten to use buffers."""
    if op.interned:
        return op
    if not is_dataclass(op):  # a call of a function with its own derivative, or a user's operation
        return _physical_call(op) if op.is_inlined else op
    changes: dict[str, Any] = {}
    for field in fields(op):
        value = getattr(op, field.name)
        after = _physical_field(value)
        if after is not value:
            changes[field.name] = after
    return replace(op, **changes) if changes else op


def _physical_call(op: Any) -> Operation:
    (before,) = op.programs()
    program = physical_keys(before)
    return op if program is before else Call(program)


def _physical_field(value: Any) -> Any:
    if isinstance(value, Program):
        return physical_keys(value)
    if isinstance(value, Operation):
        return _carrying_physical(value)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        after = tuple(_physical_field(v) for v in value)
        return value if all(a is b for a, b in zip(after, value, strict=True)) else after
    return value


def _on_buffers(e: Equation) -> Operation:
    """The operation on buffers, wrapped in OnBuffers if it cannot infer their shapes."""
    avals = [a.aval for a in e.ins]
    wanted = [physical_aval(o.aval) for o in e.outs]
    if any(_is_key(a) for a in e.ins):
        op = e.op.physical(*avals)
        try:
            found = infer_list(op, [physical_aval(a) for a in avals])
        except Exception:  # the rule of an operation that expects keys may raise anything
            found = []
        if [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in wanted]:
            return op
    return OnBuffers(e.op, tuple(avals))


@dataclass(frozen=True)
class OnBuffers(Operation):
    """An operation that has keys among its operands or results, applied to their buffers."""

    op: Operation
    avals: tuple[Aval, ...]
    interned = False

    @property
    def multiple(self) -> bool:
        return self.op.multiple

    @property
    def effects(self) -> frozenset[str]:
        return self.op.effects

    @property
    def axis_names(self) -> tuple[Any, ...]:
        return self.op.axis_names

    def infer(self, *avals: Aval) -> Any:
        found = [physical_aval(a) for a in infer_list(self.op, self.avals)]
        return found if self.op.multiple else found[0]

    def eager(self, xp: Any, *xs: Any) -> Any:
        keyed = any(dtypes.is_extended(a.dtype) for a in self.avals)
        return (self.op.physical(*self.avals) if keyed else self.op).eager(xp, *xs)

    def __str__(self) -> str:
        return str(self.op)
