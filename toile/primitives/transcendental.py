"""Exponentials, roots, and the trigonometric and hyperbolic functions.

Each class is one elementwise operation on floating or complex numbers: its meaning in NumPy and its
derivative, written so that it stays accurate where the function saturates. `Log` is in
`primitives.elementwise`, whose powers need it. This module may import the engine and other modules
of `primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Zero
from toile.primitives.arrays import special as raw
from toile.primitives.elementwise import div
from toile.primitives.families import (
    FLOAT,
    FLOATING,
    Elementwise,
    add,
    full_like,
    mul,
    neg,
    sub,
)
from toile.primitives.rules import array_function, frame_rule, kernel_function, raw_function


def _one_plus_square(x: Any) -> Any:
    return add(full_like(x, 1), mul(x, x))


def _is_complex(x: Any) -> bool:
    return dtypes.kind(x.dtype) == "c"


class OneMinusSquare(Elementwise):
    """1 - x², computed as (1 + x)(1 - x), which is accurate near |x| = 1."""

    accepts = "iufc"
    can_make_nan = True
    is_smooth = True

    def eager(self, xp: Any, x: Any) -> Any:
        one = x.dtype.type(1)
        return (one + x) * (one - x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.mul(k.add(1, x), k.sub(1, x))

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(full_like(x, -2), x),)


class _Transcendental(Elementwise):
    """A function of floating and complex numbers that takes many instructions."""

    accepts = FLOATING
    costly = True
    can_make_nan = True


class _Quotient(_Transcendental):
    """A function whose tangent is dx / `divisor(x)`."""

    def divisor(self, x: Any) -> Any:
        """The reciprocal of the derivative."""
        raise NotImplementedError

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        return out, Zero(out) if dx.__class__ is Zero else div(dx, self.divisor(x))


# ------------------------------------------------------------------- exponentials and logarithms


class Exp(_Transcendental):
    """e to the power x."""

    eager = array_function("exp")
    lower = kernel_function("exp")
    taylor = frame_rule("exponential")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (y,)


class Exp2(_Transcendental):
    """2 to the power x."""

    def eager(self, xp: Any, x: Any) -> Any:
        if _is_complex(x):
            return xp.exp(x * x.dtype.type(math.log(2)))
        return xp.exp2(x)

    lower = kernel_function("exp2")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(full_like(y, math.log(2)), y),)


class Expm1(_Transcendental):
    """exp(x) - 1, accurate for small x."""

    eager = raw_function(raw.expm1)
    lower = kernel_function("expm1")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (add(y, full_like(y, 1)),)


class Log1p(_Quotient):
    """log(1 + x), accurate for small x."""

    eager = raw_function(raw.log1p)
    lower = kernel_function("log1p")

    def divisor(self, x: Any) -> Any:
        return add(x, full_like(x, 1))


class Log2(_Quotient):
    """The base-2 logarithm, computed as log(x) times 1 / log(2)."""

    def eager(self, xp: Any, x: Any) -> Any:
        y = xp.log(x)
        if not _is_complex(x):
            return y * y.dtype.type(_LOG2_E)
        # part by part: a complex product would turn inf + 0j into inf + nan j
        out = xp.empty_like(y)
        out.real, out.imag = (part * part.dtype.type(_LOG2_E) for part in (y.real, y.imag))
        return out

    lower = kernel_function("log2")

    def divisor(self, x: Any) -> Any:
        return mul(x, full_like(x, math.log(2)))


_LOG2_E = 1 / math.log(2)


class Logistic(_Transcendental):
    """The logistic function 1 / (1 + exp(-x))."""

    is_smooth = True
    eager = raw_function(raw.logistic)
    lower = kernel_function("logistic")

    def lower_steps(self, k: Any, rounded: Callable[[Any], Any], x: Any) -> Any:
        below = rounded(k.add(1.0, rounded(k.exp(k.neg(x)))))
        return rounded(k.div(1.0, below))

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(y, sub(full_like(y, 1), y)),)


# ------------------------------------------------------------------------------------------ roots


class Sqrt(Elementwise):
    """The principal square root."""

    accepts = FLOATING
    is_inexact = True
    eager = array_function("sqrt")
    lower = kernel_function("sqrt")
    can_make_nan = True

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (div(full_like(y, 0.5), y),)


class Rsqrt(Elementwise):
    """The reciprocal square root, 1 / sqrt(x)."""

    accepts = FLOATING
    is_inexact = True
    eager = raw_function(raw.rsqrt)
    lower = kernel_function("rsqrt")
    can_make_nan = True

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (mul(full_like(y, -0.5), div(y, x)),)


class Cbrt(Elementwise):
    """The real cube root."""

    accepts = FLOAT
    costly = True
    eager = raw_function(raw.cbrt)
    lower = kernel_function("cbrt")
    can_make_nan = True

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (div(full_like(y, 1 / 3), mul(y, y)),)


# ----------------------------------------------------------------------------------- trigonometry


class Sin(_Transcendental):
    """The sine."""

    eager = array_function("sin")
    lower = kernel_function("sin")
    taylor = frame_rule("waves")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (cos(x),)


class Cos(_Transcendental):
    """The cosine."""

    eager = array_function("cos")
    lower = kernel_function("cos")
    taylor = frame_rule("waves")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (neg(sin(x)),)


class Tan(_Transcendental):
    """The tangent."""

    eager = array_function("tan")
    lower = kernel_function("tan")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (_one_plus_square(y),)


class Asin(_Transcendental):
    """The inverse sine."""

    eager = array_function("arcsin")
    lower = kernel_function("asin")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (rsqrt(one_minus_square(x)),)


class Acos(_Transcendental):
    """The inverse cosine."""

    eager = array_function("arccos")
    lower = kernel_function("acos")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (neg(rsqrt(one_minus_square(x))),)


class Atan(_Quotient):
    """The inverse tangent."""

    eager = array_function("arctan")
    lower = kernel_function("atan")

    def divisor(self, x: Any) -> Any:
        return _one_plus_square(x)


class Atan2(_Transcendental):
    """The angle between the positive horizontal axis and the line to the point (y, x)."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        if _is_complex(x):  # exp(i angle) = (y + i x) / sqrt(x² + y²)
            i = x.dtype.type(1j)
            return -i * xp.log((y + i * x) / xp.sqrt(x * x + y * y))
        return xp.arctan2(x, y)

    lower = kernel_function("atan2")

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        def over_square(z: Any) -> Any:
            return div(z, add(mul(x, x), mul(y, y)))

        return (lambda: over_square(y)), (lambda: over_square(neg(x)))


