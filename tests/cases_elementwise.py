"""Rows of the elementwise operations: arithmetic, rounding, comparison, bits, functions."""

from __future__ import annotations

import numpy as np
import scipy.special as sp

from tests.cases import COMPLEX, FLOATS, INEXACT, INTS, MATRICES, NUMBERS, REALS, B, I, Row, X
from toile.primitives import bits, complexes
from toile.primitives import elementwise as e
from toile.primitives import families as f
from toile.primitives import special as s
from toile.primitives import transcendental as t

A = X(2, 3)
P = X(2, 3, low=0.3, high=2.5)
U = X(2, 3, low=-0.9, high=0.9)
BITS = ("int32", "uint8", "int8", "int64", "uint32", "bool")
SHIFTS = ("int32", "uint8", "int64", "uint32")


def wide(function):
    """A NumPy function at double precision, back in the dtype of its first operand."""

    def oracle(*xs):
        up = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in xs]
        return np.asarray(function(*up)).astype(xs[0].dtype)

    return oracle


def unary(op, function, operand=A, dtypes=FLOATS, **flags):
    """A row of an operation of one operand that takes no parameters."""
    return Row(op, op(), (operand,), wide(function), dtypes=dtypes, **flags)


def binary(op, function, operands=(A, A), dtypes=REALS, **flags):
    return Row(op, op(), operands, function, dtypes=dtypes, **flags)


def scalar_too(op, function, operands, **flags):
    """Rows with operands of equal shapes, and with each of them of rank 0."""
    x, y = operands
    zero_rank = [(X(low=x.low, high=x.high), y), (x, X(low=y.low, high=y.high))]
    rows = [binary(op, function, operands, **flags)]
    for i, pair in enumerate(zero_rank):
        rows.append(binary(op, function, pair, label=f"scalar{i}", **flags))
    return rows


def fmod_ints(x, y):
    """Quotient toward zero."""
    return np.trunc(x.astype(float) / y.astype(float)).astype(x.dtype)


def half_away(x):
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


ARITHMETIC = [
    *scalar_too(f.Add, np.add, (A, A), dtypes=NUMBERS, linear=(0, 1)),
    *scalar_too(f.Sub, np.subtract, (A, A), dtypes=NUMBERS, linear=(0, 1)),
    *scalar_too(f.Mul, np.multiply, (A, A), dtypes=NUMBERS, linear=(0,)),
    Row(f.Neg, f.Neg(), (A,), np.negative, dtypes=NUMBERS, linear=(0,)),
    *scalar_too(e.Div, np.true_divide, (A, P), dtypes=INEXACT, linear=(0,)),
    binary(e.Div, fmod_ints, (X(7, low=-20, high=20), X(7, low=1, high=5)), dtypes=("int32",),
           label="integers"),
    *scalar_too(e.Rem, np.fmod, (X(2, 3, low=-9, high=9), P), dtypes=REALS),
    binary(e.Rem, np.fmod, (X(7, low=-20, high=20), X(7, low=1, high=5)), dtypes=("int32",),
           label="integers"),
    *scalar_too(e.Pow, np.power, (P, A), dtypes=MATRICES),
    Row(e.Pow, e.Pow(), (A, I(2, 3, low=-2, high=3)), lambda x, y: x ** y.astype(x.dtype),
        dtypes=MATRICES, label="integer"),
    *(Row(e.IntegerPow, e.IntegerPow(n), (P,), wide(lambda x, n=n: x**n), dtypes=INEXACT,
          label=f"{n}", rtol=2e-5) for n in (-2, 0, 1, 2, 3, 7)),
    unary(e.Abs, np.abs, dtypes=FLOATS),
    Row(e.Abs, e.Abs(), (A,), np.abs, dtypes=COMPLEX, label="complex"),
    unary(e.Sign, np.sign, dtypes=NUMBERS),
    unary(e.Floor, np.floor), unary(e.Ceil, np.ceil),
    Row(e.Round, e.Round(), (X(20, low=-4, high=4),), wide(half_away), dtypes=FLOATS),
    Row(e.Round, e.Round(True), (X(20, low=-4, high=4),), wide(np.rint), label="even"),
    Row(e.Nextafter, e.Nextafter(), (A, A), np.nextafter, moving=()),
    Row(e.IsFinite, e.IsFinite(), (A,), np.isfinite, dtypes=FLOATS, moving=()),
    *scalar_too(e.Max, np.maximum, (A, A), dtypes=("float32", "float64", *INTS)),
    *scalar_too(e.Min, np.minimum, (A, A), dtypes=("float32", "float64", *INTS)),
    Row(e.Clamp, e.Clamp(), (X(2, 3, low=-2, high=-0.4), A, X(2, 3, low=0.1, high=2)),
        lambda a, x, b: np.minimum(np.maximum(x, a), b), dtypes=("float32", "float64", "int32")),
    Row(e.Clamp, e.Clamp(), (X(low=-1, high=-0.4), A, X(low=0.1, high=1)),
        lambda a, x, b: np.minimum(np.maximum(x, a), b), label="scalars"),
]
COMPARISONS = [
    Row(op, op(), (X(2, 3, low=-2, high=2), X(2, 3, low=-2, high=2)), function,
        dtypes=("float32", "float64", "bfloat16", "int32", "uint8"), moving=())
    for op, function in [
        (bits.Eq, np.equal), (bits.Ne, np.not_equal), (bits.Lt, np.less), (bits.Le, np.less_equal),
        (bits.Gt, np.greater), (bits.Ge, np.greater_equal),
    ]
]  # fmt: skip


