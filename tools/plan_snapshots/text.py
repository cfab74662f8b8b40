"""Plans as text: the commands in order, their buffers, and the locations of the buffers."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from toile.compiler.compilation import compile_program
from toile.compiler.ir.operands import Ref, Temporary
from toile.compiler.ir.steps import (
    Constant,
    EagerStep,
    Moving,
    Output,
    Part,
    Region,
    ScanStep,
    SwitchStep,
    WhileStep,
)
from toile.engine.program import Literal, Program, Var
from toile.platforms.cpu.execution import Executable
from toile.platforms.cpu.target import Target as CpuTarget
from toile.platforms.gpu.steps import CallStep
from toile.platforms.gpu.target import TARGET
from toile.targets.llvm import native

THREADS = 4  # number of threads in CPU plans, independent of the machine
UNNAMED = {"origin", "equation", "source", "program"}  # fields that describe the origin of a step


class Texts:
    """The texts of kernels by file name, which is a digest of the text."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def name(self, text: str, ending: str) -> str:
        """The name of the file that contains a kernel's text."""
        name = hashlib.sha256(text.encode()).hexdigest()[:16] + ending
        self.found[name] = text
        return name


def without_compiling() -> None:
    """Make it possible to create executables for the CPU without compiling their kernels."""
    native.begin = lambda text: None
    native.functions = lambda texts: [0] * len(texts)
    Executable.__init__ = lambda self, program, image, *rest: setattr(self, "image", image)


def cpu_text(program: Program, texts: Texts) -> str:
    """The image of a Program on the CPU."""
    made = compile_program(program, CpuTarget(THREADS))
    image = made.image
    names = [texts.name(t, ".ll") for t in made.described.kernels]
    lines = [
        f"inputs {image.inputs} slots {image.slots} arena {image.arena_bytes} "
        f"blas {bool(image.calls_blas)}",
        f"blocks {image.blocks}",
        f"places {[tuple(map(int, p)) for p in image.places]}",
        f"temporaries {list(zip(*(x.tolist() for x in image.in_arena), strict=True))}",
        *[f"constant {slot} {_array(x)}" for slot, x in image.constants],
        *[f"kernel {i} {name}" for i, name in enumerate(names)],
        *[f"also {texts.name(t, '.ll')}" for t in sorted(made.plan.also)],
        *[f"step {i} {op} {ins} {outs}" for i, (op, ins, outs) in enumerate(made.in_steps)],
        *_commands(image.commands, image.words.tolist(), 0),
    ]
    return "\n".join(lines) + "\n"


def _commands(commands: Sequence[Any], words: list[int], depth: int) -> Iterator[str]:
    """Commands, one per line; bodies of loops are indented."""
    pad = "  " * depth
    for name, *rest in commands:
        if name == "region":
            kernels, parallel = rest
            yield f"{pad}region {'parallel' if parallel else 'serial'}"
            for k in kernels:
                yield f"{pad}  {k}"
            continue
        inside = [_bodies(x) for x in rest]
        yield f"{pad}{name} {[x for x, found in zip(rest, inside, strict=True) if not found]}"
        for body in [b for found in inside for b in found]:
            yield f"{pad}  body"
            yield from _commands(body, words, depth + 2)
    if depth == 0:
        yield f"words {words}"


def _bodies(x: Any) -> list[Any]:
    """The lists of commands in a part of a command."""
    if not isinstance(x, list) or not x:
        return []
    if isinstance(x[0], tuple):
        return [x] if isinstance(x[0][0], str) else []
    return x if isinstance(x[0], list) else []


def _array(x: np.ndarray) -> str:
    return f"{x.dtype}{list(x.shape)} {hashlib.sha256(x.tobytes()).hexdigest()[:16]}"


def gpu_text(program: Program, texts: Texts) -> str:
    """The plan of a Program for a GPU."""
    plan = compile_program(program, TARGET)
    return "\n".join(_GpuText(plan, texts).lines()) + "\n"


