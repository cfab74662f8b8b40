"""The plan of a Program: its steps in order, the buffers they use, and where those lie.

Groups of the fusion become launches of loop nests, other equations those of their own kernels;
what has no kernel runs its `eager` rule as a step in Python. Stages that do not depend on each
other are joined, so that many small kernels are one parallel region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from toile.backends.cpu import nests, slicing
from toile.backends.cpu.chunks import cost, grain_of_map, grain_of_rows, split_columns, split_row
from toile.backends.cpu.launches import Launch, Operand, Ref, Scratch
from toile.backends.cpu.lowerings import can_fuse, lowering_of
from toile.compiler import loops as loop_nests
from toile.compiler.fusion import Fused, fuse
from toile.compiler.groups import Group
from toile.compiler.loops import Access, Load, LoopNest, Loops, Place, Reduce, rounding
from toile.compiler.memory import Interval, assign
from toile.compiler.pipeline import show_groups
from toile.compiler.views import View
from toile.engine.config import flags
from toile.engine.program import Equation, Literal, Program, Var

WORTH_SHARING = 10_000  # nanoseconds: below, handing work over costs more than it saves
SMALL = 2_000  # of a launch of one chunk, where nothing better is known


class Region:
    """Launches that may run at the same time."""

    __slots__ = ("launches", "reads", "writes")

    def __init__(self, launches: list[Launch], reads: set[Any], writes: set[Any]):
        self.launches, self.reads, self.writes = launches, reads, writes

    def independent(self, later: Region) -> bool:
        return not (
            _meet(self.writes, later.reads | later.writes) or _meet(later.writes, self.reads)
        )

    @property
    def parallel(self) -> bool:
        """Whether there is enough to do for more than one thread."""
        if any(x.chunks > 1 for x in self.launches):
            return True
        small = (SMALL if x.cost is None else x.cost for x in self.launches)
        return len(self.launches) > 1 and sum(small) > WORTH_SHARING


class Part(NamedTuple):
    """The part of a buffer that one variable takes; other parts are apart from it."""

    buffer: Any
    var: Var


def _meet(first: set[Any], second: set[Any]) -> bool:
    """Whether something is in both; a buffer meets its parts."""
    if first & second:
        return True
    parts = {x.buffer for x in first if isinstance(x, Part)}
    others = {x.buffer for x in second if isinstance(x, Part)}
    return bool(parts & second or others & first)


def whole_buffer(x: Any) -> Any:
    return x.buffer if isinstance(x, Part) else x


class EagerStep:
    """An equation that NumPy computes."""

    __slots__ = ("equation", "ins", "outs", "reads", "writes")

    def __init__(self, equation: Equation, ins: list[Operand], outs: list[Operand]):
        self.equation, self.ins, self.outs = equation, ins, outs
        self.reads = {x.ref.buffer for x in ins}
        self.writes = {x.ref.buffer for x in outs}


class Constant:
    """A buffer whose contents are known when the plan is made."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array


class Output:
    """The buffer of a result of the Program; it is made anew by each call."""

    __slots__ = ("index", "aval")

    def __init__(self, index: int, aval: Any):
        self.index, self.aval = index, aval


class Moving:
    """A pointer that a loop sets: the step's slice of an array, or one of two turns of a carry."""

    __slots__ = ()


