"""The coefficients of Taylor polynomials: how operations make those of results from operands'.

A rule gets an operation, the order, the operands' values and their coefficients of t, t^2, ..., and
gives the value and the coefficients of the result. `zero_term` stands for one coefficient that is
known to be zero, `zero_series` for all those of an operand that does not move.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Zero
from toile.engine.operation import instantiate
from toile.primitives.bits import eq
from toile.primitives.choices import ConvertElementType, SelectN, convert, like, select
from toile.primitives.elementwise import Div, Log, Pow, div, log, pow_
from toile.primitives.families import (
    Add,
    Mul,
    Neg,
    Sub,
    add,
    fill_shape,
    full_like,
    mul,
    neg,
    sub,
)
from toile.primitives.transcendental import Cos, Cosh, Exp, Sin, Sinh, cos, cosh, sin, sinh


class ZeroTerm:
    """A coefficient that is known to be zero."""

    def __repr__(self) -> str:
        return "zero_term"


class ZeroSeries:
    """All coefficients of a value that does not move."""

    def __repr__(self) -> str:
        return "zero_series"


zero_term, zero_series = ZeroTerm(), ZeroSeries()

Terms = Sequence[Any] | ZeroSeries  # the coefficients of t, t^2, ...


def times(c: float, x: Any) -> Any:
    return x if x is zero_term or c == 1 else mul(full_like(x, c), x)


def _sum(terms: Sequence[Any]) -> Any:
    terms = [t for t in terms if t is not zero_term]
    return functools.reduce(add, terms) if terms else zero_term


def _pairs(
    op: Callable[[Any, Any], Any], xs: Sequence[Any], ys: Sequence[Any], total: int, first: int = 0,
    weighted: bool = False,
) -> Any:
    """The sum of op(xs[j], ys[total - j]) from j = first on, each times j / total on request."""
    return _sum([
        zero_term if x is zero_term or ys[total - j] is zero_term
        else times(j / total if weighted else 1, op(x, ys[total - j]))
        for j, x in enumerate(xs[: total + 1]) if j >= first
    ])


def _full(x: Any, terms: Terms, order: int) -> list[Any]:
    """All coefficients of a value, from the constant one on."""
    return [x, *([zero_term] * order if isinstance(terms, ZeroSeries) else terms)]


def _shaped(terms: Sequence[Any], y: Any) -> list[Any]:
    """Coefficients of a result, those from operands of rank 0 spread out."""
    return [t if t is zero_term else fill_shape(t, y.shape) for t in terms]


def linear(op: Any, order: int, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
    """Each coefficient by itself; integers are parameters."""
    y = op(*primals)
    moving = [dtypes.is_inexact(x.dtype) for x in primals]
    out = []
    for k in range(1, order + 1):
        terms = [_full(x, s, order)[k] if m else x for x, s, m in zip(primals, series, moving)]
        if all(t is zero_term for t, m in zip(terms, moving) if m):
            out.append(zero_term)
            continue
        out.append(op(*[instantiate(Zero(x)) if t is zero_term else t
                        for x, t in zip(primals, terms)]))
    return y, out


def _converted(op: Any, order: int, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
    (terms,) = series
    assert not isinstance(terms, ZeroSeries)
    if dtypes.kind(op.dtype) == "b":
        return op(*primals), zero_series
    to = op if dtypes.is_inexact(op.dtype) else None
    if to is None and dtypes.is_inexact(primals[0].dtype):
        return op(*primals), zero_series  # it is rounded
    return op(*primals), [t if t is zero_term or to is None else to(t) for t in terms]


def _signed(op: Any, order: int, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
    """Sums, differences and negatives."""
    y = op(*primals)
    columns = [_full(x, s, order)[1:] for x, s in zip(primals, series)]
    if isinstance(op, Neg):
        return y, [t if t is zero_term else neg(t) for t in columns[0]]
    out = []
    for a, b in zip(*columns):
        if a is zero_term and b is not zero_term and isinstance(op, Sub):
            b = neg(b)
        out.append(op(a, b) if a is not zero_term and b is not zero_term else _sum([a, b]))
    return y, _shaped(out, y)


def product(op: Any, order: int, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
    xs, ys = (_full(x, s, order) for x, s in zip(primals, series))
    out, *terms = [_pairs(op, xs, ys, k) for k in range(order + 1)]
    return out, _shaped(terms, out)


def _quotient(op: Any, order: int, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
    """v = x / y from x = v y."""
    xs, ys = (_full(x, s, order) for x, s in zip(primals, series))
    out = [op(*primals)]
    for k in range(1, order + 1):
        known = _pairs(mul, [*out, zero_term], ys, k)
        rest = _sum([xs[k], zero_term if known is zero_term else neg(known)])
        out.append(rest if rest is zero_term else fill_shape(div(rest, ys[0]), out[0].shape))
    return out[0], out[1:]


def _exponential(y: Any, terms: Sequence[Any]) -> list[Any]:
    """The coefficients of y exp(u), where u has `terms` and no constant: v' = u' v."""
    us, out = [zero_term, *terms], [y]
    for k in range(1, len(us)):
        out.append(_pairs(mul, us, [*out, zero_term], k, 1, weighted=True))
    return _shaped(out[1:], y)


def _exp(op: Any, order: int, primals: Sequence[Any], series: Sequence[Any]) -> Any:
    y = op(*primals)
    return y, _exponential(y, series[0])


def _log(op: Any, order: int, primals: Sequence[Any], series: Sequence[Any]) -> Any:
    """v = log(u) from u' = v' u."""
    us = [primals[0], *series[0]]
    out = [op(*primals)]
    for k in range(1, order + 1):
        known = _pairs(mul, [*out, zero_term], us, k, 1, weighted=True)
        rest = _sum([us[k], zero_term if known is zero_term else neg(known)])
        out.append(rest if rest is zero_term else div(rest, us[0]))
    return out[0], out[1:]


def _waves(op: Any, order: int, primals: Sequence[Any], series: Sequence[Any]) -> Any:
    """Sine and cosine, plain or hyperbolic, which are each other's slopes."""
    (x,), us = primals, [zero_term, *series[0]]
    plain = isinstance(op, Sin | Cos)
    s, c = ([sin(x)], [cos(x)]) if plain else ([sinh(x)], [cosh(x)])
    for k in range(1, order + 1):
        up = _pairs(mul, us, [*c, zero_term], k, 1, weighted=True)
        down = _pairs(mul, us, [*s, zero_term], k, 1, weighted=True)
        s.append(up)
        c.append(neg(down) if plain and down is not zero_term else down)
    out = s if isinstance(op, Sin | Sinh) else c
    return out[0], out[1:]


