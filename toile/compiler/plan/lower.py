"""Lowering: a Program becomes a list of steps, with the buffers that they use.

Fused groups become launches of loop nests, other equations launches of their own kernels; an
equation without a kernel runs its `eager` rule as a step in Python. Stages that do not depend on
each other are joined, so that many small kernels form one region. A `Target` says how loop nests
become launches, which equations have kernels, and how arrays are copied.
"""

from __future__ import annotations

import bisect
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from toile.compiler.ir.groups import Fused, Group, Limits
from toile.compiler.ir.loop_nests import Loops, Place
from toile.compiler.ir.operands import Operand, Ref, Scratch, Temporary, VariableBuffer
from toile.compiler.ir.steps import (
    Constant,
    EagerStep,
    LoopStep,
    MadePlan,
    Output,
    Part,
    Region,
    Table,
    whole_buffer,
)
from toile.compiler.ir.views import View, row_major
from toile.compiler.passes.calls import plain
from toile.compiler.pipeline import show_groups
from toile.compiler.plan.cuts import better_cuts
from toile.compiler.plan.fuse import fuse
from toile.compiler.plan.nests import build, rounding
from toile.compiler.plan.recompute import recompute
from toile.engine.config import flags
from toile.engine.program import Equation, Literal, Program, Var

SMALL_BYTES = 1 << 16  # of results that may be computed earlier than in program order
LOOK_BACK = 8  # steps that are searched for a region to join
EQUAL_BYTES = 1 << 20  # of results that are computed earlier to share a launch
MOST_EQUAL_BYTES = 1 << 26  # of all results of a region that others join for this reason


def _overlap(first: set[Any], second: set[Any]) -> bool:
    """Whether the sets share a buffer; a buffer overlaps with its parts."""
    if first & second:
        return True
    parts = {x.buffer for x in first if isinstance(x, Part)}
    others = {x.buffer for x in second if isinstance(x, Part)}
    return bool(parts & second or others & first)


def independent(first: Any, later: Any) -> bool:
    """Whether two steps may run in any order."""
    return not (
        _overlap(first.writes, later.reads | later.writes) or _overlap(later.writes, first.reads)
    )


def _nbytes(buffer: Any) -> int:
    """The size of a buffer; very large if it is not known."""
    if isinstance(buffer, Temporary):
        return buffer.nbytes
    aval = getattr(buffer, "aval", None)
    return 1 << 62 if aval is None else aval.nbytes


class Target(ABC):
    """What differs between devices when plans are made."""

    region: ClassVar[type[Region]] = Region
    limits: ClassVar[Limits] = Limits()
    plan: ClassVar[type[Plan]]
    joins_first: ClassVar[bool] = True  # whether stages join the first region that they fit into
    joins_equal: ClassVar[bool] = False  # whether kernels of equal text in a region are one launch

    @staticmethod
    def choose(e: Equation, before: Sequence[Equation]) -> Program:
        """The Program that replaces an attention during the passes."""
        return plain(e, before)

    def last_pass(self, program: Program) -> Program:
        """The device's own pass, run last before fusion."""
        return program

    @abstractmethod
    def can_fuse(self, e: Equation) -> bool:
        """Whether a loop nest can compute an equation."""

    @abstractmethod
    def lowering_of(self, e: Equation) -> Callable[..., bool] | None:
        """The function that adds an equation's stages; None if it runs its `eager` rule."""

    @abstractmethod
    def copy(self, target: Operand, source: Operand, plan: Plan) -> None:
        """Stage a copy of elements."""

    @abstractmethod
    def loops(self, x: Loops, plan: Plan) -> None:
        """Stage the launches of a loop nest."""

    def chain(self, plan: Plan) -> None:
        """Combine steps that the device can run block by block, one after the other."""
        return

    @abstractmethod
    def assemble(self, program: Program, plan: Plan, offsets: dict[Any, int], nbytes: int) -> Any:
        """What the device runs; temporaries are at `offsets` in an arena of `nbytes`."""

    @abstractmethod
    def verify(self, made: Any) -> None:
        """Prove that the assembled plan computes what the Program means."""