class Plan:
    """Steps and buffers; implements what lowerings ask for (`launches.Planner`).

    The body of a loop is a Plan too: `inputs` and `outputs` say where its values lie outside,
    `around` is the Plan of the loop, and `fixed` are the buffers that no turn of it changes."""

    def __init__(
        self,
        program: Program,
        threads: int,
        inputs: Sequence[Ref] | None = None,
        outputs: Sequence[Ref] | None = None,
        around: Plan | None = None,
        fixed: Iterable[Any] = (),
    ):
        self.program, self.threads = program, threads
        self.around, self.fixed = around, frozenset(fixed)
        self.prepared: dict[Any, Ref] = {}  # what loops use that is made once, before them
        self.steps: list[Any] = []
        self.also: set[str] = set()  # kernels that other extents would need
        self.constants: dict[Any, Constant] = {}
        given = [Ref(v) for v in program.inputs] if inputs is None else inputs
        self.refs: dict[Var, Ref] = dict(zip(program.inputs, given, strict=True))
        self.outside = {r.buffer for r in given}
        if outputs is None:
            outputs = [Ref(Output(i, o.aval)) for i, o in enumerate(program.outputs)]
        self.outputs = list(outputs)
        self.outside |= {r.buffer for r in self.outputs}
        self.fused: Fused = fuse(program, can_fuse)
        show_groups(self.fused)
        self.written: set[Any] = set()  # by the equation being lowered
        self.origin: Group | None = None  # the group being lowered; None: results are copied
        self._bind_outputs()
        for group in self.fused.groups:
            self._group(group)
        self._copy_outputs()
        self._join_regions()

    # ---- buffers
    def _bind_outputs(self) -> None:
        """Let results be computed where they are returned from."""
        self.bound: set[int] = set()
        for i, o in enumerate(self.program.outputs):
            if o.__class__ is not Var or o.aval.size == 0:
                continue
            view = self.fused.view(o)
            base = view.base
            if base in self.fused.group_of and base not in self.refs and _is_whole(view):
                self.refs[base] = self.outputs[i]
                self.bound.add(i)

    def _copy_outputs(self) -> None:
        self.origin = None
        for i, o in enumerate(self.program.outputs):
            if i not in self.bound and o.aval.size:
                self.begin({self.outputs[i].buffer})
                whole = self.out_operand(self.outputs[i], o.aval)
                slicing.copy(whole, self.operand(o), self)

    def ref(self, base: Var | Literal) -> Ref:
        """Where a variable or a constant lies."""
        if base.__class__ is Literal:
            return Ref(self.constant(np.asarray(base.val)))
        found = self.refs.get(base)  # type: ignore[arg-type]
        if found is None:
            found = self.refs[base] = Ref(base)  # type: ignore[index]
        return found

    def constant(self, value: np.ndarray) -> Constant:
        """The buffer of a constant; equal ones are kept once."""
        key = (str(value.dtype), value.shape, value.tobytes())
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = Constant(np.ascontiguousarray(value))
        return found

    def operand(self, a: Any) -> Operand:
        """Where an atom's elements lie."""
        view: View = self.fused.view(a)
        dtype = np.dtype(view.base.aval.dtype)
        ref = self.ref(view.base).at(view.offset * dtype.itemsize)
        return Operand(ref, view.shape, view.strides, dtype)

    def out_operand(self, ref: Ref, aval: Any) -> Operand:
        dtype = np.dtype(aval.dtype)
        return Operand(ref, aval.shape, loop_strides(aval.shape), dtype)

    # ---- what lowerings ask for
    def scratch(self, nbytes: int) -> Ref:
        room = Scratch(max(nbytes, 1))
        self.written.add(room)
        return Ref(room)

    def stage(self, *launches: Launch) -> None:
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
        self.steps.append(Region(launched, reads, writes))

    def contiguous(self, x: Operand) -> Operand:
        if x.contiguous:
            return x
        whole = Operand(self.scratch(x.size * x.dtype.itemsize), x.shape, loop_strides(x.shape),
                        x.dtype)
        slicing.copy(whole, x, self)
        return whole

    def before_loops(self, x: Ref, key: Any, make: Callable[[Plan], Ref]) -> Ref | None:
        """What `make` derives from x by stages before the loops that x does not change in.

        None where there is no such loop; `key` tells what is made of x, so that it is made once."""
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
        """Say which buffers the stages that follow write, besides scratch."""
        self.written = set(writes)

    # ---- steps
    def _group(self, group: Group) -> None:
        self.origin = group
        if group.fusible:
            self.begin({self._written_by(v) for v in group.maps if v in self.fused.stored})
            if self.written:
                self._loops(loop_nests.build(self.fused, group, self._stages(group)))
        else:
            self._equation(group.members[0].equation)

    def _written_by(self, v: Var) -> Any:
        """What is written where a variable is stored: a buffer, or its part of one."""
        base = self.fused.view(v).base
        buffer = self.ref(base).buffer
        return buffer if base is v else Part(buffer, v)

    def _equation(self, e: Equation) -> None:
        outs = [self.out_operand(self.ref(o), o.aval) for o in e.outs]
        ins = [self.operand(a) for a in e.ins]
        lower = lowering_of(e)
        if lower is not None and all(o.size for o in outs):
            self.begin({o.ref.buffer for o in outs})
            before = len(self.steps)
            if lower(e.op, ins, outs, self):
                for step in self.steps[before:]:
                    if not isinstance(step, Region):
                        step.origin = self.origin  # a loop; launches have theirs from `stage`
                return
            assert len(self.steps) == before, f"{e.op.name}: steps of a lowering that gave up"
        self.steps.append(EagerStep(e, ins, outs))

    @staticmethod
    def _stages(group: Group) -> bool:
        """Whether a reduction's rows are each one thread's work."""
        from toile.compiler.fusion import FEW_ROWS, LONG_ROW

        if group.reduced is None:
            return False
        row = group.size(tuple(group.reduced))
        rows = group.size(tuple(a for a in group.order if a not in group.reduced))
        return row < LONG_ROW or rows >= FEW_ROWS

    def _loops(self, x: Loops) -> None:
        nest = x.nest = rounding(x.nest, flags.allow_excess_precision)
        if nest.kind == "partial":
            self._parts(x)
        elif nest.kind == "column":
            self._columns(x)
        else:
            n = nest.outer if nest.kind == "row" else max(nest.rank - 1, 0)
            units = _product(x.extents[:n]) if n or nest.kind == "row" else x.extents[0]
            per_unit = 1 if nest.kind == "map" and nest.rank == 1 else _product(x.extents[n:])
            grain = grain_of_map(nest) if per_unit == 1 else grain_of_rows(nest, per_unit)
            self.stage(self._launch(x, [], units, grain))

    def _launch(
        self, x: Loops, extra: list[int], units: int, grain: int, totals: Sequence[Ref] = ()
    ) -> Launch:
        args: list[int | Ref] = [*x.extents, *extra]
        for p in [*x.loads, *x.stores]:
            size = p.dtype.itemsize
            base = p.base if isinstance(p.base, Ref) else self.ref(p.base)
            args.append(base.at(p.offset * size))
            args += [s * size for s in p.strides]
        args += totals
        for c in x.constants:
            args += nests.constant_words(c)
        reads = frozenset(
            a.buffer for p in x.loads
            for a in [p.base if isinstance(p.base, Ref) else self.ref(p.base)]
        )
        work = cost(x.nest) * _product(x.extents) + 100
        return Launch(nests.text(x.nest), tuple(args), units, grain, x.nest.kind, reads, work)

    def _parts(self, x: Loops) -> None:
        """Long sums: parts of each row by themselves, then the sums of the parts."""
        nest = x.nest
        outer = nest.outer
        rows = _product(x.extents[:outer])
        parts, step = split_row(x.extents[outer:], rows)
        sums, stores, places = [], [], []
        for (n, access), place in zip(nest.stores, x.stores, strict=True):
            node = nest.nodes[n]
            if not isinstance(node, Reduce):
                stores.append((n, access))
                places.append(place)
                continue
            dtype = nests.accumulator(node.dtype)
            ref = self.scratch(rows * parts * dtype.itemsize)
            stores.append((n, Access(dtype, 0, False)))
            places.append(Place(ref, 0, (0,) * nest.rank, dtype))  # type: ignore[arg-type]
            sums.append((node, ref, place))
        nest = replace(nest, stores=tuple(stores))
        part = replace_loops(x, nest, places)
        self.stage(self._launch(part, [parts, step], rows * parts, 1))
        for node, ref, place in sums:
            self._combine(x, node, ref, place, parts, x.extents[:outer])

    def _combine(
        self, x: Loops, node: Reduce, ref: Ref, out: Place, parts: int, outer: Sequence[int]
    ) -> None:
        """Sum partial results that lie as rows of `parts`."""
        dtype = nests.accumulator(node.dtype)
        rank = len(outer)
        nest = LoopNest(
            "row", rank, 1, 0, (Load(0), Reduce(node.kind, 0, node.dtype)),
            (Access(dtype, 1, True),), ((1, Access(out.dtype, 0, False)),), (),
        )
        source = Place(ref, 0, (*(s * parts for s in loop_strides(outer)), 1),  # type: ignore
                       dtype)
        target = Place(out.base, out.offset, (*out.strides[:rank], 0), out.dtype)
        call = Loops(nest, (*outer, parts), [source], [target], [], x.group)
        self.stage(self._launch(call, [], _product(outer), grain_of_rows(nest, parts)))

    def _columns(self, x: Loops) -> None:
        """Sums over outer axes: parts of rows, blocks of columns, then the sums of the parts."""
        nest = x.nest
        outer, reduced = nest.outer, nest.reduced
        kept = (*x.extents[:outer], *x.extents[outer + reduced:])
        rows, columns = _product(kept[:outer]), _product(kept[outer:])
        parts, step, blocks, width = split_columns(
            rows, x.extents[outer: outer + reduced], x.extents[outer + reduced:])
        totals, later = [], []
        for n, node in enumerate(nest.nodes):
            if not isinstance(node, Reduce):
                continue
            places = [p for (m, _), p in zip(nest.stores, x.stores, strict=True) if m == n]
            dtype = nests.accumulator(node.dtype)
            direct = parts == 1 and places and places[0].dtype == dtype and _fills(
                places[0], kept, outer, reduced)
            if direct:
                totals.append(self.ref(places[0].base))
                # A larger batch would need it: then nothing is left to compile.
                self.also.add(nests.text(_parts_nest(node, len(kept), dtype)))
                places = places[1:]
            else:
                totals.append(self.scratch(parts * rows * columns * dtype.itemsize))
            later += [(node, totals[-1], p) for p in places]
        units = rows * parts * blocks
        self.stage(self._launch(x, [parts, step, blocks, width], units, 1, totals))
        for node, ref, place in later:
            out = (*place.strides[:outer], *place.strides[outer + reduced:])
            self._sum_parts(x, node, ref, replace_place(place, out), parts, kept)

    def _sum_parts(
        self, x: Loops, node: Reduce, ref: Ref, out: Place, parts: int, kept: Sequence[int]
    ) -> None:
        """Sum totals, of which there are `parts` arrays: a short strided row for each element."""
        dtype = nests.accumulator(node.dtype)
        nest = _parts_nest(node, len(kept), out.dtype)
        strides = (*loop_strides(kept), _product(kept))
        source = Place(ref, 0, strides, dtype)  # type: ignore[arg-type]
        target = replace_place(out, (*out.strides, 0))
        call = Loops(nest, (*kept, parts), [source], [target], [], x.group)
        self.stage(self._launch(call, [], _product(kept), grain_of_rows(nest, parts)))

    # ---- joining
    def _join_regions(self) -> None:
        joined: list[Any] = []
        for step in self.steps:
            last = joined[-1] if joined else None
            if isinstance(step, Region) and isinstance(last, Region) and last.independent(step):
                last.launches += step.launches
                last.reads |= step.reads
                last.writes |= step.writes
            else:
                joined.append(step)
        self.steps = joined

    # ---- memory
    def arena(self) -> tuple[dict[Any, int], int]:
        """Offsets of the temporaries, those of loops' bodies included, and their bytes."""
        spans: dict[Any, list[int]] = {}
        nested: dict[Any, dict[Any, int]] = {}
        sizes: dict[Any, int] = {}
        for i, step in enumerate(self.steps):
            for b in map(whole_buffer, step.reads | step.writes):
                if isinstance(b, (Var, Scratch)) and b not in self.outside:
                    spans.setdefault(b, [i, i])[1] = i
                    sizes[b] = b.nbytes if isinstance(b, Scratch) else b.aval.nbytes
            for child in getattr(step, "children", ()):
                block = Scratch(0)
                nested[block], sizes[block] = child.arena()
                spans[block] = [i, i]
        offsets, total = assign([Interval(b, sizes[b], *span) for b, span in spans.items()])
        for block, inner in nested.items():
            start = offsets.pop(block)
            offsets.update({b: start + o for b, o in inner.items()})
        return offsets, total

    def all_steps(self) -> Iterator[Any]:
        """The steps, with those of loops' bodies."""
        for step in self.steps:
            yield step
            for child in getattr(step, "children", ()):
                yield from child.all_steps()


