"""Products of few rows with 8-bit or 4-bit numbers, computed with integers.

Some processors have an instruction that adds the products of four pairs of 8-bit integers. For
the terms of a span (a few rows of the matrix that belong to one group), the inputs are rounded to
integers relative to the largest of them, which consist of three digits of 8 bits:

    x = unit (d0 + 256 d1 + 65536 d2)

The sums of the products of digits and stored numbers are exact, so the result is about as accurate
as a sum in float32. It takes fewer instructions, because stored numbers need not be converted. If
inputs and results are 16-bit floats, two digits are enough. If a span of x contains infinities, NaN
or only tiny numbers, it is multiplied in float32.

Four rows of 64 columns are read at a time, and their bytes are interleaved to words of four terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toile.kernels.contraction.cpu_instructions import Grouping, grouping
from toile.targets.llvm import text as ir
from toile.targets.llvm.product_types import INT32, element
from toile.targets.llvm.text import typed

WIDTH = 64  # columns of a tile
LANES = 16  # words of a vector
VECTORS = WIDTH // LANES
WORD = 4  # terms of a word
INFINITE = 255 << 23  # a float32, as an integer
LINE = 64  # bytes of a cache line
INTS, FLOATS = typed("i32", LANES), typed("float", LANES)
BYTES, PAIRS = typed("i8", WIDTH), typed("i16", WIDTH // 2)


class Span(NamedTuple):
    """What the digits of a row of x in a span consist of."""

    bits: int
    rows: int  # of stored values, at most
    digits: int

    @property
    def exponent(self) -> int:
        """The largest input is at least 2^exponent units, and less than twice as large."""
        return 8 * self.digits - 3

    @property
    def least(self) -> int:
        """A float32, as an integer: the unit of smaller ones would be subnormal."""
        return self.exponent + 1 << 23

    @property
    def parts(self) -> int:
        """How many numbers there are in a byte."""
        return 8 // self.bits

    @property
    def terms(self) -> int:
        """The terms of a sum, at most."""
        return self.rows * self.parts

    @property
    def size(self) -> int:
        """The bytes of the digits: those of one part and one digit follow each other."""
        return self.terms * self.digits


def instruction() -> Grouping | None:
    """The instruction that multiplies unsigned stored numbers and signed digits, if there is one
    for vectors of 16 words."""
    signed, unsigned = element(np.int8), element(np.uint8)
    assert signed and unsigned
    found = grouping(signed, unsigned, INT32)
    return found if found.terms == WORD and found.operand == INTS and not found.flips else None


# What is stored for a row of x in a span besides its digits: the sums at which the products of
# each digit start, the unit, and the sum of x in units.
INFO = 5


def digits_function(span: Span, offset: int) -> ir.Function:
    """Write the digits of a row of x; returns whether it is accurate to multiply them.

    `offset`: what is subtracted from all stored numbers."""
    f = ir.inner("digits", "ptr noalias %to, ptr noalias %info, ptr noalias %x, i64 %count",
                 ir.NOINLINE, result="i64")
    terms = span.terms
    padded = f.alloca("float", terms, 64)
    f.do(f"call void @llvm.memset.p0.i64(ptr {padded}, i8 0, i64 {4 * terms}, i1 false)")
    f.copy(padded, "%x", f.mul("%count", 4))
    whole, bits = typed("i32", terms), typed("float", terms)
    x = f.load(bits, padded, 64)
    size = f.value(f"and {whole} {f.value(f'bitcast {bits} {x} to {whole}')}, "
                   f"{ir.constant((1 << 31) - 1, terms)}")
    largest = f.value(f"call i32 @llvm.vector.reduce.umax.v{terms}i32({whole} {size})")
    exponent = f.value(f"and i32 {largest}, {INFINITE}")
    exponent = f.value(f"call i32 @llvm.umax.i32(i32 {exponent}, i32 {span.least})")
    unit = f.value(f"sub i32 {exponent}, {span.exponent << 23}")
    per_unit = f.value(f"sub i32 {254 << 23}, {unit}")  # as floats: 1 / unit
    factor = f.splat("float", f.value(f"bitcast i32 {per_unit} to float"), terms)
    scaled = f.value(f"fmul {bits} {x}, {factor}")
    rounded = f.value(f"call {bits} @llvm.rint.v{terms}f32({bits} {scaled})")
    # Infinities and NaN have no integers, but their digits are not used.
    rest = f.value(f"call {whole} @llvm.fptosi.sat.v{terms}i32.v{terms}f32({bits} {rounded})")
    for digit in range(span.digits):
        total = f.value(f"call i32 @llvm.vector.reduce.add.v{terms}i32({whole} {rest})")
        if digit == 0:
            place = f.at("%info", span.digits + 1, "i32")
            f.store("float", f.value(f"sitofp i32 {total} to float"), place)
        own = rest
        if digit < span.digits - 1:
            shift = ir.constant(24, terms)
            own = f.value(f"ashr {whole} {f.value(f'shl {whole} {rest}, {shift}')}, {shift}")
            rest = f.value(f"sub {whole} {rest}, {own}")
            rest = f.value(f"ashr {whole} {rest}, {ir.constant(8, terms)}")
            total = f.value(f"call i32 @llvm.vector.reduce.add.v{terms}i32({whole} {own})")
        f.store("i32", f.value(f"mul i32 {total}, {-offset}"), f.at("%info", digit, "i32"))
        stored = f.value(f"trunc {whole} {own} to {typed('i8', terms)}")
        for part in range(span.parts):
            chosen = _shuffle(f, typed("i8", terms), stored, stored,
                              range(part, terms, span.parts))
            kind = typed("i8", span.rows)
            f.store(kind, chosen, f.at("%to", (part * span.digits + digit) * span.rows, "i8"), WORD)
    f.store("i32", unit, f.at("%info", span.digits, "i32"))
    above = f.value(f"sub i32 {largest}, {span.least}")
    fits = f.compare("ult", above, INFINITE - span.least, "i32")
    fits = f.value(f"or i1 {fits}, {f.compare('eq', largest, 0, 'i32')}")
    f.result = f"i64 {f.value(f'zext i1 {fits} to i64')}"
    return f


def _shuffle(f: ir.Function, type_: str, a: str, b: str, indices: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {i}" for i in indices)
    return f.value(f"shufflevector {type_} {a}, {type_} {b}, <{len(indices)} x i32> <{mask}>")


def _interleaved(f: ir.Function, type_: str, a: str, b: str, per_part: int) -> tuple[str, str]:
    """The low and the high halves of each 128-bit part of two vectors, interleaved."""
    size, half = 4 * per_part, per_part // 2
    found = []
    for start in (0, half):
        places = [part * per_part + start + i for part in range(4) for i in range(half)]
        found.append(_shuffle(f, type_, a, b, [j for i in places for j in (i, size + i)]))
    return found[0], found[1]


def _words(f: ir.Function, rows: Sequence[str]) -> list[str]:
    """The words of four rows of bytes. Part p of vector q belongs to columns 16 p + 4 q and on."""
    pairs = [f.value(f"bitcast {BYTES} {x} to {PAIRS}")
             for i in (0, 2) for x in _interleaved(f, BYTES, rows[i], rows[i + 1], 16)]
    words = [x for i in (0, 1) for x in _interleaved(f, PAIRS, pairs[i], pairs[2 + i], 8)]
    return [f.value(f"bitcast {PAIRS} {x} to {INTS}") for x in words]


def _in_order(f: ir.Function, x: Sequence[str]) -> list[str]:
    """Four vectors of numbers in the order of columns, from those in the order of `_words`."""
    def parts(a: str, b: str, first: int, second: int) -> str:
        places = (first, second, 4 + first, 4 + second)
        return _shuffle(f, FLOATS, a, b, [4 * p + i for p in places for i in range(4)])

    found = []
    for first in (0, 2):
        low, high = (parts(x[i], x[i + 1], first, first + 1) for i in (0, 2))
        found += [parts(low, high, i, i + 2) for i in (0, 1)]
    return found


def words_function(span: Span, signed: bool) -> ir.Function:
    """Write the words of the numbers of a span and a tile, in the order in which `tile_function`
    reads them."""
    f = ir.inner("words", "ptr noalias %to, ptr noalias %values, i64 %count, i64 %n, i64 %ahead",
                 ir.NOINLINE)
    with f.loop(0, "%count", WORD, vectorize=False) as i:
        to = f.at("%to", f.mul(i, span.parts * WIDTH), "i8")
        for v, word in enumerate(_words(f, _rows(f, i))):
            for p, numbers in enumerate(_numbers(f, word, span, signed)):
                f.store(INTS, numbers, f.at(to, (v * span.parts + p) * WIDTH, "i8"), 64)
    return f


def _rows(f: ir.Function, first: str) -> list[str]:
    """Four rows of stored values; beyond the span, where digits are 0, its last row."""
    last, stored = f.sub("%count", 1), []
    for j in range(WORD):
        row = f.at("%values", f.mul(f.smin(f.add(first, j), last), "%n"), "i8")
        place = f.offset(row, "%ahead")
        f.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
        stored.append(f.load(BYTES, row, 1))
    return stored


def tile_function(
    span: Span, rows: int, signed: bool, zeros: bool, from_words: bool
) -> ir.Function:
    """held += scales unit (digits values - zeros sum) for some rows of x, a span and a tile.

    `from_words`: the values are what `words_function` writes."""
    f = ir.inner(
        "whole", "ptr noalias %held, ptr noalias %digits, ptr noalias %info, ptr noalias %values, "
        "ptr noalias %scales, ptr noalias %zeros, i64 %count, i64 %n, i64 %ahead", ir.NOINLINE)
    multiply = instruction()
    assert multiply
    sums = [[[f.variable(INTS, f.splat("i32", f.load("i32", _info(f, m, d), 4), LANES))
              for _ in range(VECTORS)] for d in range(span.digits)] for m in range(rows)]
    with f.loop(0, "%count", WORD, vectorize=False) as i:
        words = [] if from_words else _words(f, _rows(f, i))
        start = f.at("%values", f.mul(i, span.parts * WIDTH), "i8")
        for v in range(VECTORS):
            if from_words:
                found = [f.load(INTS, f.at(start, (v * span.parts + p) * WIDTH, "i8"), 64)
                         for p in range(span.parts)]
            else:
                found = _numbers(f, words[v], span, signed)
            for p, numbers in enumerate(found):
                for m in range(rows):
                    for d in range(span.digits):
                        at = (m * span.parts + p) * span.digits + d
                        place = f.at("%digits", f.add(i, at * span.rows), "i8")
                        x = f.splat("i32", f.load("i32", place, WORD), LANES)
                        slot = sums[m][d][v]
                        total = multiply.add(f, INTS, f.load(INTS, slot), x, numbers, LANES)
                        f.store(INTS, total, slot)
    for m, digits in enumerate(sums):
        values = [_joined(f, [slots[v] for slots in digits]) for v in range(VECTORS)]
        _add_scaled(f, m, span.digits, values, zeros)
    return f


def _add_scaled(
    f: ir.Function, m: int, digits: int, values: Sequence[str], zeros: bool
) -> None:
    """Add the sums of row m, which are in the order of `_words` and without zeros, to `held`."""
    unit = f.splat("float", f.load("float", _info(f, m, digits), 4), LANES)
    total = f.splat("float", f.load("float", _info(f, m, digits + 1), 4), LANES)
    for v, value in enumerate(_in_order(f, values)):
        if zeros:
            zero = f.load(FLOATS, f.at("%zeros", v * LANES, "float"), 4)
            negative = f.value(f"fneg {FLOATS} {zero}")
            value = f.multiply_add(negative, total, value, "float", LANES)
        value = f.value(f"fmul {FLOATS} {value}, {unit}")
        scale = f.load(FLOATS, f.at("%scales", v * LANES, "float"), 4)
        place = f.at("%held", m * WIDTH + v * LANES, "float")
        before = f.load(FLOATS, place, 4)
        f.store(FLOATS, f.multiply_add(scale, value, before, "float", LANES), place, 4)


def _info(f: ir.Function, row: int, index: int) -> str:
    return f.at("%info", row * INFO + index, "i32")


def _numbers(f: ir.Function, words: str, span: Span, signed: bool) -> list[str]:
    """The unsigned numbers in words: the words themselves, or (4 bits) the low and the high ones.

    128 is added to signed numbers."""
    if span.bits == 8:
        return [f.value(f"xor {INTS} {words}, {_repeated(0x80)}") if signed else words]
    high = f.value(f"lshr {INTS} {words}, {ir.constant(4, LANES)}")
    return [f.value(f"and {INTS} {x}, {_repeated(15)}") for x in (words, high)]


def _repeated(byte: int) -> str:
    return ir.constant(byte * 0x01010101, LANES)


def _joined(f: ir.Function, slots: Sequence[str]) -> str:
    """The sum of products with two or three digits."""
    low, middle, *high = (f.load(INTS, slot) for slot in slots)
    middle = f.value(f"shl {INTS} {middle}, {ir.constant(8, LANES)}")
    value = f.value(f"sitofp {INTS} {f.value(f'add {INTS} {low}, {middle}')} to {FLOATS}")
    for digit in high:
        digit = f.value(f"sitofp {INTS} {digit} to {FLOATS}")
        factor = f.splat("float", "65536.0", LANES)
        value = f.multiply_add(digit, factor, value, "float", LANES)
    return value