def fuse_groups(program: Program, target: Target) -> Fused:
    """Group the equations of a Program: each group is one loop nest, or one other equation.

    Chains of stencils are cut where that moves the fewest bytes, and cheap values are recomputed
    where they are read, if that moves fewer bytes."""
    fused = fuse(target.last_pass(program), target.can_fuse, target.limits)
    given = fused
    fused = better_cuts(fused, target.can_fuse)
    found = recompute(fused, target.limits.more_moved)
    if found is not None:
        improved = fused is not given
        fused = fuse(found.program, target.can_fuse, target.limits, found.homes, found.whole)
        if improved:  # kernels read other values now
            fused = better_cuts(fused, target.can_fuse)
    show_groups(fused)
    return fused


def lower(fused: Fused, target: Target, given: Program, **where: Any) -> Plan:
    """Lower the Program `given`, whose fused groups are `fused`; `where`: see `Plan`."""
    plan = target.plan(fused, target, given, **where)
    plan.bind_outputs()
    plan.bind_updates()
    for group in fused.groups:
        plan.lower_group(group)
    plan.copy_outputs()
    target.chain(plan)
    join_regions(plan)
    plan.around = None  # only needed while lowering: a body must not keep its loop (a cycle)
    return plan


def planned(program: Program, target: Target, **where: Any) -> Plan:
    """The steps of a Program that went through the passes already."""
    return lower(fuse_groups(program, target), target, program, **where)