def _parts_nest(node: Reduce, rank: int, dtype: np.dtype) -> LoopNest:
    """The nest that sums a short strided row for each element of an array of totals."""
    return LoopNest(
        "row", rank, 1, 0, (Load(0), Reduce(node.kind, 0, node.dtype)),
        (Access(nests.accumulator(node.dtype), 2, True),), ((1, Access(dtype, 0, False)),), (),
    )


def replace_loops(x: Loops, nest: LoopNest, stores: list[Place]) -> Loops:
    return Loops(nest, x.extents, x.loads, stores, x.constants, x.group)


def replace_place(place: Place, strides: tuple[int, ...]) -> Place:
    return Place(place.base, place.offset, strides, place.dtype)


def _is_whole(view: View) -> bool:
    base = view.base.aval.shape
    return view.offset == 0 and view.shape == base and view.strides == loop_strides(base) or (
        view.offset == 0 and _product(view.shape) == _product(base)
        and Operand(Ref(None), view.shape, view.strides, None).contiguous
    )


def _fills(place: Place, kept: Sequence[int], outer: int, reduced: int) -> bool:
    """Whether a store is the row-major array over the axes that are kept."""
    strides = (*place.strides[:outer], *place.strides[outer + reduced:])
    expected = loop_strides(kept)
    return place.offset == 0 and all(
        s == e or n == 1 for s, e, n in zip(strides, expected, kept, strict=True))


def _product(ns: Sequence[int]) -> int:
    out = 1
    for n in ns:
        out *= n
    return out


def loop_strides(shape: Sequence[int]) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


__all__ = ["Constant", "EagerStep", "Moving", "Output", "Plan", "Region"]
