"""Elementwise functions: arithmetic, comparison, bits, roots, trigonometry, special functions.

Operands agree in dtype and have equal shapes, rank 0, or axes of size 1 that are repeated; Python
numbers take the dtype of the array they meet. Two concrete arrays that agree go straight to the
operation. May import the engine, primitives and `_operands`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import DeviceArray
from toile.engine.errors import shape_error
from toile.engine.platform_registry import array_platforms
from toile.engine.promotion import NARROW_INTEGERS
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.lax._operands import checked, dtypes_of, named, operand, operands, stretched, user_dtype
from toile.primitives import bits, complexes, families, special
from toile.primitives import elementwise as ops
from toile.primitives import transcendental as curves
from toile.primitives.families import FLOATING, NUMERIC, accepts_text

__all__ = [
    "AccuracyMode", "RoundingMethod", "Tolerance", "abs", "acos", "acosh", "add", "asin", "asinh",
    "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "betainc", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "igamma", "igamma_grad_a", "igammac", "imag", "integer_pow", "is_finite", "le", "lgamma", "log",
    "log1p", "log2", "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter",
    "one_minus_square", "polygamma", "population_count", "pow", "random_gamma_grad", "real",
    "reciprocal", "rem", "round", "rsqrt", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub",
    "tan", "tanh", "zeta",
]  # fmt: skip

# What lax accepts where an operation itself accepts more.
_ORDERED = "biuf"


class RoundingMethod(enum.IntEnum):
    """Where numbers halfway between two integers are rounded to."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the exact one."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.rtol < 0.0 or self.atol < 0.0 or self.ulps < 0:
            raise ValueError("Tolerances must be non-negative." + here())
        if self.rtol == 0.0 and self.atol == 0.0 and self.ulps == 0:
            raise ValueError("At least one of atol, rtol, or ulps must be set." + here())


class AccuracyMode(enum.Enum):
    """The most accurate implementation of a function, or the usual one."""

    HIGHEST = 1
    DEFAULT = 2


def _apply(op: Any, accepts: str, xs: Sequence[Any]) -> Any:
    """The general way: convert, check, repeat axes of size 1, and call."""
    args = operands(op.name, xs)
    for x in args:
        if dtypes.kind(x.dtype) not in accepts:
            _refuse(op, accepts, args)
    if len(args) > 1 and any(a.shape != args[0].shape for a in args):
        args = stretched(args)
    if args[0].dtype in NARROW_INTEGERS:
        return _narrow(op, accepts, args)
    return checked(op, args)


def _narrow(op: Any, accepts: str, args: Sequence[Any]) -> Any:
    """On integers of fewer than 8 bits, which NumPy may widen: the result is converted back."""
    if op is ops.abs_:
        _refuse(op, accepts, args)
    out = checked(op, args)
    dtype = op.infer(*[a.aval for a in args]).dtype
    return out if out.dtype == dtype else ops.convert(out, dtype)


def _refuse(op: Any, accepts: str, args: Sequence[Any]) -> None:
    if any(a.dtype == dtypes.float0 for a in args):
        raise TypeError(f"Called {op.name} with a float0 array. float0s do not support any "
                        f"operations by design: needed numbers{here()}")
    if any(a.dtype != args[0].dtype for a in args):
        op.infer(*[a.aval for a in args])  # unequal dtypes are the likelier mistake
    raise shape_error(op.name, f"{accepts_text(accepts)} operands", [a.aval for a in args],
                      "convert them with .astype",
                      f"{op.name} does not accept dtype {dtypes.name_of(args[0].dtype)}")


def _unary(name: str, op: Any, accepts: str | None = None) -> Any:
    """A function of one operand."""
    kinds = accepts or op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any) -> Any:
        kind = x.__class__
        if kind is DeviceArray and x._data.dtype in allowed:
            return op(x)
        if kind in array_platforms and x._signature.dtype in allowed:
            return array_platforms[kind].unary(op, x)
        return _apply(op, kinds, (x,))

    return named(fun, name, op.__doc__)


