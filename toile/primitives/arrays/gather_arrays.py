"""Gather, scatter and dynamic slices of raw arrays, with XLA's semantics.

Operand axes are of two kinds: those that a window covers entirely, and those that are addressed by
`indices`, alone or as the start of a window. A gather becomes one basic slice, one `take` of rows
or one fancy index. A scatter combines rows: the whole axes are columns, the others become a row
index for each update; duplicates are combined in order, so if several updates set the same row, the
last one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from operator import invert
from typing import Any

import numpy as np

from toile.engine.records import dataclass
from toile.primitives.arrays.contraction import accumulator, dtype_kind

Array = Any
Module = Any
Sizes = Sequence[int]
_INTP, _UINTP = np.dtype(np.intp), np.dtype(np.uintp)
_LARGEST = np.iinfo(np.intp).max
_UFUNCS = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
_SPARSE_PRODUCT = 1 << 14  # from this many elements on, sums go through a sparse matrix product


def _columns(xp: Module, indices: Array, count: int) -> list[Array]:
    """The index vectors' components, as signed integers that cannot overflow."""
    if indices.dtype.kind == "u" and indices.dtype.itemsize == 8:
        indices = xp.minimum(indices, np.uint64(_LARGEST))
    indices = indices.astype(_INTP, copy=False)
    return [indices[..., i] for i in range(count)]


def _clamp(xp: Module, columns: list[Array], limits: Sizes) -> list[Array]:
    """Components clamped to 0..limit."""
    return [xp.minimum(xp.maximum(c, 0), n) for c, n in zip(columns, limits, strict=True)]


def _in_bounds(xp: Module, columns: list[Array], limits: Sizes) -> Array | None:
    """Where all components are in 0..limit; None if they are everywhere."""
    inside: Any = None
    for column, limit in zip(columns, limits, strict=True):
        here = column.view(_UINTP) <= _UINTP.type(limit)  # negative numbers become huge
        inside = here if inside is None else inside & here
    return None if inside is None or bool(inside.all()) else inside


def _single_start(indices: Array, dims: Sizes, limits: Sizes) -> tuple[dict[int, int], bool]:
    """The clamped start of the only window along each operand axis, and whether it was in
    bounds."""
    wanted = indices.reshape(-1).tolist()
    clamped = [min(max(i, 0), n) for i, n in zip(wanted, limits, strict=True)]
    return dict(zip(dims, clamped, strict=True)), wanted == clamped


def _block(starts: dict[int, int], sizes: Sizes) -> tuple[slice, ...]:
    """The slices of one window."""
    return tuple(slice(i := starts.get(d, 0), i + n) for d, n in enumerate(sizes))


def default_fill(dtype: np.dtype) -> Any:
    """The result of an out-of-bounds read: NaN, the least signed or largest unsigned integer."""
    kind = dtype_kind(dtype)
    if kind == "b":
        return np.True_
    if kind in "iu":
        size = dtype.itemsize * 8 if dtype.kind in "iu" else int(dtype.name.lstrip("uint"))
        return dtype.type(-(1 << (size - 1)) if kind == "i" else (1 << size) - 1)
    return dtype.type(np.nan)


def _fill(given: Any, dtype: np.dtype) -> Any:
    return default_fill(dtype) if given is None else given


@dataclass(frozen=True)
class _GatherPlan:
    """The part of a gather that depends on shapes and dimension numbers only."""

    shape: tuple[int, ...]  # of the result
    mask_shape: tuple[int, ...]  # of the batch, to broadcast against the result
    limits: tuple[int, ...]  # largest legal start for each component of an index vector
    picked: tuple[int, ...]  # operand axes that are addressed; the others are read whole
    sources: tuple[int, ...]  # for each: component >= 0 of the vectors, or ~axis of the batch
    windows: tuple[int, ...]  # those of `picked` that are kept in the result
    basic: tuple[Any, ...]  # slices that reduce the operand to picked and whole axes
    axis: int  # the axis of the basic slice to take along, or -1
    front: tuple[int, ...]  # order of the basic slice that puts picked axes first
    order: tuple[int, ...]  # from the axes of the gathered array to those of the result


