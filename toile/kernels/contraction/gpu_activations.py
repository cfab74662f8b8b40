"""Identifies the function that a chain of equations computes, by evaluating it.

Activations and their derivatives are written in many ways, and passes rewrite them further. A
chain of arithmetic on one value is evaluated at some points in double precision: if it has gelu's
values there, it is gelu. Only smooth arithmetic is considered, so that these points suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.compiler.scalar.fusible import by_element
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Var
from toile.kernels.fused_product.gpu import gelu, gelu_slope

WIDE = ("bfloat16", "float32", "float64")
MOST_EQUATIONS = 32  # of a chain

_POINTS = np.concatenate([np.linspace(-9, 9, 73), [-300.0, -40.0, -1e-3, 1e-3, 40.0, 300.0]])
POINTS = np.tile(_POINTS, 3)
# Factors of a derivative, of both signs and several magnitudes: only linear functions match.
FACTORS = np.repeat([1.0, -0.37, 25.0], len(_POINTS))
# Constants of bfloat16 have 8 bits: 0.797 for 0.79788. Such a formula differs from gelu by less
# than NEAR.
NEAR = 6e-4
NEAR_SLOPE = 3e-3

Values = dict[Atom, np.ndarray]


def is_arithmetic(op: Operation) -> bool:
    """Whether an operation may be part of an activation."""
    return op.is_smooth or op.only_rounds


def values_of(e: Equation, known: Values) -> np.ndarray | None:
    """The result of an equation for known values; None if it is not smooth arithmetic on them."""
    if not by_element(e) or not is_arithmetic(e.op):
        return None
    if not any(a in known for a in e.ins) or e.outs[0].aval.dtype.name not in WIDE:
        return None
    xs = []
    for a in e.ins:
        if a.__class__ is Literal:
            xs.append(np.asarray(a.val, np.float64))
        elif a in known and a.aval.shape == e.outs[0].aval.shape:
            xs.append(known[a])
        else:
            return None
    if e.op.only_rounds:
        return xs[0]
    token = ignore_errors()
    try:
        return np.asarray(e.op.eager(np, *xs), np.float64)
    finally:
        restore_errors(token)


class Chain:
    """The values computed from some given values by smooth arithmetic alone."""

    def __init__(self, known: Values):
        self.known = dict(known)
        self.made: dict[Atom, Equation] = {}

    def grow(self, equations: Sequence[Equation]) -> None:
        """Add the equations that are such arithmetic, in order."""
        for e in equations:
            if len(self.made) >= MOST_EQUATIONS:
                return
            found = values_of(e, self.known)
            if found is not None:
                self.known[e.outs[0]] = found
                self.made[e.outs[0]] = e

    def find(self, fits: Callable[[np.ndarray], bool], like: Any) -> Var | None:
        """The first value that fits and has the shape and dtype of `like`."""
        for v in self.made:
            if (v.aval.shape, v.aval.dtype) == (like.shape, like.dtype) and fits(self.known[v]):
                assert isinstance(v, Var)
                return v
        return None

    def behind(self, v: Atom) -> dict[int, Equation]:
        """The equations that a value depends on, by identity."""
        found: dict[int, Equation] = {}
        left = [v]
        while left:
            e = self.made.get(left.pop())
            if e is not None and id(e) not in found:
                found[id(e)] = e
                left += [a for a in e.ins if a.__class__ is Var]
        return found


def is_gelu(values: np.ndarray) -> bool:
    """Whether these are gelu's values at POINTS."""
    return bool(np.all(abs(values - gelu(POINTS)) <= NEAR * abs(POINTS)))


def is_gelu_gradient(values: np.ndarray) -> bool:
    """Whether these are FACTORS times the slopes of gelu at POINTS."""
    return bool(np.all(abs(values - FACTORS * gelu_slope(POINTS)) <= NEAR_SLOPE * abs(FACTORS)))
