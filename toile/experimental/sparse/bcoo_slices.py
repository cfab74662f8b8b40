"""Slices, gathers, sums and one-dimensional convolutions of BCOO arrays."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

import toile.lax as lax
import toile.numpy as jnp
from toile.api import eval_shape, vmap
from toile.engine.annotations import Array, ArrayLike
from toile.engine.avals import Aval
from toile.engine.source import here
from toile.experimental.sparse.batches import index_row, replaced, split
from toile.experimental.sparse.bcoo_indices import summed
from toile.experimental.sparse.bcoo_layouts import (
    bcoo_reshape,
    bcoo_squeeze,
    bcoo_transpose,
    bcoo_update_layout,
)
from toile.experimental.sparse.storage import BCOOStorage, Shape
from toile.lax import ConvDimensionNumbers, GatherDimensionNumbers, GatherScatterMode

B = TypeVar("B", bound=BCOOStorage)


def bcoo_slice(
    mat: B, *, start_indices: Sequence[int], limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> B:
    """Read a part of a BCOO array at a fixed position.

    Args:
        mat: the BCOO array.
        start_indices: first index along each axis.
        limit_indices: end of the slice along each axis, excluded.
        strides: distance between indices along each axis; None means 1.

    Returns:
        A BCOO array. Its number of stored elements is at most the product of the sizes of its
        sparse axes.
    """
    if not isinstance(mat, BCOOStorage):
        raise TypeError(f"bcoo_slice: input should be BCOO array, got {type(mat)}{here()}")
    starts, limits, steps = _entries(mat, start_indices, limit_indices, strides)
    n_batch, n_sparse, _, _ = mat._axes
    parts = [slice(*entry) for entry in zip(starts, limits, steps)]
    batch, _, dense = split(parts, n_batch, n_sparse)
    whole = slice(None)
    data, indices = (
        x[(*(s if x.shape[i] == mat.shape[i] else whole for i, s in enumerate(batch)), *rest)]
        for x, rest in ((mat.data, (whole, *dense)), (mat.indices, ())))
    shape = tuple(len(range(*entry)) for entry in zip(starts, limits, steps))
    if n_sparse:
        start, limit, step = (
            index_row(xs[n_batch : n_batch + n_sparse], indices) for xs in (starts, limits, steps))
        keep = (indices >= start) & (indices < limit) & ((indices - start) % step == 0)
        data, indices = _kept(mat, data, keep.all(-1, keepdims=True), (indices - start) // step,
                              shape)
    return type(mat)((data, indices), shape=shape)


def _entries(mat: BCOOStorage, *given: Sequence[int] | None) -> Sequence[list[int]]:
    """The starts, limits and strides of a slice as integers; raises an error if they are wrong."""
    found = [[operator.index(i) for i in xs or [1] * mat.ndim] for xs in given]
    starts, limits, steps = found
    if {len(xs) for xs in found} - {mat.ndim} or min(steps, default=1) <= 0 or (
            not all(0 <= a <= b <= n for a, b, n in zip(starts, limits, mat.shape))):
        raise ValueError(
            f"bcoo_slice: invalid indices: needed one entry for each axis of {mat.shape}, within "
            f"its size, and positive strides. Got {starts}, {limits} and {steps}{here()}"
        )
    return found


def _kept(mat: BCOOStorage, data: Any, keep: Any, indices: Any, shape: Shape) -> tuple[Any, Any]:
    """The values and indices where `keep` holds, and padding elsewhere; no more than fit."""
    n_batch, n_sparse, _, nse = mat._axes
    sizes = shape[n_batch : n_batch + n_sparse]
    indices = jnp.where(keep, indices, index_row(sizes, indices))
    data = jnp.where(lax.expand_dims(keep[..., 0], range(n_batch + 1, data.ndim)), data, 0)
    if nse > math.prod(sizes):
        return summed(data, indices, shape, math.prod(sizes))
    return data, indices


def bcoo_dynamic_slice(
    mat: B, start_indices: Sequence[ArrayLike], slice_sizes: Sequence[int]
) -> B:
    """Read a block of a BCOO array at a position that may be traced.

    Args:
        mat: the BCOO array.
        start_indices: start of the block along each axis, a sequence of numbers. A block that is
            not entirely inside the array is shifted to the nearest position inside it.
        slice_sizes: size of the block along each axis.

    Returns:
        A BCOO array of shape `slice_sizes`.
    """
    if not isinstance(mat, BCOOStorage):
        raise TypeError(f"bcoo_slice: input should be BCOO array, got {type(mat)}{here()}")
    sizes = tuple(operator.index(n) for n in slice_sizes)
    starts = [jnp.asarray(i) for i in start_indices]
    eval_shape(lambda x, *at: lax.dynamic_slice(x, at, sizes), Aval(mat.shape, mat.dtype), *starts)
    n_batch, n_sparse, _, nse = mat._axes
    (batch, sparse, dense), (batch_sizes, _, dense_sizes) = (
        split(xs, n_batch, n_sparse) for xs in (starts, sizes))

    def block(x: Any, more: Sequence[Any], more_sizes: Sequence[int]) -> Any:
        shared = [x.shape[i] != mat.shape[i] for i in range(n_batch)]
        at = [0 if one else start for one, start in zip(shared, batch)]
        n = [1 if one else size for one, size in zip(shared, batch_sizes)]
        return lax.dynamic_slice(x, (*at, 0, *more), (*n, nse, *more_sizes))

    data = block(mat.data, dense, dense_sizes)
    indices = block(mat.indices, (0,), (n_sparse,))
    if n_sparse:
        have = np.asarray(mat._sparse_shape, indices.dtype)
        size = np.asarray(sizes[n_batch : n_batch + n_sparse], indices.dtype)
        start = jnp.stack(sparse).astype(indices.dtype)
        start = jnp.clip(jnp.where(start < 0, start + have, start), 0, have - size)
        start = lax.expand_dims(start, range(indices.ndim - 1))
        size = size.reshape(start.shape)
        keep = ((indices >= start) & (indices < start + size)).all(-1, keepdims=True)
        data, indices = _kept(mat, data, keep, indices - start, sizes)
    return type(mat)((data, indices), shape=sizes)


def bcoo_gather(
    operand: B, start_indices: Array, dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int], *, unique_indices: bool = False, indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None, fill_value: None = None,
) -> B:
    """Collect blocks of a BCOO array, as `lax.gather` does for dense arrays.

    Args:
        operand: the BCOO array.
        start_indices: integer array of index vectors, which are along the last axis.
        dimension_numbers: how the axes of the arrays correspond; see `lax.gather`.
        slice_sizes: size of a block along each axis of `operand`.
        unique_indices, indices_are_sorted: ignored.
        mode: `"promise_in_bounds"` or None, which have the same meaning. Other modes are not
            supported.
        fill_value: ignored.

    Returns:
        A BCOO array.
    """
    parsed = GatherScatterMode.from_any(
        GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else mode)
    if parsed != GatherScatterMode.PROMISE_IN_BOUNDS:
        raise NotImplementedError(
            f"bcoo_gather: mode={mode} is not supported (use 'promise_in_bounds'){here()}"
        )
    numbers = dimension_numbers
    if numbers.operand_batching_dims:
        raise NotImplementedError(
            f"bcoo_gather: batching dimensions are not supported, got {numbers}{here()}"
        )
    aval = eval_shape(
        functools.partial(lax.gather, dimension_numbers=numbers, slice_sizes=slice_sizes,
                          mode=parsed),
        Aval(operand.shape, operand.dtype), Aval(start_indices.shape, start_indices.dtype))
    starts: list[Any] = [jnp.zeros((), start_indices.dtype)] * operand.ndim
    in_axes: list[int | None] = [None] * operand.ndim
    sizes = list(operand.shape)
    for i, axis in enumerate(numbers.start_index_map):
        starts[axis] = start_indices[..., i].ravel()
        sizes[axis], in_axes[axis] = slice_sizes[axis], 0

    def one(at: Any) -> Any:
        part = bcoo_dynamic_slice(operand, at, sizes)
        return bcoo_squeeze(part, dimensions=numbers.collapsed_slice_dims)

    found: Any = vmap(one, in_axes=(in_axes,))(starts)
    found = bcoo_reshape(found, new_sizes=(*start_indices.shape[:-1], *found.shape[1:]))
    if found.shape:
        offsets = tuple(numbers.offset_dims)
        batch = tuple(d for d in range(len(aval.shape)) if d not in offsets)
        order = np.argsort((*batch, *offsets))
        if set(order[: len(batch)]) != set(range(len(batch))):
            found = bcoo_update_layout(found, n_batch=0)
        found = bcoo_transpose(found, permutation=order.tolist())
    return found


def bcoo_reduce_sum(mat: B, *, axes: Sequence[int]) -> B:
    """Sum the elements of a BCOO array along some axes.

    Args:
        mat: the BCOO array.
        axes: the axes to sum over, which are removed.

    Returns:
        A BCOO array. Terms of the same sum may be stored as separate elements with equal indices.
    """
    n_batch, n_sparse, _, nse = mat._axes
    axes = sorted({operator.index(a) for a in axes})
    if axes and not 0 <= axes[0] <= axes[-1] < mat.ndim:
        raise ValueError(
            f"bcoo_reduce_sum: needed axes from 0 to {mat.ndim - 1}, got {tuple(axes)}{here()}"
        )
    indices, shape = mat.indices, mat.shape
    data = mat.data.sum(tuple(a - n_sparse + 1 for a in axes if a >= n_batch + n_sparse))
    if n_sparse:
        inside = (indices < index_row(mat._sparse_shape, indices)).all(-1)
        data = jnp.where(lax.expand_dims(inside, range(inside.ndim, data.ndim)), data, 0)
    kept = [i for i in range(n_sparse) if i + n_batch not in axes]
    if len(kept) < n_sparse:
        indices = indices[..., np.array(kept, int)]
    batch = [a for a in axes if a < n_batch]
    for a in batch:
        data = _matched(data, a, indices.shape[a], shape[a])
    others = [i for i in range(n_batch) if i not in batch]
    count = nse * math.prod(data.shape[a] for a in batch)
    data, indices = (
        lax.reshape(x, (*(x.shape[i] for i in others), count, *x.shape[n_batch + 1 :]),
                    (*others, *batch, *range(n_batch, x.ndim)))
        for x in (data, indices))
    return type(mat)((data, indices), shape=[n for i, n in enumerate(shape) if i not in axes])


def _matched(data: Any, axis: int, n: int, size: int) -> Any:
    """Values to be summed along a batch axis, with the size `n` that the indices have there."""
    if data.shape[axis] == 1:
        return data * size if n == 1 else jnp.broadcast_to(data, replaced(data.shape, axis, size))
    return data.sum(axis, keepdims=True) if n == 1 else data


# ----------------------------------------------------------------------------------- convolution


def bcoo_conv_general_dilated(
    lhs: BCOOStorage | Array, rhs: BCOOStorage | Array, *, window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvDimensionNumbers | tuple[str, str, str] | None = None,
    feature_group_count: int = 1, batch_group_count: int = 1, precision: None = None,
    preferred_element_type: None = None, out_sharding: None = None,
) -> Any:
    """Convolve a signal with a kernel along one axis; one or both of them may be sparse.

    Args:
        lhs: the signal, of shape `(1, 1, n)`, a BCOO array or a dense array.
        rhs: the kernel, of shape `(1, 1, m)`, a BCOO array or a dense array.
        window_strides: must be `(1,)`; other strides are not supported.
        padding: padding of the signal, as in `lax.conv_general_dilated`.
        lhs_dilation, rhs_dilation: must be `(1,)` or None; other dilations are not supported.
        dimension_numbers: must be `("NCH", "OIH", "NCH")` or None, which means the same.
        feature_group_count, batch_group_count: must be 1; other numbers are not supported.
        precision, preferred_element_type, out_sharding: ignored.

    Returns:
        A BCOO array of shape `(1, 1, k)` with two batch axes.
    """
    n = len(lhs.shape) - 2
    one = (1,) * n
    options = (window_strides, lhs_dilation or one, rhs_dilation or one)
    if any(tuple(x) != one for x in options) or (feature_group_count, batch_group_count) != (1, 1):
        raise NotImplementedError(
            "bcoo convolution supports only strides, dilations and group counts of 1: got "
            f"{options}, {feature_group_count} and {batch_group_count}{here()}"
        )
    if n != 1 or lhs.shape[:2] != (1, 1) or rhs.shape[:2] != (1, 1) or dimension_numbers not in (
            None, ("NCH", "OIH", "NCH"), ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))):
        raise NotImplementedError(
            "bcoo convolution requires one spatial axis, leading dimensions (1, 1) and the default "
            f"dimension numbers: got {lhs.shape}, {rhs.shape} and {dimension_numbers}{here()}"
        )
    pads = lax.padtype_to_pads(lhs.shape[2:], rhs.shape[2:], one, padding) if isinstance(
        padding, str) else padding
    before, after = map(int, pads[0])
    kind: Any = type(lhs) if isinstance(lhs, BCOOStorage) else type(rhs)
    index_dtype = next(
        (m.indices.dtype for m in (lhs, rhs) if isinstance(m, BCOOStorage)), np.int32)
    (x, i), (y, j) = (_as_signal(m, index_dtype) for m in (lhs, rhs))
    data = (x[:, None] * y[None, :]).ravel()
    place = (i[:, None] + (before - j)[None, :]).ravel()
    data, place = jnp.where(place < 0, 0, data), jnp.maximum(place, 0)
    size = max(0, lhs.shape[2] + before + after - rhs.shape[2] + 1)
    return kind((data[None, None], place[None, None, :, None]), shape=(1, 1, size))


def _as_signal(mat: Any, index_dtype: Any) -> tuple[Any, Any]:
    """The values of a signal and their positions."""
    if not isinstance(mat, BCOOStorage):
        data = jnp.asarray(mat)[0, 0]
        return data, jnp.arange(data.size, dtype=index_dtype)
    mat = bcoo_update_layout(mat, n_batch=2, n_dense=0)
    place = mat.indices[0, 0, :, 0]
    return jnp.where(place < mat.shape[-1], mat.data[0, 0], 0), place
