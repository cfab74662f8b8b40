"""Memory plan: offsets of temporaries in one arena, given when each of them is in use."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from toile.compiler.ir.operands import Scratch, Temporary
from toile.compiler.ir.steps import ALIGNMENT, MadePlan


class Interval(NamedTuple):
    """A buffer that is in use from step `first` to step `last`, both included."""

    buffer: Hashable
    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def assign(intervals: Sequence[Interval]) -> tuple[dict[Hashable, int], int]:
    """An offset for each buffer, and the bytes of the arena.

    The largest are placed first, each in the lowest gap between those that are in use at the same
    time. The result is close to the optimum, and equal programs get the same one."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; by offset
    offsets: dict[Hashable, int] = {}
    total = 0
    order = sorted(range(len(intervals)), key=lambda i: (-intervals[i].nbytes, i))
    for i in order:
        buffer, nbytes, first, last = intervals[i]
        size = aligned(max(nbytes, 1))
        offset = 0
        for start, end, begins, ends in placed:
            if begins <= last and first <= ends:
                if offset + size <= start:
                    break
                if end > offset:
                    offset = end
        bisect.insort(placed, (offset, offset + size, first, last))
        offsets[buffer] = offset
        total = max(total, offset + size)
    return offsets, total


def arena_layout(plan: MadePlan) -> tuple[dict[Any, int], int]:
    """Offsets of a plan's temporaries, including those of loop bodies, and the arena's bytes.

    Where a step may write a temporary in the memory of one that it is the last to read, both get
    the same place, unless that makes the arena larger."""
    spans: dict[Temporary, list[int]] = {}
    nested: dict[Temporary, dict[Any, int]] = {}
    for i, step in enumerate(plan.steps):
        for b in plan.temporaries_of(step):
            spans.setdefault(b, [i, i])[1] = i
        for child in getattr(step, "children", ()):
            offsets, nbytes = arena_layout(child)
            room = Scratch(nbytes)
            nested[room] = offsets
            spans[room] = [i, i]
    found, total = assign([Interval(b, b.nbytes, *span) for b, span in spans.items()])
    heads = _heads(plan, spans)
    if heads:
        joined: dict[Temporary, list[int]] = {}
        for b, (first, last) in spans.items():
            joined.setdefault(heads.get(b, b), [first, last])[1] = last
        shared, least = assign([Interval(b, b.nbytes, *span) for b, span in joined.items()])
        if least < total:
            found, total = {b: shared[heads.get(b, b)] for b in spans}, least
    for body, inner in nested.items():
        start = found.pop(body)
        for b, offset in inner.items():
            assert b not in found, f"a buffer of {b.nbytes} bytes belongs to two bodies"
            found[b] = start + offset
    return found, total


def _heads(plan: MadePlan, spans: dict[Temporary, list[int]]) -> dict[Temporary, Temporary]:
    """The buffers that may be written in the memory of earlier ones: for each, the first buffer of
    the chain."""
    reuses = plan.reusing()
    if reuses is None:
        return {}
    ending: dict[tuple[int, int], list[Temporary]] = {}
    for b, (first, last) in spans.items():
        if first < last:
            ending.setdefault((last, b.nbytes), []).append(b)
    heads: dict[Temporary, Temporary] = {}
    for b, (first, _) in sorted(spans.items(), key=lambda item: item[1][0]):
        left = ending.get((first, b.nbytes), ())
        read = next((r for r in left if reuses(first, r, b)), None)
        if read is not None:
            ending[first, b.nbytes].remove(read)
            heads[b] = heads.get(read, read)
    return heads
