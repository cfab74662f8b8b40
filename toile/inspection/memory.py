"""A description of the memory plan: the arena, its contents at each step, and its peak use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toile.compiler.ir.operands import VariableBuffer
from toile.compiler.ir.steps import Constant
from toile.compiler.plan.lower import Plan
from toile.compiler.plan.place import arena_layout
from toile.engine.program import Program


@dataclass
class Buffer:
    """A temporary array, and the first and the last step that use it."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass
class Memory:
    """The bytes that a call needs for its arguments, results, constants and temporaries."""

    inputs: int
    outputs: int
    constants: int
    arena: int
    temporaries: int  # size of the arena if no memory were reused
    peak: int  # largest total size of temporaries in use at the same time
    peak_step: int
    buffers: list[Buffer]  # largest first

    @property
    def total(self) -> int:
        """The total memory that a call needs on a GPU."""
        return self.inputs + self.outputs + self.constants + self.arena


def memory_of(program: Program, executable: Any) -> Memory:
    """Describe the memory plan of a compiled Program."""
    buffers = _buffers(executable.plan)
    steps = len(executable.plan.steps)
    live = [sum(b.nbytes for b in buffers if b.first <= i <= b.last) for i in range(steps)]
    peak = max(live, default=0)
    slots = getattr(executable, "slots", None) or executable.constants  # on the CPU, on a GPU
    return Memory(
        sum(v.aval.nbytes for v in program.inputs),
        sum(o.aval.nbytes for o in program.outputs),
        sum(b.array.nbytes for b in slots if isinstance(b, Constant)),
        executable.arena_bytes,
        sum(b.nbytes for b in buffers),
        peak,
        live.index(peak) if live else 0,
        sorted(buffers, key=lambda b: -b.nbytes),
    )


def _buffers(plan: Plan) -> list[Buffer]:
    """List the temporaries of a plan. Those in the bodies of a loop count as one buffer."""
    spans: dict[Any, Buffer] = {}
    for i, step in enumerate(plan.steps):
        for b in plan.temporaries_of(step):
            if b in spans:
                spans[b].last = i
            elif isinstance(b, VariableBuffer):
                spans[b] = Buffer(b.aval.str_short(), b.nbytes, i, i)
            else:
                spans[b] = Buffer("room for one kernel", b.nbytes, i, i)
        children = getattr(step, "children", ())
        if children:
            nbytes = sum(arena_layout(child)[1] for child in children)
            spans[step] = Buffer("temporaries of a loop", nbytes, i, i)
    return list(spans.values())