# ----------------------------------------------------------------------------- hyperbolic functions


class Sinh(_Transcendental):
    """The hyperbolic sine."""

    eager = array_function("sinh")
    lower = kernel_function("sinh")
    taylor = frame_rule("waves")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (cosh(x),)


class Cosh(_Transcendental):
    """The hyperbolic cosine."""

    eager = array_function("cosh")
    lower = kernel_function("cosh")
    taylor = frame_rule("waves")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (sinh(x),)


class Tanh(_Transcendental):
    """The hyperbolic tangent."""

    is_smooth = True
    eager = array_function("tanh")
    lower = kernel_function("tanh")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (one_minus_square(y),)


class Asinh(_Transcendental):
    """The inverse hyperbolic sine."""

    eager = array_function("arcsinh")
    lower = kernel_function("asinh")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        return (rsqrt(_one_plus_square(x)),)


class Acosh(_Transcendental):
    """The inverse hyperbolic cosine."""

    eager = array_function("arccosh")
    lower = kernel_function("acosh")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        one = full_like(x, 1)
        if _is_complex(x):  # the product under one root would leave the principal branch
            return (mul(rsqrt(sub(x, one)), rsqrt(add(x, one))),)
        return (rsqrt(sub(mul(x, x), one)),)


class Atanh(_Transcendental):
    """The inverse hyperbolic tangent."""

    eager = array_function("arctanh")
    lower = kernel_function("atanh")

    def partials(self, y: Any, x: Any) -> Sequence[Any]:
        one = full_like(x, 1)
        return (div(div(one, add(one, x)), sub(one, x)),)


exp, exp2, expm1, logistic = Exp(), Exp2(), Expm1(), Logistic()
log1p, log2, one_minus_square = Log1p(), Log2(), OneMinusSquare()
sqrt, rsqrt, cbrt = Sqrt(), Rsqrt(), Cbrt()
sin, cos, tan = Sin(), Cos(), Tan()
asin, acos, atan, atan2 = Asin(), Acos(), Atan(), Atan2()
sinh, cosh, tanh = Sinh(), Cosh(), Tanh()
asinh, acosh, atanh = Asinh(), Acosh(), Atanh()