class _GpuText:
    """Writes a GPU plan as text; buffers are numbered in the order in which steps use them."""

    def __init__(self, plan: Any, texts: Texts):
        self.plan, self.texts = plan, texts
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []
        for v in plan.program.inputs:
            self.buffer(v)

    def lines(self) -> Iterator[str]:
        plan = self.plan
        yield f"inputs {len(plan.program.inputs)}"
        steps = list(self._steps(plan, 0))
        offsets, nbytes = plan.layout
        yield f"outputs {self.value(plan.outputs)}"
        yield f"arena {nbytes} {sorted((self.buffer(b), n) for b, n in offsets.items())}"
        yield f"constants {[(self.buffer(c), _array(c.array)) for c in plan.constants.values()]}"
        pairs = [(self.buffer(a), self.buffer(b)) for _, a, b in plan.in_place]
        yield f"in place {sorted(pairs)}"
        yield from steps

    def _steps(self, plan: Any, depth: int) -> Iterator[str]:
        pad = "  " * depth
        for step in plan.steps:
            match step:
                case Region():
                    yield f"{pad}region"
                    for x in step.launches:
                        kernel = self.texts.name(x.text, ".cu")
                        yield (f"{pad}  {kernel} blocks {x.blocks} threads {x.threads} shared "
                               f"{x.shared} bytes {x.nbytes} {self.value(x.args)}")
                case CallStep():
                    yield f"{pad}call {self.value(step.call)}"
                case EagerStep():
                    yield (f"{pad}eager {step.equation.op} {self.value(step.ins)} "
                           f"{self.value(step.outs)}")
                case ScanStep():
                    yield f"{pad}loop {step.trips} {self.value(step.slices)}"
                case WhileStep():
                    yield f"{pad}while {self.value(step.predicate)}"
                case SwitchStep():
                    yield f"{pad}switch {self.value(step.index)}"
                case _:
                    raise TypeError(f"no text for a step of class {type(step).__name__}")
            for child in getattr(step, "children", ()):
                yield f"{pad}  body {self.value(child.outputs)}"
                yield from self._steps(child, depth + 2)
            if hasattr(step, "starts"):
                yield f"{pad}  starts {self.value(step.starts)} swaps {self.value(step.swaps)}"
            yield f"{pad}  reads {self._set(step.reads)} writes {self._set(step.writes)}"

    def buffer(self, x: Any) -> int:
        """The number of a buffer."""
        if id(x) not in self.numbers:
            self.numbers[id(x)] = len(self.numbers)
            self.alive.append(x)
        return self.numbers[id(x)]

    def _set(self, buffers: Iterable[Any]) -> list[str]:
        """The numbers of the buffers in a set, in order, and the types of buffers without a
        number."""
        known = [b for b in buffers if id(getattr(b, "buffer", b)) in self.numbers]
        parts = sorted((self.buffer(getattr(b, "buffer", b)), isinstance(b, Part)) for b in known)
        more = sorted(type(b).__name__ for b in buffers
                      if id(getattr(b, "buffer", b)) not in self.numbers)
        return [f"{n}{' part' * part}" for n, part in parts] + more

    def value(self, x: Any) -> str:
        """Any part of a step as text."""
        match x:
            case Ref():
                return f"@{self.buffer(x.buffer)}+{x.offset}"
            case Temporary() | Constant() | Output() | Moving() | Var():
                return f"@{self.buffer(x)}"
            case Literal():
                return repr(x.val)
            case np.ndarray():
                return _array(x)
            case np.dtype() | enum.Enum():
                return str(x)
            case tuple() | list():
                return "(" + ", ".join(map(self.value, x)) + ")"
            case set() | frozenset():
                return str(self._set(x))
        if dataclasses.is_dataclass(x):
            fields = [f for f in dataclasses.fields(x) if f.name not in UNNAMED]
            inner = ", ".join(f"{f.name}={self.value(getattr(x, f.name))}" for f in fields)
            return f"{type(x).__name__}({inner})"
        return repr(x)
