"""Tests of indices in compiled code: each `CheckIndex` becomes a number that the Program returns.

The number is 0, or an index that is out of bounds. One reduction over the indices computes it,
without a branch. Numbers computed in loops and branches are returned from them. A Program with
tests has one more output: a vector that starts with 1 if there is a bad index, else 0, followed by
the numbers of all tests. A platform reads it without waiting for it, and then calls
`Tested.report`.
This module may import compiler.index_ranges, control, transforms, primitives and the engine.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Sequence
from functools import reduce
from typing import Any

import numpy as np

from toile.compiler.index_ranges import Ranges
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.out_of_bounds import Bounds
from toile.engine.program import Atom, Equation, Literal, Program, Var, derive
from toile.engine.records import dataclass
from toile.primitives.bits import eq, gt, ne, or_
from toile.primitives.bounds import (
    CheckIndex,
    checks,
    has_checks,
    unchecked,
    without_checks,
)
from toile.primitives.elementwise import convert, max_, min_, select
from toile.primitives.families import add, broadcast_in_dim, reshape, scalar, sub
from toile.primitives.reductions import ReduceMax
from toile.primitives.shapes import BitcastConvertType, concatenate_all, iota
from toile.transforms.vmap import vmap_program

_NUMBER = np.dtype(np.int32)
FEW = 4  # tests whose numbers are computed in one loop
MOST_EQUATIONS = 16  # that compute an index once more, outside a loop
_FINE = Literal(np.zeros((), _NUMBER), Aval((), _NUMBER))


@dataclass(frozen=True)
class Tested:
    """A Program whose last output has the results of its tests, and the bounds of each test."""

    program: Program
    bounds: tuple[Bounds, ...]

    def report(self, found: Any) -> None:
        """Report bad indices; `found` is the last output, as a NumPy array."""
        if found[0]:
            for bounds, index in zip(self.bounds, found[1:].tolist(), strict=True):
                if index:
                    bounds.report(index)

    def keeping(self) -> Program:
        """The Program with one more input, the last: the vector that earlier runs returned. The
        vector that this Program returns, which may overwrite that input, has what earlier runs and
        this run found."""
        writer = _Writer(self.program)
        writer.equations += self.program.equations
        *outputs, words = self.program.outputs
        old = Var(words.aval)
        kept = writer.splice(_first(words.aval.shape), [old, words], None)
        return Program([*self.program.inputs, old], writer.equations, [*outputs, *kept],
                       self.program.name)

    def reported(self, xp: Any, found: Any) -> list[Any]:
        """`report` as a rule of `ReportIndices`."""
        self.report(found)
        return []


class ReportIndices(Operation):
    """The step of a plan that reports bad indices; `Tested.reported` carries it out."""

    multiple = True

    def infer(self, words: Aval) -> list[Aval]:
        return []


def tested(program: Program, in_loops: bool = True) -> Tested | None:
    """A Program with tests of its indices; None if it has no indices to test.

    If `in_loops` is False, loops stay as they are: of the indices that they use, only those that
    can be computed outside them are tested."""
    if not has_checks(program):
        return None
    writer = _Writer(program) if in_loops else _OutsideLoops(program)
    for e in program.equations:
        writer.add(e)
    if not writer.bounds:
        return None
    forms = tuple([form for _, form in writer.found])
    words = writer.splice(_words(forms), [a for a, _ in writer.found], None)
    return Tested(writer.finish(words), tuple(writer.bounds))


def _with_tests(program: Program) -> tuple[Program, tuple[Bounds, ...]]:
    """The Program, which also returns the number of each test."""
    if not has_checks(program):
        return program, ()
    writer = _Writer(program)
    for e in program.equations:
        writer.add(e)
    numbers = [a if form is None else writer.splice(_number(form), [a], None)[0]
               for a, form in writer.found]
    return writer.finish(numbers), tuple(writer.bounds)


class _Writer:
    """Writes the equations of a Program with tests."""

    def __init__(self, program: Program):
        self.program = program
        self.env: dict[Any, Atom] = {}
        self.equations: list[Equation] = []
        self.made: dict[Any, Equation] = {}  # the equation that computes each variable
        self.ranges = Ranges(self.made)
        self.found: list[tuple[Atom, Form | None]] = []  # a number, or a result of `worst_index`
        self.bounds: list[Bounds] = []

    def finish(self, more: Sequence[Atom]) -> Program:
        """The Program with more outputs."""
        outputs = [self.env.get(o, o) for o in self.program.outputs]
        return Program(self.program.inputs, self.equations, [*outputs, *more], self.program.name)

    def add(self, e: Equation) -> None:
        """Add an equation, with tests of the indices that it checks."""
        ins = [self.env.get(a, a) for a in e.ins]
        if not checks(e.op):
            self._keep(Equation(e.op, ins, e.outs, e.source, e.scope))
        elif e.op.is_inlined:
            program, bounds = _with_tests(e.op.programs()[0])
            found = self.splice(program, ins, e)
            self.env.update(zip(e.outs, found[: len(e.outs)], strict=True))
            self._note(found[len(e.outs) :], bounds)
        elif e.op.with_index_tests is not None:
            e.op.with_index_tests(self, ins, e)
        else:
            self._keep(Equation(e.op, ins, e.outs, e.source, e.scope))

    def splice(self, program: Program, args: Sequence[Atom], at: Equation | None) -> list[Atom]:
        """Add the equations of a Program; returns its results."""
        env: dict[Any, Atom] = dict(zip(program.inputs, args, strict=True))
        scope = () if at is None else at.scope
        source = None if at is None else at.source
        for e in program.equations:
            outs = [Var(o.aval) for o in e.outs]
            self._keep(Equation(e.op, [env.get(a, a) for a in e.ins], outs,
                                           e.source or source, (*scope, *e.scope)))
            env.update(zip(e.outs, outs, strict=True))
        return [env.get(o, o) for o in program.outputs]

    def _keep(self, e: Equation) -> None:
        self.equations.append(e)
        for o in e.outs:
            self.made[o] = e

    def _note(self, numbers: Sequence[Atom], bounds: Sequence[Bounds]) -> None:
        self.found += [(a, None) for a in numbers]
        self.bounds += bounds

    def _results(self, op: Operation, ins: Sequence[Atom], e: Equation) -> list[Var]:
        """Add an operation with the results of an equation and others; returns these others."""
        avals = infer_list(op, [a.aval for a in ins])
        new = [Var(a) for a in avals[len(e.outs) :]]
        self._keep(Equation(op, list(ins), [*e.outs, *new], e.source, e.scope))
        return new

    # ---- called by rules of operations
    def index(self, op: CheckIndex, ins: Sequence[Atom], e: Equation) -> None:
        """Test indices, unless they are known to be in bounds."""
        bounds, (x,) = op.bounds, ins
        self.env[e.outs[0]] = x
        low, high = self.ranges.of(x)
        if bounds.low <= low and high <= bounds.high:
            return
        self._test(x, bounds, e)

    def _test(self, x: Atom, bounds: Bounds, e: Equation) -> None:
        form = Form(np.dtype(x.aval.dtype), bounds.low, bounds.high)
        (worst,) = self.splice(worst_index(x.aval.shape, form), [x], e)
        self.found.append((worst, form))
        self.bounds.append(bounds)

    def cond(self, op: Cond, ins: Sequence[Atom], e: Equation) -> None:
        """Return the numbers of all branches; those of a branch that is not taken are 0."""
        parts = [_with_tests(b) for b in op.branches]
        count = sum(len(bounds) for _, bounds in parts)
        branches, before = [], 0
        for (program, bounds), given in zip(parts, op.branches, strict=True):
            n, after = len(given.outputs), count - before - len(bounds)
            outputs = [*program.outputs[:n], *[_FINE] * before, *program.outputs[n:],
                       *[_FINE] * after]
            branches.append(Program(program.inputs, program.equations, outputs, program.name))
            before += len(bounds)
        found = self._results(Cond(tuple(branches)), ins, e)
        self._note(found, [b for _, bounds in parts for b in bounds])

    def scan(self, op: Scan, ins: Sequence[Atom], e: Equation) -> None:
        """Return the numbers of all iterations, and choose one of them after the loop. Tests that
        do not depend on the carry can then be moved out of the loop."""
        program, bounds = _with_tests(op.program)
        loop = Scan(program, op.consts, op.carry, op.length, op.reverse, op.unroll)
        for each, b in zip(self._results(loop, ins, e), bounds, strict=True):
            self._note(self.splice(_any(op.length), [each], e), [b])

    def while_loop(self, op: While, ins: Sequence[Atom], e: Equation) -> None:
        """Carry the first numbers that are not 0.

        Indices in the condition are not tested, because that would take more tests in each
        iteration."""
        body, bounds = _with_tests(op.body)
        cond = unchecked(op.cond)
        n = len(op.body.outputs)
        before = [Var(_FINE.aval) for _ in bounds]
        writer = _Writer(body)
        writer.equations += body.equations
        after = [writer.splice(_first(()), [old, new], e)[0]
                 for old, new in zip(before, body.outputs[n:], strict=True)]
        made = Program([*body.inputs, *before], writer.equations, [*body.outputs[:n], *after],
                       body.name)
        unused = [Var(_FINE.aval) for _ in bounds]
        goes_on = Program([*cond.inputs, *unused], cond.equations, cond.outputs, cond.name)
        loop = While(goes_on, made, op.cond_consts, op.body_consts)
        self._note(self._results(loop, [*ins, *[_FINE] * len(bounds)], e), bounds)


class _OutsideLoops(_Writer):
    """Writes a Program whose loops have no tests."""

    def scan(self, op: Scan, ins: Sequence[Atom], e: Equation) -> None:
        """Test indices that are computed from constants and the inputs of each iteration, for all
        iterations at once."""
        self._plain(op, ins, e)
        if op.length == 0:
            return
        body = _Body(op.program)
        for inner in op.program.equations:
            body.add(inner)
        start = op.consts + op.carry
        place = {v: i for i, v in enumerate(op.program.inputs) if not op.consts <= i < start}
        for x, bounds in body.indices:
            chain = body.chain(x, place)
            if chain is not None:
                given = [place[v] for v in chain.inputs]
                dims = [0 if i >= start else None for i in given]
                if 0 in dims:
                    chain = vmap_program(chain, (None, op.length), dims)[0]
                (all_turns,) = self.splice(chain, [ins[i] for i in given], e)
                self.index(CheckIndex(bounds), [all_turns], Equation(
                    op, [], [Var(all_turns.aval)], e.source, e.scope))

    def while_loop(self, op: While, ins: Sequence[Atom], e: Equation) -> None:
        """Leave the loop as it is: nothing that it uses can be computed outside it."""
        self._plain(op, ins, e)

    def _plain(self, op: Operation, ins: Sequence[Atom], e: Equation) -> None:
        self._keep(Equation(without_checks(op), list(ins), e.outs, e.source, e.scope))


class _Body(_OutsideLoops):
    """Finds the indices that the body of a loop uses."""

    def __init__(self, program: Program):
        super().__init__(program)
        self.indices: list[tuple[Atom, Bounds]] = []

    def add(self, e: Equation) -> None:
        if e.op.is_inlined and checks(e.op):
            program = e.op.programs()[0]
            env: dict[Any, Atom] = dict(zip(program.inputs, e.ins, strict=True))
            for inner in program.equations:
                new = [Var(o.aval) for o in inner.outs]
                self.add(Equation(inner.op, [env.get(a, a) for a in inner.ins], new))
                env.update(zip(inner.outs, new, strict=True))
            results = [env.get(o, o) for o in program.outputs]
            self.env.update((o, self.env.get(a, a)) for o, a in zip(e.outs, results, strict=True))
        else:
            super().add(e)

    def _test(self, x: Atom, bounds: Bounds, e: Equation) -> None:
        self.indices.append((x, bounds))

    def cond(self, op: Cond, ins: Sequence[Atom], e: Equation) -> None:
        """Leave branches as they are: one may not be taken in every iteration."""
        self._plain(op, ins, e)

    def chain(self, x: Atom, inputs: Container[Var]) -> Program | None:
        """The Program that computes an index from some inputs of the body; None if it needs others,
        or more than a few operations on each element."""
        needed: dict[Any, None] = {}
        equations: list[Equation] = []
        waiting, seen = [x], set()
        while waiting:
            a = waiting.pop()
            if isinstance(a, Literal) or a in seen:
                continue
            seen.add(a)
            e = self.made.get(a)
            if e is None:
                if a not in inputs:
                    return None
                needed[a] = None
            elif _is_cheap(e.op) and len(equations) < MOST_EQUATIONS:
                equations.append(e)
                waiting += e.ins
            else:
                return None
        order = {id(e): i for i, e in enumerate(self.equations)}
        return Program(list(needed), sorted(equations, key=lambda e: order[id(e)]), [x])


def _is_cheap(op: Operation) -> bool:
    return op.by_element or op.moves_axes or op.views_part or op.is_free


# ---- the tests, as small Programs


@dataclass(frozen=True)
class Form:
    """What a test depends on: the dtype of the indices, and the bounds."""

    dtype: np.dtype
    low: int
    high: int

    @property
    def signed(self) -> np.dtype:
        """The signed dtype that represents a bad index."""
        return np.dtype(np.int64 if self.dtype.itemsize > 4 else np.int32)

    @property
    def unsigned(self) -> np.dtype:
        """The dtype in which indices are compared."""
        return np.dtype(np.uint64 if self.dtype.itemsize > 4 else np.uint32)

    @property
    def start(self) -> int:
        """What is subtracted before indices are compared as unsigned numbers: then a single
        comparison finds those that are too low and those that are too high."""
        return max(self.low, int(np.iinfo(self.signed).min)) if self.dtype.kind == "i" else 0

    def index_of(self, worst: int) -> int | None:
        """The index, given a result of `worst_index`; None if it is in bounds."""
        if worst <= self.high - self.start:
            return None
        if self.dtype.kind == "u":
            return worst
        bits = 8 * self.signed.itemsize
        found = (worst + self.start) % (1 << bits)
        return found - (1 << bits) if found >> (bits - 1) else found


@functools.lru_cache(maxsize=1024)
def worst_index(shape: tuple[int, ...], form: Form) -> Program:
    """Indices -> the one that is furthest out of bounds, in the form that `_bad` takes."""

    def find(x: Any) -> list[Any]:
        if form.dtype.kind == "i":
            x = convert(x, form.signed)
            x = sub(x, scalar(form.start, form.signed)) if form.start else x
            x = BitcastConvertType(form.unsigned)(x)
        else:
            x = convert(x, form.unsigned)
        return [ReduceMax(tuple(range(len(shape))))(x) if shape else x]

    return derive(find, [Aval(shape, form.dtype)], "worst_index")


def _bad(worst: Any, form: Form) -> Any:
    """The number of a test: an index out of bounds, or 0. `worst` may have any shape."""
    own = form.signed
    bad = gt(worst, scalar(form.high - form.start, form.unsigned))
    if form.dtype.kind == "i":
        found = BitcastConvertType(own)(worst)
        found = add(found, scalar(form.start, own)) if form.start else found
    else:
        found = BitcastConvertType(own)(min_(worst, scalar(np.iinfo(own).max, form.unsigned)))
    if own != _NUMBER:
        limits = np.iinfo(_NUMBER)
        found = max_(min_(found, scalar(limits.max, own)), scalar(limits.min, own))
    none = broadcast_in_dim(scalar(0, _NUMBER), worst.shape, ())
    return select(bad, convert(found, _NUMBER), none)


@functools.lru_cache(maxsize=1024)
def _number(form: Form) -> Program:
    """The result of `worst_index` -> the number of the test."""
    return derive(lambda x: [_bad(x, form)], [Aval((), form.unsigned)], "number_of_test")


@functools.lru_cache(maxsize=256)
def _any(length: int) -> Program:
    """The numbers of a loop's iterations -> one that is not 0; 0 if all are 0."""

    def one(x: Any) -> list[Any]:
        most = ReduceMax((0,))(BitcastConvertType(np.dtype(np.uint32))(x))
        return [BitcastConvertType(_NUMBER)(most)]

    if length == 0:
        return derive(lambda x: [scalar(0, _NUMBER)], [Aval((0,), _NUMBER)], "any_turn")
    return derive(one, [Aval((length,), _NUMBER)], "any_turn")


