"""Identities, each with its equation. All are exact, for NaN, infinities and signed zeros too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile.compiler.rewriting import Replacement, Rewriter, rewrite
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.primitives.barriers import Name, StopGradient
from toile.primitives.elementwise import ConvertElementType, Div, Max, Min, SelectN
from toile.primitives.families import Add, BroadcastInDim, Mul, Neg, Reshape, Sub, Transpose

Rule = Callable[[Rewriter, Equation], Replacement]
RULES: dict[type, Rule] = {}


def simplify(program: Program) -> Program:
    """Apply the identities wherever they hold."""

    def rule(new: Rewriter, e: Equation) -> Replacement:
        return RULES[e.op.__class__](new, e)

    return rewrite(program, rule, RULES)


def of(*ops: type) -> Callable[[Rule], Rule]:
    """Register the rule of some operations."""

    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, rule))
        return rule

    return add


def _same_type(a: Atom, e: Equation) -> bool:
    """Whether an atom has the shape and dtype of the result."""
    out = e.outs[0].aval
    return a.aval.shape == out.shape and a.aval.dtype == out.dtype


def _is(a: Atom, value: float) -> bool:
    """Whether an atom is this number, signed zeros told apart."""
    if a.__class__ is not Literal or dtypes.kind(a.aval.dtype) not in "biuf":
        return False  # a complex product with 1 + 0j is not exact: inf * 0 is NaN
    x = float(a.val)
    return x == value and np.signbit(x) == np.signbit(value)


def _replaced(new: Rewriter, e: Equation, op: Any, ins: list[Atom]) -> Replacement:
    """Another equation for the same result."""
    out = Var(e.outs[0].aval)
    new.keep(Equation(op, ins, [out], e.source, e.scope))
    return [out]


@of(StopGradient, Name)
def _identity(new: Rewriter, e: Equation) -> Replacement:
    # stop_gradient(x) = x, name(x) = x: they spoke to derivatives
    return [e.ins[0]]


@of(ConvertElementType)
def _convert(new: Rewriter, e: Equation) -> Replacement:
    # convert(x, dtype(x)) = x
    return [e.ins[0]] if _same_type(e.ins[0], e) else None


@of(Reshape)
def _reshape(new: Rewriter, e: Equation) -> Replacement:
    # reshape(x, shape(x)) = x
    if _same_type(e.ins[0], e):
        return [e.ins[0]]
    # reshape(reshape(x, s), t) = reshape(x, t)
    inner = new.producer(e.ins[0])
    if inner is not None and inner.op.__class__ is Reshape:
        x = inner.ins[0]
        return [x] if _same_type(x, e) else _replaced(new, e, e.op, [x])
    return None


@of(Transpose)
def _transpose(new: Rewriter, e: Equation) -> Replacement:
    assert isinstance(e.op, Transpose)
    perm = e.op.perm
    # transpose(x, (0, 1, …)) = x
    if perm == tuple(range(len(perm))):
        return [e.ins[0]]
    # transpose(transpose(x, p), q) = transpose(x, p[q])
    inner = new.producer(e.ins[0])
    if inner is not None and inner.op.__class__ is Transpose:
        first = inner.op.perm
        joined = tuple(first[i] for i in perm)
        if joined == tuple(range(len(joined))):
            return [inner.ins[0]]
        return _replaced(new, e, Transpose(joined), inner.ins)
    return None


@of(BroadcastInDim)
def _broadcast(new: Rewriter, e: Equation) -> Replacement:
    # broadcast_in_dim(x, shape(x), (0, 1, …)) = x
    return [e.ins[0]] if _same_type(e.ins[0], e) else None


@of(Neg)
def _neg(new: Rewriter, e: Equation) -> Replacement:
    # -(-x) = x
    inner = new.producer(e.ins[0])
    return [inner.ins[0]] if inner is not None and inner.op.__class__ is Neg else None


@of(Mul)
def _mul(new: Rewriter, e: Equation) -> Replacement:
    # x * 1 = x, 1 * x = x
    x, y = e.ins
    if _is(y, 1) and _same_type(x, e):
        return [x]
    return [y] if _is(x, 1) and _same_type(y, e) else None


@of(Div)
def _div(new: Rewriter, e: Equation) -> Replacement:
    # x / 1 = x
    x, y = e.ins
    return [x] if _is(y, 1) and _same_type(x, e) else None


@of(Add)
def _add(new: Rewriter, e: Equation) -> Replacement:
    # x + (-0.0) = x for floats (x + 0.0 turns -0.0 into 0.0), x + 0 = x for integers
    zero = 0.0 if dtypes.kind(e.outs[0].aval.dtype) in "biu" else -0.0
    x, y = e.ins
    if _is(y, zero) and _same_type(x, e):
        return [x]
    return [y] if _is(x, zero) and _same_type(y, e) else None


@of(Sub)
def _sub(new: Rewriter, e: Equation) -> Replacement:
    # x - 0 = x
    x, y = e.ins
    return [x] if _is(y, 0.0) and _same_type(x, e) else None


@of(SelectN)
def _select(new: Rewriter, e: Equation) -> Replacement:
    # select(p, x, x) = x
    _, first, *rest = e.ins
    return [first] if first.__class__ is Var and all(x is first for x in rest) else None


@of(Max, Min)
def _extremum(new: Rewriter, e: Equation) -> Replacement:
    # max(x, x) = x
    x, y = e.ins
    return [x] if x is y and x.__class__ is Var else None
