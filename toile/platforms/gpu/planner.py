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
from toile.engine.program import Var
from toile.kernels.convolution import gpu_tensor_cores as tensor_convolutions
from toile.platforms.gpu.steps import COPY, CallStep, MadePlan
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
        for p, access in zip(x.loads, x.nest.loads, strict=True):
            strides = None if access.picked else p.strides  # read at other places
            ref = self.place(p)
            places.setdefault(ref.buffer, set()).add((ref, strides, p.dtype.itemsize))
        for p in x.stores:
            ref = self.place(p)
            wanted = ref.offset, p.strides, p.dtype.itemsize
            for buffer, found in places.items():
                if all((r.offset, s, size) == wanted for r, s, size in found):
                    self.in_place.add((launch, buffer, ref.buffer))

    def copy_outputs(self) -> None:
        """Copy the results that are not computed in their output buffers. An argument that is
        returned as it is may stay where it is, if it is donated."""
        super().copy_outputs()
        found = [x for x in self.staged.get(None, ()) if isinstance(x, Launch) and x.note == COPY]
        by_target = {a.buffer: x for x in found for a in x.args if isinstance(a, Ref)}
        for i, o in enumerate(self.program.outputs):
            launch = by_target.get(self.outputs[i].buffer)
            if launch is None or i in self.bound or o.__class__ is not Var:
                continue
            view = self.fused.view(o)
            if view.base in self.program.inputs and lower.is_whole(view):
                self.in_place.add((launch, self.ref(view.base).buffer, self.outputs[i].buffer))
        self._note_updates()

    def _note_updates(self) -> None:
        """Record the copies of arguments that are updated: they do nothing if the argument is
        donated and the result takes its place."""
        inputs = set(self.program.inputs)
        for origin, made in self.staged.items():
            for member in [] if origin is None else origin.members:
                e = member.equation
                if not (e.op.updates and e.ins[0] in inputs):
                    continue
                pair = {self.ref(e.ins[0]).buffer, self.ref(e.outs[0]).buffer}
                for x in made:
                    if isinstance(x, Launch) and x.note == COPY and pair == {
                            a.buffer for a in x.args if isinstance(a, Ref)}:
                        self.in_place.add((x, self.ref(e.ins[0]).buffer,
                                           self.ref(e.outs[0]).buffer))

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
