"""The commands of a plan as plain data, and the native table made of them.

`Description` numbers kernels, buffers and words of arguments, so that commands are tuples of
numbers: the same whether they come from a plan or, in another process, from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.backends.cpu import runner
from toile.backends.cpu.chaining import Chain
from toile.backends.cpu.launches import Launch
from toile.backends.cpu.planning import Plan, Region
from toile.compiler.operands import Ref
from toile.compiler.steps import EagerStep, Moving, ScanStep, SwitchStep, WhileStep

Command = tuple[Any, ...]
Kernel = tuple[int, int, int, int]  # its number, where its arguments begin, extent, grain
# Its links, each with units of a block; blocks, grain; slots, of which -1 has room on the stack:
# start, bytes of a block.
Linked = tuple[list[tuple[Kernel, int]], int, int, list[tuple[int, int, int]]]


class Description:
    """What commands refer to by number; `slot` numbers the buffers."""

    def __init__(self, slot: Callable[[Any], int]):
        self.slot = slot
        self.kernels: dict[str, int] = {}  # by text
        self.words: list[int] = []
        self.eager: list[EagerStep] = []

    def commands(self, plan: Plan) -> list[Command]:
        """The commands of a plan's steps."""
        found: list[Command] = []
        for step in plan.steps:
            match step:
                case Region():
                    found.append(("region", [self._launched(x) for x in step.launches],
                                  step.parallel))
                case EagerStep():
                    found.append(("eager", len(self.eager)))
                    self.eager.append(step)
                case ScanStep():
                    found += self.starts(step.starts)
                    slices = [(self.slot(m), self.slot(r.buffer), r.offset, stride)
                              for m, r, stride in step.slices]
                    found.append(("loop", step.trips, self.commands(step.body), slices,
                                  self._pairs(step.swaps)))
                case WhileStep():
                    found += self.starts(step.starts)
                    found.append(("while", self.commands(step.condition),
                                  self.slot(step.predicate.buffer), self.commands(step.body),
                                  self._pairs(step.swaps)))
                case SwitchStep():
                    found += self.starts(step.starts)
                    bodies = [self.commands(b) for b in step.children]
                    found.append(("switch", self.slot(step.index), bodies))
        return found

    def starts(self, starts: Sequence[tuple[Moving, Ref]]) -> list[Command]:
        """Commands that make moving pointers point somewhere."""
        return [("place", self.slot(ref.buffer), [(self.slot(moving), ref.offset)])
                for moving, ref in starts]

    def _pairs(self, swaps: Sequence[tuple[Moving, Moving]]) -> list[tuple[int, int]]:
        return [(self.slot(a), self.slot(b)) for a, b in swaps]

    def _launched(self, x: Launch | Chain) -> Kernel | Linked:
        if isinstance(x, Launch):
            return self._kernel(x, self.slot)
        buffers: dict[Any, int] = {}  # links count the slots of the chain
        links = [(self._kernel(link, lambda b: buffers.setdefault(b, len(buffers))), n)
                 for link, n in zip(x.links, x.units, strict=True)]
        rooms = {room.buffer: (-1, room.start, room.nbytes) for room in x.rooms}
        slots = [rooms[b] if b in rooms else (self.slot(b), 0, 0) for b in buffers]
        return links, x.extent, x.grain, slots

    def _kernel(self, x: Launch, slot: Callable[[Any], int]) -> Kernel:
        kernel = self.kernels.setdefault(x.text, len(self.kernels))
        start = len(self.words)
        for a in x.args:
            if isinstance(a, Ref):
                self.words += (slot(a.buffer), a.offset)
            else:
                self.words.append(a)
        return kernel, start, x.extent, x.grain


class Assembly:
    """Tables made of commands, for kernels that are in memory."""

    def __init__(self, addresses: Sequence[int], words: Any, callbacks: Sequence[Any] = ()):
        self.addresses = addresses
        self.words = np.asarray(words, np.int64)
        self.start = runner.address(self.words)
        self.callbacks = callbacks

    def table(self, commands: Sequence[Command]) -> runner.Table:
        """The native table of some commands."""
        table = runner.Table()
        table.kept.append(self.words)
        for name, *rest in commands:
            getattr(self, f"_{name}")(table, *rest)
        return table

    def _region(
        self, table: runner.Table, kernels: Sequence[Kernel | Linked], parallel: bool
    ) -> None:
        chunks = []
        for launched in kernels:
            function, where, extent, grain = self._located(table, launched)
            for lo in range(0, extent, grain):
                chunks.append((function, where, lo, min(lo + grain, extent)))
        if parallel:
            table.region(np.array(chunks, np.int64))
        else:
            for chunk in chunks:
                table.region(np.array([chunk], np.int64))  # runs in the calling thread

    def _located(self, table: runner.Table, x: Kernel | Linked) -> tuple[int, int, int, int]:
        """Function, arguments, extent and grain; a chain is a function of the runner's own."""
        if not isinstance(x[0], list):
            kernel, start, extent, grain = x
            return self.addresses[kernel], self.start + 8 * start, extent, grain
        links, extent, grain, slots = x
        words = [(self.addresses[kernel], self.start + 8 * start, units, last)
                 for (kernel, start, last, _), units in links]
        chain = runner.chain(words, slots)
        table.kept.append(chain)
        return runner.CHAIN, runner.address(chain), extent, grain

    def _eager(self, table: runner.Table, number: int) -> None:
        table.callback(self.callbacks[number], 0)

    def _place(self, table: runner.Table, slot: int, places: Sequence[tuple[int, int]]) -> None:
        table.place(slot, places)

    def _loop(
        self, table: runner.Table, trips: int, body: Sequence[Command], slices: Any, swaps: Any
    ) -> None:
        table.loop(trips, self.table(body), slices, swaps)

    def _while(
        self, table: runner.Table, condition: Sequence[Command], slot: int,
        body: Sequence[Command], swaps: Any,
    ) -> None:
        table.while_(self.table(condition), slot, self.table(body), swaps)

    def _switch(self, table: runner.Table, slot: int, bodies: Sequence[Any]) -> None:
        table.switch(slot, [self.table(b) for b in bodies])
