"""`value_range` rules: the range of an integer result, given the ranges of the operands.

`rule(op, r, e, out)` returns the lowest and the highest value that the result `out` of an equation
can have, or None if it is not known. `r.of(atom)` is the range of an operand, and
`r.producer(atom)` the equation that computes it (`compiler.index_ranges`). This module may not
import other modules of toile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Range = tuple[int, int]  # the lowest and the highest value


def of_both(combine: Callable[[Range, Range], Range]) -> Any:
    """The rule of an operation whose result depends on the ranges of two operands."""

    def rule(op: Any, r: Any, e: Any, out: Any) -> Range | None:
        return combine(r.of(e.ins[0]), r.of(e.ins[1]))

    return rule


larger = of_both(lambda x, y: (max(x[0], y[0]), max(x[1], y[1])))
smaller = of_both(lambda x, y: (min(x[0], y[0]), min(x[1], y[1])))


def clamped(op: Any, r: Any, e: Any, out: Any) -> Range | None:
    """clamp(low, x, high) is between the lowest `low` and the highest `high`."""
    (low, most), (least, high) = r.of(e.ins[0]), r.of(e.ins[2])
    return (low, high) if most <= least else None


def selected(op: Any, r: Any, e: Any, out: Any) -> Range | None:
    """select(x < 0, y, x), which handles indices from the end, is x if x is not negative."""
    test, cases = r.producer(e.ins[0]), e.ins[1:]
    if test is not None and test.op.name == "lt" and r.of(test.ins[1]) == (0, 0):
        if r.of(test.ins[0])[0] >= 0:
            cases = cases[:1]
    ranges = [r.of(x) for x in cases]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def reordered(op: Any, r: Any, e: Any, out: Any) -> Range | None:
    """Each result of a sort has the elements of its operand."""
    return r.of(e.ins[e.outs.index(out)])


def largest(op: Any, r: Any, e: Any, out: Any) -> Range | None:
    """The results of top_k are elements of the operand and the indices of these elements."""
    if out is e.outs[0]:
        return r.of(e.ins[0])
    return 0, max(e.ins[0].aval.shape[op.axis] - 1, 0)
