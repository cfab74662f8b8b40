"""Conversion of BCOO arrays to dense arrays, sorting of indices, and sums over equal indices."""

from __future__ import annotations

from typing import Any, TypeVar

import toile.lax as lax
import toile.numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.experimental.sparse.batches import (
    add_at,
    batch_grid,
    columns,
    count_stored,
    index_row,
    known_number,
    nfold_vmap,
    read,
    replaced,
)
from toile.experimental.sparse.storage import BCOOStorage, Shape, check_bcoo

B = TypeVar("B", bound=BCOOStorage)


# ---------------------------------------------------------------------------------- dense arrays


def dense_values(data: Any, indices: Any, shape: Shape) -> Array:
    """The dense array of a BCOO array."""
    n_batch, n_sparse, _, _ = check_bcoo(indices, shape, data)
    if not n_sparse:
        return jnp.broadcast_to(data.sum(n_batch, dtype=data.dtype), shape)
    index = (*batch_grid(shape[:n_batch]), *columns(indices))
    return add_at(jnp.zeros(shape, data.dtype), index, data)


def bcoo_todense(mat: BCOOStorage) -> Array:
    """Convert a BCOO array to a dense array.

    Args:
        mat: the BCOO array.

    Returns:
        A dense array with the same shape and dtype. Values with equal indices are added.
    """
    return dense_values(mat.data, mat.indices, mat.shape)


def stored_values(
    mat: ArrayLike, nse: int | None, n_batch: int, n_dense: int, index_dtype: DTypeLike, what: str,
) -> tuple[Array, Array]:
    """The values and indices of the nonzero elements of a dense array, in order."""
    mat = jnp.asarray(mat)
    nse = known_number(count_stored(mat, n_batch, n_dense) if nse is None else nse, what)
    n_sparse = mat.ndim - n_batch - n_dense
    if n_sparse < 0:
        raise ValueError(
            f"{what}: needed n_batch + n_dense of at most {mat.ndim}, got n_batch={n_batch}, "
            f"n_dense={n_dense} for an array of shape {mat.shape}{here()}"
        )
    mask = mat != 0
    if n_dense:
        mask = mask.any(tuple(range(mat.ndim - n_dense, mat.ndim)))

    def nonzero(mask: Any) -> Any:
        found = jnp.nonzero(mask, size=nse, fill_value=mask.shape)
        return jnp.stack(found, axis=-1).astype(index_dtype)

    if n_sparse:
        indices = nfold_vmap(nonzero, n_batch, broadcasted=False)(mask)
    else:
        indices = jnp.zeros((*mask.shape[:n_batch], nse, 0), index_dtype)
    count = mask.sum(tuple(range(n_batch, mask.ndim)))[..., None]
    stored = lax.broadcasted_iota(count.dtype, (1,) * n_batch + (nse,), n_batch) < count
    data = dense_at(indices, mat)
    return jnp.where(lax.expand_dims(stored, range(n_batch + 1, data.ndim)), data, 0), indices


def dense_at(indices: Any, arr: Any, assume_unique: bool = True) -> Array:
    """The values of a dense array at BCOO indices.

    Unless the indices are unique, only the first of several equal indices gets the value."""
    n_batch, n_sparse, _, nse = check_bcoo(indices, arr.shape)
    wanted = indices
    if not assume_unique:
        indices, first, _, _ = unique_indices(indices, arr.shape)
    if n_sparse:
        found = read(arr, (*batch_grid(arr.shape[:n_batch]), *columns(indices)))
    else:
        found = jnp.expand_dims(arr, n_batch)
        if assume_unique:
            return jnp.broadcast_to(found, replaced(found.shape, n_batch, nse))
        return jnp.pad(found, [(0, nse - 1 if d == n_batch else 0) for d in range(found.ndim)])
    if assume_unique:
        return found

    def placed(values: Any, at: Any) -> Any:
        return add_at(jnp.zeros((wanted.shape[-2], *values.shape[1:]), values.dtype), (at,), values)

    return nfold_vmap(placed, n_batch)(found, first)


def bcoo_extract(sparr: B, arr: ArrayLike, *, assume_unique: bool | None = None) -> B:
    """Take the values of a dense array at the indices of a BCOO array.

    Args:
        sparr: BCOO array whose indices are used.
        arr: dense array of the same shape.
        assume_unique: if True, every stored element gets the value at its index. If False, only the
            first of several elements with equal indices gets the value; the others are zero. None
            means `sparr.unique_indices`.

    Returns:
        A BCOO array with the indices of `sparr`.
    """
    if not isinstance(sparr, BCOOStorage):
        raise TypeError(
            f"First argument to bcoo_extract should be a BCOO array. Got {type(sparr)}{here()}"
        )
    dense = jnp.asarray(arr)
    if dense.shape != sparr.shape:
        raise ValueError(
            f"bcoo_extract: shape mismatch: needed equal shapes, got {sparr.shape} and "
            f"{dense.shape}{here()}"
        )
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    return sparr._with_data(dense_at(sparr.indices, dense, unique))


# --------------------------------------------------------------------------- order of the indices


def bcoo_sort_indices(mat: B) -> B:
    """Sort the stored elements of a BCOO array by index.

    Args:
        mat: the BCOO array.

    Returns:
        A BCOO array with indices in lexicographic order. Elements with equal indices are not added
        up.
    """
    data, indices = mat.data, mat.indices
    if mat.n_sparse:
        indices, order = nfold_vmap(_sorted, mat.n_batch, broadcasted=False)(indices)
        data = nfold_vmap(lambda d, i: d.at[i].get(mode="clip"), mat.n_batch)(data, order)
    return type(mat)((data, indices), shape=mat.shape, indices_sorted=True,
                     unique_indices=mat.unique_indices)


