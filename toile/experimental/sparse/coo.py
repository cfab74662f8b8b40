"""Sparse matrices in COO (coordinate) format. `BCOO` supports more operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import toile.lax as lax
import toile.numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.experimental.sparse.batches import add_at, count_stored, known_number, read
from toile.experimental.sparse.storage import JAXSparse
from toile.tree_util import register_pytree_node_class

__all__ = ["COO", "coo_fromdense", "coo_matmat", "coo_matvec", "coo_todense"]


@register_pytree_node_class
class COO(JAXSparse):
    """A sparse matrix in COO (coordinate) format: a list of elements with their indices.

    Args:
        args: the triple (data, row, col) of arrays with one axis. Elements with equal indices are
            added.
        shape: shape of the dense matrix.
        rows_sorted: whether the elements are sorted by row.
        cols_sorted: whether the elements are sorted by column.

    >>> from toile.experimental import sparse
    >>> mat = sparse.COO.fromdense(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> mat.row, mat.col
    (Array([0, 1], dtype=int32), Array([1, 0], dtype=int32))
    >>> mat @ jnp.array([1.0, 10.0])
    Array([20.,  1.], dtype=float32)
    """

    buffers = ("data", "row", "col")
    static = ("shape", "rows_sorted", "cols_sorted")
    row: Any
    col: Any

    def __init__(self, args: tuple[ArrayLike, ArrayLike, ArrayLike], *, shape: Sequence[int],
                 rows_sorted: bool = False, cols_sorted: bool = False):
        super().__init__(args, shape=shape)
        self.rows_sorted, self.cols_sorted = rows_sorted, cols_sorted

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32
    ) -> COO:
        """Create a sparse matrix from a dense matrix; see `coo_fromdense`."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def _sort_indices(self) -> COO:
        """The matrix with elements sorted by row and column."""
        if self.rows_sorted:
            return self
        row, col, order = lax.sort((self.row, self.col, jnp.arange(self.nse)), num_keys=2)
        return COO((self.data[order], row, col), shape=self.shape, rows_sorted=True)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: DTypeLike | None = None,
               index_dtype: DTypeLike = "int32") -> COO:
        none = jnp.zeros(0, index_dtype)
        return cls((jnp.zeros(0, dtype), none, none), shape=matrix_shape(shape, "COO"),
                   rows_sorted=True, cols_sorted=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: DTypeLike | None = None,
             index_dtype: DTypeLike = "int32") -> COO:
        place = jnp.arange(max(0, min(N, M - k) if k > 0 else min(N + k, M)), dtype=index_dtype)
        return cls((jnp.ones(place.size, dtype), place - min(k, 0), place + max(k, 0)),
                   shape=(N, M), rows_sorted=True, cols_sorted=True)

    def todense(self) -> Array:
        """Return the dense matrix."""
        return coo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """Return the transpose."""
        if axes is not None:
            raise NotImplementedError(
                f"COO.transpose: axes argument to transpose() is not supported, got {axes}{here()}"
            )
        return COO((self.data, self.col, self.row), shape=self.shape[::-1],
                   rows_sorted=self.cols_sorted, cols_sorted=self.rows_sorted)

    def __matmul__(self, other: Any) -> Any:
        return matrix_product(self.data, self.row, self.col, dense_factor(other), self.shape)


def matrix_shape(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """The shape of a matrix."""
    if len(shape) != 2:
        raise ValueError(f"{name} must have ndim=2; got {shape=}{here()}")
    return tuple(shape)


def dense_factor(other: Any) -> Array:
    """The dense vector or matrix by which a sparse matrix is multiplied."""
    if isinstance(other, JAXSparse):
        raise NotImplementedError(
            f"matmul between two sparse objects: got {other!r} (use BCOO arrays){here()}"
        )
    other = jnp.asarray(other)
    if other.ndim not in (1, 2):
        raise NotImplementedError(
            f"matmul with object of shape {other.shape}: needed one or two axes{here()}"
        )
    return other


def matrix_product(
    data: Any, row: Any, col: Any, other: Any, shape: Sequence[int], transpose: bool = False,
) -> Array:
    """The product of a sparse matrix, or of its transpose, and a dense vector or matrix."""
    dtype = jnp.result_type(data, other)
    if transpose:
        row, col, shape = col, row, shape[::-1]
    if other.shape[0] != shape[1]:
        raise ValueError(
            f"matmul: needed {shape[1]} elements along the first axis of the dense operand, got "
            f"{other.shape} for a sparse matrix of shape {tuple(shape)}{here()}"
        )
    rows = read(other.astype(dtype), (col,))
    values = lax.expand_dims(data.astype(dtype), range(1, rows.ndim)) * rows
    return add_at(jnp.zeros((shape[0], *other.shape[1:]), dtype), (row,), values)


def coo_todense(mat: COO) -> Array:
    """Convert a COO matrix to a dense matrix.

    Args:
        mat: the COO matrix.

    Returns:
        A dense matrix with the same shape and dtype.
    """
    return add_at(jnp.zeros(mat.shape, mat.dtype), (mat.row, mat.col), mat.data)


def coo_fromdense(
    mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32
) -> COO:
    """Create a COO matrix from a dense matrix.

    Args:
        mat: the dense matrix.
        nse: number of stored elements. If it is larger than necessary, the last elements are zeros.
            If `nse` is None, as many elements as necessary are stored; under transformations such
            as `jit`, `nse` is required.
        index_dtype: dtype of the indices.

    Returns:
        A COO matrix, sorted by row.
    """
    data, row, col = elements(mat, nse, index_dtype, "coo_fromdense")
    return COO((data, row, col), shape=jnp.shape(mat), rows_sorted=True)


def elements(
    mat: ArrayLike, nse: int | None, index_dtype: DTypeLike, what: str
) -> tuple[Array, Array, Array]:
    """The values, rows and columns of the nonzero elements, padded with zeros."""
    mat = jnp.asarray(mat)
    matrix_shape(mat.shape, what)
    count = count_stored(mat)
    nse = known_number(count if nse is None else nse, what)
    row, col = jnp.nonzero(mat, size=nse)
    data = jnp.where(jnp.arange(nse) < count, read(mat, (row, col)), 0)
    return data, row.astype(index_dtype), col.astype(index_dtype)


def coo_matvec(mat: COO, v: ArrayLike, transpose: bool = False) -> Array:
    """Multiply a COO matrix by a vector.

    Args:
        mat: the COO matrix.
        v: the vector.
        transpose: whether to multiply the transpose of the matrix instead.

    Returns:
        A vector.
    """
    return matrix_product(mat.data, mat.row, mat.col, jnp.asarray(v), mat.shape, transpose)


def coo_matmat(mat: COO, B: ArrayLike, *, transpose: bool = False) -> Array:
    """Multiply a COO matrix by a dense matrix.

    Args:
        mat: the COO matrix.
        B: the dense matrix.
        transpose: whether to multiply the transpose of `mat` instead.

    Returns:
        A dense matrix.
    """
    return matrix_product(mat.data, mat.row, mat.col, jnp.asarray(B), mat.shape, transpose)
