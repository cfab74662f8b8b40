"""Loop nests as LLVM text.

`text(nest)` is the kernel of a `LoopNest`. The work of one row (in maps: of the innermost axis) is
an inner function whose pointers do not alias, which is what LLVM's vectoriser needs to know; the
kernel walks the rows of its chunk. Arguments, in 64-bit words:

  extents by axis; for partial: parts, step; for column: parts, step, blocks, width;
  for each operand (loads, then stores): slot, offset, strides by axis in bytes;
  for each constant: its bits (complex: two words)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from toile.backends.cpu import ir
from toile.backends.cpu.scalars import Scalars, memory, register
from toile.compiler.loops import (
    Access,
    Apply,
    Constant,
    Index,
    Load,
    LoopNest,
    Node,
    Reduce,
    levels,
)
from toile.compiler.scalars import FLOAT32, Value, is_narrow, kind, part
from toile.engine.operation import Operation
from toile.primitives.transcendental import Logistic

BLOCK = 256  # elements of a row that are added up before they are added to the row's total
EXTRA = {"map": 0, "row": 0, "partial": 2, "column": 4}  # words after the extents


@functools.lru_cache(4096)
def text(nest: LoopNest) -> str:
    """The module that defines the kernel."""
    if nest.kind == "column":
        body: _Body = _ColumnBody(nest)
    elif nest.kind == "map":
        body = _MapBody(nest)
    else:
        body = _RowBody(nest)
    body.write()
    return ir.module(body.f, _Kernel(nest, body).f)


def reductions(nest: LoopNest) -> dict[int, Reduce]:
    """The nodes that are reductions, by number."""
    return {n: node for n, node in enumerate(nest.nodes) if isinstance(node, Reduce)}


def scratch_dtype(nest: LoopNest, n: int) -> np.dtype:
    """What a row buffer holds for a node."""
    node = nest.nodes[n]
    assert isinstance(node, Apply)
    return accumulator(node.dtype)


def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype that partial sums are kept in."""
    return FLOAT32 if is_narrow(dtype) else dtype


