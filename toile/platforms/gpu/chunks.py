"""Long loops as graphs of some iterations each, launched again and again.

A loop of many iterations does not fit in one graph, and the host needs ten times as long to issue
an iteration as the GPU needs to run it. All iterations do the same with different slices: a graph
of an even number of them reads and writes slices in buffers of its own, to and from which the
slices of a chunk are copied. After an even number of iterations each carry is again in the buffer
where it began. A carry that moves through the rows of a stack, from one slice to the next, has one
buffer for both slices, which has a row more; only the first row is copied there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from toile.compiler.ir.steps import ScanStep, whole_buffer
from toile.platforms.gpu import conditional_nodes as conditional
from toile.targets.cuda.driver import driver

NODES = 512  # of a chunk, if an iteration is not larger; capturing a node takes 20 to 30 µs
LEAST_NODES = 1000  # of a loop that is issued in chunks
LONG_NODES = 4000  # of a loop that is not made part of a graph
MOST_NODES = 20_000  # of a chunk of two iterations
MOST_GRAPHS = 4  # of a chunk, for different addresses
MOST_BYTES = 256 << 20  # of the slices of a chunk

Addresses = dict[Any, int]


def turns_of(step: ScanStep, nodes: int) -> int:
    """The iterations of a chunk, an even number; 0 if the loop is issued iteration by iteration.

    `nodes` is the number of nodes of an iteration."""
    if step.trips * nodes < LEAST_NODES or 2 * nodes > MOST_NODES:
        return 0
    moved = sum(abs(stride) for _, _, stride in step.slices)
    turns = min(step.trips // 2 - 1, max(2, NODES // max(nodes, 1)), MOST_BYTES // max(moved, 1))
    decisions = conditional.decisions(step.body)
    if decisions:
        turns = min(turns, conditional.MOST_DECISIONS // decisions)
    turns -= turns % 2
    return max(turns, 0)


class Chunks:
    """A loop that is run in chunks of `turns` iterations."""

    def __init__(self, step: ScanStep, turns: int, device: Any):
        self.step, self.turns, self.device = step, turns, device
        written = {r.buffer for r in step.body.outputs}
        self.written = [moving in written for moving, _, _ in step.slices]
        self.next = self._next()
        self.memory = self._allocated()
        steps = list(step.body.all_steps())
        moving = {m for m, _, _ in step.slices} | {
            x[0] for s in steps for x in (*getattr(s, "starts", ()), *getattr(s, "slices", ()))}
        # All addresses that a graph contains, those of the body's temporaries included.
        self.touched = {whole_buffer(b) for s in steps for b in s.reads | s.writes} - moving
        self.graphs: OrderedDict[Any, int] = OrderedDict()
        self.graph = 0

    def _next(self) -> dict[int, int]:
        """For each slice that a carry is read from: the one that it is written to."""
        written = {(ref, stride): j for j, (_, ref, stride) in enumerate(self.step.slices)
                   if self.written[j]}
        return {i: written[ref.at(stride), stride]
                for i, (_, ref, stride) in enumerate(self.step.slices)
                if stride and not self.written[i] and (ref.at(stride), stride) in written}

    def _allocated(self) -> list[tuple[Any, int]]:
        """The memory of the slices of a chunk, with its addresses."""
        after = set(self.next.values())
        found = [self.device.allocate(abs(stride) * (self.turns + (i in self.next)))
                 if stride and i not in after else (None, 0)
                 for i, (_, _, stride) in enumerate(self.step.slices)]
        for i, j in self.next.items():
            (room, where), stride = found[i], self.step.slices[i][2]
            where += max(0, -stride)
            found[i], found[j] = (room, where), (None, where + stride)
        return found

    def forget(self, driver: Any) -> None:
        """Destroy the graphs with the driver that made them; nothing may be running."""
        while self.graphs:
            driver.destroy(self.graphs.popitem()[1])

    def slices(self, addresses: Addresses, turn: int) -> None:
        """Set the moving pointers to one of the slices in the chunk's buffers."""
        for (moving, ref, stride), (_, where) in zip(self.step.slices, self.memory, strict=True):
            at = turn if stride > 0 else turn + 1 - self.turns
            addresses[moving] = where + at * stride if stride else (
                addresses[ref.buffer] + ref.offset)

    def ready(
        self, addresses: Addresses, stream: int, capture: Callable[[Addresses], int]
    ) -> None:
        """Capture the graph, unless there is one for these addresses."""
        fixed = [(m, addresses[r.buffer] + r.offset) for m, r, stride in self.step.slices
                 if not stride]
        key = frozenset([*((b, a) for b, a in addresses.items() if b in self.touched),
                         *((m, addresses[m]) for m, _ in self.step.starts), *fixed])
        if key not in self.graphs:
            if len(self.graphs) >= MOST_GRAPHS:
                driver().synchronize(stream)
                driver().destroy(self.graphs.popitem(last=False)[1])
            self.graphs[key] = capture(dict(addresses))
        self.graph = self.graphs[key]

    def run(self, addresses: Addresses, first: int, stream: int) -> None:
        """Run one chunk, which begins with iteration `first`."""
        copies = list(self._copies(addresses, first))
        for at, where, nbytes, written in copies:
            if not written:
                driver().copy(where, at, nbytes, stream)
        driver().launch_graph(self.graph, stream)
        for at, where, nbytes, written in copies:
            if written:
                driver().copy(at, where, nbytes, stream)

    def _copies(
        self, addresses: Addresses, first: int
    ) -> Iterator[tuple[int, int, int, bool]]:
        """For each array: the place of a chunk's slices, their buffer, their size in bytes, and
        whether they are results."""
        for i, ((_, ref, stride), (_, where), written) in enumerate(zip(
                self.step.slices, self.memory, self.written, strict=True)):
            begin = addresses[ref.buffer] + ref.offset
            if i in self.next:  # the other rows are written before they are read
                at = where + max(0, -stride) * (self.turns - 1)
                yield begin + first * stride, at, abs(stride), written
            elif stride:
                turn = first if stride > 0 else first + self.turns - 1
                yield begin + turn * stride, where, abs(stride) * self.turns, written
