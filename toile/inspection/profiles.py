"""`profile`: where the time of a call goes, by kernel, by module path and by operation.

On the CPU, the steps of the compiled plan run one by one in the native runner (measurements.py). On
a GPU, events between the steps measure their times (platforms/gpu/step_times.py). The overhead of
the call, measured with a call that runs no step, has a separate row. If a kernel contains
operations of several modules or passes, its time is divided among them in proportion to their
estimated work. A step that is measured separately takes slightly longer than as part of a call,
which matters if a call takes only microseconds. If the rows would add up to more than the call,
they are therefore scaled down.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toile.compiler.plan.phases import PHASES
from toile.displays.markup import box, escaped, fold, paragraph, table
from toile.engine.conversion import raw_operand
from toile.engine.program import Equation
from toile.engine.source import here
from toile.engine.trees import flatten
from toile.inspection.kernels import Kernel, kernels_of
from toile.inspection.measurements import best, measure, timed, without_steps
from toile.inspection.subjects import Subject, inspection_of, subject
from toile.inspection.tables import aligned, counted, duration
from toile.inspection.trace_files import write_trace

BUDGET = 1.5  # seconds to spend on rounds
FEWEST, MOST = 3, 60
WARM = 6  # calls before measuring a GPU, so that graphs are captured and addresses settle
WIDTH = 70  # columns for the names of operations
UNFOLDED = 20  # kernels that a notebook shows at once
CALLING = "(calling)"  # the row of time spent outside kernels
COPIES = "(copies of results)"
NO_MODULE = "(no module)"


@dataclass
class Row:
    """One row of a table: a name, a time, and the amount of work done in that time.

    Args:
        name: kernel, module path or operation.
        seconds: time in seconds.
        flops: number of floating-point operations.
        bytes: number of bytes read and written.
        operations: names of the operations.
        inner: rows of the kernels inside a loop; empty for other kernels.
        forward: part of `seconds` that the forward pass takes.
        backward: part of `seconds` that the backward pass takes.
        update: part of `seconds` that is spent after the backward pass, such as in an optimizer.
    """

    name: str
    seconds: float
    flops: float = 0.0
    bytes: float = 0.0
    operations: str = ""
    inner: list[Row] = field(default_factory=list)  # of a loop: its kernels
    forward: float = 0.0
    backward: float = 0.0
    update: float = 0.0

    def add(self, phase: str, seconds: float) -> None:
        """Add the time of a pass ("forward", "backward" or "update") to the row."""
        setattr(self, phase, getattr(self, phase) + seconds)


class Table:
    """A table of times with the slowest row first, shown as text or, in notebooks, as HTML.

    Args:
        rows: rows in any order.
        call: time of the whole call, in seconds.
    """

    def __init__(self, rows: list[Row], call: float):
        self.rows = sorted(rows, key=lambda r: -r.seconds)
        self.call = call
        # One pass alone needs no columns of its own.
        self.passes = [p for p in PHASES if any(getattr(r, p) for r in rows)]
        self.passes = self.passes if len(self.passes) > 1 else []

    def _head(self) -> tuple[str, ...]:
        return ("time", "share", *self.passes, "GFLOP/s", "GB/s", "", "operations")

    def _left(self) -> tuple[int, int]:
        return 4 + len(self.passes), 5 + len(self.passes)

    def _cells(self) -> list[tuple[str, ...]]:
        cells: list[tuple[str, ...]] = []

        def add(rows: list[Row], indent: str) -> None:
            for r in rows:
                cells.append((
                    duration(r.seconds),
                    f"{100 * r.seconds / self.call:.1f}%",
                    *(duration(getattr(r, p)) if getattr(r, p) else "" for p in self.passes),
                    _rate(r.flops, r.seconds),
                    _rate(r.bytes, r.seconds),
                    indent + r.name,
                    r.operations if len(r.operations) <= WIDTH else r.operations[:WIDTH] + " ...",
                ))
                add(r.inner, indent + "  ")

        add(self.rows, "")
        return cells

    def __str__(self) -> str:
        return aligned(self._head(), self._cells(), left=self._left())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return box(self._html())

    def _html(self) -> str:
        return table(self._head(), self._cells(), left=self._left())


class Profile:
    """The cost of a call to a compiled function; times are in seconds.

    Times are means over the fastest third of the rounds. `call` is the time of the whole call, and
    `calling` is the part of this time that is spent outside kernels.

    Args:
        name: name of the function.
        call: time of the whole call.
        calling: time spent outside kernels.
        rounds: number of times that each step was timed.
        times: for each kernel, a tuple of the kernel, its time, and a list of such tuples for the
            kernels inside it. The list is empty unless the kernel is a loop.
        threads: number of threads.
        device: the GPU; None for the CPU.
    """

    def __init__(self, name: str, call: float, calling: float, rounds: int,
                 times: list[tuple[Kernel, float, Any]], threads: int, device: Any = None):
        self.name, self.call, self.calling, self.rounds = name, call, calling, rounds
        self.threads, self.device = threads, device  # a GPU, or None
        self.times = times  # kernel, seconds, and the same for the bodies of a loop

    @property
    def covered(self) -> float:
        """The sum of the times in all rows, as a fraction of the time of the call."""
        return (self.calling + sum(s for _, s, _ in self.times)) / self.call

    def table(self, by: Literal["kernel", "module", "operation"] = "kernel") -> Table:
        """Return a table of times.

        Args:
            by: "kernel" for one row per kernel, "module" for one row per module path, or
                "operation" for one row per kind of operation.

        Returns:
            The table, with the slowest row first.
        """
        if by == "kernel":
            rows = [_kernel_row(*t) for t in self.times]
        elif by == "module":
            rows = self._summed(lambda k, e: k.path_of(e) or NO_MODULE)
        elif by == "operation":
            rows = self._summed(lambda k, e: e.op.name)
        else:
            raise ValueError(
                f"table: needed by='kernel', 'module' or 'operation', got {by!r}{here()}"
            )
        return Table([*rows, Row(CALLING, self.calling)], self.call)

    def _summed(self, key: Callable[[Kernel, Equation], str]) -> list[Row]:
        """Divide the time of each kernel among its equations, and sum the times by `key`."""
        rows: dict[str, Row] = {}

        def add(times: list[tuple[Kernel, float, Any]], turns: int) -> None:
            for k, seconds, inner in times:
                if inner:  # a loop: the time outside its kernels is its own
                    add(inner, turns * (k.trips or 1))
                    seconds -= sum(s for _, s, _ in inner)
                if not k.equations:  # a result that is an argument, or is returned twice
                    rows.setdefault(COPIES, Row(COPIES, 0.0)).seconds += seconds
                for e, share in k.shares():
                    name = key(k, e)
                    row = rows.setdefault(name, Row(name, 0.0))
                    row.seconds += seconds * share
                    row.add(k.phase_of(e), seconds * share)
                    if not inner:
                        row.bytes += turns * k.bytes * share
                        row.flops += turns * (k.trips or 1) * e.op.flops(*(a.aval for a in e.ins))

        add(self.times, 1)
        return list(rows.values())

    def _head(self) -> str:
        threads = f"with {self.threads} thread{'' if self.threads == 1 else 's'}"
        where = threads if self.device is None else f"on {self.device}"
        return (
            f"{self.name}: {duration(self.call)} per call, {where}, best of {self.rounds} rounds; "
            f"the rows add up to {100 * self.covered:.1f}% of it, and calling it takes "
            f"{100 * self.calling / self.call:.1f}%"
        )

    def __str__(self) -> str:
        parts = [self._head(), "", str(self.table("kernel"))]
        if any(k.modules not in ([], [""]) for k, _, _ in self.times):
            parts += ["", str(self.table("module"))]
        return "\n".join(parts)

    __repr__ = __str__

    def trace(self, file: str | os.PathLike[str]) -> Path:
        """Write the profile as a Chrome trace, which https://ui.perfetto.dev can display.

        The trace shows one call: its kernels one after the other, and below them the modules and
        the passes that they belong to. A kernel inside a loop is shown once, with the time of all
        its iterations.

        Args:
            file: path of the file. If it ends in `.gz`, the file is compressed.

        Returns:
            The path of the file.
        """
        return write_trace(Path(file), self)

    def _repr_html_(self) -> str:
        kernels, modules = self.table("kernel"), self.table("module")
        few = len(kernels.rows) <= UNFOLDED
        return box(
            paragraph(escaped(self._head())),
            fold("by kernel", kernels._html(), is_open=few),
            fold("by module", modules._html(), is_open=not few),
        )


def _rate(n: float, seconds: float) -> str:
    return f"{n / seconds / 1e9:.3g}" if n and seconds else ""


def _kernel_row(k: Kernel, seconds: float, inner: list[Any], turns: int = 1) -> Row:
    modules = [m for m in k.modules if m]
    where = f" {modules[0]}" if modules else ""
    more = f" +{len(modules) - 1}" if len(modules) > 1 else ""
    n = turns * (k.trips or 1)
    rows = sorted((_kernel_row(x, s, below, n) for x, s, below in inner), key=lambda r: -r.seconds)
    row = Row(f"[{k.number}] {k.kind}{where}{more}", seconds, turns * k.flops, turns * k.bytes,
              counted(k.operations), rows)
    for e, share in k.shares():
        row.add(k.phase_of(e), seconds * share)
    return row


# -------------------------------------------------------------------------- times by kernel


def assigned(kernels: list[Kernel], steps: list[Any], scale: float
             ) -> list[tuple[Kernel, float, Any]]:
    """Return each kernel with the total time of its steps, and with the kernels inside it."""
    by_launch = {id(x): i for i, k in enumerate(kernels) for x in k.launches}
    by_step = {s: i for i, k in enumerate(kernels) for s in k.steps
               if not k.launches or k.bodies or k.calls}
    seconds = [0.0] * len(kernels)
    inner: list[list[Any]] = [[] for _ in kernels]
    for n, t in enumerate(steps):
        took = t.seconds * scale
        launches = getattr(t.step, "launches", None)
        if launches is None:
            i = by_step[n]
            inner[i] = _of_bodies(kernels[i], t, took)
            seconds[i] += took
        elif not t.parts:
            seconds[by_launch[id(launches[0])]] += took
        else:
            owner = {key: i for i, key in _owners(t.step.kernels, by_launch)}
            for part, share in zip(t.parts, t.shares(), strict=True):
                seconds[owner[part[0]]] += took * share
    return list(zip(kernels, seconds, inner, strict=True))


def _owners(launches: list[Any], by_launch: dict[int, int]) -> list[tuple[int, Any]]:
    return [(by_launch[id(x)], id(x.origin) if x.origin else id(x)) for x in launches]


def _of_bodies(k: Kernel, t: Any, took: float) -> list[Any]:
    """Divide a loop's time among the kernels of its bodies as it is divided in one iteration."""
    turn = sum(inner.seconds for body in t.bodies for inner in body)
    if not turn:
        return []
    pairs = zip(k.bodies, t.bodies, strict=True)
    return [x for body, steps in pairs for x in assigned(body, steps, took / turn) if x[1]]