class _Body:
    """The inner function: parameters, operands, nodes; kinds of nests write their loops."""

    def __init__(self, nest: LoopNest):
        self.nest = nest
        self.level, self.varies = levels(nest)
        self.accesses: list[Access] = [*nest.loads, *(a for _, a in nest.stores)]
        self.axes = self.loop_axes()
        self.f = ir.Function("body", self.parameters(), internal=True,
                             attributes="nounwind noinline")
        self.k = Scalars(self.f)
        self.values: dict[int, Value] = {}
        self.reductions = reductions(nest)

    # ---- the signature; `_Kernel` passes the same in the same order
    def loop_axes(self) -> list[int]:
        """The axes that the inner function loops over."""
        first = self.nest.outer - (self.nest.kind == "map")
        return list(range(first, self.nest.rank))

    def counted(self) -> list[int]:
        """The axes whose coordinates are values."""
        return sorted({n.axis for n in self.nest.nodes if isinstance(n, Index)})

    def pointers(self) -> int:
        return len(self.accesses)

    def parameters(self) -> list[str]:
        out = [f"i64 %n{a}" for a in self.axes]
        out += [f"ptr noalias %p{i}" for i in range(self.pointers())]
        out += [f"i64 %s{i}_{a}" for i in range(len(self.accesses)) for a in self.axes]
        out += [f"i64 %c{i}" for i in range(words_of_constants(self.nest))]
        out += [f"i64 %x{a}" for a in self.counted()]
        out += [f"ptr noalias %w{n}" for n in sorted(self.nest.scratch)]
        return out

    # ---- operands
    def address(self, i: int, coordinates: dict[int, str]) -> tuple[str, ir.Operand]:
        """Pointer and element index of operand `i` where the loops are."""
        access, pointer, last = self.accesses[i], f"%p{i}", self.axes[-1]
        for a, x in coordinates.items():
            if a != last:
                pointer = self.f.offset(pointer, self.f.mul(x, f"%s{i}_{a}"))
        here: ir.Operand = coordinates.get(last, "0")
        if access.inner == 2:
            return self.f.offset(pointer, self.f.mul(here, f"%s{i}_{last}")), 0
        return pointer, here if access.inner else 0

    def node(self, n: int, coordinates: dict[int, str]) -> Value:
        """Write the code of one node, whose arguments have been written."""
        node: Node = self.nest.nodes[n]
        match node:
            case Load(operand):
                pointer, index = self.address(operand, coordinates)
                return self.k.load(pointer, index, self.nest.loads[operand].dtype)
            case Constant(index, dtype):
                return self.constant(index, dtype)
            case Index(axis, dtype):
                x = f"%x{axis}"
                if axis in coordinates:
                    x = self.f.add(x, coordinates[axis])
                return self.k.convert(Value(x, np.dtype(np.int64)), dtype)
            case Apply(op, args, dtype):
                if dtype.name in self.nest.rounds:
                    return self.rounded(op, [self.values[a] for a in args], dtype)
                out = op.lower(self.k, *(self.values[a] for a in args))
                return out if out.dtype == dtype else Value(out.name, dtype, out.imag)
        raise AssertionError(node)

    def rounded(self, op: Operation, xs: list[Value], dtype: np.dtype) -> Value:
        """An operation on narrow floats, rounded; a logistic after each step of 1 / (1 + exp(-x)),
        as it is defined."""
        k = self.k
        wide = lambda x: k.convert(Value(x.name, FLOAT32), dtype)
        if isinstance(op, Logistic):
            return wide(k.div(1.0, wide(k.add(1.0, wide(k.exp(k.neg(xs[0])))))))
        return wide(op.lower(k, *xs))

    def constant(self, index: int, dtype: np.dtype) -> Value:
        word = sum(2 if kind(d) == "c" else 1 for d in self.nest.constants[:index])
        return self.k.bits_argument(f"%c{word}", dtype, f"%c{word + 1}")

    def store(self, s: int, value: Value, coordinates: dict[int, str]) -> None:
        i = len(self.nest.loads) + s
        pointer, index = self.address(i, coordinates)
        self.k.store(Value(value.name, self.accesses[i].dtype, value.imag), pointer, index)

    def needed(self, wanted: list[int], known: set[int]) -> list[int]:
        """The nodes to write for those wanted, in order; `known` ones and reductions are there."""
        found: set[int] = set()
        stack = list(wanted)
        while stack:
            n = stack.pop()
            if n in found or n in known:
                continue
            found.add(n)
            node = self.nest.nodes[n]
            if isinstance(node, Apply):
                stack += node.args
        return sorted(found)

    def evaluate(self, nodes: list[int], coordinates: dict[int, str]) -> None:
        for n in nodes:
            if n not in self.values:
                self.values[n] = self.node(n, coordinates)

    @contextmanager
    def loops(
        self, axes: list[int], bounds: tuple[str, str] | None = None
    ) -> Iterator[dict[int, str]]:
        """A loop over each axis, the last one for the vectoriser; gives the coordinates.

        `bounds` are those of a single axis, where they are not all of it."""
        with ExitStack() as stack:
            coordinates = {}
            for a in axes:
                vector = True if a == axes[-1] else None
                lo, hi = bounds or ("0", f"%n{a}")
                coordinates[a] = stack.enter_context(self.f.loop(lo, hi, vectorize=vector))
            yield coordinates

    @contextmanager
    def pass_over(
        self, wanted: list[int], axes: list[int], bounds: tuple[str, str] | None = None
    ) -> Iterator[dict[int, str]]:
        """Loops in which the wanted nodes are at hand; what does not vary is written before."""
        nodes = self.needed(wanted, set(self.values))
        self.evaluate([n for n in nodes if not self.varies[n]], {})
        before = dict(self.values)
        with self.loops(axes, bounds) as coordinates:
            self.evaluate([n for n in nodes if self.varies[n]], coordinates)
            yield coordinates
        self.values = {n: v for n, v in self.values.items() if n in before}

    def write(self) -> None:
        raise NotImplementedError

    # ---- reductions
    def combine(self, kind_: str, total: Value, x: Value, any_order: bool = True) -> Value:
        """One step of a reduction; sums of floats in any order are what vectors need."""
        k, f = self.k, self.f
        if any_order and kind_ in ("reduce_sum", "reduce_prod") and kind(total.dtype) in "fc":
            if kind_ == "reduce_prod" and total.imag:
                return k.mul(total, x)
            op, type = ("fadd" if kind_ == "reduce_sum" else "fmul"), register(total.dtype)
            re = f.value(f"{op} reassoc {type} {total.name}, {x.name}")
            im = f.value(f"{op} reassoc {type} {total.imag}, {x.imag}") if total.imag else ""
            return Value(re, total.dtype, im)
        step = {"reduce_sum": k.add, "reduce_prod": k.mul, "reduce_max": k.maximum,
                "reduce_min": k.minimum, "reduce_and": k.and_, "reduce_or": k.or_,
                "reduce_xor": k.xor}[kind_]
        return step(total, x)

    def start(self, kind_: str, dtype: np.dtype) -> Value:
        """What a reduction begins with."""
        return self.k.constant(identity(kind_, dtype), dtype)


