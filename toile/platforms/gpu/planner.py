"""What plans for a GPU consist of.

As on the CPU, small stages that do not depend on each other are joined; launches of the same kernel
in a region become one.
"""

from __future__ import annotations

import functools
from typing import Any

from toile.compiler.ir.loop_nests import Loops, Place
from toile.compiler.ir.operands import Ref
from toile.compiler.plan import lower
from toile.kernels.convolution import gpu_tensor_cores as tensor_convolutions
from toile.platforms.gpu.steps import CallStep, MadePlan
from toile.targets.cuda.launches import Call, Launch


class Plan(MadePlan, lower.Plan):
    """Steps of CUDA kernels and library calls; implements `launches.Planner`."""

    recalled = False
    layout: tuple[Any, ...]  # offsets of its temporaries, and their bytes

    def __init__(self, *args: Any, **where: Any):
        self.in_place = set()
        self.started: dict[Any, Any] = {}  # collectives that finish later, by their results
        super().__init__(*args, **where)

    def note_in_place(self, x: Loops, launch: Launch) -> None:
        """Record pairs of buffers (read, written) that a launch touches only at equal places: it
        may write the second in the memory of the first."""
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
        """Whether the Program can run without cuBLAS and cuDNN."""
        return tensor_convolutions.without_libraries(self.program)

    def place(self, p: Place) -> Ref:
        """The address of a memory operand of a loop nest."""
        base: Any = p.base
        ref = base if isinstance(base, Ref) else self.ref(base)
        return ref.at(p.offset * p.dtype.itemsize)

    def call(self, call: Call) -> None:
        """Add a library call after the existing stages."""
        self.steps.append(CallStep(call, self.origin))
        self.staged.setdefault(self.origin, []).append(call)