# An axis of a gathered array: (i,) stands for axis i of the batch, d for axis d of the operand.
_Axes = list[Any]


def _batch_axes(count: int) -> _Axes:
    return [(i,) for i in range(count)]


def _result_axes(batch: int, stay: list[int], offset_dims: Sizes) -> _Axes:
    """The axes of the result; those of the operand are at `offset_dims`."""
    rank = batch + len(stay)
    batch_dims = [d for d in range(rank) if d not in offset_dims]
    places: dict[int, Any] = dict(zip(batch_dims, _batch_axes(batch), strict=True))
    places.update(zip(offset_dims, stay, strict=True))
    return [places[d] for d in range(rank)]


def _named_sizes(axes: _Axes, batch: tuple[int, ...], sizes: Sizes) -> tuple[int, ...]:
    return tuple(batch[a[0]] if isinstance(a, tuple) else sizes[a] for a in axes)


def _basic_slices(sizes: Sizes, picked: list[int], dropped: set[int]) -> tuple[Any, ...]:
    """The slices of the operand before rows are picked."""
    return tuple(slice(None) if d in picked else 0 if d in dropped else slice(0, n)
                 for d, n in enumerate(sizes))


@lru_cache(maxsize=4096)
def _gather_plan(
    operand: tuple[int, ...], batch: tuple[int, ...], offset_dims: tuple[int, ...],
    collapsed: tuple[int, ...], mapped: tuple[int, ...], batching: tuple[int, ...],
    batching_axes: tuple[int, ...], sizes: tuple[int, ...],
) -> _GatherPlan:  # fmt: skip
    dropped = {*collapsed, *batching}
    stay = [d for d in range(len(operand)) if d not in dropped]
    names = _result_axes(len(batch), stay, offset_dims)
    # An axis that every window covers whole, or that none addresses, starts at 0.
    source = {d: i for i, d in enumerate(mapped)}
    source.update(zip(batching, map(invert, batching_axes), strict=True))
    picked = [d for d in sorted(source) if sizes[d] < operand[d]]
    whole = [d for d in stay if d not in picked]
    windows = [d for d in picked if d in stay]
    kept = sorted({*picked, *stay})
    axis = kept.index(picked[0]) if len(picked) == 1 and not windows else -1
    lead = _batch_axes(len(batch))
    made = [*kept[:axis], *lead, *kept[axis + 1 :]] if axis >= 0 else [*lead, *windows, *whole]
    return _GatherPlan(
        shape=_named_sizes(names, batch, sizes),
        mask_shape=_named_sizes(names, batch, (1,) * len(operand)),
        limits=tuple(operand[d] - sizes[d] for d in mapped),
        picked=tuple(picked),
        sources=tuple(source[d] for d in picked),
        windows=tuple(windows),
        basic=_basic_slices(sizes, picked, dropped),
        axis=axis,
        front=tuple(kept.index(d) for d in [*picked, *whole]),
        order=tuple(made.index(n) for n in names),
    )


def gather(
    xp: Module, operand: Array, indices: Array, offset_dims: Sizes, collapsed_slice_dims: Sizes,
    start_index_map: Sizes, operand_batching_dims: Sizes, start_indices_batching_dims: Sizes,
    slice_sizes: Sizes, mode: str, fill_value: Any = None,
) -> Array:  # fmt: skip
    """Slices of `slice_sizes` that start at each index vector (the last axis of `indices`)."""
    dtype = operand.dtype
    plan = _gather_plan(
        operand.shape, indices.shape[:-1], tuple(offset_dims), tuple(collapsed_slice_dims),
        tuple(start_index_map), tuple(operand_batching_dims), tuple(start_indices_batching_dims),
        tuple(slice_sizes),
    )  # fmt: skip
    if operand.size == 0 or 0 in plan.shape:
        return xp.full(plan.shape, _fill(fill_value, dtype), dtype=dtype)
    inside: Any = None
    if prod(indices.shape[:-1]) == 1:
        starts, legal = _single_start(indices, start_index_map, plan.limits)
        if mode == "fill" and not legal:
            return xp.full(plan.shape, _fill(fill_value, dtype), dtype=dtype)
        return operand[_block(starts, slice_sizes)].reshape(plan.shape)
    columns = _columns(xp, indices, len(plan.limits))
    if mode == "fill":
        inside = _in_bounds(xp, columns, plan.limits)
    if mode != "fill" or inside is not None:
        columns = _clamp(xp, columns, plan.limits)
    result = _gather_many(xp, operand, columns, indices.shape[:-1], slice_sizes, plan)
    if inside is None:
        return result
    fill = xp.asarray(_fill(fill_value, dtype), dtype)
    return xp.where(inside.reshape(plan.mask_shape), result, fill)