def identity(kind_: str, dtype: np.dtype) -> object:
    """The number that leaves others as they are."""
    if kind_ in ("reduce_sum", "reduce_or", "reduce_xor"):
        return -0.0 if kind(dtype) in "fc" else 0
    if kind_ == "reduce_prod":
        return 1
    if kind_ == "reduce_and":
        return 1 if kind(dtype) == "b" else (-1 if kind(dtype) == "i" else np.iinfo(dtype).max)
    low = kind_ == "reduce_max"
    if kind(dtype) == "f":
        return float("-inf") if low else float("inf")
    if kind(dtype) == "b":
        return 0 if low else 1
    return np.iinfo(dtype).min if low else np.iinfo(dtype).max


class _MapBody(_Body):
    """The innermost axis of a map."""

    def write(self) -> None:
        varying = [s for s, (n, a) in enumerate(self.nest.stores) if self.varies[n] or a.varies]
        if varying:
            with self.pass_over([self.nest.stores[s][0] for s in varying], self.axes) as at:
                for s in varying:
                    self.store(s, self.values[self.nest.stores[s][0]], at)
        fixed = [s for s in range(len(self.nest.stores)) if s not in varying]
        self.evaluate(self.needed([self.nest.stores[s][0] for s in fixed], set(self.values)), {})
        for s in fixed:
            self.store(s, self.values[self.nest.stores[s][0]], {})


