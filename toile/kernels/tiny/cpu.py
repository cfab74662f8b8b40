"""Programs of tiny arrays as straight-line code: each element of an array is a register.

A `Writer` turns equations into the instructions of one function, element by element, so that a
program of 3 x 3 matrices costs its arithmetic and nothing else: no memory, no calls. Operations
that only move elements need no code. LLVM combines the scalars into vectors. Loops and branches
inside the program pass their values in stack slots, which LLVM turns into registers. Operations
without code here raise `Unsupported`; extents are part of the text, whose length is limited.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.plan.control_flow import prepared
from toile.compiler.scalar.builder import Unsupported, Value, kind
from toile.compiler.scalar.fusible import lowered, rounded
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.config import flags
from toile.engine.program import Equation, Literal, Program, Var
from toile.kernels.nest.cpu import can_fuse
from toile.kernels.nest.shared import constant_words
from toile.kernels.tiny.cpu_blocks import Elements, Held, Stored
from toile.kernels.tiny.cpu_sums import Sums
from toile.targets.llvm import text as ir
from toile.targets.llvm.scalars import register
from toile.targets.llvm.stop_checks import FEW_TURNS, OUTER_TURNS, TURNS

LARGEST = 256  # elements of an array


class Slices(NamedTuple):
    """An array in memory whose first axis is the iteration of a loop."""

    pointer: str
    stride: ir.Operand  # in bytes
    offsets: Sequence[int]  # of the elements of an iteration, counted in elements
    dtype: Any


def looks_tiny(program: Program) -> bool:
    """A quick check: whether a Program's arrays are small and its equations have no effects."""
    for e in program.equations:
        if e.effects or e.op.axis_names:
            return False
        if not e.op.updates and any(not 0 < o.aval.size <= LARGEST for o in e.outs):
            return False
        if not all(looks_tiny(prepared(p)) for p in e.op.programs()):
            return False
    return True


def in_blocks(program: Program, position: int, updates: int = 0) -> bool:
    """Whether an input is used only in blocks; with `updates`=1, also whether it is a carry that is
    updated in blocks."""
    names: set[Any] = {program.inputs[position]}
    for e in program.equations:
        used = [i for i, a in enumerate(e.ins) if a in names]
        if used and (used != [0] or not e.op.by_blocks):
            return False
        if used and e.op.updates:
            names.add(e.outs[0])
    return min(len(names) - 1, 1) == sum(o in names for o in program.outputs) == updates


def constants_of(*programs: Program) -> list[np.ndarray]:
    """The scalars that Programs hold, including those inside loops, each once."""
    found: dict[Any, np.ndarray] = {}
    for program in programs:
        for a in _literals(program):
            found.setdefault(constant_key(a), a)
    return list(found.values())


def constant_key(a: np.ndarray) -> tuple[str, bytes]:
    return str(a.dtype), a.tobytes()


def _literals(program: Program) -> Iterator[np.ndarray]:
    for a in itertools.chain(*(e.ins for e in program.equations), program.outputs):
        if a.__class__ is Literal:
            yield np.asarray(a.val)
    for e in program.equations:
        if e.op.turns not in (None, math.inf):
            yield np.asarray(e.op.turns, np.int64)
        for p in e.op.programs():
            yield from _literals(prepared(p))