def _gather_many(
    xp: Module, operand: Array, columns: list[Array], batch_shape: tuple[int, ...], sizes: Sizes,
    plan: _GatherPlan,
) -> Array:  # fmt: skip
    """The gathered array for starts that are in bounds."""
    view, batch = operand[plan.basic], len(batch_shape)
    if not plan.picked:
        return xp.broadcast_to(view, batch_shape + view.shape).transpose(plan.order)
    starts = [
        columns[s] if s >= 0 else _along(xp, batch_shape[~s], ~s, batch) for s in plan.sources
    ]
    if plan.axis >= 0:
        index = xp.broadcast_to(starts[0], batch_shape)
        return xp.take(view, index, axis=plan.axis).transpose(plan.order)
    windows = plan.windows
    index = []
    for d, start in zip(plan.picked, starts, strict=True):
        part = start.reshape(start.shape + (1,) * len(windows))
        if d in windows and sizes[d] > 1:
            part = part + _along(xp, sizes[d], batch + windows.index(d), batch + len(windows))
        index.append(part)
    result = _pick(xp, view.transpose(plan.front), index)
    grown = batch_shape + tuple(sizes[d] for d in windows)
    if result.shape[: len(grown)] != grown:
        result = xp.broadcast_to(result, grown + result.shape[len(grown) :])
    return result.transpose(plan.order)


def _along(xp: Module, size: int, axis: int, rank: int) -> Array:
    """0, 1, ... size-1 along one of `rank` axes."""
    return xp.arange(size, dtype=_INTP).reshape((1,) * axis + (size,) + (1,) * (rank - axis - 1))


def _pick(xp: Module, x: Array, index: list[Array]) -> Array:
    """x[index] over the leading axes, as one take of rows if x is contiguous."""
    count = len(index)
    if count > 1 and not x.flags.c_contiguous:
        return x[tuple(index)]
    rows = x.reshape((prod(x.shape[:count]),) + x.shape[count:])
    return xp.take(rows, flatten_index(x.shape, index), axis=0)


def flatten_index(shape: Sizes, index: Sequence[Array]) -> Array:
    """Row-major position of an index tuple over the leading axes of `shape`."""
    flat = index[0]
    for size, part in zip(shape[1 : len(index)], index[1:], strict=True):
        flat = flat * size + part
    return flat


def _clamped(starts: Sequence[Any], shape: Sizes, sizes: Sizes) -> tuple[slice, ...]:
    """Slices of `sizes` at `starts`, clamped to be inside `shape`."""
    slices = []
    for start, n, size in zip(starts, shape, sizes, strict=True):
        first = min(max(int(start), 0), n - size)
        slices.append(slice(first, first + size))
    return tuple(slices)


def dynamic_slice(xp: Module, x: Array, starts: Sequence[Any], sizes: Sizes) -> Array:
    """The block of `sizes` at `starts`, each start clamped so that the block is inside x."""
    return x[_clamped(starts, x.shape, sizes)]


def dynamic_update_slice(xp: Module, x: Array, update: Array, starts: Sequence[Any]) -> Array:
    """x with the block at the clamped `starts` replaced by `update`."""
    if update.shape == x.shape:
        return update
    result = x.copy()
    result[_clamped(starts, x.shape, update.shape)] = update
    return result


