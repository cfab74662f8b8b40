"""The order of a graph's nodes: each depends on those whose memory it uses, and on no others.

A stream runs what it is given in sequence, and a graph captured from it is one long chain of nodes.
Many are independent, such as the update of a cache and the product after it, or the optimizer's
updates of two parameters. Before a step is captured, the capture is told which nodes it has to wait
for: those that wrote what it reads or overwrites, and those that read what it overwrites. Memory is
compared by address, because temporaries share the arena and results may overwrite arguments.

Nodes are grouped in a few chains. Within a chain, each node waits for the one before it. Each node
has a clock, which holds for each chain the last node that is known to come before it. Nodes that
the clock already covers need no edges.

On Hopper and newer GPUs, a kernel of toile's own that depends on only one kernel is launched before
that kernel ends, and waits for it on the GPU. This shortens the gap between the two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from toile.compiler.ir.steps import Constant, LoopStep, MadePlan, ScanStep, whole_buffer
from toile.targets.cuda.cublas import PARTS
from toile.targets.cuda.driver import driver
from toile.targets.cuda.launches import Call

CHAINS = 8
_number = attrgetter("number")
Range = tuple[int, int]  # addresses: the first byte, and the one after the last


class Extents:
    """The sizes of all buffers that the steps of a plan use."""

    def __init__(self, plan: MadePlan):
        self.moving: dict[Any, int] = {}
        self.known: dict[int, tuple[list[Any], list[Any]]] = {}
        for step in plan.all_steps():
            if isinstance(step, LoopStep):
                for moving, ref in step.starts:
                    self.moving[moving] = self._size(ref.buffer) - ref.offset
                for a, b in step.swaps:
                    self.moving[a] = self.moving[b] = max(self.moving[a], self.moving[b])
            if isinstance(step, ScanStep):
                for moving, ref, stride in step.slices:
                    self.moving[moving] = abs(stride) or self._size(ref.buffer) - ref.offset

    def _size(self, buffer: Any) -> int:
        nbytes = self.moving.get(buffer)
        if nbytes is None:
            nbytes = getattr(buffer, "nbytes", None)
        return buffer.aval.nbytes if nbytes is None else nbytes

    def of(self, step: Any) -> tuple[list[Any], list[Any]]:
        """The buffers that a step reads and those that it writes, with their sizes."""
        found = self.known.get(id(step))
        if found is None:
            reads, writes = ([(b, self._size(b)) for b in {whole_buffer(x) for x in some}
                              if not isinstance(b, Constant)] for some in (step.reads, step.writes))
            found = self.known[id(step)] = (
                [x for x in reads if x[1]], [x for x in writes if x[1]])
        return found


class _Work:
    """What one step adds to a graph."""

    __slots__ = ("nodes", "chain", "number", "clock")

    def __init__(self, nodes: Sequence[int], chain: int, number: int, clock: list[int]):
        self.nodes, self.chain, self.number, self.clock = nodes, chain, number, clock


class _Part:
    """A part of what the calls of a library share, and the call that used it last."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: _Work | None = None


class _Segment:
    """Addresses that were last written by one work, and the last readers since, by chain."""

    __slots__ = ("end", "writer", "readers", "live")

    def __init__(self, end: int, writer: _Work | None, readers: dict[int, _Work]):
        self.end, self.writer, self.readers = end, writer, readers
        self.live = True  # False: others have taken its place


