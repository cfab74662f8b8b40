"""Scalar code inside kernels: the builder `k` that an operation's `lower(k, *xs)` writes with.

A `Value` names a register of the code being written. A printer (LLVM text for the CPU, CUDA text
for the GPU) supplies a dozen methods on real numbers, integers and booleans; `Arithmetic` builds
complex arithmetic on them, and `compiler.scalar.mathematics` builds the functions. Operands may be
Python numbers: they become constants of the other operand's dtype. Functions without code for a
dtype raise `Unsupported`, and the equation runs eagerly.
This module may import only the engine.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Dtype = Any  # numpy.dtype
BOOL = np.dtype(np.bool_)
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
COMPLEX64, COMPLEX128 = np.dtype(np.complex64), np.dtype(np.complex128)

_CHARACTERS = "?bBhHiIlLqQefdFD"  # NumPy's codes of the dtypes that kernels hold, with bfloat16


class Unsupported(Exception):
    """The builder has no code for this function at this dtype."""


class Value(NamedTuple):
    """A scalar in a register.

    `dtype` is the logical dtype. float16 and bfloat16 live in float32 registers and are rounded
    only by `convert` to their dtype, `reduce_precision` and `store`. A complex number is two
    registers, of which `name` is the real part."""

    name: str
    dtype: Dtype
    imag: str = ""


Operand = Value | float | int | bool | complex


@functools.cache
def kind(dtype: Dtype) -> str:
    """One of "biufc"; raises Unsupported for dtypes that kernels do not hold."""
    if dtype == BFLOAT16:
        return "f"
    own = isinstance(dtype, np.dtype) and dtype.isbuiltin == 1  # others may have the same char
    if not own or dtype.char not in _CHARACTERS:
        raise Unsupported(f"{dtype} in a kernel")
    return dtype.kind


@functools.cache
def is_narrow(dtype: Dtype) -> bool:
    """Whether float32 registers hold this dtype's numbers."""
    return dtype == BFLOAT16 or dtype == FLOAT16


@functools.cache
def part(dtype: Dtype) -> Dtype:
    """The dtype of a complex number's parts."""
    return FLOAT32 if dtype == COMPLEX64 else FLOAT64


def integers_like(dtype: Dtype) -> Dtype:
    """The signed integer dtype of the same width as a float dtype's registers."""
    return INT64 if dtype == FLOAT64 else INT32


class Printer(ABC):
    """What a backend writes: memory accesses, constants, and instructions on real numbers."""

    # ---- memory; `index` counts elements of an array without gaps
    @abstractmethod
    def load(self, pointer: str, index: Any, dtype: Dtype) -> Value:
        """Element `index`; booleans are bytes in memory, complex numbers two floats."""

    @abstractmethod
    def store(self, value: Value, pointer: str, index: Any) -> None:
        """Write element `index`; narrow floats are rounded here."""

    @abstractmethod
    def bits_argument(self, text: Any, dtype: Dtype, imag: Any = None) -> Value:
        """A scalar from an i64 with its bits as in memory; `imag` has the imaginary part's bits."""

    @abstractmethod
    def lookup(self, name: str, table: Sequence[float], index: Value) -> Value:
        """Element `index` (int32, within bounds) of a constant table of float64.

        The same name always means the same table."""

    # ---- functions of their own
    @abstractmethod
    def apart(self, name: str, code: Callable[..., Value], *xs: Value) -> Value:
        """`code(k, *xs)` as a separate function that the kernel calls; all its numbers are float64.

        Long code does not have to be repeated in every kernel, and it can use `loop`, which is not
        available elsewhere. On a CPU, the function takes a vector with one element in each lane, so
        that the loop that calls it is vectorized. Equal names must have equal code."""

    def loop(
        self, going: Callable[..., Value], step: Callable[..., Sequence[Value]], *state: Value
    ) -> Sequence[Value]:
        """While going(*state) holds, state = step(*state); returns the last state.

        Every element of a vector iterates until its own condition fails, so results do not depend
        on neighboring elements. On a CPU, a vector takes as long as its slowest element. Only
        functions made by `apart` can have loops."""
        raise Unsupported("a loop outside a function of its own")

    # ---- constants and instructions
    @abstractmethod
    def constant(self, value: Any, dtype: Dtype) -> Value:
        """A number known at compile time."""

    @abstractmethod
    def unary(self, name: str, x: Value) -> Value:
        """neg, abs, sqrt, floor, ceil, round_even, trunc (floats); not, population_count, clz."""

    @abstractmethod
    def binary(self, name: str, x: Value, y: Value) -> Value:
        """add, sub, mul, div, rem, minimum, maximum, copysign, and, or, xor; and the three shifts.

        Integers wrap; `div` and `rem` of integers truncate and may assume that the divisor is not
        zero and the result does not overflow; shifts may assume that the count is below the width.
        The extrema propagate NaN."""

    @abstractmethod
    def fma(self, x: Operand, y: Operand, z: Operand) -> Value:
        """x y + z of floats with one rounding."""

    @abstractmethod
    def compare(self, relation: str, x: Value, y: Value) -> Value:
        """eq, ne, lt, le, gt, ge; if an operand is NaN, all are false except `ne`."""

    @abstractmethod
    def choose(self, condition: Value, x: Value, y: Value) -> Value:
        """x where the condition holds, else y."""

    @abstractmethod
    def cast(self, x: Value, dtype: Dtype) -> Value:
        """`convert` between dtypes that are not complex."""

    @abstractmethod
    def bitcast(self, x: Value, dtype: Dtype) -> Value:
        """The same bits as another dtype of the same width."""

    @abstractmethod
    def within(self, x: Value, low: float | None, high: float) -> Value:
        """A float clamped between two constants (or below one), in few instructions; keeps NaN."""


