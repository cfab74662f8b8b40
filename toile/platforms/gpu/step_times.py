"""Measures the steps of a plan on a GPU: events are recorded around each, in the order of a call.

If a call is a CUDA graph, so is what is measured: the same work is captured once with events as
nodes between the steps, and once with events only at its ends. Otherwise steps are issued one by
one. An event costs about a microsecond: the time between two events with nothing in between is
subtracted, and the times of steps are scaled down if their sum exceeds the whole. Only the first
iteration of a loop is measured step by step. There can be no events within conditional nodes: how
their time is divided among the steps inside is measured outside the graph. Times are in seconds.
"""

from __future__ import annotations

import math
import statistics
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from toile.compiler.ir.steps import Region
from toile.platforms.gpu.execution import Executable
from toile.platforms.gpu.issuer import Addresses, Issuer
from toile.targets.cuda.driver import CudaError, driver

BEST = 3  # of this many rounds, the fastest counts
INNER_ROUNDS = 3  # for steps inside conditional nodes


@dataclass
class Part:
    """One launch of a region, or another step as a whole."""

    step: Any  # what is issued
    launches: list[Any]  # of the plan; empty if the step is not a region
    times: list[float] = field(default_factory=list)

    def shared(self) -> list[tuple[Any, float]]:
        """The groups (or launches without one) that it computes, each with its fraction."""
        work = [float(x.nbytes or x.blocks) for x in self.launches]
        total = sum(work) or 1.0
        keys = [id(x.origin) if x.origin is not None else id(x) for x in self.launches]
        return [(key, w / total) for key, w in zip(keys, work, strict=True)]


