"""Encodes the commands of the CPU (see `tables`) as flat numbers, and decodes them.

Rows of kernels, pairs and the like are stored in separate tables, which are checked as a whole; a
command itself is its code and a few more numbers. Decoding is one pass, which rejects unknown
commands and references to slots, kernels, words or steps that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.disk.plan_schema import Damaged, Unencodable
from toile.platforms.cpu.tables import Command

REGION, CHAINS, EAGER, PLACE, LOOP, WHILE, SWITCH = range(7)
MOST_DEPTH = 100  # of nested loops
_WIDTHS = (4, 2, 3, 4)  # of the tables: kernels, pairs, slots of chains, slices


class Coding:
    """Encodes commands as numbers."""

    def __init__(self, commands: Sequence[Command]):
        self.code: list[int] = []
        self.tables: tuple[list[int], ...] = ([], [], [], [])
        try:
            self._commands(commands)
            if not all(set(map(type, x)) <= {int} for x in (self.code, *self.tables)):
                raise Unencodable("something other than numbers in a command")
            self.parts = tuple([np.array(x, np.int64).tobytes() for x in (self.code, *self.tables)])
        except (TypeError, ValueError, OverflowError) as error:  # commands of an unknown form
            raise Unencodable(f"commands of another form: {error}") from error

    def _commands(self, commands: Sequence[Command]) -> None:
        self.code.append(len(commands))
        for name, *rest in commands:
            if name not in _WRITING:
                raise Unencodable(f"a command {name!r}")
            getattr(self, _WRITING[name])(*rest)

    def _rows(self, table: int, rows: Sequence[Sequence[int]]) -> int:
        for row in rows:
            if len(row) != _WIDTHS[table]:
                raise Unencodable(f"a row of {len(row)} numbers in a command")
            self.tables[table].extend(row)
        return len(rows)

    def _region(self, kernels: Sequence[Any], parallel: bool) -> None:
        if not any(isinstance(x[0], list) for x in kernels):
            self.code += (REGION, int(parallel), self._rows(0, kernels))
            return
        self.code += (CHAINS, int(parallel), len(kernels))
        for x in kernels:
            if not isinstance(x[0], list):
                self._rows(0, [x])
                self.code.append(0)
                continue
            links, extent, grain, slots = x
            self._rows(0, [kernel for kernel, _ in links])
            self.code += (len(links), extent, grain, self._rows(2, slots))
            self.code += [units for _, units in links]

    def _eager(self, number: int) -> None:
        self.code += (EAGER, number)

    def _place(self, slot: int, places: Sequence[Any]) -> None:
        self.code += (PLACE, slot, self._rows(1, places))

    def _loop(self, trips: int, body: Sequence[Command], slices: Any, swaps: Any) -> None:
        self.code += (LOOP, trips, self._rows(3, slices), self._rows(1, swaps))
        self._commands(body)

    def _while(self, condition: Any, slot: int, body: Any, swaps: Any) -> None:
        self.code += (WHILE, slot, self._rows(1, swaps))
        self._commands(condition)
        self._commands(body)

    def _switch(self, slot: int, bodies: Sequence[Any]) -> None:
        self.code += (SWITCH, slot, len(bodies))
        for body in bodies:
            self._commands(body)


_WRITING = {"region": "_region", "eager": "_eager", "place": "_place", "loop": "_loop",
            "while": "_while", "switch": "_switch"}


class Reading:
    """Decodes commands; `slots`, `words`, `kernels` and `steps` are the numbers of these."""

    def __init__(self, parts: Sequence[bytes], slots: int, words: int, kernels: int, steps: int):
        self.slots, self.steps = slots, steps
        code, *tables = [np.frombuffer(x, np.int64) for x in parts]
        self.code = code.tolist()
        self.at = 0
        shaped = [_shaped(x, width) for x, width in zip(tables, _WIDTHS, strict=True)]
        _check_tables(shaped, slots, words, kernels)
        self.tables = [list(zip(*x.T.tolist(), strict=True)) for x in shaped]
        self.used = [0, 0, 0, 0]
        self.readers: list[Callable[[int], Command]] = [
            self._region, self._chains, self._eager, self._place, self._loop, self._while,
            self._switch]

    def commands(self) -> list[Command]:
        """All commands."""
        try:
            found = self._commands(MOST_DEPTH)
        except (IndexError, ValueError) as error:
            raise Damaged("its commands end too early") from error
        if self.at != len(self.code) or self.used != [len(x) for x in self.tables]:
            raise Damaged("it has more data than its commands use")
        return found

    def _commands(self, depth: int) -> list[Command]:
        if depth == 0:
            raise Damaged("its loops are too deep")
        found = []
        for _ in range(self._count(1)):
            (kind,) = self._take(1)
            if not 0 <= kind < len(self.readers):
                raise Damaged("it has an unknown command")
            found.append(self.readers[kind](depth))
        return found

    def _take(self, n: int) -> list[int]:
        first = self.at
        self.at = first + n
        return self.code[first:self.at]

    def _count(self, least: int) -> int:
        """A count of items that each take at least `least` numbers of the code."""
        (n,) = self._take(1)
        if not 0 <= n * least <= len(self.code) - self.at:
            raise Damaged("it has an impossible count")
        return n

    def _rows(self, table: int, n: int) -> list[Any]:
        first = self.used[table]
        last = self.used[table] = first + n
        if n < 0 or last > len(self.tables[table]):
            raise Damaged("a table of its commands is too short")
        return self.tables[table][first:last]

    def _slot(self, slot: int) -> int:
        if not 0 <= slot < self.slots:
            raise Damaged("a slot of its commands is out of range")
        return slot

    def _region(self, depth: int) -> Command:
        parallel, n = self._take(2)
        return "region", self._rows(0, n), parallel != 0

    def _chains(self, depth: int) -> Command:
        (parallel,) = self._take(1)
        found: list[Any] = []
        for _ in range(self._count(1)):
            links = self._count(1)
            rows = self._rows(0, max(links, 1))
            if not links:
                found += rows
                continue
            extent, grain, slots = self._take(3)
            if extent < 0 or grain < 1:
                raise Damaged("a chain of its commands is out of range")
            chained = list(zip(rows, self._take(links), strict=True))
            found.append((chained, extent, grain, self._rows(2, slots)))
        return "region", found, parallel != 0

    def _eager(self, depth: int) -> Command:
        (number,) = self._take(1)
        if not 0 <= number < self.steps:
            raise Damaged("a step of its commands is out of range")
        return "eager", number

    def _place(self, depth: int) -> Command:
        slot, n = self._take(2)
        return "place", self._slot(slot), self._rows(1, n)

    def _loop(self, depth: int) -> Command:
        trips, slices, swaps = self._take(3)
        if trips < 0:
            raise Damaged("a loop of its commands is out of range")
        sliced, swapped = self._rows(3, slices), self._pairs(swaps)
        return "loop", trips, self._commands(depth - 1), sliced, swapped

    def _while(self, depth: int) -> Command:
        slot, swaps = self._take(2)
        swapped = self._pairs(swaps)
        condition = self._commands(depth - 1)
        return "while", condition, self._slot(slot), self._commands(depth - 1), swapped

    def _switch(self, depth: int) -> Command:
        (slot,) = self._take(1)
        bodies = [self._commands(depth - 1) for _ in range(self._count(1))]
        return "switch", self._slot(slot), bodies

    def _pairs(self, n: int) -> list[Any]:
        """Pairs of slots (other pairs have a slot and an offset)."""
        found = self._rows(1, n)
        for _, other in found:
            self._slot(other)
        return found


def _shaped(numbers: np.ndarray, width: int) -> np.ndarray:
    if numbers.size % width:
        raise Damaged("a table of its commands is cut off")
    return numbers.reshape(-1, width)


def _check_tables(tables: Sequence[np.ndarray], slots: int, words: int, kernels: int) -> None:
    """Reject rows with numbers out of range."""
    launched, pairs, rooms, slices = tables
    in_range = [
        (launched, 0, 0, kernels - 1), (launched, 1, 0, words), (launched, 2, 0, None),
        (launched, 3, 1, None), (pairs, 0, 0, slots - 1), (rooms, 0, -1, slots - 1),
        (rooms, 1, 0, None), (rooms, 2, 0, None), (slices, 0, 0, slots - 1),
        (slices, 1, 0, slots - 1),
    ]
    for table, column, low, high in in_range:
        if table.size and (table[:, column].min() < low
                           or high is not None and table[:, column].max() > high):
            raise Damaged("a number of its commands is out of range")
