"""Gather, scatter and slices at traced positions.

`Gather` and `Scatter` are each other's transposes and share their geometry: windows of the operand
at positions from an integer array. Updates of a scatter are applied in order, so if several updates
set the same element, the last one wins; this makes setting linear and its transpose exact. This
module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.traits import Shape
from toile.primitives import arrays, division
from toile.primitives.addresses import (
    Dims,
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    fill_number,
    gather_problem,
    maps_of_picked_rows,
    one_per_row,
    picked_rows,
    scatter_problem,
    whole_rows,
)
from toile.primitives.addresses import fill_text as fill_text
from toile.primitives.bits import eq
from toile.primitives.elementwise import div, max_, select
from toile.primitives.families import (
    Linear,
    add,
    bdim_at,
    broadcast_in_dim,
    fill_shape,
    full_like,
    instantiate,
    move_axis,
    mul,
    neg,
    reshape,
    scalar,
    sub,
    zeros,
)
from toile.primitives.rules import frame_rule
from toile.primitives.shapes import iota

_FILL = GatherScatterMode.FILL_OR_DROP
_CLIP = GatherScatterMode.CLIP


def _shifted(dims: Dims) -> Dims:
    return tuple(d + 1 for d in dims)


# ------------------------------------------------------------------------------------------ gather


@dataclass(frozen=True)
class Gather(Linear):
    """The operand's windows at the index vectors, which lie along the last axis of the indices."""

    dimension_numbers: GatherDimensionNumbers
    slice_sizes: Dims
    indices_are_sorted: bool = False
    unique_indices: bool = False
    mode: GatherScatterMode = _FILL
    fill_value: str | None = None  # the text of a number, see `fill_text`
    by_blocks = by_index = stores_parts = True

    @property
    def fills(self) -> bool:
        """Whether out-of-bounds elements are replaced by a fill value."""
        return self.mode is _FILL

    kernel_family = "gather"
    key_use = key_uses.takes
    checked = in_registers = sparse = frame_rule("gather")
    by_rows, within_rows = whole_rows, one_per_row
    picks, picked_maps = picked_rows, maps_of_picked_rows

    def nest_node(self, b: Any, member: Any) -> int:
        return b.gathered(member)

    def infer(self, operand: Aval, indices: Aval) -> Aval:
        numbers, sizes = self.dimension_numbers, self.slice_sizes
        problem = gather_problem(operand, indices, numbers, sizes)
        if problem:
            raise shape_error(
                self.name, f"dimension numbers and slice_sizes that fit, here {numbers} and "
                f"{sizes}", [operand, indices], said=problem,
            )  # fmt: skip
        dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        window = [n for i, n in enumerate(sizes) if i not in dropped]
        rank, windows, batch = len(window) + indices.ndim - 1, iter(window), iter(indices.shape)
        shape = tuple(next(windows if d in numbers.offset_dims else batch) for d in range(rank))
        return Aval(shape, operand.dtype, operand.weak_type)

    def eager(self, xp: Any, operand: Any, indices: Any) -> Any:
        return arrays.gather(
            xp, operand, indices, *self.dimension_numbers, self.slice_sizes,
            "fill" if self.fills else "clip",
            fill_number(self.fill_value, operand.dtype) if self.fills else None,
        )  # fmt: skip

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self(*primals)
        if tangents[0].__class__ is Zero:
            return out, Zero(out)
        return out, replace(self, fill_value="0")(tangents[0], primals[1])

    def transpose(self, ct: Any, operand: Any, indices: Any) -> Any:
        back = Scatter(
            "add", ScatterDimensionNumbers(*self.dimension_numbers), self.indices_are_sorted,
            self.unique_indices, self.mode,
        )  # fmt: skip
        return back(zeros(Aval(operand.shape, ct.dtype)), indices, ct), None

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (operand, indices), (d, di) = xs, dims
        offset, collapsed, starts, batching, index_batching = self.dimension_numbers
        op = self
        if di is not None:
            indices = move_axis(indices, di, 0)
            offset, index_batching = _shifted(offset), _shifted(index_batching)
        if d is None:  # repeated reads of one operand: no longer sorted or unique
            op = replace(self, indices_are_sorted=False, unique_indices=False)
            sizes = self.slice_sizes
        else:
            operand = move_axis(operand, d, 0)
            collapsed, starts = _shifted(collapsed), _shifted(starts)
            batching = _shifted(batching)
            if di is None:
                offset = (0, *_shifted(offset))
                sizes = (axis[1], *self.slice_sizes)
            else:
                batching, index_batching = (0, *batching), (0, *index_batching)
                sizes = (min(1, axis[1]), *self.slice_sizes)
        numbers = GatherDimensionNumbers(offset, collapsed, starts, batching, index_batching)
        return replace(op, dimension_numbers=numbers, slice_sizes=sizes)(operand, indices), 0

    def physical(self, operand: Aval, indices: Aval) -> Operation:
        numbers = self.dimension_numbers
        rank = len(numbers.offset_dims) + indices.ndim - 1
        return replace(
            self,
            dimension_numbers=numbers._replace(offset_dims=(*numbers.offset_dims, rank)),
            slice_sizes=(*self.slice_sizes, dtypes.key_words(operand.dtype)),
        )

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x, indices), (out,) = ins, outs
        offset, collapsed, starts, batching, index_batching = self.dimension_numbers
        claims = division.Claims()
        index_layout: list[Any] = [()] * indices.aval.ndim
        x_layout: list[Any] = [()] * x.aval.ndim
        for d, j in zip(batching, index_batching, strict=True):
            x_layout[d] = index_layout[j] = claims.take(indices.layout[j], x.layout[d])
        for j in range(indices.aval.ndim - 1):
            if j not in index_batching:
                index_layout[j] = claims.take(indices.layout[j])
        window = [d for d in range(x.aval.ndim) if d not in collapsed and d not in batching]
        for d in window:
            if d not in starts and self.slice_sizes[d] == x.aval.shape[d]:
                x_layout[d] = claims.take(x.layout[d])
        args = f.to(x, tuple(x_layout)), f.to(indices, tuple(index_layout))
        sizes = tuple(args[0].shape[d] if x_layout[d] and d in window else n
                      for d, n in enumerate(self.slice_sizes))
        of_window, of_index = iter(window), iter(index_layout)
        layout = tuple(x_layout[next(of_window)] if d in offset else next(of_index)
                       for d in range(out.ndim))
        return [f.placed(out, layout, replace(self, slice_sizes=sizes)(*args))]


