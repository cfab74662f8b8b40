"""The processes of one program, joined by MPI: messages, waiting with a limit, signs of life.

Messages go from process to process through nonblocking MPI calls, and whoever waits looks at them
again and again: so the ones that keep it waiting are known by number, a failure elsewhere ends the
waiting, and MPI is never entered by two threads at once. A thread beside sends and receives signs
of life. MPI carries everything. May import the engine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from toile.engine.source import here

LIMIT_VARIABLE = "TOILE_COLLECTIVE_TIMEOUT"
LIMIT = 1800.0  # seconds that a process waits for another one in a collective, if not told
# Who waits looks without a pause at first, for as long as the bytes may take; then pauses are a
# twentieth of the time waited so far, within bounds: that much is lost at most.
SPIN, PER_BYTE = 2e-4, 1e-9  # seconds
PAUSES = 2e-5, 1e-3
GRACE = 2.0  # seconds for messages of a process that has said goodbye
TICK = 0.1

# Kinds of control messages, and tags of what is not a collective of devices.
ALIVE, GOODBYE = 1, 2
SIZES, VALUES = 1, 2
FIRST_TAG = 16
_SIGNS = {kind: np.array([kind], np.int64) for kind in (ALIVE, GOODBYE)}  # MPI may read them late


class ProcessFailure(RuntimeError):
    """A process that others wait for has ended, is silent, or runs something else."""


class Member:
    """What is known of a process: its number, its id on which machine."""

    __slots__ = ("rank", "pid", "host")

    def __init__(self, rank: int, pid: int, host: str):
        self.rank, self.pid, self.host = rank, pid, host

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


class Processes:
    """The joined processes, seen from this one."""

    def __init__(self, mpi: Any, world: Any, heartbeat: float):
        self.mpi, self.world = mpi, world
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self.data, self.control = world.Dup(), world.Dup()
        own = (os.getpid(), mpi.Get_processor_name())
        self.members = [Member(r, *m) for r, m in enumerate(world.allgather(own))]
        self.lock = threading.Lock()
        self.limit = float(os.environ.get(LIMIT_VARIABLE, LIMIT))
        self.gone: dict[int, float] = {}  # when who said goodbye
        self.tags: dict[int, Any] = {}
        self.largest_tag = world.Get_attr(mpi.TAG_UB)
        self.abandoned: list[Any] = []  # buffers that MPI may still write to
        self.heartbeat = heartbeat
        self.heard = time.monotonic()
        self.leaving = threading.Event()
        self.failing = threading.Lock()
        self.watch = threading.Thread(target=self._watch, daemon=True, name="toile processes")
        self.watch.start()

    def named(self, ranks: Sequence[int]) -> str:
        return ", ".join(str(self.members[r]) for r in ranks)

    # ---- messages
    def tag(self, group: Any, number: int) -> int:
        """A tag for the messages of a group; two groups never share one."""
        found = FIRST_TAG + number % (self.largest_tag - FIRST_TAG)
        if self.tags.setdefault(found, group) != group:
            raise RuntimeError(
                f"collectives: needed tags of their own for groups of devices, got one for "
                f"{self.tags[found]} and {group} (give the mapped axis another name){here()}"
            )
        return found

    def transfer(
        self, what: Any, outgoing: Mapping[int, Any], incoming: Mapping[int, Any], tag: int,
        stopped: Callable[[], bool] = bool,
    ) -> None:
        """Send arrays to processes and fill arrays from processes; waits for all of it.

        Raises ProcessFailure for a process that does not take part, and ends where `stopped`."""
        mpi = self.mpi
        with self.lock:
            receiving = {r: self.data.Irecv([_bytes(x), mpi.BYTE], r, tag)
                         for r, x in incoming.items() if x.nbytes}
            sending = {r: self.data.Isend([_bytes(x), mpi.BYTE], r, tag)
                       for r, x in outgoing.items() if x.nbytes}
        requests = [*receiving.values(), *sending.values()]
        statuses = [mpi.Status() for _ in requests]
        size = sum(x.nbytes for x in (*incoming.values(), *outgoing.values()))
        began, spin = time.monotonic(), SPIN + size * PER_BYTE
        try:
            while True:
                with self.lock:
                    if mpi.Request.Testall(requests, statuses):
                        break
                waited = time.monotonic() - began
                if waited < spin:
                    time.sleep(0)
                    continue
                if stopped():
                    raise InterruptedError
                self._check(what, waited, receiving, sending)
                time.sleep(min(max(waited / 20, PAUSES[0]), PAUSES[1]))
        except mpi.Exception as error:
            raise ProcessFailure(
                f"{_name(what)}: needed messages of {_sizes(incoming)} bytes, got another size: "
                f"do all processes run the same program? ({error}){here()}"
            ) from error
        except BaseException:
            self.abandoned.append((requests, outgoing, incoming))
            raise
        for r, status in zip(receiving, statuses, strict=False):
            got = status.Get_count(mpi.BYTE)
            if got != incoming[r].nbytes:
                raise ProcessFailure(
                    f"{_name(what)}: needed {incoming[r].nbytes} bytes of {self.members[r]}, got "
                    f"{got}: do all processes run the same program?{here()}"
                )

    def _check(
        self, what: Any, waited: float, receiving: Mapping[int, Any], sending: Mapping[int, Any]
    ) -> None:
        """Give up where waiting is vain, or has taken too long."""
        now = time.monotonic()
        ended = {r for r, t in self.gone.items() if now - t > GRACE}
        if ended:
            late = [r for r in self._late(receiving, sending) if r in ended]
            if late:
                raise ProcessFailure(
                    f"rank {self.rank} waits in {_name(what)} for {self.named(late)}, which has "
                    f"ended{here()}"
                )
        if waited > self.limit:
            late = self._late(receiving, sending)
            raise ProcessFailure(
                f"rank {self.rank} has waited {waited:.0f} s in {_name(what)} for "
                f"{self.named(late)}, which did not arrive ({LIMIT_VARIABLE}={self.limit:g}"
                f"){here()}"
            )

    def _late(self, receiving: Mapping[int, Any], sending: Mapping[int, Any]) -> list[int]:
        """The processes whose messages are missing; those that took none, if all others came."""
        with self.lock:
            late = [r for r, request in receiving.items() if not request.Get_status()]
            return late or [r for r, request in sending.items() if not request.Get_status()]

    # ---- values
    def all_gather(self, data: bytes, what: Any) -> list[bytes]:
        """The bytes of all processes, by rank."""
        others = [r for r in range(self.size) if r != self.rank]
        own = np.array([len(data)], np.int64)
        sizes = {r: np.zeros(1, np.int64) for r in others}
        self.transfer(what, dict.fromkeys(others, own), sizes, SIZES)
        given = np.frombuffer(data, np.uint8)
        found = {r: np.empty(int(sizes[r][0]), np.uint8) for r in others}
        self.transfer(what, dict.fromkeys(others, given), found, VALUES)
        return [data if r == self.rank else found[r].tobytes() for r in range(self.size)]

    def broadcast(self, data: bytes, source: int, what: Any) -> bytes:
        """The bytes of one process, on all of them."""
        others = [r for r in range(self.size) if r != source]
        size = np.array([len(data)], np.int64)
        if self.rank == source:
            self.transfer(what, dict.fromkeys(others, size), {}, SIZES)
            given = np.frombuffer(data, np.uint8)
            self.transfer(what, dict.fromkeys(others, given), {}, VALUES)
            return data
        self.transfer(what, {}, {source: size}, SIZES)
        found = np.empty(int(size[0]), np.uint8)
        self.transfer(what, {}, {source: found}, VALUES)
        return found.tobytes()

    def barrier(self, what: Any) -> None:
        """Wait for all processes to get here."""
        self.all_gather(b"", what)

    # ---- signs of life
    def _watch(self) -> None:
        every = min(5.0, self.heartbeat / 4)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        last = 0.0
        while not self.leaving.is_set():
            now = time.monotonic()
            if now - last >= every:
                self._send(ALIVE, [after])
                # A process that was itself stopped for a while must not blame another one.
                self.heard = now if now - last > self.heartbeat else self.heard
                last = now
            self._receive(before)
            silent = time.monotonic() - self.heard
            if silent > self.heartbeat and before not in self.gone:
                self.fail(f"{self.members[before]} has been silent for {silent:.0f} s "
                          f"(heartbeat_timeout_seconds={self.heartbeat:g})")
            self.leaving.wait(TICK)

    def _send(self, kind: int, ranks: Sequence[int]) -> None:
        with self.lock:
            for r in ranks:
                self.control.Isend([_SIGNS[kind], self.mpi.INT64_T], r, kind).Free()

    def _receive(self, before: int) -> None:
        status, value = self.mpi.Status(), np.zeros(1, np.int64)
        while True:
            with self.lock:
                if not self.control.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
                    return
                source = status.Get_source()
                self.control.Recv([value, self.mpi.INT64_T], source, status.Get_tag())
            if source == before:
                self.heard = time.monotonic()
            if value[0] == GOODBYE:
                self.gone[source] = time.monotonic()

    # ---- the end
    def leave(self, limit: float) -> None:
        """Say goodbye and wait for all others to do so."""
        others = [r for r in range(self.size) if r != self.rank]
        self._send(GOODBYE, others)
        began = time.monotonic()
        while len(self.gone) < self.size - 1:
            if time.monotonic() - began > limit:
                late = [r for r in others if r not in self.gone]
                self.fail(f"rank {self.rank} has ended and waited {limit:g} s for "
                          f"{self.named(late)} (shutdown_timeout_seconds)")
            time.sleep(0.005)
            self._receive((self.rank - 1) % self.size)
        self.leaving.set()
        self.watch.join()

    on_failure: Callable[[], None] = staticmethod(lambda: None)

    def fail(self, why: str, code: int = 1) -> None:
        """Say why, and end all processes."""
        if not self.failing.acquire(blocking=False):
            return  # another thread is at it
        self.on_failure()
        sys.stdout.flush()
        print(f"toile.distributed: {why}; rank {self.rank} ends all {self.size} processes",
              file=sys.stderr, flush=True)
        time.sleep(0.2)  # what is said needs a moment to reach the launcher
        self.lock.acquire(timeout=2)  # no other thread enters MPI from here on
        self.world.Abort(code)


def _bytes(x: Any) -> Any:
    """The memory of a contiguous array."""
    return x.reshape(-1).view(np.uint8)


def _sizes(arrays: Mapping[int, Any]) -> str:
    return ", ".join(str(n) for n in sorted({x.nbytes for x in arrays.values()}))


def _name(what: Any) -> str:
    """A collective as messages say it."""
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
    """The processes of the program; an error if this one is alone."""
    if slot.joined is None:
        raise RuntimeError(
            "processes: needed toile.distributed.initialize() under mpirun, got one process"
            + here()
        )
    return slot.joined
