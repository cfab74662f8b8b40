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
from toile.backends.gpu.steps import CallStep, MadePlan
from toile.compiler import plans
from toile.compiler.groups import Limits
from toile.compiler.loops import Loops, Place
from toile.compiler.operands import Operand, Ref
from toile.engine.program import Equation, Program


class Plan(MadePlan, plans.Plan):
    """Steps of CUDA kernels and library calls; implements `launches.Planner`."""

    choose = staticmethod(attending.choose)

    # A row is one block's work unless there are too few of them to fill the device.
    limits = Limits(long_row=1 << 16, few_rows=128, total_row=1 << 13, more_moved=1 / 64)

    recalled = False

    def __init__(self, program: Program, *where: Any):
        self.in_place = set()
        self.given = program
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

    def place(self, p: Place) -> Ref:
        """Where a memory operand of a loop nest begins."""
        base: Any = p.base
        ref = base if isinstance(base, Ref) else self.ref(base)
        return ref.at(p.offset * p.dtype.itemsize)

    def call(self, call: Call) -> None:
        """Add a library call after the stages there are."""
        self.steps.append(CallStep(call, self.origin))
        self.staged.setdefault(self.origin, []).append(call)