class Writer(Sums):
    """Writes Programs into one function."""

    def __init__(self, f: ir.Function):
        super().__init__(f)
        self.constants: dict[Any, Value] = {}
        self.rounds = {"float16"} if flags.allow_excess_precision else {"float16", "bfloat16"}

    def read_constants(self, values: Sequence[np.ndarray], first: int) -> None:
        """Load constants from the kernel's arguments, from `first` on."""
        for value in values:
            words = [self.f.argument(first + i) for i in range(len(constant_words(value)))]
            first += len(words)
            found = self.k.bits_argument(words[0], value.dtype, words[-1])
            self.exact.add(found.name)
            self.constants[constant_key(value)] = found

    # ---- programs
    def program(self, program: Program, inputs: Sequence[Held]) -> list[Held]:
        """Write all equations; returns the results."""
        env: dict[Var, Held] = dict(zip(program.inputs, inputs, strict=True))
        for e in _ordered(program, {v for v, x in env.items() if isinstance(x, Stored)}):
            outs = self._equation(e, [self._atom(a, env) for a in e.ins])
            env.update(zip(e.outs, outs, strict=True))
            self.check_length()
        return [self._atom(a, env) for a in program.outputs]

    def _atom(self, a: Any, env: dict[Var, Held]) -> Held:
        return [self.constants[constant_key(np.asarray(a.val))]] if a.__class__ is Literal else (
            env[a])

    def _equation(self, e: Equation, ins: list[Any]) -> list[Held]:
        op = e.op
        if op.in_registers is not None:
            return op.in_registers(self, e, self._guarded(e, ins) if op.carries_programs else ins)
        if any(isinstance(x, Stored) for x in ins):
            raise Unsupported(f"{op.name} of an array that stays in memory")
        if op.is_identity:
            return list(ins)
        if op.moves_elements:
            return [_moved(e, ins)]
        if op.combines in ("", "axes") and not can_fuse(e):
            raise Unsupported(f"{op.name} of tiny arrays")
        if op.combines:
            return [self.combined(e, ins)]
        return [self._elementwise(e, ins)]

    # ---- elements
    def _elementwise(self, e: Equation, ins: list[Elements]) -> Elements:
        op, aval = e.op, e.outs[0].aval
        dtype = np.dtype(aval.dtype)
        if not ins:  # known numbers
            return self.known(self.k.constant(i, dtype) for i in np.ravel(op.eager(np)))
        out: Elements = []
        for i in range(aval.size):
            xs = [x[i if len(x) > 1 else 0] for x in ins]
            if dtype.name in self.rounds:
                out += self.known([rounded(self.k, op, xs, dtype)])
                continue
            y = lowered(self.k, op, xs)
            out.append(y if y.dtype == dtype else Value(y.name, dtype, y.imag))
            if op.lower_is_exact:
                self.known(out[-1:])
        return out

    # ---- loops and branches
    def _guarded(self, e: Equation, ins: list[Any]) -> list[Any]:
        """The operands of a loop or branch; arrays in memory that it must not change are marked."""
        changed = [*map(id, e.ins[e.op.overwrites])]
        return [x._replace(writable=False) if isinstance(x, Stored) and id(a) not in changed else x
                for x, a in zip(ins, e.ins, strict=True)]

    def slots(self, x: Held) -> Held:
        """Stack slots with an array's elements; an array in memory stays there."""
        return x if isinstance(x, Stored) else self.new_slots(x)

    def new_slots(self, xs: Elements) -> Elements:
        """Stack slots that hold elements, as values whose names are addresses."""
        return [self.k.slot(v) for v in self.settled(xs)]

    def read(self, slots: Held) -> Held:
        """The elements in stack slots; an array in memory stays there."""
        return slots if isinstance(slots, Stored) else self.read_slots(slots)

    def read_slots(self, slots: Elements) -> Elements:
        """The elements in stack slots."""
        return self.known(self.k.read(s) for s in slots)

    def write(self, slots: Sequence[Held], values: Sequence[Held]) -> None:
        """Store new elements to stack slots."""
        for here, x in zip(slots, values, strict=True):
            if isinstance(here, Stored) or isinstance(x, Stored):
                if here is not x:
                    raise Unsupported("an array in memory in place of another value")
                continue
            for s, v in zip(here, self.settled(x), strict=True):
                self.k.write(s, v)

    def turns(
        self, body: Program, trips: ir.Operand, consts: Sequence[Held], slots: Sequence[Held],
        xs: Sequence[Slices], ys: Sequence[Slices], few: bool = False,
    ) -> None:
        """The loop of a scan: carries in stack slots, slices that advance.

        `few`: the loop is so short that it need not check whether the run should stop."""
        if few:
            loop = self.f.loop(0, trips, vectorize=False)
        else:
            loop = self.f.long_loop(0, trips, _turns_between_checks(body), vectorize=False)
        with loop as i:
            moved = [self.f.step(x.pointer, i, x.stride) for x in [*xs, *ys]]
            given = [self.loaded(p, x.offsets, x.dtype)
                     for p, x in zip(moved[: len(xs)], xs, strict=True)]
            outs = self.program(body, [*consts, *(self.read(s) for s in slots), *given])
            self.write(slots, outs[: len(slots)])
            for p, y, out in zip(moved[len(xs):], ys, outs[len(slots):], strict=True):
                if isinstance(out, Stored):
                    raise Unsupported("a stacked array that stays in memory")
                for value, offset in zip(out, y.offsets, strict=True):
                    self.k.store(value, p, offset)

    def scan(self, op: Scan, e: Equation, ins: list[Any]) -> list[Held]:
        if any(isinstance(x, Stored) for x in ins[op.consts + op.carry:]):
            raise Unsupported("a loop inside a loop over an array that stays in memory")
        c, n = op.consts, op.consts + op.carry
        trips = self.constants[constant_key(np.asarray(op.length, np.int64))].name
        slots = [self.slots(x) for x in ins[c:n]]
        xs, ys, rooms = [], [], []
        for x in ins[n:]:
            xs.append(self._rows(self.spilled(x), len(x) // op.length, x[0].dtype, op, trips))
        for o in e.outs[op.carry:]:
            size, dtype = o.aval.size, np.dtype(o.aval.dtype)
            rooms.append((self.room(size, dtype), size, dtype))
            ys.append(self._rows(rooms[-1][0], size // op.length, dtype, op, trips))
        self.turns(prepared(op.program), trips, ins[:c], slots, xs, ys, op.length <= FEW_TURNS)
        stacked = [self.loaded(p, range(size), dtype) for p, size, dtype in rooms]
        return [*(self.read(s) for s in slots), *stacked]

    def _rows(self, pointer: str, size: int, dtype: Any, op: Scan, trips: str) -> Slices:
        """The slices of an array on the stack."""
        stride = size * dtype.itemsize
        if op.reverse:
            pointer = self.f.step(pointer, self.f.sub(trips, 1), stride)
            stride = -stride
        return Slices(pointer, stride, range(size), dtype)

    def while_loop(self, op: While, e: Equation, ins: list[Any]) -> list[Held]:
        a, b = op.cond_consts, op.cond_consts + op.body_consts
        slots = [self.slots(x) for x in ins[b:]]
        self.repeat(op, ins[:a], ins[a:b], slots)
        return [self.read(s) for s in slots]

    def repeat(
        self, op: While, cond_consts: Sequence[Held], body_consts: Sequence[Held],
        slots: Sequence[Held],
    ) -> None:
        """The loop of a while."""
        f = self.f
        n = f.count = f.count + 1
        turns = _turns_between_checks(prepared(op.cond), prepared(op.body))
        left = f.variable("i64", turns)
        f.do(f"br label %test{n}")
        f.label(f"test{n}")
        carry = [self.read(s) for s in slots]
        (again,) = self.program(prepared(op.cond), [*cond_consts, *carry])
        assert not isinstance(again, Stored)
        f.do(f"br i1 {again[0].name}, label %turn{n}, label %end{n}")
        f.label(f"turn{n}")
        self.write(slots, self.program(prepared(op.body), [*body_consts, *carry]))
        fewer = f.sub(f.load("i64", left), 1)
        f.store("i64", fewer, left)
        f.do(f"br i1 {f.compare('sgt', fewer, 0)}, label %test{n}, label %ask{n}")
        f.label(f"ask{n}")
        f.store("i64", turns, left)
        f.do(f"br i1 {f.stops()}, label %end{n}, label %test{n}")
        f.label(f"end{n}")

    def cond(self, op: Cond, e: Equation, ins: list[Any]) -> list[Held]:
        """One of the branches, which store their results in stack slots."""
        f, (index,) = self.f, ins[0]
        results: list[Held] = []
        for o in e.outs:
            dtype = np.dtype(o.aval.dtype)
            slot = lambda dtype=dtype: f.alloca(register(dtype))
            results.append([Value(slot(), dtype, slot() if kind(dtype) == "c" else "")
                            for _ in range(o.aval.size)])
        n = f.count = f.count + 1
        last = len(op.branches) - 1
        chosen = f.smax(f.smin(self.index(index), last), 0)
        cases = " ".join(f"i64 {i}, label %case{n}.{i}" for i in range(last))
        f.do(f"switch i64 {chosen}, label %case{n}.{last} [{cases}]")
        for i, branch in enumerate(op.branches):
            f.label(f"case{n}.{i}")
            self.write(results, self.program(prepared(branch), ins[1:]))
            f.do(f"br label %joined{n}")
        f.label(f"joined{n}")
        return [self.read(s) for s in results]


def _turns_between_checks(*bodies: Program) -> int:
    """How many iterations a loop makes between two checks: few if it has loops inside."""
    return OUTER_TURNS if any(_has_loops(p) for p in bodies) else TURNS


def _has_loops(program: Program) -> bool:
    """Whether a Program has loops of more than a few iterations."""
    return any((e.op.turns or 0) > FEW_TURNS or any(map(_has_loops, map(prepared, e.op.programs())))
               for e in program.equations)


def _ordered(program: Program, stored: set[Var]) -> list[Equation]:
    """The equations, ordered such that arrays in memory are changed after their last reader."""
    if not stored:
        return program.equations
    waiting, out = list(program.equations), []
    changed: dict[int, list[Any]] = {}  # by equation
    for e in waiting:
        changed[id(e)] = [a for a in e.ins[e.op.overwrites] if a in stored]
        if changed[id(e)]:
            stored |= {o for o in e.outs if o.aval in [a.aval for a in changed[id(e)]]}
        for a in changed[id(e)]:
            if a in program.outputs or sum(a is b for b in e.ins) > 1:
                raise Unsupported("an array in memory whose old value is still needed")
    known: set[Any] = set(program.inputs)
    while waiting:
        found = next((e for e in waiting if _is_next(e, waiting, known, changed[id(e)])), None)
        if found is None:
            raise Unsupported("an array in memory that is read after its update")
        waiting.remove(found)
        known.update(found.outs)
        out.append(found)
    return out


def _is_next(e: Equation, waiting: list[Equation], known: set[Any], changed: list[Any]) -> bool:
    """Whether all operands of an equation are known, and no other reads what it changes."""
    if not all(a.__class__ is Literal or a in known for a in e.ins):
        return False
    return not any(a is b for a in changed for x in waiting if x is not e for b in x.ins)


def _moved(e: Equation, ins: Sequence[Elements]) -> Elements:
    """The source of each element of the result, found by applying the operation to element
    numbers."""
    flat = [v for x in ins for v in x]
    numbers = np.split(np.arange(len(flat)), np.cumsum([len(x) for x in ins])[:-1])
    shaped = [n.reshape(a.aval.shape) for n, a in zip(numbers, e.ins, strict=True)]
    return [flat[i] for i in np.ravel(e.op.eager(np, *shaped))]
