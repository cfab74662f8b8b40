"""Sizes that depend on the batch size, and Programs with such sizes.

A function with a free batch size is traced at several sizes. `merged` combines the traces into one
Program. An integer that differs between them must be `scale * batch + offset`; it becomes a `Size`.
This module may import the engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.engine.source import here

SAMPLES = (37, 53, 71)  # batch sizes of the traces, which are uncommon as other sizes


class Size(int):
    """An integer `scale * batch + offset`; its value as an int is that in the first trace."""

    scale: int
    offset: int

    def __new__(cls, scale: int, offset: int) -> Size:
        self = super().__new__(cls, scale * SAMPLES[0] + offset)
        self.scale, self.offset = scale, offset
        return self

    def text(self, batch: str) -> str:
        """The size as an expression of the variable `batch`."""
        product = batch if self.scale == 1 else f"{self.scale} * {batch}"
        if not self.offset:
            return product
        return f"{product} {'+' if self.offset > 0 else '-'} {abs(self.offset)}"


class SizeLiteral(Literal):
    """A number that is a size or, if `inverted`, 1 divided by a size."""

    __slots__ = ("size", "inverted")

    def __init__(self, val: np.ndarray, aval: Aval, size: Size, inverted: bool):
        super().__init__(val, aval)
        self.size, self.inverted = size, inverted


def is_free(x: Any) -> bool:
    """Whether an integer depends on the batch size."""
    return isinstance(x, Size)


def plus(n: int, m: int) -> int:
    """Return the sum of two sizes."""
    if not (is_free(n) or is_free(m)):
        return n + m
    a, b = _parts(n), _parts(m)
    return _made(a[0] + b[0], a[1] + b[1])


def times(n: int, factor: int) -> int:
    """Return a size times an integer that does not depend on the batch size."""
    scale, offset = _parts(n)
    return _made(scale * factor, offset * factor)


def _parts(n: int) -> tuple[int, int]:
    return (n.scale, n.offset) if isinstance(n, Size) else (0, int(n))


def _made(scale: int, offset: int) -> int:
    return Size(scale, offset) if scale else offset


class _Varies(Exception):
    """The traces differ in something that is not a size."""


def merged(programs: Sequence[Program]) -> Program:
    """Return one Program for all batch sizes, from the traces at `SAMPLES`."""
    merger = _Merger()
    try:
        return merger.program(programs)
    except _Varies as difference:
        e = merger.equation
        where = f" in `{e.op.name}` at {e.source or 'an unknown line'}" if e is not None else ""
        raise ValueError(
            f"export: needed the same operations for all batch sizes, with sizes that are a "
            f"multiple of the batch plus a constant, but {difference}{where} (export with "
            f"free_batch=False, or use loops and shapes that do not depend on the batch){here()}"
        ) from None


class _Merger:
    def __init__(self) -> None:
        self.equation: Equation | None = None
        self.env: dict[Var, Var] = {}

    def program(self, programs: Sequence[Program]) -> Program:
        first = programs[0]
        if all(p is first for p in programs):
            return first
        inputs = [self.var(vs) for vs in self.zipped([p.inputs for p in programs], "arguments")]
        equations = []
        for es in self.zipped([p.equations for p in programs], "operations"):
            self.equation = es[0]
            op = self.field([e.op for e in es])
            ins = [self.atom(xs) for xs in self.zipped([e.ins for e in es], "operands")]
            outs = [self.var(vs) for vs in self.zipped([e.outs for e in es], "results")]
            equations.append(Equation(op, ins, outs, es[0].source, es[0].scope))
        outputs = [self.atom(xs) for xs in self.zipped([p.outputs for p in programs], "results")]
        return Program(inputs, equations, outputs, first.name)

    def zipped(self, lists: Sequence[Sequence[Any]], what: str) -> list[tuple[Any, ...]]:
        if len({len(x) for x in lists}) > 1:
            raise _Varies(f"the number of {what} is {', '.join(str(len(x)) for x in lists)}")
        return list(zip(*lists, strict=True))

    def aval(self, avals: Sequence[Aval]) -> Aval:
        first = avals[0]
        if any(a.dtype != first.dtype or a.ndim != first.ndim for a in avals):
            raise _Varies(f"the types {', '.join(a.str_short() for a in avals)} differ")
        shape = tuple([_unified(ns) for ns in zip(*(a.shape for a in avals), strict=True)])
        return Aval(shape, first.dtype, first.weak_type)

    def var(self, vs: Sequence[Var]) -> Var:
        made = Var(self.aval([v.aval for v in vs]))
        self.env.update(dict.fromkeys(vs, made))
        return made

    def atom(self, xs: Sequence[Any]) -> Atom:
        if any(isinstance(x, Literal) for x in xs):
            return self.literal(xs)
        found = {id(self.env[x]): self.env[x] for x in xs}
        if len(found) > 1:
            raise _Varies("the operations have different operands")
        return found.popitem()[1]

    def literal(self, xs: Sequence[Any]) -> Literal:
        if not all(isinstance(x, Literal) for x in xs):
            raise _Varies("an operand is a number for some sizes only")
        aval = self.aval([x.aval for x in xs])
        values = [np.asarray(x.val) for x in xs]
        if len({v.tobytes() for v in values}) == 1:
            return Literal(xs[0].val, aval)
        numbers = [v.item() for v in values]
        for inverted in (False, True):
            size = _size_of_numbers([1 / x if inverted and x else x for x in numbers])
            if size is not None:
                return SizeLiteral(values[0], aval, size, inverted)
        raise _Varies(f"a number is {', '.join(map(str, numbers))}")

    def field(self, xs: Sequence[Any]) -> Any:
        """Merge a parameter of an operation, or an operation."""
        first = xs[0]
        if any(type(x) is not type(first) for x in xs):
            raise _Varies(f"{', '.join(map(str, xs))} differ")
        if isinstance(first, Program):
            return self.program(xs)
        if isinstance(first, Aval):
            return self.aval(xs)
        if isinstance(first, tuple):
            parts = [self.field(parts) for parts in self.zipped(xs, "parameters")]
            return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
        if type(first) is int:
            return _unified(xs)
        if dataclasses.is_dataclass(first):
            names = [f.name for f in dataclasses.fields(first)]
            make: Any = type(first)
            return make(**{n: self.field([getattr(x, n) for x in xs]) for n in names})
        if any(x != first for x in xs):
            raise _Varies(f"{', '.join(map(str, xs))} differ")
        return first


def _unified(values: Sequence[int]) -> int:
    if all(v == values[0] for v in values):
        return values[0]
    slope = Fraction(values[1] - values[0], SAMPLES[1] - SAMPLES[0])
    offset = values[0] - slope * SAMPLES[0]
    if slope.denominator > 1 or slope * SAMPLES[2] + offset != values[2]:
        raise _Varies(f"a size is {', '.join(map(str, values))} for the batch sizes "
                      f"{', '.join(map(str, SAMPLES))}")
    return _made(int(slope), int(offset))


def _size_of_numbers(xs: Sequence[Any]) -> Size | None:
    """Return the size that the numbers represent, up to rounding in their dtype."""
    xs = [x.real if isinstance(x, complex) and not x.imag else x for x in xs]
    if any(isinstance(x, complex) or not abs(x) < 2**31 for x in xs):
        return None
    whole = [round(x) for x in xs]
    if any(abs(x - n) > 1e-6 * abs(n) for x, n in zip(xs, whole, strict=True)):
        return None
    try:
        found = _unified(whole)
    except _Varies:
        return None
    return found if isinstance(found, Size) else None
