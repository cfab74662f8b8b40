"""The plan of a function that is exported as C: kernels, their arguments, buffers and steps.

A plan for any batch size is made with sizes that are expressions (see `free_sizes`). It is made
twice, to find code of the compiler that made a plain integer of one; such a plan would be wrong for
other batch sizes, so it is an error. This module may import the compiler, platforms and the layers
below `exporting`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.compilation import plan_program
from toile.compiler.ir.loop_nests import Loops
from toile.compiler.ir.operands import Ref, Scratch
from toile.compiler.ir.steps import Constant, EagerStep, Moving, ScanStep, SwitchStep, WhileStep
from toile.compiler.plan import lower
from toile.compiler.plan.place import Interval, aligned, assign
from toile.control.scan import Scan
from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.engine.source import here
from toile.exporting.free_sizes import DECIDED, FreeSize, evaluated, expression, free_size
from toile.exporting.numpy_writer import missing_rule
from toile.exporting.sizes import Size, SizeLiteral
from toile.kernels.contraction import cpu_blas as blas
from toile.platforms.cpu.planner import Plan, Region
from toile.platforms.cpu.target import Target
from toile.targets.llvm import native
from toile.targets.llvm.launches import Launch

# Chunks are made for this many threads; any number may run them, with the same results.
THREADS = 4
VALUES = (37, 54)  # what the sizes of the two plans are as plain integers
MOST_BYTES = 2**31 - 1  # of an array: kernels may compute indices with 32 bits


class _ExportPlan(Plan):
    """A plan whose kernels are compiled later."""

    def stage(self, *launches: Launch) -> None:
        lower.Plan.stage(self, *launches)


class _ExportTarget(Target):
    plan = _ExportPlan

    def chain(self, plan: Any) -> None:
        return

    def loops(self, x: Loops, plan: Any) -> None:
        """Stage the launches of a loop nest. Row buffers are on the stack, so there are none for
        rows whose length depends on the batch size."""
        if x.nest.scratch and isinstance(x.extents[-1], FreeSize):
            x = dataclasses.replace(x, nest=dataclasses.replace(x.nest, scratch=frozenset()))
        super().loops(x, plan)


class Number(NamedTuple):
    """A scalar that the batch size determines: an extra input of the Program."""

    var: Var
    size: int
    inverted: bool


class Room(NamedTuple):
    """A temporary, or the temporaries of a loop body together.

    `below` are the rooms that are in use at the same time and have lower addresses."""

    slot: int  # -1 for a body
    nbytes: int  # 0 for a body: its size is that of its members
    body: int  # the room of the body that it belongs to, or -1
    below: tuple[int, ...]


@dataclasses.dataclass
class CPlan:
    """What the C file contains. Slots number the buffers: inputs, outputs, then all others."""

    program: Program
    numbers: list[Number]
    kernels: list[str]
    words: list[int]
    launches: list[tuple[int, int, int, int]]  # kernel, first word, extent, grain
    lines: list[str]  # statements that run the steps
    origins: list[Equation | None]  # what each launch computes
    constants: list[tuple[int, np.ndarray]]
    rooms: list[Room]
    slots: int
    used: set[int]  # slots to which kernels refer

    def content(self) -> tuple[Any, ...]:
        """What must not depend on the sizes as plain integers. (Units of a chunk may, because
        any number of them is right.)"""
        numbers = (*self.words, *(n for x in self.launches for n in x[:3]),
                   *(n for r in self.rooms for n in (r.slot, r.nbytes, r.body, *r.below)))
        constants = [(slot, x.dtype, x.shape, x.tobytes()) for slot, x in self.constants]
        return (tuple(map(expression, numbers)), self.kernels, self.lines, constants, self.slots)


def c_plan(program: Program, free: bool) -> CPlan:
    """The plan of a traced function, without calls to libraries or to Python."""
    with blas.hidden():
        if not free:
            return _planned(program, [])
        _check_loops(program)
        plans = [_planned(*_Freeing(value).whole(program)) for value in VALUES]
    if plans[0].content() != plans[1].content():
        raise NotImplementedError(
            f"to_c: needed operations that the compiler can plan for any batch size, got "
            f"{_different(*plans)} (export with free_batch=False){here()}")
    return plans[0]


def _different(one: CPlan, other: CPlan) -> str:
    """The operation at which two plans begin to differ, for an error message."""
    for i, e in enumerate(one.origins[: len(other.origins)]):
        parts = []
        for p in (one, other):
            kernel, start, extent, _ = p.launches[i]
            end = p.launches[i + 1][1] if i + 1 < len(p.launches) else len(p.words)
            parts.append((p.kernels[kernel], *map(expression, (extent, *p.words[start:end]))))
        if parts[0] != parts[1] and e is not None:
            return f"`{e.op.name}` at {e.source or 'an unknown line'}"
    names = sorted({e.op.name for e in one.origins if e is not None})
    return f"one that it cannot among {', '.join(names)}"


def _check_loops(program: Program) -> None:
    for e in program.equations:
        if isinstance(e.op, Scan) and isinstance(e.op.length, Size):
            raise NotImplementedError(
                f"to_c: needed loops with the same number of iterations for all batch sizes, got "
                f"`{e.op.name}` over the batch at {e.source or 'an unknown line'} (use vmap, or "
                f"export with free_batch=False){here()}")
        for inner in e.op.programs() if hasattr(e.op, "programs") else ():
            _check_loops(inner)


class _Freeing:
    """Replaces `Size`s of a Program by `FreeSize`s."""

    def __init__(self, value: int):
        self.value = value
        self.env: dict[Var, Var] = {}
        self.numbers: dict[Any, Number] = {}
        self.depth = 0

    def whole(self, program: Program) -> tuple[Program, list[Number]]:
        made = self.program(program)
        numbers = list(self.numbers.values())
        inputs = [*made.inputs, *(x.var for x in numbers)]
        return Program(inputs, made.equations, made.outputs, made.name), numbers

    def program(self, program: Program) -> Program:
        self.depth += 1
        inputs = [self.var(v) for v in program.inputs]
        equations = [
            Equation(self.field(e.op), [self.atom(a, e) for a in e.ins],
                     [self.var(v) for v in e.outs], e.source, e.scope)
            for e in program.equations]
        outputs = [self.atom(o, None) for o in program.outputs]
        self.depth -= 1
        return Program(inputs, equations, outputs, program.name)

    def var(self, v: Var) -> Var:
        if v not in self.env:
            self.env[v] = Var(self.field(v.aval))
        return self.env[v]

    def atom(self, a: Atom, e: Equation | None) -> Atom:
        if isinstance(a, SizeLiteral):
            return self.number(a, e)
        if isinstance(a, Literal):
            return Literal(a.val, self.field(a.aval))
        return self.var(a)

    def number(self, a: SizeLiteral, e: Equation | None) -> Var:
        """The input for a number that depends on the batch size."""
        if self.depth > 1 or a.aval.shape or np.dtype(a.aval.dtype).char not in "bhilqBHILQfd":
            where = f" in `{e.op.name}` at {e.source or 'an unknown line'}" if e else ""
            raise NotImplementedError(
                f"to_c: needed numbers that do not depend on the batch size in loops, got "
                f"{a.size.text('n')}{where} (compute it before the loop, or export with "
                f"free_batch=False){here()}")
        size = self.field(a.size)
        key = (size, a.inverted, np.dtype(a.aval.dtype))
        if key not in self.numbers:
            self.numbers[key] = Number(Var(Aval((), a.aval.dtype)), size, a.inverted)
        return self.numbers[key].var

    def field(self, x: Any) -> Any:
        """A parameter of an operation, or an operation."""
        if isinstance(x, Size):
            return free_size(x.scale, x.offset, self.value)
        if isinstance(x, Program):
            return self.program(x)
        if isinstance(x, Aval):
            return Aval(self.field(x.shape), x.dtype, x.weak_type)
        if isinstance(x, tuple):
            parts = [self.field(part) for part in x]
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            make: Any = type(x)
            return make(**{f.name: self.field(getattr(x, f.name)) for f in dataclasses.fields(x)})
        return x


# ---- from steps to statements


def _planned(program: Program, numbers: list[Number]) -> CPlan:
    plan = plan_program(program, _ExportTarget(THREADS))
    steps = _Steps()
    for v in plan.given.inputs:
        steps.slot(v)
    for ref in plan.outputs:
        steps.slot(ref.buffer)
    steps.write(plan.steps)
    rooms = _Rooms(steps)
    rooms.add(plan)
    constants = [(i, b.array) for b, i in steps.slots.items() if isinstance(b, Constant)]
    return CPlan(plan.given, numbers, list(steps.kernels), steps.words, steps.launches,
                 steps.lines, steps.origins, constants, rooms.rooms, len(steps.slots), steps.used)


class _Steps:
    """Writes the steps of a plan as C statements, and numbers what they refer to."""

    def __init__(self) -> None:
        self.slots: dict[Any, int] = {}
        self.used: set[int] = set()
        self.kernels: dict[str, int] = {}
        self.words: list[int] = []
        self.launches: list[tuple[int, int, int, int]] = []
        self.lines: list[str] = []
        self.origins: list[Equation | None] = []
        self.depth = 1
        self.scope = ""

    def slot(self, buffer: Any) -> int:
        return self.slots.setdefault(buffer, len(self.slots))

    def buffer(self, buffer: Any) -> str:
        self.used.add(self.slot(buffer))
        return f"b[{self.slot(buffer)}]"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def write(self, steps: Sequence[Any]) -> None:
        for step in steps:
            match step:
                case Region():
                    self.region(step)
                case EagerStep():
                    raise missing_rule("to_c", step.equation)
                case ScanStep():
                    self.scan(step)
                case WhileStep():
                    self.loop(step)
                case SwitchStep():
                    self.switch(step)

    def region(self, step: Region) -> None:
        first = len(self.launches)
        for x in step.kernels:
            _check_symbols(x)
            kernel = self.kernels.setdefault(x.text, len(self.kernels))
            self.origins.append(next(reversed(_equations(x)), None))
            self.launches.append((kernel, len(self.words), x.extent, x.grain))
            for a in x.args:
                if isinstance(a, Ref):
                    self.used.add(self.slot(a.buffer))
                    self.words += (self.slot(a.buffer), a.offset)
                else:
                    self.words.append(a)
        self.comment(step)
        count = len(self.launches) - first
        self.line(f"region(c, {first}, {count}, {int(step.parallel)});")

    def comment(self, step: Region) -> None:
        """The module that the kernels belong to."""
        scopes = ["/".join(map(str, e.scope)) for x in step.kernels for e in _equations(x)
                  if e.scope]
        found = scopes[-1] if scopes else ""
        if found and found != self.scope:
            self.scope = found
            self.line(f"/* {found.replace('*/', '* /')} */")

    def starts(self, starts: Sequence[tuple[Moving, Ref]]) -> None:
        for moving, ref in starts:
            self.line(f"{self.buffer(moving)} = {self.place(ref.buffer, ref.offset)};")

    def place(self, buffer: Any, offset: int) -> str:
        text = expression(offset)
        return f"(char *){self.buffer(buffer)}" + (f" + ({text})" if text != "0" else "")

    def swaps(self, swaps: Sequence[tuple[Moving, Moving]]) -> None:
        for x, y in swaps:
            self.line(f"exchange(&{self.buffer(x)}, &{self.buffer(y)});")

    def scan(self, step: ScanStep) -> None:
        self.starts(step.starts)
        i = f"i{self.depth}"
        self.line(f"for (int64_t {i} = 0; {i} < {expression(step.trips)}; {i}++) {{")
        self.depth += 1
        for moving, ref, stride in step.slices:
            place = self.place(ref.buffer, ref.offset)
            self.line(f"{self.buffer(moving)} = {place} + {i} * ({expression(stride)});")
        self.write(step.body.steps)
        self.swaps(step.swaps)
        self.end()

    def loop(self, step: WhileStep) -> None:
        self.starts(step.starts)
        self.line("for (;;) {")
        self.depth += 1
        self.write(step.condition.steps)
        place = self.place(step.predicate.buffer, step.predicate.offset)
        self.line(f"if (!*(const uint8_t *)({place})) break;")
        self.write(step.body.steps)
        self.swaps(step.swaps)
        self.end()

    def switch(self, step: SwitchStep) -> None:
        self.starts(step.starts)
        last = len(step.children) - 1
        self.line(f"switch (selected({self.buffer(step.index)}, {last})) {{")
        for k, child in enumerate(step.children):
            self.line(f"case {k}: {{")
            self.depth += 1
            self.write(child.steps)
            self.line("break;")
            self.end()
        self.line("}")

    def end(self) -> None:
        self.depth -= 1
        self.scope = ""
        self.line("}")


def _equations(x: Launch) -> list[Equation]:
    """The equations that a launch computes."""
    return [] if x.origin is None else [m.equation for m in x.origin.members]


def _check_symbols(x: Launch) -> None:
    """Refuse kernels that call functions of a library."""
    if native.symbols_of([x.text]) or "declare void @toile_" in x.text:
        equations = _equations(x)
        if equations:
            raise missing_rule("to_c", equations[-1])
        raise NotImplementedError(
            f"to_c: needed kernels that call no library, got one of {x.note or 'a copy'} (export "
            f"other operations){here()}")


class _Rooms:
    """Which temporaries must not overlap, from a layout for the batch size `DECIDED`."""

    def __init__(self, steps: _Steps):
        self.steps = steps
        self.rooms: list[Room] = []

    def add(self, plan: Any) -> None:
        """Add the temporaries of a plan; those of its bodies come first."""
        spans: dict[Any, list[int]] = {}
        inner: dict[Any, list[int]] = {}  # the rooms of each body
        for i, step in enumerate(plan.steps):
            for b in plan.temporaries_of(step):
                spans.setdefault(b, [i, i])[1] = i
            for child in getattr(step, "children", ()):
                start = len(self.rooms)
                self.add(child)
                members = [k for k in range(start, len(self.rooms)) if self.rooms[k].body < 0]
                if members:
                    room = Scratch(max(self.height(members), 1))
                    inner[room] = members
                    spans[room] = [i, i]
        numbers = self._stacked([Interval(b, _decided(b.nbytes), *x) for b, x in spans.items()],
                                inner)
        for b, members in inner.items():
            for k in members:
                self.rooms[k] = self.rooms[k]._replace(body=numbers[b])

    def _stacked(self, intervals: Sequence[Interval], bodies: Container[Any]) -> dict[Any, int]:
        """Add rooms for buffers that may overlap if they are in use at different times."""
        offsets, _ = assign(intervals)
        order = sorted(intervals, key=lambda x: offsets[x.buffer])
        numbers = {x.buffer: len(self.rooms) + k for k, x in enumerate(order)}
        covered: dict[Any, set[Any]] = {}  # the buffers below a buffer
        for k, x in enumerate(order):
            b: Any = x.buffer
            under = [y.buffer for y in order[:k] if y.first <= x.last and x.first <= y.last]
            covered[b] = {o for other in under for o in (other, *covered[other])}
            direct = [o for o in under if not any(o in covered[other] for other in under)]
            is_body = b in bodies
            self.rooms.append(Room(-1 if is_body else self.steps.slot(b),
                                   0 if is_body else b.nbytes, -1,
                                   tuple([numbers[o] for o in direct])))
        return numbers

    def height(self, members: Sequence[int]) -> int:
        """The bytes of some rooms of one body, for the batch size `DECIDED`."""
        ends: dict[int, int] = {}
        for k in members:
            room = self.rooms[k]
            start = max((ends[o] for o in room.below), default=0)
            nbytes = _decided(room.nbytes)
            if room.slot < 0:
                nbytes = self.height([m for m, r in enumerate(self.rooms) if r.body == k])
            ends[k] = start + aligned(max(nbytes, 1))
        return max(ends.values(), default=0)


def _decided(n: int) -> int:
    return n.decided if isinstance(n, FreeSize) else n


# ---- which batch sizes are possible


def batch_limits(program: Program) -> tuple[int, int]:
    """The smallest and the largest batch size: all axes have elements, and arrays are not too
    large."""
    sizes: set[Any] = set()
    areas: set[Any] = set()
    _collect(program, sizes, areas)

    def fits(n: int) -> bool:
        return all(evaluated(s.terms, n) >= 1 for s in sizes) and all(
            evaluated(s.terms, n) <= MOST_BYTES for s in areas)

    low = next(n for n in range(1, DECIDED + 1) if fits(n))
    high, step = low, 1 << 31
    while step:
        if fits(high + step):
            high += step
        step >>= 1
    return low, high


def _collect(program: Program, sizes: set[Any], areas: set[Any]) -> None:
    """Collect the sizes of axes, and of arrays in bytes."""
    for v in [*program.inputs, *(v for e in program.equations for v in e.outs)]:
        sizes.update(n for n in v.aval.shape if isinstance(n, FreeSize))
        if isinstance(v.aval.nbytes, FreeSize):
            areas.add(v.aval.nbytes)
    for e in program.equations:
        for inner in e.op.programs() if hasattr(e.op, "programs") else ():
            _collect(inner, sizes, areas)


