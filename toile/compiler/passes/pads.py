"""Sums of arrays padded with zeros (the derivative of a split) become concatenations.

    pad(x, 0, n) + pad(y, m, 0) = concatenate(x, y)   for x of size m and y of size n

Exact except for the sign of zeros: -0 + 0 is 0, but a concatenation keeps -0.
"""

from __future__ import annotations

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine.program import Atom, Equation, Literal, Program
from toile.primitives.shapes import Concatenate

MOST = 64  # terms of one sum


def join_pads(program: Program) -> Program:
    """The Program with such sums replaced."""
    pads = any(e.op.margins is not None for e in program.equations)
    return rewrite(program, _rule) if pads else program


def _rule(new: Rewriter, e: Equation) -> Replacement:
    parts = _terms(new, e) if e.op.is_sum else None
    if parts is None:
        return None
    shape = e.outs[0].aval.shape
    axes = {a for _, a, _ in parts}
    if len(axes) != 1:
        return None
    axis = axes.pop()
    ordered = sorted(parts, key=lambda p: p[2])
    at = 0
    for x, _, start in ordered:
        if start != at:
            return None
        at += x.aval.shape[axis]
    if at != shape[axis]:
        return None
    return [new.add(Concatenate(axis), [x for x, _, _ in ordered], e, e.outs[0].aval)]


def _terms(new: Rewriter, e: Equation) -> list[tuple[Atom, int, int]] | None:
    """The padded arrays in a tree of sums: array, axis, and start along the axis."""
    found: list[tuple[Atom, int, int]] = []
    waiting = list(e.ins)
    while waiting:
        made = new.producer(waiting.pop())
        if made is None or len(found) > MOST:
            return None
        if made.op.is_sum:
            waiting += made.ins
            continue
        config = made.op.margins
        if config is None:
            return None
        x, fill = made.ins
        padded = [i for i, (lo, hi, _) in enumerate(config) if lo or hi]
        ok = fill.__class__ is Literal and not fill.val.any() and len(padded) == 1 and all(
            lo >= 0 and hi >= 0 and inner == 0 for lo, hi, inner in config)
        if not ok:
            return None
        found.append((x, padded[0], config[padded[0]][0]))
    return found
