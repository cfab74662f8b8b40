"""Algebraic identities, each with its equation, that are exact for NaN, infinities and -0.0 too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, Rule, rewrite
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.primitives.barriers import Name, StopGradient
from toile.primitives.elementwise import ConvertElementType, Div, Max, Min, SelectN
from toile.primitives.families import Add, BroadcastInDim, Mul, Neg, Reshape, Sub, Transpose

RULES: dict[type, Rule] = {}


def simplify(program: Program) -> Program:
    """Apply the identities wherever they hold."""
    return rewrite(program, lambda new, e: RULES[e.op.__class__](new, e), RULES)


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


@of(StopGradient, Name)
def _identity(new: Rewriter, e: Equation) -> Replacement:
    # stop_gradient(x) = x, name(x) = x: only derivatives look at them
    return [e.ins[0]]


@of(ConvertElementType, BroadcastInDim)
def _unchanged(new: Rewriter, e: Equation) -> Replacement:
    # convert(x, dtype(x)) = x, broadcast_in_dim(x, shape(x), (0, 1, …)) = x
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
        return [x if _same_type(x, e) else new.add(e.op, [x], e, e.outs[0].aval)]
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
        return [new.add(Transpose(joined), inner.ins, e, e.outs[0].aval)]
    return None


@of(Neg)
def _neg(new: Rewriter, e: Equation) -> Replacement:
    # -(-x) = x
    inner = new.producer(e.ins[0])
    return [inner.ins[0]] if inner is not None and inner.op.__class__ is Neg else None


@of(Mul, Div, Add, Sub)
def _neutral(new: Rewriter, e: Equation) -> Replacement:
    # x * 1 = x, 1 * x = x, x / 1 = x, x + 0 = x, 0 + x = x, x - 0 = x
    x, y = e.ins
    op = e.op.__class__
    neutral = 1.0 if op in (Mul, Div) else 0.0
    if op is Add and dtypes.kind(e.outs[0].aval.dtype) not in "biu":
        neutral = -0.0  # x + 0.0 would turn -0.0 into 0.0
    if _is(y, neutral) and _same_type(x, e):
        return [x]
    return [y] if op in (Mul, Add) and _is(x, neutral) and _same_type(y, e) else None


@of(SelectN, Max, Min)
def _all_the_same(new: Rewriter, e: Equation) -> Replacement:
    # select(p, x, x) = x, max(x, x) = x, min(x, x) = x
    first, *rest = e.ins[1:] if e.op.__class__ is SelectN else e.ins
    return [first] if first.__class__ is Var and all(x is first for x in rest) else None
