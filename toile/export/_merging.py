"""Merges the traces of a function at several sizes into one Program with symbolic sizes.

The records of the traces are compared. They must have the same operations with the same operands.
An integer that differs between them becomes an expression of the dimension variables. If Python
arithmetic computed it from a dimension, it stores its expression. Other integers, for example those
that were computed by NumPy, are compared with the expressions that occurred in the traces. The
sizes of the traces are uncommon. A number that equals an expression in all traces is therefore
assumed to be that expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.export import _polynomials as poly
from toile.export._dimensions import SMALL, Dimension, InconclusiveDimensionOperation
from toile.export._parsing import Reader
from toile.export._records import (
    AvalData,
    ConstantData,
    EquationData,
    Fields,
    Number,
    ProgramData,
    Size,
)
from toile.export._scopes import SymbolicScope

_MOST_DIVISOR = 32
# Functions of sizes that programs compute in Python, and their inverses.
_FUNCTIONS: tuple[tuple[str, Callable[[float], float], Callable[[float], float]], ...] = (
    ("{}", lambda n: n, lambda x: x),
    ("({}) / 2", lambda n: n / 2, lambda x: 2 * x),
    ("1 / ({})", lambda n: 1 / n, lambda x: 1 / x),
    ("sqrt({})", math.sqrt, lambda x: x * x),
    ("1 / sqrt({})", lambda n: 1 / math.sqrt(n), lambda x: 1 / (x * x)),
    ("log({})", math.log, math.exp),
)
_WORDS = {ProgramData: "function", Fields: "operation", AvalData: "type"}


class _Differ(Exception):
    """The traces differ in something that no expression of the sizes explains."""


def _differ(problem: str) -> _Differ:
    """An exception about a difference between traces; `Merger` completes the message."""
    return _Differ(problem)


class OtherOperations(_Differ):
    """The traces have different operations."""


def _other(problem: str) -> OtherOperations:
    return OtherOperations(problem)


class Merger:
    """Merges the records of the traces of one function."""

    def __init__(self, scope: SymbolicScope, name: str, sources: Sequence[dict[int, Any]],
                 indices: Sequence[int]):
        self.scope, self.name, self.sources = scope, name, sources
        self.indices = indices
        self.spaces = [scope.spaces[i] for i in indices]
        self.known: dict[tuple[int, ...], Any] = {}
        self.alive: list[Any] = []
        self.expressions: dict[tuple[int, ...], poly.Polynomial] = {}
        self.count = -1
        self.equation: EquationData | None = None

    def merged(self, traces: Sequence[Any]) -> Any:
        """Merge the records; raises an error that users understand if the traces differ, and
        OtherOperations if possibly only the trace with small sizes has other operations."""
        try:
            return self._merged(traces)
        except OtherOperations as difference:
            if SMALL in self.indices:
                raise
            raise self._error(str(difference)) from None
        except _Differ as difference:
            raise self._error(str(difference)) from None

    def _error(self, problem: str) -> InconclusiveDimensionOperation:
        e = self.equation
        where = ""
        if e is not None:
            source = next((s[id(e)] for s in self.sources if id(e) in s), None)
            where = f" (`{e.op.kind}` at {source or 'an unknown line'})"
        names = ", ".join(self.scope.space.values)
        return InconclusiveDimensionOperation(
            f"Symbolic dimension used in a context that requires a constant: {self.name} needed "
            f"the same operations for all sizes of {names}, but {problem}{where}. (Sizes in "
            "Python loops, NumPy arrays and branches must be constants: use lax.fori_loop, "
            f"jnp.arange and lax.cond, or give the dimension a fixed size){here()}")

    def _merged(self, xs: Sequence[Any]) -> Any:
        first = xs[0]
        if all(x is first for x in xs) and not isinstance(first, Dimension):
            return first
        kind = type(first)
        if isinstance(first, int) and kind is not bool:
            return self._size(xs)
        if any(type(x) is not kind for x in xs):
            raise _differ(f"one has {_short(first)} where another has {_short(xs[-1])}")
        if isinstance(first, tuple):
            key = tuple(map(id, xs))
            found = self.known.get(key)
            if found is None:
                found = self.known[key] = self._record(kind, xs)
                self.alive += xs
            return found
        if any(x != first for x in xs):
            raise _differ(f"{_short(first)} becomes {_short(xs[-1])} at another size")
        return first

    def _record(self, kind: type, xs: Sequence[Any]) -> Any:
        if kind is ConstantData:
            return self._constant(xs)
        outer = self.equation
        if kind is EquationData:
            self.equation = xs[0]
        if kind is ProgramData:
            self._check_equations(xs)
        if any(len(x) != len(xs[0]) for x in xs):
            raise _differ("the number of operands, results or axes depends on the size")
        parts = [self._merged(column) for column in zip(*xs, strict=True)]
        self.equation = outer
        return tuple(parts) if kind is tuple else kind(*parts)

    def _check_equations(self, xs: Sequence[ProgramData]) -> None:
        """Find the first operation that differs."""
        for column in zip(*[x.equations for x in xs], strict=False):
            if len({e.op.kind for e in column}) > 1 or len({e.ins for e in column}) > 1:
                self.equation = column[0]
                raise _other("the operations from this one on depend on the size")
        if len({len(x.equations) for x in xs}) > 1:
            raise _other("the number of operations depends on the size")

    # ---- numbers
    def _size(self, xs: Sequence[Any]) -> Any:
        if any(not isinstance(x, int) or isinstance(x, bool) for x in xs):
            raise _differ(f"one has {_short(xs[0])} where another has {_short(xs[-1])}")
        values = tuple([int.__index__(x) for x in xs])
        for x in xs:
            if isinstance(x, Dimension) and x.scope is self.scope:
                if values == self._values(x.polynomial):
                    return Size(poly.text(x.polynomial))
        if len(set(values)) == 1:
            return values[0]
        found = self._expression(values)
        if found is None:
            raise _differ(f"the size {values[0]} becomes {values[1]} at another size, and is not "
                          "computed from dimensions")
        return Size(found)

    def _values(self, p: poly.Polynomial) -> tuple[int, ...]:
        return tuple([poly.value(p, space.values) for space in self.spaces])

    def _known_expressions(self) -> dict[tuple[int, ...], poly.Polynomial]:
        """A dict from sizes in the traces to the expressions with these sizes, shortest first."""
        if self.count != len(self.scope.seen):
            self.count = len(self.scope.seen)
            found = sorted(self.scope.seen, key=lambda p: (len(poly.text(p)), poly.text(p)))
            self.expressions = {}
            for p in found:
                self.expressions.setdefault(self._values(p), p)
        return self.expressions

    def _expression(self, values: tuple[int, ...]) -> str | None:
        """Find an expression with these sizes: one that occurred in the traces, a linear function
        of one, or a linear function of its quotient by a constant."""
        known = self._known_expressions()
        if values in known:
            return poly.text(known[values])
        return _linear(values, known) or _linear(values, self._quotients())

    def _quotients(self) -> dict[tuple[int, ...], poly.Polynomial]:
        """Expressions divided by small constants, rounded down and up."""
        found: dict[tuple[int, ...], poly.Polynomial] = {}
        for sizes, p in self._known_expressions().items():
            for k in range(2, _MOST_DIVISOR + 1):
                for r in (0, k - 1):
                    numerator = poly.combined(p, 1, poly.constant(r), 1)
                    quotient = poly.applied("floordiv", numerator, poly.constant(k))
                    found.setdefault(tuple([(n + r) // k for n in sizes]), quotient)
        return found

    def _constant(self, xs: Sequence[ConstantData]) -> ConstantData:
        if all(x.content == xs[0].content for x in xs):
            return ConstantData(self._merged([x.aval for x in xs]), xs[0].content)
        if any(x.aval.shape or x.aval != xs[0].aval for x in xs):
            raise _differ(f"a constant array of shape {xs[0].aval.shape} depends on the size")
        dtype = xs[0].aval.dtype
        values = [np.frombuffer(x.content, dtype)[0] for x in xs]
        for text, numbers in self._candidates():
            if all(np.asarray(n).astype(dtype) == v for n, v in zip(numbers, values, strict=True)):
                return ConstantData(xs[0].aval, Number(text))
        for text, integers in _integers(values, dtype):
            found = self._expression(integers)
            if found is not None:
                return ConstantData(xs[0].aval, Number(text.format(found)))
        raise _differ(f"the number {values[0]} becomes {values[1]} at another size, and is not "
                      "computed from dimensions")

    def _candidates(self) -> Iterator[tuple[str, list[Any]]]:
        """Numbers that were computed from sizes, and simple functions of sizes, in each trace."""
        for text in self.scope.ratios:
            yield text, [number(text, space.values) for space in self.spaces]
        for sizes, p in self._known_expressions().items():
            text = poly.text(p)
            for form, function, _ in _FUNCTIONS:
                if form == "{}" or min(sizes) > 0:
                    yield form.format(text), [function(n) for n in sizes]
            yield f"-({text})", [-n for n in sizes]


def _integers(
    values: Sequence[Any], dtype: np.dtype
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Integers of which these numbers are functions, with the text of each function."""
    if np.dtype(dtype).kind in "bc":
        return
    for text, function, inverse in _FUNCTIONS:
        try:
            found = tuple([round(inverse(float(v))) for v in values])
            again = [np.asarray(function(n)).astype(dtype) for n in found]
        except (ArithmeticError, ValueError):  # no size, for example log(0)
            continue
        if all(x == v for x, v in zip(again, values, strict=True)):
            yield text, found


def _linear(values: tuple[int, ...], known: dict[tuple[int, ...], poly.Polynomial]) -> str | None:
    """Find a linear function of a known expression that has these sizes."""
    for sizes, p in known.items():
        step = sizes[1] - sizes[0]
        if not step or (values[1] - values[0]) % step:
            continue
        k = (values[1] - values[0]) // step
        rest = values[0] - k * sizes[0]
        if k and all(k * s + rest == v for s, v in zip(sizes, values, strict=True)):
            return poly.text(poly.combined(p, k, poly.constant(rest), 1))
    return None


def number(text: str, values: Any) -> Any:
    """The value of an expression of numbers."""
    return Reader(text, values.__getitem__, numeric=True).whole()


def _short(x: Any) -> str:
    if type(x) in _WORDS:
        return f"a {_WORDS[type(x)]} {x.kind if isinstance(x, Fields) else ''}".rstrip()
    text = repr(x)
    return text if len(text) < 60 else text[:57] + "..."

