"""Run one function on every device at the same time.

The first device runs in the calling thread, and the others run in threads that are kept for the
next run. Each kernel uses one thread. If the function raises an error on a device, the other
devices stop, at their next collective or in the middle of a run, and the error is raised here.
KeyboardInterrupt is treated in the same way. This module may import the engine, targets and
parallel.exchange.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toile.engine.config import flags
from toile.engine.exchange import slot
from toile.engine.trace import state
from toile.parallel.exchange import Place, ThreadExchange, World
from toile.targets.llvm.stop_checks import Stopper
from toile.targets.llvm.thread_count import threads


class _Worker:
    """A thread that runs one device after another."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._loop, daemon=True, name="toile device")
        self.thread.start()

    def _loop(self) -> None:
        while True:
            task = self.tasks.get()
            task()
            del task  # otherwise its objects would live until the next task


class _Idle:
    """Idle workers; a forked process begins with none."""

    def __init__(self) -> None:
        self.workers: list[_Worker] = []
        self.process = os.getpid()

    def take(self) -> _Worker:
        if self.process != os.getpid():
            self.workers, self.process = [], os.getpid()
        try:
            return self.workers.pop()
        except IndexError:
            return _Worker()


_idle = _Idle()


class _Run:
    """One launch: a function of the device's index, on all devices."""

    def __init__(
        self, function: Callable[[int], Any], places: Sequence[Place], make: Callable[..., Any]
    ):
        self.function = function
        outer = slot.exchange
        if isinstance(outer, ThreadExchange):
            self.world, number = outer.world, next(outer.count)
            self.exchanges = [outer.inside(number, p) for p in places]
        else:
            self.world = World()
            self.exchanges = [make(self.world, ((0, p),)) for p in places]
        self.axes = (*state.axes, *((n, s) for n, s, _ in places[0]))
        self.flags = dict(flags.__dict__)
        self.results: list[Any] = [None] * len(places)
        self.left = len(places)
        self.ended = threading.Event()
        self.stopper = Stopper()
        self.lock = threading.Lock()

    def device(self, k: int) -> None:
        """Run one device in this thread."""
        exchange = self.exchanges[k]
        before, axes = slot.exchange, state.axes
        slot.exchange, state.axes = exchange, self.axes
        try:
            with threads(1):
                self.results[k] = self.function(k)
        except BaseException as error:
            if isinstance(error, Exception) and self.world.error is None:
                place = ", ".join(f"{n}={i}" for n, _, i in exchange.levels[-1][1])
                error.add_note(f"(raised on the device at {place})")
            self.world.stop(error)
            self.stopper.stop()
        finally:
            slot.exchange, state.axes = before, axes
            self.world.finish(exchange.path)

    def in_worker(self, k: int, worker: _Worker) -> None:
        """Run one device in a thread of its own, under the caller's configuration."""
        flags.__dict__.clear()
        flags.__dict__.update(self.flags)
        try:
            with self.stopper.stoppable():
                self.device(k)
        finally:
            _idle.workers.append(worker)
            with self.lock:
                self.left -= 1
                last = self.left == 1
            if last:
                self.ended.set()

    def __call__(self) -> list[Any]:
        try:
            for k in range(1, len(self.exchanges)):
                worker = _idle.take()
                worker.tasks.put(partial(self.in_worker, k, worker))
            self.device(0)
            if len(self.exchanges) > 1:
                self.ended.wait()
        except BaseException as error:  # in this thread: an interruption
            self.world.stop(error)
            self.stopper.stop()
            raise
        if self.world.error is not None:
            raise self.world.error
        return self.results


def launch(
    function: Callable[[int], Any], places: Sequence[Place],
    make: Callable[..., Any] = ThreadExchange,
) -> list[Any]:
    """Call `function(k)` for each device k at the same time; `places[k]` is the place of device k.

    `make` creates the exchange of a device, unless the caller is itself one of many devices."""
    return _Run(function, places, make)()