def scatter(
    xp: Module, operand: Array, indices: Array, updates: Array, update_window_dims: Sizes,
    inserted_window_dims: Sizes, scatter_dims_to_operand_dims: Sizes,
    operand_batching_dims: Sizes, scatter_indices_batching_dims: Sizes, mode: str, combine: str,
) -> Array:  # fmt: skip
    """Combine ('set', 'add', 'sub', 'mul', 'min', 'max') windows of updates into the operand."""
    batch_shape, dtype = indices.shape[:-1], operand.dtype
    if updates.size == 0 or operand.size == 0:
        return operand
    updates = updates.astype(dtype, copy=False)
    if combine == "sub":
        updates, combine = -updates, "add"
    batch_dims = [d for d in range(updates.ndim) if d not in update_window_dims]
    updates = updates.transpose([*batch_dims, *update_window_dims])
    sizes = _window_sizes(updates.shape[len(batch_shape) :], operand.ndim,
                          {*inserted_window_dims, *operand_batching_dims})
    limits = [operand.shape[d] - sizes[d] for d in scatter_dims_to_operand_dims]
    work = dtype if combine == "set" else accumulator(dtype)
    if prod(batch_shape) == 1:
        first, legal = _single_start(indices, scatter_dims_to_operand_dims, limits)
        if mode != "clip" and not legal:
            return operand
        return _combine_single(xp, operand, updates, _block(first, sizes), combine, work)
    columns = _columns(xp, indices, len(limits))
    inside = None
    if mode == "clip":
        columns = _clamp(xp, columns, limits)
    else:
        inside = _in_bounds(xp, columns, limits)
    starts = dict(zip(scatter_dims_to_operand_dims, columns, strict=True))
    batching = zip(operand_batching_dims, scatter_indices_batching_dims, strict=True)
    starts = _flat_starts(xp, starts, dict(batching), batch_shape)
    updates = updates.reshape((prod(batch_shape), *sizes))
    if inside is not None:
        keep = xp.nonzero(inside.reshape(-1))[0]
        updates, starts = updates[keep], {d: s[keep] for d, s in starts.items()}
        if updates.size == 0:
            return operand
    result = xp.array(operand, dtype=work, order="C")
    _scatter_many(xp, result, starts, updates.astype(work, copy=False), sizes, combine)
    return result.astype(dtype, copy=False)


def _window_sizes(window: Sizes, rank: int, dropped: set[int]) -> list[int]:
    """The sizes of a window along all axes of the operand, 1 along dropped ones."""
    sizes = iter(window)
    return [1 if d in dropped else next(sizes) for d in range(rank)]


def _flat_starts(
    xp: Module, starts: dict[int, Array], batching: dict[int, int], batch_shape: tuple[int, ...]
) -> dict[int, Array]:
    """The starts of all windows along each operand axis; `batching` maps operand to batch axes."""
    for d, axis in batching.items():
        starts[d] = _along(xp, batch_shape[axis], axis, len(batch_shape))
    return {d: xp.broadcast_to(s, batch_shape).reshape(-1) for d, s in starts.items()}


def _combine_single(
    xp: Module, operand: Array, updates: Array, block: tuple[slice, ...], combine: str,
    work: np.dtype,
) -> Array:
    """The operand with one window of updates combined into it."""
    result = operand.astype(work)
    view = result[block]
    _combine_block(xp, view, updates.reshape(view.shape).astype(work, copy=False), combine)
    return result.astype(operand.dtype, copy=False)


def _combine_block(xp: Module, block: Array, updates: Array, combine: str) -> None:
    """Combine into a view, element by element."""
    if combine == "set":
        block[...] = updates
    else:
        getattr(xp, _UFUNCS[combine])(block, updates, out=block)


