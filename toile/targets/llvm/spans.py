"""Which bytes each row of a launch touches, from the strides of its operands.

A launch that processes a buffer row by row can form a chain with others that do (see `chains` in
platforms/cpu): each block of a chain touches only its own rows of the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.llvm.launches import Rows, Span

Axes = Sequence[tuple[int, int]]  # extents and strides, outermost first


def span(offset: int, size: int, outer: Axes, inner: Axes) -> Span | None:
    """The span of an operand with elements of `size` bytes; strides and the offset are in bytes.

    Items are the positions along the outer axes, in row-major order. The result is None if there is
    only one item, if items overlap or are not evenly spaced, or if an inner stride is negative."""
    end = size
    for extent, stride in inner:
        if extent > 1:
            if stride < 0:
                return None
            end += (extent - 1) * stride
    axes = [axis for axis in outer if axis[0] > 1]
    if not axes or end > axes[-1][1]:
        return None
    step = wanted = axes[-1][1]
    for extent, stride in reversed(axes):
        if stride != wanted:
            return None
        wanted *= extent
    return Span(offset, offset + end, step)


def together(touched: Iterable[tuple[Any, Span | None]]) -> dict[Any, Span]:
    """The span that holds all touched places, for each buffer that has such a span."""
    found: dict[Any, Span | None] = {}
    for buffer, s in touched:
        if buffer in found:
            s = _union(found[buffer], s)
        found[buffer] = s
    return {buffer: s for buffer, s in found.items() if s is not None}


def _union(a: Span | None, b: Span | None) -> Span | None:
    if a is None or b is None or a.step != b.step:
        return None
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Span(low, high, a.step) if high - low <= a.step else None


def several(s: Span | None, count: int) -> Span | None:
    """The span if each item consists of `count` of the previous ones."""
    return s and Span(s.low, s.high + (count - 1) * s.step, count * s.step)


def moved(s: Span | None, offset: int) -> Span | None:
    """The span, moved by `offset` bytes."""
    return s and Span(s.low + offset, s.high + offset, s.step)


def elements(source: Ref, size: int, target: Ref, target_size: int) -> Rows:
    """The rows of a launch that computes each element of a dense array from that of another."""
    spans = together((ref.buffer, Span(ref.offset, ref.offset + n, n))
                     for ref, n in ((source, size), (target, target_size)))
    return Rows(spans, frozenset({target.buffer}))
