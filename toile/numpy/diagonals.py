"""Diagonals and triangles: diag, diagonal, trace, fill_diagonal, and index helpers for them.

A diagonal is a strided slice of the flattened matrix: element (i, i + k) of an n x m matrix is at
position i * (m + 1) + k. Reading a diagonal therefore needs no gather, and the linear transpose of
this operation is an interior pad.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from toile import lax
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import creation, index_update, manipulation, reductions, selection
from toile.numpy._helpers import arr, as_array, canonical_axis, check
from toile.numpy._operands import no_out
from toile.primitives.elementwise import convert


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Extract a diagonal of each matrix in an array.

    Args:
        a: array with at least two axes.
        offset: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above
            it, and negative numbers are diagonals below it.
        axis1, axis2: axes of `a` that index the rows and the columns of the matrices.

    Returns:
        An array without `axis1` and `axis2`, with the diagonals along a new last axis.

    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    a = as_array("diagonal", a)
    if a.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions." + here())
    i, j = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 can not be same: needed two axes, got "
                         f"axis1={axis1} and axis2={axis2}{here()}")
    k = h.static_int(offset, "'offset' argument of jnp.diagonal")
    a = manipulation.moveaxis(a, (i, j), (-2, -1))
    *lead, n, m = a.shape
    count = max(0, min(n + min(k, 0), m - max(k, 0)))
    flat = lax.reshape(a, (*lead, n * m))
    if count == 0:
        return lax.slice_in_dim(flat, 0, 0, axis=len(lead))
    start = k if k >= 0 else -k * m
    return lax.slice_in_dim(flat, start, start + (count - 1) * (m + 1) + 1, m + 1, len(lead))


def diag(v: ArrayLike, k: int = 0) -> Array:
    """Extract a diagonal of a matrix, or create a matrix with a given diagonal.

    Args:
        v: matrix whose diagonal is extracted, or one-dimensional array that becomes the diagonal.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.

    Returns:
        The diagonal of a matrix, or a square matrix that is 0 outside the diagonal.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    v = as_array("diag", v)
    k = h.static_int(k, "'k' argument of jnp.diag")
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError("diag input must be 1d or 2d" + here())
    n = v.shape[0] + abs(k)
    zero = lax.full((), 0, v.dtype)
    row = lax.pad(v, zero, [(max(k, 0), max(-k, 0), 0)])
    rows = lax.broadcast_in_dim(row, (n, n), (1,))
    on = creation.eye(n, k=k, dtype=np.bool_)
    out = lax.select(on, rows, lax.full_like(rows, 0))
    return convert(out, out.dtype, True) if v.weak_type and not out.weak_type else out


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Create a matrix with the elements of a flattened array on a diagonal.

    Args:
        v: array or number.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.

    Returns:
        A square matrix that is 0 outside the diagonal.
    """
    v = manipulation.ravel(as_array("diagflat", v))
    return diag(lax.convert_element_type(v, v.dtype), k)


def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1,
          dtype: DTypeLike | None = None, out: None = None) -> Array:
    """Sum the elements on a diagonal of each matrix in an array.

    Args:
        a: array with at least two axes.
        offset: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above
            it, and negative numbers are diagonals below it.
        axis1, axis2: axes of `a` that index the rows and the columns of the matrices.
        dtype: dtype of the sums and of the result; None for the dtype that `jnp.sum` chooses.
        out: not supported; must be None.

    Returns:
        An array with the axes of `a` other than `axis1` and `axis2`.
    """
    no_out("trace", out)
    found = diagonal(as_array("trace", a), offset, axis1, axis2)
    return reductions.sum(found, axis=-1, dtype=dtype)


def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *,
                  inplace: bool = True) -> Array:
    """Replace the main diagonal of an array.

    Args:
        a: matrix, or array with more than two axes, all of equal length. In such an array, the
            elements whose indices are all equal are replaced.
        val: new elements, which are flattened, then repeated or truncated as needed.
        wrap: if True, the diagonal of a matrix with more rows than columns continues after its end:
            it skips one row and starts again in the first column.
        inplace: must be False, because arrays are immutable.

    Returns:
        A new array with the shape and dtype of `a`.

    Raises:
        NotImplementedError: `inplace` is True, which is the default.

    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), jnp.array([1, 2]), inplace=False)
    Array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    if inplace:
        raise NotImplementedError("JAX arrays are immutable, must use inplace=False" + here())
    check("fill_diagonal", a, val)
    a = arr(a)
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d" + here())
    if a.ndim > 2 and len(set(a.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length" + here())
    if a.ndim == 2:
        step = a.shape[1] + 1
        end = a.size if wrap else min(a.size, a.shape[1] * a.shape[1])
    else:
        step = sum(math.prod(a.shape[i + 1:]) for i in range(a.ndim))
        end = a.size
    places = np.arange(0, end, step, dtype=np.int32)
    return index_update.put(a, places, val, inplace=False)


# Indices of triangles.

def _static_pair(mask):
    dtype = h.index_dtype()
    return tuple(arr(i.astype(dtype)) for i in np.nonzero(mask))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Find the indices of the elements on and below a diagonal of a matrix.

    Args:
        n: number of rows.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.
        m: number of columns; None for the number of rows.

    Returns:
        A tuple of the row indices and the column indices. The tuple can be used as an index.

    >>> jnp.arange(4).reshape(2, 2)[jnp.tril_indices(2)]
    Array([0, 2, 3], dtype=int32)
    """
    return _static_pair(np.tri(n, m, k, dtype=bool))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Find the indices of the elements on and above a diagonal of a matrix.

    Args:
        n: number of rows.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.
        m: number of columns; None for the number of rows.

    Returns:
        A tuple of the row indices and the column indices. The tuple can be used as an index.
    """
    return _static_pair(~np.tri(n, m, k - 1, dtype=bool))


def _rows_and_columns(name, a):
    dims = np.shape(h.unwrapped(a))
    if len(dims) != 2:
        raise ValueError(f"{name}: needed an array of rank 2, got shape {dims}{here()}")
    return dims


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Find the indices of the elements on and below a diagonal of a given matrix.

    Args:
        arr: matrix; only its shape is used.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.

    Returns:
        A tuple of the row indices and the column indices. The tuple can be used as an index.
    """
    n, m = _rows_and_columns("tril_indices_from", arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Find the indices of the elements on and above a diagonal of a given matrix.

    Args:
        arr: matrix; only its shape is used.
        k: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above it,
            and negative numbers are diagonals below it.

    Returns:
        A tuple of the row indices and the column indices. The tuple can be used as an index.
    """
    n, m = _rows_and_columns("triu_indices_from", arr)
    return triu_indices(n, k, m)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Find the indices of the main diagonal of an array whose axes all have the same length.

    Args:
        n: length of each axis.
        ndim: number of axes.

    Returns:
        A tuple of index arrays, one for each axis. The tuple can be used as an index.
    """
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}{here()}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}{here()}")
    return (arr(np.arange(n, dtype=h.index_dtype())),) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """Find the indices of the main diagonal of a given array.

    Args:
        arr: array with at least two axes, all of the same length; only its shape is used.

    Returns:
        A tuple of index arrays, one for each axis. The tuple can be used as an index.
    """
    dims = np.shape(h.unwrapped(arr))
    if len(dims) < 2:
        raise ValueError("input array must be at least 2-d" + here())
    if len(set(dims)) != 1:
        raise ValueError("All dimensions of input must be of equal length" + here())
    return diag_indices(dims[0], len(dims))


def mask_indices(n: int, mask_func: Callable[[Array, int], Array], k: int = 0, *,
                 size: int | None = None) -> tuple[Array, ...]:
    """Find the indices of the elements that a function leaves nonzero in a square matrix of ones.

    Args:
        n: number of rows and of columns.
        mask_func: function `f(matrix, k)`, such as `jnp.triu`. It is called with a matrix of ones.
        k: second argument to `mask_func`, usually the number of a diagonal.
        size: number of indices to return; required under `jit`. If `size` is None, all indices are
            returned.

    Returns:
        A tuple of the row indices and the column indices. The tuple can be used as an index.
    """
    return selection.nonzero(mask_func(creation.ones((n, n)), k), size=size)


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Reshape index arrays so that together they select all combinations of their elements.

    Args:
        *args: one-dimensional index arrays of integers or booleans, one for each axis to index.

    Returns:
        A tuple of arrays that broadcast against each other. The tuple can be used as an index.

    >>> x = jnp.arange(9).reshape(3, 3)
    >>> x[jnp.ix_(jnp.array([0, 2]), jnp.array([1, 2]))]
    Array([[1, 2],
           [7, 8]], dtype=int32)
    """
    check("ix_", *args)
    count, out = len(args), []
    for i, a in enumerate(args):
        a = arr(a)
        if a.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape "
                             f"{a.shape}{here()}")
        if a.dtype == np.bool_:
            a = selection.nonzero(a)[0]
        elif a.size == 0:
            a = lax.convert_element_type(a, h.index_dtype())
        out.append(lax.reshape(a, (1,) * i + (a.shape[0],) + (1,) * (count - i - 1)))
    return tuple(out)