# The smallest normal number, and a power of 2 that scales numbers near it to mid-range.
_NORMAL = {FLOAT32: (2.0**-126, 2.0**64), FLOAT64: (2.0**-1022, 2.0**512)}


class Arithmetic(Printer):
    """Arithmetic, comparison, choice and conversion, of complex numbers too."""

    # ---- operands and parts
    def operands(self, *xs: Operand) -> list[Value]:
        """The operands, with numbers turned into constants of the Values' dtype."""
        dtype = next(x.dtype for x in xs if isinstance(x, Value))
        return [x if isinstance(x, Value) else self.constant(x, dtype) for x in xs]

    def real(self, x: Value) -> Value:
        """Real part; a real number is returned unchanged."""
        return Value(x.name, part(x.dtype)) if x.imag else x

    def imag(self, x: Value) -> Value:
        """Imaginary part."""
        return Value(x.imag, part(x.dtype)) if x.imag else self.constant(0, x.dtype)

    def complex(self, re: Value, im: Value) -> Value:
        """A complex number from two floats."""
        dtype = COMPLEX128 if re.dtype == FLOAT64 else COMPLEX64
        return Value(re.name, dtype, im.name)

    def conj(self, x: Value) -> Value:
        """Complex conjugate."""
        return self.complex(self.real(x), self.neg(self.imag(x))) if x.imag else x

    def _both(self, name: str, x: Operand, y: Operand) -> Value:
        """A binary instruction, applied to each part."""
        x, y = self.operands(x, y)
        if not x.imag:
            return self.binary(name, x, y)
        return self.complex(self.binary(name, self.real(x), self.real(y)),
                            self.binary(name, self.imag(x), self.imag(y)))

    def _ordered(self, *xs: Operand) -> list[Value]:
        """Operands, which must have an order (not complex)."""
        values = self.operands(*xs)
        if any(x.imag for x in values):
            raise Unsupported("order of complex numbers in a kernel")
        return values

    # ---- arithmetic
    def add(self, x: Operand, y: Operand) -> Value:
        """Sum; for booleans, the disjunction."""
        x, y = self.operands(x, y)
        return self.binary("or", x, y) if x.dtype == BOOL else self._both("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        """Difference."""
        return self._both("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        """Product; for booleans, the conjunction."""
        x, y = self.operands(x, y)
        if x.dtype == BOOL:
            return self.binary("and", x, y)
        if not x.imag:
            return self.binary("mul", x, y)
        (a, b), (c, d) = self.parts(x), self.parts(y)
        return self.complex(self.sub(self.mul(a, c), self.mul(b, d)),
                            self.add(self.mul(a, d), self.mul(b, c)))

    def div(self, x: Operand, y: Operand) -> Value:
        """Quotient; that of integers is rounded toward zero, and -1 if the divisor is zero."""
        x, y = self.operands(x, y)
        if kind(x.dtype) in "iu":
            quotient = self.binary("div", x, self._divisor(x, y))
            if kind(x.dtype) == "i":  # x / -1 wraps instead of overflowing
                quotient = self.select(self.eq(y, -1), self.neg(x), quotient)
            return self.select(self.eq(y, 0), self.constant(-1, x.dtype), quotient)
        if not x.imag:
            return self.binary("div", x, y)
        return self._divide_complex(x, y)

    def quotient(self, x: Value, y: Value) -> Value:
        """x / y as x (1 / y), within 1.5 ulp, for many x and one y with one reciprocal.

        A divisor whose reciprocal is not a normal number is scaled first, so that zeros, infinities
        and NaN are those of a division."""
        if self.wide(x).dtype not in _NORMAL:
            return self.div(x, y)
        dtype, x, y = x.dtype, self.wide(x), self.wide(y)
        least, factor = _NORMAL[x.dtype]
        size = self.abs(y)
        scale = self.select(self.lt(size, least), factor, self.constant(1, x.dtype))
        scale = self.select(self.gt(size, 1 / least), 1 / factor, scale)
        out = self.mul(self.mul(x, scale), self.div(1.0, self.mul(y, scale)))
        return Value(out.name, dtype)

    def _divisor(self, x: Value, y: Value) -> Value:
        """An integer divisor that the processor accepts: 0 and -1 are replaced by 1."""
        trap = self.eq(y, 0)
        if kind(x.dtype) == "i":
            trap = self.or_(trap, self.eq(y, -1))
        return self.select(trap, self.constant(1, y.dtype), y)

    def _divide_complex(self, x: Value, y: Value) -> Value:
        """Smith's algorithm: divide by the larger part of the divisor first, to avoid overflow."""
        (a, b), (c, d) = self.parts(x), self.parts(y)
        real_larger = self.ge(self.abs(c), self.abs(d))
        large, small = self.select(real_larger, c, d), self.select(real_larger, d, c)
        zero = self.and_(self.eq(c, 0.0), self.eq(d, 0.0))
        ratio = self.div(small, large)
        scale = self.div(1.0, self.add(large, self.mul(small, ratio)))
        u, v = self.select(real_larger, a, b), self.select(real_larger, b, a)
        re = self.mul(self.add(u, self.mul(v, ratio)), scale)
        # (b - a r) or (b r - a): the roles of the parts are exchanged, and so is the sign
        im = self.sub(v, self.mul(u, ratio))
        im = self.mul(self.select(real_larger, im, self.neg(im)), scale)
        size = self.abs(c)
        return self.complex(self.select(zero, self.div(a, size), re),
                            self.select(zero, self.div(b, size), im))

    def rem(self, x: Operand, y: Operand) -> Value:
        """Remainder with the sign of the dividend; if an integer divisor is zero, the dividend."""
        x, y = self._ordered(x, y)
        if kind(x.dtype) == "f":
            return self.fmod(x, y)
        rest = self.binary("rem", x, self._divisor(x, y))
        return self.select(self.eq(y, 0), x, rest)

    @abstractmethod
    def fmod(self, x: Value, y: Value) -> Value:
        """Remainder of floats."""

    def neg(self, x: Value) -> Value:
        """The number with its sign changed."""
        if x.imag:
            return self.complex(self.neg(self.real(x)), self.neg(self.imag(x)))
        return self.unary("neg", x) if kind(x.dtype) == "f" else self.sub(0, x)

    def parts(self, x: Value) -> tuple[Value, Value]:
        """Real and imaginary part."""
        return self.real(x), self.imag(x)

    def abs(self, x: Value) -> Value:
        """Absolute value of a real number (the modulus is `mathematics.complexes.modulus`)."""
        if kind(x.dtype) == "f":
            return self.unary("abs", x)
        return x if kind(x.dtype) in "bu" else self.select(self.lt(x, 0), self.neg(x), x)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1; NaN and signed zeros are returned unchanged."""
        if x.imag:
            raise Unsupported("sign of a complex number in a kernel")
        zero, one = self.constant(0, x.dtype), self.constant(1, x.dtype)
        if kind(x.dtype) in "bu":
            return self.select(self.gt(x, zero), one, zero)
        below = self.select(self.lt(x, zero), self.constant(-1, x.dtype), x)
        return self.select(self.gt(x, zero), one, below)

    def sqrt(self, x: Value) -> Value:
        """Square root of a real float."""
        return self.unary("sqrt", x)

    def floor(self, x: Value) -> Value:
        """Largest integer not above x."""
        return self.unary("floor", x)

    def ceil(self, x: Value) -> Value:
        """Smallest integer not below x."""
        return self.unary("ceil", x)

    def trunc(self, x: Value) -> Value:
        """The nearest integer toward zero."""
        return self.unary("trunc", x)

    def round_even(self, x: Value) -> Value:
        """Nearest integer; halves to even."""
        return self.unary("round_even", x)

    def round_away(self, x: Value) -> Value:
        """Nearest integer; halves away from zero."""
        whole = self.trunc(x)
        away = self.ge(self.abs(self.sub(x, whole)), 0.5)
        more = self.select(away, self.constant(1, x.dtype), self.constant(0, x.dtype))
        return self.add(whole, self.copysign(more, x))

    def minimum(self, x: Operand, y: Operand) -> Value:
        """The smaller operand; NaN if either is NaN."""
        x, y = self._ordered(x, y)
        return self.binary("and" if x.dtype == BOOL else "minimum", x, y)

    def maximum(self, x: Operand, y: Operand) -> Value:
        """The larger operand; NaN if either is NaN."""
        x, y = self._ordered(x, y)
        return self.binary("or" if x.dtype == BOOL else "maximum", x, y)

    def copysign(self, x: Operand, y: Operand) -> Value:
        """|x| with the sign of y."""
        return self.binary("copysign", *self.operands(x, y))

    # ---- comparison and choice
    def eq(self, x: Operand, y: Operand) -> Value:
        """x == y."""
        x, y = self.operands(x, y)
        if not x.imag:
            return self.compare("eq", x, y)
        return self.and_(self.eq(self.real(x), self.real(y)), self.eq(self.imag(x), self.imag(y)))

    def ne(self, x: Operand, y: Operand) -> Value:
        """x != y; true for NaN."""
        x, y = self.operands(x, y)
        return self.not_(self.eq(x, y)) if x.imag else self.compare("ne", x, y)

    def lt(self, x: Operand, y: Operand) -> Value:
        """x < y."""
        return self.compare("lt", *self._ordered(x, y))

    def le(self, x: Operand, y: Operand) -> Value:
        """x <= y."""
        return self.compare("le", *self._ordered(x, y))

    def gt(self, x: Operand, y: Operand) -> Value:
        """x > y."""
        return self.compare("gt", *self._ordered(x, y))

    def ge(self, x: Operand, y: Operand) -> Value:
        """x >= y."""
        return self.compare("ge", *self._ordered(x, y))

    def is_nan(self, x: Value) -> Value:
        """Whether a float is NaN."""
        return self.compare("ne", x, x)

    def is_finite(self, x: Value) -> Value:
        """Whether a number is neither infinite nor NaN."""
        if x.imag:
            return self.and_(self.is_finite(self.real(x)), self.is_finite(self.imag(x)))
        return self.lt(self.abs(x), float("inf"))

    def select(self, condition: Value, x: Operand, y: Operand) -> Value:
        """x where the condition holds, else y."""
        x, y = self.operands(x, y)
        if not x.imag:
            return self.choose(condition, x, y)
        return self.complex(self.choose(condition, self.real(x), self.real(y)),
                            self.choose(condition, self.imag(x), self.imag(y)))

    # ---- bits
    def and_(self, x: Operand, y: Operand) -> Value:
        """Bitwise and."""
        return self.binary("and", *self.operands(x, y))

    def or_(self, x: Operand, y: Operand) -> Value:
        """Bitwise or."""
        return self.binary("or", *self.operands(x, y))

    def xor(self, x: Operand, y: Operand) -> Value:
        """Bitwise exclusive or."""
        return self.binary("xor", *self.operands(x, y))

    def not_(self, x: Value) -> Value:
        """Bitwise complement."""
        return self.unary("not", x)

    def _shift(self, name: str, x: Value, y: Operand, beyond: Any) -> Value:
        """A shift whose count may be out of range, in which case the result is `beyond()`."""
        if not isinstance(y, Value):
            return self.binary(name, x, self.constant(y, x.dtype))
        width = 8 * x.dtype.itemsize
        digits = y.name.rstrip("UL")  # digits of a constant
        if digits.isdigit() and int(digits) < width:
            return self.binary(name, x, y)
        unsigned = self.bitcast(y, np.dtype(f"u{y.dtype.itemsize}"))
        inside = self.lt(unsigned, width)
        return self.select(inside, self.binary(name, x, self.select(inside, y, 0)), beyond())

    def shift_left(self, x: Value, y: Operand) -> Value:
        """x shifted left; zero if the count is not below the width."""
        return self._shift("shift_left", x, y, lambda: self.constant(0, x.dtype))

    def shift_right_logical(self, x: Value, y: Operand) -> Value:
        """x shifted right, filled with zeros."""
        return self._shift("shift_right_logical", x, y, lambda: self.constant(0, x.dtype))

    def shift_right_arithmetic(self, x: Value, y: Operand) -> Value:
        """x shifted right, filled with copies of its highest bit (even if unsigned)."""
        name, last = "shift_right_arithmetic", 8 * x.dtype.itemsize - 1
        fill = lambda: self.binary(name, x, self.constant(last, x.dtype))
        return self._shift(name, x, y, fill)

    def population_count(self, x: Value) -> Value:
        """How many bits are set."""
        return self.unary("population_count", x)

    def clz(self, x: Value) -> Value:
        """How many leading bits are zero."""
        return self.unary("clz", x)

    # ---- conversion
    def convert(self, x: Value, dtype: Dtype) -> Value:
        """The number in another dtype: floats saturate to integers and NaN becomes 0; narrow floats
        are rounded to nearest even; complex to real drops the imaginary part."""
        if kind(dtype) == "c":
            to = part(dtype)
            return self.complex(self.cast(self.real(x), to), self.cast(self.imag(x), to)
                                if x.imag else self.constant(0, to))
        if x.imag and dtype == BOOL:
            return self.ne(x, 0.0)
        return self.cast(self.real(x), dtype)

    def to_odd(self, x: Value, y: Value) -> Value:
        """float64 x, whose float32 conversion is y, rounded to odd: rounding the result again is
        the same as rounding x once. Inexact results are truncated toward zero and get their last
        bit set."""
        back = self.cast(y, FLOAT64)
        bits = self.bitcast(y, INT32)
        cut = self.select(self.gt(self.abs(back), self.abs(x)), self.sub(bits, 1), bits)
        exact = self.or_(self.eq(back, x), self.is_nan(x))
        return self.bitcast(self.select(exact, bits, self.or_(cut, 1)), FLOAT32)

    def wide(self, x: Value) -> Value:
        """A narrow float as the float32 that its register holds."""
        return Value(x.name, FLOAT32) if is_narrow(x.dtype) else x

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Σ c xⁿ by Horner's rule with fused steps, leading coefficient first."""
        out: Operand = coefficients[0]
        for c in coefficients[1:]:
            out = self.fma(out, x, c)
        assert isinstance(out, Value)
        return out

    def pairwise(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The same polynomial, faster: Horner's rule in x² over pairs c x + d.

        Dependency chains are half as long, and half of the sums overwrite a register that is free
        afterwards, whereas a fused step that adds a constant has to copy it first (on ARM)."""
        square = self.mul(x, x)
        pairs = list(coefficients)
        out: Value | None = None
        if len(pairs) % 2:
            first = pairs.pop(0)
            out = self.fma(first, square, self.fma(pairs[0], x, pairs[1]))
            pairs = pairs[2:]
        for c, d in zip(pairs[::2], pairs[1::2], strict=True):
            pair = self.fma(c, x, d)
            out = pair if out is None else self.fma(out, square, pair)
        assert out is not None
        return out
