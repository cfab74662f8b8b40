"""The processes of one program, joined by MPI: send messages, and wait for them with a time limit.

Messages are sent with nonblocking MPI calls, and a waiting process polls them. Therefore, a waiting
process can report which processes it waits for, a failure elsewhere ends the wait, and two threads
never call MPI at the same time. Other communication (heartbeats, failures) is in
`parallel.control`. This module may import the engine and other modules of `parallel`.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toile.engine.source import here, user_source
from toile.parallel.control import Control, Member, say
from toile.parallel.fingerprints import digest_of
from toile.parallel.runs import History, Ranks, Report, Run

LIMIT_VARIABLE = "TOILE_COLLECTIVE_TIMEOUT"
LIMIT = 1800.0  # seconds that a process waits for a running one in a collective, by default
# A waiting process polls without a pause at first, for as long as the bytes may take; then each
# pause is a twentieth of the time waited so far, within bounds, so at most a twentieth of the time
# is lost.
SPIN, PER_BYTE = 2e-4, 1e-9  # seconds
PAUSES = 2e-5, 1e-3
GRACE = 2.0  # seconds to wait for messages of a process that has said goodbye
SLOW = 1.0  # seconds after which a waiting process sends a report
NOTED = 60.0  # seconds after which a waiting process informs the user, once

# Tags of the messages that compare programs.
HANDSHAKE, DETAILS = 1, 2  # DETAILS also uses tag 3
FIRST_TAG, TAGS_EACH = 16, 16  # the collectives of a group have their own tags, one per kind


class ProcessFailure(RuntimeError):
    """A process that others wait for has ended, is silent, or runs another program."""


class Processes:
    """The joined processes, seen from this one."""

    def __init__(self, mpi: Any, world: Any, heartbeat: float):
        self.mpi, self.world = mpi, world
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self.everyone: Ranks = tuple(range(self.size))
        self.data = world.Dup()
        own = (os.getpid(), mpi.Get_processor_name())
        self.members = [Member(r, *m) for r, m in enumerate(world.allgather(own))]
        self.lock = threading.Lock()
        self.limit = float(os.environ.get(LIMIT_VARIABLE, LIMIT))
        self.tags: dict[int, tuple[int, Any]] = {}  # the program and group that own each tag
        self.known_tags: dict[tuple[int, Any], int] = {}
        self.largest_tag = world.Get_attr(mpi.TAG_UB)
        self.abandoned: list[Any] = []  # buffers that MPI may still write to
        self.agreed: set[tuple[Ranks, int]] = set()  # programs that have been compared
        self.main = threading.get_ident()
        self.numbers = itertools.count(1)
        self.ending = threading.Lock()
        self.control = Control(mpi, world.Dup(), self.lock, self.members, self.rank, heartbeat,
                               self.fail)
        self.control.thread.start()

    def named(self, ranks: Sequence[int]) -> str:
        return self.control.named(ranks)

    # ---- runs
    def enter(self, ranks: Ranks, digest: int, name: str, line: Any = None) -> Run:
        """Number a program that some processes run together; the caller must call the run's `end`.

        Only programs started by the main thread have the same order in all processes."""
        self.check_whole()
        if threading.get_ident() != self.main:
            return Run(ranks, 0, digest, name, line, None)
        history = self.control.histories.get(ranks)
        if history is None:
            history = self.control.histories[ranks] = History(ranks, self.main)
        return history.enter(digest, name, line)

    def check_whole(self) -> None:
        """Raise an error if a failure that stops all processes is known."""
        if self.control.broken is not None:
            self.control.raised = True
            raise ProcessFailure(self.control.broken + here())

    # ---- messages
    def tag(self, digest: int, group: Any) -> int:
        """The first of the tags of a group of devices in a program; groups do not share tags."""
        known = digest, group
        found = self.known_tags.get(known)
        if found is None:
            found = self.known_tags[known] = self._new_tag(digest, group)
        return found

    def _new_tag(self, digest: int, group: Any) -> int:
        known = digest, group
        number = zlib.crc32(repr(group).encode(), digest & 0xFFFFFFFF)
        found = FIRST_TAG + TAGS_EACH * (number % (self.largest_tag // TAGS_EACH - 2))
        before = self.tags.setdefault(found, known)
        if before != known:
            if before[0] == digest:
                raise RuntimeError(
                    "collectives: needed distinct message tags for groups of devices, got one "
                    f"for {before[1]} and {group} (give the mapped axis another name){here()}"
                )
            self.tags[found] = known  # the older program's messages have arrived, or it is at fault
        return found

    def transfer(
        self, what: Any, outgoing: Mapping[int, Any], incoming: Mapping[int, Any], tag: int,
        run: Run, stopped: Callable[[], bool] = bool, limit: float | None = None,
    ) -> None:
        """Send arrays to processes, receive arrays from processes, and wait until all are done.

        Raises ProcessFailure for a process that does not take part; ends early if `stopped()` is
        true."""
        mpi = self.mpi
        with self.lock:
            receiving = {r: self.data.Irecv([_bytes(x), mpi.BYTE], r, tag)
                         for r, x in incoming.items() if x.nbytes}
            sending = {r: self.data.Isend([_bytes(x), mpi.BYTE], r, tag)
                       for r, x in outgoing.items() if x.nbytes}
        requests = [*receiving.values(), *sending.values()]
        statuses = [mpi.Status() for _ in requests]
        size = sum(x.nbytes for x in (*incoming.values(), *outgoing.values()))
        wait = _Wait(self, what, tag, run, limit or self.limit, SPIN + size * PER_BYTE)
        try:
            while not self._complete(requests, statuses):
                wait.pause(stopped, lambda: self._late(receiving, sending))
        except mpi.Exception as error:
            raise ProcessFailure(
                f"{_name(what)}: needed messages of {_sizes(incoming)} bytes, got another size: "
                f"do all processes run the same program? ({error}){here()}"
            ) from error
        except BaseException:
            self.abandoned.append((requests, outgoing, incoming))
            raise
        finally:
            wait.end()
        for r, status in zip(receiving, statuses, strict=False):
            got = status.Get_count(mpi.BYTE)
            if got != incoming[r].nbytes:
                raise ProcessFailure(
                    f"{_name(what)}: needed {incoming[r].nbytes} bytes of {self.members[r]}, got "
                    f"{got}: do all processes run the same program?{here()}"
                )

    def _complete(self, requests: Sequence[Any], statuses: Sequence[Any]) -> bool:
        with self.lock:
            return self.mpi.Request.Testall(requests, statuses)

    def _late(self, receiving: Mapping[int, Any], sending: Mapping[int, Any]) -> list[int]:
        """The processes whose messages are missing; if none, those that have received none."""
        with self.lock:
            late = [r for r, request in receiving.items() if not request.Get_status()]
            return late or [r for r, request in sending.items() if not request.Get_status()]

    # ---- values
    def all_gather(self, data: bytes, what: str, kind: str = "") -> list[bytes]:
        """The bytes of all processes, by rank; `kind` must be the same on all."""
        run = self._value(kind or what, what)
        try:
            tag = self.tag(run.digest, "values")
            return self.gathered(data, what, self.everyone, tag, run)
        finally:
            run.end()

    def gathered(
        self, data: bytes, what: Any, ranks: Sequence[int], tag: int, run: Run,
        limit: float | None = None,
    ) -> list[bytes]:
        """The bytes of some processes, in their order; uses this tag and the next."""
        others = [r for r in ranks if r != self.rank]
        own = np.array([len(data)], np.int64)
        sizes = {r: np.zeros(1, np.int64) for r in others}
        self.transfer(what, dict.fromkeys(others, own), sizes, tag, run, limit=limit)
        given = np.frombuffer(data, np.uint8)
        found = {r: np.empty(int(sizes[r][0]), np.uint8) for r in others}
        self.transfer(what, dict.fromkeys(others, given), found, tag + 1, run, limit=limit)
        return [data if r == self.rank else found[r].tobytes() for r in ranks]

    def broadcast(self, data: bytes, source: int, what: str) -> bytes:
        """The bytes of one process, on all of them."""
        run = self._value(f"{what} of {source}", what)
        others = [r for r in range(self.size) if r != source]
        size = np.array([len(data)], np.int64)
        tag = self.tag(run.digest, "values")
        try:
            if self.rank == source:
                self.transfer(what, dict.fromkeys(others, size), {}, tag, run)
                given = np.frombuffer(data, np.uint8)
                self.transfer(what, dict.fromkeys(others, given), {}, tag + 1, run)
                return data
            self.transfer(what, {}, {source: size}, tag, run)
            found = np.empty(int(size[0]), np.uint8)
            self.transfer(what, {}, {source: found}, tag + 1, run)
            return found.tobytes()
        finally:
            run.end()

    def _value(self, kind: str, what: str) -> Run:
        return self.enter(self.everyone, digest_of(kind), what, user_source())

    def barrier(self, what: str) -> None:
        """Wait until all processes have called this method."""
        self.all_gather(b"", what)

    # ---- the end
    def leave(self, limit: float) -> None:
        """Announce that this process leaves, and wait until all others do so."""
        late = self.control.leave(limit)
        if late:
            self.fail(f"rank {self.rank} has ended and waited {limit:g} s for {self.named(late)} "
                      "(shutdown_timeout_seconds)")

    on_failure: Callable[[], None] = staticmethod(lambda: None)

    def fail(self, why: str, code: int = 1, known: bool = False) -> None:
        """Print the reason, unless it is `known`, and end all processes; they print their errors
        first."""
        if not self.ending.acquire(blocking=False):
            return  # another thread is already ending them
        self.on_failure()
        if not known:
            say(f"{why}; rank {self.rank} ends all {self.size} processes")
        self.control.verdict(why)
        self.control.told_to_all()
        time.sleep(0.2)  # the output needs a moment to reach the launcher
        self.lock.acquire(timeout=2)  # no other thread enters MPI from here on
        self.world.Abort(code)


class _Wait:
    """The wait of one transfer; if it takes long, the late processes are notified."""

    def __init__(
        self, processes: Processes, what: Any, tag: int, run: Run, limit: float, spin: float
    ):
        self.processes, self.what, self.tag, self.run = processes, what, tag, run
        self.limit, self.spin, self.began = limit, spin, time.monotonic()
        self.report: Report | None = None  # made when the wait becomes slow
        self.next, self.noted = 0.0, False

    def pause(self, stopped: Callable[[], bool], late: Callable[[], list[int]]) -> None:
        """Wait a little; raises if the run was stopped or the wait cannot succeed."""
        waited = time.monotonic() - self.began
        if waited < self.spin:
            time.sleep(0)
            return
        if stopped():
            raise InterruptedError
        if waited > SLOW and self.report is None:
            self.report = Report(
                next(self.processes.numbers), self.run, _name(self.what),
                self.tag - self.tag % TAGS_EACH, (), 0.0, time.monotonic())
        control = self.processes.control
        if self.report is not None or control.broken is not None or control.gone:
            self._check(waited, late)
        time.sleep(min(max(waited / 20, PAUSES[0]), PAUSES[1]))

    def end(self) -> None:
        """Note that the wait is over."""
        if self.report is not None:
            self.processes.control.waits.pop(self.report.id, None)

    def _check(self, waited: float, late: Callable[[], list[int]]) -> None:
        """Raise if the wait cannot succeed or took too long; send a report if it is slow."""
        processes = self.processes
        processes.check_whole()
        now = time.monotonic()
        ended = {r for r, t in processes.control.gone.items() if now - t > GRACE}
        gone = [r for r in late() if r in ended] if ended else []
        if gone:
            raise ProcessFailure(
                f"rank {processes.rank} waits in {_name(self.what)} for {processes.named(gone)}, "
                f"which has ended; this is {self.run}{here()}"
            )
        if self.report is not None and waited >= self.next:
            clocks = dict(processes.control.clocks)  # before the messages are looked for
            self._tell(self.report, waited, late(), clocks)

    def _tell(
        self, report: Report, waited: float, late: Sequence[int], clocks: Mapping[int, float]
    ) -> None:
        """Notify the late processes; give up after the limit."""
        processes = self.processes
        if waited > self.limit:
            raise ProcessFailure(
                f"rank {processes.rank} has waited {waited:.0f} s in {report.what} for "
                f"{self._doing(late)}; it did not arrive at {self.run} "
                f"({LIMIT_VARIABLE}={self.limit:g}){here()}"
            )
        report.late, report.waited, report.last = tuple(late), waited, time.monotonic()
        processes.control.report(report, clocks)
        if waited > NOTED and not self.noted:
            self.noted = True
            say(f"rank {processes.rank} has waited {waited:.0f} s in {report.what} for "
                f"{self._doing(late)}; this is {self.run}")
        self.next = min(waited + (2 if waited < 10 else 5), self.limit)

    def _doing(self, late: Sequence[int]) -> str:
        control = self.processes.control
        return "; ".join(f"{control.members[r]}, which is alive: "
                         f"{control.statuses.get(r, 'it has not said where it is')}" for r in late)


def _bytes(x: Any) -> Any:
    """The memory of a contiguous array."""
    return x.reshape(-1).view(np.uint8)


def _sizes(arrays: Mapping[int, Any]) -> str:
    return ", ".join(str(n) for n in sorted({x.nbytes for x in arrays.values()}))


def _name(what: Any) -> str:
    """The name of a collective in messages."""
    if isinstance(what, tuple):
        name, axes = what[0], what[1:]
        inside = ", ".join(str(a) for group in axes
                           for a in (group if isinstance(group, tuple) else (group,)))
        return f"{name} over {inside}" if inside else str(name)
    return str(what)


class _Slot:
    """The processes that this one has joined; None if it is alone."""

    joined: Processes | None = None


slot = _Slot()


def joined() -> Processes:
    """The processes of the program; raises an error if this process is alone."""
    if slot.joined is None:
        raise RuntimeError(
            "processes: needed toile.distributed.initialize() under mpirun, got one process"
            + here()
        )
    return slot.joined
