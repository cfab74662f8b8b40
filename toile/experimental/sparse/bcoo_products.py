"""Products with BCOO arrays: contractions, sampled contractions and elementwise products.

A contraction with a dense array reads the rows of the dense array at the stored indices, multiplies
them by the stored values, and adds them up by the remaining indices. The compiler fuses these
operations into one kernel. The derivatives of the contraction have the same form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import toile.lax as lax
import toile.numpy as jnp
from toile.api import eval_shape, jit
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.avals import Aval
from toile.engine.source import here
from toile.experimental.sparse.batches import (
    add_at,
    batch_grid,
    columns,
    index_row,
    nfold_vmap,
    read,
    remaining,
    replaced,
)
from toile.experimental.sparse.bcoo_indices import dense_at, summed
from toile.experimental.sparse.bcoo_layouts import bcoo_update_layout
from toile.experimental.sparse.storage import BCOOStorage, SparseInfo

Axes = Sequence[int]
Numbers = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]


def bcoo_dot_general(
    lhs: BCOOStorage | ArrayLike, rhs: BCOOStorage | ArrayLike, *, dimension_numbers: Numbers,
    precision: None = None, preferred_element_type: DTypeLike | None = None,
    out_sharding: None = None,
) -> Any:
    """Contract two arrays, as `lax.dot_general` does; one or both of them may be sparse.

    Args:
        lhs, rhs: BCOO arrays or dense arrays.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, four
            sequences of axes.
        precision: ignored.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        out_sharding: ignored.

    Returns:
        A BCOO array if both operands are sparse, and a dense array otherwise. Its axes are, in this
        order, the batch axes, the remaining axes of `lhs` and the remaining axes of `rhs`; the
        contracted axes are absent.

    Raises:
        NotImplementedError: a dense axis of a sparse operand is contracted, or a batch axis of the
            contraction is not a batch axis of the sparse operand.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> numbers = (([1], [0]), ([], []))
    >>> sparse.bcoo_dot_general(mat, jnp.array([1.0, 10.0]), dimension_numbers=numbers)
    Array([20.,  1.], dtype=float32)
    """
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = (
        tuple(tuple(map(int, axes)) for axes in pair) for pair in dimension_numbers)
    numbers = (lhs_contract, rhs_contract), (lhs_batch, rhs_batch)
    dtype = None if preferred_element_type is None else jnp.dtype(preferred_element_type)
    if isinstance(lhs, BCOOStorage) and isinstance(rhs, BCOOStorage):
        aval = _result(lhs, rhs, numbers, dtype)
        _check_sparse_product(lhs, rhs, numbers)
        return type(lhs)(_both_sparse(lhs, rhs, numbers, aval), shape=aval.shape)
    if isinstance(lhs, BCOOStorage):
        rhs = jnp.asarray(rhs)
        aval = _result(lhs, rhs, numbers, dtype)
        _check_axes(lhs, lhs_contract, lhs_batch)
        return _dot(lhs.data, lhs.indices, rhs, lhs._info, numbers, aval)
    lhs = jnp.asarray(lhs)
    if not isinstance(rhs, BCOOStorage):
        return lax.dot_general(lhs, jnp.asarray(rhs), numbers, preferred_element_type=dtype)
    _check_axes(rhs, rhs_contract, rhs_batch)
    swapped = (rhs_contract, lhs_contract), (rhs_batch, lhs_batch)
    aval = _result(rhs, lhs, swapped, dtype)
    found = _dot(rhs.data, rhs.indices, lhs, rhs._info, swapped, aval)
    n_batch, kept = len(rhs_batch), rhs.ndim - len(rhs_contract)
    return lax.transpose(found, (*range(n_batch), *range(kept, found.ndim), *range(n_batch, kept)))


def _check_axes(mat: BCOOStorage, contract: Axes, batch: Axes) -> None:
    """Raise an error if these axes of a sparse operand cannot be contracted or batched."""
    n_batch, n_sparse, _, _ = mat._axes
    if any(d >= n_batch for d in batch):
        raise NotImplementedError(
            "bcoo_dot_general batch dimensions must be among the batch dimensions in the sparse "
            f"representation: got {tuple(batch)} for {mat}{here()}"
        )
    if any(d >= n_batch + n_sparse for d in contract):
        raise NotImplementedError(
            "bcoo_dot_general: contracting over dense dimensions is not supported: got "
            f"{tuple(contract)} for {mat} (use update_layout){here()}"
        )


def _result(lhs: Any, rhs: Any, numbers: Any, dtype: Any) -> Aval:
    """The shape and dtype of a contraction; raises an error if the operands do not fit."""
    found = eval_shape(
        functools.partial(lax.dot_general, dimension_numbers=numbers, preferred_element_type=dtype),
        *[Aval(x.shape, x.dtype) for x in (lhs, rhs)])
    return Aval(found.shape, found.dtype)


@functools.partial(jit, static_argnums=(3, 4, 5))
def _dot(data: Any, indices: Any, rhs: Any, info: SparseInfo, numbers: Any, aval: Aval) -> Array:
    """The contraction of a BCOO array with a dense array."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = numbers
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    pairs = list(zip(lhs_contract, rhs_contract, strict=True))
    batch_pairs = [(i, j) for i, j in pairs if i < n_batch]  # contracted batch axes
    sparse_pairs = [(i - n_batch, j) for i, j in pairs if i >= n_batch]
    summed_batch = [i for i, _ in batch_pairs]
    for i in summed_batch:
        data, indices = (_filled(x, i, info.shape[i]) for x in (data, indices))
    order = [*lhs_batch, *remaining(range(n_batch), lhs_batch, summed_batch), *summed_batch]
    data = lax.transpose(data, (*order, *range(n_batch, data.ndim)))
    indices = lax.transpose(indices, (*order, n_batch, n_batch + 1))
    rhs_order = [*rhs_batch, *(j for _, j in batch_pairs), *(j for _, j in sparse_pairs)]
    rhs = lax.transpose(rhs, (*rhs_order, *remaining(range(rhs.ndim), rhs_order)))
    taken = [i for i, _ in sparse_pairs]
    kept = remaining(range(n_sparse), taken)
    is_sorted = info.indices_sorted and kept == list(range(len(kept)))
    mapped = n_batch - len(batch_pairs)
    n_dense = data.ndim - n_batch - 1

    def product(out: Any, data: Any, indices: Any, rhs: Any) -> Any:
        index = columns(indices)
        rows, n_rows = rhs, len(batch_pairs)  # axes that the values and the rows have in common
        if taken:
            grid = batch_grid(indices.shape[:-2])
            rows, n_rows = read(rhs, (*grid, *(index[i] for i in taken))), n_rows + 1
        values = data.astype(out.dtype)
        lined = n_rows + (0 if taken else 1)  # ... and those that only the values have
        rows = lax.expand_dims(rows.astype(out.dtype), range(n_rows, lined + n_dense))
        values = lax.expand_dims(values, range(values.ndim, rows.ndim))
        if kept:
            return add_at(out, tuple(index[i] for i in kept), values * rows, is_sorted)
        return (values * rows).sum(tuple(range(lined)), dtype=out.dtype)

    rhs = lax.expand_dims(rhs, range(len(rhs_batch), mapped))
    out = jnp.zeros(aval.shape, aval.dtype)
    return nfold_vmap(product, mapped)(out, data, indices, rhs)