def _power(op: Any, order: int, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
    """x^r: through logarithms if r moves, else by the binomial series, which holds at 0 too."""
    (x, r), y = primals, op(*primals)
    if series[1] is not zero_series:
        logs = zero_series if series[0] is zero_series else _log(log, order, [x], series[:1])[1]
        _, terms = product(mul, order, [r, log(x)], [series[1], logs])
        return y, _exponential(y, terms)
    x, r = fill_shape(x, y.shape), fill_shape(convert(r, x.dtype), y.shape)
    terms = _shaped(_full(x, series[0], order)[1:], y)
    moved = [zero_term, *terms]  # x(t) - x(0), and its powers
    power, choose = moved, r
    out = [[zero_term if t is zero_term else mul(_binomial(x, r, 1, choose), t) for t in terms]]
    for m in range(2, order + 1):
        power = [_pairs(mul, power, moved, k) for k in range(order + 1)]
        choose = mul(choose, mul(sub(r, full_like(r, m - 1)), full_like(r, 1 / m)))
        factor = _binomial(x, r, m, choose)
        out.append([t if t is zero_term else mul(factor, t) for t in power[1:]])
    return y, [_sum(column) for column in zip(*out)]


def _binomial(x: Any, r: Any, m: int, choose: Any) -> Any:
    """(r choose m) x^(r - m), and 0 where the first factor is."""
    none = eq(choose, like(choose, 0))
    left = select(none, like(r, 1), sub(r, full_like(r, m)))
    return select(none, like(choose, 0), mul(choose, pow_(x, left)))


RULES: dict[type, Callable[..., tuple[Any, Any]]] = {
    Add: _signed,
    Sub: _signed,
    Neg: _signed,
    Mul: product,
    Div: _quotient,
    Pow: _power,
    Exp: _exp,
    Log: _log,
    Sin: _waves,
    Cos: _waves,
    Sinh: _waves,
    Cosh: _waves,
    ConvertElementType: _converted,
    SelectN: linear,
}
