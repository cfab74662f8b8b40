"""Long functions of float64 numbers that kernels call instead of repeating them; they may loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from toile.compiler.scalar.builder import FLOAT32, FLOAT64, Arithmetic, Value
from toile.primitives.arrays import temme


class Digits(NamedTuple):
    """What results of a dtype need."""

    single: bool
    least: float  # a series ends at the first term that is smaller than this times the sum
    change: float  # a continued fraction ends when its relative change is smaller than this
    expands: float  # Temme's expansion is used for parameters larger than this
    alternating: int  # the number of terms of the alternating series for Q


MOST_TERMS = 1e5  # of a continued fraction; none needs as many
_DIGITS = {FLOAT32: Digits(True, 1e-10, 1e-9, 12.0, 12),
           FLOAT64: Digits(False, 1e-17, 2.5e-16, temme.LEAST, 18)}


def apart(code: Callable[..., Value]) -> Callable[..., Value]:
    """Turn `code(k, digits, *xs)`, which computes in float64, into a function of float32 or float64
    numbers that kernels call (see `apart` of the builder)."""
    name = code.__name__.lstrip("_")
    of = {dtype: functools.partial(_with_digits, code, digits) for dtype, digits in _DIGITS.items()}

    def function(k: Arithmetic, *xs: Value) -> Value:
        dtype = xs[0].dtype
        wide = [k.convert(x, FLOAT64) for x in xs]
        return k.convert(k.apart(f"{name}_{dtype}", of[dtype], *wide), dtype)

    function.__name__, function.__doc__ = name, code.__doc__
    return function


def _with_digits(code: Callable[..., Value], digits: Digits, k: Arithmetic, *xs: Value) -> Value:
    return code(k, digits, *xs)


def when(
    k: Arithmetic, condition: Value, code: Callable[[], Value], otherwise: Value
) -> Value:
    """What `code()` returns where the condition holds; skipped if it holds nowhere."""
    off = k.constant(False, condition.dtype)
    return k.loop(lambda on, _: on, lambda on, _: [off, code()], condition, otherwise)[1]


def gcd(k: Arithmetic, x: Value, y: Value) -> Value:
    """The greatest common divisor, by Euclid's algorithm. float64 represents all 32-bit integers,
    and their quotients closely enough, and processors have vectors of float64."""
    found = k.apart("gcd", _euclid, *(k.convert(a, FLOAT64) for a in (x, y)))
    least = -(2.0 ** (8 * x.dtype.itemsize - 1))  # the signed integer that has no opposite
    turned = k.select(k.gt(found, least), k.abs(found), found)
    return k.convert(turned, x.dtype)


def _euclid(k: Arithmetic, a: Value, b: Value) -> Value:
    def step(a: Value, b: Value) -> list[Value]:
        return [b, k.fma(k.neg(k.trunc(k.div(a, b))), b, a)]

    return k.loop(lambda a, b: k.ne(b, 0.0), step, a, b)[0]