class _RowBody(_Body):
    """Passes over one row: each computes reductions that the next ones use."""

    def write(self) -> None:
        nest = self.nest
        reductions = list(self.reductions)
        full = [s for s, (n, a) in enumerate(nest.stores) if self.varies[n] or a.varies]
        last = max([self.level[nest.stores[s][0]] for s in full]
                   + [self.level[n] - 1 for n in reductions], default=0)
        self.kept: set[int] = set()  # nodes in row buffers
        for stage in range(last + 1):
            sums = [n for n in reductions if self.level[n] == stage + 1]
            stores = [s for s in full if self.level[nest.stores[s][0]] == stage]
            if sums or stores:
                self._pass(sums, stores)
        scalar = [s for s in range(len(nest.stores)) if s not in full]
        self.evaluate(self.needed([nest.stores[s][0] for s in scalar], set(self.values)), {})
        for s in scalar:
            self.store(s, self.values[nest.stores[s][0]], {})

    def _pass(self, sums: list[int], stores: list[int]) -> None:
        """One pass; sums are taken in blocks, so that rounding errors stay those of a block."""
        nest, f = self.nest, self.f
        totals = {n: self._slots(n) for n in sums}
        wanted = [self.reductions[n].arg for n in sums] + [nest.stores[s][0] for s in stores]
        nodes = self.needed(wanted, set(self.values))
        self.evaluate([n for n in nodes if not self.varies[n]], {})
        if not any(self._rounds(n) for n in sums) or len(self.axes) > 1:
            self._accumulate(totals, wanted, stores, None)
        else:
            count = f"%n{self.axes[0]}"
            parts = {n: self._slots(n) for n in sums}
            kept = set(self.kept)
            with f.loop(0, count, BLOCK) as start:
                for n in sums:
                    self._write(n, parts[n], self.start(self.reductions[n].kind,
                                                        self.reductions[n].dtype))
                end = f.smin(f.add(start, BLOCK), count)
                self.kept = set(kept)
                self._accumulate(parts, wanted, stores, (start, end))
                for n in sums:
                    total, part_ = self._read(n, totals[n]), self._read(n, parts[n])
                    total = self.combine(self.reductions[n].kind, total, part_, any_order=False)
                    self._write(n, totals[n], total)
        for n in sums:
            self.values[n] = self._read(n, totals[n])

    def _accumulate(
        self, totals: dict[int, tuple[str, str]], wanted: list[int], stores: list[int],
        bounds: tuple[str, str] | None,
    ) -> None:
        """The loop of a pass, over all of a row or some of it."""
        with self.pass_over(wanted, self.axes, bounds) as at:
            for n, slots in totals.items():
                node = self.reductions[n]
                total = self.combine(node.kind, self._read(n, slots), self.values[node.arg])
                self._write(n, slots, total)
            for s in stores:
                self.store(s, self.values[self.nest.stores[s][0]], at)

    def _rounds(self, n: int) -> bool:
        """Whether a reduction adds up rounding errors."""
        node = self.reductions[n]
        return node.kind == "reduce_sum" and kind(node.dtype) in "fc"

    # ---- totals in stack slots
    def _slots(self, n: int) -> tuple[str, str]:
        node = self.reductions[n]
        first, type = self.start(node.kind, node.dtype), register(node.dtype)
        re = self.f.variable(type, first.name)
        return re, self.f.variable(type, first.imag) if first.imag else ""

    def _read(self, n: int, slots: tuple[str, str]) -> Value:
        dtype = self.reductions[n].dtype
        type, (re, im) = register(dtype), slots
        return Value(self.f.load(type, re), dtype, self.f.load(type, im) if im else "")

    def _write(self, n: int, slots: tuple[str, str], value: Value) -> None:
        type = register(self.reductions[n].dtype)
        self.f.store(type, value.name, slots[0])
        if slots[1]:
            self.f.store(type, value.imag, slots[1])

    # ---- row buffers
    def needed(self, wanted: list[int], known: set[int]) -> list[int]:
        found: set[int] = set()
        stack = list(wanted)
        while stack:
            n = stack.pop()
            if n in found or n in known:
                continue
            found.add(n)
            node = self.nest.nodes[n]
            if isinstance(node, Apply) and n not in self.kept:
                stack += node.args
        return sorted(found)

    def node(self, n: int, coordinates: dict[int, str]) -> Value:
        if n not in self.nest.scratch or not coordinates:
            return super().node(n, coordinates)
        node = self.nest.nodes[n]
        assert isinstance(node, Apply)
        dtype, at = node.dtype, coordinates[self.axes[-1]]
        stored = accumulator(dtype)
        if n in self.kept:
            found = self.k.load(f"%w{n}", at, stored)
            return Value(found.name, dtype, found.imag)
        value = super().node(n, coordinates)
        self.k.store(Value(value.name, stored, value.imag), f"%w{n}", at)
        return value

    @contextmanager
    def pass_over(
        self, wanted: list[int], axes: list[int], bounds: tuple[str, str] | None = None
    ) -> Iterator[dict[int, str]]:
        nodes = self.needed(wanted, set(self.values))
        with super().pass_over(wanted, axes, bounds) as at:
            yield at
        self.kept.update(n for n in nodes if n in self.nest.scratch)


