"""`explain`: what a call to a compiled function runs, kernel by kernel, and why.

The explanation lists the kernels in order. For each kernel, it shows the lines of the user's code
and the modules that the kernel comes from, which operations were fused, why fusion stopped, and how
many floating-point operations and bytes the kernel needs. The memory plan and the compile time
follow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toile.compiler.ir.steps import Region
from toile.displays.markup import amount, box, escaped, fold, pale, paragraph, table
from toile.inspection.kernels import Kernel, all_kernels, kernels_of
from toile.inspection.memory import Memory, memory_of
from toile.inspection.subjects import Subject, inspection_of, subject, texts_of
from toile.inspection.tables import counted, duration, quantity
from toile.targets.llvm import native

SHOWN_LINES = 8  # lines of the user's source for one kernel
SHOWN_BUFFERS = 5
WIDTH = 90  # columns of a line of source
UNFOLDED = 20  # kernels that a notebook shows at once


@dataclass
class Compilation:
    """The number of kernels that were compiled or found in a cache, and the time that this took.

    Args:
        texts: number of distinct kernels.
        compiled: number of kernels that were compiled for this explanation.
        read: number of kernels that were read from disk for this explanation.
        kept: number of kernels that were already in memory.
        kernel_seconds: time to compile the kernels counted in `compiled`, summed over threads.
        trace_seconds: time to trace the function.
        compile_seconds: time to run the compiler's passes, create the plan and compile the kernels.
    """

    texts: int  # different kernels
    compiled: int  # compiled now
    read: int  # read from disk now
    kept: int  # already in memory
    kernel_seconds: float  # compile time of the kernels compiled now, summed over threads
    trace_seconds: float
    compile_seconds: float  # passes, plan, kernels


class Explanation:
    """A description of what a compiled call runs, shown as text or, in notebooks, as HTML.

    `kernels` lists the kernels in order, `memory` describes the memory plan, and `compilation`
    contains the compile times.

    Args:
        of: compiled function and its plan; `explain` supplies this argument.
    """

    def __init__(self, of: Subject):
        plan = of.plan
        self.name = of.name
        self.program = plan.program
        self.kernels: list[Kernel] = kernels_of(plan)
        self.steps = len(plan.steps)
        self.device = of.device  # None: the CPU
        self.threads = getattr(plan, "threads", 1)
        every = [s for s in plan.all_steps() if isinstance(s, Region)]
        self.regions = len(every)
        self.launches = sum(len(s.kernels) for s in every)
        self.chunks = sum(k.chunks for k in all_kernels(self.kernels))
        self.views = len(plan.fused.views)
        self.memory: Memory = memory_of(plan.program, of.executable)
        self.compilation = _compilation(of)
        self.partition = of.partition  # if the kernels are those of one device of many
        self.graph = ""  # how calls are issued, if there is a choice
        if of.device is not None:
            self._of_platform(of)

    def _of_platform(self, of: Subject) -> None:
        assert of.device is not None
        platform = inspection_of(of.device)
        platform.note_precision(all_kernels(self.kernels))
        self.launches = platform.launches_of(of.executable)
        self.graph = platform.issued(of.executable)

    # ---- totals
    @property
    def flops(self) -> int:
        """The number of floating-point operations in all kernels."""
        return sum(k.flops for k in self.kernels)

    @property
    def bytes(self) -> int:
        """The number of bytes that all kernels read and write."""
        return sum(k.bytes for k in self.kernels)

    @property
    def python_steps(self) -> list[Kernel]:
        """The steps that run in Python, including those in loop bodies."""
        return [k for k in all_kernels(self.kernels) if k.python]

    # ---- text
    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield self._head()
        yield from self._partition_lines()
        for k in self.kernels:
            yield ""
            yield from _kernel_lines(k, "")
        yield ""
        yield from self._memory_lines()
        yield self._compiled_line()

    def _head(self) -> str:
        """Return the first line: the number of kernels, how they run and what they cost."""
        inner = len(list(all_kernels(self.kernels)))
        more = f" ({inner} including those in loops)" if inner > len(self.kernels) else ""
        launches = quantity(self.launches, "launch")
        python = quantity(len(self.python_steps), "step")
        if self.device is None:
            name, where = self.name, f"{python} in Python"
            how = (f" in {quantity(self.regions, 'region')}, {quantity(self.chunks, 'chunk')} for "
                   f"{quantity(self.threads, 'thread')}")
        else:
            name, where = f"{self.name} on {self.device}", f"{python} on the host"
            calls = sum(len(k.calls) for k in all_kernels(self.kernels))
            how = f" and {quantity(calls, 'library call')}, {self.graph}"
        return (
            f"{name}: {quantity(len(self.kernels), 'kernel')}{more} in "
            f"{quantity(self.steps, 'step')}, {launches}{how}; {where}; "
            f"{quantity(self.views, 'operation')} cost nothing (views); "
            f"{amount(self.flops, 'FLOP')}, {amount(self.bytes, 'B')} moved"
        )

    def _partition_lines(self) -> list[str]:
        return [] if self.partition is None else self.partition.describe()

    def _memory_lines(self) -> Iterator[str]:
        m = self.memory
        yield (
            f"memory: arena {amount(m.arena, 'B')} for {amount(m.temporaries, 'B')} of temporaries,"
            f" peak {amount(m.peak, 'B')} at step {m.peak_step + 1}; inputs "
            f"{amount(m.inputs, 'B')}, outputs {amount(m.outputs, 'B')}, constants "
            f"{amount(m.constants, 'B')}"
        )
        if self.device is not None:
            yield f"    planned peak of a call: {amount(m.total, 'B')}"
        for b in m.buffers[:SHOWN_BUFFERS]:
            yield (f"    {amount(b.nbytes, 'B'):>9}  {b.name}, in use from step {b.first + 1} to "
                   f"{b.last + 1}")

    def _compiled_line(self) -> str:
        c = self.compilation
        return (
            f"code: {quantity(c.texts, 'different kernel')}: {c.compiled} compiled now "
            f"({duration(c.kernel_seconds)}), {c.read} read from disk, {c.kept} in memory before; "
            f"traced in {duration(c.trace_seconds)}, compiled in {duration(c.compile_seconds)}"
        )

    # ---- notebooks
    def _repr_html_(self) -> str:
        rows = [
            (
                str(k.number),
                k.label,
                counted(k.operations),
                "\n".join(m for m in k.modules if m),
                "\n".join(_source_lines(k)),
                f"{', '.join(k.reads)} → {', '.join(k.writes)}",
                amount(k.flops, "FLOP"),
                amount(k.bytes, "B"),
                "\n".join([*([k.chain] if k.chain else ()), *k.borders]),
            )
            for k in all_kernels(self.kernels)
        ]
        head = ("", "kernel", "operations", "modules", "lines", "shapes", "work", "moved",
                "why it ends")
        made = table(head, rows, left=(1, 2, 3, 4, 5, 8), what="kernel")
        memory = "\n".join(self._memory_lines())
        return box(
            paragraph(escaped(self._head())),
            *(paragraph(escaped(line)) for line in self._partition_lines()),
            fold("kernels", made, is_open=len(rows) <= UNFOLDED),
            fold("memory", pale(memory)),
            paragraph(pale(self._compiled_line())),
        )


def _compilation(of: Subject) -> Compilation:
    texts: list[Any]
    if of.device is not None:
        platform = inspection_of(of.device)
        texts = platform.kernels_of(of.executable)
        seconds = [platform.compile_seconds(k, of.device) for k in texts if k in of.fresh]
    else:
        texts = texts_of(of.plan)
        seconds = [native.compile_seconds(t) for t in texts if t in of.fresh]
    took = [s for s in seconds if s is not None]
    return Compilation(
        len(texts), len(took), len(seconds) - len(took), len(texts) - len(seconds), sum(took),
        of.trace_seconds, of.compile_seconds,
    )


def _title(k: Kernel) -> str:
    """Return the title of a kernel: its number, kind, steps and chunks."""
    where = ", ".join(str(s + 1) for s in k.steps)
    trips = f", {_times(k)}" if k.bodies or k.trips else ""
    pieces = "block" if k.launches and not hasattr(k.launches[0], "grain") else "chunk"
    chunks = f", {quantity(k.chunks, pieces)}" if k.chunks else ""
    step = "step" if len(k.steps) == 1 else "steps"
    return f"[{k.number}] {k.label}  ({step} {where}{chunks}{trips})"


def _kernel_lines(k: Kernel, indent: str) -> Iterator[str]:
    yield indent + _title(k)
    inside = indent + "    "
    if k.equations:
        yield f"{inside}{counted(k.operations)}"
        yield (f"{inside}reads {_listed(k.reads)}, writes {_listed(k.writes)}; "
               f"{amount(k.flops, 'FLOP')}, {amount(k.bytes, 'B')}")
    if k.precision:
        yield f"{inside}numbers: {k.precision}"
    modules = [m for m in k.modules if m]
    if modules:
        yield f"{inside}in {', '.join(modules)}"
    for line in _source_lines(k):
        yield inside + line
    if k.chain:
        yield f"{inside}& {k.chain}"
    for reason in k.borders:
        yield f"{inside}| {reason}"
    for i, body in enumerate(k.bodies):
        if len(k.bodies) > 1:
            yield f"{inside}{_part(k, i)}:"
        for inner in body:
            yield from _kernel_lines(inner, inside)


def _times(k: Kernel) -> str:
    if k.kind == "cond":
        return "one of its branches"
    return f"{k.trips} times" if k.trips else "while its condition holds"


def _part(k: Kernel, i: int) -> str:
    return ("condition", "body")[i] if k.kind == "while" else f"branch {i}"


def _listed(names: Sequence[str]) -> str:
    return counted(names) or "nothing"


def _source_lines(k: Kernel) -> list[str]:
    """Return the lines of the user's code, each with the operations that come from it."""
    lines = []
    for (file, line), equations in k.sources.items():
        source = equations[0].source
        text = source.text() if source else ""
        names = counted(e.op.name for e in equations)
        made = f"  ({names})" if len(k.sources) > 1 else ""
        shown = text if len(text) <= WIDTH else text[:WIDTH] + " ..."
        lines.append(f"{os.path.basename(file)}:{line}: {shown}{made}")
    if len(lines) > SHOWN_LINES:
        lines = [*lines[:SHOWN_LINES], f"and {len(lines) - SHOWN_LINES} more lines"]
    return lines


def explain(f: Callable[..., Any]) -> Callable[..., Explanation]:
    """Create a function that shows which kernels a call to `f` would run, without running them.

    The explanation lists the compiled kernels, the source lines that they come from, the operations
    that were fused, and the numbers of floating-point operations and of bytes read and written. It
    also describes the memory plan and the compile time.

    Args:
        f: function to explain, jitted or not.

    Returns:
        A function that accepts the arguments of `f` and returns an `Explanation`. Print the
        explanation to see its text.

    >>> e = toile.explain(toile.nn.softmax)(jnp.ones((4, 8)))
    >>> [(k.kind, k.operations) for k in e.kernels]
    [('row', ['reduce_max', 'max', 'sub', 'exp', 'reduce_sum', 'div'])]
    """
    @functools.wraps(f, updated=())
    def explained(*args: Any, **kwargs: Any) -> Explanation:
        return Explanation(subject(f, "explain", args, kwargs, divides=True))

    return explained


__all__ = ["Compilation", "Explanation", "explain"]
