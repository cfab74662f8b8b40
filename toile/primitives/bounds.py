"""Checks of indices: `CheckIndex` returns its operand, and reports values that are out of bounds.

Functions that take indices apply `bounded` to them unless the user chose a mode. Outside jit, the
check is made at once. In a Program it is an equation that transformations treat as the operand
itself, so that derivatives, which use the same indices, do not check them again; the compiler
replaces it by a test (`compiler.index_tests`). This module may import the engine and primitives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.out_of_bounds import Bounds, outside
from toile.engine.platform_registry import platform_of
from toile.engine.program import Equation, Program
from toile.engine.records import dataclass
from toile.engine.sharded import Sharded, ShardedArray
from toile.engine.trace import state
from toile.primitives import division, rules, simplification


@dataclass(frozen=True, eq=False)
class CheckIndex(Operation):
    """The operand, an array of integers that should be within bounds."""

    bounds: Bounds
    interned = False
    handles_zeros = True
    is_identity = True
    forwards_operand = True
    divide = division.by_element
    key_use = key_uses.keeps
    simplified = simplification.operand
    with_index_tests = rules.frame_rule("index")

    def __call__(self, *args: Any) -> Any:
        trace = state.trace
        if trace is not None and not trace.at_once:
            return trace.process(self, args)
        (x,) = args
        if x.__class__ is DeviceArray:
            self.bounds.check(x._data)
        elif isinstance(x, (np.ndarray, np.generic)):
            self.bounds.check(np.asarray(x))
        elif isinstance(x, Sharded):
            if isinstance(x, ShardedArray) and x.is_fully_addressable:  # on the host
                self.bounds.check(np.asarray(x))
        else:
            platform = platform_of(x._data)
            if platform is not None:
                platform.check_indices(x, self.bounds)
        return x

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        if xp is np:
            self.bounds.check(x)
        return x

    def lower(self, k: Any, x: Any) -> Any:
        return x

    jvp = rules.no_derivative
    vmap = rules.mapped_in_place
    physical = rules.itself


def bounded(index: Any, low: int, high: int, name: str, tell: Callable[[int], str]) -> Any:
    """`index`, an array of integers, with a check that its values are in `low ... high`.

    `name` is the operation that uses it, and `tell(i)` the message for a bad value `i`. Nothing is
    checked if no value is in bounds, because such operations have their own errors."""
    if not low <= 0 <= high or not index.size:
        return index
    limits = dtypes.iinfo(index.dtype)
    if low <= int(limits.min) and int(limits.max) <= high:
        return index
    data = index if index.__class__ is np.ndarray else None
    if index.__class__ is DeviceArray:
        data = index._data
    if data is None:
        return CheckIndex(Bounds(low, high, name, tell))(index)
    found = outside(data, low, high)
    if found is not None:
        Bounds(low, high, name, tell).report(found)
    return index


def has_checks(program: Program) -> bool:
    """Whether an equation of a Program, or of a Program inside it, checks indices."""
    return program.memoized("has_checks", lambda: (any(
        checks(e.op) for e in program.equations),))[0]


def checks(op: Operation) -> bool:
    """Whether an operation, or a Program that it carries, checks indices."""
    return op.__class__ is CheckIndex or any(map(has_checks, op.programs()))


def unchecked(program: Program) -> Program:
    """The Program without checks of indices, for code that also runs where its results are not
    needed."""
    return program.memoized("unchecked", lambda: _unchecked(program))


def _unchecked(program: Program) -> Program:
    if not has_checks(program):
        return program
    env: dict[Any, Any] = {}
    equations = []
    for e in program.equations:
        ins = [env.get(a, a) for a in e.ins]
        if e.op.__class__ is CheckIndex:
            env[e.outs[0]] = ins[0]
        else:
            equations.append(Equation(without_checks(e.op), ins, e.outs, e.source, e.scope))
    outputs = [env.get(o, o) for o in program.outputs]
    made = Program(program.inputs, equations, outputs, program.name)
    made.hidden = program.hidden
    return made


def without_checks(op: Operation) -> Operation:
    """The operation with `unchecked` Programs in its fields."""
    if not any(map(has_checks, op.programs())) or not dataclasses.is_dataclass(op):
        return op
    new: dict[str, Any] = {}
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if isinstance(value, Program):
            new[field.name] = unchecked(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Program):
            new[field.name] = tuple([unchecked(p) for p in value])
    return dataclasses.replace(op, **new)