class _ColumnBody(_Body):
    """Sums over outer axes, kept in an array of totals with the shape of the inner axes."""

    def pointers(self) -> int:
        return len(self.accesses) + len(self.sums())

    def sums(self) -> list[int]:
        return list(reductions(self.nest))

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
                k.store(self.start(node.kind, stored), pointer, self._linear(at, inner))
        wanted = [self.reductions[n].arg for n in sums] + [nest.stores[s][0] for s in full]
        self.wanted, self.full, self.totals = self.needed(wanted, set()), full, totals
        *outside, last = summed
        together = self._together()
        with self.loops_over(outside) as rows:
            whole = self.f.mul(self.f.udiv(f"%n{last}", together), together)
            for lo, hi, count in (("0", whole, together), (whole, f"%n{last}", 1)):
                with self.f.loop(lo, hi, count) as row, self.loops(inner) as at:
                    several = [self.f.add(row, i) for i in range(count)]
                    self._rows([{**rows, last: r, **at} for r in several], at, inner)

    def _together(self) -> int:
        """How many rows are added up before they are added to the totals: this saves passes over
        the totals, and rounding errors."""
        work = sum(isinstance(self.nest.nodes[n], Apply) for n in self.wanted)
        return 8 if work <= 4 else 4 if work <= 16 else 2

    def _rows(self, rows: list[dict[int, str]], at: dict[int, str], inner: list[int]) -> None:
        """Add some rows to the totals."""
        terms: dict[int, list[Value]] = {n: [] for n in self.totals}
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
            node, pointer = self.reductions[n], self.totals[n]
            while len(xs) > 1:  # in pairs
                xs = [self.combine(node.kind, a, b, any_order=False)
                      for a, b in zip(xs[::2], xs[1::2], strict=True)]
            found = self.k.load(pointer, place, accumulator(node.dtype))
            total = self.combine(node.kind, found, xs[0], any_order=False)
            self.k.store(total, pointer, place)

    @contextmanager
    def loops_over(self, axes: list[int]) -> Iterator[dict[int, str]]:
        with ExitStack() as stack:
            yield {a: stack.enter_context(self.f.loop(0, f"%n{a}")) for a in axes}

    def _linear(self, at: dict[int, str], inner: list[int]) -> str:
        place = at[inner[0]]
        for a in inner[1:]:
            place = self.f.add(self.f.mul(place, f"%n{a}"), at[a])
        return place


