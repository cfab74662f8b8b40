"""The plan verifier for the CPU: it reads the same table of commands as the runner.

Pointers are found through the slots, words and offsets of the table, so that the code that numbers
buffers and lays out arguments is checked too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import EagerStep, ScanStep, SwitchStep, WhileStep
from toile.compiler.verify.commands import Access, Key, Loop, Place, Run, Switch, While, Work, Works
from toile.compiler.verify.contents import Address, Content, PlanError
from toile.compiler.verify.verifier import Verifier
from toile.platforms.cpu.chains import Chain
from toile.platforms.cpu.planner import Region


def verify(executable: Any) -> None:
    """Raise `PlanError` unless an `assembly.PlannedExecutable` does what it should."""
    image, plan = executable.image, executable.plan
    pointers: dict[Key, Address] = {}
    spaces: dict[Any, int] = {"the arena": image.arena_bytes}
    for i, v in enumerate(plan.program.inputs):
        pointers[i] = Address(f"input {i}", 0)
        spaces[f"input {i}"] = v.aval.nbytes
    for i, nbytes in enumerate(image.blocks):
        pointers[image.inputs + i] = Address(f"block {i} of results", 0)
        spaces[f"block {i} of results"] = nbytes
    for slot, offset in zip(*image.in_arena, strict=True):
        pointers[int(slot)] = Address("the arena", int(offset))
    walk = _CpuVerifier(pointers, spaces)
    walk.slots = executable.slots
    for slot, array in image.constants:
        pointers[slot] = Address(f"constant {slot}", 0)
        walk.write(pointers[slot], array.nbytes, Content.constant(array))
    reader = _Reader(executable)
    commands = iter(image.commands[: len(image.commands) - executable.own_commands])
    walk.run(plan, list(reader.places(commands, _count_of_places(executable)))
             + reader.listed(plan, commands))


def _count_of_places(executable: Any) -> int:
    """How many commands point at results in shared blocks."""
    alone = [sum(b == block for b, _ in executable.image.places) == 1
             for block, _ in executable.image.places]
    return alone.count(False)


class _CpuVerifier(Verifier):
    slots: dict[Any, int]

    def key_of(self, buffer: Any) -> Key:
        return self.slots[buffer]


class _Reader:
    """Reads commands together with the steps that they were made from."""

    def __init__(self, executable: Any):
        self.executable = executable
        self.words = executable.image.words.tolist()
        self.texts = list(executable.described.kernels)

    def places(self, commands: Iterator[Any], count: int) -> Iterator[Place]:
        """The next `count` commands, which set pointers."""
        for _ in range(count):
            name, slot, places = self._next(commands, "place")
            yield Place(slot, places)

    def _next(self, commands: Iterator[Any], name: str) -> Any:
        found = next(commands, ("nothing",))
        if found[0] != name:
            raise PlanError(f"the table has {found[0]} where the plan has {name}")
        return found

    def listed(self, plan: Any, given: Iterator[Any] | Sequence[Any]) -> list[Any]:
        """The commands of a plan's steps."""
        commands = iter(given)
        works = Works(plan)
        found: list[Any] = []
        for step in plan.steps:
            match step:
                case Region():
                    found.append(self._region(works, step, self._next(commands, "region")))
                case EagerStep():
                    found.append(self._eager(works, step, self._next(commands, "eager")))
                case ScanStep():
                    found += self.places(commands, len(step.starts))
                    _, trips, body, slices, swaps = self._next(commands, "loop")
                    found.append(Loop(step, trips, self.listed(step.body, body), slices, swaps))
                case WhileStep():
                    found += self.places(commands, len(step.starts))
                    _, condition, slot, body, swaps = self._next(commands, "while")
                    found.append(While(step, self.listed(step.condition, condition), slot,
                                       self.listed(step.body, body), swaps))
                case SwitchStep():
                    found += self.places(commands, len(step.starts))
                    _, slot, bodies = self._next(commands, "switch")
                    found.append(Switch(step, slot, [
                        self.listed(p, b) for p, b in zip(step.children, bodies, strict=True)]))
        if next(commands, None) is not None:
            raise PlanError("the table has more commands than the plan has steps")
        return found

    def _region(self, works: Works, step: Region, command: Any) -> Run:
        _, kernels, _ = command
        units = []
        for x, kernel in zip(step.launches, kernels, strict=True):
            if isinstance(x, Chain):
                links, _, _, slots = kernel
                keys = [slot if slot >= 0 else None for slot, _, _ in slots]
                units.append([self._work(works, link, made, keys)
                              for link, (made, _) in zip(x.links, links, strict=True)])
            else:
                units.append([self._work(works, x, kernel, None)])
        return Run(step, units)

    def _work(self, works: Works, x: Any, kernel: Any, keys: Sequence[Any] | None) -> Work:
        """A launch, with the slots and offsets that its words in the table have."""
        number, at, _, _ = kernel
        if self.texts[number] != x.text:
            raise PlanError(f"the table calls another kernel than {x.note}")
        accesses = []
        for a in x.args:
            if isinstance(a, Ref):
                slot, offset = self.words[at], self.words[at + 1]
                accesses.append(Access(a.buffer, slot if keys is None else keys[slot], offset))
                at += 2
            elif self.words[at] != a:
                raise PlanError(f"the table has {self.words[at]} where {x.note} has {a}")
            else:
                at += 1
        return works.of_group(f"{x.note} ({_names(x.origin)})", x.origin, x, accesses)

    def _eager(self, works: Works, step: EagerStep, command: Any) -> Run:
        _, number = command
        _, ins, outs = self.executable.in_steps[number]
        accesses = [Access(x.ref.buffer, slot, offset) for x, (slot, offset, *_) in zip(
            [*step.ins, *step.outs], [*ins, *outs], strict=True) if x.size]
        work = works.of_equation(step.equation.op.name, step.equation, accesses,
                                 [x.ref.buffer for x in step.outs])
        return Run(step, [[work]])


def _names(group: Any) -> str:
    if group is None:
        return "a copy of a result"
    return " ".join(m.equation.op.name for m in group.members[:6])


