"""How gather, scatter and slices at computed positions are written in ONNX.

A place is the row-major index of an element in the flattened operand, as int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.avals import Aval
from toile.engine.program import Equation
from toile.exporting.numpy_writer import missing_rule
from toile.exporting.onnx_writer import OnnxWriter, Rule
from toile.exporting.sizes import Size, plus
from toile.primitives import dynamic_slices, gathers
from toile.primitives.addresses import fill_number
from toile.primitives.arrays.gather_arrays import default_fill

REDUCTIONS = {"set": "none", "add": "add", "sub": "add", "mul": "mul", "min": "min", "max": "max"}


class _Places:
    """The components of index vectors and the places of the windows that start there."""

    def __init__(self, w: OnnxWriter, indices: str, aval: Aval, shape: Sequence[int],
                 starts: Sequence[int], sizes: Sequence[int]):
        self.w, self.shape, self.sizes, self.starts = w, shape, sizes, list(starts)
        self.batch = aval.shape[:-1]
        indices = w.cast(indices, np.int64)
        self.columns = [w.node("Gather", [indices, w.constant(i, np.int64)], axis=aval.ndim - 1)
                        for i in range(len(starts))]
        self.zero = w.constant(0, np.int64)

    def limit(self, axis: int) -> str:
        """The largest start of a window along an axis."""
        n, m = self.shape[axis], self.sizes[axis]
        if isinstance(m, Size):
            same = isinstance(n, Size) and (n.scale, n.offset) == (m.scale, m.offset)
            assert same, "a window is as large as the batch or does not depend on it"
            return self.zero
        return self.w.number(plus(n, -int(m)))

    def inside(self) -> str | None:
        """Where all components are within bounds; None if there are no components."""
        found = None
        for axis, c in zip(self.starts, self.columns, strict=True):
            low = self.w.node("GreaterOrEqual", [c, self.zero])
            here = self.w.node("And", [low, self.w.node("LessOrEqual", [c, self.limit(axis)])])
            found = here if found is None else self.w.node("And", [found, here])
        return found

    def clamp(self) -> None:
        """Move windows so that they are within bounds."""
        self.columns = [self.w.node("Min", [self.w.node("Max", [c, self.zero]), self.limit(a)])
                        for a, c in zip(self.starts, self.columns, strict=True)]

    def row(self) -> tuple[int, str] | None:
        """The only axis that is indexed, with windows that cover all other axes."""
        part = [a for a, (n, m) in enumerate(zip(self.shape, self.sizes, strict=True)) if n != m]
        if len(self.starts) == 1 and part in ([], self.starts) and self.sizes[self.starts[0]] == 1:
            return self.starts[0], self.columns[0]
        return None

    def flat(self, batching: dict[int, int], kept: Sequence[int], e: Equation) -> str:
        """The places of all elements of all windows, with the axes of the batch and of windows."""
        w, rank = self.w, len(self.batch) + len(kept)
        total, stride = self.zero, 1
        for axis in reversed(range(len(self.shape))):
            parts = []
            if axis in self.starts:
                column = self.columns[self.starts.index(axis)]
                parts.append(w.reshape(column, [*self.batch, *(1,) * len(kept)]))
            if axis in batching:
                parts.append(self._along(self.batch[batching[axis]], batching[axis], rank))
            if axis in kept and self.sizes[axis] != 1:
                own = len(self.batch) + list(kept).index(axis)
                parts.append(self._along(self.sizes[axis], own, rank))
            for part in parts:
                if stride != 1:
                    part = w.node("Mul", [part, w.number(stride)])
                total = w.node("Add", [total, part])
            stride = _product(stride, self.shape[axis], axis, e)
        return total

    def _along(self, n: int, axis: int, rank: int) -> str:
        return self.w.reshape(self.w.count_to(n), [n if i == axis else 1 for i in range(rank)])


def _product(stride: int, n: int, axis: int, e: Equation) -> int:
    """The stride of the next axis; only the last product may be free."""
    if axis == 0:
        return 0
    if isinstance(n, Size) and isinstance(stride, Size):
        raise missing_rule("to_onnx", e)
    if isinstance(stride, Size):
        return Size(stride.scale * n, stride.offset * n)
    if isinstance(n, Size):
        return Size(n.scale * stride, n.offset * stride)
    return int(stride) * int(n)


def _gather(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    x, indices, out = e.ins[0].aval, e.ins[1].aval, e.outs[0].aval
    offset, collapsed, starts, batching, index_batching = op.dimension_numbers
    places = _Places(w, xs[1], indices, x.shape, starts, op.slice_sizes)
    inside = places.inside() if op.fills else None
    places.clamp()
    kept = [a for a in range(x.ndim) if a not in collapsed and a not in batching]
    lead = len(places.batch)
    row = places.row()
    if row is not None and list(collapsed) == [row[0]] and not batching:
        found = w.node("Gather", [xs[0], row[1]], axis=row[0])
        order = [*range(row[0], row[0] + lead),
                 *(i if i < row[0] else i + lead - 1 + 1 for i in range(len(kept)))]
        found = w.transpose(found, order)
    else:
        flat = places.flat(dict(zip(batching, index_batching, strict=True)), kept, e)
        shape = [*places.batch, *(op.slice_sizes[a] for a in kept)]
        flat = w.node("Expand", [flat, w.shape(shape)])
        found = w.node("Gather", [w.node("Reshape", [xs[0], w.ints(-1)]), flat], axis=0)
    if inside is not None:
        value = fill_number(op.fill_value, x.dtype)
        fill = w.constant(default_fill(x.dtype) if value is None else value, x.dtype)
        mask = w.reshape(inside, [*places.batch, *(1,) * len(kept)])
        found = w.where(mask, found, fill, x.dtype)
    batch, window = iter(range(lead)), iter(range(lead, out.ndim))
    return w.transpose(found, [next(window) if d in offset else next(batch)
                               for d in range(out.ndim)])


def _scatter(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    x, indices, updates = (a.aval for a in e.ins)
    window_dims, inserted, starts, batching, index_batching = op.dimension_numbers
    if x.dtype == np.bool_ or any(isinstance(n, Size) for n in x.shape[1:]):
        raise missing_rule("to_onnx", e)
    kept = [a for a in range(x.ndim) if a not in inserted and a not in batching]
    sizes: list[int] = [1] * x.ndim
    for axis, dim in zip(kept, window_dims, strict=True):
        sizes[axis] = updates.shape[dim]
    lead = [d for d in range(updates.ndim) if d not in window_dims]
    new = w.transpose(xs[2], [*lead, *window_dims])
    new = w.node("Neg", [new]) if op.combine == "sub" else new
    places = _Places(w, xs[1], indices, x.shape, starts, sizes)
    inside = None if op.clips else places.inside()
    places.clamp()
    flat = places.flat(dict(zip(batching, index_batching, strict=True)), kept, e)
    flat = w.node("Expand", [flat, w.shape([*places.batch, *(sizes[a] for a in kept)])])
    vector = w.node("Reshape", [xs[0], w.ints(-1)])
    length = w.node("Size", [vector])
    if inside is not None:  # windows that are out of bounds are written after the end
        mask = w.reshape(inside, [*places.batch, *(1,) * len(kept)])
        flat = w.node("Where", [mask, flat, length])
    vector = w.node("Pad", [vector, w.ints(0, 1), w.like(0, x)])
    index = w.node("Reshape", [flat, w.ints(-1, 1)])
    new = w.node("Reshape", [new, w.ints(-1)])
    done = w.node("ScatterND", [vector, index, new], reduction=REDUCTIONS[op.combine])
    stop = w.node("Reshape", [length, w.ints(1)])
    done = w.node("Slice", [done, w.ints(0), stop, w.ints(0)])
    return w.reshape(done, x.shape)


def _moving(w: OnnxWriter, starts: Sequence[str], shape: Sequence[int],
            sizes: Sequence[int]) -> list[tuple[int, str]]:
    """The axes along which a block is smaller than the operand, and where it starts there; the
    block is moved so that it is within bounds."""
    zero, found = w.constant(0, np.int64), []
    for axis, (start, n, m) in enumerate(zip(starts, shape, sizes, strict=True)):
        if isinstance(m, Size) or n == m and not isinstance(n, Size):
            continue
        most = w.number(plus(n, -int(m)))
        first = w.node("Min", [w.node("Max", [w.cast(start, np.int64), zero]), most])
        found.append((axis, first))
    return found


def _dynamic_slice(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    x, *starts = xs
    for axis, first in _moving(w, starts, e.ins[0].aval.shape, op.sizes):
        at = w.node("Add", [w.count_to(op.sizes[axis]), first])
        x = w.node("Gather", [x, at], axis=axis)
    return x


def _dynamic_update(w: OnnxWriter, op: Any, xs: list[str], e: Equation) -> str:
    """Choose between the operand and the update, spread over the operand's shape."""
    x, update, *starts = xs
    old, new = e.ins[0].aval, e.ins[1].aval
    zero, mask = w.constant(0, np.int64), None
    for axis, first in _moving(w, starts, old.shape, new.shape):
        at = w.node("Sub", [w.count_to(old.shape[axis]), first])
        last = w.constant(int(new.shape[axis]) - 1, np.int64)
        here = w.node("And", [w.node("GreaterOrEqual", [at, zero]),
                              w.node("LessOrEqual", [at, last])])
        spread = [old.shape[axis] if i == axis else 1 for i in range(old.ndim)]
        here = w.reshape(here, spread)
        mask = here if mask is None else w.node("And", [mask, here])
        at = w.node("Min", [w.node("Max", [at, zero]), last])
        update = w.node("Gather", [update, at], axis=axis)
    return update if mask is None else w.where(mask, update, x, old.dtype)


INDEXING: dict[type, Rule] = {
    gathers.Gather: _gather,
    gathers.Scatter: _scatter,
    dynamic_slices.DynamicSlice: _dynamic_slice,
    dynamic_slices.DynamicUpdateSlice: _dynamic_update,
}
