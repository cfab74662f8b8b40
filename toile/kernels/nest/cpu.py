"""Loop nests as LLVM text.

`text(nest)` is the kernel of a `LoopNest`. The work of one row (in maps: of the innermost axis) is
an inner function whose pointers do not alias, which LLVM's vectorizer needs to know; the kernel
loops over the rows of its chunk. Arguments, in 64-bit words:

  extents by axis; for partial: parts, step; for column: parts, step, blocks, width; for row with
  totals: step;
  for each operand (loads, then stores): slot, offset, strides by axis in bytes;
  for each constant: its bits (complex: two words)
"""

from __future__ import annotations

import functools

import numpy as np

from toile.compiler.ir.loop_nests import Apply, LoopNest, Reduce, Total
from toile.compiler.scalar import fusible
from toile.compiler.scalar.builder import kind
from toile.compiler.scalar.totals import accumulator, first_total
from toile.kernels.nest.cpu_bodies import Body, body, words_of_constants
from toile.targets.llvm import text as ir
from toile.targets.llvm.scalars import Scalars, memory, register

_CONSTANTS = {"i1": "true", "float": "0.0", "double": "0.0"}
can_fuse = fusible.rule(lambda: Scalars(ir.Function("probe", ())),
                        lambda dtype: _CONSTANTS.get(register(dtype), "1"), lambda op: op.by_index)
EXTRA = {"map": 0, "row": 0, "partial": 2, "column": 4}  # words after the extents


@functools.lru_cache(4096)
def text(nest: LoopNest, length: int | None = None) -> str:
    """The module that defines the kernel; `length` is the `length_class` of its innermost axis."""
    inner = body(nest, length)
    return ir.module(inner.f, _Kernel(nest, inner).f)


def scratch_dtype(nest: LoopNest, n: int) -> np.dtype:
    """The dtype of a node's row buffer."""
    node = nest.nodes[n]
    assert isinstance(node, Apply)
    return accumulator(node.dtype)


class _Kernel:
    """The kernel: finds the rows of its chunk and calls the inner function for each."""

    def __init__(self, nest: LoopNest, body: Body):
        self.nest, self.body = nest, body
        self.f = f = ir.kernel()
        self.extents = [f.argument(a) for a in range(nest.rank)]
        self.totalled = [s for s, (n, _) in enumerate(nest.stores)
                         if isinstance(nest.nodes[n], Total)]
        extra = EXTRA[nest.kind] + bool(self.totalled)
        self.extra = [f.argument(nest.rank + j) for j in range(extra)]
        word = nest.rank + extra
        self.pointers, self.strides = [], []
        for _ in body.accesses:
            self.pointers.append(f.buffer(word))
            self.strides.append([f.argument(word + 2 + a) for a in range(nest.rank)])
            word += 2 + nest.rank
        self.totals = []
        for _ in body.sums():
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
        elif self.totalled:
            self._rows_with_totals()
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
        """The coordinates of a row number along the first `count` axes."""
        out: dict[int, str] = {}
        rest = unit
        for a in reversed(range(count)):
            if a == 0:
                out[a] = rest
            else:
                rest, out[a] = self.f.divided(rest, self.extents[a])
        return out

    def _rows(self) -> None:
        outer = self.nest.outer - (self.nest.kind == "map")
        with self.f.loop("%lo", "%hi") as unit:
            at = self._coordinates(unit, outer) if outer else {}
            self._call([self.extents[a] for a in self.body.axes], self._moved(at), at)

    def _rows_with_totals(self) -> None:
        """Units are `step` rows, each with its own totals."""
        f, (step,), outer = self.f, self.extra, self.nest.outer
        size = [self._product(self.extents[:outer]), self._product(self.extents[outer:])]
        with f.loop("%lo", "%hi") as unit:
            start = f.mul(unit, step)
            places = {}
            for s in self.totalled:
                n, access = self.nest.stores[s]
                node, i = self.nest.nodes[n], len(self.nest.loads) + s
                assert isinstance(node, Total)
                place = f.mul(f.mul(unit, size[1]), access.dtype.itemsize)
                places[i] = f.offset(self.pointers[i], place)
                with f.loop(0, size[1], vectorize=True) as column:
                    k = Scalars(f)
                    k.store(first_total(k, node.kind, access.dtype), places[i], column)
            with f.loop(start, f.smin(f.add(start, step), size[0])) as row:
                at = self._coordinates(row, outer)
                pointers = [places.get(i, p) for i, p in enumerate(self._moved(at))]
                self._call([self.extents[a] for a in self.body.axes], pointers, at)

    def _product(self, extents: list[str]) -> ir.Operand:
        out: ir.Operand = 1
        for n in extents:
            out = self.f.mul(out, n)
        return out

    def _parts(self) -> None:
        f, (parts, step), first = self.f, self.extra, self.nest.outer
        with f.loop("%lo", "%hi") as unit:
            row, part_ = f.divided(unit, parts)
            start = f.mul(part_, step)
            at = self._coordinates(row, first) if first else {}
            at[first] = start
            counts = [self.extents[a] for a in self.body.axes]
            counts[0] = f.smin(step, f.sub(counts[0], start))
            pointers = self._moved(at)
            for s, (n, access) in enumerate(self.nest.stores):
                if isinstance(self.nest.nodes[n], Reduce):  # one element for each unit
                    i = len(self.nest.loads) + s
                    pointers[i] = f.step(self.pointers[i], unit, access.dtype.itemsize)
            self._call(counts, pointers, at)

    def _columns(self) -> None:
        f, (parts, step, blocks, width) = self.f, self.extra
        outer, reduced = self.nest.outer, self.nest.reduced
        inner = self._product(self.extents[outer + reduced:])
        rows = self._product(self.extents[:outer])
        with f.loop("%lo", "%hi") as unit:
            others, block = f.divided(unit, blocks)
            row, part_ = f.divided(others, parts)
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
            for pointer, n in zip(self.totals, self.body.sums(), strict=True):
                size = accumulator(self.body.reductions[n].dtype).itemsize
                totals.append(f.step(pointer, place, size))
            self._call(counts, [*self._moved(at), *totals], at)

    def _call(self, counts: list[str], pointers: list[str], at: dict[int, str]) -> None:
        strides = [s[a] for s in self.strides for a in self.body.axes]
        self.f.call(self.body.f, *counts, *pointers, *strides, *self.constants, *self._counts(at),
                    *self.scratch)

    def _counts(self, at: dict[int, str]) -> list[ir.Operand]:
        """The start of each count in the inner function, and its steps along the inner axes."""
        begin: list[ir.Operand] = []
        steps = {}
        for j, axes in enumerate(self.body.counts()):
            place: ir.Operand = 0
            step: ir.Operand = 1
            for a in reversed(axes):
                if a in at:
                    place = self.f.add(place, self.f.mul(at[a], step))
                steps[j, a] = step
                step = self.f.mul(step, self.extents[a])
            begin.append(place)
        return [*begin, *(steps[key] for key in self.body.count_steps())]
