"""The native code of a plan: numbered buffers, blocks for results, commands for the runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.compiler.index_tests import ReportIndices, Tested
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.steps import Constant, EagerStep, Moving
from toile.compiler.plan.place import aligned
from toile.engine.avals import Aval
from toile.engine.cached import cached_property
from toile.engine.program import Program
from toile.kernels.contraction import cpu_blas as blas
from toile.platforms.cpu import runner
from toile.platforms.cpu.commands import Description
from toile.platforms.cpu.execution import SMALL, Executable, Image, Located, PythonStep, callback
from toile.platforms.cpu.planner import Plan
from toile.platforms.cpu.tables import Assembly, Command
from toile.targets.llvm import native

# Results of at most SMALL bytes share blocks with others of similar size: a result that is kept
# keeps at most SHARED bytes alive, and a scalar only those of other scalars.
SHARED = 32768
_CLASSES = (64, 256, SMALL)
# Bytes of a plan for each equation, measured in processes that have many.
STEP_BYTES = 16 << 10


class Slots(dict[Any, int]):
    """Buffers by number."""

    def of(self, buffer: Any) -> int:
        """The number of a buffer, assigned when it is first asked for."""
        return self.setdefault(buffer, len(self))


class PlannedExecutable(Executable):
    """An executable that knows the plan it was made from."""

    @cached_property
    def plan_bytes(self) -> int:
        steps = STEP_BYTES * len(self.program.equations)
        return super().plan_bytes + steps + sum(map(len, self.described.kernels))

    def __init__(
        self, program: Program, plan: Plan, offsets: dict[Any, int], arena_bytes: int,
        tests: Tested | None = None,
    ):
        self.plan, self.offsets = plan, offsets
        self.slots = Slots()
        for v in program.inputs:
            self.slots.of(v)
        assert len(self.slots) == len(program.inputs), "a Program's inputs are distinct"
        results = program.outputs if tests is None else program.outputs[:-1]
        blocks, places = shared_blocks([o.aval.nbytes for o in results])
        self.described = Description(self.slots.of)
        commands = self._places_of_results(len(program.inputs), blocks, places)
        commands += self.described.commands(plan.steps)
        self.in_steps = [self._eager(step) for step in self.described.eager]
        self.own_commands = 0  # commands after those of the plan's steps
        if tests is not None:
            offsets, arena_bytes = self._report(program.outputs[-1].aval, offsets, arena_bytes)
            commands.append(("switch", self.slots[plan.outputs[-1].buffer],
                             [[], [("eager", len(self.in_steps) - 1)]]))
            self.own_commands = 1
        texts = list(self.described.kernels)
        addresses = native.functions([*texts, *sorted(plan.also), *runner.missing()])[: len(texts)]
        constants = [(i, b.array) for b, i in self.slots.items() if isinstance(b, Constant)]
        image = Image(
            len(program.inputs), len(self.slots), blocks, places, arena_bytes,
            _in_arena(offsets, self.slots), constants, commands,
            np.array(self.described.words, np.int64), any(blas.PREFIX in t for t in texts),
        )
        super().__init__(program, image, addresses, self.in_steps, tests)

    def _report(
        self, aval: Aval, offsets: dict[Any, int], arena_bytes: int
    ) -> tuple[dict[Any, int], int]:
        """Add a step that reports tests of indices. Their vector, the last output, becomes a
        temporary; returns the offsets and the size of the arena including it."""
        buffer = self.plan.outputs[-1].buffer
        where = aligned(arena_bytes)
        words: Located = (self.slots.of(buffer), 0, aval.shape, np.dtype(aval.dtype), (4,))
        self.in_steps.append((ReportIndices(), (words,), ()))
        return {**offsets, buffer: where}, where + aligned(aval.nbytes)

    def _places_of_results(
        self, inputs: int, blocks: Sequence[int], places: Sequence[tuple[int, int]]
    ) -> list[Command]:
        """Slots for the blocks of results, and commands that point results into shared blocks."""
        for i in range(len(blocks)):
            members = [j for j, (block, _) in enumerate(places) if block == i]
            alone = len(members) == 1
            self.slots.of(self.plan.outputs[members[0]].buffer if alone else ("block", i))
        found: list[Command] = []
        for out, (block, offset) in zip(self.plan.outputs, places, strict=False):
            if out.buffer not in self.slots:
                found.append(("place", inputs + block, [(self.slots.of(out.buffer), offset)]))
        return found

    def table_of(self, steps: Sequence[Any]) -> runner.Table:
        """The commands of a part of the plan's steps."""
        described = Description(self.slots.of)
        commands = described.commands(steps)
        callbacks = [callback(*self._eager(step)) for step in described.eager]
        addresses = native.functions(list(described.kernels))
        return Assembly(addresses, described.words, callbacks).table(commands)

    def pointing(self, starts: Sequence[tuple[Moving, Ref]]) -> runner.Table:
        """Commands that set moving pointers to their start."""
        return Assembly((), ()).table(Description(self.slots.of).starts(starts))

    def _eager(self, step: EagerStep) -> PythonStep:
        ins = tuple([self._located(x) for x in step.ins])
        return step.equation.op, ins, tuple([self._located(x) for x in step.outs])

    def _located(self, x: Operand) -> Located:
        size = x.dtype.itemsize
        return (self.slots.of(x.ref.buffer), x.ref.offset, x.shape, x.dtype,
                tuple(s * size for s in x.strides))


def shared_blocks(sizes: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """The sizes of the blocks for results of these sizes, and (block, offset) of each result."""
    blocks: list[int] = []
    places: list[tuple[int, int]] = []
    open_blocks: dict[int, int] = {}
    for nbytes in sizes:
        kind = next((c for c in _CLASSES if nbytes <= c), None)
        room = -(-nbytes // 64) * 64 or 64
        block = -1 if kind is None else open_blocks.get(kind, -1)
        if block < 0 or blocks[block] + room > SHARED:
            block = len(blocks)
            blocks.append(0)
            if kind is not None:
                open_blocks[kind] = block
        places.append((block, blocks[block]))
        blocks[block] += room if kind is not None else nbytes
    return blocks, places


def _in_arena(offsets: dict[Any, int], slots: dict[Any, int]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(slots[b], offset) for b, offset in offsets.items() if b in slots]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()
