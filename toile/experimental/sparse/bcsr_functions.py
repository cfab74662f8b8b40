"""Functions of BCSR arrays; most of them convert their arguments to BCOO arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

import toile.numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.engine.trace import Array as AnyArray
from toile.experimental.sparse.batches import nfold_vmap
from toile.experimental.sparse.bcoo_indices import bcoo_sum_duplicates, dense_at, dense_values
from toile.experimental.sparse.bcoo_layouts import bcoo_broadcast_in_dim, bcoo_concatenate
from toile.experimental.sparse.bcoo_products import Numbers, bcoo_dot_general
from toile.experimental.sparse.storage import BCSRStorage, Shape, check_bcoo, check_bcsr

R = TypeVar("R", bound=BCSRStorage)


def rows_of(indices: Any, indptr: Any) -> Any:
    """The row of each stored element; elements after the last row are out of bounds."""
    counts = jnp.zeros_like(indices).at[indptr].add(1, mode="drop")
    return jnp.cumsum(counts, dtype=indices.dtype) - 1


def bcoo_indices_of(indices: Any, indptr: Any, shape: Shape) -> Array:
    """BCOO indices of a BCSR array."""
    n_batch = check_bcsr(indices, indptr, shape).n_batch
    rows = nfold_vmap(rows_of, n_batch)(indices, indptr)
    return jnp.stack([rows, jnp.broadcast_to(indices, rows.shape)], axis=-1)


def pointers_of(rows: Any, n_rows: int, dtype: Any) -> Any:
    """Row pointers, from the sorted rows of the elements."""
    counts = jnp.zeros(n_rows, dtype).at[rows].add(1, mode="drop", wrap_negative_indices=False)
    return jnp.pad(jnp.cumsum(counts, dtype=dtype), (1, 0))


def bcsr_indices_of(indices: Any, shape: Shape, dtype: DTypeLike) -> tuple[Any, Any]:
    """BCSR indices and pointers of a BCOO array with sorted indices."""
    n_batch, n_sparse, _, _ = check_bcoo(indices, shape)
    if n_sparse != 2:
        raise ValueError(
            f"Must have 2 sparse dimensions to be converted to BCSR: got {n_sparse} in an array of "
            f"shape {shape} (use update_layout){here()}"
        )
    pointers = nfold_vmap(lambda rows: pointers_of(rows, shape[n_batch], dtype), n_batch,
                          broadcasted=False)
    return indices[..., 1], pointers(indices[..., 0])


def bcsr_todense(mat: BCSRStorage) -> Array:
    """Convert a BCSR array to a dense array.

    Args:
        mat: the BCSR array.

    Returns:
        A dense array with the same shape and dtype.
    """
    indices = bcoo_indices_of(mat.indices, mat.indptr, mat.shape)
    return dense_values(mat.data, indices, mat.shape)


def bcsr_extract(indices: ArrayLike, indptr: ArrayLike, mat: ArrayLike) -> Array:
    """Take the values of a dense array at BCSR indices.

    Args:
        indices: column indices.
        indptr: row pointers.
        mat: dense array.

    Returns:
        The data of a BCSR array with these indices.
    """
    mat, indices, indptr = jnp.asarray(mat), jnp.asarray(indices), jnp.asarray(indptr)
    return dense_at(bcoo_indices_of(indices, indptr, mat.shape), mat)


def bcsr_dot_general(
    lhs: BCSRStorage | ArrayLike, rhs: ArrayLike, *, dimension_numbers: Numbers,
    precision: None = None, preferred_element_type: DTypeLike | None = None,
    out_sharding: None = None,
) -> Array:
    """Contract a BCSR array with a dense array, as `lax.dot_general` does.

    Args:
        lhs: a BCSR array or a dense array.
        rhs: a dense array.
        dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, four
            sequences of axes.
        precision: ignored.
        preferred_element_type: dtype of the result; None for the dtype of the operands.
        out_sharding: ignored.

    Returns:
        A dense array. Its axes are, in this order, the batch axes, the remaining axes of `lhs` and
        the remaining axes of `rhs`; the contracted axes are absent.
    """
    if not isinstance(rhs, (np.ndarray, AnyArray)) or not isinstance(
            lhs, (BCSRStorage, np.ndarray, AnyArray)):
        raise NotImplementedError(
            "bcsr_dot_general currently implemented for BCSR lhs and ndarray rhs: got "
            f"{type(lhs)} and {type(rhs)} (use BCOO arrays){here()}"
        )
    left: Any = lhs
    if isinstance(lhs, BCSRStorage):
        left = lhs.to_bcoo()
        left.indices_sorted = True  # by row, which is enough for sums over columns
    return bcoo_dot_general(left, rhs, dimension_numbers=dimension_numbers,
                            preferred_element_type=preferred_element_type)


def bcsr_broadcast_in_dim(
    mat: R, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: None = None,
) -> R:
    """Add batch axes and dense axes to a BCSR array, and repeat its elements along them.

    Args:
        mat: the BCSR array.
        shape: shape of the result.
        broadcast_dimensions: for each axis of `mat`, the corresponding axis of the result.
        sharding: ignored.

    Returns:
        A BCSR array of the given shape.
    """
    return mat.from_bcoo(bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions))


def bcsr_concatenate(operands: Sequence[R], *, dimension: int) -> R:
    """Join BCSR arrays along an existing axis.

    Args:
        operands: BCSR arrays with equal shapes, except along `dimension`, and with the same numbers
            of batch and dense axes.
        dimension: the axis to join along, which must not be a dense axis.

    Returns:
        A BCSR array.
    """
    joined = bcoo_concatenate([op.to_bcoo() for op in operands], dimension=dimension)
    return operands[0].from_bcoo(joined)


def bcsr_sum_duplicates(mat: R, nse: int | None = None) -> R:
    """Add up the elements of a BCSR array that have equal indices.

    Args:
        mat: the BCSR array.
        nse: number of stored elements of the result, as in `bcoo_sum_duplicates`.

    Returns:
        A BCSR array with unique indices in lexicographic order.
    """
    return mat.from_bcoo(bcoo_sum_duplicates(mat.to_bcoo(), nse))
