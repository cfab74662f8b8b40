"""The commands of a plan as plain data: `Description` numbers the objects they refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import EagerStep, Moving, ScanStep, SwitchStep, WhileStep
from toile.platforms.cpu.chains import Chain
from toile.platforms.cpu.planner import Region
from toile.platforms.cpu.tables import Command, Kernel, Linked
from toile.targets.llvm.launches import Launch


class Description:
    """The objects that commands refer to by number; `slot` numbers the buffers."""

    def __init__(self, slot: Callable[[Any], int]):
        self.slot = slot
        self.kernels: dict[str, int] = {}  # by text
        self.words: list[int] = []
        self.eager: list[EagerStep] = []

    def commands(self, steps: Sequence[Any]) -> list[Command]:
        """The commands of some steps."""
        found: list[Command] = []
        for step in steps:
            match step:
                case Region():
                    found.append(("region", [self._launched(x) for x in step.launches],
                                  step.parallel))
                case EagerStep():
                    found.append(("eager", len(self.eager)))
                    self.eager.append(step)
                case ScanStep():
                    found += self.starts(step.starts)
                    slices = [(self.slot(m), self.slot(r.buffer), r.offset, stride)
                              for m, r, stride in step.slices]
                    found.append(("loop", step.trips, self.commands(step.body.steps), slices,
                                  self._pairs(step.swaps)))
                case WhileStep():
                    found += self.starts(step.starts)
                    found.append(("while", self.commands(step.condition.steps),
                                  self.slot(step.predicate.buffer),
                                  self.commands(step.body.steps), self._pairs(step.swaps)))
                case SwitchStep():
                    found += self.starts(step.starts)
                    bodies = [self.commands(b.steps) for b in step.children]
                    found.append(("switch", self.slot(step.index), bodies))
        return found

    def starts(self, starts: Sequence[tuple[Moving, Ref]]) -> list[Command]:
        """Commands that set moving pointers to their start."""
        return [("place", self.slot(ref.buffer), [(self.slot(moving), ref.offset)])
                for moving, ref in starts]

    def _pairs(self, swaps: Sequence[tuple[Moving, Moving]]) -> list[tuple[int, int]]:
        return [(self.slot(a), self.slot(b)) for a, b in swaps]

    def _launched(self, x: Launch | Chain) -> Kernel | Linked:
        if isinstance(x, Launch):
            return self._kernel(x, self.slot)
        buffers: dict[Any, int] = {}  # links number the slots of the chain
        links = [(self._kernel(link, lambda b: buffers.setdefault(b, len(buffers))), n)
                 for link, n in zip(x.links, x.units, strict=True)]
        rooms = {room.buffer: (-1, room.start, room.nbytes) for room in x.rooms}
        slots = [rooms[b] if b in rooms else (self.slot(b), 0, 0) for b in buffers]
        return links, x.extent, x.grain, slots

    def _kernel(self, x: Launch, slot: Callable[[Any], int]) -> Kernel:
        kernel = self.kernels.setdefault(x.text, len(self.kernels))
        start = len(self.words)
        for a in x.args:
            if isinstance(a, Ref):
                self.words += (slot(a.buffer), a.offset)
            else:
                self.words.append(a)
        return kernel, start, x.extent, x.grain
