"""Measure a plan: its steps run one by one in the native runner, and each is timed separately.

Steps run in order on the buffers of one call, so caches are in the same state as in a real call.
Starting and ending each step separately costs time, so all steps are also timed together: that
total is divided among the steps in proportion to their separate times. A region of several kernels
is timed as a whole. In other rounds, its kernels are timed separately to find how the time is
divided. For a chain of kernels, the first kernel is timed, then the first two together, and so on.
One iteration of each loop is timed step by step in the same way. Times are in seconds.
"""

from __future__ import annotations

import copy
import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.steps import ScanStep, SwitchStep, WhileStep
from toile.engine.buffers import Block, allocate
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.platforms.cpu import runner
from toile.platforms.cpu.chains import Chain
from toile.platforms.cpu.execution import Context, failure
from toile.platforms.cpu.new_plans import PlannedExecutable
from toile.platforms.cpu.planner import Plan, Region
from toile.targets.llvm import thread_count as threads

BEST = 3  # the fastest third of the rounds counts: other work can only slow a round down
INNER_ROUNDS, LONG = 3, 0.2  # fewer rounds for calls that take longer than this
SHORT = 0.005  # shorter calls are run twice, and the second one is timed


class Part(NamedTuple):
    """Some launches of a region: those of one group, or the first links of a chain."""

    key: Any  # what the time is assigned to, minus the time of the part at the beginning
    table: runner.Table
    begins: int | None = None  # index of the part at its beginning


