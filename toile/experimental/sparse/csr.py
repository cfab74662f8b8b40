"""Sparse matrices in CSR and CSC format, which store elements by row or by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import toile.numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.experimental.sparse.batches import add_at
from toile.experimental.sparse.bcsr_functions import pointers_of, rows_of
from toile.experimental.sparse.coo import dense_factor, elements, matrix_product, matrix_shape
from toile.experimental.sparse.storage import JAXSparse
from toile.tree_util import register_pytree_node_class

__all__ = ["CSC", "CSR", "csr_fromdense", "csr_matmat", "csr_matvec", "csr_todense"]

C = TypeVar("C", bound="_Compressed")


class _Compressed(JAXSparse):
    """The buffers of both formats."""

    buffers = ("data", "indices", "indptr")
    indices: Any
    indptr: Any
    rows_axis = 0  # the axis whose positions have pointers

    @classmethod
    def _empty(cls: type[C], shape: Sequence[int], *, dtype: DTypeLike | None = None,
               index_dtype: DTypeLike = "int32") -> C:
        sizes = matrix_shape(shape, cls.__name__)
        return cls((jnp.zeros(0, dtype), jnp.zeros(0, index_dtype),
                    jnp.zeros(sizes[cls.rows_axis] + 1, index_dtype)), shape=sizes)


def _check_axes(axes: Any) -> None:
    if axes is not None:
        raise NotImplementedError(
            f"transpose: the argument axes is not supported, got {axes}{here()}"
        )


@register_pytree_node_class
class CSR(_Compressed):
    """A sparse matrix in CSR (compressed sparse row) format.

    Args:
        args: the triple (data, indices, indptr): values, their column indices, and for each
            row the position of its first element.
        shape: shape of the dense matrix.

    >>> from toile.experimental import sparse
    >>> mat = sparse.CSR.fromdense(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> mat.indices, mat.indptr
    (Array([1, 0], dtype=int32), Array([0, 1, 2], dtype=int32))
    """

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32
    ) -> CSR:
        """Create a sparse matrix from a dense matrix; see `csr_fromdense`."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: DTypeLike | None = None,
             index_dtype: DTypeLike = "int32") -> CSR:
        place = jnp.arange(max(0, min(N, M - k) if k > 0 else min(N + k, M)), dtype=index_dtype)
        return cls((jnp.ones(place.size, dtype), place + max(k, 0),
                    pointers_of(place - min(k, 0), N, place.dtype)), shape=(N, M))

    def todense(self) -> Array:
        """Return the dense matrix."""
        return csr_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> CSC:
        """Return the transpose, a CSC matrix."""
        _check_axes(axes)
        return CSC(self._bufs, shape=self.shape[::-1])

    def __matmul__(self, other: Any) -> Any:
        return _product(self, dense_factor(other))


@register_pytree_node_class
class CSC(_Compressed):
    """A sparse matrix in CSC (compressed sparse column) format.

    Args:
        args: the triple (data, indices, indptr): values, their row indices, and for each
            column the position of its first element.
        shape: shape of the dense matrix.

    >>> from toile.experimental import sparse
    >>> mat = sparse.CSC.fromdense(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> mat.data, mat.indices
    (Array([1., 2.], dtype=float32), Array([1, 0], dtype=int32))
    """

    rows_axis = 1

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32
    ) -> CSC:
        """Create a sparse matrix from a dense matrix; see `csr_fromdense`."""
        return csr_fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).T

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: DTypeLike | None = None,
             index_dtype: DTypeLike = "int32") -> CSC:
        return CSR._eye(M, N, -k, dtype=dtype, index_dtype=index_dtype).T

    def todense(self) -> Array:
        """Return the dense matrix."""
        return csr_todense(self.T).T

    def transpose(self, axes: Sequence[int] | None = None) -> CSR:
        """Return the transpose, a CSR matrix."""
        _check_axes(axes)
        return CSR(self._bufs, shape=self.shape[::-1])

    def __matmul__(self, other: Any) -> Any:
        return _product(self.T, dense_factor(other), transpose=True)


def _product(mat: CSR, other: Any, transpose: bool = False) -> Array:
    rows = rows_of(mat.indices, mat.indptr)
    return matrix_product(mat.data, rows, mat.indices, other, mat.shape, transpose)


def csr_todense(mat: CSR) -> Array:
    """Convert a CSR matrix to a dense matrix.

    Args:
        mat: the CSR matrix.

    Returns:
        A dense matrix with the same shape and dtype.
    """
    rows = rows_of(mat.indices, mat.indptr)
    return add_at(jnp.zeros(mat.shape, mat.dtype), (rows, mat.indices), mat.data)


def csr_fromdense(
    mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32
) -> CSR:
    """Create a CSR matrix from a dense matrix.

    Args:
        mat: the dense matrix.
        nse: number of stored elements; required under transformations such as `jit`. If `nse` is
            None, as many elements as necessary are stored.
        index_dtype: dtype of the indices.

    Returns:
        A CSR matrix.
    """
    mat = jnp.asarray(mat)
    data, row, col = elements(mat, nse, index_dtype, "csr_fromdense")
    stored = jnp.arange(row.size) < (mat != 0).sum()
    row = jnp.where(stored, row, mat.shape[0])
    return CSR((data, col, pointers_of(row, mat.shape[0], row.dtype)), shape=mat.shape)


def csr_matvec(mat: CSR, v: ArrayLike, transpose: bool = False) -> Array:
    """Multiply a CSR matrix by a vector.

    Args:
        mat: the CSR matrix.
        v: the vector.
        transpose: whether to multiply the transpose of the matrix instead.

    Returns:
        A vector.
    """
    return _product(mat, jnp.asarray(v), transpose)


def csr_matmat(mat: CSR, B: ArrayLike, *, transpose: bool = False) -> Array:
    """Multiply a CSR matrix by a dense matrix.

    Args:
        mat: the CSR matrix.
        B: the dense matrix.
        transpose: whether to multiply the transpose of `mat` instead.

    Returns:
        A dense matrix.
    """
    return _product(mat, jnp.asarray(B), transpose)