def logical_shift(x, y):
    bits = x.view(f"u{x.dtype.itemsize}")
    return np.right_shift(bits, y.astype(bits.dtype)).view(x.dtype)


def arithmetic_shift(x, y):
    signed = x.view(f"i{x.dtype.itemsize}")
    return np.right_shift(signed, y.astype(signed.dtype)).view(x.dtype)


def leading_zeros(x):
    width = x.dtype.itemsize * 8
    text = [np.binary_repr(int(v), width) for v in x.ravel()]
    count = [width - len(b.lstrip("0")) for b in text]
    return np.array(count, x.dtype).reshape(x.shape)


def ones_count(x):
    width = x.dtype.itemsize * 8
    count = [np.binary_repr(int(v), width).count("1") for v in x.ravel()]
    return np.array(count, x.dtype).reshape(x.shape)


WORDS = X(3, 4, low=-100, high=100)
COUNT = X(3, 4, low=0, high=6)
BITWISE = [
    Row(bits.And, bits.And(), (WORDS, WORDS), np.bitwise_and, dtypes=BITS),
    Row(bits.Or, bits.Or(), (WORDS, WORDS), np.bitwise_or, dtypes=BITS),
    Row(bits.Xor, bits.Xor(), (WORDS, WORDS), np.bitwise_xor, dtypes=BITS),
    Row(bits.Not, bits.Not(), (WORDS,), np.invert, dtypes=BITS),
    Row(bits.ShiftLeft, bits.ShiftLeft(), (WORDS, COUNT), np.left_shift, dtypes=SHIFTS),
    Row(bits.ShiftRightLogical, bits.ShiftRightLogical(), (WORDS, COUNT), logical_shift,
        dtypes=SHIFTS),
    Row(bits.ShiftRightArithmetic, bits.ShiftRightArithmetic(), (WORDS, COUNT), arithmetic_shift,
        dtypes=SHIFTS),
    Row(bits.PopulationCount, bits.PopulationCount(), (WORDS,), ones_count, dtypes=SHIFTS),
    Row(bits.Clz, bits.Clz(), (WORDS,), leading_zeros, dtypes=SHIFTS),
    Row(bits.Gcd, bits.Gcd(), (WORDS, WORDS), np.gcd, dtypes=("int32", "uint8", "int16", "uint32")),
]
PARTS = [
    Row(complexes.Complex, complexes.Complex(), (A, A), lambda x, y: x + np.complex64(1j) * y,
        linear=(0, 1)),
    Row(complexes.Real, complexes.Real(), (A,), np.real, dtypes=COMPLEX, linear=(0,)),
    Row(complexes.Imag, complexes.Imag(), (A,), np.imag, dtypes=COMPLEX, linear=(0,)),
    Row(complexes.Conj, complexes.Conj(), (A,), np.conj, dtypes=COMPLEX, linear=(0,)),
    Row(complexes.Conj, complexes.Conj(True), (A,),
        lambda x: x.astype(np.result_type(x, np.complex64)),
        linear=(0,), label="real"),
    Row(e.SelectN, e.SelectN(), (B(2, 3), A, A), lambda w, x, y: np.where(w, y, x),
        dtypes=(*NUMBERS, "bool"), linear=(1, 2)),
    Row(e.SelectN, e.SelectN(), (B(), A, A), lambda w, x, y: y if w else x, linear=(1, 2),
        label="scalar"),
    Row(e.SelectN, e.SelectN(), (I(2, 3, high=2), A, A, A),
        lambda w, *xs: np.choose(w, xs), linear=(1, 2, 3), label="three"),
    *(Row(e.ConvertElementType, e.ConvertElementType(np.dtype(new)), (X(2, 3, low=-9, high=9),),
          lambda x, new=new: x.astype(new), dtypes=("float32", "int32", "bfloat16", "bool"),
          label=new, moving=(0,) if new == "float64" else (), linear=())
      for new in ("float64", "float32", "int8", "bool")),
    Row(e.ConvertElementType, e.ConvertElementType(np.dtype("float64")), (A,),
        lambda x: x.astype(np.float64), dtypes=("float64",), linear=(0,), label="linear"),
]
FUNCTIONS = [
    unary(e.Log, np.log, P, INEXACT),
    unary(t.Log1p, np.log1p, U, INEXACT), unary(t.Log2, np.log2, P, INEXACT),
    unary(t.OneMinusSquare, lambda x: 1 - x * x, U, INEXACT),
    unary(t.Atan, np.arctan, U, INEXACT),
    unary(t.Exp, np.exp, A, INEXACT), unary(t.Exp2, lambda x: 2.0**x, A, INEXACT),
    unary(t.Expm1, np.expm1, A, INEXACT),
    unary(t.Logistic, sp.expit, A, FLOATS),
    Row(t.Logistic, t.Logistic(), (A,), wide(lambda x: 1 / (1 + np.exp(-x))), dtypes=COMPLEX,
        label="complex"),
    unary(t.Sqrt, np.sqrt, P, INEXACT),
    unary(t.Rsqrt, lambda x: 1 / np.sqrt(x), P, INEXACT),
    unary(t.Cbrt, np.cbrt, P, FLOATS),
    unary(t.Sin, np.sin, A, INEXACT), unary(t.Cos, np.cos, A, INEXACT),
    unary(t.Tan, np.tan, U, INEXACT),
    unary(t.Asin, np.arcsin, U, INEXACT), unary(t.Acos, np.arccos, U, INEXACT),
    Row(t.Atan2, t.Atan2(), (A, P), wide(np.arctan2)),
    unary(t.Sinh, np.sinh, A, INEXACT), unary(t.Cosh, np.cosh, A, INEXACT),
    unary(t.Tanh, np.tanh, A, INEXACT),
    unary(t.Asinh, np.arcsinh, A, INEXACT),
    unary(t.Acosh, np.arccosh, X(2, 3, low=1.3, high=4), INEXACT),
    unary(t.Atanh, np.arctanh, U, INEXACT),
]  # fmt: skip