def _scatter_many(
    xp: Module, result: Array, starts: dict[int, Array], updates: Array, sizes: list[int],
    combine: str,
) -> None:  # fmt: skip
    """Combine updates (n, *sizes) into `result` in place, at starts that are in bounds."""
    # An axis that a window covers whole, or that is not addressed, starts at 0.
    picked = sorted(d for d in starts if sizes[d] < result.shape[d])
    whole = [d for d in range(result.ndim) if d not in picked]
    view = result[tuple(
        slice(None) if d in picked else slice(0, n) for d, n in enumerate(sizes)
    )].transpose([*picked, *whole])  # fmt: skip
    count = len(picked)
    rows_shape, width = view.shape[:count], prod(view.shape[count:])
    updates = updates.transpose([0, *(1 + d for d in picked), *(1 + d for d in whole)])
    index = xp.zeros((updates.shape[0],) + (1,) * count, np.intp)
    if picked:
        index = flatten_index(rows_shape, [
            starts[d].reshape((-1,) + (1,) * count) + _along(xp, sizes[d], 1 + i, 1 + count)
            for i, d in enumerate(picked)
        ])  # fmt: skip
    index = index.reshape(-1)
    updates = updates.reshape(index.size, width)
    in_place = view.flags.c_contiguous
    rows = (view if in_place else xp.ascontiguousarray(view)).reshape(prod(rows_shape), width)
    _combine_rows(xp, rows, index, updates, combine)
    if not in_place:
        view[...] = rows.reshape(view.shape)


def _combine_rows(xp: Module, rows: Array, index: Array, updates: Array, combine: str) -> None:
    """rows[index[i]] = combine(rows[index[i]], updates[i]) for each i in order."""
    if index.size == 1 or bool((index[1:] > index[:-1]).all()):  # no duplicates
        if combine == "set":
            rows[index] = updates
        else:
            rows[index] = getattr(xp, _UFUNCS[combine])(rows[index], updates)
        return
    if combine == "set":
        if xp is not np:  # only NumPy guarantees that the last one wins
            _, last = xp.unique(index[::-1], return_index=True)
            last = index.size - 1 - last
            index, updates = index[last], updates[last]
        rows[index] = updates
    elif xp is not np:
        _combine_in_rounds(xp, rows, index, updates, combine)
    elif rows.shape[1] > 1 and combine == "add" and updates.size >= _SPARSE_PRODUCT:
        _add_rows(rows, index, updates)
    else:
        width = rows.shape[1]
        if width > 1:  # ufunc.at is fast only on one axis
            index = (index[:, None] * width + np.arange(width)).reshape(-1)
        getattr(np, _UFUNCS[combine]).at(rows.reshape(-1), index, updates.reshape(-1))


def _add_rows(rows: Array, index: Array, updates: Array) -> None:
    """Segment sum as the product of a sparse 0-1 matrix (one 1 for each update) and the updates."""
    from scipy.sparse import csc_array

    if rows.dtype.char not in "fdFD":
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        rows[ordered[starts]] += np.add.reduceat(updates[order], starts, axis=0, dtype=rows.dtype)
        return
    count, target = index.size, None
    height = rows.shape[0]
    if height > 4 * count:  # few of many rows: sum only into those that occur
        target, index = np.unique(index, return_inverse=True)
        height = target.size
    ones = np.ones(count, rows.dtype)
    sums = csc_array((ones, index, np.arange(count + 1)), shape=(height, count)) @ updates
    if target is None:
        rows += sums
    else:
        rows[target] += sums


def _combine_in_rounds(
    xp: Module, rows: Array, index: Array, updates: Array, combine: str
) -> None:
    """Round r combines the r-th update of each row, so that no round has duplicates."""
    ufunc = getattr(xp, _UFUNCS[combine])
    if combine == "add" and rows.dtype.isbuiltin == 1 and rows.dtype.char in "fdiIlLqQ":
        xp.add.at(rows, index, updates)
        return
    order = xp.argsort(index)
    ordered, place = index[order], xp.arange(index.size)
    first = xp.concatenate([xp.ones(1, bool), ordered[1:] != ordered[:-1]])
    rank = place - xp.maximum.accumulate(xp.where(first, place, 0))
    for turn in range(int(rank.max()) + 1):
        now = order[rank == turn]
        rows[index[now]] = ufunc(rows[index[now]], updates[now])