def _filled(x: Any, axis: int, size: int) -> Any:
    """`x` with an axis of size 1 or `size` repeated to `size`."""
    return jnp.broadcast_to(x, replaced(x.shape, axis, size))


# ------------------------------------------------------------------------------ sampled products


def bcoo_dot_general_sampled(
    A: ArrayLike, B: ArrayLike, indices: ArrayLike, *, dimension_numbers: Numbers,
) -> Array:
    """Compute some elements of the contraction of two dense arrays.

    Args:
        A, B: dense arrays.
        indices: indices of the elements to compute, as in a BCOO array.
        dimension_numbers: the axes to contract, as in `bcoo_dot_general`.

    Returns:
        An array of the values of the elements, which can serve as the data of a BCOO array with
        these indices.
    """
    A, B, indices = jnp.asarray(A), jnp.asarray(B), jnp.asarray(indices)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    simple = A.ndim == B.ndim == len(lhs_contract) + 1 and not len(lhs_batch)
    if simple and indices.ndim == 2 and indices.shape[-1] == 2:
        # Only the rows and columns that are needed are multiplied.
        lhs, rhs = (lax.transpose(x, (*remaining(range(x.ndim), axes), *axes))
                    for x, axes in ((A, lhs_contract), (B, rhs_contract)))
        rows, cols = (read(x, (i,)) for x, i in zip((lhs, rhs), columns(indices), strict=True))
        both = list(range(1, rows.ndim))
        return lax.dot_general(rows, cols, ((both, both), ([0], [0])),
                               precision=lax.Precision.HIGHEST)
    return dense_at(indices, lax.dot_general(
        A, B, dimension_numbers, precision=lax.Precision.HIGHEST))


