"""Messages other than data between processes: heartbeats, reports of waiting, and failures.

A thread of each process sends a heartbeat to the next process in a ring, even while the main thread
compiles or reads data. This distinguishes a slow process from one that has stopped. If a process
has waited for a long time, it sends a report of its position to the process that it waits for,
which compares the report with its own position. A conflict, like any failure, is sent to all
processes, which then raise the same error. All messages go through MPI. This module may import the
engine and parallel.runs.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toile.parallel.runs import History, Ranks, Report, conflict, whereabouts

TICK = 0.1
PATIENCE = 3.0  # seconds for the main thread to raise the error before all processes are ended
ECHO = 1.0  # seconds for other processes to report their errors before all are ended
EXPIRY = 15.0  # seconds after which a report that was not repeated is forgotten

ALIVE, GOODBYE, WAITING, STATUS, PING, PONG, VERDICT, FAILING = range(1, 9)


class Member:
    """What is known about a process: its rank, its pid and its machine."""

    __slots__ = ("rank", "pid", "host")

    def __init__(self, rank: int, pid: int, host: str):
        self.rank, self.pid, self.host = rank, pid, host

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


def state_of(pid: int) -> str:
    """The state of a local process as in /proc ("T": stopped); "X" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except FileNotFoundError:
        return "X"
    except (OSError, IndexError):
        return "?"


