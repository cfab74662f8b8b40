"""Rules for Taylor polynomials: the coefficients of results from those of operands.

`Taylor` has the rules that `Operation.taylor` chooses from. A rule gets an operation, the operands'
values and their coefficients of t, t^2, ..., and returns the value and the coefficients of the
result. `zero_term` stands for one coefficient that is known to be zero, `zero_series` for all
coefficients of a constant operand. `toile.experimental.jet` loads this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toile.engine import dtypes
from toile.engine.avals import Zero, aval_of
from toile.engine.operation import Operation, infer_list
from toile.engine.program import evaluate
from toile.engine.source import here
from toile.primitives.bits import eq
from toile.primitives.choices import convert, like, select
from toile.primitives.elementwise import div, log, max_, min_, pow_
from toile.primitives.families import (
    Neg,
    Sub,
    add,
    fill_shape,
    full_like,
    instantiate,
    mul,
    neg,
    sub,
)
from toile.primitives.transcendental import Cos, Sin, Sinh, cos, cosh, sin, sinh


class ZeroTerm:
    """A coefficient that is known to be zero."""

    def __repr__(self) -> str:
        return "zero_term"


class ZeroSeries:
    """The coefficients of a constant, all of which are zero."""

    def __repr__(self) -> str:
        return "zero_series"


zero_term, zero_series = ZeroTerm(), ZeroSeries()

Terms = Sequence[Any] | ZeroSeries  # the coefficients of t, t^2, ...
T = TypeVar("T", bound="Taylor")
Rule = Callable[[T, Any, Sequence[Any], Sequence[Any]], tuple[Any, Any]]


def times(c: float, x: Any) -> Any:
    return x if x is zero_term or c == 1 else mul(full_like(x, c), x)


def _sum(terms: Sequence[Any]) -> Any:
    terms = [t for t in terms if t is not zero_term]
    return functools.reduce(add, terms) if terms else zero_term


def _pairs(
    op: Callable[[Any, Any], Any], xs: Sequence[Any], ys: Sequence[Any], total: int, first: int = 0,
    weighted: bool = False,
) -> Any:
    """The sum of op(xs[j], ys[total - j]) from j = first on, each optionally times j / total."""
    return _sum([
        zero_term if x is zero_term or ys[total - j] is zero_term
        else times(j / total if weighted else 1, op(x, ys[total - j]))
        for j, x in enumerate(xs[: total + 1]) if j >= first
    ])


def _full(x: Any, terms: Terms, order: int) -> list[Any]:
    """All coefficients of a value, starting with the constant one."""
    return [x, *([zero_term] * order if isinstance(terms, ZeroSeries) else terms)]


def _shaped(terms: Sequence[Any], y: Any) -> list[Any]:
    """Coefficients of a result; those from operands of rank 0 are broadcast."""
    return [t if t is zero_term else fill_shape(t, y.shape) for t in terms]


def _exponential(y: Any, terms: Sequence[Any]) -> list[Any]:
    """The coefficients of y exp(u), where u has `terms` and no constant term: v' = u' v."""
    us, out = [zero_term, *terms], [y]
    for k in range(1, len(us)):
        out.append(_pairs(mul, us, [*out, zero_term], k, 1, weighted=True))
    return _shaped(out[1:], y)


def _binomial(x: Any, r: Any, m: int, choose: Any) -> Any:
    """(r choose m) x^(r - m), and 0 where the binomial coefficient is 0."""
    none = eq(choose, like(choose, 0))
    left = select(none, like(r, 1), sub(r, full_like(r, m)))
    return select(none, like(choose, 0), mul(choose, pow_(x, left)))


def _whole_power(x: Any, n: int) -> Any:
    """x^n by repeated squaring."""
    if n < 0:
        return div(full_like(x, 1), _whole_power(x, -n))
    if n == 0:
        return like(x, 1)
    half, odd = divmod(n, 2)
    square = None if half == 0 else _whole_power(mul(x, x), half)
    return square if not odd else x if square is None else mul(x, square)


def of_floats(rule: Rule[T]) -> Rule[T]:
    """A rule for coefficients of floats; those of integers are dropped, or refused if a result is
    of integers."""

    @functools.wraps(rule)
    def checked(self: T, op: Operation, primals: Sequence[Any], series: Sequence[Any]) -> Any:
        whole = [s is not zero_series and not dtypes.is_inexact(x.dtype)
                 for x, s in zip(primals, series)]
        if any(whole):
            for aval in infer_list(op, [aval_of(x) for x in primals]):
                if dtypes.kind(aval.dtype) in "iu":
                    raise TypeError(
                        f"jet: needed floating arguments, got {aval.str_short()} from {op.name} "
                        f"(convert them, or close over integers){here()}"
                    )
        return rule(self, op, primals, [zero_series if w else s for s, w in zip(series, whole)])

    return checked


class Taylor:
    """Rules for polynomials up to t^order; jet adds the rules that call functions."""

    def __init__(self, order: int):
        self.order = order

    def composed(self, op: Any, fun: Callable[..., Any], primals: Sequence[Any],
                 series: Sequence[Terms]) -> Any:
        """An operation written as a function of others."""
        raise NotImplementedError

    @of_floats
    def linear(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """Apply the operation to each coefficient; integers are parameters."""
        y = op(*primals)
        moving = [dtypes.is_inexact(x.dtype) for x in primals]
        out = []
        for k in range(1, self.order + 1):
            terms = [_full(x, s, self.order)[k] if m else x
                     for x, s, m in zip(primals, series, moving)]
            if all(t is zero_term for t, m in zip(terms, moving) if m):
                out.append(zero_term)
                continue
            out.append(op(*[instantiate(Zero(x)) if t is zero_term else t
                            for x, t in zip(primals, terms)]))
        return y, out

    def converted(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        (terms,) = series
        assert not isinstance(terms, ZeroSeries)
        if dtypes.kind(op.dtype) == "b":
            return op(*primals), zero_series
        to = op if dtypes.is_inexact(op.dtype) else None
        if to is None and dtypes.is_inexact(primals[0].dtype):
            return op(*primals), zero_series  # rounded to integers: constant
        return op(*primals), [t if t is zero_term or to is None else to(t) for t in terms]

    def constant(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """An operation whose result is constant."""
        return op(*primals), zero_series

    @of_floats
    def signed(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """Sums, differences and negatives."""
        y = op(*primals)
        columns = [_full(x, s, self.order)[1:] for x, s in zip(primals, series)]
        if isinstance(op, Neg):
            return y, [t if t is zero_term else neg(t) for t in columns[0]]
        out = []
        for a, b in zip(*columns):
            if a is zero_term and b is not zero_term and isinstance(op, Sub):
                b = neg(b)
            out.append(op(a, b) if a is not zero_term and b is not zero_term else _sum([a, b]))
        return y, _shaped(out, y)

    @of_floats
    def product(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        xs, ys = (_full(x, s, self.order) for x, s in zip(primals, series))
        out, *terms = [_pairs(op, xs, ys, k) for k in range(self.order + 1)]
        return out, _shaped(terms, out)

    @of_floats
    def quotient(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """v = x / y from x = v y."""
        xs, ys = (_full(x, s, self.order) for x, s in zip(primals, series))
        out = [op(*primals)]
        for k in range(1, self.order + 1):
            known = _pairs(mul, [*out, zero_term], ys, k)
            rest = _sum([xs[k], zero_term if known is zero_term else neg(known)])
            out.append(rest if rest is zero_term else fill_shape(div(rest, ys[0]), out[0].shape))
        return out[0], out[1:]

    @of_floats
    def exponential(self, op: Any, primals: Sequence[Any], series: Sequence[Any]) -> Any:
        y = op(*primals)
        return y, _exponential(y, series[0])

    @of_floats
    def logarithm(self, op: Any, primals: Sequence[Any], series: Sequence[Any]) -> Any:
        """v = log(u) from u' = v' u."""
        us = [primals[0], *series[0]]
        out = [op(*primals)]
        for k in range(1, self.order + 1):
            known = _pairs(mul, [*out, zero_term], us, k, 1, weighted=True)
            rest = _sum([us[k], zero_term if known is zero_term else neg(known)])
            out.append(rest if rest is zero_term else div(rest, us[0]))
        return out[0], out[1:]

    @of_floats
    def waves(self, op: Any, primals: Sequence[Any], series: Sequence[Any]) -> Any:
        """Sine and cosine, plain or hyperbolic, which are each other's derivatives."""
        (x,), us = primals, [zero_term, *series[0]]
        plain = isinstance(op, Sin | Cos)
        s, c = ([sin(x)], [cos(x)]) if plain else ([sinh(x)], [cosh(x)])
        for k in range(1, self.order + 1):
            up = _pairs(mul, us, [*c, zero_term], k, 1, weighted=True)
            down = _pairs(mul, us, [*s, zero_term], k, 1, weighted=True)
            s.append(up)
            c.append(neg(down) if plain and down is not zero_term else down)
        out = s if isinstance(op, Sin | Sinh) else c
        return out[0], out[1:]

    @of_floats
    def power(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """x^r: through logarithms if r varies, else by the binomial series, which also holds at
        0."""
        (x, r), y = primals, op(*primals)
        if series[1] is not zero_series:
            still = series[0] is zero_series
            logs = zero_series if still else self.logarithm(log, [x], series[:1])[1]
            _, terms = self.product(mul, [r, log(x)], [series[1], logs])
            return y, _exponential(y, terms)
        x, r = fill_shape(x, y.shape), fill_shape(convert(r, x.dtype), y.shape)
        terms = _shaped(_full(x, series[0], self.order)[1:], y)
        moved = [zero_term, *terms]  # x(t) - x(0), and its powers
        power, choose = moved, r
        out = [[zero_term if t is zero_term else mul(_binomial(x, r, 1, choose), t) for t in terms]]
        for m in range(2, self.order + 1):
            power = [_pairs(mul, power, moved, k) for k in range(self.order + 1)]
            choose = mul(choose, mul(sub(r, full_like(r, m - 1)), full_like(r, 1 / m)))
            factor = _binomial(x, r, m, choose)
            out.append([t if t is zero_term else mul(factor, t) for t in power[1:]])
        return y, [_sum(column) for column in zip(*out)]

    def inlined(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """A call to a Program."""
        return self.composed(op, lambda *xs: evaluate(op.program, xs), primals, series)

    def clamped(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        return self.composed(op, lambda low, x, up: min_(max_(low, x), up), primals, series)

    def whole_power(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        return self.composed(op, lambda x: _whole_power(x, op.y), primals, series)