class _Memory:
    """Who used which addresses last."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.segments: list[_Segment] = []
        self.exact: dict[Range, _Segment] = {}  # ranges that were one segment; most are used again

    def _same(self, place: Range) -> _Segment | None:
        """The segment that is exactly a range, if that is known."""
        found = self.exact.get(place)
        return found if found is not None and found.live and found.end == place[1] else None

    def _cut(self, address: int) -> None:
        """Let a segment begin at an address inside another one."""
        i = bisect_right(self.starts, address) - 1
        if i >= 0 and self.starts[i] < address < self.segments[i].end:
            old = self.segments[i]
            self.starts.insert(i + 1, address)
            self.segments.insert(i + 1, _Segment(old.end, old.writer, dict(old.readers)))
            old.end = address

    def at(self, place: Range) -> list[_Segment]:
        """The segments that overlap a range."""
        same = self._same(place)
        if same is not None:
            return [same]
        first, last = place
        i = bisect_right(self.starts, first) - 1
        i += i < 0 or self.segments[i].end <= first
        return self.segments[i : bisect_left(self.starts, last)]

    def read(self, place: Range, work: _Work) -> None:
        same = self._same(place)
        if same is not None:
            same.readers[work.chain] = work
            return
        first, last = place
        self._cut(first)
        self._cut(last)
        i, at = bisect_left(self.starts, first), first
        while at < last:
            if i == len(self.starts) or self.starts[i] > at:
                end = last if i == len(self.starts) else min(last, self.starts[i])
                self.starts.insert(i, at)
                self.segments.insert(i, _Segment(end, None, {}))
            segment = self.segments[i]
            segment.readers[work.chain] = work
            if (at, segment.end) == place:
                self.exact[place] = segment
            at = segment.end
            i += 1

    def write(self, place: Range, work: _Work) -> None:
        same = self._same(place)
        if same is not None:
            same.writer, same.readers = work, {}
            return
        first, last = place
        self._cut(first)
        self._cut(last)
        span = slice(bisect_left(self.starts, first), bisect_left(self.starts, last))
        for old in self.segments[span]:
            old.live = False
        made = self.exact[place] = _Segment(last, work, {})
        self.starts[span], self.segments[span] = [first], [made]


class GraphOrder:
    """Adds what is issued on a captured stream to the graph where it belongs."""

    def __init__(self, stream: int, extents: Extents):
        self.stream, self.extents = stream, extents
        self.number = 0
        self.before: list[_Work] = []  # the capture's dependencies
        self.start()

    def start(self) -> None:
        """Forget everything: what comes next waits for the last nodes captured."""
        self.memory = _Memory()
        self.parts: dict[int, list[_Part]] = {}  # of what libraries share
        self.tails: list[_Work | None] = [None] * CHAINS
        self.first = self._work(driver().last_nodes(self.stream), [], 0)
        self.before = [self.first]

    def join(self) -> None:
        """Let what is issued next wait for all nodes."""
        self.wait_for(self._few(x for x in self.tails if x is not None))

    def wait(
        self, step: Any, addresses: dict[Any, int], early: bool = False
    ) -> tuple[list[_Work], Any]:
        """Let what is issued next wait for what a step depends on; `early`: it consists of kernels
        that may be launched early."""
        reads, writes = (
            [(addresses[b], addresses[b] + n) for b, n in some] for some in self.extents.of(step))
        needed: set[_Work] = {self.first}
        for place in reads:
            for s in self.memory.at(place):
                if s.writer is not None:
                    needed.add(s.writer)
        for place in writes:
            for s in self.memory.at(place):
                if s.writer is not None:
                    needed.add(s.writer)
                if s.readers:
                    needed.update(s.readers.values())
        kept = self._few(needed)
        used: list[_Part] = []
        call = getattr(step, "call", None)
        if call is not None and call.shared is not None:
            used = self._part(call, kept)
            kept = self._few({*kept, *(x.last for x in used if x.last is not None)})
        chain = self._chain(kept)
        self.wait_for(kept, early)
        return kept, (chain, reads, writes, used)

    def last(self) -> tuple[int, ...]:
        """The nodes that were issued last."""
        self.before = []  # they are not those of `kept`
        return driver().last_nodes(self.stream)

    def add(
        self, nodes: Sequence[int], kept: list[_Work], uses: Any, alone: bool = True
    ) -> None:
        """Record the nodes of a step; `alone`: whether no others were issued last."""
        chain, reads, writes, used = uses
        nodes = nodes or [n for x in kept for n in x.nodes]  # a step that has nothing to do
        work = self._work(nodes, kept, chain)
        for place in reads:
            self.memory.read(place, work)
        for place in writes:
            self.memory.write(place, work)
        for part in used:
            part.last = work
        self.before = [work] if alone else []

    def _work(self, nodes: Sequence[int], after: Sequence[_Work], chain: int) -> _Work:
        self.number += 1
        clocks = [x.clock for x in after]
        clock = list(map(max, *clocks)) if len(clocks) > 1 else (
            clocks[0].copy() if clocks else [0] * CHAINS)
        clock[chain] = self.number
        made = self.tails[chain] = _Work(nodes, chain, self.number, clock)
        return made

    def _few(self, needed: Iterable[_Work]) -> list[_Work]:
        """The fewest works of a set to wait for: every other one comes before one of these."""
        kept: list[_Work] = []
        for x in sorted(needed, key=_number, reverse=True):
            chain, number = x.chain, x.number
            for k in kept:
                if k.clock[chain] >= number:
                    break
            else:
                kept.append(x)
        return kept

    def _chain(self, kept: list[_Work]) -> int:
        """The chain for work that comes after `kept`; may add the chain's last work to `kept`."""
        for x in kept:
            if self.tails[x.chain] is x:
                return x.chain
        oldest: _Work | None = None
        for chain, tail in enumerate(self.tails):
            if tail is None or any(k.clock[chain] >= tail.number for k in kept):
                return chain
            if oldest is None or tail.number < oldest.number:
                oldest = tail
        assert oldest is not None
        kept[:] = self._few([*kept, oldest])
        return oldest.chain

    def _part(self, call: Call, kept: list[_Work]) -> list[_Part]:
        """What only one call of a library may use at a time: all parts or, for a small call, only
        the part that is free first."""
        assert call.shared is not None
        parts = self.parts.get(call.shared)
        if parts is None:
            parts = self.parts[call.shared] = [_Part() for _ in range(PARTS)]
        if not call.is_small:
            return parts

        def busy(i: int) -> int:
            x = parts[i].last
            free = x is None or any(k.clock[x.chain] >= x.number for k in kept)
            return 0 if free or x is None else x.number

        part = min(range(PARTS), key=busy)
        call.use_part(part)
        return [parts[part]]

    def wait_for(self, works: list[_Work], early: bool = False) -> None:
        """Let what is issued next wait for these works; `early`: it consists of kernels that may be
        launched early. A kernel that waits for only one kernel is. One that waits for several is
        not: it would occupy multiprocessors that kernels of other branches need."""
        nodes = [n for x in works for n in x.nodes]
        if early and len(nodes) == 1 and driver().starts_early() and driver().is_kernel(nodes[0]):
            driver().wait_for_nodes(self.stream, nodes, early=True)
            self.before = []
        elif works != self.before:
            driver().wait_for_nodes(self.stream, nodes)
            self.before = works
