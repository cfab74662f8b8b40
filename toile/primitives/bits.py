"""Comparisons and operations on bits: results are booleans or integers, so derivatives are zero.

This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from toile.engine import key_uses
from toile.engine.records import dataclass
from toile.primitives.families import ANY, INTEGER, INTEGRAL, Elementwise
from toile.primitives.rules import itself, kernel_function

_BOOL = np.dtype(bool)


class _Comparison(Elementwise):
    result = _BOOL
    key_use = key_uses.reads


def _comparison(name: str, text: str, function: str, kinds: str = ANY) -> Any:
    """A comparison operation class; the five differ in one NumPy call."""

    def eager(self: Any, xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, function)(x, y)

    def lower(self: Any, k: Any, x: Any, y: Any) -> Any:
        return getattr(k, name.lower())(x, y)

    body = {"__doc__": text, "eager": eager, "lower": lower, "accepts": kinds,
            "__module__": __name__}
    return type(name, (_Comparison,), body)


Eq = _comparison("Eq", "True where x equals y.", "equal")
Ne = _comparison("Ne", "True where x differs from y.", "not_equal")
Lt = _comparison("Lt", "True where x is less than y.", "less")
Le = _comparison("Le", "True where x is less than or equal to y.", "less_equal")
Gt = _comparison("Gt", "True where x is greater than y.", "greater")
Ge = _comparison("Ge", "True where x is greater than or equal to y.", "greater_equal")


class _Bits(Elementwise):
    accepts = INTEGRAL

    def partials(self, y: Any, *xs: Any) -> Sequence[Any]:
        return (None,) * len(xs)


def _bitwise(name: str, text: str, function: str, method: str) -> Any:
    def eager(self: Any, xp: Any, *xs: Any) -> Any:
        return getattr(xp, function)(*xs)

    def lower(self: Any, k: Any, *xs: Any) -> Any:
        return getattr(k, method)(*xs)

    body = {"__doc__": text, "eager": eager, "lower": lower, "__module__": __name__}
    return type(name, (_Bits,), body)


And = _bitwise("And", "The bitwise AND.", "bitwise_and", "and_")
Or = _bitwise("Or", "The bitwise OR.", "bitwise_or", "or_")
Xor = _bitwise("Xor", "The bitwise exclusive OR.", "bitwise_xor", "xor")
Not = _bitwise("Not", "The bitwise complement.", "invert", "not_")


class _Shift(_Bits):
    accepts = INTEGER
    code_operands = (1,)  # a shift by a known count is faster

    @staticmethod
    def bounded(xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """The shift count as unsigned, and whether it is within the width."""
        width = _NARROW.get(x.dtype.name, x.dtype.itemsize * 8)
        count = y.view(_unsigned(y.dtype)) if y.dtype.kind == "i" else y
        inside = count < width
        return xp.where(inside, count, xp.zeros((), count.dtype)), inside


_NARROW = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}  # one per byte, with zeros above


def _unsigned(dtype: Any) -> Any:
    return np.dtype(f"u{dtype.itemsize}")


class ShiftLeft(_Shift):
    """x, shifted left by y bits; zero if y is at least the width of x."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        y, inside = self.bounded(xp, x, y)
        return xp.where(inside, xp.left_shift(x, y.astype(x.dtype)), xp.zeros((), x.dtype))

    lower = kernel_function("shift_left")


class ShiftRightLogical(_Shift):
    """x, shifted right by y bits and filled with zeros."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        y, inside = self.bounded(xp, x, y)
        u = _unsigned(x.dtype)
        bits = xp.asarray(x).view(u)
        out = xp.where(inside, xp.right_shift(bits, y.astype(u)), xp.zeros((), u))
        return out.view(x.dtype)

    lower = kernel_function("shift_right_logical")


class ShiftRightArithmetic(_Shift):
    """x, shifted right by y bits; the gap is filled with copies of the highest bit."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        y, inside = self.bounded(xp, x, y)
        if x.dtype.name in _NARROW:  # the sign bit is not that of the byte
            return xp.right_shift(x.astype(np.int8), xp.where(inside, y, 7).astype(np.int8)).astype(
                x.dtype)
        signed = xp.asarray(x).view(np.dtype(f"i{x.dtype.itemsize}"))
        fill = xp.where(signed < 0, xp.asarray(-1).astype(signed.dtype), xp.zeros((), signed.dtype))
        out = xp.where(inside, xp.right_shift(signed, y.astype(signed.dtype)), fill)
        return out.view(x.dtype)

    lower = kernel_function("shift_right_arithmetic")


class PopulationCount(_Bits):
    """The number of bits of x that are set."""

    accepts = INTEGER

    def eager(self, xp: Any, x: Any) -> Any:
        bits = x if x.dtype.kind == "u" else x.view(_unsigned(x.dtype))
        return xp.bitwise_count(bits).astype(x.dtype)

    lower = kernel_function("population_count")


class Gcd(_Bits):
    """The greatest common divisor of integers of at most 32 bits."""

    accepts = INTEGER
    costly = True
    iterates = True

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.gcd(x, y)

    lower = kernel_function("gcd")


class Clz(_Bits):
    """The number of leading zero bits of x."""

    accepts = INTEGER

    def eager(self, xp: Any, x: Any) -> Any:
        width = _NARROW.get(x.dtype.name, x.dtype.itemsize * 8)
        bits = x if x.dtype.kind == "u" else x.view(_unsigned(x.dtype))
        shift = 1
        while shift < width:  # smear the highest set bit downwards
            bits = bits | (bits >> bits.dtype.type(shift))
            shift *= 2
        return (width - xp.bitwise_count(bits).astype(np.int64)).astype(x.dtype)

    lower = kernel_function("clz")


@dataclass(frozen=True)
class _KeyComparison(_Comparison):
    """x == y (or x != y) for random keys."""

    equal: bool = True
    accepts = ANY + "V"
    name = "eq"

    physical = itself

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        same = xp.equal(x, y).all(axis=-1)
        return same if self.equal else ~same

    def on_words(self, x: Any, y: Any) -> Any:
        from toile.primitives.shapes import word  # imports comparisons itself

        same = reduce(and_, (eq(word(x, i), word(y, i)) for i in range(x.shape[-1])))
        return same if self.equal else not_(same)


eq, ne, lt, le, gt, ge = Eq(), Ne(), Lt(), Le(), Gt(), Ge()
and_, or_, xor, not_ = And(), Or(), Xor(), Not()
shift_left, shift_right_logical = ShiftLeft(), ShiftRightLogical()
shift_right_arithmetic = ShiftRightArithmetic()
population_count, clz, gcd = PopulationCount(), Clz(), Gcd()
key_eq, key_ne = _KeyComparison(True), _KeyComparison(False)
