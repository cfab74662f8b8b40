"""Operands that are represented by their parts, so that products can use the parts.

In a function that a `RepresentedTrace` runs, the results of some operations are tracers that hold
the parts from which the numbers are computed. Subclasses define how products with these tracers are
computed; all other operations use the numbers. This module may import the engine and
primitives.families.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Program, derive, evaluate
from toile.engine.trace import Trace, Tracer, opened, state
from toile.engine.trees import flatten, unflatten


class RepresentedTracer(Tracer):
    """An array that is represented by parts, which have the members `aval` and `dense()`."""

    __slots__ = ("parts",)

    def __init__(self, trace: Trace, parts: Any):
        self._trace, self.parts = trace, parts

    @property
    def aval(self) -> Aval:
        """The shape and dtype of the represented numbers."""
        return self.parts.aval


class RepresentedTrace(Trace):
    """Runs operations in the parent trace; operations on tracers with parts may be replaced."""

    __slots__ = ()
    title: ClassVar[str]  # under which transformed Programs are stored

    @classmethod
    def starts(cls, op: Operation) -> bool:
        """Whether an operation computes numbers from parts."""
        raise NotImplementedError

    def parts_of(self, op: Any, args: Sequence[Any]) -> Any:
        """The parts that represent the result of an operation."""
        raise NotImplementedError

    def replaced(self, op: Any, args: Sequence[Any], mine: Sequence[bool]) -> Any:
        """Apply an operation to parts; None if it needs the numbers."""
        raise NotImplementedError

    def value(self, x: Any) -> Any:
        """Return the value that the parent trace uses."""
        return x.parts.dense() if self.owns(x) else x

    def owns(self, x: Any) -> bool:
        """Whether a value is represented by parts in this trace."""
        return x.__class__ is RepresentedTracer and x._trace is self

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        mine = [self.owns(x) for x in args]
        state.trace = self.parent
        try:
            if self.starts(op) and not any(mine):
                return RepresentedTracer(self, self.parts_of(op, args))
            if any(mine):
                found = self.replaced(op, args, mine)
                if found is not None:
                    return found
            if op.carries_programs:
                op = self._with_programs(op)
            return op(*map(self.value, args))
        finally:
            state.trace = self

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        state.trace = self.parent
        try:
            return call(*map(self.value, args))
        finally:
            state.trace = self

    process_custom_vjp = process_custom_jvp

    @classmethod
    def _with_programs(cls, op: Any) -> Any:
        """A loop, a branch or a call, whose Programs are transformed too."""
        if not any(map(cls._concerns, op.programs())):
            return op
        changed: dict[str, Any] = {}
        for field in fields(op):
            value = getattr(op, field.name)
            if isinstance(value, Program):
                changed[field.name] = cls._transformed(value)
            elif isinstance(value, tuple) and value and all(isinstance(p, Program) for p in value):
                changed[field.name] = tuple(map(cls._transformed, value))
        return replace(op, **changed)

    @classmethod
    def _concerns(cls, program: Program) -> bool:
        """Whether a Program, or a Program inside it, computes numbers from parts."""
        return any(cls.starts(e.op) or any(map(cls._concerns, e.op.programs()))
                   for e in program.equations)

    @classmethod
    def _transformed(cls, program: Program) -> Program:
        def make() -> Program:
            def fun(*xs: Any) -> Sequence[Any]:
                return cls.run_flat(lambda *ys: evaluate(program, ys), xs)

            return derive(fun, [v.aval for v in program.inputs], program.name)

        return program.memoized(cls.title, make)

    @classmethod
    def run_flat(cls, fun: Callable[..., Sequence[Any]], xs: Sequence[Any]) -> list[Any]:
        """Call a flat function in a new trace."""
        trace = cls(state.trace)
        with opened(trace):
            outs = list(fun(*xs))
            state.trace = trace.parent
            return [trace.value(x) for x in outs]

    @classmethod
    def run(cls, fun: Callable[[], Any]) -> Any:
        """Call a function without arguments, which returns a tree, in a new trace."""
        structure: list[Any] = []

        def flat() -> list[Any]:
            outs, tree = flatten(fun())
            structure.append(tree)
            return outs

        outs = cls.run_flat(flat, ())
        return unflatten(structure[0], outs)