def _sorted(indices: Any) -> tuple[Any, Any]:
    """Index vectors in lexicographic order, and where each was."""
    nse, n_sparse = indices.shape
    *found, order = lax.sort((*columns(indices), lax.iota(indices.dtype, nse)), num_keys=n_sparse)
    return jnp.stack(found, axis=-1), order


def unique_indices(indices: Any, shape: Shape) -> tuple[Any, Any, Any, Any]:
    """The different index vectors in order, padded with the shape, which is out of bounds.

    Also returned: where each occurs first, which of them each of the given vectors is, and how many
    are in bounds."""
    n_batch, n_sparse, _, nse = check_bcoo(indices, shape)
    sparse_shape = shape[n_batch : n_batch + n_sparse]

    def unbatched(indices: Any) -> Any:
        if not n_sparse:
            zero = jnp.zeros(1, jnp.int32)
            return jnp.zeros((1, 0), indices.dtype), zero, jnp.zeros(nse, jnp.int32), 1
        padding = index_row(sparse_shape, indices)
        outside = ((indices < 0) | (indices >= padding)).any(-1, keepdims=True)
        rows, order = _sorted(jnp.where(outside, padding, indices))
        new = (rows[1:] != rows[:-1]).any(-1)
        number = jnp.cumsum(jnp.pad(new, (min(1, nse), 0)).astype(jnp.int32))
        first = jnp.full(nse, nse, order.dtype).at[number].min(order, mode="drop")
        unique = jnp.broadcast_to(padding, rows.shape).at[number].set(rows, mode="drop")
        which = jnp.zeros(nse, jnp.int32).at[order].set(number, mode="drop")
        count = number.max(initial=-1) + 1 - outside.any().astype(jnp.int32)
        return unique, first, which, count

    return nfold_vmap(unbatched, n_batch, broadcasted=False)(indices)


def summed(data: Any, indices: Any, shape: Shape, nse: int | None) -> tuple[Any, Any]:
    """The values and indices of an array without equal indices; missing ones are padding."""
    n_batch, n_sparse, _, given = check_bcoo(indices, shape, data)
    unique, _, which, count = unique_indices(indices, shape)
    if not n_sparse:
        data, which = data.sum(n_batch, keepdims=True, dtype=data.dtype), which[..., :1]
    if nse is None and n_sparse:
        nse = count.max() if n_batch else count
    nse = 1 if nse is None else known_number(
        nse, "bcoo_sum_duplicates: nse must be specified when using the function within jit, "
        "vmap, and other transformations requiring abstract evaluation")
    have = unique.shape[-2]
    if nse <= have:
        unique = unique[..., :nse, :]
    else:
        more = index_row(shape[n_batch : n_batch + n_sparse], unique)
        more = jnp.broadcast_to(more, replaced(unique.shape, n_batch, nse - have))
        unique = jnp.concatenate([unique, more], axis=n_batch)

    def added(which: Any, data: Any) -> Any:
        return add_at(jnp.zeros((nse, *data.shape[1:]), data.dtype), (which,), data)

    return nfold_vmap(added, n_batch)(which, data), unique


def bcoo_sum_duplicates(mat: B, nse: int | None = None) -> B:
    """Add up the elements of a BCOO array that have equal indices.

    Args:
        mat: the BCOO array.
        nse: number of stored elements of the result. If it is larger than necessary, the array is
            padded with elements whose indices are out of bounds; if it is too small, elements are
            lost. If `nse` is None, as many elements as necessary are stored; under transformations
            such as `jit`, `nse` is required.

    Returns:
        A BCOO array with unique indices in lexicographic order.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCOO((jnp.array([1.0, 2.0, 5.0]), jnp.array([[3], [0], [3]])), shape=(4,))
    >>> mat = sparse.bcoo_sum_duplicates(mat)
    >>> mat.data, mat.indices.ravel()
    (Array([2., 6.], dtype=float32), Array([0, 3], dtype=int32))
    """
    return type(mat)(summed(mat.data, mat.indices, mat.shape, nse), shape=mat.shape,
                     indices_sorted=True, unique_indices=True)


def bcoo_eliminate_zeros(mat: B, nse: int | None = None) -> B:
    """Remove stored zeros, and add up elements with equal indices.

    Args:
        mat: the BCOO array.
        nse: number of stored elements of the result, as in `bcoo_sum_duplicates`.

    Returns:
        A BCOO array with unique indices in lexicographic order.
    """
    n_batch = mat.n_batch
    zero = (mat.data == 0).all(tuple(range(n_batch + 1, mat.data.ndim)))
    shared = tuple(i for i, n in enumerate(mat.indices.shape[:n_batch]) if n == 1)
    zero = zero.all(shared, keepdims=True)  # an index is needed if any batch needs it
    padding = jnp.asarray(mat._sparse_shape, mat.indices.dtype)
    moved = nfold_vmap(lambda i, z: jnp.where(z[:, None], padding, i), n_batch)(mat.indices, zero)
    return bcoo_sum_duplicates(type(mat)((mat.data, moved), shape=mat.shape), nse)


def with_unique_indices(mat: B) -> B:
    """The array without equal indices, and with as many stored elements as before."""
    return mat if mat.unique_indices else bcoo_sum_duplicates(mat, mat.nse)


def as_dtype(mat: B, dtype: Any) -> B:
    """The array with values of another dtype; equal indices are summed before the conversion."""
    if mat.dtype == dtype:
        return mat
    mat = with_unique_indices(mat)
    return mat._with_data(mat.data.astype(dtype))