@dataclass
class Timed:
    """A step of a plan, its parts, and the times of both."""

    step: Any
    table: runner.Table
    parts: list[Part] = field(default_factory=list)  # of a region
    bodies: list[list[Timed]] = field(default_factory=list)  # of a loop
    times: list[float] = field(default_factory=list)
    part_times: list[list[float]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.fmean(self.times) if self.times else 0.0

    def shares(self) -> list[float]:
        """Return the fraction of a region's time that each of its parts takes."""
        took = [min(t) if t else 0.0 for t in self.part_times]
        own = [max(t - (took[part.begins] if part.begins is not None else 0.0), 0.0)
               for t, part in zip(took, self.parts, strict=True)]
        total = sum(own)
        return [x / total if total else 1 / len(own) for x in own]


class Bench:
    """The buffers of one call, and a command table for each step that runs on them."""

    def __init__(self, executable: PlannedExecutable, raws: Sequence[np.ndarray]):
        self.executable = executable
        self.raws = [np.ascontiguousarray(x) for x in raws]
        self.steps = self._prepare(executable.plan)
        self.results = self._results()
        self.context = Context(executable)
        self.arena: Block = allocate(executable.arena_bytes + 64)
        self.context.place(executable, self.arena)
        self.outs: list[Block] = []
        self.threads = threads.current()
        self.empty = runner.Table()
        self.floor = 0.0  # time of an empty table
        self.together: list[float] = []  # times of all steps, run as in a call

    # ---- tables
    def _table(self, steps: Sequence[Any]) -> runner.Table:
        return self.executable.table_of(steps)

    def _results(self) -> runner.Table:
        """Return commands that set the pointers of results which share a block with others."""
        table, exe = runner.Table(), self.executable
        results = exe.plan.outputs[: len(exe.places)]  # without those of tests of indices
        for out, (block, offset) in zip(results, exe.places, strict=True):
            slot = exe.slots[out.buffer]
            if slot != exe.inputs + block:
                table.place(exe.inputs + block, [(slot, offset)])
        return table

    def _prepare(self, plan: Plan) -> list[Timed]:
        return [self._prepare_step(step) for step in plan.steps]

    def _prepare_step(self, step: Any) -> Timed:
        found = Timed(step, self._table([step]))
        if isinstance(step, Region):
            parts = self._parts(step)
            if len(parts) > 1:
                found.parts, found.part_times = parts, [[] for _ in parts]
        for child in getattr(step, "children", ()):
            found.bodies.append(self._prepare(child))
        return found

    def _parts(self, region: Region) -> list[Part]:
        """Divide a region into parts: the launches of each group, and the links of each chain."""
        by_origin: dict[Any, list[Any]] = {}
        found: list[Part] = []
        for x in region.launches:
            if isinstance(x, Chain):
                for n, link in enumerate(x.links):
                    table = self._table([Region([x.first(n + 1)], set(), set())])
                    found.append(Part(id(link.origin), table, len(found) - 1 if n else None))
            else:
                by_origin.setdefault(id(x.origin) if x.origin else id(x), []).append(x)
        return found + [Part(key, self._table([Region(launches, set(), set())]))
                        for key, launches in by_origin.items()]

    # ---- running
    def run(self, table: runner.Table) -> float:
        """Run a table and return its time without the cost of entering the runner."""
        started = time.perf_counter()
        code = runner.run(table.address, self.context.address, self.threads)
        took = time.perf_counter() - started
        if code:
            raise failure(code)
        return max(took - self.floor, 0.0)

    def begin(self) -> None:
        """Set the arguments and allocate new outputs."""
        self.outs = [allocate(n) for n in self.executable.blocks]
        where = [*(runner.address(x) for x in self.raws), *(start for _, start in self.outs)]
        self.context.pointers[: len(where)] = where
        self.run(self.results)

    def warm(self, rounds: int = 20) -> None:
        """Measure the time of an empty table, which is the cost of entering the runner."""
        self.floor = 0.0
        self.floor = min(self.run(self.empty) for _ in range(rounds))

    def whole_round(self) -> None:
        """Time all steps, each as a whole, and then all of them together."""
        self.begin()
        for t in self.steps:
            t.times.append(self.run(t.table))
        self.begin()
        self.together.append(self.run(self.executable.table))

    def inner_round(self) -> None:
        """Run all steps, and time the kernels of regions and the steps of one loop iteration."""
        self.begin()
        for t in self.steps:
            self._inside(t)

    def _inside(self, t: Timed) -> None:
        if t.parts:
            for part, times in zip(t.parts, t.part_times, strict=True):
                times.append(self.run(part.table))
        else:
            if t.bodies:
                self._iteration(t)
            self.run(t.table)

    def keep_best(self) -> None:
        """Keep only the fastest third of the rounds.

        All steps keep the same rounds, so their mean times add up to the mean total."""
        rounds = range(min((len(t.times) for t in self.steps), default=0))
        totals = [sum(t.times[r] for t in self.steps) for r in rounds]
        kept = sorted(rounds, key=totals.__getitem__)[: -(-len(rounds) // BEST)]
        for t in self.steps:
            t.times = [t.times[r] for r in kept]

    @property
    def seconds(self) -> float:
        """The time of all steps together."""
        return best(self.together)

    @property
    def scale(self) -> float:
        """The factor that makes the times of the steps add up to their time together."""
        apart = sum(t.seconds for t in self.steps)
        return self.seconds / apart if apart else 1.0

    # ---- loops
    def _iteration(self, t: Timed) -> None:
        """Time one iteration of a loop, and undo its changes because the loop has not run yet."""
        changed = [self.arena[0], self.context.pointers, *(x for x, _ in self.outs)]
        saved = [x.copy() for x in changed]
        starts = list(t.step.starts)
        if isinstance(t.step, ScanStep):
            starts += [(moving, ref) for moving, ref, _ in t.step.slices]
        self.run(self.executable.pointing(starts))
        for body in self._bodies_to_run(t):
            for inner in body():
                if inner.bodies:
                    self._iteration(inner)
                inner.times.append(self.run(inner.table))
                if inner.parts:
                    self._inside(inner)
        for x, kept in zip(changed, saved, strict=True):
            x[...] = kept

    def _bodies_to_run(self, t: Timed) -> list[Callable[[], list[Timed]]]:
        """Return, for each body that an iteration runs, a function that returns the body's steps.

        The body of a while loop has no steps if its condition is false."""
        if isinstance(t.step, SwitchStep):
            i = self._read(t.step.index, 0, ctypes.c_int32)
            chosen = min(max(i, 0), len(t.bodies) - 1)
            return [lambda: t.bodies[chosen]]
        if isinstance(t.step, WhileStep):
            ref = t.step.predicate
            return [
                lambda: t.bodies[0],
                lambda: t.bodies[1] if self._read(ref.buffer, ref.offset, ctypes.c_uint8) else [],
            ]
        return [lambda: t.bodies[0]]

    def _read(self, buffer: Any, offset: int, kind: Any) -> int:
        slot = self.executable.slots[buffer]
        return kind.from_address(int(self.context.pointers[slot]) + offset).value


def measure(
    executable: PlannedExecutable, raws: Sequence[np.ndarray], call: Callable[[], Any],
    idle_call: Callable[[], Any], rounds: int,
) -> tuple[Bench, float, float]:
    """Time the steps, a whole call and an empty call in turn, `rounds` times each."""
    bench = Bench(executable, raws)
    calls: list[float] = []
    idle_calls: list[float] = []
    token = ignore_errors()
    enter, leave = executable.guard or (_do_nothing, _do_nothing)
    enter()  # BLAS runs on the calling thread
    try:
        bench.warm()
        bench.whole_round()  # touches the memory for the first time
        for t in bench.steps:
            t.times.clear()
        short = bench.together.pop() < SHORT  # caches still hold what the steps used
        for _ in range(rounds):
            bench.whole_round()
            leave()
            for times, f in ((calls, call), (idle_calls, idle_call)):
                if short:
                    f()
                times.append(timed(f))
            enter()
        for _ in range(INNER_ROUNDS if min(calls) < LONG else 1):
            bench.inner_round()
    finally:
        leave()
        restore_errors(token)
    bench.keep_best()
    return bench, best(calls), best(idle_calls)


def _do_nothing() -> None:
    pass


def best(times: list[float]) -> float:
    """Return the mean of the fastest third of the times."""
    return statistics.fmean(sorted(times)[: -(-len(times) // BEST)])


def timed(call: Callable[[], Any]) -> float:
    """Measure the time of a call, without the time to free its result."""
    started = time.perf_counter()
    result = call()
    took = time.perf_counter() - started
    del result
    return took


def without_steps(executable: PlannedExecutable) -> PlannedExecutable:
    """Copy an executable without its steps; calling the copy measures the overhead of a call."""
    hollow = copy.copy(executable)
    hollow.table = runner.Table()
    hollow.address = hollow.table.address
    hollow.free, hollow.in_python = [], False
    return hollow
