"""Blocks that begin at a place which is known only when the program runs.

This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import Literal
from toile.engine.records import dataclass
from toile.primitives import arrays, division
from toile.primitives.addresses import (
    Dims,
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from toile.primitives.families import (
    Linear,
    bdim_at,
    broadcast_in_dim,
    move_axis,
    scalar,
    zeros,
)
from toile.primitives.gathers import Gather, Scatter
from toile.primitives.rules import frame_rule
from toile.primitives.shapes import Slice, concatenate_all

_CLIP = GatherScatterMode.CLIP


def _check_starts(op: Operation, avals: Sequence[Aval], rank: int, starts: Sequence[Aval]) -> None:
    dtype = starts[0].dtype if starts else np.dtype(np.int32)
    ok = len(starts) == rank and all(not s.shape and s.dtype == dtype for s in starts)
    if not ok or dtypes.kind(dtype) not in "iu":
        raise shape_error(
            op.name, f"one integer start of rank 0 for each of {rank} axes, of one dtype", avals,
            "give a start for every axis, 0 where nothing moves",
        )


def _zero_start(starts: Sequence[Any]) -> Any:
    return scalar(0, starts[0].dtype if starts else np.int32)


def _moving(sizes: Dims, shape: Dims, first: int) -> list[int]:
    """The starts that matter, counted from `first`: a block that covers an axis starts at 0."""
    return [first + i for i, (n, m) in enumerate(zip(sizes, shape, strict=True)) if n != m]


def _index_vectors(size: int, starts: Sequence[Any], dims: Sequence[Dim]) -> Any:
    """Starts as (size, rank) index vectors."""
    columns = [
        broadcast_in_dim(s, (size, 1), () if d is None else (0,))
        for s, d in zip(starts, dims, strict=True)
    ]
    return concatenate_all(columns, 1)


SMALL_PART = 64  # a slice with a smaller fraction of the elements is copied


def known_start(
    starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]
) -> tuple[int, ...] | None:
    """Where a dynamic slice begins, after clamping; None if that depends on values."""
    if any(s.__class__ is not Literal for s in starts):
        return None
    most = (n - size for n, size in zip(shape, sizes, strict=True))
    return tuple(min(max(int(s.val), 0), m) for s, m in zip(starts, most, strict=True))


@dataclass(frozen=True)
class DynamicSlice(Linear):
    """The block of shape `sizes` at the given start, which is clamped to keep the block inside."""

    sizes: Dims
    by_blocks = True

    kernel_family = "copy.dynamic_slice"
    key_use = key_uses.takes
    checked = in_registers = sparse = frame_rule("dynamic_slice")

    def infer(self, x: Aval, *starts: Aval) -> Aval:
        _check_starts(self, [x, *starts], x.ndim, starts)
        if len(self.sizes) != x.ndim or any(
            not 0 <= n <= m for n, m in zip(self.sizes, x.shape, strict=False)
        ):
            raise shape_error(
                self.name, f"slice sizes within the operand's shape, here {self.sizes}", [x],
                f"one size for each axis, at most {x.shape}",
            )
        return x.with_shape(self.sizes)

    def eager(self, xp: Any, x: Any, *starts: Any) -> Any:
        return arrays.dynamic_slice(xp, x, starts, self.sizes)

    def simplified(self, new: Any, e: Any) -> Any:
        """A slice whose start is known is a view. A small one stays a copy: the array that it is
        a part of can then be overwritten or freed."""
        x = e.ins[0].aval
        at = known_start(e.ins[1:], x.shape, self.sizes)
        if at is None or SMALL_PART * math.prod(self.sizes) < x.size:
            return None
        limits = tuple(a + n for a, n in zip(at, self.sizes, strict=True))
        part = Slice(at, limits, (1,) * len(at))
        return [new.add(part, [e.ins[0]], e, e.outs[0].aval)]

    def transpose(self, ct: Any, x: Any, *starts: Any) -> Any:
        back = dynamic_update_slice(zeros(Aval(x.shape, ct.dtype)), ct, *starts)
        return (back, *(None for _ in starts))

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x, *starts), (d, *start_dims) = xs, dims
        if all(s is None for s in start_dims):
            op = DynamicSlice((axis[1], *self.sizes))
            return op(move_axis(x, d, 0), _zero_start(starts), *starts), 0
        every = tuple(range(len(starts)))
        read = Gather(GatherDimensionNumbers(every, (), every), self.sizes, True, True, _CLIP)
        index = _index_vectors(axis[1], starts, start_dims)
        return read.vmap(axis, (x, index), (d, 0))

    def physical(self, x: Aval, *starts: Aval) -> Operation:
        return _WithKeyAxis(DynamicSlice((*self.sizes, dtypes.key_words(x.dtype))))

    def on_words(self, words: Any, *starts: Any) -> Any:
        op = DynamicSlice((*self.sizes, words.shape[-1]))
        return op(words, *starts, _zero_start(starts))

    def used_operands(self, x: Aval, *starts: Aval) -> Sequence[int]:
        return [0, *_moving(self.sizes, x.shape, 1)]

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        x, *starts = ins
        cut = [i for i, n in enumerate(x.aval.shape) if self.sizes[i] != n]
        layout = division.undivided(x.layout, cut)
        part = f.to(x, layout)
        sizes = tuple(n if i in cut else part.shape[i] for i, n in enumerate(self.sizes))
        at = [f.to(s, ()) for s in starts]
        return [f.placed(outs[0], layout, DynamicSlice(sizes)(part, *at))]


class DynamicUpdateSlice(Linear):
    """The operand, with the block at the given start replaced; the start is clamped."""

    kernel_family = "copy.dynamic_update_slice"
    keeps_layout = True
    key_use = key_uses.replaces(1)
    checked = in_registers = frame_rule("dynamic_update_slice")
    by_blocks = updates = True

    def infer(self, x: Aval, update: Aval, *starts: Aval) -> Aval:
        avals = [x, update, *starts]
        _check_starts(self, avals, x.ndim, starts)
        if update.ndim != x.ndim or update.dtype != x.dtype or any(
            n > m for n, m in zip(update.shape, x.shape, strict=True)
        ):
            raise shape_error(
                self.name, "an update of the operand's rank and dtype that fits into it", avals,
                "reshape and convert the update; x.at[...].set broadcasts",
            )
        return Aval(x.shape, x.dtype, all(a.weak_type for a in avals))

    def simplified(self, new: Any, e: Any) -> Any:
        """An update of all elements is the result."""
        x, update = e.ins[:2]
        whole = x.aval.shape == update.aval.shape and update.aval.dtype == e.outs[0].aval.dtype
        return [update] if whole and update.aval.weak_type == e.outs[0].aval.weak_type else None

    def placed_at(self, ins: Sequence[Any]) -> tuple[int, ...] | None:
        x, update, *starts = ins
        if x.aval.shape == update.aval.shape:
            return None
        return known_start(starts, x.aval.shape, update.aval.shape)

    def eager(self, xp: Any, x: Any, update: Any, *starts: Any) -> Any:
        return arrays.dynamic_update_slice(xp, x, update, starts)

    def transpose(self, ct: Any, x: Any, update: Any, *starts: Any) -> Any:
        ct_x = ct_update = None
        if type(x) is Aval:
            ct_x = self(ct, zeros(Aval(update.shape, ct.dtype)), *starts)
        if type(update) is Aval:
            ct_update = DynamicSlice(tuple(update.shape))(ct, *starts)
        return (ct_x, ct_update, *(None for _ in starts))

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x, update, *starts), (d, du, *start_dims) = xs, dims
        if all(s is None for s in start_dims):
            x, update = bdim_at(x, d, axis[1]), bdim_at(update, du, axis[1])
            return self(x, update, _zero_start(starts), *starts), 0
        every = tuple(range(len(starts)))
        op = Scatter("set", ScatterDimensionNumbers(every, (), every), True, True, _CLIP)
        index = _index_vectors(axis[1], starts, start_dims)
        return op.vmap(axis, (x, index, update), (d, 0, du))

    def physical(self, x: Aval, update: Aval, *starts: Aval) -> Operation:
        return _WithKeyAxis(self)

    def on_words(self, words: Any, update: Any, *starts: Any) -> Any:
        return self(words, update, *starts, _zero_start(starts))

    def used_operands(self, x: Aval, update: Aval, *starts: Aval) -> Sequence[int]:
        return [*([0] if update.shape != x.shape else []), 1, *_moving(update.shape, x.shape, 2)]

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        x, update, *starts = ins
        if x.aval.ndim == 0:
            return super().divide(f, ins, outs)
        cut = [i for i, n in enumerate(x.aval.shape) if update.aval.shape[i] != n]
        layout = division.undivided(f.common([x, update]), cut)
        args = f.to(x, layout), f.to(update, layout)
        return [f.placed(outs[0], layout, self(*args, *(f.to(s, ()) for s in starts)))]


@dataclass(frozen=True)
class _WithKeyAxis(Operation):
    """A dynamic slice or update on the buffers of key arrays: their last axis starts at 0."""

    op: Operation

    def eager(self, xp: Any, *xs: Any) -> Any:
        return self.op.eager(xp, *xs, np.zeros((), np.int32))


dynamic_update_slice = DynamicUpdateSlice()
