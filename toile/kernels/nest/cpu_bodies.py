"""The inner functions of loop nests: the work of a kernel on one row, block or column.

`body(nest)` writes the inner function of a `LoopNest`, by the nest's kind: maps compute one row,
reductions make passes over a row, and columns add rows to an array of totals. Its pointers do not
alias, which LLVM's vectorizer needs to know. `kernels.nest.cpu` loops over the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from toile.compiler.ir.loop_nests import Apply, Index, LoopNest, Reduce, Total, rounds_total
from toile.compiler.scalar.builder import Value, kind
from toile.compiler.scalar.fusible import narrowed
from toile.compiler.scalar.totals import accumulator, first_total
from toile.compiler.scalar.totals import combine as combine_in_order
from toile.kernels.nest.shared import Nodes
from toile.primitives.bits import Xor
from toile.targets.llvm import text as ir
from toile.targets.llvm.scalars import Scalars, register

BLOCK = 256  # elements of a row that are summed before they are added to the row's total
SHORT, FEW = 63, 7  # elements: the longest innermost axes of two classes with code of their own


def length_class(nest: LoopNest, n: int) -> int | None:
    """The class of loops over n elements, the innermost axis: `FEW`, `SHORT`, or None.

    If several vectors were computed at once, most of a short loop would run without vectors."""
    if n > SHORT or nest.rank == 1 or nest.kind == "partial":
        return None
    return FEW if n <= FEW else SHORT


def body(nest: LoopNest, length: int | None = None) -> Body:
    """Write the inner function of a nest; `length` is the `length_class` of its innermost axis."""
    kinds: dict[str, type[Body]] = {"map": _MapBody, "column": _ColumnBody}
    out = kinds.get(nest.kind, _RowBody)(nest)
    out.f.short = length is not None
    out.f.masked = length == SHORT and any(
        isinstance(node, Apply) and node.op.costly for node in nest.nodes)
    out.write()
    return out


def combine(k: Scalars, name: str, total: Value, x: Value, any_order: bool = True) -> Value:
    """One step of a reduction; to be vectorized, float sums and products must allow any order.

    The largest of 0 and -0 may be either: on x86-64, to distinguish them takes half of the time."""
    if name in ("reduce_max", "reduce_min") and kind(total.dtype) == "f":
        return k.extreme(name.removeprefix("reduce_"), total, x)
    if not any_order or name not in ("reduce_sum", "reduce_prod") or kind(total.dtype) not in "fc":
        return combine_in_order(k, name, total, x)
    if name == "reduce_prod" and total.imag:
        return k.mul(total, x)
    step = f"{'fadd' if name == 'reduce_sum' else 'fmul'} reassoc {register(total.dtype)}"
    re = k.f.value(f"{step} {total.name}, {x.name}")
    return Value(re, total.dtype, k.f.value(f"{step} {total.imag}, {x.imag}") if total.imag else "")


def words_of_constants(nest: LoopNest) -> int:
    """How many words the constants take."""
    return sum(2 if kind(d) == "c" else 1 for d in nest.constants)


class Body(Nodes):
    """The inner function: parameters, operands, nodes; subclasses write the loops."""

    def __init__(self, nest: LoopNest):
        super().__init__(nest)
        # Random bits are mixed counts, hidden from LLVM: it would analyze what the steps of a count
        # have in common, which takes a third of a kernel's compile time.
        self.draws = any(isinstance(n, Apply) and n.op.__class__ is Xor for n in nest.nodes)
        self.axes = self.loop_axes()
        self.f = ir.Function("body", self.parameters(), internal=True,
                             attributes="nounwind noinline")
        self.k: Scalars = Scalars(self.f)

    # ---- the signature; `_Kernel` passes the same arguments in the same order
    def loop_axes(self) -> list[int]:
        """The axes that the inner function loops over."""
        first = self.nest.outer - (self.nest.kind == "map")
        return list(range(first, self.nest.rank))

    def counts(self) -> list[tuple[int, ...]]:
        """The axes of each count that is used as a value."""
        return sorted({n.axes for n in self.nest.nodes if isinstance(n, Index)})

    def count_steps(self) -> list[tuple[int, int]]:
        """(count, axis) pairs: the inner loop axes along which a count does not step by one."""
        return [(j, a) for j, axes in enumerate(self.counts()) for a in axes[:-1] if a in self.axes]

    def sums(self) -> list[int]:
        """The reductions whose totals are arrays, each with its own pointer."""
        return []

    def parameters(self) -> list[str]:
        out = [f"i64 %n{a}" for a in self.axes]
        out += [f"ptr noalias %p{i}" for i in range(len(self.accesses) + len(self.sums()))]
        out += [f"i64 %s{i}_{a}" for i in range(len(self.accesses)) for a in self.axes]
        out += [f"i64 %c{i}" for i in range(words_of_constants(self.nest))]
        out += [f"i64 %x{j}" for j in range(len(self.counts()))]
        out += [f"i64 %x{j}_{a}" for j, a in self.count_steps()]
        out += [f"ptr noalias %w{n}" for n in sorted(self.nest.scratch)]
        return out

    # ---- operands
    def address(self, i: int, coordinates: dict[int, str]) -> tuple[str, ir.Operand]:
        """Pointer and element index of operand `i` at the current loop position."""
        access, pointer, last = self.accesses[i], f"%p{i}", self.axes[-1]
        for a, x in coordinates.items():
            if a != last:
                pointer = self.f.step(pointer, x, f"%s{i}_{a}")
        here: ir.Operand = coordinates.get(last, "0")
        if access.inner == 2:
            return self.f.step(pointer, here, f"%s{i}_{last}"), 0
        return pointer, here if access.inner else 0

    def load(self, operand: int, here: dict[int, str]) -> Value:
        pointer, index = self.address(operand, here)
        return self.k.load(pointer, index, self.nest.loads[operand].dtype)

    def pick(self, operand: int, index: Value, here: dict[int, str]) -> Value:
        pointer, place = self.address(operand, here)
        dtype = self.nest.loads[operand].dtype
        far = self.k.convert(index, np.dtype(np.int64))
        return self.k.load(self.f.step(pointer, far.name, dtype.itemsize), place, dtype)

    def count(self, axes: tuple[int, ...], dtype: np.dtype, here: dict[int, str]) -> Value:
        """A count at the current loop position; if the result is an integer, it is computed in that
        width, so that vectors hold more elements."""
        j, wide = self.counts().index(axes), np.dtype(np.int64)
        work = dtype if kind(dtype) in "iu" else wide
        number = lambda x: self.k.convert(Value(x, wide), work)
        out = number(f"%x{j}")
        for a in axes:
            if a in here:
                term = number(here[a])
                if a != axes[-1]:
                    term = self.k.mul(term, number(f"%x{j}_{a}"))
                out = self.k.add(out, term)
        if self.draws:
            out = self.k.opaque(out)
        return self.k.convert(out, dtype)

    def constant(self, index: int, dtype: np.dtype) -> Value:
        word = sum(2 if kind(d) == "c" else 1 for d in self.nest.constants[:index])
        return self.k.bits_argument(f"%c{word}", dtype, f"%c{word + 1}")

    def store(self, s: int, value: Value, coordinates: dict[int, str]) -> None:
        i = len(self.nest.loads) + s
        pointer, index = self.address(i, coordinates)
        self.k.store(Value(value.name, self.accesses[i].dtype, value.imag), pointer, index)

    def varying_stores(self) -> list[int]:
        """The stores made in each step of the loops."""
        return [s for s, (n, a) in enumerate(self.nest.stores) if self.varies[n] or a.varies]

    def store_others(self, done: list[int]) -> None:
        """Make the stores that are not `done` yet, once, after the loops."""
        rest = {s: n for s, (n, _) in enumerate(self.nest.stores) if s not in done}
        self.evaluate(self.needed(list(rest.values())), {})
        for s, n in rest.items():
            self.store(s, self.values[n], {})

    @contextmanager
    def loops(
        self, axes: list[int], bounds: tuple[str, str] | None = None, vectorize: bool = True,
        independent: bool = False,
    ) -> Iterator[dict[int, str]]:
        """A loop over each axis, the last one to be vectorized; yields the coordinates.

        `bounds` are those of a single axis, if they are not its whole extent; `independent`: see
        `Function.loop`."""
        with ExitStack() as stack:
            coordinates = {}
            for a in axes:
                vector = True if vectorize and a == axes[-1] else None
                lo, hi = bounds or ("0", f"%n{a}")
                coordinates[a] = stack.enter_context(self.f.loop(
                    lo, hi, vectorize=vector, independent=independent and a == axes[-1]))
            yield coordinates

    @contextmanager
    def pass_over(
        self, wanted: list[int], axes: list[int], bounds: tuple[str, str] | None = None
    ) -> Iterator[dict[int, str]]:
        """Loops in which the wanted nodes are available; loop-invariant ones are written before."""
        nodes = self.needed(wanted)
        self.evaluate([n for n in nodes if not self.varies[n]], {})
        before = dict(self.values)
        with self.loops(axes, bounds) as coordinates:
            self.evaluate([n for n in nodes if self.varies[n]], coordinates)
            yield coordinates
        self.values = {n: v for n, v in self.values.items() if n in before}
        self.saved.update(n for n in nodes if n in self.nest.scratch)  # now in row buffers

    @abstractmethod
    def write(self) -> None:
        """Write the loops."""


class _MapBody(Body):
    """The loop over the innermost axis of a map."""

    def write(self) -> None:
        varying = self.varying_stores()
        if varying:
            with self.pass_over([self.nest.stores[s][0] for s in varying], self.axes) as at:
                for s in varying:
                    self.store(s, self.values[self.nest.stores[s][0]], at)
        self.store_others(varying)


class _RowBody(Body):
    """Passes over one row: each computes reductions that later ones use."""

    def write(self) -> None:
        full = self.varying_stores()
        for sums, _, stores in self.stages(full):
            self._pass(sums, stores)
        self.store_others(full)

    def _pass(self, sums: list[int], stores: list[int]) -> None:
        """One pass; sums are taken in blocks, to limit the accumulation of rounding errors."""
        f, nest = self.f, self.nest
        totals = {n: self.k.slot(self._first(n)) for n in sums}
        wanted = [self.reductions[n].arg for n in sums] + [self._stored(s) for s in stores]
        nodes = self.needed(wanted)
        self.evaluate([n for n in nodes if not self.varies[n]], {})
        if not any(self._rounds(n) for n in sums) or len(self.axes) > 1:
            self._accumulate(totals, wanted, stores, None)
        else:
            count = f"%n{self.axes[0]}"
            parts = {n: self.k.slot(self._first(n)) for n in sums}
            saved = set(self.saved)
            with f.loop(0, count, BLOCK) as start:
                for n in sums:
                    self.k.write(parts[n], self._first(n))
                end = f.smin(f.add(start, BLOCK), count)
                self.saved = set(saved)
                self._accumulate(parts, wanted, stores, (start, end))
                for n in sums:
                    total, part_ = self.k.read(totals[n]), self.k.read(parts[n])
                    total = combine(self.k, self.reductions[n].kind, total, part_, any_order=False)
                    self.k.write(totals[n], total)
        for n in sums:
            total = self.k.read(totals[n])
            self.values[n] = narrowed(self.k, total) if rounds_total(nest, n) else total

    def _accumulate(
        self, totals: dict[int, Value], wanted: list[int], stores: list[int],
        bounds: tuple[str, str] | None,
    ) -> None:
        """The loop of a pass over a row, or a part of it."""
        with self.pass_over(wanted, self.axes, bounds) as at:
            for n, slot in totals.items():
                node = self.reductions[n]
                total = combine(self.k, node.kind, self.k.read(slot), self.values[node.arg])
                self.k.write(slot, total)
            for s in stores:
                self.store(s, self.values[self._stored(s)], at)

    def _stored(self, s: int) -> int:
        """The node that a store or a total reads."""
        n = self.nest.stores[s][0]
        node = self.nest.nodes[n]
        return node.arg if isinstance(node, Total) else n

    def store(self, s: int, value: Value, coordinates: dict[int, str]) -> None:
        node = self.nest.nodes[self.nest.stores[s][0]]
        if isinstance(node, Total):  # combine the current value with this row
            i = len(self.nest.loads) + s
            found = self.k.load(*self.address(i, coordinates), self.accesses[i].dtype)
            x = Value(value.name, found.dtype, value.imag)
            value = combine(self.k, node.kind, found, x, any_order=False)
        super().store(s, value, coordinates)

    def _first(self, n: int) -> Value:
        """The initial value of a reduction."""
        node = self.reductions[n]
        return first_total(self.k, node.kind, node.dtype)

    def _rounds(self, n: int) -> bool:
        """Whether a reduction accumulates rounding errors."""
        node = self.reductions[n]
        return node.kind == "reduce_sum" and kind(node.dtype) in "fc"

    # ---- row buffers
    def node(self, n: int, here: dict[int, str]) -> Value:
        if n not in self.nest.scratch or not here:
            return super().node(n, here)
        node = self.nest.nodes[n]
        assert isinstance(node, Apply)
        dtype, at = node.dtype, here[self.axes[-1]]
        stored = accumulator(dtype)
        if n in self.saved:
            found = self.k.load(f"%w{n}", at, stored)
            return Value(found.name, dtype, found.imag)
        value = super().node(n, here)
        self.k.store(Value(value.name, stored, value.imag), f"%w{n}", at)
        return value


class _ColumnBody(Body):
    """Sums over outer axes, kept in an array of totals with the shape of the inner axes."""

    def sums(self) -> list[int]:
        return list(self.reductions)

    def write(self) -> None:
        nest, k = self.nest, self.k
        summed, inner = self.axes[: nest.reduced], self.axes[nest.reduced:]
        sums = self.sums()
        full = [s for s, (n, _) in enumerate(nest.stores) if not isinstance(nest.nodes[n], Reduce)]
        totals = {n: f"%p{len(self.accesses) + j}" for j, n in enumerate(sums)}
        with self.loops(inner) as at:
            for n, pointer in totals.items():
                node = self.reductions[n]
                stored = accumulator(node.dtype)
                k.store(first_total(self.k, node.kind, stored), pointer, self._linear(at, inner))
        wanted = [self.reductions[n].arg for n in sums] + [nest.stores[s][0] for s in full]
        self.wanted, self.full, self.pointers = self.needed(wanted), full, totals
        *outside, last = summed
        together = self._together()
        with self.loops(outside, vectorize=False) as rows:
            whole = self.f.mul(self.f.udiv(f"%n{last}", together), together)
            for lo, hi, count in (("0", whole, together), (whole, f"%n{last}", 1)):
                apart = bool(full)  # several rows are stored in each iteration
                with self.f.loop(lo, hi, count) as row, self.loops(inner, independent=apart) as at:
                    several = [self.f.add(row, i) for i in range(count)]
                    self._rows([{**rows, last: r, **at} for r in several], at, inner)

    def _together(self) -> int:
        """How many rows are added together before they are added to the totals: this saves passes
        over the totals, and rounding errors."""
        work = sum(isinstance(self.nest.nodes[n], Apply) for n in self.wanted)
        return 8 if work <= 4 else 4 if work <= 16 else 2

    def _rows(self, rows: list[dict[int, str]], at: dict[int, str], inner: list[int]) -> None:
        """Add some rows to the totals."""
        terms: dict[int, list[Value]] = {n: [] for n in self.pointers}
        for coordinates in rows:
            self.values = {}
            self.evaluate(self.wanted, coordinates)
            for n in terms:
                node = self.reductions[n]
                x = self.values[node.arg]
                terms[n].append(Value(x.name, accumulator(node.dtype), x.imag))
            for s in self.full:
                self.store(s, self.values[self.nest.stores[s][0]], coordinates)
        place = self._linear(at, inner)
        for n, xs in terms.items():
            node, pointer = self.reductions[n], self.pointers[n]
            while len(xs) > 1:  # pairwise
                xs = [combine(self.k, node.kind, a, b, any_order=False)
                      for a, b in zip(xs[::2], xs[1::2], strict=True)]
            found = self.k.load(pointer, place, accumulator(node.dtype))
            total = combine(self.k, node.kind, found, xs[0], any_order=False)
            self.k.store(total, pointer, place)

    def _linear(self, at: dict[int, str], inner: list[int]) -> str:
        place = at[inner[0]]
        for a in inner[1:]:
            place = self.f.add(self.f.mul(place, f"%n{a}"), at[a])
        return place
