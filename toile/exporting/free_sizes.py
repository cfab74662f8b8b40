"""Integers that are expressions of the batch size, with which plans for any batch size are made.

The compiler computes with sizes as with other integers, so a plan whose sizes are `FreeSize`
objects contains expressions wherever a plan for one batch size contains numbers. An expression is a
polynomial of the batch size, of rounded quotients, and of the smallest or largest of several sizes.
Two sizes are equal if their expressions are; they are ordered as they are for the batch size
`DECIDED`, which is therefore the size for which kernels and blocks are chosen.

Code that converts a size to a plain integer makes a plan that is valid for one batch size only. It
is found by planning twice, with different `value`s: these are what such conversions return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

DECIDED = 48  # the batch size for which decisions are made

Terms = tuple[tuple[tuple[Any, ...], int], ...]  # products of factors, each with its coefficient
BATCH: Terms = ((("n",), 1),)


class FreeSize(int):
    """An integer that depends on the batch size; `value` is the batch size of plain integers."""

    terms: Terms
    value: int
    decided: int

    @staticmethod
    def of(terms: Terms, value: int) -> int:
        """The size with these terms; a plain integer if it does not depend on the batch size."""
        if not terms:
            return 0
        if len(terms) == 1 and terms[0][0] == ():
            return terms[0][1]
        made = int.__new__(FreeSize, evaluated(terms, value))
        made.terms, made.value, made.decided = terms, value, evaluated(terms, DECIDED)
        return made

    def __hash__(self) -> int:
        return hash((self.terms, self.value))

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, FreeSize) and other.terms == self.terms
                and other.value == self.value)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return FreeSize.of, (self.terms, self.value)

    # ---- order and rounded numbers: as for the batch size DECIDED
    def __lt__(self, other: Any) -> bool:
        return self.decided < _decided(other)

    def __le__(self, other: Any) -> bool:
        return self.decided <= _decided(other)

    def __gt__(self, other: Any) -> bool:
        return self.decided > _decided(other)

    def __ge__(self, other: Any) -> bool:
        return self.decided >= _decided(other)

    def __float__(self) -> float:
        return float(self.decided)

    def __truediv__(self, other: Any) -> Any:
        return self.decided / _decided(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.decided

    # ---- arithmetic
    def _with(self, other: Any, combine: Callable[[Terms, Terms], Terms], plain: Any) -> Any:
        if isinstance(other, FreeSize):
            return FreeSize.of(combine(self.terms, other.terms), self.value)
        if isinstance(other, int):
            return FreeSize.of(combine(self.terms, _constant(other)), self.value)
        return plain(self.decided, other) if isinstance(other, float) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._with(other, _sum, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: _sum(a, _scaled(b, -1)), lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: _sum(b, _scaled(a, -1)), lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, _product, lambda a, b: a * b)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Any:
        if other.__class__ is int and other == 0:
            return self.decided // other  # raises the error of integers
        return self._with(other, _quotient, lambda a, b: a // b)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: _quotient(b, a), lambda a, b: b // a)

    def __mod__(self, other: Any) -> Any:
        return _remainder(self - other * (self // other))

    def __rmod__(self, other: Any) -> Any:
        return _remainder(other - self * (other // self))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return FreeSize.of(_scaled(self.terms, -1), self.value)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self.decided < 0 else self

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other)

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << other)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        made: Any = 1
        for _ in range(other):
            made = made * self
        return made

    def extreme(self, kind: str, sizes: Sequence[int]) -> int:
        """The smallest (`"min"`) or largest (`"max"`) of several sizes, see `extents`."""
        choose = min if kind == "min" else max
        known = [x for x in sizes if not isinstance(x, FreeSize)]
        free = dict.fromkeys(x for x in sizes if isinstance(x, FreeSize))
        parts = [*free, *([choose(known)] if known else [])]
        if len(parts) == 1:
            return parts[0]
        factor = (kind, *[_terms(x) for x in parts])
        return FreeSize.of((((factor,), 1),), self.value)


def _remainder(x: Any) -> Any:
    """A remainder that is not 0 for all batch sizes counts as one that is not 0."""
    if isinstance(x, FreeSize) and not x.decided:
        x.decided = 1
    return x


def free_size(scale: int, offset: int, value: int) -> int:
    """The size `scale * batch + offset`."""
    return FreeSize.of(_sum(_scaled(BATCH, scale), _constant(offset)), value)


def evaluated(terms: Terms, n: int) -> int:
    """The value of an expression for a batch size."""
    total = 0
    for factors, coefficient in terms:
        product = coefficient
        for f in factors:
            product *= n if f == "n" else _value(f, n)
        total += product
    return total


def _value(factor: tuple[Any, ...], n: int) -> int:
    """The value of a factor. A divisor that is 0 for some batch sizes counts as 1."""
    kind, *parts = factor
    a, *others = [evaluated(terms, n) for terms in parts]
    if kind == "/":
        return a // (others[0] or 1)
    return min(a, *others) if kind == "min" else max(a, *others)


def expression(x: int) -> str:
    """A size as a C expression of `n`; `rounded` divides and rounds down, `smaller` and `larger`
    choose one of two sizes."""
    return _text(x.terms) if isinstance(x, FreeSize) else str(int(x))


def _text(terms: Terms) -> str:
    parts = []
    for factors, coefficient in terms:
        names = ["n" if f == "n" else _text_of(f) for f in factors]
        if coefficient != 1 or not names:
            names.insert(0, str(coefficient) if coefficient >= 0 else f"({coefficient})")
        parts.append(" * ".join(names))
    return " + ".join(parts) or "0"


def _text_of(factor: tuple[Any, ...]) -> str:
    kind, *parts = factor
    name = {"/": "rounded", "min": "smaller", "max": "larger"}[kind]
    text, *others = map(_text, parts)
    for other in others:
        text = f"{name}({text}, {other})"
    return text


def _terms(x: int) -> Terms:
    return x.terms if isinstance(x, FreeSize) else _constant(x)


def _decided(x: Any) -> Any:
    return x.decided if isinstance(x, FreeSize) else x


def _constant(n: int) -> Terms:
    return (((), int(n)),) if n else ()


def _made(terms: Mapping[tuple[Any, ...], int]) -> Terms:
    return tuple(sorted(((f, c) for f, c in terms.items() if c), key=repr))


def _sum(a: Terms, b: Terms) -> Terms:
    found = dict(a)
    for factors, c in b:
        found[factors] = found.get(factors, 0) + c
    return _made(found)


def _scaled(a: Terms, factor: int) -> Terms:
    return tuple((f, c * factor) for f, c in a) if factor else ()


def _product(a: Terms, b: Terms) -> Terms:
    found: dict[tuple[Any, ...], int] = {}
    for f, c in a:
        for g, d in b:
            both = tuple(sorted((*f, *g), key=repr))
            found[both] = found.get(both, 0) + c * d
    return _made(found)


def _quotient(a: Terms, b: Terms) -> Terms:
    """a / b, rounded down. Terms that b divides are divided; the others are rounded together."""
    if len(b) > 1:
        k = _ratio(a, b)
        return _rounded(a, b) if k is None else _constant(k)
    (factors, d), = b
    whole: dict[tuple[Any, ...], int] = {}
    left = {}
    for f, c in a:
        others = _without(f, factors)
        if others is not None and c % d == 0:
            whole[others] = whole.get(others, 0) + c // d
        else:
            left[f] = c
    return _sum(_made(whole), _rounded(_made(left), b))


def _rounded(a: Terms, b: Terms) -> Terms:
    """a / b, rounded down, as one factor unless both are integers."""
    if not a:
        return ()
    if all(len(x) == 1 and x[0][0] == () for x in (a, b)):
        return _constant(a[0][1] // b[0][1])
    common = gcd(*[c for _, c in (*a, *b)])
    return (((("/", _divided(a, common), _divided(b, common)),), 1),)


def _divided(a: Terms, by: int) -> Terms:
    return tuple((f, c // by) for f, c in a)


def _without(factors: tuple[Any, ...], taken: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The factors that remain after division; None if `taken` does not divide them."""
    left = list(factors)
    for f in taken:
        if f not in left:
            return None
        left.remove(f)
    return tuple(left)


def _ratio(a: Terms, b: Terms) -> int | None:
    """The integer k with a = k * b, if there is one."""
    if len(a) != len(b) or not b or a[0][1] % b[0][1]:
        return None
    k = a[0][1] // b[0][1]
    return k if _made(dict(_scaled(b, k))) == a else None
