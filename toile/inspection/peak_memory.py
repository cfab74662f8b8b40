"""`plan`: the memory that a call needs at its peak, before anything runs.

The function is traced and planned, but no kernel is compiled and nothing is allocated. The plan
shows what is in memory at the peak, by buffer, by module and by line. It also shows how much memory
checkpointing would save, and the largest batch that fits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from toile.compiler.plan.phases import BACKWARD, FORWARD, PHASES, UPDATE
from toile.displays.markup import amount, box, escaped, fold, paragraph, table
from toile.engine import errors
from toile.engine.arrays import ConcreteArray
from toile.engine.avals import aval_of
from toile.engine.cached import cached_property
from toile.engine.devices import Device
from toile.engine.program import Program
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import flatten
from toile.inspection.batch_sizes import Batch, example_bytes, extent, largest_batch, resized
from toile.inspection.checkpointing import Checkpoint, checkpoints, pattern_of
from toile.inspection.drafts import Draft, drafts_for, free_memory
from toile.inspection.subjects import device_of_arguments, private_jit
from toile.inspection.tables import aligned, quantity
from toile.platforms.largest_batch import leading_axes
from toile.platforms.memory_plans import ARGUMENT, CONSTANT, GAPS, Live
from toile.staging.donation import taken_over
from toile.staging.flat_functions import argument_labels, name_of
from toile.staging.jit import PjitFunction

SHOWN = 10  # rows of each table
WIDTH = 70  # columns of a line of code
Cells = list[tuple[str, ...]]
Columns = tuple[tuple[str, ...], Cells, tuple[int, ...]]  # titles, cells, left-aligned columns
NOWHERE = {ARGUMENT: "(arguments)", CONSTANT: "(constants)"}


class MemoryRow:
    """The bytes of one module or line at the peak.

    Args:
        name: module path, or line.
        nbytes: total of the row.
        forward: bytes that the forward pass creates.
        backward: bytes that the backward pass creates.
        update: bytes that are created after the backward pass, such as by an optimizer.
    """

    def __init__(self, name: str):
        self.name, self.nbytes = name, 0
        self.forward = self.backward = self.update = 0

    def add(self, b: Live) -> None:
        """Count a buffer."""
        self.nbytes += b.nbytes
        if b.kind not in NOWHERE:
            setattr(self, b.phase, getattr(self, b.phase) + b.nbytes)


class MemoryPlan:
    """The predicted peak memory of a call; sizes are in bytes.

    `total` is the peak: the sum of `arguments`, `results`, `constants` and `temporaries`, minus the
    results that overwrite donated arguments (`in_place`). `buffers` lists what is in memory at the
    peak, the largest first; each buffer has `nbytes`, `shape`, `dtype`, `kind`, `phase`, `module`
    and `line`. `highest` contains the largest amount of memory that temporaries need in the forward
    pass, in the backward pass and in the update. `checkpoints` and `batch` require further
    planning, which is done when they are first read or printed.

    Args:
        call: function with its arguments; `plan` supplies this argument.
    """

    def __init__(self, call: PlannedCall):
        self._call = call
        self.name, self.platform = call.name, call.platform
        memory = self._memory = call.draft.memory
        self.arguments, self.results = memory.arguments, memory.results
        self.constants, self.temporaries = memory.constants, memory.temporaries
        self.in_place, self.donated = memory.in_place, call.donated_bytes
        self.total = memory.total
        self.peak_step, self.steps = memory.peak_step, memory.steps
        self.buffers: list[Live] = memory.live
        self.highest: dict[str, int] = memory.highest
        self.python_steps: list[str] = memory.python_steps

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The modules whose checkpointing would lower the peak, starting with the best."""
        return self._call.checkpoints()

    @cached_property
    def batch(self) -> Batch | None:
        """The largest batch that fits into memory; None if there is no batch axis, or if the memory
        of the device is unknown."""
        return self._call.batch()

    def table(self, by: Literal["module", "line"] = "module") -> list[MemoryRow]:
        """Sum the bytes that are in memory at the peak.

        Args:
            by: "module" for one row per module path, or "line" for one row per line of code.

        Returns:
            The rows, starting with the largest. Arguments and constants have separate rows. The
            rows add up to the total.
        """
        if by not in ("module", "line"):
            raise ValueError(f"table: needed by='module' or 'line', got {by!r}{here()}")
        rows: dict[str, MemoryRow] = {}
        for b in self.buffers:
            found = b.module if by == "module" else b.line
            name = NOWHERE.get(b.kind) or found or (
                "(unused)" if b.made.by == GAPS else f"(no {by})")
            rows.setdefault(name, MemoryRow(name)).add(b)
        return sorted(rows.values(), key=lambda r: -r.nbytes)

    # ---- text
    def __str__(self) -> str:
        parts = [self._head(), "", self._text("largest buffers", *self._buffer_cells())]
        modules = self._row_cells("module")
        if any(r.name and not r.name.startswith("(") for r in self.table("module")):
            parts += ["", self._text("by module", *modules)]
        parts += ["", self._text("by line", *self._row_cells("line"))]
        if self.checkpoints:
            title = "checkpointing (nn.remat or toile.checkpoint) would save"
            parts += ["", self._text(title, *self._checkpoint_cells())]
        return "\n".join([*parts, *(["", *self._batch_lines()] if self.batch else [])])

    __repr__ = __str__

    def _text(self, title: str, head: Sequence[str], cells: Cells, left: Sequence[int]) -> str:
        lines = aligned(head, cells[:SHOWN], left=left).split("\n")
        more = [f"and {len(cells) - SHOWN} more"] if len(cells) > SHOWN else []
        return "\n".join([title, *(f"    {line}" for line in [*lines, *more])])

    def _head(self) -> str:
        passes = ", ".join(f"{amount(self.highest[p], 'B')} in the {_pass(p)}" for p in PHASES
                           if self.highest[p])
        lines = [
            f"{self.name} on {self.platform}: peak {amount(self.total, 'B')} (arguments "
            f"{amount(self.arguments, 'B')}, results {amount(self.results, 'B')}, constants "
            f"{amount(self.constants, 'B')}, temporaries {amount(self.temporaries, 'B')})",
        ]
        if passes:
            lines.append(f"temporaries need the most memory in step {self.peak_step + 1} of "
                         f"{self.steps}; at most {passes}")
        if self.donated and self.in_place:
            lines.append(f"donated: {amount(self.donated, 'B')} of arguments, of which results "
                         f"overwrite {amount(self.in_place, 'B')}")
        elif self.donated:
            lines.append(f"donated: {amount(self.donated, 'B')} of arguments, which the results of "
                         "the next call use; this does not lower the peak")
        if self.python_steps:
            names = ", ".join(dict.fromkeys(self.python_steps))
            lines.append(f"not counted: memory that {quantity(len(self.python_steps), 'step')} in "
                         f"Python may allocate ({names})")
        return "\n".join(lines)

    def _buffer_cells(self) -> Columns:
        alike: dict[tuple[str, ...], list[Live]] = {}
        for b in self.buffers:
            kind = b.kind if b.kind in NOWHERE else f"{b.kind}, {b.phase}"
            module = "/".join(pattern_of(b.module.split("/")))
            alike.setdefault((b.what, kind, b.made.by, module, _cut(b.line)), []).append(b)
        cells: Cells = []
        for key, found in sorted(alike.items(), key=lambda x: -sum(b.nbytes for b in x[1])):
            count = f"× {len(found)}" if len(found) > 1 else ""
            what, kind, by, module, line = key
            module = found[0].module if len(found) == 1 else module
            cells.append((amount(found[0].nbytes, "B"), count, what, kind, by, module, line))
        return ("size", "", "array", "kind", "from", "module", "line"), cells, (1, 2, 3, 4, 5, 6)

    def _row_cells(self, by: Literal["module", "line"]) -> Columns:
        shown = [p for p in PHASES if any(getattr(r, p) for r in self.table(by))]
        cells: Cells = [
            (amount(r.nbytes, "B"), f"{100 * r.nbytes / max(self.total, 1):.1f}%",
             *(amount(getattr(r, p), "B") if getattr(r, p) else "" for p in shown), _cut(r.name))
            for r in self.table(by)
        ]
        return ("total", "share", *shown, by), cells, (2 + len(shown),)

    def _checkpoint_cells(self) -> Columns:
        cells: Cells = [
            (amount(c.saved, "B"), f"{100 * c.share:.1f}%", amount(c.flops, "FLOP"),
             f"+{100 * c.more_work:.1f}%",
             c.modules if c.count == 1 else f"{c.modules} (each of {c.count})")
            for c in self.checkpoints
        ]
        return ("saved", "of peak", "more work", "", "modules"), cells, (4,)

    def _batch_lines(self) -> list[str]:
        b = self.batch
        assert b is not None
        of = ", ".join(b.arguments[:3]) + (" ..." if len(b.arguments) > 3 else "")
        fits = f"a batch of {b.fits} fits" if b.fits else "not even a batch of 1 fits"
        how = "" if b.exact else "at least, "
        return [
            f"{fits} in {amount(b.memory, 'B')} ({how}now {b.now}, axis {b.axis} of {of}); each "
            f"example adds {amount(b.example, 'B')}"
        ]

    # ---- notebooks
    def _repr_html_(self) -> str:
        parts = [paragraph(escaped(self._head()))]
        made = [("largest buffers", self._buffer_cells(), True),
                ("by module", self._row_cells("module"), False),
                ("by line", self._row_cells("line"), False)]
        if self.checkpoints:
            made.append(("what checkpointing would save", self._checkpoint_cells(), True))
        for title, (head, cells, left), is_open in made:
            parts.append(fold(title, table(head, cells, left=left), is_open=is_open))
        if self.batch:
            parts += [paragraph(escaped(line)) for line in self._batch_lines()]
        return box(*parts)