# ------------------------------------------------------------------------ products of two sparse


def _check_sparse_product(lhs: BCOOStorage, rhs: BCOOStorage, numbers: Any) -> None:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = numbers
    if lhs.n_dense or rhs.n_dense:
        raise NotImplementedError(
            f"bcoo_spdot_general with dense dimensions is not supported: got {lhs} and {rhs} (use "
            f"update_layout){here()}"
        )
    for mat, batch, contract in ((lhs, lhs_batch, lhs_contract), (rhs, rhs_batch, rhs_contract)):
        if any(d >= mat.n_batch for d in batch):
            raise NotImplementedError(
                "bcoo_spdot_general: batch_dims must correspond to batch dimensions of the sparse "
                f"representation: got {tuple(batch)} for {mat}{here()}"
            )
        if any(d < mat.n_batch for d in contract):
            raise NotImplementedError(
                "bcoo_spdot_general only supports contraction of sparse indices: got "
                f"{tuple(contract)} for {mat}{here()}"
            )
    if rhs.n_batch > len(rhs_batch) and lhs.n_sparse > len(lhs_contract):
        raise ValueError(
            "bcoo_spdot_general: cannot have unused batch dims on rhs with unused sparse dims on "
            f"lhs: got {lhs} and {rhs}{here()}"
        )


