"""Writes Programs as records.

`rules` is the number of levels of `custom_vjp` rules that are written. A rule is written as a
Program, and the calls in this Program have one level less. Rules of `custom_jvp` have two more
levels, because many functions of toile have one, such as `nn.relu`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.control.call import Call
from toile.control.callbacks import Callback
from toile.control.custom import CustomJVPCall, CustomLinear, CustomVJPCall
from toile.control.linear import LinearCall
from toile.control.reverse_loop import ReverseLoop
from toile.engine import dtypes
from toile.engine.arrays import KeyArray
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.extended import KeyDType
from toile.engine.operation import Operation
from toile.engine.out_of_bounds import Bounds
from toile.engine.program import Captured, Equation, Literal, Program, trace_program
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.export import _permitted as tables
from toile.export._dimensions import Dimension
from toile.export._records import (
    AvalData,
    ConstantData,
    EquationData,
    Fields,
    Member,
    Named,
    ProgramData,
)
from toile.primitives.bounds import CheckIndex
from toile.random.keys import key_data
from toile.transforms.masks import nonzero_mask

_MORE_LEVELS = 2  # additional levels of custom_jvp rules
MOST_LEVELS = 60  # largest number of Programs nested in each other


class MissingRule(ValueError):
    """A derivative rule is needed that the exported function does not contain."""


class Missing:
    """Takes the place of a derivative rule that an exported function does not contain."""

    def __init__(self, label: str):
        self.label = label

    def __call__(self, *_: Any) -> Any:
        raise MissingRule(
            f"No VJP is available: needed the derivative rule of {self.label}, which the exported "
            "function does not contain (write it with serialize(vjp_order=1), or a higher order "
            f"for higher derivatives){here()}")


class Constants:
    """Records of constants; each array has one record in all traces of a function."""

    def __init__(self) -> None:
        self.records: dict[int, ConstantData] = {}
        self.alive: list[Any] = []

    def record(self, x: Any, name: str) -> ConstantData:
        found = self.records.get(id(x))
        if found is None:
            found = self.records[id(x)] = ConstantData(aval_data(aval_of(x)), _content(x, name))
            self.alive.append(x)
        return found


def _content(x: Any, name: str) -> bytes:
    if isinstance(x, Tracer):
        raise ValueError(
            f"export: needed constants with values in {name}, got {x!r}, a traced value of a "
            f"function that is being transformed (pass it as an argument){x.created()}{here()}")
    if isinstance(x, KeyArray):
        x = key_data(x)
    return np.ascontiguousarray(np.asarray(x)).tobytes()


def aval_data(aval: Aval) -> AvalData:
    shape = tuple([n if type(n) in (int, Dimension) else int(n) for n in aval.shape])
    return AvalData(shape, aval.dtype, bool(aval.weak_type))


class Writer:
    """Writes the Programs of one trace."""

    def __init__(self, constants: Constants, name: str):
        self.constants, self.name = constants, name
        self.known: dict[Any, ProgramData] = {}
        self.alive: list[Any] = []
        self.sources: dict[int, Any] = {}  # sources of equations, by the ids of their records
        self.levels = 0

    def program(self, program: Program, rules: int) -> ProgramData:
        """Return the record of a Program."""
        key = id(program), rules
        found = self.known.get(key)
        if found is None:
            self.levels += 1
            if self.levels > MOST_LEVELS:
                raise ValueError(
                    f"export: needed at most {MOST_LEVELS} functions inside each other, got more "
                    f"in {self.name} (use lax.scan or lax.fori_loop){here()}")
            found = self.known[key] = self._program(program, rules)
            self.levels -= 1
            self.alive.append(program)
        return found

    def _program(self, program: Program, rules: int) -> ProgramData:
        numbers: dict[Any, int] = {v: i for i, v in enumerate(program.inputs)}
        literals: list[ConstantData] = []

        def number(a: Any) -> int:
            if a.__class__ is Literal:
                literals.append(ConstantData(aval_data(a.aval), np.asarray(a.val).tobytes()))
                return -len(literals)
            return numbers[a]

        equations = []
        for e in program.equations:
            ins = tuple([number(a) for a in e.ins])
            for o in e.outs:
                numbers[o] = len(numbers)
            made = EquationData(self._operation(e, rules), ins, tuple(map(str, e.scope)))
            self.sources[id(made)] = e.source
            equations.append(made)
        outputs = tuple([number(a) for a in program.outputs])
        return ProgramData(
            str(program.name), tuple([aval_data(v.aval) for v in program.inputs]),
            tuple(literals), tuple(equations), outputs)

    # ---- operations
    def _operation(self, e: Equation, rules: int) -> Fields:
        op = e.op
        if isinstance(op, Callback):
            raise NotImplementedError(
                f"serialization of host_callbacks is not yet implemented: {self.name} needed "
                f"operations that are data, got {op.name} of {op.label}, called at "
                f"{op.place or e.source or 'an unknown line'} (remove the callback, for example "
                f"with toile.named_scope in place of toile.debug.print){here()}")
        if isinstance(op, Captured):
            return _fields("Captured", value=self.constants.record(op.value, self.name))
        if isinstance(op, CheckIndex):
            return _index_check(op.bounds)
        if isinstance(op, CustomJVPCall):
            return self._with_rule(self._custom_jvp, op, rules)
        if isinstance(op, CustomVJPCall):
            return self._with_rule(self._custom_vjp, op, rules)
        if isinstance(op, LinearCall):
            return self._linear_call(op, rules)
        if isinstance(op, ReverseLoop):  # its other derived forms are also plain calls
            op = Call(op.program, op.label)
        return self._structure(op, tables.operations(), rules, e)

    def _structure(self, x: Any, table: dict[str, Any], rules: int, e: Equation) -> Fields:
        cls = type(x)
        if table.get(cls.__name__) is not cls:
            raise NotImplementedError(
                f"export: needed operations of toile, got {describe_op(x)} at {e.source} in "
                f"{self.name}, which an exported function cannot contain "
                f"({_advice(x)}){here()}")
        names = tuple(tables.fields(cls))
        values = tuple([self._value(getattr(x, n), rules, e, f"{cls.__name__}.{n}")
                        for n in names])
        return Fields(cls.__name__, names, values)

    def _value(self, x: Any, rules: int, e: Equation, what: str) -> Any:
        if tables.is_member(x):
            return Member(type(x).__name__, x.name)
        if x is None or isinstance(x, (str, bytes, bool, Dimension, np.dtype, KeyDType)):
            return x
        if isinstance(x, (int, float, np.integer)):
            return float.__float__(x) if isinstance(x, float) else int(x)
        if isinstance(x, Program):
            return self.program(x, rules)
        if type(x) in (tuple, list):
            return tuple([self._value(y, rules, e, what) for y in x])
        return self._object(x, rules, e, what)

    def _object(self, x: Any, rules: int, e: Equation, what: str) -> Any:
        if isinstance(x, Operation):
            return self._structure(x, tables.operations(), rules, e)
        if type(x).__name__ in tables.parameters():
            return self._structure(x, tables.parameters(), rules, e)
        if isinstance(x, type) and issubclass(x, np.generic):
            return np.dtype(x)
        for name, function in tables.functions().items():
            if x is function:
                return Named(name)
        raise NotImplementedError(
            f"export: needed parameters that are data, got {x!r} as {what} at {e.source} in "
            f"{self.name} ({_advice(x)}){here()}")

    # ---- operations with the user's functions
    def _traced(self, fun: Callable[..., Sequence[Any]], avals: Sequence[Aval], rules: int
                ) -> tuple[ProgramData, tuple[ConstantData, ...]]:
        program, consts = trace_program(fun, avals, self.name)
        found = self.program(program, rules)
        self.alive += [program, consts]
        return found, tuple([self.constants.record(c, self.name) for c in consts])

    def _with_rule(self, write: Callable[..., Fields], op: Any, rules: int) -> Fields:
        """Write a custom call with its rule, unless a rule that it calls is missing."""
        try:
            return write(op, rules)
        except MissingRule:
            return write(op, -_MORE_LEVELS)

    def _custom_jvp(self, op: CustomJVPCall, rules: int) -> Fields:
        """Write the call, with the rule for the tangents of all inexact operands."""
        made = _fields("CustomJVPCall", program=self.program(op.program, rules), label=op.label)
        if rules <= -_MORE_LEVELS:
            return made
        call, n = op.call(), len(op.program.inputs)
        moving = [dtypes.is_inexact(a.dtype) for a in op.program.in_avals]

        def rule(*xs: Any) -> list[Any]:
            rest = iter(xs[n:])
            tangents = [next(rest) if m else Zero(x) for x, m in zip(xs[:n], moving, strict=True)]
            outs, douts = call.jvp_flat(xs[:n], tangents)
            kept[:] = nonzero_mask(douts)
            return [*outs, *[d for d, k in zip(douts, kept, strict=True) if k]]

        kept: list[bool] = []
        avals = op.program.in_avals
        tangents = [a.to_tangent_aval() for a, m in zip(avals, moving, strict=True) if m]
        program, consts = self._traced(rule, [*avals, *tangents], rules - 1)
        return _added(made, rule=program, consts=consts, moving=tuple(moving), kept=tuple(kept))

    def _custom_vjp(self, op: CustomVJPCall, rules: int) -> Fields:
        """Write the call, with the forward and the backward rule if levels are left."""
        made = _fields("CustomVJPCall", program=self.program(op.program, rules),
                       label=op.original.label)
        if rules <= 0:
            return made
        call, avals = op.call(), op.program.in_avals
        count = len(op.program.outputs)
        mask = [dtypes.is_inexact(a.dtype) for a in avals]
        residuals: list[Aval] = []

        def forward(*xs: Any) -> list[Any]:
            outs, kept = call.fwd(mask, *xs)
            residuals[:] = [aval_of(r) for r in kept]
            return [*outs, *kept]

        first, first_consts = self._traced(forward, avals, rules - 1)
        cts = [a.to_tangent_aval().strip_weak_type() for a in op.program.out_avals[:count]]
        real = [dtypes.is_inexact(a.dtype) for a in cts]
        kept: list[bool] = []

        def backward(*xs: Any) -> list[Any]:
            rest = iter(xs[len(residuals):])
            given = [next(rest) if r else Zero(a) for a, r in zip(cts, real, strict=True)]
            found = list(call.bwd(list(xs[:len(residuals)]), given))
            kept[:] = [c is not None and c.__class__ is not Zero
                       and aval_of(c).dtype != dtypes.float0 for c in found]
            return [c for c, k in zip(found, kept, strict=True) if k]

        given = [*residuals, *[a for a, r in zip(cts, real, strict=True) if r]]
        second, second_consts = self._traced(backward, given, rules - 1)
        return _added(made, forward=first, forward_consts=first_consts, backward=second,
                      backward_consts=second_consts, real=tuple(real), kept=tuple(kept))

    def _linear_call(self, op: LinearCall, rules: int) -> Fields:
        made = _fields("LinearCall", program=self.program(op.program, rules), label=op.label,
                       count=op.consts, residuals=op.residuals)
        if op.transposed is None:
            return made
        program, consts = op.transposed()
        self.alive += [program, consts]
        return _added(made, transposed=self.program(program, rules), consts=tuple(
            [self.constants.record(c, self.name) for c in consts]))


def _fields(kind: str, **values: Any) -> Fields:
    return Fields(kind, tuple(values), tuple(values.values()))


def _index_check(bounds: Bounds) -> Fields:
    """Write a check of indices; the location in the user's program is converted to text."""
    place = bounds.module
    if bounds.source is not None:
        place += f" at {os.path.basename(bounds.source.file)}:{bounds.source.line}"
    return _fields("CheckIndex", low=bounds.low, high=bounds.high, name=bounds.name, place=place)


def _added(made: Fields, **more: Any) -> Fields:
    return Fields(made.kind, (*made.names, *more), (*made.values, *more.values()))


def describe_op(op: Any) -> str:
    return f"{getattr(op, 'name', type(op).__name__)} ({type(op).__module__}.{type(op).__name__})"


def _advice(x: Any) -> str:
    if isinstance(x, CustomLinear):
        return "export the gradient of the function, not the result of linearize"
    if type(x).__name__ in ("Constraint", "Spmd", "NamedSharding"):
        return "export the function without shardings, and place the arguments of Exported.call"
    if callable(x) and not isinstance(x, Operation):
        return "use a policy of toile.checkpoint_policies"
    return "write the function with operations of toile.lax and toile.numpy"