class _Kernel:
    """The kernel: finds the rows of its chunk and calls the inner function for each."""

    def __init__(self, nest: LoopNest, body: _Body):
        self.nest, self.body = nest, body
        self.f = f = ir.kernel()
        self.extents = [f.argument(a) for a in range(nest.rank)]
        self.extra = [f.argument(nest.rank + j) for j in range(EXTRA[nest.kind])]
        word = nest.rank + EXTRA[nest.kind]
        self.pointers, self.strides = [], []
        for _ in body.accesses:
            self.pointers.append(f.buffer(word))
            self.strides.append([f.argument(word + 2 + a) for a in range(nest.rank)])
            word += 2 + nest.rank
        if nest.kind == "column":
            self.totals = []
            for _ in body.sums():  # type: ignore[attr-defined]
                self.totals.append(f.buffer(word))
                word += 2
        self.constants = [f.argument(word + i) for i in range(words_of_constants(nest))]
        self.scratch = [
            f.alloca(memory(scratch_dtype(nest, n)),
                     f.mul(self.extents[-1], 1 + (kind(scratch_dtype(nest, n)) == "c")), 64)
            for n in sorted(nest.scratch)
        ]
        if nest.kind == "column":
            self._columns()
        elif nest.kind == "partial":
            self._parts()
        elif nest.rank == 1 and nest.kind == "map":
            count = f.sub("%hi", "%lo")
            self._call([count], self._moved({0: "%lo"}), {0: "%lo"})
        else:
            self._rows()

    def _moved(self, coordinates: dict[int, str]) -> list[str]:
        """The operands' pointers at some coordinates."""
        out = []
        for pointer, strides in zip(self.pointers, self.strides, strict=True):
            total: ir.Operand = 0
            for a, x in coordinates.items():
                total = self.f.add(total, self.f.mul(x, strides[a]))
            out.append(self.f.offset(pointer, total))
        return out

    def _coordinates(self, unit: str, count: int) -> dict[int, str]:
        """Coordinates along the first `count` axes of a row's number."""
        out: dict[int, str] = {}
        rest = unit
        for a in reversed(range(count)):
            if a == 0:
                out[a] = rest
            else:
                quotient = self.f.udiv(rest, self.extents[a])
                out[a] = self.f.sub(rest, self.f.mul(quotient, self.extents[a]))
                rest = quotient
        return out

    def _rows(self) -> None:
        outer = self.nest.outer - (self.nest.kind == "map")
        with self.f.loop("%lo", "%hi") as unit:
            at = self._coordinates(unit, outer) if outer else {}
            self._call([self.extents[a] for a in self.body.axes], self._moved(at), at)

    def _parts(self) -> None:
        f, (parts, step), first = self.f, self.extra, self.nest.outer
        with f.loop("%lo", "%hi") as unit:
            row = f.udiv(unit, parts)
            start = f.mul(f.sub(unit, f.mul(row, parts)), step)
            at = self._coordinates(row, first) if first else {}
            at[first] = start
            counts = [self.extents[a] for a in self.body.axes]
            counts[0] = f.smin(step, f.sub(counts[0], start))
            pointers = self._moved(at)
            for s, (n, access) in enumerate(self.nest.stores):
                if isinstance(self.nest.nodes[n], Reduce):  # one element for each unit
                    i = len(self.nest.loads) + s
                    pointers[i] = f.offset(self.pointers[i],
                                           f.mul(unit, access.dtype.itemsize))
            self._call(counts, pointers, at)

    def _columns(self) -> None:
        f, (parts, step, blocks, width) = self.f, self.extra
        outer, reduced = self.nest.outer, self.nest.reduced
        inner: ir.Operand = 1
        for n in self.extents[outer + reduced:]:
            inner = f.mul(inner, n)
        rows: ir.Operand = 1
        for n in self.extents[:outer]:
            rows = f.mul(rows, n)
        with f.loop("%lo", "%hi") as unit:
            others = f.udiv(unit, blocks)
            block = f.sub(unit, f.mul(others, blocks))
            row = f.udiv(others, parts)
            part_ = f.sub(others, f.mul(row, parts))
            at = self._coordinates(row, outer) if outer else {}
            start, column = f.mul(part_, step), f.mul(block, width)
            at[outer] = f.add(at.get(outer, 0), start)
            last = self.nest.rank - 1
            at[last] = column
            counts = [self.extents[a] for a in self.body.axes]
            counts[0] = f.smin(step, f.sub(counts[0], start))
            counts[-1] = f.smin(width, f.sub(counts[-1], column))
            # totals are laid out as parts x rows x inner axes
            place = f.add(f.mul(f.add(f.mul(part_, rows), row), inner), column)
            totals = []
            for pointer, n in zip(self.totals, self.body.sums(), strict=True):  # type: ignore
                size = accumulator(self.body.reductions[n].dtype).itemsize
                totals.append(f.offset(pointer, f.mul(place, size)))
            self._call(counts, [*self._moved(at), *totals], at)

    def _call(self, counts: list[str], pointers: list[str], at: dict[int, str]) -> None:
        args = [f"i64 {n}" for n in counts]
        args += [f"ptr {p}" for p in pointers]
        args += [f"i64 {s[a]}" for s in self.strides for a in self.body.axes]
        args += [f"i64 {c}" for c in self.constants]
        args += [f"i64 {at.get(a, 0)}" for a in self.body.counted()]
        args += [f"ptr {w}" for w in self.scratch]
        self.f.do(f"call void @body({', '.join(args)})")


def words_of_constants(nest: LoopNest) -> int:
    """How many words the constants take."""
    return sum(2 if kind(d) == "c" else 1 for d in nest.constants)


def constant_words(value: np.ndarray) -> list[int]:
    """The words of one constant."""
    if kind(value.dtype) == "c":
        to = part(value.dtype)
        parts = [np.asarray(value.real, to), np.asarray(value.imag, to)]
        return [w for p in parts for w in constant_words(p)]
    raw = value.tobytes().ljust(8, b"\0")
    return [int(np.frombuffer(raw, np.int64)[0])]
