"""Number the programs that processes run together, so that their positions can be compared.

Programs that run on the same processes are numbered in the order in which the main thread starts
them, which is the same on every process. Two processes that wait for each other can therefore
determine whether they are at the same program. A waiting process sends a `Report`; `conflict`
determines whether the process that it waits for can never arrive. A report may be out of date when
it is read: its sender may have received what it waited for in the meantime. The receiver of a
report therefore answers with its clock, and the next report repeats that number. The repeated
number proves that the sender still waited in vain after it had read the answer. This module may
import the engine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from toile.engine.source import Source, is_internal

KEPT = 256  # number of latest runs kept for a group of processes
CONFIRM = 1.0  # seconds that a message may need until its receiver finds it
Ranks = tuple[int, ...]


class Run:
    """One program that several processes run together; number 0 marks a run without an order."""

    __slots__ = ("ranks", "number", "digest", "name", "line", "history", "comparing",
                 "ended")

    def __init__(self, ranks: Ranks, number: int, digest: int, name: str, line: Any,
                 history: History | None):
        self.ranks, self.number, self.digest = ranks, number, digest
        self.name, self.history = name, history
        self.line = line  # the user's line of the first call, or of this one
        self.comparing = False  # whether processes compare it now, and so find differences
        self.ended: float | None = None  # when this process left it

    def end(self) -> None:
        """Note that this process has left the run."""
        self.ended = time.monotonic()
        if self.history is not None and self.history.finished < self.number:
            self.history.finished = self.number

    def where(self) -> str:
        """The user's line of the call; while it runs, the line that the thread is at."""
        history = self.history
        if history is not None and history.finished < self.number == history.count:
            frame = sys._current_frames().get(history.thread)
            while frame is not None and is_internal(frame.f_code):
                frame = frame.f_back
            if frame is not None:
                return str(Source(frame.f_code, frame.f_lasti))
        return str(self.line or "")

    def __str__(self) -> str:
        line = self.where()
        label = f"{self.name} (called at {line})" if line else self.name
        return f"program {self.number}, {label}" if self.number else label


class History:
    """The runs of some processes, seen from one of them."""

    __slots__ = ("ranks", "thread", "count", "finished", "recent")

    def __init__(self, ranks: Ranks, thread: int = 0):
        self.ranks, self.thread, self.count, self.finished = ranks, thread, 0, 0
        self.recent: list[Run | None] = [None] * KEPT

    def enter(self, digest: int, name: str, line: Any) -> Run:
        number = self.count + 1
        run = self.recent[number % KEPT] = Run(self.ranks, number, digest, name, line, self)
        self.count = number
        return run

    def latest(self) -> Run | None:
        """The latest run that is not being compared."""
        run = self.find(self.count)
        return self.find(self.count - 1) if run is not None and run.comparing else run

    def position(self) -> str:
        """Where the process is: in the latest run, or past it."""
        return f"{'at' if self.count > self.finished else 'behind'} {self.find(self.count)}"

    def find(self, number: int) -> Run | None:
        """The run with this number, if it is one of the latest."""
        found = self.recent[number % KEPT]
        return found if found is not None and found.number == number else None


class Report:
    """A process that waits in a collective: where, since when, and for whom.

    `group` distinguishes the groups of devices of one run. `waited` is None in a report that only
    states what a process runs. `heard` is the clock of the process that reads the report, from the
    latest answer that the waiting process had read when it last looked for the missing message."""

    __slots__ = ("id", "run", "what", "group", "late", "waited", "first", "last", "heard")

    def __init__(self, id: int, run: Run, what: str, group: int, late: Iterable[int],
                 waited: float | None, now: float):
        self.id, self.run, self.what, self.group = id, run, what, group
        self.late, self.waited = tuple(late), waited
        self.first = self.last = now  # when this process first and last learned of it
        self.heard = 0.0

    def packed(self, heard: float = 0.0) -> bytes:
        run = self.run
        return json.dumps([self.id, run.ranks, run.number, run.digest, run.name,
                           run.where(), run.comparing, self.what, self.group, self.late,
                           self.waited, heard]).encode()

    @classmethod
    def unpacked(cls, data: bytes, now: float) -> Report:
        id, ranks, number, digest, name, line, comparing, *rest = json.loads(data)
        run = Run(tuple(ranks), number, digest, name, line, None)
        run.comparing = comparing
        what, group, late, waited, heard = rest
        report = cls(id, run, what, group, late, waited, now)
        report.heard = heard
        return report


def conflict(
    theirs: Report, source: int, rank: int, histories: Mapping[Ranks, History],
    waits: Iterable[Report], named: Callable[[int], str],
) -> str | None:
    """Why this process can never arrive where `source` waits for it; None if it still can."""
    at = theirs.run
    history = histories.get(at.ranks) or History(at.ranks)
    mine = history.find(at.number)
    if mine is not None and mine.comparing and at.comparing:
        return None  # the comparison finds a difference by itself
    if mine is not None and mine.digest != at.digest:
        waiting = f", where it waits in {theirs.what}" if theirs.waited is not None else ""
        return (f"processes run different programs: {named(source)} is at {at}{waiting}; "
                f"{named(rank)} has {mine} instead")
    if theirs.waited is None:
        return None
    if mine is not None and mine.ended is not None and theirs.heard - mine.ended >= CONFIRM:
        return (f"{named(source)} waits in {theirs.what} of {at} for {named(rank)}, which has left "
                f"that program and is {history.position()} (an error that was caught, or a "
                "condition that differs between processes?)")
    lasting = [w for w in waits if theirs.heard - w.first >= CONFIRM]
    own = next(filter(partial(_is_deadlock, theirs, source, mine), lasting), None)
    if own is None:
        return None
    return (f"processes wait for each other: {named(source)} in {theirs.what} of {at}, "
            f"{named(rank)} in {own.what} of {own.run} (a condition that differs between "
            "processes?)")


def _is_deadlock(theirs: Report, source: int, mine: Run | None, own: Report) -> bool:
    """Whether two processes wait for each other in different collectives.

    `mine` is this process's run with the number of theirs."""
    if source not in own.late or not own.run.number:
        return False
    if own.run is mine:
        return own.group == theirs.group and own.what != theirs.what
    return bool(theirs.run.number) and own.run.ranks != theirs.run.ranks


def whereabouts(histories: Mapping[Ranks, History], waits: Iterable[Report],
                named: Callable[[int], str]) -> str:
    """A description of what a process that others wait for is doing."""
    for own in waits:
        late = ", ".join(map(named, own.late))
        return f"it is waiting in {own.what} of {own.run} for {late}"
    running = [h for h in histories.values() if h.count > h.finished]
    if running:
        return f"it is at {running[0].find(running[0].count)}"
    done = [h for h in histories.values() if h.count]
    if not done:
        return "it has not run a program with other processes"
    latest: Any = max(done, key=lambda h: len(h.ranks))
    return f"it runs other code after {latest.find(latest.count)}"
