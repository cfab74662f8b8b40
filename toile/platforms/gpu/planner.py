"""What plans for a GPU consist of.

As on the CPU, small stages that do not depend on each other are joined; launches of the same kernel
in a region become one, and so do small launches of several kernels (see `issuer.launches_of`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from toile.compiler.ir.loop_nests import LoopNest, Loops, Place, Reduce, Total
from toile.compiler.ir.operands import Ref
from toile.compiler.plan import lower
from toile.engine.program import Var
from toile.kernels.convolution import gpu_tensor_cores as tensor_convolutions
from toile.kernels.nest.gpu_rows import Pass, passes
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
        may write the second in the memory of the first.

        The thread that stores an element is the only one that reads it. A kernel that sums must not
        read it again in a later pass."""
        used = {a.buffer for a in launch.args if isinstance(a, Ref)}
        found = passes(x.nest) if x.nest.kind in ("row", "partial") else ()
        loads: dict[Any, list[int]] = {}
        for i, p in enumerate(x.loads):
            loads.setdefault(self.place(p).buffer, []).append(i)
        for s, p in enumerate(x.stores):
            written = self.place(p).buffer
            if written in used and _is_full(x.nest, s):
                later = {i for q in _after(found, s) for i in q.loads}
                for read in used.intersection(loads):
                    if all(i not in later and self._meets(x, i, p) for i in loads[read]):
                        self.in_place.add((launch, read, written))

    def _meets(self, x: Loops, i: int, p: Place) -> bool:
        """Whether a load has the same place as a store at every position."""
        q = x.loads[i]
        return not x.nest.loads[i].picked and (
            self.place(q).offset, q.strides, q.dtype.itemsize) == (
            self.place(p).offset, p.strides, p.dtype.itemsize)

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


def _is_full(nest: LoopNest, s: int) -> bool:
    """Whether a store writes an element for each position."""
    n, access = nest.stores[s]
    return nest.kind == "map" or access.varies and not isinstance(nest.nodes[n], (Reduce, Total))


def _after(found: Sequence[Pass], s: int) -> Sequence[Pass]:
    """The passes over a row after the one with a store."""
    return found[next((k for k, p in enumerate(found) if s in p.stores), 0) + 1:]
