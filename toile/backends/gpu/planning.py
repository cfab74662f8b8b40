"""The plan of a Program for a GPU: loop nests become launches over blocks, products library calls.

What the base plan needs to know of this backend. Stages of small launches that do not depend on
each other are joined as on the CPU: launches of one text in a region become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toile.backends.gpu import attending, copies, epilogues, lowerings, nests
from toile.backends.gpu.launches import Call
from toile.compiler import plans
from toile.compiler.groups import Limits
from toile.compiler.loops import Loops, Place
from toile.compiler.operands import Operand, Ref
from toile.engine.program import Equation, Program


class CallStep:
    """A library call between the regions."""

    __slots__ = ("call", "reads", "writes", "origin")

    def __init__(self, call: Call, origin: Any):
        self.call, self.origin = call, origin
        self.reads: set[Any] = set(call.reads)
        self.writes: set[Any] = set(call.writes)


class Plan(plans.Plan):
    """Steps of CUDA kernels and library calls; implements `launches.Planner`.

    `in_place` has pairs of buffers (read, written) of kernels that read an element of the one only
    where they write that of the other."""

    choose = staticmethod(attending.choose)

    # A row is one block's work unless there are too few of them to fill the device.
    limits = Limits(long_row=1 << 16, few_rows=128, total_row=1 << 13, more_moved=1 / 64)

    recalled = False  # whether it came from disk, without its equations

    def __init__(self, program: Program, *where: Any):
        self.in_place: set[tuple[Any, Any]] = set()
        self.given = program  # before what the plan itself changes
        self.begun: dict[Any, Any] = {}  # steps of collectives that end later, by their results
        super().__init__(epilogues.absorb(program), *where)
        self.around = None  # only asked while planning: a body that has its loop is a cycle

    def inner(
        self, program: Program, inputs: Sequence[Ref], outputs: Sequence[Ref],
        fixed: Iterable[Any] | None = None,
    ) -> Plan:
        if fixed is None:
            return Plan(program, inputs, outputs)
        return Plan(program, inputs, outputs, self, fixed)

    def can_fuse(self, e: Equation) -> bool:
        return lowerings.can_fuse(e)

    def lowering_of(self, e: Equation) -> Callable[..., bool] | None:
        return lowerings.lowering_of(e)

    def copy(self, target: Operand, source: Operand) -> None:
        copies.copy(target, source, self)

    def loops(self, x: Loops) -> None:
        if x.nest.kind == "map":
            self._note_in_place(x)
        nests.plan_nest(x, self.place, self)

    def _note_in_place(self, x: Loops) -> None:
        places: dict[Any, set[Any]] = {}
        for p in x.loads:
            places.setdefault(self.place(p).buffer, set()).add((self.place(p), p.strides))
        for p in x.stores:
            ref = self.place(p)
            for buffer, found in places.items():
                if all(r.offset == ref.offset and s == p.strides for r, s in found):
                    self.in_place.add((buffer, ref.buffer))

    def may_overwrite(self, read: Any, written: Any) -> bool:
        """Whether a result may lie where an input lies: nothing reads that after it is written."""
        last = max((i for i, s in enumerate(self.steps) if read in s.reads), default=-1)
        first = min((i for i, s in enumerate(self.steps) if written in s.writes), default=-1)
        if first < 0 or last > first or read in {r.buffer for r in self.outputs}:
            return False
        if last < first:
            return True
        step = self.steps[first]
        if not isinstance(step, plans.Region):
            return False
        readers = [x for x in step.launches if _touches(x, read)]
        writers = [x for x in step.launches if _touches(x, written)]
        one = len(readers) == len(writers) == 1 and readers[0] is writers[0]
        return one and (read, written) in self.in_place

    def place(self, p: Place) -> Ref:
        """Where a memory operand of a loop nest begins."""
        base: Any = p.base
        ref = base if isinstance(base, Ref) else self.ref(base)
        return ref.at(p.offset * p.dtype.itemsize)

    def call(self, call: Call) -> None:
        """Add a library call after the stages there are."""
        self.steps.append(CallStep(call, self.origin))


def _touches(launch: Any, buffer: Any) -> bool:
    return any(isinstance(a, Ref) and a.buffer is buffer for a in launch.args)