def _pass(phase: str) -> str:
    return {FORWARD: "forward pass", BACKWARD: "backward pass", UPDATE: "update"}[phase]


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[:WIDTH] + " ..."


class PlannedCall:
    """A function with its arguments, and how it is planned again with other arguments."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 options: dict[str, Any]):
        self.f, self.args, self.kwargs = f, args, kwargs
        self.chosen, self.axis, self.memory = options["batch"], options["axis"], options["memory"]
        jitted = self.jitted = private_jit(f, "plan")
        self.name = name_of(jitted.fun)
        statics, self.moving, self.named = jitted._take_statics(args, kwargs)
        self.leaves, self.tree = flatten((self.moving, self.named))
        self.labels = argument_labels(jitted.fun, self.moving, self.named)
        traced = jitted.trace(*args, **kwargs).traced
        self.device: Device | None = device_of_arguments(traced, args, kwargs)
        given = options["platform"]
        self.platform: str = given or ("cpu" if self.device is None else self.device.platform)
        self.drafts = drafts_for(self.platform)
        program: Program = traced.program
        donated = f._donated_leaves(args, kwargs, statics) if isinstance(f, PjitFunction) else []
        avals = [program.invars[i].aval for i in donated]
        served = taken_over(avals, program.out_avals)
        self.donated_bytes = sum(a.nbytes for a, out in zip(avals, served, strict=True)
                                 if out is not None)
        self.donated = [program.hidden + i for i in donated]
        self.draft: Draft = self._drafted(program)

    def _drafted(self, program: Program) -> Draft:
        return self.drafts.draft(program, self.labels, self.donated)

    def checkpoints(self) -> list[Checkpoint]:
        """What checkpointing would save."""
        def planned(program: Program) -> tuple[Any, int]:
            made = self._drafted(program)
            return made.plan, made.memory.total

        given = self.draft.plan
        return checkpoints(given.given, self.draft.memory, planned, given)

    # ---- batches
    def batch(self) -> Batch | None:
        """The largest batch that fits."""
        room = self._room()
        if not room:
            return None
        if self.chosen is not None:
            return self._fitting(self._named_leaves(), room)
        for leaves in self._likely_leaves():
            try:
                return self._fitting(leaves, room)
            except Exception:  # the function cannot be traced with another size: no batch
                continue
        return None

    def _fitting(self, chosen: Sequence[int], room: int) -> Batch | None:
        """The largest batch that fits, if these leaves have the batch axis."""
        now = extent(self.leaves, chosen, self.axis, self.labels) if chosen else 0
        if now < 1:
            return None
        fits, planned = largest_batch(lambda n: self._peak_of(chosen, n), now,
                                      self.draft.memory.total, room)
        return Batch(now, fits, room, self.axis, [self.labels[i] for i in chosen],
                     example_bytes(planned), dict(sorted(planned.items())), fits + 1 in planned)

    def _peak_of(self, chosen: Sequence[int], n: int) -> int:
        args, kwargs = self.tree.unflatten(resized(self.leaves, chosen, self.axis, n))
        full = [given if i in self._static_places() else new
                for i, (given, new) in enumerate(zip(self.args, args, strict=True))]
        named = {**{k: v for k, v in self.kwargs.items() if k not in kwargs}, **kwargs}
        traced = private_jit(self.f, "plan").trace(*full, **named).traced
        return self._drafted(traced.program).memory.total

    def _static_places(self) -> set[int]:
        n = len(self.args)
        return {i % n for i in self.jitted.static_argnums if -n <= i < n}

    def _likely_leaves(self) -> list[list[int]]:
        """Leaves whose first axis may be the batch; the most probable ones first."""
        inputs = self.draft.plan.given.inputs
        hidden = len(inputs) - len(self.leaves)
        places = {v: i - hidden for i, v in enumerate(inputs)}
        found = [[places[v] for v in seeds if places[v] >= 0]
                 for _, seeds, *_ in leading_axes(self.draft.described())]
        return [leaves for leaves in found if leaves]

    def _named_leaves(self) -> list[int]:
        """The leaves of the arguments that the user named."""
        chosen = [self.chosen] if isinstance(self.chosen, (int, str)) else list(self.chosen)
        wanted = {self._position(c) for c in chosen}
        places = [*range(len(self.moving)), *sorted(self.named)]
        counts = [len(flatten(x)[0]) for x in (*self.moving, *(self.named[k] for k in
                                                               sorted(self.named)))]
        starts = np.cumsum([0, *counts])
        return [int(i) for place, start, count in zip(places, starts[:-1], counts, strict=True)
                if place in wanted for i in range(start, start + count)]

    def _position(self, chosen: int | str) -> int | str:
        """Where an argument was passed: its number, or its name."""
        names = argument_labels(self.jitted.fun, [0] * len(self.moving), {})
        if isinstance(chosen, int) and -len(self.moving) <= chosen < len(self.moving):
            return chosen % len(self.moving)
        if chosen in self.named:
            return chosen
        if chosen in names:
            return names.index(str(chosen))
        raise ValueError(
            f"plan: needed `batch` to be numbers or names of arguments, got {chosen!r} for a call "
            f"with {', '.join([*names, *self.named]) or 'no arguments'}{here()}"
        )

    def _room(self) -> int:
        """The bytes that the call may use, including those of arguments that exist already."""
        if self.memory is not None:
            return int(self.memory)
        held = sum(aval_of(x).nbytes for x in self.leaves
                   if isinstance(x, (ConcreteArray, np.ndarray)))
        return free_memory(self.platform, self.device, held)


def plan(
    f: Callable[..., Any], *, batch: int | str | Sequence[int | str] | None = None, axis: int = 0,
    memory: float | None = None, platform: Literal["cpu", "gpu"] | None = None,
) -> Callable[..., MemoryPlan]:
    """Create a function that predicts the peak memory of a call to `f`, without running it.

    The prediction shows what is in memory at the peak, by buffer, by module and by line of code. It
    also shows how much memory you would save by checkpointing each module, and the largest batch
    that fits.

    Args:
        f: function to plan, jitted or not. If `f` is jitted, argument donation is taken into
            account.
        batch: positions or names of the arguments that contain the batch. If `batch` is None, these
            arguments are detected by tracing the first axis of each argument through the
            computation.
        axis: axis of the batch in these arguments; used only if `batch` is given.
        memory: number of bytes that the call may use, from which the largest batch is computed. If
            `memory` is None, the memory that is available on the machine or its GPU is used.
        platform: "cpu" or "gpu". A plan for a GPU can be made on a machine without a GPU, but
            `memory` must then be given to find the largest batch. If `platform` is None, it is the
            platform on which the call would run.

    Returns:
        A function that accepts the arguments of `f` and returns a `MemoryPlan`. A
        `ShapeDtypeStruct` may be passed in place of an array. Print the plan to see its tables.

    Raises:
        ValueError: `platform`, `batch` or `axis` does not fit the call.

    >>> def loss(w, x):
    ...     return jnp.sum(jnp.tanh(x @ w) ** 2)
    >>> w, x = jnp.ones((256, 256)), toile.ShapeDtypeStruct((1024, 256), jnp.float32)
    >>> p = toile.plan(toile.grad(loss), memory=100e6)(w, x)
    >>> p.arguments == 4 * 256 * (256 + 1024) and p.results == 4 * 256 * 256
    True
    >>> p.total > p.arguments + p.results, p.batch.now, p.batch.fits > 1024
    (True, 1024, True)
    """
    if platform not in (None, "cpu", "gpu"):
        raise ValueError(f"plan: needed platform='cpu' or 'gpu', got {platform!r}{here()}")
    options = {"batch": batch, "axis": axis if batch is not None else 0, "memory": memory,
               "platform": platform}

    @functools.wraps(f, updated=())
    def planned(*args: Any, **kwargs: Any) -> MemoryPlan:
        if state.trace is not None:
            raise errors.UnexpectedTracerError(
                "plan: needed a call outside transformations, got one that is being traced"
                f"{here()}"
            )
        return MemoryPlan(PlannedCall(f, args, kwargs, options))

    return planned


__all__ = ["MemoryPlan", "MemoryRow", "plan"]