class Plan(MadePlan):
    """Steps and buffers; has the methods that lowerings call.

    The body of a loop is a Plan too: `inputs` and `outputs` say where its inputs and outputs are
    stored, `around` is the Plan of the loop, `fixed` are the buffers that the loop does not change,
    and `turns` is the number of iterations, if it is known."""

    around: Plan | None

    def __init__(
        self,
        fused: Fused,
        target: Target,
        given: Program,
        inputs: Sequence[Ref] | None = None,
        outputs: Sequence[Ref] | None = None,
        around: Plan | None = None,
        fixed: Iterable[Any] = (),
        turns: int = 0,
    ):
        program = fused.program
        self.fused, self.target, self.given, self.program = fused, target, given, program
        self.around, self.fixed, self.turns = around, frozenset(fixed), turns
        self.prepared: dict[Any, Ref] = {}  # values derived once, before the loops that use them
        self.steps = []
        self.constants = {}
        places = [Ref(v) for v in program.inputs] if inputs is None else inputs
        self.refs: dict[Any, Ref] = dict(zip(program.inputs, places, strict=True))
        if outputs is None:
            outputs = [Ref(Output(i, o.aval)) for i, o in enumerate(program.outputs)]
        self.outputs = list(outputs)
        self.outside = {r.buffer for r in (*places, *self.outputs)}
        self.written: set[Any] = set()  # by the equation being lowered
        self.origin: Group | None = None  # the group being lowered; None: results are copied
        # Launches, calls and loops in the order in which they were lowered; used by the verifier.
        self.staged: dict[Group | None, list[Any]] = {}
        self.bound: set[int] = set()  # numbers of results computed directly in output buffers
        self.again: dict[Any, list[Ref]] = {}  # additional places where a variable is stored
        self.stacks: dict[Any, dict[int, Any]] = {}  # by scan: carries that move through rows

    def inner(
        self, program: Program, inputs: Sequence[Ref], outputs: Sequence[Ref],
        fixed: Iterable[Any] | None = None, turns: int = 0,
    ) -> Plan:
        """The plan of an inner body; `fixed`: the buffers that its loop does not change."""
        where = {} if fixed is None else {"around": self, "fixed": fixed, "turns": turns}
        return planned(program, self.target, inputs=inputs, outputs=outputs, **where)

    def copy(self, target: Operand, source: Operand) -> None:
        """Stage a copy of elements."""
        self.target.copy(target, source, self)

    # ---- buffers
    def bind_outputs(self) -> None:
        """Let results be computed directly in output buffers, in several of them if necessary."""
        for i, o in enumerate(self.program.outputs):
            if o.__class__ is not Var or o.aval.size == 0:
                continue
            view = self.fused.view(o)
            base = view.base
            if base not in self.fused.group_of or not is_whole(view):
                continue
            if base not in self.refs:
                self.refs[base] = self.outputs[i]
                self.bound.add(i)
            elif self.refs[base] in self.outputs and self.fused.group_of[base].fusible:
                self.again.setdefault(base, []).append(self.outputs[i])
                self.bound.add(i)

    def bind_updates(self) -> None:
        """Let scatters and updates of slices work in place where nothing reads the operand later.

        The operand is then computed where the result is to be stored."""
        fused, last = self.fused, self.last_readers
        for i, group in reversed([*enumerate(fused.groups)]):
            e = group.members[0].equation
            if group.fusible or not e.op.updates:
                continue
            view = fused.view(e.ins[0])
            base: Any = view.base
            known = base.__class__ is not Var or base not in fused.group_of or base in self.refs
            if known or last[base] != i or not is_whole(view) or 0 in view.shape:
                continue
            bases = [fused.view(a).base for a in e.ins]
            if bases.count(base) == 1 and e.outs[0] not in bases:  # no operand lies in the result
                self.refs[base] = self.ref(e.outs[0])

    @functools.cached_property
    def last_readers(self) -> dict[Any, int]:
        """The number of the last group that reads each variable from memory."""
        last = {self.fused.view(a).base: i for i, group in enumerate(self.fused.groups)
                for member in group.members for a in member.equation.ins}
        end = len(self.fused.groups)
        return last | {self.fused.view(o).base: end for o in self.program.outputs}

    def is_read(self, result: Operand) -> bool:
        """Whether anything reads a result of the equation being lowered."""
        buffer = result.ref.buffer
        return buffer in self.outside or any(
            v in self.last_readers for v, r in self.refs.items() if r.buffer is buffer)

    def may_take(self, i: int) -> bool:
        """Whether the equation being lowered may overwrite its operand i: a whole temporary that
        nothing else reads from now on."""
        assert self.origin is not None
        e = self.origin.members[0].equation
        view = self.fused.view(e.ins[i])
        base: Any = view.base
        found = self.refs.get(base)
        return (
            base in self.fused.group_of and is_whole(view)
            and found is not None and not found.offset
            and isinstance(found.buffer, VariableBuffer) and found.buffer.var is base
            and found.buffer.nbytes == base.aval.nbytes  # no other variable has a part of it
            and self.last_readers[base] < len(self.fused.groups)  # it is not returned
            and self.fused.groups[self.last_readers[base]] is self.origin
            and sum(self.fused.view(a).base is base for a in e.ins) == 1
        )

    def copy_outputs(self) -> None:
        """Copy the results that are not computed in their output buffers."""
        self.origin = None
        for i, o in enumerate(self.program.outputs):
            if i not in self.bound and o.aval.size:
                self.begin({self.outputs[i].buffer})
                whole = self.out_operand(self.outputs[i], o.aval)
                self.copy(whole, self.operand(o))

    def ref(self, base: Var | Literal) -> Ref:
        """Where a variable or a constant is stored."""
        if base.__class__ is Literal:
            return Ref(self.constant(np.asarray(base.val)))
        found = self.refs.get(base)
        if found is None:
            found = self.refs[base] = Ref(VariableBuffer(base))
        return found

    def constant(self, value: np.ndarray) -> Constant:
        """The buffer of a constant; equal constants share one."""
        key = (value.dtype, value.shape, value.tobytes())
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = Constant(np.ascontiguousarray(value))
        return found

    def table(self, value: np.ndarray) -> Ref:
        """The address of numbers that a kernel needs besides its operands."""
        key = (Table, value.dtype, value.shape, value.tobytes())
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = Table(np.ascontiguousarray(value))
        return Ref(found)

    def operand(self, a: Any) -> Operand:
        """Where an atom's elements are stored."""
        view: View = self.fused.view(a)
        dtype = np.dtype(view.base.aval.dtype)
        ref = self.ref(view.base).at(view.offset * dtype.itemsize)
        return Operand(ref, view.shape, view.strides, dtype)

    def out_operand(self, ref: Ref, aval: Any) -> Operand:
        dtype = np.dtype(aval.dtype)
        return Operand(ref, aval.shape, row_major(aval.shape), dtype)

    # ---- called by lowerings
    def scratch(self, nbytes: int) -> Ref:
        room = Scratch(max(nbytes, 1))
        self.written.add(room)
        return Ref(room)

    def stage(self, *launches: Any) -> None:
        launched = [replace(x, origin=self.origin) for x in launches if x.extent > 0]
        if not launched:
            return
        written = {whole_buffer(w) for w in self.written}
        reads: set[Any] = set()
        writes: set[Any] = set()
        for x in launched:
            refs = {a.buffer for a in x.args if isinstance(a, Ref)}
            reads |= refs - written if x.reads is None else x.reads
            writes |= {w for w in self.written if whole_buffer(w) in refs}
        self.steps.append(self.target.region(launched, reads, writes))
        self.staged.setdefault(self.origin, []).extend(launched)

    def contiguous(self, x: Operand) -> Operand:
        if x.contiguous:
            return x
        whole = Operand(self.scratch(x.size * x.dtype.itemsize), x.shape, row_major(x.shape),
                        x.dtype)
        self.copy(whole, x)
        return whole

    def is_fixed(self, x: Ref, turns: int) -> bool:
        """Whether this is the body of a loop with at least `turns` turns that does not change x."""
        return x.buffer in self.fixed and self.turns >= turns

    def never_written(self, x: Ref) -> bool:
        """Whether x is an argument or a constant of the whole Program, which nothing writes before
        its last reader has finished."""
        home: Plan = self
        while home.around is not None and x.buffer in home.fixed:
            home = home.around
        return isinstance(x.buffer, Constant) or (
            home.around is None and x.buffer in home.program.inputs)

    def before_loops(self, x: Ref, key: Any, make: Callable[[Plan], Ref]) -> Ref | None:
        """What `make` derives from x, staged before all loops in which x does not change.

        None if there is no such loop; `key` says what is derived, so that it is made once."""
        home, inner = self, []
        while home.around is not None and x.buffer in home.fixed:
            inner.append(home)
            home = home.around
        if not inner:
            return None
        made = home.prepared.get((x, key))
        if made is None:
            made = home.prepared[x, key] = make(home)
        for plan in inner:
            plan.outside.add(made.buffer)
        return made

    def begin(self, writes: set[Any]) -> None:
        """Declare the buffers, besides scratch, that the following stages write."""
        self.written = set(writes)

    # ---- steps
    def lower_group(self, group: Group) -> None:
        """Add the steps of a group."""
        self.origin = group
        if group.fusible:
            stored = [v for v in group.maps if v in self.fused.stored]
            more = [r.buffer for v in stored for r in self.again.get(v, ())]
            self.begin({*map(self._written_by, stored), *more})
            if self.written:
                x = build(self.fused, group, group.row_by_row(self.target.limits))
                self._store_again(x)
                x.nest = rounding(x.nest, flags.allow_excess_precision)
                self.target.loops(x, self)
        else:
            self._equation(group.members[0].equation)

    def _store_again(self, x: Loops) -> None:
        """Add stores for results that are returned more than once."""
        for store, place in list(zip(x.nest.stores, x.stores, strict=True)):
            for ref in self.again.get(place.base, ()):
                x.nest = replace(x.nest, stores=(*x.nest.stores, store))
                x.stores.append(Place(ref, place.offset, place.strides, place.dtype))

    def _written_by(self, v: Var) -> Any:
        """What a store to a variable writes: a buffer, or a part of one."""
        base = self.fused.view(v).base
        buffer = self.ref(base).buffer
        return buffer if base is v else Part(buffer, v)

    def _equation(self, e: Equation) -> None:
        outs = [self.operand(o) if o in self.fused.views  # in a part of another array
                else self.out_operand(self.ref(o), o.aval) for o in e.outs]
        ins = [self.operand(a) for a in e.ins]
        if not e.effects and not any(o.size for o in outs):
            return  # there is nothing to compute
        lower = self.target.lowering_of(e)
        if lower is not None and all(o.size for o in outs):
            self.begin({*map(self._written_by, e.outs)})
            before = len(self.steps)
            if lower(e.op, ins, outs, self):
                for step in self.steps[before:]:
                    if isinstance(step, LoopStep):  # launches got their origin in `stage`
                        step.origin = self.origin
                        self.staged.setdefault(self.origin, []).append(step)
                return
            assert len(self.steps) == before, f"{e.op.name}: steps of a lowering that gave up"
        self.steps.append(EagerStep(e, ins, outs))