def igamma_slope(a, x):
    """d igamma / da by central differences of SciPy's function."""
    h = 1e-5
    return (sp.gammainc(a + h, x) - sp.gammainc(a - h, x)) / (2 * h)


def gamma_sample_slope(a, x):
    """dx/da at a fixed value of igamma(a, x)."""
    density = np.exp((a - 1) * np.log(x) - x - sp.gammaln(a))
    return -igamma_slope(a, x) / density


SPECIAL = [
    unary(s.Erf, sp.erf), unary(s.Erfc, sp.erfc), unary(s.ErfInv, sp.erfinv, U),
    unary(s.Lgamma, sp.gammaln, P), unary(s.Digamma, sp.digamma, P, rtol=5e-5),
    Row(s.Polygamma, lambda x: s.Polygamma()(f.full_like(x, 2), x), (P,),
        wide(lambda x: sp.polygamma(2, x)), rtol=5e-5, slack=2e-5),
    Row(s.PolygammaOfOrder, s.PolygammaOfOrder(1), (P,), wide(lambda x: sp.polygamma(1, x)),
        rtol=5e-5, slack=2e-5),
    Row(s.Zeta, s.Zeta(), (X(2, 3, low=1.5, high=4), P), wide(sp.zeta), moving=()),
    Row(s.Igamma, s.Igamma(), (P, P), wide(sp.gammainc), second=False, slack=2e-5),
    Row(s.Igamma, s.Igamma(), (P, P), wide(sp.gammainc), moving=(1,), label="x"),
    Row(s.Igammac, s.Igammac(), (P, P), wide(sp.gammaincc), second=False, slack=2e-5),
    Row(s.IgammaGradA, s.IgammaGradA(), (P, P), wide(igamma_slope), moving=(), rtol=2e-4),
    Row(s.RandomGammaGrad, s.RandomGammaGrad(), (P, P), wide(gamma_sample_slope), moving=(),
        rtol=2e-4),
    Row(s.FusedMultiplyAdd, s.FusedMultiplyAdd(), (A, A, A), wide(lambda a, b, c: a * b + c),
        dtypes=FLOATS),
    Row(s.FusedMultiplyAdd, s.FusedMultiplyAdd(), (A, X(), X()), wide(lambda a, b, c: a * b + c),
        dtypes=FLOATS, label="scalars"),
    Row(s.RegularizedIncompleteBeta, s.RegularizedIncompleteBeta(),
        (P, P, X(2, 3, low=0.1, high=0.9)), wide(sp.betainc), moving=(2,), rtol=5e-5),
    unary(s.BesselI0e, sp.i0e, dtypes=FLOATS), unary(s.BesselI1e, sp.i1e, dtypes=FLOATS),
]

ROWS = [*ARITHMETIC, *COMPARISONS, *BITWISE, *PARTS, *FUNCTIONS, *SPECIAL]