def _both_sparse(lhs: BCOOStorage, rhs: BCOOStorage, numbers: Any, aval: Aval) -> tuple[Any, Any]:
    """The values and indices of the contraction of two sparse arrays."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = numbers
    nse = math.prod(m.nse if m.n_sparse > len(contract) else 1
                    for m, contract in ((lhs, lhs_contract), (rhs, rhs_contract)))
    nse = min(nse, math.prod(aval.shape[lhs.n_batch + rhs.n_batch - len(lhs_batch) :]))
    buffers = []
    for mat, batch in ((lhs, lhs_batch), (rhs, rhs_batch)):
        order = [*batch, *remaining(range(mat.n_batch), batch)]
        buffers += [lax.transpose(x, (*order, *range(mat.n_batch, x.ndim))) for x in mat._bufs]
    out_sparse = aval.shape[lhs.n_batch + rhs.n_batch - len(lhs_batch) :]

    def unbatched(lhs_data: Any, lhs_indices: Any, rhs_data: Any, rhs_indices: Any) -> Any:
        left, left_inside, left_rest = _keys(lhs, lhs_indices, lhs_contract)
        right, right_inside, right_rest = _keys(rhs, rhs_indices, rhs_contract)
        meet = (left[:, None] == right[None, :]).all(-1)
        meet &= left_inside[:, None] & right_inside[None, :]
        data = jnp.where(meet, lhs_data[:, None] * rhs_data[None, :], 0).astype(aval.dtype).ravel()
        indices = jnp.concatenate([
            jnp.broadcast_to(left_rest[:, None], (*meet.shape, left_rest.shape[-1])),
            jnp.broadcast_to(right_rest[None, :], (*meet.shape, right_rest.shape[-1])),
        ], axis=-1)
        return summed(data, indices.reshape(data.size, indices.shape[-1]), out_sparse, nse)

    fun = nfold_vmap(unbatched, rhs.n_batch - len(rhs_batch), in_axes=(None, None, 0, 0))
    fun = nfold_vmap(fun, lhs.n_batch - len(lhs_batch), in_axes=(0, 0, None, None))
    return nfold_vmap(fun, len(lhs_batch))(*buffers)


def _keys(mat: BCOOStorage, indices: Any, contract: Axes) -> tuple[Any, Any, Any]:
    """The contracted columns of indices, where they are in bounds, and the other columns."""
    axes = [d - mat.n_batch for d in contract]
    kept = remaining(range(mat.n_sparse), axes)
    found = jnp.take(indices, jnp.asarray(axes, int), axis=-1)
    inside = (found < index_row([mat._sparse_shape[a] for a in axes], found)).all(-1)
    return found, inside, jnp.take(indices, jnp.asarray(kept, int), axis=-1)


# ----------------------------------------------------------------------------- element by element


def bcoo_multiply_dense(sp_mat: BCOOStorage, v: ArrayLike) -> Array:
    """Multiply a BCOO array by a dense array, element by element.

    Args:
        sp_mat: the BCOO array.
        v: dense array that can be broadcast to the shape of `sp_mat`.

    Returns:
        An array like `sp_mat.data` that contains the values of the product at the indices of
        `sp_mat`.
    """
    v = jnp.asarray(v)
    data, indices, shape = sp_mat.data, sp_mat.indices, sp_mat.shape
    if v.ndim == 0:
        return lax.mul(data, v)
    if v.shape == shape:
        return lax.mul(data, dense_at(indices, v))
    if len(shape) < v.ndim or lax.broadcast_shapes(v.shape, shape) != shape:
        raise NotImplementedError(
            "multiplication between sparse and dense is only implemented for cases where the "
            f"output shape matches the sparse matrix shape. Got shape={shape}, v.shape={v.shape}"
            f"{here()}"
        )
    v = lax.expand_dims(v, range(len(shape) - v.ndim))

    def product(data: Any, indices: Any, v: Any) -> Any:
        index = tuple(i if n != 1 else jnp.zeros_like(i)
                      for i, n in zip(columns(indices), v.shape))
        return data * v.at[index].get(mode="clip")  # padding reads some element, as in JAX

    return nfold_vmap(product, sp_mat.n_batch)(data, indices, v)


def bcoo_multiply_sparse(lhs: BCOOStorage, rhs: BCOOStorage) -> Any:
    """Multiply two BCOO arrays, element by element.

    Args:
        lhs, rhs: BCOO arrays with the same number of axes, which are broadcast against each other.

    Returns:
        A BCOO array. Its number of stored elements is the product of the operands' numbers of
        stored elements. Elements that are not needed have indices that are out of bounds.
    """
    if lhs.ndim != rhs.ndim:
        raise TypeError(
            "bcoo_multiply_sparse: arrays must have same number of dimensions, got "
            f"{lhs.shape}, {rhs.shape}{here()}"
        )
    if lhs.n_dense != rhs.n_dense:
        raise NotImplementedError(
            "bcoo_multiply_sparse: arrays with differing numbers of dense dimensions: got "
            f"{lhs} and {rhs} (use update_layout){here()}"
        )
    n_batch = min(lhs.n_batch, rhs.n_batch)
    shapes = lhs.shape[n_batch:], rhs.shape[n_batch:]
    kind = type(lhs)

    def product(*buffers: Any) -> Any:
        x, y = (
            bcoo_update_layout(kind.tree_unflatten(SparseInfo(shape)._asdict(), pair), n_batch=0)
            for shape, pair in zip(shapes, (buffers[:2], buffers[2:]), strict=True))
        return _product_of_all(x, y)

    found = nfold_vmap(product, n_batch)(*lhs._bufs, *rhs._bufs)
    return kind(found, shape=jnp.broadcast_shapes(lhs.shape, rhs.shape))


def _product_of_all(x: BCOOStorage, y: BCOOStorage) -> tuple[Any, Any]:
    """The product of arrays without batch axes: all pairs of elements whose indices agree."""
    axes = [i for i, (n, m) in enumerate(zip(x._sparse_shape, y._sparse_shape)) if n != 1 != m]
    select = jnp.asarray(axes, int)
    left, right = (jnp.take(m.indices, select, axis=-1) for m in (x, y))
    meet = (left[:, None] == right[None, :]).all(-1)
    i, j = jnp.nonzero(meet, size=x.nse * y.nse, fill_value=(x.nse, y.nse))

    def at(mat: BCOOStorage, place: Any) -> Any:
        return mat.indices.at[place].get(
            mode="fill", fill_value=max(mat.shape, default=0), wrap_negative_indices=False)

    return read(x.data, (i,)) * read(y.data, (j,)), jnp.maximum(at(x, i), at(y, j))