def _accurate(name: str, op: Any) -> Any:
    """A function of one operand that takes `accuracy`; there is one implementation of each."""
    kinds = op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any, *, accuracy: Tolerance | AccuracyMode | None = None) -> Any:
        if accuracy is not None and not isinstance(accuracy, (Tolerance, AccuracyMode)):
            raise NotImplementedError(f"{name}: needed a Tolerance or AccuracyMode as accuracy, "
                                      f"got {accuracy!r}{here()}")
        kind = x.__class__
        if kind is DeviceArray and x._data.dtype in allowed:
            return op(x)
        if kind in array_platforms and x._signature.dtype in allowed:
            return array_platforms[kind].unary(op, x)
        return _apply(op, kinds, (x,))

    return named(fun, name, op.__doc__)


def _binary(name: str, op: Any, accepts: str | None = None) -> Any:
    """A function of two operands."""
    kinds = accepts or op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any, y: Any) -> Any:
        if x.__class__ is DeviceArray and y.__class__ is DeviceArray:
            a, b = x._data, y._data
            dtype, shape = a.dtype, a.shape
            if dtype is b.dtype and dtype in allowed:
                other = b.shape
                if shape == other or not shape or not other:
                    return op(x, y)
        return _apply(op, kinds, (x, y))

    return named(fun, name, op.__doc__)


# ------------------------------------------------------------------------------------ arithmetic