@dataclass
class Timed:
    """A step of a plan with its times, and the times of steps inside it."""

    step: Any
    measured: list[Part]
    bodies: list[list[Timed]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(statistics.fmean(p.times) for p in self.measured if p.times)

    @property
    def parts(self) -> list[tuple[Any, None]]:
        """The groups that a region computes."""
        return [(key, None) for key in self._by_key()]

    def shares(self) -> list[float]:
        """The fraction of a region's time for each of them."""
        found = self._by_key()
        total = sum(found.values())
        return [x / total if total else 1 / len(found) for x in found.values()]

    def _by_key(self) -> dict[Any, float]:
        found: dict[Any, float] = {}
        for p in self.measured:
            took = statistics.fmean(p.times) if p.times else 0.0
            for key, share in p.shared():
                found[key] = found.get(key, 0.0) + took * share
        return found


class Stopwatch(Issuer):
    """Issues a plan with events around its launches and calls."""

    def __init__(self, issuer: Issuer):
        self.__dict__.update(vars(issuer))
        self.launches = dict(issuer.launches)
        self.by_step: dict[int, Timed] = {}
        self.timed = self._prepare(issuer.plan)
        self.marks: list[tuple[Part, int, int]] = []
        self.events: list[int] = []
        self.begun: set[int] = set()
        self.ends = self.empty = (0, 0)
        self.captured = False
        self.floor = math.inf  # least time between two events with nothing in between

    def _prepare(self, plan: Any) -> list[Timed]:
        found = []
        for step in plan.steps:
            measured = [Part(step, [])]
            if isinstance(step, Region):
                measured = []
                for x in self.launches[id(step)]:
                    alone = Region(x.parts, set(), set())
                    self.launches[id(alone)] = [x]
                    measured.append(Part(alone, x.parts))
            bodies = [self._prepare(child) for child in getattr(step, "children", ())]
            self.by_step[id(step)] = Timed(step, measured, bodies)
            found.append(self.by_step[id(step)])
        return found

    def _mark(self, stream: int) -> int:
        event = driver().event()
        self.events.append(event)
        driver().record(event, stream, self.captured)
        return event

    def issue(self, addresses: Addresses, stream: int, checked: bool = False) -> None:
        """Put the work on the stream, with events."""
        self.forget()
        self.empty = self._mark(stream), self._mark(stream)
        first = self._mark(stream)
        super().issue(addresses, stream, checked)
        self.ends = first, self._mark(stream)

    branches = False  # events measure one step after the other

    def _steps(
        self, plan: Any, addresses: Addresses, stream: int, checked: bool, order: Any = None
    ) -> None:
        hidden = self.captured and stream != self.device.capture_stream  # in a conditional node
        if hidden or id(plan) in self.begun:  # another iteration of a loop
            return super()._steps(plan, addresses, stream, checked)
        self.begun.add(id(plan))
        for step in plan.steps:
            for part in self.by_step[id(step)].measured:
                alone: Any = SimpleNamespace(steps=[part.step])
                first = self._mark(stream)
                super()._steps(alone, addresses, stream, checked)
                self.marks.append((part, first, self._mark(stream)))

    def read(self, known: Collection[int] = ()) -> None:
        """Add the times of issued work that has finished, except of parts in `known`, by id."""
        elapsed = driver().elapsed
        self.floor = min(self.floor, elapsed(*self.empty))
        for part, first, second in self.marks:
            if id(part) not in known:
                part.times.append(max(elapsed(first, second) - self.floor, 0.0))

    def clear(self) -> None:
        """Remove all times."""
        for t in self.by_step.values():
            for p in t.measured:
                p.times.clear()

    def forget(self) -> None:
        """Prepare for the next issue."""
        for event in self.events:
            driver().forget_event(event)
        self.marks, self.events = [], []
        self.begun.clear()

    def keep_best(self) -> None:
        """Keep only the rounds that were fastest as a whole."""
        top = [p for t in self.timed for p in t.measured]
        rounds = range(min((len(p.times) for p in top), default=0))
        totals = [sum(p.times[r] for p in top) for r in rounds]
        kept = sorted(rounds, key=totals.__getitem__)[: -(-len(rounds) // BEST)]
        for t in self.by_step.values():
            for p in t.measured:
                p.times = [p.times[r] for r in kept if r < len(p.times)]


class _Whole(Issuer):
    """Issues a plan between two events."""

    def __init__(self, issuer: Issuer):
        self.__dict__.update(vars(issuer))
        self.captured = False
        self.ends = driver().event(), driver().event()

    def issue(self, addresses: Addresses, stream: int, checked: bool = False) -> None:
        """Put the work on the stream, with two events."""
        driver().record(self.ends[0], stream, self.captured)
        super().issue(addresses, stream, checked)
        driver().record(self.ends[1], stream, self.captured)


def graph_of(executable: Executable, issuer: Any, addresses: Addresses) -> int:
    """A graph of what an issuer issues; 0 if it cannot be captured."""
    if not executable.issuer.capturable or not executable.fits_in_graph:
        return 0
    try:
        return issuer.capture(dict(addresses), executable.device.capture_stream)
    except CudaError:  # the driver does not support events in graphs
        return 0


def measure(
    executable: Executable, pointers: Sequence[int], rounds: int
) -> tuple[list[Timed], float, float]:
    """The steps with their times, the time of the whole, and the scale of the steps' times."""
    device, stream = executable.device, executable.device.stream
    with device.lock, device.current():
        arena, _ = executable._arena()
        addresses = executable._addresses(executable.all_pointers(pointers), arena)
        watch, whole = Stopwatch(executable.issuer), _Whole(executable.issuer)
        graphs = []
        taken: list[float] = []
        try:
            for x in (watch, whole):
                graphs.append(graph_of(executable, x, addresses))
            for turn in range(rounds + 1):
                for issuer, graph in zip((watch, whole), graphs, strict=True):
                    if graph:
                        driver().launch_graph(graph, stream)
                    else:
                        issuer.issue(dict(addresses), stream)
                    driver().synchronize(stream)
                watch.read()
                if not turn:  # loads code and touches memory
                    watch.clear()
                else:
                    taken.append(driver().elapsed(*whole.ends))
            watch.keep_best()
            if graphs[0] and executable.issuer.decides:
                known = {id(part) for part, _, _ in watch.marks}
                for _ in range(INNER_ROUNDS):
                    watch.issue(dict(addresses), stream)
                    driver().synchronize(stream)
                    watch.read(known)
        finally:
            for graph in filter(None, graphs):
                driver().destroy(graph)
            watch.forget()
            for event in whole.ends:
                driver().forget_event(event)
    took = statistics.fmean(sorted(taken)[: -(-len(taken) // BEST)])
    total = sum(t.seconds for t in watch.timed)
    return watch.timed, took, min(took / total, 1.0) if total else 1.0


class _Hollow(Executable):
    """An executable that only launches a graph of one event, or nothing."""

    def __init__(self, executable: Executable):
        self.__dict__.update(vars(executable))
        self.graphs, self.own = OrderedDict(), {}
        self.event: int | None = None
        if executable.issuer.capturable and not executable.checked:
            self._make_graph(self.device.capture_stream)

    def _make_graph(self, stream: int) -> None:
        made = self.driver
        self.event = made.event()
        made.begin_capture(stream)
        made.record(self.event, stream, True)
        self.graphs[None] = made.instantiate(made.end_capture(stream))

    def run(self, pointers: Sequence[int], again: bool = True) -> None:
        """Launch the graph, if there is one."""
        with self.device.lock:
            for graph in self.graphs.values():
                self.driver.launch_graph(graph, self.device.stream)

    def direct(self) -> None:
        """None: the kernel must not run."""

    def _forget(self) -> None:
        super()._forget()
        if self.event is not None:  # nothing uses it any more
            self.driver.forget_event(self.event)
            self.event = None


def without_steps(executable: Executable) -> Executable:
    """The executable without its steps (a graph of one event, or nothing): the cost of a call."""
    return _Hollow(executable)
