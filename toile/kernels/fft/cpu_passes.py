"""The passes of a Fourier transform, written for vectors: each lane belongs to a different signal.

A signal of n = r1 r2 ... numbers is transformed by one pass for each factor, from one buffer to the
other and back, and ends in natural order (Stockham). Element e of a buffer is a vector of real
parts followed by a vector of imaginary parts. A pass of radix r, after passes of product s, reads
elements q + s (p + m k) and writes q + s (r p + k), for k below r, p below m = n / (r s) and q
below s; result k is multiplied by exp(-2 pi i p k / (r m)). The code of a small radix is written
out; that of a larger prime radix is a loop over the pairs of numbers whose weights are conjugates.
"""

from __future__ import annotations

import cmath
import math
from functools import cache
from typing import NamedTuple

import numpy as np

from toile.targets.llvm import native
from toile.targets.llvm import text as ir

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
LARGEST = 127  # the largest radix; a convolution with a chirp is faster for larger primes
_TOGETHER = 4  # results of a large radix that are computed together
Pair = tuple[str, str]


@cache
def factors(n: int) -> tuple[int, ...] | None:
    """The radices of the passes for n numbers; None if n has a prime factor above `LARGEST`."""
    found: list[int] = []
    twos = (n & -n).bit_length() - 1
    rest = n >> twos
    for radix in range(3, LARGEST + 1, 2):
        while rest % radix == 0:
            found.append(radix)
            rest //= radix
    if rest != 1:
        return None
    eights = 0
    if native.vector_bytes() != 32:  # 16 registers do not hold 8 complex vectors
        eights = max(0, twos // 3 if twos % 3 != 1 else twos // 3 - 1)
    twos -= 3 * eights
    powers = [8] * eights + [4] * (twos // 2) + [2] * (twos % 2)
    return (*powers, *found) if n > 1 else ()


class Pass(NamedTuple):
    """One pass: see the module's docstring; its factors begin at `place` in the table."""

    radix: int
    m: int
    s: int
    place: int


@cache
def passes(n: int) -> tuple[Pass, ...]:
    """The passes for n numbers, whose prime factors are small."""
    found: list[Pass] = []
    place, s, left = 0, 1, n
    for radix in factors(n) or ():
        m = left // radix
        found.append(Pass(radix, m, s, place))
        place += _turns(radix, m) + (0 if radix in RADICES else (radix // 2) ** 2)
        s, left = s * radix, m
    return tuple(found)


def _turns(radix: int, m: int) -> int:
    """How many factors the results of a pass are multiplied by."""
    return m * (radix - 1) if m > 1 else 0


def table(n: int) -> np.ndarray:
    """The factors of all passes for n numbers, and the weights of large radices."""
    parts = [np.zeros(0, complex)]
    for radix, m, _, _ in passes(n):
        if m > 1:
            p, k = np.arange(m)[:, None], np.arange(1, radix)
            parts.append(roots(p * k, radix * m).ravel())
        if radix not in RADICES:
            k = np.arange(1, radix // 2 + 1)
            parts.append(roots(np.multiply.outer(k, k), radix).conj().ravel())
    return np.concatenate(parts)


def roots(power: np.ndarray, n: int) -> np.ndarray:
    """exp(-2 pi i power / n), exact at multiples of an eighth of a turn."""
    eighth, rest = np.divmod(8 * (power % n), n)
    angle = rest * (math.pi / (4 * n))
    first = np.cos(angle) - 1j * np.sin(angle)
    turns = np.array([1, (1 - 1j) * math.sqrt(0.5), -1j, (-1 - 1j) * math.sqrt(0.5),
                      -1, (-1 + 1j) * math.sqrt(0.5), 1j, (1 + 1j) * math.sqrt(0.5)])
    return first * turns[eighth]


class Vectors:
    """Arithmetic on complex vectors with `lanes` lanes of a type ("float" or "double")."""

    def __init__(self, f: ir.Function, type: str, lanes: int):
        self.f, self.scalar, self.lanes = f, type, lanes
        self.size = {"float": 4, "double": 8}[type]
        self.type = ir.typed(type, lanes)
        self.plane = self.size * lanes  # bytes of a vector
        self.element = 2 * self.plane

    def number(self, value: float) -> str:
        """A constant in every lane."""
        text = float_text(self.scalar, value)
        return ir.constant(text, self.lanes, self.scalar)

    def named(self, value: float) -> str:
        """The name of a constant in every lane, for calls."""
        return self.f.value(f"bitcast {self.type} {self.number(value)} to {self.type}")

    def add(self, a: Pair, b: Pair, op: str = "fadd") -> Pair:
        x, y = (self.f.value(f"{op} {self.type} {u}, {v}") for u, v in zip(a, b, strict=True))
        return x, y

    def sub(self, a: Pair, b: Pair) -> Pair:
        return self.add(a, b, "fsub")

    def negated(self, a: str) -> str:
        return self.f.value(f"fneg {self.type} {a}")

    def times_minus_i(self, a: Pair) -> Pair:
        return a[1], self.negated(a[0])

    def multiply(self, a: Pair, b: Pair) -> Pair:
        """The product of complex numbers."""
        f, t = self.f, self.type
        cross = f.value(f"fmul {t} {a[1]}, {b[1]}")
        other = f.value(f"fmul {t} {a[1]}, {b[0]}")
        real = f.multiply_add(a[0], b[0], self.negated(cross), self.scalar, self.lanes)
        return real, f.multiply_add(a[0], b[1], other, self.scalar, self.lanes)

    def scaled(self, a: Pair, factor: str) -> Pair:
        """A complex vector times a real one."""
        x, y = (self.f.value(f"fmul {self.type} {u}, {factor}") for u in a)
        return x, y

    def splat(self, pointer: str) -> str:
        """The number at an address, in every lane."""
        return self.f.splat(self.scalar, self.f.load(self.scalar, pointer, self.size), self.lanes)

    def factor(self, pointer: str) -> Pair:
        """The complex number at an address, in every lane."""
        return self.splat(pointer), self.splat(self.f.offset(pointer, self.size))

    def at(self, buffer: str, index: ir.Operand) -> str:
        """The address of an element of a buffer."""
        return self.f.step(buffer, index, self.element)

    def load(self, pointer: str) -> Pair:
        f = self.f
        return (f.load(self.type, pointer, self.size),
                f.load(self.type, f.offset(pointer, self.plane), self.size))

    def store(self, value: Pair, pointer: str) -> None:
        self.f.store(self.type, value[0], pointer, self.size)
        self.f.store(self.type, value[1], self.f.offset(pointer, self.plane), self.size)

    # ---- transforms of a few numbers
    def butterfly(self, xs: list[Pair]) -> list[Pair]:
        """The Fourier transform of as many numbers as are given."""
        known = {2: self._two, 4: self._four, 8: self._eight}
        return known.get(len(xs), self._odd)(xs)

    def _two(self, xs: list[Pair]) -> list[Pair]:
        a, b = xs
        return [self.add(a, b), self.sub(a, b)]

    def _four(self, xs: list[Pair]) -> list[Pair]:
        (a, c), (b, d) = self._two(xs[::2]), self._two(xs[1::2])
        d = self.times_minus_i(d)
        return [self.add(a, b), self.add(c, d), self.sub(a, b), self.sub(c, d)]

    def _eight(self, xs: list[Pair]) -> list[Pair]:
        even, odd = self._four(xs[::2]), self._four(xs[1::2])
        half = self.number(math.sqrt(0.5))
        f, t = self.f, self.type

        def turned(a: Pair, forward: bool) -> Pair:
            """a rotated back by an eighth of a turn or, if not `forward`, by three eighths."""
            x, y = (a[0], a[1]) if forward else (a[1], a[0])
            total, gap = f.value(f"fadd {t} {x}, {y}"), f.value(f"fsub {t} {a[1]}, {a[0]}")
            if forward:
                return self.scaled((total, gap), half)
            return self.scaled((gap, self.negated(total)), half)

        odd = [odd[0], turned(odd[1], True), self.times_minus_i(odd[2]), turned(odd[3], False)]
        return ([self.add(a, b) for a, b in zip(even, odd, strict=True)]
                + [self.sub(a, b) for a, b in zip(even, odd, strict=True)])

    def _odd(self, xs: list[Pair]) -> list[Pair]:
        """Results k and n - k share their products with the sums and differences of pairs."""
        f, n = self.f, len(xs)
        half = range(1, n // 2 + 1)
        sums = [self.add(xs[k], xs[n - k]) for k in half]
        gaps = [self.sub(xs[k], xs[n - k]) for k in half]
        total = xs[0]
        for pair in sums:
            total = self.add(total, pair)
        found = [total] * n

        def weighted(j: int, part: int, start: str, pairs: list[Pair], sine: bool) -> str:
            for k, pair in zip(half, pairs, strict=True):
                w = cmath.exp(2j * math.pi * (j * k % n) / n)
                weight = self.named(w.imag if sine else w.real)
                start = f.multiply_add(pair[part], weight, start, self.scalar, self.lanes)
            return start

        for j in half:
            even = (weighted(j, 0, xs[0][0], sums, False), weighted(j, 1, xs[0][1], sums, False))
            zero = self.named(0.0)
            odd = (weighted(j, 1, zero, gaps, True),
                   self.negated(weighted(j, 0, zero, gaps, True)))
            found[j], found[n - j] = self.add(even, odd), self.sub(even, odd)
        return found


def float_text(type: str, value: float) -> str:
    """A constant as LLVM writes it: the bits of a double; for a float, of one that a float can
    hold."""
    rounded = np.float64(np.float32(value) if type == "float" else value)
    return f"0x{int(rounded.view(np.uint64)):016X}"


def pass_function(type: str, lanes: int, one: Pass) -> ir.Function:
    """A pass over a buffer."""
    # LLVM has to assume that `out` may alias the table: otherwise it would load all factors before
    # the inner loop, for which there are too few registers.
    radix, m, s, place = one
    f = ir.inner(f"pass{s}", "ptr noalias %in, ptr %out, ptr %table", ir.NOINLINE)
    v = Vectors(f, type, lanes)
    butterfly = _butterfly if radix in RADICES else _large_butterfly
    with f.loop(0, m) as p:
        factors = f.step("%table", f.add(f.mul(p, radix - 1), place), 2 * v.size)
        source, target = v.at("%in", f.mul(p, s)), v.at("%out", f.mul(p, radix * s))
        with f.loop(0, s) as q:
            butterfly(v, one, v.at(source, q), v.at(target, q), factors)
    return f


def _butterfly(v: Vectors, one: Pass, here: str, there: str, factors: str) -> None:
    """A transform of a small number of elements."""
    f, (radix, m, s, _) = v.f, one
    xs = [v.load(f.offset(here, v.element * m * s * k)) for k in range(radix)]
    for k, y in enumerate(v.butterfly(xs)):
        if m > 1 and k:
            y = v.multiply(y, v.factor(f.offset(factors, 2 * v.size * (k - 1))))
        v.store(y, f.offset(there, v.element * s * k))


def _large_butterfly(v: Vectors, one: Pass, here: str, there: str, factors: str) -> None:
    """A transform of a large prime number of elements."""
    # With c = cos(2 pi j k / r) and s = sin(2 pi j k / r), results j and r - j are
    # x_0 + sum_k c (x_k + x_(r-k)) -+ i sum_k s (x_k - x_(r-k)), for k from 1 to r // 2.
    f, (radix, m, s, place) = v.f, one
    half = radix // 2
    weights = f.step("%table", place + _turns(radix, m), 2 * v.size)
    pairs = f.alloca(f"[{2 * half * v.element} x i8]", align=v.plane)
    first = v.load(here)
    total = [f.variable(v.type, part) for part in first]
    with f.loop(0, half) as k:
        a = v.load(v.at(here, f.mul(f.add(k, 1), m * s)))
        b = v.load(v.at(here, f.mul(f.sub(radix - 1, k), m * s)))
        pair = v.at(pairs, f.mul(k, 2))
        v.store(v.add(a, b), pair)
        v.store(v.sub(a, b), f.offset(pair, v.element))
        for slot, part in zip(total, v.add(a, b), strict=True):
            f.store(v.type, f.value(f"fadd {v.type} {f.load(v.type, slot)}, {part}"), slot)
    v.store((f.load(v.type, total[0]), f.load(v.type, total[1])), there)

    def put(y: Pair, k: str) -> None:
        if m > 1:
            y = v.multiply(y, v.factor(f.step(factors, f.sub(k, 1), 2 * v.size)))
        v.store(y, v.at(there, f.mul(k, s)))

    def results(start: ir.Operand, count: int) -> None:
        """Results `start` + 1 to `start` + `count`, and their conjugates."""
        zero = v.number(0.0)
        sums = [[f.variable(v.type, part) for part in (*first, zero, zero)] for _ in range(count)]
        with f.loop(0, half) as k:
            pair = v.at(pairs, f.mul(k, 2))
            total, gap = v.load(pair), v.load(f.offset(pair, v.element))
            for j, slots in enumerate(sums):
                at = f.add(f.mul(f.add(start, j), half), k)
                c, s = v.factor(f.step(weights, at, 2 * v.size))
                for slot, x, w in zip(slots, (*total, *gap), (c, c, s, s), strict=True):
                    more = f.multiply_add(x, w, f.load(v.type, slot), v.scalar, v.lanes)
                    f.store(v.type, more, slot)
        for j, slots in enumerate(sums):
            a, b, c, d = (f.load(v.type, slot) for slot in slots)
            k = f.add(start, j + 1)
            put(v.add((a, b), (d, v.negated(c))), k)
            put(v.sub((a, b), (d, v.negated(c))), f.sub(radix, k))

    whole = half - half % _TOGETHER
    with f.loop(0, whole, _TOGETHER) as start:
        results(start, _TOGETHER)
    if whole < half:
        results(whole, half - whole)