def _profiled(of: Subject, again: Subject, args: tuple[Any, ...], kwargs: dict[str, Any],
              rounds: int | None) -> Profile:
    """Measure a subject; `again`, compiled from the same function, times empty calls."""
    if of.consts is None:
        raise ValueError(f"profile: needed a function without tracers, got one with some{here()}")
    _, args_in, kwargs_in = of.jitted._take_statics(args, kwargs)
    raws = [*of.consts, *(raw_operand(x) for x in flatten((args_in, kwargs_in))[0])]

    def call() -> Any:
        return of.jitted(*args, **kwargs)

    def idle_call() -> Any:
        return again.jitted(*args, **kwargs)

    if of.device is not None:
        return _profiled_elsewhere(of, again, of.device, raws, call, idle_call, rounds)
    again.program.executable = without_steps(again.executable)  # before its first call
    call(), idle_call()
    if rounds is None:
        rounds = min(max(int(BUDGET / (3 * timed(call))), FEWEST), MOST)
    bench, took, idle = measure(of.executable, raws, call, idle_call, rounds)
    fit = fitted(took, idle, bench.seconds)
    times = assigned(kernels_of(of.plan), bench.steps, bench.scale * fit)
    return Profile(of.name, took, idle * fit, rounds, times, bench.threads)


