"""Sparse arrays in BCSR format, which stores elements row by row with their column indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import toile.numpy as jnp
from toile.api.vectorization import register_shaped_node
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.experimental.sparse.batches import split
from toile.experimental.sparse.bcoo import BCOO
from toile.experimental.sparse.bcoo_indices import (
    bcoo_eliminate_zeros,
    bcoo_sort_indices,
    stored_values,
)
from toile.experimental.sparse.bcsr_functions import (
    bcoo_indices_of,
    bcsr_indices_of,
    bcsr_sum_duplicates,
    bcsr_todense,
)
from toile.experimental.sparse.sparsify_trace import sparsify
from toile.experimental.sparse.storage import BCOOStorage, BCSRProperties, BCSRStorage
from toile.tree_util import register_pytree_node_class

__all__ = ["BCSR", "BCSRProperties", "bcsr_eliminate_zeros", "bcsr_fromdense"]


@register_pytree_node_class
class BCSR(BCSRStorage):
    """A sparse array in BCSR (batched compressed sparse row) format.

    The axes are, in this order, batch axes, two sparse axes (rows and columns) and dense axes. The
    elements of row i are at the positions from `indptr[i]` to `indptr[i + 1] - 1`. Elements after
    the last row are padding.

    Args:
        args: the triple (data, indices, indptr). `data` has the shape `[*batch, nse, *dense]`,
            `indices`, which contains the column indices, has the shape `[*batch, nse]`, and
            `indptr` has the shape `[*batch, rows + 1]`.
        shape: shape of the dense array.
        indices_sorted: whether the column indices are sorted within each row.
        unique_indices: whether no column index occurs more than once in a row.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
    >>> mat.indices, mat.indptr
    (Array([1, 0, 2], dtype=int32), Array([0, 1, 3], dtype=int32))
    >>> mat @ jnp.array([1.0, 1.0, 10.0])
    Array([ 2., 41.], dtype=float32)
    """

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32,
        n_dense: int = 0, n_batch: int = 0,
    ) -> BCSR:
        """Create a sparse array from a dense array; see `bcsr_fromdense`."""
        return bcsr_fromdense(
            mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0,
    ) -> BCSR:
        """Create a sparse array from an array of `scipy.sparse`."""
        if n_dense or n_batch:
            raise NotImplementedError(
                "BCSR.from_scipy_sparse with nonzero n_dense/n_batch is not supported: got "
                f"{n_dense=}, {n_batch=} (use bcsr_broadcast_in_dim on the result){here()}"
            )
        if mat.ndim != 2:
            raise ValueError(
                f"BCSR from_scipy_sparse requires 2D array; {mat.ndim}D is given.{here()}"
            )
        mat = mat.tocsr()
        dtype = index_dtype or jnp.int32
        return cls((mat.data, jnp.asarray(mat.indices).astype(dtype),
                    jnp.asarray(mat.indptr).astype(dtype)), shape=mat.shape)

    @classmethod
    def from_bcoo(cls, arr: BCOOStorage) -> BCSR:
        """Create a sparse array from a BCOO array with two sparse axes."""
        if arr.n_sparse != 2:
            raise NotImplementedError(
                f"BCSR.from_bcoo requires n_sparse=2; got {arr} (use update_layout){here()}"
            )
        if not arr.indices_sorted:
            arr = bcoo_sort_indices(arr)
        indices, indptr = bcsr_indices_of(arr.indices, arr.shape, arr.indices.dtype)
        return cls((arr.data, indices, indptr), shape=arr.shape)

    @classmethod
    def _empty(
        cls, shape: Sequence[int], *, dtype: DTypeLike | None = None,
        index_dtype: DTypeLike = "int32", n_dense: int = 0, n_batch: int = 0, nse: int = 0,
    ) -> BCSR:
        if min(n_dense, n_batch, nse) < 0 or len(shape) - n_dense - n_batch != 2:
            raise ValueError(
                f"BCSR sparse.empty: must have 2 sparse dimensions: got {shape=}, {n_dense=}, "
                f"{n_batch=}, {nse=}{here()}"
            )
        batch, (rows, cols), dense = split(shape, n_batch, 2)
        return cls((jnp.zeros((*batch, nse, *dense), dtype),
                    jnp.full((*batch, nse), cols, index_dtype),
                    jnp.zeros((*batch, rows + 1), index_dtype)), shape=shape)

    def todense(self) -> Array:
        """Return the dense array; see `bcsr_todense`."""
        return bcsr_todense(self)

    def to_bcoo(self) -> BCOO:
        """Convert the array to BCOO format."""
        indices = bcoo_indices_of(self.indices, self.indptr, self.shape)
        return BCOO((self.data, indices), shape=self.shape)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Add up elements with equal indices, and sort the column indices within each row.

        Args:
            nse: number of stored elements of the result; required under transformations such as
                `jit`. If `nse` is None, as many elements as necessary are stored.
            remove_zeros: whether to remove stored zeros.

        Returns:
            An array with unique, sorted indices.
        """
        return bcsr_eliminate_zeros(self, nse) if remove_zeros else bcsr_sum_duplicates(self, nse)

    def __matmul__(self, other: Any) -> Any:
        return sparsify(jnp.matmul)(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return sparsify(jnp.matmul)(other, self)

    def __getitem__(self, item: Any) -> Any:
        return sparsify(lambda x: x[item])(self)


def bcsr_eliminate_zeros(mat: BCSR, nse: int | None = None) -> BCSR:
    """Remove stored zeros, and add up elements with equal indices.

    Args:
        mat: the BCSR array.
        nse: number of stored elements of the result, as in `bcsr_sum_duplicates`.

    Returns:
        A BCSR array with unique, sorted indices.
    """
    return BCSR.from_bcoo(bcoo_eliminate_zeros(mat.to_bcoo(), nse))


def bcsr_fromdense(
    mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
    index_dtype: DTypeLike = jnp.int32,
) -> BCSR:
    """Create a BCSR array from a dense array.

    Args:
        mat: dense array with `n_batch + n_dense + 2` axes.
        nse: number of stored elements in each batch, as in `bcoo_fromdense`.
        n_batch: number of batch axes.
        n_dense: number of dense axes.
        index_dtype: dtype of the indices.

    Returns:
        A BCSR array.
    """
    mat = jnp.asarray(mat)
    if mat.ndim - n_batch - n_dense != 2:
        raise ValueError(
            f"bcsr_fromdense: must have 2 sparse dimensions: got shape {mat.shape} with "
            f"{n_batch=}, {n_dense=}{here()}"
        )
    data, indices = stored_values(mat, nse, n_batch, n_dense, index_dtype, "bcsr_fromdense")
    return BCSR((data, *bcsr_indices_of(indices, mat.shape, index_dtype)), shape=mat.shape)


# --------------------------------------------------------------------------------- mapped axes


def _removed(mat: BCSR, axis: int) -> BCSR:
    if not 0 <= axis <= mat.n_batch:
        raise ValueError(
            f"Cannot map in_axis={axis} for BCSR array with n_batch={mat.n_batch + 1}. in_axes for "
            f"batched BCSR operations must correspond to a batched dimension.{here()}"
        )
    return _plain(mat, mat.shape[:axis] + mat.shape[axis + 1 :])


def _inserted(mat: BCSR, axis: int, size: int) -> BCSR:
    if not 0 <= axis <= mat.n_batch:
        raise ValueError(
            f"BCSR: cannot add out_axis={axis} for BCSR array with n_batch={mat.n_batch}. BCSR "
            f"batch axes must be a contiguous block of leading dimensions.{here()}"
        )
    return _plain(mat, (*mat.shape[:axis], size, *mat.shape[axis:]))


def _plain(mat: BCSR, shape: tuple[int, ...]) -> BCSR:
    made = mat._with_shape(shape)
    made.indices_sorted = made.unique_indices = False
    return made


register_shaped_node(BCSR, _removed, _inserted)
