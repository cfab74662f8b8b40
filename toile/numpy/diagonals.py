"""Diagonals and triangles: diag, diagonal, trace, fill_diagonal, and index helpers for them.

A diagonal is a strided slice of the flattened matrix: element (i, i + k) of n x m stands at
i * (m + 1) + k, so no gather is needed and the transpose is an interior pad.
"""

import math

import numpy as np

from toile import lax
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import creation, index_update, manipulation, reductions, selection
from toile.numpy._helpers import arr, as_array, canonical_axis, check
from toile.numpy._operands import no_out
from toile.primitives.elementwise import convert

__all__ = [
    "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "fill_diagonal", "ix_",
    "mask_indices", "trace", "tril_indices", "tril_indices_from", "triu_indices",
    "triu_indices_from",
]


def diagonal(a, offset=0, axis1=0, axis2=1):
    """The elements (i, i + offset) of the plane of two axes, as a last axis."""
    a = as_array("diagonal", a)
    if a.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions." + here())
    i, j = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same" + here())
    k = h.static_int(offset, "'offset' argument of jnp.diagonal")
    a = manipulation.moveaxis(a, (i, j), (-2, -1))
    *lead, n, m = a.shape
    count = max(0, min(n + min(k, 0), m - max(k, 0)))
    flat = lax.reshape(a, (*lead, n * m))
    if count == 0:
        return lax.slice_in_dim(flat, 0, 0, axis=len(lead))
    start = k if k >= 0 else -k * m
    return lax.slice_in_dim(flat, start, start + (count - 1) * (m + 1) + 1, m + 1, len(lead))


def diag(v, k=0):
    """The k-th diagonal of a matrix, or a matrix with `v` on its k-th diagonal."""
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


def diagflat(v, k=0):
    """A matrix with the flattened `v` on its k-th diagonal."""
    v = manipulation.ravel(as_array("diagflat", v))
    return diag(lax.convert_element_type(v, v.dtype), k)


def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    """The sum of a diagonal."""
    no_out("trace", out)
    found = diagonal(as_array("trace", a), offset, axis1, axis2)
    return reductions.sum(found, axis=-1, dtype=dtype)


def fill_diagonal(a, val, wrap=False, *, inplace=True):
    """A copy of `a` with `val` on its main diagonal."""
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


def tril_indices(n, k=0, m=None):
    """Indices of the lower triangle of an n x m matrix."""
    return _static_pair(np.tri(n, m, k, dtype=bool))


def triu_indices(n, k=0, m=None):
    """Indices of the upper triangle of an n x m matrix."""
    return _static_pair(~np.tri(n, m, k - 1, dtype=bool))


def _rows_and_columns(name, a):
    dims = np.shape(a)
    if len(dims) != 2:
        raise ValueError(f"{name}: needed an array of rank 2, got shape {dims}{here()}")
    return dims


def tril_indices_from(arr, k=0):
    """Indices of the lower triangle of `arr`."""
    n, m = _rows_and_columns("tril_indices_from", arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr, k=0):
    """Indices of the upper triangle of `arr`."""
    n, m = _rows_and_columns("triu_indices_from", arr)
    return triu_indices(n, k, m)


def diag_indices(n, ndim=2):
    """Indices of the main diagonal of an array with `ndim` axes of length n."""
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}{here()}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}{here()}")
    return (arr(np.arange(n, dtype=h.index_dtype())),) * ndim


def diag_indices_from(arr):
    """Indices of the main diagonal of `arr`."""
    dims = np.shape(arr)
    if len(dims) < 2:
        raise ValueError("input array must be at least 2-d" + here())
    if len(set(dims)) != 1:
        raise ValueError("All dimensions of input must be of equal length" + here())
    return diag_indices(dims[0], len(dims))


def mask_indices(n, mask_func, k=0, *, size=None):
    """Indices where `mask_func` of an n x n array of ones is not zero."""
    return selection.nonzero(mask_func(creation.ones((n, n)), k), size=size)


def ix_(*args):
    """Rank-1 index arrays shaped to index their outer product."""
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
