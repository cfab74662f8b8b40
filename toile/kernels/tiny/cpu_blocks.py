"""Blocks of arrays at positions that are known only at run time, for programs of tiny arrays.

An array is a list of registers, one for each element, or it stays in memory (`Stored`). Blocks of
the former are accessed through a copy on the stack; the latter is read and updated in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.views import row_major
from toile.compiler.scalar.builder import BOOL, INT64, Unsupported, Value, kind
from toile.engine.program import Equation
from toile.kernels.scatter.shared import window_sizes
from toile.primitives.addresses import fill_number
from toile.primitives.arrays.gather_arrays import default_fill
from toile.primitives.dynamic_slices import DynamicSlice
from toile.primitives.gathers import Gather, Scatter
from toile.targets.llvm import text as ir
from toile.targets.llvm.scalars import Scalars, memory

Elements = list[Value]  # of one array, in row-major order


class Stored(NamedTuple):
    """An array of which only blocks are read and written: it stays in memory."""

    pointer: str
    extents: tuple[ir.Operand, ...]
    strides: tuple[ir.Operand, ...]  # in bytes
    dtype: Any
    writable: bool  # whether the loop owns it: a carry


Held = Elements | Stored


class Blocks:
    """The memory accesses of a writer."""

    def __init__(self, f: ir.Function):
        self.f, self.k = f, Scalars(f)
        self.exact: set[str] = set()  # registers that hold narrow floats without excess precision

    def known(self, xs: Iterable[Value]) -> Elements:
        """The same values, recorded to have no excess precision."""
        out = list(xs)
        self.exact.update(x.name for x in out)
        return out

    # ---- the stack
    def room(self, size: int, dtype: Any) -> str:
        """Stack memory for an array."""
        return self.f.alloca(memory(dtype), size * (2 if kind(dtype) == "c" else 1), 16)

    def spilled(self, xs: Elements) -> str:
        """A copy on the stack."""
        where = self.room(len(xs), xs[0].dtype)
        self.store_all(xs, where)
        return where

    def store_all(self, xs: Elements, pointer: str) -> None:
        """Store elements contiguously."""
        for i, x in enumerate(xs):
            self.k.store(x, pointer, i)

    def loaded(self, pointer: str, offsets: Iterable[int], dtype: Any) -> Elements:
        """Elements from memory."""
        return self.known(self.k.load(pointer, i, dtype) for i in offsets)

    def _in_memory(self, x: Held, shape: Sequence[int]) -> Stored:
        if isinstance(x, Stored):
            return x
        size = x[0].dtype.itemsize
        strides = tuple(s * size for s in row_major(tuple(shape)))
        return Stored(self.spilled(x), tuple(shape), strides, x[0].dtype, True)

    # ---- blocks
    def _blocks_of(self, e: Equation, ins: list[Any]) -> Stored:
        """The array that an equation reads or updates blocks of."""
        operand, *rest = ins
        if any(isinstance(x, Stored) for x in rest):
            raise Unsupported("indices, or an update, that stay in memory")
        x = self._in_memory(operand, e.ins[0].aval.shape)
        if e.op.updates and not x.writable:
            raise Unsupported("an update of an array that is not the loop's own")
        return x

    def _updated(self, x: Stored, operand: Held) -> list[Held]:
        if isinstance(operand, Stored):
            return [operand]
        return [self.loaded(x.pointer, range(len(operand)), x.dtype)]

    def dynamic_slice(self, op: DynamicSlice, e: Equation, ins: list[Any]) -> list[Held]:
        x = self._blocks_of(e, ins)
        pointer, _ = self._begin(e, x, [v[0] for v in ins[1:]], op.sizes, True)
        return [self._read(pointer, op.sizes, x)]

    def dynamic_update_slice(self, op: Any, e: Equation, ins: list[Any]) -> list[Held]:
        x, sizes = self._blocks_of(e, ins), e.ins[1].aval.shape
        pointer, _ = self._begin(e, x, [v[0] for v in ins[2:]], sizes, True)
        for value, place in zip(ins[1], np.ndindex(*sizes), strict=True):
            self.k.store(value, self._at(pointer, place, x), 0)
        return self._updated(x, ins[0])

    def index(self, x: Value) -> str:
        """An integer as i64, the type that addresses are computed in."""
        if kind(x.dtype) == "u" and x.dtype.itemsize == 8:
            raise Unsupported("indices beyond 63 bits")
        return self.k.convert(x, INT64).name

    def _begin(
        self, e: Equation, x: Stored, starts: Sequence[Value | None], sizes: Sequence[int],
        clip: bool,
    ) -> tuple[str, Value | None]:
        """The first address of a block, and whether it is inside (None: it always is).

        The address is inside the array in any case."""
        f, shape = self.f, e.ins[0].aval.shape
        pointer, inside = x.pointer, None
        for axis, start in enumerate(starts):
            if start is None or clip and sizes[axis] == shape[axis]:
                continue
            given = self.index(start)
            last = f.sub(x.extents[axis], sizes[axis])
            at = f.smax(f.smin(given, last), 0)
            if not clip:
                fits = Value(f.compare("eq", at, given), BOOL)
                inside = fits if inside is None else self.k.and_(inside, fits)
            pointer = f.step(pointer, at, x.strides[axis])
        return pointer, inside

    def _at(self, pointer: str, place: Sequence[int], x: Stored) -> str:
        for i, s in zip(place, x.strides, strict=True):
            if i:
                pointer = self.f.offset(pointer, i * s if isinstance(s, int) else self.f.mul(i, s))
        return pointer

    def _read(self, pointer: str, sizes: Sequence[int], x: Stored) -> Elements:
        return self.known(self.k.load(self._at(pointer, place, x), 0, x.dtype)
                          for place in np.ndindex(*sizes))

    # ---- several blocks
    def _starts(
        self, e: Equation, indices: Elements, mapped: Sequence[int]
    ) -> list[list[Value | None]]:
        """The starts, by axis, of each block."""
        rank, width = e.ins[0].aval.ndim, e.ins[1].aval.shape[-1]
        out = []
        for first in range(0, len(indices), width) if width else [0]:
            starts: list[Value | None] = [None] * rank
            for axis, v in zip(mapped, indices[first: first + width], strict=True):
                starts[axis] = v
            out.append(starts)
        return out

    def gather(self, op: Gather, e: Equation, ins: list[Any]) -> list[Held]:
        x, indices = self._blocks_of(e, ins), ins[1]
        numbers, sizes = op.dimension_numbers, op.slice_sizes
        if numbers.operand_batching_dims or not all(e.ins[1].aval.shape):
            raise Unsupported("a gather with batch axes")
        outside = fill_number(op.fill_value, x.dtype)
        outside = default_fill(np.dtype(x.dtype)) if outside is None else outside
        fill = self.k.constant(outside, x.dtype) if op.fills else None
        found = []
        for starts in self._starts(e, indices, numbers.start_index_map):
            pointer, inside = self._begin(e, x, starts, sizes, not op.fills)
            block = self._read(pointer, sizes, x)
            if fill is not None and inside is not None:
                block = [self.k.select(inside, v, fill) for v in block]
            found += block
        # Blocks were found one after the other; the result has their axes at `offset_dims`.
        batch = e.ins[1].aval.shape[:-1]
        kept = [n for i, n in enumerate(sizes) if i not in numbers.collapsed_slice_dims]
        order = np.arange(len(found)).reshape((*batch, *kept))
        source = range(len(batch), order.ndim)
        return [self.known(found[i] for i in np.moveaxis(order, source, numbers.offset_dims).flat)]

    def scatter(self, op: Scatter, e: Equation, ins: list[Any]) -> list[Held]:
        x, (indices, updates) = self._blocks_of(e, ins), ins[1:]
        numbers, shape = op.dimension_numbers, e.ins[2].aval.shape
        if numbers.operand_batching_dims or not all(e.ins[1].aval.shape):
            raise Unsupported("a scatter with batch axes")
        sizes = window_sizes(op, shape, e.ins[0].aval.ndim)
        order = np.arange(len(updates)).reshape(shape)
        inner = range(order.ndim - len(numbers.update_window_dims), order.ndim)
        order = np.moveaxis(order, numbers.update_window_dims, inner).reshape(-1, math.prod(sizes))
        for row, starts in zip(order, self._starts(e, indices, numbers[2]), strict=True):
            pointer, inside = self._begin(e, x, starts, sizes, op.clips)
            for i, place in zip(row, np.ndindex(*sizes), strict=True):
                self._combine(op.combine, updates[i], self._at(pointer, place, x), inside)
        return self._updated(x, ins[0])

    def _combine(self, how: str, update: Value, where: str, inside: Value | None) -> None:
        """Combine one element of an update; if it is outside, memory is not changed."""
        k = self.k
        steps: dict[str, Callable[[Value, Value], Value]] = {
            "add": k.add, "sub": k.sub, "mul": k.mul, "min": k.minimum, "max": k.maximum}
        if how == "set" and inside is None:
            k.store(update, where, 0)
            return
        before = k.load(where, 0, update.dtype)
        after = update if how == "set" else steps[how](before, update)
        k.store(after if inside is None else k.select(inside, after, before), where, 0)