@functools.lru_cache(maxsize=256)
def _first(shape: tuple[int, ...]) -> Program:
    """(old, new) -> each number of old, or that of new if it is 0."""
    return derive(lambda old, new: [select(ne(old, scalar(0, _NUMBER)), old, new)],
                  [Aval(shape, _NUMBER)] * 2, "first_numbers")


@functools.lru_cache(maxsize=256)
def _words(forms: tuple[Form | None, ...]) -> Program:
    """The results of all tests -> a vector: 1 or 0, followed by the numbers.

    A few numbers are computed in one small loop over the vector. More are computed separately and
    then joined."""
    few = len(forms) <= FEW

    def join(*found: Any) -> list[Any]:
        shape = (len(forms) + 1,) if few else ()
        given = [broadcast_in_dim(x, shape, ()) for x in found] if few else found
        zero = scalar(0, _NUMBER)
        numbers = [x if form is None else _bad(x, form)
                   for x, form in zip(given, forms, strict=True)]
        some = convert(reduce(or_, [ne(x, zero) for x in numbers]), _NUMBER)
        if not few:
            return [concatenate_all([reshape(x, (1,)) for x in (some, *numbers)], 0)]
        place, words = iota(_NUMBER, shape), some
        for i, x in enumerate(numbers, 1):
            words = select(eq(place, scalar(i, _NUMBER)), x, words)
        return [words]

    avals = [_FINE.aval if form is None else Aval((), form.unsigned) for form in forms]
    return derive(join, avals, "words_of_tests")