neg = _unary("neg", families.neg)
sign = _unary("sign", ops.sign)
abs = _unary("abs", ops.abs_, "ifc")
floor = _unary("floor", ops.floor)
ceil = _unary("ceil", ops.ceil)
is_finite = _unary("is_finite", ops.is_finite, "f")
add = _binary("add", families.add, NUMERIC)
sub = _binary("sub", families.sub)
div = _binary("div", ops.div)
rem = _binary("rem", ops.rem)
max = _binary("max", ops.max_)
min = _binary("min", ops.min_)
square = _unary("square", ops.IntegerPow(2))
_reciprocal = _unary("reciprocal", ops.IntegerPow(-1), FLOATING)
_mul = _binary("mul", families.mul, NUMERIC)
_nextafter = _binary("nextafter", ops.nextafter)
square.__doc__ = "The product of x with itself."
_ROUND = (ops.Round(False), ops.Round(True))


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Product of two numbers, in `out_dtype` if it is given."""
    if out_dtype is None:
        return _mul(x, y)
    dtype = user_dtype(out_dtype, "mul")
    x, y = operands("mul", (x, y))
    return _mul(ops.convert(x, dtype), ops.convert(y, dtype))


def nextafter(x1: Any, x2: Any) -> Any:
    """The next representable number after x1 in the direction of x2."""
    return _nextafter(x1, x2)


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """Nearest integer; halves go away from zero, or to even."""
    op = _ROUND[RoundingMethod(rounding_method)]
    if x.__class__ is DeviceArray and dtypes.kind(x._data.dtype) == "f":
        return op(x)
    return _apply(op, "f", (x,))


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return _reciprocal(x)


def integer_pow(x: Any, y: int) -> Any:
    """x raised to a fixed integer."""
    x, y = operand("integer_pow", x), operator.index(y)
    if y < 0 and dtypes.kind(x.dtype) in "iu":
        raise TypeError("integer_pow: needed a float or complex operand for a negative power, got "
                        f"integer_pow({x.aval.str_short()}, {y}){here()}")
    return x if y == 1 and dtypes.kind(x.dtype) in NUMERIC else _apply(
        ops.IntegerPow(y), NUMERIC, (x,)
    )


_POWERS = dtypes_of(FLOATING)


def pow(x: Any, y: Any) -> Any:
    """x raised to y; y may be an integer array with a floating x."""
    if x.__class__ is DeviceArray and y.__class__ is DeviceArray:
        a, b = x._data, y._data
        if a.dtype is b.dtype and a.dtype in _POWERS and a.shape == b.shape:
            return ops.pow_(x, y)
    y = operand("pow", y, 1) if type(y) is int else y
    x, y = operands("pow", (x, y))
    if dtypes.kind(x.dtype) not in FLOATING:
        raise shape_error("pow", "a float or complex first operand", [x.aval, y.aval])
    return checked(ops.pow_, stretched((x, y)))


def mulhi(x: Any, y: Any, /) -> Any:
    """The high half of the product of two integers, whose full product has twice their width."""
    x, y = stretched(operands("mulhi", (x, y)))
    if dtypes.kind(x.dtype) not in "iu" or x.dtype != y.dtype:
        raise shape_error("mulhi", "int operands of equal dtypes", [x.aval, y.aval])
    half = dtypes.itemsize_bits(x.dtype) // 2
    down = shift_right_arithmetic if dtypes.kind(x.dtype) == "i" else shift_right_logical
    mask, shift = (DeviceArray(np.asarray(v, x.dtype), True) for v in ((1 << half) - 1, half))
    # Schoolbook product of halves: x = x1 B + x0, y = y1 B + y0 with 0 <= x0, y0 < B.
    x0, y0 = bitwise_and(x, mask), bitwise_and(y, mask)
    x1, y1 = down(x, shift), down(y, shift)
    t = add(mul(x1, y0), shift_right_logical(mul(x0, y0), shift))
    low = add(mul(x0, y1), bitwise_and(t, mask))
    return add(add(mul(x1, y1), down(t, shift)), down(low, shift))


# --------------------------------------------------------------------------------- complex numbers

real = _unary("real", complexes.real, "c")
imag = _unary("imag", complexes.imag, "c")
conj = _unary("conj", complexes.conj, FLOATING)


def complex(x: Any, y: Any) -> Any:
    """A complex number from its real and imaginary parts."""
    x, y = operands("complex", (x, y))
    return checked(complexes.complex_, stretched((x, y), scalars=True))


# ---------------------------------------------------------------------------- comparison and bits


def _equality(name: str, op: Any) -> Any:
    """== and !=, which random keys have too."""
    compare = _binary(name, op)

    def fun(x: Any, y: Any) -> Any:
        if x.__class__ is not DeviceArray and dtypes.is_extended(getattr(x, "dtype", None)):
            return _compare_keys(name, x, y)
        return compare(x, y)

    return named(fun, name, op.__doc__)


eq = _equality("eq", bits.eq)
ne = _equality("ne", bits.ne)
lt = _binary("lt", bits.lt, _ORDERED)
le = _binary("le", bits.le, _ORDERED)
gt = _binary("gt", bits.gt, _ORDERED)
ge = _binary("ge", bits.ge, _ORDERED)
bitwise_not = _unary("bitwise_not", bits.not_)
bitwise_and = _binary("bitwise_and", bits.and_)
bitwise_or = _binary("bitwise_or", bits.or_)
bitwise_xor = _binary("bitwise_xor", bits.xor)
shift_left = _binary("shift_left", bits.shift_left)
shift_right_logical = _binary("shift_right_logical", bits.shift_right_logical)
shift_right_arithmetic = _binary("shift_right_arithmetic", bits.shift_right_arithmetic)
population_count = _unary("population_count", bits.population_count)
clz = _unary("clz", bits.clz)


def _compare_keys(name: str, x: Any, y: Any) -> Any:
    """Keys are equal when all their words are."""
    op = _KEY_COMPARISONS[name]
    if getattr(y, "dtype", None) != x.dtype:
        y = operand(name, y, 1)
        raise shape_error(name, "operands of equal dtypes", [x.aval, y.aval])
    x, y = stretched((x, y), scalars=True)
    return op(x, y)


_KEY_COMPARISONS = {"eq": bits.key_eq, "ne": bits.key_ne}

# --------------------------------------------------------------------------------- transcendental

exp = _accurate("exp", curves.exp)
exp2 = _accurate("exp2", curves.exp2)
expm1 = _accurate("expm1", curves.expm1)
log = _accurate("log", ops.log)
log1p = _accurate("log1p", curves.log1p)
log2 = _accurate("log2", curves.log2)
logistic = _accurate("logistic", curves.logistic)
sqrt = _accurate("sqrt", curves.sqrt)
rsqrt = _accurate("rsqrt", curves.rsqrt)
cbrt = _accurate("cbrt", curves.cbrt)
sin = _accurate("sin", curves.sin)
cos = _accurate("cos", curves.cos)
tan = _accurate("tan", curves.tan)
tanh = _accurate("tanh", curves.tanh)
asin = _unary("asin", curves.asin)
acos = _unary("acos", curves.acos)
atan = _unary("atan", curves.atan)
sinh = _unary("sinh", curves.sinh)
cosh = _unary("cosh", curves.cosh)
asinh = _unary("asinh", curves.asinh)
acosh = _unary("acosh", curves.acosh)
atanh = _unary("atanh", curves.atanh)
atan2 = _binary("atan2", curves.atan2)
one_minus_square = _unary("one_minus_square", curves.one_minus_square)

# ------------------------------------------------------------------------------ special functions

erf = _unary("erf", special.erf)
erfc = _accurate("erfc", special.erfc)
erf_inv = _unary("erf_inv", special.erf_inv)
lgamma = _unary("lgamma", special.lgamma)
digamma = _unary("digamma", special.digamma)
bessel_i0e = _unary("bessel_i0e", special.bessel_i0e)
bessel_i1e = _unary("bessel_i1e", special.bessel_i1e)


def polygamma(m: Any, x: Any) -> Any:
    """The m-th derivative of digamma at x."""
    return _apply(special.polygamma, "f", (m, x))


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz zeta function: the sum of (q + n)^-x over n >= 0."""
    return _apply(special.zeta, "f", (x, q))