# ----------------------------------------------------------------------------------------- scatter

_LINEAR = ("set", "add", "sub")
COMBINES = (*_LINEAR, "mul", "min", "max")


@dataclass(frozen=True)
class Scatter(Linear):
    """Return the operand after applying each window of the updates to it, one after another."""

    combine: str
    dimension_numbers: ScatterDimensionNumbers
    indices_are_sorted: bool = False
    unique_indices: bool = False
    mode: GatherScatterMode = _FILL
    kernel_family = "scatter"
    keeps_layout = True
    key_use = key_uses.replaces(2)
    checked = in_registers = frame_rule("scatter")
    by_blocks = by_index = updates = True
    by_rows, within_rows = whole_rows, one_per_row

    def grown_axis(self, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
        return axis if i == 0 else None

    @property
    def clips(self) -> bool:
        """Whether windows that are partly or entirely outside the operand are moved inside."""
        return self.mode is _CLIP

    def infer(self, operand: Aval, indices: Aval, updates: Aval) -> Aval:
        numbers = self.dimension_numbers
        name, avals = f"scatter ({self.combine})", [operand, indices, updates]
        if updates.dtype != operand.dtype:
            raise shape_error(name, "updates of the operand's dtype", avals)
        problem = scatter_problem(operand, indices, updates, numbers)
        if problem:
            raise shape_error(
                name, f"dimension numbers that fit, here {numbers}", avals, said=problem
            )
        return operand

    def eager(self, xp: Any, operand: Any, indices: Any, updates: Any) -> Any:
        return arrays.scatter(
            xp, operand, indices, updates, *self.dimension_numbers,
            "clip" if self.clips else "drop", self.combine,
        )  # fmt: skip

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (operand, indices, updates), (dx, _, du) = primals, tangents
        if self.combine in ("add", "sub") and du.__class__ is Zero:
            return self(operand, indices, updates), dx
        if self.combine in _LINEAR:
            return super().jvp(primals, tangents)
        out = self(operand, indices, updates)
        if dx.__class__ is Zero and du.__class__ is Zero:
            return out, Zero(out)
        if self.combine == "mul":
            return out, self._mul_tangent(primals, tangents)
        return out, self._extremum_tangent(out, primals, tangents)

    def _mul_tangent(self, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        (operand, indices, updates), (dx, _, du) = primals, tangents
        terms = []
        if dx.__class__ is not Zero:
            terms.append(self(dx, indices, updates))
        if du.__class__ is not Zero:
            self._need_unique()
            none = zeros(Aval(operand.shape, operand.dtype))
            terms.append(mul(operand, replace(self, combine="add")(none, indices, du)))
        return terms[0] if len(terms) == 1 else add(*terms)

    def _need_unique(self) -> None:
        if not self.unique_indices:
            raise NotImplementedError(
                "scatter_mul gradients are only implemented if `unique_indices=True` "
                "(needed indices promised to be unique for the tangent of the updates)" + here()
            )

    def _extremum_tangent(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """All values that tie for an element, including the operand's own, share its tangent."""
        operand, indices, updates = primals
        dx, du = instantiate(tangents[0]), instantiate(tangents[2])
        read = self._reader(updates.shape)
        one, none = fill_shape(full_like(updates, 1), updates.shape), full_like(operand, 0)
        nothing = fill_shape(full_like(updates, 0), updates.shape)
        target = read(out, indices)
        hit, kept = eq(updates, target), eq(read(operand, indices), target)

        def count(values: Any) -> Any:
            total = self._adder()(fill_shape(none, operand.shape), indices, values)
            return read(total, indices)

        ties = count(select(hit, one, nothing))
        ties = add(ties, select(kept, one, nothing))
        share = div(full_like(updates, 1), max_(ties, full_like(updates, 1)))
        # All updates of one element carry equal parts of the operand's change.
        change = sub(select(kept, share, nothing), full_like(updates, 1))
        change = div(change, max_(count(one), full_like(updates, 1)))
        moved = add(mul(read(dx, indices), change), mul(du, select(hit, share, nothing)))
        return self._adder()(dx, indices, moved)

    def _adder(self) -> Scatter:
        return replace(self, combine="add")

    def _reader(self, update_shape: Dims) -> Gather:
        """The gather that reads the elements that updates write, zero where out of bounds."""
        numbers = self.dimension_numbers
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        rank = len(numbers.update_window_dims) + len(dropped)
        windows = iter(numbers.update_window_dims)
        sizes = tuple(1 if d in dropped else update_shape[next(windows)] for d in range(rank))
        return Gather(
            GatherDimensionNumbers(*numbers), sizes, self.indices_are_sorted,
            self.unique_indices, self.mode, "0",
        )  # fmt: skip

    def transpose(self, ct: Any, operand: Any, indices: Any, updates: Any) -> Any:
        if self.combine in ("min", "max"):
            return super().transpose(ct, operand, indices, updates)
        ct_operand = ct_updates = None
        if type(operand) is Aval:
            if self.combine == "set":  # overwritten elements do not affect the result
                none = zeros(Aval(updates.shape, ct.dtype))
                ct_operand = self(ct, indices, none)
            else:
                ct_operand = self(ct, indices, updates) if self.combine == "mul" else ct
        if type(updates) is Aval:
            if self.combine == "mul":
                self._need_unique()
                ct = mul(ct, operand)
            ct_updates = self._reader(updates.shape)(ct, indices)
            if self.combine == "sub":
                ct_updates = neg(ct_updates)
            elif self.combine == "set" and not self.unique_indices:
                none = zeros(Aval(updates.shape, ct.dtype))
                ct_updates = select(self._stays(ct.shape, indices, updates), ct_updates, none)
        return ct_operand, None, ct_updates

    def _stays(self, shape: Dims, indices: Any, updates: Aval) -> Any:
        """Which elements of the updates survive in the result: number them, set, and read back."""
        windows = self.dimension_numbers.update_window_dims
        counted = [1 if d in windows else n for d, n in enumerate(updates.shape)]
        total = math.prod(counted)
        dtype = np.dtype(np.uint32 if total < 2**32 - 1 else np.uint64)
        numbers = add(iota(dtype, (total,)), scalar(1, dtype))
        numbers = broadcast_in_dim(
            reshape(numbers, tuple(counted)), updates.shape, tuple(range(updates.ndim))
        )
        placed = self(zeros(Aval(shape, dtype)), indices, numbers)
        return eq(self._reader(updates.shape)(placed, indices), numbers)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (operand, indices, updates), (d, di, du) = xs, dims
        operand, updates = bdim_at(operand, d, axis[1]), bdim_at(updates, du, axis[1])
        windows, inserted, mapped, batching, index_batching = self.dimension_numbers
        windows, inserted = _shifted(windows), _shifted(inserted)
        mapped, batching = _shifted(mapped), _shifted(batching)
        if di is None:  # the mapped axis becomes a window axis
            windows = (0, *windows)
        else:
            indices = move_axis(indices, di, 0)
            batching, index_batching = (0, *batching), (0, *_shifted(index_batching))
        numbers = ScatterDimensionNumbers(windows, inserted, mapped, batching, index_batching)
        return replace(self, dimension_numbers=numbers)(operand, indices, updates), 0

    def physical(self, operand: Aval, indices: Aval, updates: Aval) -> Operation:
        if self.combine != "set":
            return super().physical(operand, indices, updates)
        numbers = self.dimension_numbers
        windows = (*numbers.update_window_dims, updates.ndim)
        return replace(self, dimension_numbers=numbers._replace(update_window_dims=windows))

    def __str__(self) -> str:
        return "scatter" if self.combine == "set" else f"scatter_{self.combine}"

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x, indices, updates), (out,) = ins, outs
        windows, inserted, starts, batching, index_batching = self.dimension_numbers
        claims = division.Claims()
        x_layout: list[Any] = [()] * x.aval.ndim
        index_layout: list[Any] = [()] * indices.aval.ndim
        update_layout: list[Any] = [()] * updates.aval.ndim
        # The axes of the updates that are not window axes are those of the indices, in order.
        others = [d for d in range(updates.aval.ndim) if d not in windows]
        for d, j in zip(batching, index_batching, strict=True):
            x_layout[d] = index_layout[j] = update_layout[others[j]] = claims.take(
                updates.layout[others[j]], indices.layout[j], x.layout[d])
        summed: list[Any] = []
        for j, d in enumerate(others):
            if j not in index_batching and self.combine == "add":
                names = claims.take(updates.layout[d], indices.layout[j])
                index_layout[j] = update_layout[d] = names
                summed += names
        window = [d for d in range(x.aval.ndim) if d not in inserted and d not in batching]
        for d, u in zip(window, windows, strict=True):
            if d not in starts and updates.aval.shape[u] == x.aval.shape[d]:
                x_layout[d] = update_layout[u] = claims.take(updates.layout[u], x.layout[d])
        given = f.to(indices, tuple(index_layout)), f.to(updates, tuple(update_layout))
        left, layout = f.ordered(summed), tuple(x_layout)
        if not left:
            return [f.placed(out, layout, self(f.to(x, layout), *given))]
        nothing = zeros(Aval(f.local(x.aval.shape, layout), out.dtype))
        found = f.placed(out, layout, self(nothing, *given), left)
        if x.zero:
            return [found]
        return [f.placed(out, layout, add(f.to(x, layout), f.to(found, layout)))]
