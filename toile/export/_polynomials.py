"""Polynomials of dimension variables in a normal form, and arithmetic with them.

A polynomial is a tuple of terms (product, coefficient), the largest first. A product is a tuple of
factors (factor, power). A factor is the name of a variable, or an operation such as floordiv with
two polynomials. Terms are in the order in which JAX prints them. Constraints are not used here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}

Factor: TypeAlias = "str | Applied"
Product: TypeAlias = tuple[tuple[Any, int], ...]
Polynomial: TypeAlias = tuple[tuple[Any, int], ...]


class Applied(NamedTuple):
    """A factor that is not a variable: an operation and its operands."""

    operation: str
    a: Polynomial
    b: Polynomial


ZERO: Polynomial = ()


def constant(value: int) -> Polynomial:
    return (((), value),) if value else ZERO


def variable(name: str) -> Polynomial:
    return ((((name, 1),), 1),)


def applied(operation: str, a: Polynomial, b: Polynomial) -> Polynomial:
    return ((((Applied(operation, a, b), 1),), 1),)


def as_constant(p: Polynomial) -> int | None:
    """The value of a polynomial without variables; None if it has some."""
    if not p:
        return 0
    return p[0][1] if len(p) == 1 and not p[0][0] else None


def as_variable(p: Polynomial) -> str | None:
    """The name of the variable if the polynomial is a single variable, otherwise None."""
    if len(p) != 1 or p[0][1] != 1 or len(p[0][0]) != 1:
        return None
    factor, power = p[0][0][0]
    return factor if power == 1 and isinstance(factor, str) else None


# ---- order


@lru_cache(4096)
def _factor_key(factor: Factor) -> tuple[Any, ...]:
    if isinstance(factor, str):
        return 1, "", factor
    a, b = _key(factor.a), _key(factor.b)
    return 1 + a[0] + b[0], factor.operation, "", a, b


@lru_cache(4096)
def _product_key(product: Product) -> tuple[Any, ...]:
    keys = tuple((_factor_key(f), n) for f, n in product)
    return sum(key[0] * n for key, n in keys), keys


@lru_cache(4096)
def _key(p: Polynomial) -> tuple[Any, ...]:
    keys = tuple((_product_key(product), n) for product, n in p)
    return sum(max(key[0], 1) for key, _ in keys), keys


def ordered(terms: Mapping[Product, int]) -> Polynomial:
    """The polynomial with the given coefficients."""
    return tuple(sorted([(t, n) for t, n in terms.items() if n],
                        key=lambda term: _product_key(term[0]), reverse=True))


# ---- arithmetic


def combined(a: Polynomial, k: int, b: Polynomial, m: int) -> Polynomial:
    """k·a + m·b."""
    terms = {t: n * k for t, n in a}
    for t, n in b:
        terms[t] = terms.get(t, 0) + n * m
    return ordered(terms)


def multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    terms: dict[Product, int] = {}
    for t, n in a:
        for u, m in b:
            product = _joined(t, u)
            terms[product] = terms.get(product, 0) + n * m
    return ordered(terms)


def _joined(t: Product, u: Product) -> Product:
    powers = dict(t)
    for factor, n in u:
        powers[factor] = powers.get(factor, 0) + n
    return tuple(sorted(powers.items(), key=lambda f: _factor_key(f[0]), reverse=True))


def _without(t: Product, u: Product) -> Product | None:
    """t / u; None if u does not divide t."""
    powers = dict(t)
    for factor, n in u:
        if powers.get(factor, 0) < n:
            return None
        powers[factor] -= n
    return tuple((f, n) for f, n in t if powers[f] for n in (powers[f],))


def divided(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """A quotient and a remainder: a == quotient·b + remainder, with as few terms as possible."""
    quotient: Polynomial = ZERO
    product, k = b[0]
    if len(b) > 1:
        rest = a
        for _ in range(len(a) + 8):
            if not rest:
                return quotient, ZERO
            left = _without(rest[0][0], product)
            if left is None or rest[0][1] % k:
                break
            step = ((left, rest[0][1] // k),)
            quotient = combined(quotient, 1, step, 1)
            rest = combined(rest, 1, multiplied(step, b), -1)
        return ZERO, a
    kept: dict[Product, int] = {}
    for t, n in a:
        left = _without(t, product)
        if left is None or (n % k and product):
            kept[t] = n
        elif n % k:
            quotient = combined(quotient, 1, ((t, n // k),) if t == () else ZERO, 1)
            kept[t] = n % k if t == () else n
        else:
            quotient = combined(quotient, 1, ((left, n // k),), 1)
    return quotient, ordered(kept)


# ---- values, names and text


def value(p: Polynomial, of: Mapping[str, Any]) -> Any:
    """The value for the given values of the variables; raises KeyError if one is missing."""
    total: Any = 0
    for product, n in p:
        term: Any = n
        for factor, power in product:
            found = of[factor] if isinstance(factor, str) else OPERATIONS[factor.operation](
                value(factor.a, of), value(factor.b, of))
            for _ in range(power):
                term = term * found
        total = total + term
    return total


def variables(p: Polynomial) -> list[str]:
    """The names of variables, in the order in which they occur."""
    found: dict[str, None] = {}
    for product, _ in p:
        for factor, _ in product:
            if isinstance(factor, str):
                found[factor] = None
            else:
                found.update(dict.fromkeys([*variables(factor.a), *variables(factor.b)]))
    return list(found)


@lru_cache(4096)
def text(p: Polynomial) -> str:
    """The polynomial as JAX prints it, such as "2*b + a + 1"."""
    if not p:
        return "0"
    parts = []
    for product, n in p:
        shown = _product_text(product)
        size = str(abs(n)) if not product else shown if abs(n) == 1 else f"{abs(n)}*{shown}"
        parts.append(f"{'-' if n < 0 else '+'} {size}")
    found = " ".join(parts)
    return found[2:] if found.startswith("+ ") else found


def _product_text(product: Product) -> str:
    factors = [(f if isinstance(f, str) else f"{f.operation}({text(f.a)}, {text(f.b)})", n)
               for f, n in reversed(product)]
    return "*".join(f if n == 1 else f"{f}^{n}" for f, n in factors)