class Control:
    """The control channel of this process."""

    def __init__(self, mpi: Any, communicator: Any, lock: threading.Lock,
                 members: Sequence[Member], rank: int, heartbeat: float,
                 fail: Callable[[str], None]):
        self.mpi, self.communicator, self.lock, self.fail = mpi, communicator, lock, fail
        self.members, self.rank, self.size = members, rank, len(members)
        self.others = [r for r in range(self.size) if r != rank]
        self.heartbeat = heartbeat
        now = time.monotonic()
        self.heard = dict.fromkeys(self.others, now)
        self.looked = now
        self.suspected: float | None = None  # when all were asked for a heartbeat
        self.gone: dict[int, float] = {}  # when each process said goodbye
        self.failing: set[int] = set()  # ranks that have reported a failure
        self.histories: dict[Ranks, History] = {}
        self.waits: dict[int, Report] = {}  # reports of this process
        self.reports: dict[tuple[int, int], Report] = {}  # of others, by rank and number
        self.statuses: dict[int, str] = {}
        self.clocks: dict[int, float] = {}  # clocks of others when they last answered a report
        self.broken: str | None = None  # why no run can go on, once that is known
        self.since = 0.0
        self.raised = False  # whether the error has been raised in this process
        self.outbox: list[Any] = []  # buffers that MPI may still read
        self.leaving = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True, name="toile processes")

    def named(self, ranks: Sequence[int]) -> str:
        return ", ".join(str(self.members[r]) for r in ranks)

    # ---- messages
    def send(self, kind: int, ranks: Sequence[int], data: bytes = b"\0") -> None:
        buffer = np.frombuffer(data, np.uint8)
        with self.lock:
            self.outbox = [pair for pair in self.outbox if not pair[0].Test()]
            for r in ranks:
                request = self.communicator.Isend([buffer, self.mpi.BYTE], r, kind)
                self.outbox.append((request, buffer))

    def receive(self) -> None:
        """Handle the messages that have arrived."""
        status = self.mpi.Status()
        while True:
            with self.lock:
                if not self.communicator.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
                    return
                source, kind = status.Get_source(), status.Get_tag()
                data = np.empty(status.Get_count(self.mpi.BYTE), np.uint8)
                self.communicator.Recv([data, self.mpi.BYTE], source, kind)
            self._handle(source, kind, data.tobytes(), time.monotonic())

    def _handle(self, source: int, kind: int, data: bytes, now: float) -> None:
        self.heard[source] = now
        if kind == GOODBYE:
            self.gone[source] = now
        elif kind == FAILING:
            self.failing.add(source)
        elif kind == PING:
            self.send(PONG, [source])
        elif kind == STATUS:
            self.clocks[source], self.statuses[source] = json.loads(data)
        elif kind == VERDICT:
            self._break(data.decode())
        elif kind == ALIVE and data != b"\0":
            self.reports[source, 0] = Report.unpacked(data, now)
        elif kind == WAITING:
            found = Report.unpacked(data, now)
            self.reports[source, found.id] = found
            self.send(STATUS, [source], json.dumps([now, self.whereabouts()]).encode())

    def whereabouts(self) -> str:
        """What this process is doing."""
        return whereabouts(self.histories, list(self.waits.values()),
                           lambda r: str(self.members[r]))

    def report(self, wait: Report, clocks: Mapping[int, float]) -> None:
        """Report where this process waits to the processes that it waits for.

        `clocks` contains the clocks of these processes that were known before their messages were
        found to be missing."""
        self.waits[wait.id] = wait
        for r in wait.late:
            self.send(WAITING, [r], wait.packed(clocks.get(r, 0.0)))

    # ---- failures
    def _break(self, why: str) -> None:
        if self.broken is None:
            self.broken, self.since = why, time.monotonic()

    def verdict(self, why: str) -> None:
        """Make all processes raise an error with this text."""
        if self.broken is None:
            self._break(why)
            self.send(VERDICT, self.others, why.encode())

    def told_to_all(self) -> None:
        """Wait briefly until the other processes have reported the errors that they raise."""
        self.send(FAILING, self.others)
        end = time.monotonic() + ECHO
        while time.monotonic() < end:
            if all(r in self.failing or r in self.gone for r in self.others):
                return
            time.sleep(0.01)
            self.receive()

    # ---- the thread
    def _watch(self) -> None:
        last = 0.0
        try:
            while not self.leaving.is_set():
                now = time.monotonic()
                if now - last >= min(5.0, self.heartbeat / 4):
                    last = now
                    self.send(ALIVE, [(self.rank + 1) % self.size], self._latest(now))
                self.receive()
                self._judge(time.monotonic())
                self._look(time.monotonic())
                if self.broken and not self.raised and now - self.since > PATIENCE:
                    self.fail(self.broken)
                self.leaving.wait(TICK)
        except self.mpi.Exception as error:
            if not self.leaving.is_set():
                self.fail(f"{self.members[self.rank]} cannot send or receive: {error}")

    def _latest(self, now: float) -> bytes:
        """The latest program of all processes, which the next process compares with its own."""
        history = self.histories.get(tuple(range(self.size)))
        run = history.latest() if history is not None else None
        return b"\0" if run is None else Report(0, run, "", 0, (), None, now).packed()

    def _judge(self, now: float) -> None:
        """Look for processes that wait for this one in vain."""
        if self.broken or not self.reports:
            return
        for (source, id), report in list(self.reports.items()):
            if id and now - report.last > EXPIRY:
                self.reports.pop((source, id), None)
                continue
            why = conflict(report, source, self.rank, self.histories, list(self.waits.values()),
                           lambda r: str(self.members[r]))
            if why is not None:
                self.verdict(why)
                return

    def _look(self, now: float) -> None:
        """Look for processes that send no heartbeat."""
        pause, self.looked = now - self.looked, now
        if pause > 2:  # this process itself was stopped or starved: it missed heartbeats
            self.heard = {r: t + pause for r, t in self.heard.items()}
        before = (self.rank - 1) % self.size
        silent = now - self.heard[before]
        if self.broken or before in self.gone or silent <= self.heartbeat:
            self.suspected = None
            return
        if self.suspected is None:  # more than one process may be lost
            self.suspected = now
            self.send(PING, self.others)
        elif now - self.suspected > min(3.0, self.heartbeat / 4):
            asked, self.suspected = self.suspected, None
            quiet = [r for r in self.others if r not in self.gone and self.heard[r] < asked]
            states = {r: self._state(r) for r in quiet}
            lost = {r: how for r, how in states.items() if how}
            if lost:
                told = ", ".join(f"{self.members[r]} has been silent for {silent:.0f} s: {how}"
                                 for r, how in lost.items())
                self.verdict(f"{told} (heartbeat_timeout_seconds={self.heartbeat:g})")

    def _state(self, rank: int) -> str:
        """How a silent process was lost; empty if it is running but does not answer.

        The state of a local process is read from /proc, because a library that holds the
        interpreter lock for minutes also keeps the heartbeat thread from answering."""
        if self.members[rank].host != self.members[self.rank].host:
            return "it is stopped, or its machine or network is down"
        state = state_of(self.members[rank].pid)
        if state in ("T", "t"):
            return "it is stopped by a signal or a debugger"
        return "it has died" if state in ("X", "Z") else ""

    # ---- the end
    def leave(self, limit: float) -> list[int]:
        """Announce that this process leaves; wait for the others, and return those that do not
        leave."""
        self.send(GOODBYE, self.others)
        began = time.monotonic()
        while len(self.gone) < self.size - 1:
            if time.monotonic() - began > limit:
                return [r for r in self.others if r not in self.gone]
            time.sleep(0.005)
            self.receive()
        self.leaving.set()
        self.thread.join()
        return []


def say(text: str) -> None:
    """Print a line on standard error."""
    sys.stdout.flush()
    print(f"toile.distributed: {text}", file=sys.stderr, flush=True)
