"""Which value is in which bytes: the memory that the plan verifier keeps track of.

Addresses are symbolic: a space (the arena, one input, one block of results, one constant) and an
offset in bytes. Nothing here knows how a planner places buffers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

Space = Hashable


class Address(NamedTuple):
    """A byte of a space."""

    space: Space
    offset: int

    def at(self, nbytes: int) -> Address:
        return Address(self.space, self.offset + nbytes)

    def __str__(self) -> str:
        return f"byte {self.offset} of {self.space}"


class PlanError(AssertionError):
    """A plan that would not compute what its Program means."""


class Content:
    """A value in memory: an input, a constant, or a value that one or more kernels write.

    `sources` are the values that it was computed from; a kernel's scratch value is replaced by its
    own sources. `parts` are the variables stored into it so far, if it has parts."""

    __slots__ = ("name", "owner", "scratch", "sources", "parts", "array")

    def __init__(self, name: str, owner: Any = None, scratch: bool = False):
        self.name, self.owner, self.scratch = name, owner, scratch
        self.sources: set[Content] = set()
        self.parts: set[Any] = set()
        self.array: np.ndarray | None = None  # the value of a constant

    @staticmethod
    def constant(array: np.ndarray) -> Content:
        """The content of a constant."""
        found = Content(f"the constant {array.dtype}{list(array.shape)}")
        found.array = array
        return found

    def __str__(self) -> str:
        return self.name

    def add(self, read: Iterable[Content]) -> None:
        """Add values that this one is computed from."""
        for x in read:
            self.sources |= x.sources if x.scratch else {x}
        self.sources.discard(self)

    def same_constant(self, other: Content) -> bool:
        """Whether both are constants with the same bytes."""
        x, y = self.array, other.array
        return (x is not None and y is not None and x.dtype == y.dtype
                and (x is y or x.tobytes() == y.tobytes()))


class Segment(NamedTuple):
    """Bytes [low, high) of a space; `start` is where their content begins."""

    low: int
    high: int
    content: Content
    start: int


class Memory:
    """The contents of every space, as segments that do not overlap, in order."""

    def __init__(self) -> None:
        self.spaces: dict[Space, list[Segment]] = {}

    def copy(self) -> Memory:
        found = Memory()
        found.spaces = {space: list(segments) for space, segments in self.spaces.items()}
        return found

    def write(self, where: Address, nbytes: int, content: Content) -> None:
        """Write a content to an address; what was there before is lost."""
        low, high = where.offset, where.offset + nbytes
        segments = self.spaces.setdefault(where.space, [])
        first, last = _range(segments, low, high)
        new = []
        for s in segments[first:last]:
            if s.low < low:
                new.append(s._replace(high=low))
        new.append(Segment(low, high, content, low))
        for s in segments[first:last]:
            if s.high > high:
                new.append(s._replace(low=high))
        segments[first:last] = new

    def read(self, where: Address, nbytes: int) -> list[Segment]:
        """The segments of a range of bytes; bytes that were never written have none."""
        low, high = where.offset, where.offset + nbytes
        segments = self.spaces.get(where.space, [])
        first, last = _range(segments, low, high)
        return segments[first:last]

    def content(self, where: Address, nbytes: int) -> tuple[Content | None, int]:
        """The content that fills a range of bytes, and the offset in it; None if none does."""
        at, first = where.offset, None
        for s in self.read(where, nbytes):
            first = first or s
            if s.low > at or s.content is not first.content or s.start != first.start:
                return None, 0
            at = s.high
        if first is None or at < where.offset + nbytes:
            return None, 0
        return first.content, where.offset - first.start

    def described(self, where: Address, nbytes: int) -> str:
        """What the bytes hold, in words."""
        found = self.read(where, nbytes)
        names = list(dict.fromkeys(s.content.name for s in found))
        known = sum(min(s.high, where.offset + nbytes) - max(s.low, where.offset) for s in found)
        if known < nbytes:
            names.append("bytes that nothing has written")
        return " and ".join(names)

    def joined(self, other: Memory) -> Memory:
        """What is certain after two branches, whichever of them was taken."""
        found = Memory()
        for space, segments in self.spaces.items():
            there = other.spaces.get(space, [])
            if segments == there:
                found.spaces[space] = list(segments)
                continue
            kept = []
            for s in segments:
                first, last = _range(there, s.low, s.high)
                for t in there[first:last]:
                    if t.content is s.content and t.start == s.start:
                        kept.append(s._replace(low=max(s.low, t.low), high=min(s.high, t.high)))
            found.spaces[space] = kept
        return found


def _range(segments: list[Segment], low: int, high: int) -> tuple[int, int]:
    """The segments that overlap [low, high): the first, and the one after the last."""
    first = bisect_right(segments, low, key=lambda s: s.high)
    last = first
    while last < len(segments) and segments[last].low < high:
        last += 1
    return first, last
