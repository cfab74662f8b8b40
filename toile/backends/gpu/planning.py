"""The plan of a Program for a GPU: loop nests become launches over blocks, products library calls.

What the base plan needs to know of this backend. Stages of small launches that do not depend on
each other are joined as on the CPU: launches of one text in a region become one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toile.backends.gpu import (
    attending,
    copies,
    epilogues,
    lowerings,
    nests,
    tensor_convolutions,
)
from toile.backends.gpu.launches import Call, Launch
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

    `in_place` has launches with two buffers (read, written): such a launch reads an element of the
    one only where it writes that of the other."""

    choose = staticmethod(attending.choose)

    # A row is one block's work unless there are too few of them to fill the device.
    limits = Limits(long_row=1 << 16, few_rows=128, total_row=1 << 13, more_moved=1 / 64)

    recalled = False  # whether it came from disk, without its equations

    def __init__(self, program: Program, *where: Any):
        self.in_place: set[tuple[Launch, Any, Any]] = set()
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
        before = len(self.steps)
        nests.plan_nest(x, self.place, self)
        if x.nest.kind == "map":
            for step in self.steps[before:]:
                for launch in step.launches:
                    self._note_in_place(x, launch)

    def _note_in_place(self, x: Loops, launch: Launch) -> None:
        places: dict[Any, set[Any]] = {}
        for p in x.loads:
            places.setdefault(self.place(p).buffer, set()).add((self.place(p), p.strides))
        for p in x.stores:
            ref = self.place(p)
            for buffer, found in places.items():
                if all(r.offset == ref.offset and s == p.strides for r, s in found):
                    self.in_place.add((launch, buffer, ref.buffer))

    @functools.cached_property
    def without_libraries(self) -> bool:
        """Whether the Program can do without cuBLAS and cuDNN."""
        return tensor_convolutions.without_libraries(self.program)

    def may_overwrite(self) -> Callable[[Any, Any], bool]:
        """Whether a result may lie where an input lies, as a function of their buffers.

        It may where nothing reads the input after the first part of the result is written."""
        last: dict[Any, int] = {}
        first: dict[Any, int] = {}
        for i, s in enumerate(self.steps):
            last.update(dict.fromkeys(s.reads, i))
            for b in map(plans.whole_buffer, s.writes):
                first.setdefault(b, i)
        returned = {r.buffer for r in self.outputs}
        touching: dict[int, dict[Any, list[Any]]] = {}

        def launches(i: int) -> dict[Any, list[Any]]:
            """Which launches of a step have to do with a buffer."""
            if i not in touching:
                found = touching[i] = {}
                for x in self.steps[i].launches:
                    for b in {a.buffer for a in x.args if isinstance(a, Ref)}:
                        found.setdefault(b, []).append(x)
            return touching[i]

        def may(read: Any, written: Any) -> bool:
            at, until = first.get(written, -1), last.get(read, -1)
            if at < 0 or until > at or read in returned:
                return False
            if until < at:
                return True
            if not isinstance(self.steps[at], plans.Region):
                return False
            readers, writers = (launches(at).get(b, []) for b in (read, written))
            if len(readers) != 1 or len(writers) != 1 or readers[0] is not writers[0]:
                return False
            return (readers[0], read, written) in self.in_place

        return may

    def place(self, p: Place) -> Ref:
        """Where a memory operand of a loop nest begins."""
        base: Any = p.base
        ref = base if isinstance(base, Ref) else self.ref(base)
        return ref.at(p.offset * p.dtype.itemsize)

    def call(self, call: Call) -> None:
        """Add a library call after the stages there are."""
        self.steps.append(CallStep(call, self.origin))