def join_regions(plan: Plan) -> None:
    """Merge stages that do not depend on each other."""
    joined: list[Any] = []
    equal = _EqualKernels(plan)
    for step in plan.steps:
        place = None
        if isinstance(step, Region):
            place = equal.home(step, joined) if plan.target.joins_equal else None
            place = _home(step, joined, plan.target) if place is None else place
        if place is None:
            place = len(joined)
            joined.append(step)
        else:
            home = joined[place]
            home.launches += step.launches
            home.reads |= step.reads
            home.writes |= step.writes
        if plan.target.joins_equal:
            equal.add(step, place)
    plan.steps = joined


class _EqualKernels:
    """Finds earlier regions with the kernels of a stage, so that similar branches share launches.

    Such branches are the tables of a recommender, or the members of an ensemble: in the order of
    the Program, one comes after the other."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.places: dict[str, list[int]] = {}  # of the regions with a kernel
        self.read: dict[Any, int] = {}  # the place of the last step that reads each buffer
        self.written: dict[Any, int] = {}  # of the last one that writes it
        self.nbytes: dict[int, int] = {}  # of the results of each region

    def home(self, step: Region, before: list[Any]) -> int | None:
        """The place of the first region with the same kernels after all steps that a stage depends
        on."""
        writes = {*map(whole_buffer, step.writes)}
        if sum(map(_nbytes, writes)) > EQUAL_BYTES or writes & self.plan.outside:
            return None
        texts = {x.text for x in step.launches}
        after = max((self.written.get(b, -1) for b in {*map(whole_buffer, step.reads), *writes}),
                    default=-1)
        after = max([after, *(self.read.get(b, -1) for b in writes)])
        places = self.places.get(step.launches[0].text, [])
        at = bisect.bisect_right(places, after)
        if at == len(places) or self.nbytes[places[at]] > MOST_EQUAL_BYTES:
            return None
        return places[at] if texts <= {x.text for x in before[places[at]].launches} else None

    def add(self, step: Any, place: int) -> None:
        """Note where a step is."""
        for buffers, last in ((step.reads, self.read), (step.writes, self.written)):
            for b in map(whole_buffer, buffers):
                last[b] = max(place, last.get(b, -1))
        if isinstance(step, Region):
            nbytes = sum(map(_nbytes, {*map(whole_buffer, step.writes)}))
            self.nbytes[place] = self.nbytes.get(place, 0) + nbytes
            for text in {x.text for x in step.launches}:
                places = self.places.setdefault(text, [])
                at = bisect.bisect_left(places, place)
                if places[at : at + 1] != [place]:
                    places.insert(at, place)


def _home(step: Region, before: list[Any], target: Target) -> int | None:
    """The place of an earlier region to join: the last one or, on some devices, the first of
    several if the results are small."""
    small = all(_nbytes(b) <= SMALL_BYTES for b in map(whole_buffer, step.writes))
    found = None
    for place in range(len(before) - 1, max(len(before) - (LOOK_BACK if small else 1), 0) - 1, -1):
        if not independent(before[place], step):
            return found
        if isinstance(before[place], Region):
            found = place
            if not target.joins_first:
                break
    return found


def is_whole(view: View) -> bool:
    """Whether a view has all elements of its base, in the same order."""
    base = view.base.aval.shape
    return view.offset == 0 and view.shape == base and view.strides == row_major(base) or (
        view.offset == 0 and prod(view.shape) == prod(base)
        and Operand(Ref(None), view.shape, view.strides, None).contiguous
    )
