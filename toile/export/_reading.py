"""Creates Programs from records, and checks them. This is the inverse of `_writing`.

The contents of a record are checked before they are used: the types of fields, the numbers of
variables, and the sizes of arrays. Then `infer` of each operation checks its operands, and
`_carriers` checks operations that contain Programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from toile.control.custom import CustomJVPCall, CustomVJP, CustomVJPCall
from toile.control.linear import LinearCall
from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.conversion import wrap_aval
from toile.engine.operation import infer_list
from toile.engine.out_of_bounds import Bounds
from toile.engine.program import Captured, Equation, Literal, Program, Var, evaluate
from toile.export import _permitted as tables
from toile.export._carriers import check_operands
from toile.export._merging import number
from toile.export._parsing import Reader
from toile.export._records import (
    AvalData,
    ConstantData,
    EquationData,
    Fields,
    Member,
    Named,
    Number,
    ProgramData,
    Size,
    wrong,
)
from toile.export._writing import Missing
from toile.primitives.bounds import CheckIndex
from toile.primitives.families import instantiate

MOST_BYTES = 1 << 62
MOST_AXES = 64
MOST_LEVELS = 70


class Loader:
    """Creates the Programs of an exported function for given sizes of its dimension variables."""

    def __init__(self, sizes: Mapping[str, Any]):
        self.sizes = sizes
        self.programs: dict[int, Program] = {}
        self.arrays: dict[int, Any] = {}
        self.texts: dict[str, Any] = {}
        self.levels = 0

    # ---- numbers, types and arrays
    def size(self, x: Any) -> Any:
        """Return a size; an expression is computed from the sizes of the variables."""
        if type(x) is not Size:
            return x
        found = self.texts.get(x.text)
        if found is None:
            found = self.texts[x.text] = self._evaluated(x.text)
        return found

    def _evaluated(self, text: str) -> Any:
        try:
            found = Reader(text, self.sizes.__getitem__).whole()
        except KeyError as error:
            raise wrong(f"a size with an unknown dimension variable {error}") from None
        if not isinstance(found, int) or abs(found) >= MOST_BYTES:
            raise wrong(f"a size of {found}")
        return found

    def aval(self, x: Any) -> Aval:
        if type(x) is not AvalData:
            raise wrong(f"a {type(x).__name__} in place of a type")
        shape = tuple([self.size(n) for n in x.shape])
        if len(shape) > MOST_AXES or any(type(n) is bool or n < 0 for n in shape) or (
                math.prod(map(int.__index__, shape)) * max(x.dtype.itemsize, 1) >= MOST_BYTES):
            raise wrong(f"an array of shape {shape}")
        return Aval(shape, x.dtype, x.weak)

    def array(self, x: ConstantData) -> Any:
        """Return a constant; equal constants share one array."""
        found = self.arrays.get(id(x))
        if found is None:
            aval = self.aval(x.aval)
            found = self.arrays[id(x)] = wrap_aval(self._elements(x, aval), aval)
        return found

    def _elements(self, x: ConstantData, aval: Aval) -> np.ndarray:
        if dtypes.is_extended(aval.dtype):
            base, shape = np.dtype("uint32"), (*aval.shape, *aval.dtype.impl.key_shape)
        else:
            base, shape = aval.dtype, aval.shape
        if type(x.content) is Number:
            if shape:
                raise wrong("an array in place of a number")
            return np.asarray(self._number(x.content.text)).astype(base)
        if not base.itemsize:
            return np.zeros(shape, base)
        if math.prod(shape) * base.itemsize != len(x.content):
            raise wrong(f"{len(x.content)} bytes for an array of type {aval.str_short()}")
        return np.frombuffer(x.content, base).reshape(shape)

    def _number(self, text: str) -> Any:
        try:
            return number(text, self.sizes)
        except (KeyError, ArithmeticError) as error:
            raise wrong(f"the number {text!r}, which cannot be computed ({error})") from None

    # ---- Programs
    def program(self, data: Any) -> Program:
        """Create the Program in a record, and check it."""
        if type(data) is not ProgramData:
            raise wrong(f"a {type(data).__name__} in place of a function")
        found = self.programs.get(id(data))
        if found is None:
            self.levels += 1
            if self.levels > MOST_LEVELS:
                raise wrong("functions that are nested too deeply")
            found = self.programs[id(data)] = self._program(data)
            self.levels -= 1
        return found

    def _program(self, data: ProgramData) -> Program:
        variables = [Var(self.aval(a)) for a in data.inputs]
        literals = [self._literal(x) for x in data.literals]
        inputs = list(variables)

        def atom(i: int) -> Any:
            if 0 <= i < len(variables):
                return variables[i]
            if 0 > i >= -len(literals):
                return literals[-1 - i]
            raise wrong(f"a reference to the variable {i} before its equation")

        equations = []
        for e in data.equations:
            op = self.operation(e.op)
            ins = [atom(i) for i in e.ins]
            outs = [Var(self._checked(a)) for a in self._results(op, e, [a.aval for a in ins])]
            variables += outs
            equations.append(Equation(op, ins, outs, None, e.scope))
        return Program(inputs, equations, [atom(i) for i in data.outputs], data.name)

    def _literal(self, x: ConstantData) -> Literal:
        aval = self.aval(x.aval)
        if aval.shape or dtypes.is_extended(aval.dtype):
            raise wrong(f"a literal of type {aval.str_short()}")
        return Literal(self._elements(x, aval), aval)

    def _results(self, op: Any, e: EquationData, avals: list[Aval]) -> list[Aval]:
        check_operands(op, avals)
        return infer_list(op, avals)

    def _checked(self, aval: Aval) -> Aval:
        if not isinstance(aval, Aval) or any(not isinstance(n, int) for n in aval.shape):
            raise wrong(f"a result of type {aval}")
        return self.aval(AvalData(aval.shape, aval.dtype, aval.weak_type))

    # ---- operations
    def operation(self, x: Any) -> Any:
        if type(x) is not Fields:
            raise wrong(f"a {type(x).__name__} in place of an operation")
        special = _SPECIAL.get(x.kind)
        if special is not None:
            values = dict(zip(x.names, x.values, strict=True))
            return special(self, values)
        return self._structure(x, tables.operations(), "operation")

    def _structure(self, x: Fields, table: Mapping[str, Any], what: str) -> Any:
        cls = table.get(x.kind)
        if cls is None or x.kind in tables.SPECIAL:
            raise wrong(f"the unknown {what} {x.kind!r} (perhaps of a newer version of toile)")
        known = tables.fields(cls)
        values = {}
        for name, value in zip(x.names, x.values, strict=True):
            if name not in known or name in values:
                raise wrong(f"{x.kind} with an unknown field {name!r}")
            values[name] = self.value(value)
            if not tables.fits(known[name], values[name]):
                raise wrong(f"{x.kind}.{name} of another type")
        return cls(**values)

    def value(self, x: Any) -> Any:
        """A parameter of an operation."""
        kind = type(x)
        if kind is Size:
            return self.size(x)
        if kind is ProgramData:
            return self.program(x)
        if kind is Fields:
            if x.kind in tables.parameters():
                return self._structure(x, tables.parameters(), "parameter")
            return self._structure(x, tables.operations(), "operation")
        if kind is Member:
            cls = tables.parameters().get(x.kind)
            if cls is None or x.name not in getattr(cls, "__members__", ()):
                raise wrong(f"the unknown choice {x.kind}.{x.name}")
            return cls.__members__[x.name]
        if kind is Named:
            if x.name not in tables.functions():
                raise wrong(f"the unknown function {x.name!r}")
            return tables.functions()[x.name]
        if kind is tuple:
            return tuple([self.value(y) for y in x])
        if x is None or kind in (bool, int, str, float, bytes) or isinstance(
                x, (np.dtype, dtypes.ExtendedDType)):
            return x
        raise wrong(f"a {kind.__name__} as a parameter")


# ---- operations with the user's derivative rules


def _captured(f: Loader, x: dict[str, Any]) -> Captured:
    return Captured(f.array(_typed(x, "value", ConstantData)))


def _check_index(f: Loader, x: dict[str, Any]) -> CheckIndex:
    low, high = (f.size(x.get(name)) for name in ("low", "high"))
    name, place = _typed(x, "name", str), _typed(x, "place", str)
    if any(not isinstance(n, int) or isinstance(n, bool) for n in (low, high)):
        raise wrong("a check of indices without bounds")

    def tell(i: int) -> str:
        return (f"{name}: needed indices from {low} to {high}, got {i} (pass a mode, or correct "
                f"the index), in an exported function{place}")

    return CheckIndex(Bounds(low, high, f"{name}{place}", tell))


def _typed(x: dict[str, Any], name: str, kind: type) -> Any:
    if type(x.get(name)) is not kind:
        raise wrong(f"a field {name!r} that is not a {kind.__name__}")
    return x[name]


def _mask(x: dict[str, Any], name: str, count: int) -> list[bool]:
    found = _typed(x, name, tuple)
    if len(found) != count or any(type(m) is not bool for m in found):
        raise wrong(f"a field {name!r} that is not a mask of {count} values")
    return list(found)


def _function(f: Loader, x: dict[str, Any], name: str, consts: str) -> tuple[Program, list[Any]]:
    """A Program whose leading inputs are constants."""
    program = f.program(x.get(name))
    values = [f.array(c) for c in _typed(x, consts, tuple) if type(c) is ConstantData]
    if len(values) != len(x[consts]):
        raise wrong(f"constants of {name!r} that are not arrays")
    return program, values


def _needs(holds: bool, what: str) -> None:
    if not holds:
        raise wrong(f"{what} with a rule that does not fit it")


def _types(avals: Any) -> list[Any]:
    return [(a.shape, a.dtype) for a in avals]


def _custom_jvp(f: Loader, x: dict[str, Any]) -> CustomJVPCall:
    program, label = f.program(x.get("program")), _typed(x, "label", str)
    if "rule" not in x:
        return CustomJVPCall(program, 0, Missing(label), False, label)
    inner, consts = _function(f, x, "rule", "consts")
    ins, outs = program.in_avals, program.out_avals
    moving, kept = _mask(x, "moving", len(ins)), _mask(x, "kept", len(outs))
    tangents = [a.to_tangent_aval() for a, m in zip(ins, moving, strict=True) if m]
    made = [a.to_tangent_aval() for a, k in zip(outs, kept, strict=True) if k]
    _needs(_types(inner.in_avals) == _types([*[c.aval for c in consts], *ins, *tangents])
           and _types(inner.out_avals) == _types([*outs, *made]), label)

    def rule(primals: Any, tangents: Any) -> Any:
        given = [instantiate(t) for t, m in zip(tangents, moving, strict=True) if m]
        found = evaluate(inner, [*consts, *primals, *given])
        results, rest = found[:len(outs)], iter(found[len(outs):])
        return results, [next(rest) if k else Zero(o) for o, k in zip(results, kept, strict=True)]

    return CustomJVPCall(program, 0, rule, False, label)


def _custom_vjp(f: Loader, x: dict[str, Any]) -> CustomVJPCall:
    program, label = f.program(x.get("program")), _typed(x, "label", str)
    fun = lambda *xs: evaluate(program, xs)
    if "forward" not in x:
        lost = Missing(label)
        return CustomVJPCall(program, 0, CustomVJP(fun, lost, lost, label))
    first, first_consts = _function(f, x, "forward", "forward_consts")
    second, second_consts = _function(f, x, "backward", "backward_consts")
    ins, outs = program.in_avals, program.out_avals
    real, kept = _mask(x, "real", len(outs)), _mask(x, "kept", len(ins))
    cts = [a.to_tangent_aval() for a, r in zip(outs, real, strict=True) if r]
    residuals = first.out_avals[len(outs):]
    _needs(_types(first.in_avals) == _types([*[c.aval for c in first_consts], *ins])
           and _types(first.out_avals[:len(outs)]) == _types(outs)
           and _types(second.in_avals) == _types(
               [*[c.aval for c in second_consts], *residuals, *cts])
           and _types(second.out_avals) == _types(
               [a.to_tangent_aval() for a, k in zip(ins, kept, strict=True) if k]), label)

    def forward(mask: Any, *args: Any) -> Any:
        found = evaluate(first, [*first_consts, *args])
        return found[:len(outs)], found[len(outs):]

    def backward(residuals: Any, cts: Any) -> list[Any]:
        given = [instantiate(c) for c, r in zip(cts, real, strict=True) if r]
        rest = iter(evaluate(second, [*second_consts, *residuals, *given]))
        return [next(rest) if k else None for k in kept]

    return CustomVJPCall(program, 0, CustomVJP(fun, forward, backward, label))


def _linear_call(f: Loader, x: dict[str, Any]) -> LinearCall:
    program, label = f.program(x.get("program")), _typed(x, "label", str)
    count, residuals = _typed(x, "count", int), _typed(x, "residuals", int)
    _needs(0 <= count and 0 <= residuals and count + residuals <= len(program.inputs), label)
    if "transposed" not in x:
        return LinearCall(program, label, None, count, residuals)
    back, consts = _function(f, x, "transposed", "consts")
    k, m = count, count + residuals
    given = [*[c.aval for c in consts], *program.in_avals[k:m], *program.out_avals]
    _needs(_types(back.in_avals) == _types(given)
           and _types(back.out_avals) == _types(program.in_avals[m:]), label)
    return LinearCall(program, label, lambda: (back, consts), count, residuals)


_SPECIAL: dict[str, Callable[[Loader, dict[str, Any]], Any]] = {
    "Captured": _captured,
    "CheckIndex": _check_index,
    "CustomJVPCall": _custom_jvp,
    "CustomVJPCall": _custom_vjp,
    "LinearCall": _linear_call,
}