def igamma(a: Any, x: Any) -> Any:
    """Regularized lower incomplete gamma function."""
    return _apply(special.igamma, "f", (a, x))


def igammac(a: Any, x: Any) -> Any:
    """Regularized upper incomplete gamma function."""
    return _apply(special.igammac, "f", (a, x))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Derivative of igamma in its first argument."""
    return _apply(special.igamma_grad_a, "f", (a, x))


def random_gamma_grad(*args: Any) -> Any:
    """Derivative of a gamma sample x in its shape a, for operands (a, x)."""
    return _apply(special.random_gamma_grad, "f", args)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Regularized incomplete beta function."""
    return _apply(special.regularized_incomplete_beta, "f", (a, b, x))


# --------------------------------------------------------------------------------------- choosing


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """on_true where pred holds, on_false elsewhere."""
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
    """cases[which] elementwise; `which` is boolean or int32, of the cases' shape or rank 0."""
    if len(cases) == 2 and which.__class__ is DeviceArray:
        a, b = cases
        if a.__class__ is DeviceArray and b.__class__ is DeviceArray:
            p, a, b = which._data, a._data, b._data
            shape = a.shape
            if a.dtype is b.dtype and p.dtype.char == "?" and shape == b.shape and (
                p.shape == shape or not p.shape
            ):
                return ops.select_n(which, *cases)
    if not cases:
        raise ValueError("select_n() must have at least one case" + here())
    return checked(ops.select_n, [operand("select", which), *operands("select", cases)])


def clamp(min: Any, x: Any, max: Any) -> Any:
    """x kept within [min, max]; bounds are of rank 0 or of x's shape."""
    return checked(ops.clamp, operands("clamp", (min, x, max)))
