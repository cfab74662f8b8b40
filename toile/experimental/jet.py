"""Compute derivatives of high order by propagating Taylor polynomials through a function.

Each value is represented by its polynomial in one variable `t`, truncated at some order. Products,
quotients and common functions have rules for the coefficients; the cost of these rules grows with
the square of the order. For every other operation `y = f(x)`, the coefficients are obtained by
integrating the derivative `y' = jvp(x, x')`, where `x'` is known to one order less than `x`.
Functions with a `custom_jvp` are treated in the same way. Functions with a `custom_vjp` have no
forward rule and are differentiated through their definition.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import toile.lax as lax
import toile.numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.conversion import as_array
from toile.engine.operation import Operation
from toile.engine.program import Program, evaluate
from toile.engine.source import here
from toile.engine.trace import Array, Trace, Tracer, opened, state
from toile.engine.trees import flatten, structure, unflatten
from toile.primitives.choices import convert
from toile.primitives.families import instantiate
from toile.primitives.taylor import (
    Taylor,
    Terms,
    ZeroSeries,
    of_floats,
    times,
    zero_series,
    zero_term,
)
from toile.tree_util import treedef_is_leaf

__all__ = ["fact", "jet", "jet2", "zero_series", "zero_term"]


def jet(
    fun: Callable[..., PyTree], primals: Sequence[ArrayLike],
    series: Sequence[Sequence[ArrayLike]], factorial_scaled: bool = True, **_: Any,
) -> tuple[PyTree, PyTree]:
    """Compute higher-order derivatives of a function along a curve.

    Each argument of `fun` is a polynomial in one variable `t`. The results are the derivatives of
    `fun` with respect to `t` at `t = 0`.

    Args:
        fun: function of arrays that returns a tree of arrays.
        primals: value of each argument at `t = 0`.
        series: for each argument, a list of its first, second and higher derivatives. All lists
            must have the same length.
        factorial_scaled: if True, `series` and the results contain derivatives. If False, they
            contain the coefficients of the polynomials, that is, each derivative of order k divided
            by the factorial of k.

    Returns:
        The pair (result, derivatives). `derivatives` has the structure of the result, with a list
        of derivatives in place of each array.

    Raises:
        ValueError: an argument is not an array, or the lists of derivatives differ in length.

    >>> value, (first, second) = jet(jnp.sin, (0.0,), ((1.0, 0.0),))
    >>> print(value, first, second)
    0.0 1.0 0.0
    """
    try:
        (order,) = {len(terms) for terms in series}
    except ValueError:
        raise ValueError(
            "jet terms have inconsistent lengths for different arguments: needed one length, got "
            f"{[len(terms) for terms in series]}{here()}"
        ) from None
    values, moves = [], []
    for i, (x, terms) in enumerate(zip(primals, series)):
        _check_leaf(x, f"primal value at position {i} is not an array")
        for j, term in enumerate(terms):
            _check_leaf(term, f"term {j} for argument {i} is not an array")
        x = x if isinstance(x, Array) else as_array(x)
        values.append(x)
        moves.append([
            _fitted(jnp.true_divide(term, math.factorial(k)) if factorial_scaled else term, x)
            for k, term in enumerate(terms, 1)
        ])
    found: list[Any] = []

    def flat(*args: Any) -> list[Any]:
        leaves, tree = flatten(fun(*args))
        found.append(tree)
        return leaves

    outs, out_series = _propagate(flat, order, values, moves)
    made = []
    for out, found_terms in zip(outs, out_series):
        shown = _filled(found_terms, out, order)
        if factorial_scaled:
            shown = [jnp.multiply(x, float(math.factorial(k))) for k, x in enumerate(shown, 1)]
        made.append(shown)
    return unflatten(found[0], outs), unflatten(found[0], made)


jet2 = functools.partial(jet, factorial_scaled=False)
jet2.__doc__ = "`jet` with `factorial_scaled=False`: computes coefficients in place of derivatives."


def fact(n: ArrayLike) -> Array:
    """Compute the factorial of a number as a float, using the gamma function.

    Args:
        n: number, or array of numbers.

    Returns:
        An array of floats, which may be inexact: the factorial of 5 is 120.000015 in float32.
    """
    return lax.exp(lax.lgamma(n + 1.0))


def _check_leaf(x: Any, what: str) -> None:
    if not treedef_is_leaf(structure(x)):
        raise ValueError(f"{what}: needed an array, got {type(x).__name__}{here()}")


def _fitted(term: Any, x: Any) -> Any:
    """A coefficient in the shape and dtype of its value; a float for integers."""
    term = jnp.broadcast_to(term, x.shape)
    if not dtypes.is_inexact(x.dtype):
        return term
    if dtypes.kind(term.dtype) == "c" and dtypes.kind(x.dtype) != "c":
        raise TypeError(
            f"jet: needed real terms for {aval_of(x).str_short()}, got "
            f"{aval_of(term).str_short()}{here()}"
        )
    return convert(term, x.dtype, aval_of(x).weak_type)


def _filled(terms: Terms, x: Any, order: int) -> list[Any]:
    """Coefficients as arrays, zeros included."""
    if isinstance(terms, ZeroSeries):
        terms = [zero_term] * order
    return [jnp.zeros_like(x) if t is zero_term else t for t in terms]


# ----------------------------------------------------------------------------------------- tracing


class JetTracer(Tracer):
    """A value with the coefficients of its polynomial."""

    __slots__ = ("primal", "terms")

    def __init__(self, trace: Trace, primal: Any, terms: Sequence[Any]):
        self._trace = trace
        self.primal = primal
        self.terms = terms

    @property
    def aval(self) -> Aval:
        return aval_of(self.primal)

    def concrete(self) -> Any:
        primal = self.primal
        return primal.concrete() if isinstance(primal, Tracer) else primal

    def describe(self) -> str:
        primal = self.primal
        return primal.describe() if isinstance(primal, Tracer) else ""

    def __repr__(self) -> str:
        return f"JetTracer(primal={self.primal!r}, terms={self.terms!r})"


class JetTrace(Trace):
    """Runs the rules for coefficients in the parent trace."""

    __slots__ = ("rules",)

    def __init__(self, parent: Trace | None, order: int):
        super().__init__(parent)
        self.rules = _Rules(order)

    def pair(self, primal: Any, terms: Terms) -> Any:
        if isinstance(terms, ZeroSeries) or all(t is zero_term for t in terms):
            return primal
        return JetTracer(self, primal, terms)

    def split(self, x: Any) -> tuple[Any, Terms]:
        if x.__class__ is JetTracer and x._trace is self:
            return x.primal, x.terms
        return x, zero_series

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        primals, series = map(list, zip(*map(self.split, args))) if args else ([], [])
        state.trace = self.parent
        try:
            if all(s is zero_series for s in series):
                return op(*primals)
            outs, out_series = op.taylor(self.rules, primals, series)
        finally:
            state.trace = self
        if op.multiple:
            return [self.pair(o, s) for o, s in zip(outs, out_series, strict=True)]
        return self.pair(outs, out_series)

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        primals, series = map(list, zip(*map(self.split, args))) if args else ([], [])
        state.trace = self.parent
        try:
            if all(s is zero_series for s in series):
                return call(*primals)
            outs, out_series = _from_derivative(call.jvp_flat, self.rules.order, primals, series)
        finally:
            state.trace = self
        return [self.pair(o, s) for o, s in zip(outs, out_series, strict=True)]

    def process_custom_vjp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return call.run(*args)  # its rule is reverse-mode only


def _propagate(
    fun: Callable[..., Sequence[Any]], order: int, primals: Sequence[Any], series: Sequence[Terms]
) -> tuple[list[Any], list[Terms]]:
    """The results of a flat function, and their coefficients."""
    trace = JetTrace(state.trace, order)
    args = [trace.pair(x, s) for x, s in zip(primals, series, strict=True)]
    with opened(trace):
        outs = [trace.split(o) for o in fun(*args)]
    return [o for o, _ in outs], [s for _, s in outs]


def _from_derivative(
    jvp: Callable[..., tuple[Any, Any]], order: int, primals: Sequence[Any],
    series: Sequence[Terms],
) -> tuple[list[Any], list[Terms]]:
    """y and its coefficients from y' = jvp(x, x')."""
    n = len(primals)
    cut: list[Terms] = [s if isinstance(s, ZeroSeries) else s[:-1] for s in series]
    slopes, bends = [], []  # x' at 0, and its coefficients
    for x, terms in zip(primals, series):
        if not isinstance(terms, ZeroSeries):
            first, *rest = [times(k, term) for k, term in enumerate(terms, 1)]
            slopes.append(instantiate(Zero(x)) if first is zero_term else first)
            bends.append(rest)
    still: list[bool] = []

    def both(*args: Any) -> list[Any]:
        xs, rest = args[:n], iter(args[n:])
        ys, dys = jvp(xs, [Zero(x) if isinstance(s, ZeroSeries) else next(rest)
                           for x, s in zip(xs, series)])
        still[:] = [dy.__class__ is Zero for dy in dys]
        return [*ys, *(dy for dy, s in zip(dys, still) if not s)]

    outs, found = _propagate(both, order - 1, [*primals, *slopes], [*cut, *bends])
    m = len(still)
    moving = iter(zip(outs[m:], found[m:]))
    out_series: list[Terms] = []
    for fixed in still:
        if fixed:
            out_series.append(zero_series)
            continue
        first, more = next(moving)
        later = [zero_term] * (order - 1) if isinstance(more, ZeroSeries) else more
        out_series.append([times(1 / k, dy) for k, dy in enumerate([first, *later], 1)])
    return outs[:m], out_series


def _ran(program: Program, order: int, xs: Sequence[Any], series: Sequence[Terms]) -> Any:
    """The results of a Program, and their coefficients as arrays."""
    outs, out_series = _propagate(lambda *args: evaluate(program, args), order, xs, series)
    return outs, [_moving(x, terms, order) for x, terms in zip(outs, out_series)]


def _moving(x: Any, terms: Terms, order: int) -> list[Any]:
    """The coefficients of a value as arrays of its dtype; integers have none."""
    if not dtypes.is_inexact(x.dtype):
        return []
    return [convert(t, x.dtype) for t in _filled(terms, x, order)]


def _series(terms: Sequence[Any]) -> Terms:
    return terms or zero_series


# ------------------------------------------------------------------------------------------- rules


class _Rules(Taylor):
    """The rules that call functions, for derivatives, nested functions and control flow."""

    @of_floats
    def integrated(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """The rule for any operation, which integrates its derivative."""

        def jvp(xs: Sequence[Any], dxs: Sequence[Any]) -> tuple[Any, Any]:
            if not op.handles_zeros:
                dxs = [instantiate(dx) for dx in dxs]
            y, dy = op.jvp(xs, dxs)
            return (y, dy) if op.multiple else ([y], [dy])

        outs, out_series = _from_derivative(jvp, self.order, primals, series)
        return (outs, out_series) if op.multiple else (outs[0], out_series[0])

    def composed(self, op: Any, fun: Callable[..., Any], primals: Sequence[Any],
                 series: Sequence[Terms]) -> Any:
        if op.multiple:
            return _propagate(fun, self.order, primals, series)
        (out,), (terms,) = _propagate(lambda *xs: [fun(*xs)], self.order, primals, series)
        return out, terms

    @of_floats
    def scan(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """A scan whose carry and steps have coefficients too."""
        a, b = op.consts, op.consts + op.carry
        start = primals[a:b], [_moving(x, s, self.order) for x, s in zip(primals[a:b], series[a:b])]
        steps = primals[b:], [[] if isinstance(s, ZeroSeries) else _moving(x, s, self.order)
                              for x, s in zip(primals[b:], series[b:])]

        def body(carry: Any, step: Any) -> Any:
            (cs, c_terms), (xs, x_terms) = carry, step
            moves = [*series[:a], *map(_series, c_terms), *map(_series, x_terms)]
            outs, terms = _ran(op.program, self.order, [*primals[:a], *cs, *xs], moves)
            n = op.carry
            return (outs[:n], terms[:n]), (outs[n:], terms[n:])

        (cs, c_terms), (ys, y_terms) = lax.scan(
            body, start, steps, op.length, reverse=op.reverse, unroll=op.unroll
        )
        return [*cs, *ys], [*map(_series, c_terms), *map(_series, y_terms)]

    @of_floats
    def while_loop(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """A loop whose condition depends on values only."""
        a, b = op.cond_consts, op.cond_consts + op.body_consts
        start = primals[b:], [_moving(x, s, self.order) for x, s in zip(primals[b:], series[b:])]

        def goes_on(carry: Any) -> Any:
            return evaluate(op.cond, [*primals[:a], *carry[0]])[0]

        def body(carry: Any) -> Any:
            moves = [*series[a:b], *map(_series, carry[1])]
            return _ran(op.body, self.order, [*primals[a:b], *carry[0]], moves)

        outs, terms = lax.while_loop(goes_on, body, start)
        return outs, list(map(_series, terms))

    @of_floats
    def cond(self, op: Any, primals: Sequence[Any], series: Sequence[Terms]) -> Any:
        """Branches that return coefficients too."""
        index, *xs = primals
        branches = [
            lambda xs, program=program: _ran(program, self.order, xs, series[1:])
            for program in op.branches
        ]
        outs, terms = lax.switch(index, branches, xs)
        return outs, list(map(_series, terms))
