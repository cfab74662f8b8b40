"""Builds the native table of commands from plain data: tuples of numbers.

Kernels, buffers and words of arguments are numbered (see `commands`), so that commands are the same
whether they come from a plan or, in another process, from disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.platforms.cpu import runner

Command = tuple[Any, ...]
Kernel = tuple[int, int, int, int]  # number, index of its arguments, extent, grain
# Links, each with its units per block; number of blocks; grain; slots (slot of the call, start,
# bytes per block), where slot -1 means memory on the stack.
Linked = tuple[list[tuple[Kernel, int]], int, int, list[tuple[int, int, int]]]


class Assembly:
    """Builds tables from commands, for kernels that are loaded."""

    def __init__(self, addresses: Sequence[int], words: Any, callbacks: Sequence[Any] = ()):
        self.addresses = addresses
        self.words = np.asarray(words, np.int64)
        self.start = runner.address(self.words)
        self.callbacks = callbacks

    def table(self, commands: Sequence[Command]) -> runner.Table:
        """The native table of some commands."""
        table = runner.Table()
        table.kept += [self.words, self.addresses]  # the addresses keep their kernels in memory
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
        """Function, arguments, extent and grain; a chain is run by the runner itself."""
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
