"""Sparse arrays in BCOO format, which stores a list of elements and their indices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import toile.numpy as jnp
from toile.api import eval_shape
from toile.api.vectorization import register_shaped_node
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.avals import Aval
from toile.engine.source import here
from toile.experimental.sparse import arithmetic
from toile.experimental.sparse.batches import split
from toile.experimental.sparse.bcoo_indices import (
    bcoo_eliminate_zeros,
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    bcoo_todense,
    stored_values,
)
from toile.experimental.sparse.bcoo_layouts import (
    bcoo_reshape,
    bcoo_transpose,
    bcoo_update_layout,
)
from toile.experimental.sparse.sparsify_trace import sparsify
from toile.experimental.sparse.storage import BCOOProperties, BCOOStorage, SparseInfo
from toile.tree_util import register_pytree_node_class

__all__ = ["BCOO", "BCOOProperties", "SparseInfo", "bcoo_eliminate_zeros", "bcoo_fromdense"]


def _method(fun: Callable[..., Any], swapped: bool = False) -> Any:
    """A method that applies a function of arrays to a sparse array."""

    @functools.wraps(fun)
    def method(self: Any, *others: Any) -> Any:
        return sparsify(fun)(*others, self) if swapped else sparsify(fun)(self, *others)

    return method


@register_pytree_node_class
class BCOO(BCOOStorage):
    """A sparse array in BCOO (batched coordinate) format.

    The axes are, in this order, batch axes, sparse axes and dense axes. Each batch has the same
    number `nse` of stored elements. A stored element is an array along the dense axes, and has an
    index vector with one entry for each sparse axis. Elements with equal indices are added.
    Elements whose indices are out of bounds serve as padding and are ignored.

    Arrays support `@`, `*`, `/`, `+`, `-`, `abs` and indexing. Results are sparse, except for
    products with dense arrays (`@`) and sums with dense arrays.

    Args:
        args: the pair (data, indices). `data` has the shape `[*batch, nse, *dense]`, and `indices`
            has the shape `[*batch, nse, n_sparse]`. Batch axes may have size 1, which means that
            all batches have the same values or indices.
        shape: shape of the dense array.
        indices_sorted: whether the index vectors are in lexicographic order.
        unique_indices: whether no two index vectors of a batch are equal.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
    >>> mat
    BCOO(float32[2, 3], nse=3)
    >>> mat.data
    Array([2., 1., 4.], dtype=float32)
    >>> mat.indices
    Array([[0, 1],
           [1, 0],
           [1, 2]], dtype=int32)
    >>> mat @ jnp.array([1.0, 1.0, 10.0])
    Array([ 2., 41.], dtype=float32)
    """

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = jnp.int32,
        n_dense: int = 0, n_batch: int = 0,
    ) -> BCOO:
        """Create a sparse array from a dense array; see `bcoo_fromdense`."""
        return bcoo_fromdense(
            mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0,
    ) -> BCOO:
        """Create a sparse array from an array of `scipy.sparse`."""
        if n_dense or n_batch:
            raise NotImplementedError(
                "BCOO.from_scipy_sparse with nonzero n_dense/n_batch is not supported: got "
                f"{n_dense=}, {n_batch=} (use update_layout on the result){here()}"
            )
        mat = mat.tocoo()
        indices = jnp.column_stack((mat.row, mat.col)).astype(index_dtype or jnp.int32)
        return cls((mat.data, indices), shape=mat.shape)

    @classmethod
    def _empty(
        cls, shape: Sequence[int], *, dtype: DTypeLike | None = None,
        index_dtype: DTypeLike = "int32", n_dense: int = 0, n_batch: int = 0, nse: int = 0,
    ) -> BCOO:
        n_sparse = len(shape) - n_dense - n_batch
        if min(n_sparse, n_dense, n_batch, nse) < 0:
            raise ValueError(
                f"Invalid inputs: needed nonnegative numbers of axes and elements, got {shape=}, "
                f"{n_dense=}, {n_batch=}, {nse=}{here()}"
            )
        batch, sparse, dense = split(shape, n_batch, n_sparse)
        row = jnp.asarray(sparse, index_dtype)
        indices = jnp.broadcast_to(row, (*batch, nse, n_sparse))
        return cls((jnp.zeros((*batch, nse, *dense), dtype), indices), shape=shape,
                   indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(
        cls, N: int, M: int, k: int, *, dtype: DTypeLike | None = None,
        index_dtype: DTypeLike = "int32", n_batch: int = 0, n_dense: int = 0,
    ) -> BCOO:
        if min(2 - n_batch - n_dense, n_dense, n_batch) < 0:
            raise ValueError(
                f"Invalid inputs: needed at most two batch and dense axes, got shape={(N, M)}, "
                f"{n_dense=}, {n_batch=}{here()}"
            )
        size = min(N, M - k) if k > 0 else min(N + k, M)
        if size <= 0:
            return cls._empty((N, M), dtype=dtype, index_dtype=index_dtype, n_batch=n_batch,
                              n_dense=n_dense)
        if n_dense or n_batch > 1:  # zeros are stored
            return cls.fromdense(jnp.eye(N, M, k, dtype=dtype), n_batch=n_batch, n_dense=n_dense,
                                 index_dtype=index_dtype)
        if n_batch:
            place = jnp.arange(N, dtype=index_dtype) + jnp.asarray(k, index_dtype)
            inside = (place >= 0) & (place < M)
            data = inside.astype(jnp.zeros((), dtype).dtype)[:, None]
            indices = jnp.where(inside, place, M)[:, None, None]
        else:
            place = jnp.arange(size, dtype=index_dtype)
            data = jnp.ones(size, dtype)
            indices = jnp.stack([place - min(k, 0), place + max(k, 0)], axis=1)
        return cls((data, indices), shape=(N, M), indices_sorted=True, unique_indices=True)

    def todense(self) -> Array:
        """Return the dense array; see `bcoo_todense`."""
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Reorder the axes, or reverse their order if `axes` is None; see `bcoo_transpose`."""
        order = list(range(self.ndim))[::-1] if axes is None else list(axes)
        made = bcoo_transpose(self, permutation=order)
        sparse = order[self.n_batch : self.n_batch + self.n_sparse]
        made.indices_sorted = self.indices_sorted and sparse == sorted(sparse)
        return made

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None,
        on_inefficient: Literal["error", "warn"] | None = "error",
    ) -> BCOO:
        """Change the numbers of batch and dense axes; see `bcoo_update_layout`."""
        return bcoo_update_layout(
            self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Add up elements with equal indices, and sort the indices.

        Args:
            nse: number of stored elements of the result; required under transformations such as
                `jit`. If `nse` is None, as many elements as necessary are stored.
            remove_zeros: whether to remove stored zeros.

        Returns:
            An array with unique, sorted indices.
        """
        return (bcoo_eliminate_zeros if remove_zeros else bcoo_sum_duplicates)(self, nse)

    def sort_indices(self) -> BCOO:
        """Sort the stored elements by index; see `bcoo_sort_indices`."""
        return bcoo_sort_indices(self)

    def reshape(self, *args: Any, **kwargs: Any) -> BCOO:
        """Reshape the array, as `jnp.reshape` does; see `bcoo_reshape`."""
        shape = eval_shape(lambda x: x.reshape(*args, **kwargs), Aval(self.shape, self.dtype)).shape
        return self if shape == self.shape else bcoo_reshape(self, new_sizes=shape)

    def astype(self, *args: Any, **kwargs: Any) -> BCOO:
        """Convert the elements to another dtype."""
        return sparsify(lambda x: x.astype(*args, **kwargs))(self)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """Sum the elements along some axes; the result is sparse, or dense if it has no axes."""
        return sparsify(lambda x: x.sum(*args, **kwargs))(self)

    def __getitem__(self, item: Any) -> Any:
        found = sparsify(lambda x: x[item])(self)
        return found if isinstance(found, BCOO) or math.prod(found.shape) else BCOO.fromdense(found)

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self.shape[0])])

    def __mul__(self, other: Any) -> Any:
        return arithmetic.multiply(self, other)

    def __add__(self, other: Any) -> Any:
        return arithmetic.add(self, other)

    def __sub__(self, other: Any) -> Any:
        return arithmetic.subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return arithmetic.subtract(other, self)

    def __truediv__(self, other: Any) -> Any:
        return arithmetic.divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return arithmetic.divide(other, self)

    def __neg__(self) -> Any:
        return self._with_data(-self.data)

    def __pos__(self) -> Any:
        return self._with_data(+self.data)

    def __pow__(self, other: Any) -> Any:
        return sparsify(lambda x: jnp.power(x, other))(self)

    __rmul__, __radd__ = __mul__, __add__
    __abs__, __matmul__, __rmatmul__ = _method(jnp.abs), _method(jnp.matmul), _method(
        jnp.matmul, swapped=True)
    __rpow__, __eq__, __ne__ = _method(jnp.power, swapped=True), _method(jnp.equal), _method(
        jnp.not_equal)
    __gt__, __ge__ = _method(jnp.greater), _method(jnp.greater_equal)
    __lt__, __le__ = _method(jnp.less), _method(jnp.less_equal)


def bcoo_fromdense(
    mat: ArrayLike, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
    index_dtype: DTypeLike = jnp.int32,
) -> BCOO:
    """Create a BCOO array from a dense array.

    Args:
        mat: the dense array.
        nse: number of stored elements in each batch. If it is larger than necessary, the array is
            padded with elements whose indices are out of bounds; if it is too small, elements are
            lost. If `nse` is None, as many elements as necessary are stored; under transformations
            such as `jit`, `nse` is required.
        n_batch: number of batch axes.
        n_dense: number of dense axes.
        index_dtype: dtype of the indices.

    Returns:
        A BCOO array with unique, sorted indices.
    """
    mat = jnp.asarray(mat)
    return BCOO(stored_values(mat, nse, n_batch, n_dense, index_dtype, "bcoo_fromdense"),
                shape=mat.shape, indices_sorted=True, unique_indices=True)


# --------------------------------------------------------------------------------- mapped axes


def _removed(mat: BCOO, axis: int) -> BCOO:
    if not 0 <= axis <= mat.n_batch:
        raise ValueError(
            f"Cannot map in_axis={axis} for BCOO array with n_batch={mat.n_batch + 1}. in_axes for "
            f"batched BCOO operations must correspond to a batch dimension.{here()}"
        )
    return mat._with_shape(mat.shape[:axis] + mat.shape[axis + 1 :])


def _inserted(mat: BCOO, axis: int, size: int) -> BCOO:
    if not 0 <= axis <= mat.n_batch:
        raise ValueError(
            f"BCOO: cannot add out_axis={axis} for BCOO array with n_batch={mat.n_batch}. BCOO "
            f"batch axes must be a contiguous block of leading dimensions.{here()}"
        )
    return mat._with_shape((*mat.shape[:axis], size, *mat.shape[axis:]))


register_shaped_node(BCOO, _removed, _inserted)