def fitted(call: float, calling: float, kernels: float) -> float:
    """Return the factor that scales the parts of a call so that they do not exceed the call."""
    return min(call / (calling + kernels), 1.0) if calling + kernels else 1.0


def _profiled_elsewhere(
    of: Subject, again: Subject, device: Any, raws: list[Any], call: Callable[[], Any],
    idle_call: Callable[[], Any], rounds: int | None,
) -> Profile:
    """Measure a subject on an asynchronous device: a call ends when its results are ready."""
    timing = inspection_of(device).step_times
    with device.lock, device.current():
        again.program.memo[device] = timing.without_steps(again.executable)

    def waited(call: Callable[[], Any]) -> Any:
        result = call()
        device.synchronize()
        return result

    for _ in range(WARM):
        waited(call), waited(idle_call)
    if rounds is None:
        rounds = min(max(int(BUDGET / (4 * timed(lambda: waited(call)))), FEWEST), MOST)
    calls = [(timed(lambda: waited(call)), timed(lambda: waited(idle_call))) for _ in range(rounds)]
    exe = of.executable
    with device.current():
        held = [exe.given(x) for x in raws]
        rooms = [exe.room(n) for n in exe.out_bytes]
    pointers = [*(x.data.ptr for x in held), *(start for _, start in rooms)]
    steps, _, scale = timing.measure(exe, pointers, rounds)
    took, idle = (best(list(x)) for x in zip(*calls, strict=True))
    fit = fitted(took, idle, scale * sum(t.seconds for t in steps))
    times = assigned(kernels_of(of.plan), steps, scale * fit)
    return Profile(of.name, took, idle * fit, rounds, times, 1, device)


def profile(f: Callable[..., Any], *, rounds: int | None = None) -> Callable[..., Profile]:
    """Create a function that measures the cost of a compiled call, kernel by kernel.

    Args:
        f: function to measure, jitted or not.
        rounds: number of times that each step is timed. If `rounds` is None, a number between 3 and
            60 is chosen so that the measurement takes about 1.5 seconds.

    Returns:
        A function that accepts the arguments of `f`, runs `f`, and returns a `Profile`. Print the
        profile to see its tables.

    >>> p = toile.profile(lambda x: jnp.exp(x).sum(), rounds=5)(jnp.ones((64, 64)))
    >>> p.table(by="operation").rows[0].seconds > 0
    True
    """
    @functools.wraps(f, updated=())
    def profiled(*args: Any, **kwargs: Any) -> Profile:
        of, again = (subject(f, "profile", args, kwargs) for _ in range(2))
        return _profiled(of, again, args, kwargs, rounds)

    return profiled


__all__ = ["Profile", "Row", "Table", "profile"]
