"""Norms of vectors and matrices.

The 2-norm of real vectors is sqrt(sum(x * x)); singular values are computed only for norms that are
defined by them.
"""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, AxisLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy._helpers import canonical_axes, promote_inexact

__all__ = ["matrix_norm", "norm", "vector_norm"]


def _euclidean(x, axes, keepdims):
    if h.issubdtype(x.dtype, np.complexfloating):
        square = lax.real(jnp.multiply(x, jnp.conj(x)))
    else:
        square = jnp.multiply(x, x)
    return jnp.sqrt(jnp.sum(square, axis=axes, keepdims=keepdims))


def _fix(ord):
    """What to write instead of an order that no norm has."""
    if ord in ("inf", "-inf"):
        return f" Use jnp.inf for '{ord}'."
    return " Use a number such as 2, or 'fro' or 'nuc' for matrices; give axis= for vectors."


def _vector(x, ord, axes, keepdims):
    """Compute the norms of the vectors over `axes`; several axes together form one vector."""
    if ord is None or ord == 2:
        return _euclidean(x, axes, keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.{_fix(ord)}{here()}")
    size = jnp.absolute(x)
    if ord == np.inf:
        return jnp.amax(size, axis=axes, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return jnp.amin(size, axis=axes, keepdims=keepdims, initial=np.inf)
    if ord == 0:
        return jnp.sum(jnp.not_equal(x, 0), axis=axes, keepdims=keepdims, dtype=size.dtype)
    if ord == 1:
        return jnp.sum(size, axis=axes, keepdims=keepdims)
    total = jnp.sum(jnp.power(size, ord), axis=axes, keepdims=keepdims)
    return jnp.power(total, 1.0 / ord)


def _matrix(x, ord, axes, keepdims):
    """Compute the norms of the matrices over two axes."""
    row, column = axes
    if ord in (None, "f", "fro"):
        return _euclidean(x, axes, keepdims)
    sums = {1: (jnp.amax, row, column), -1: (jnp.amin, row, column),
            np.inf: (jnp.amax, column, row), -np.inf: (jnp.amin, column, row)}
    if ord in sums:
        pick, summed, compared = sums[ord]
        total = jnp.sum(jnp.absolute(x), axis=summed, keepdims=True)
        initial = 0 if pick is jnp.amax else np.inf
        out = pick(total, axis=compared, keepdims=True, initial=initial)
        return out if keepdims else lax.squeeze(out, axes)
    if ord not in ("nuc", 2, -2):
        raise ValueError(f"Invalid order '{ord}' for matrix norm.{_fix(ord)}{here()}")
    s = lax.linalg.svd(jnp.moveaxis(x, axes, (-2, -1)), full_matrices=False, compute_uv=False)
    if ord == "nuc":
        out = jnp.sum(s, axis=-1)
    elif ord == 2:
        out = jnp.amax(s, axis=-1, initial=0)
    else:
        out = jnp.amin(s, axis=-1, initial=np.inf)
    return lax.expand_dims(out, tuple(sorted(axes))) if keepdims else out


def norm(x: ArrayLike, ord: float | str | None = None, axis: AxisLike = None,
         keepdims: bool = False) -> Array:
    """Compute the norms of vectors or matrices.

    For vectors, the norm of order p is `sum(abs(x)**p)**(1/p)`. The norm of order infinity is the
    largest absolute value, the norm of order -infinity is the smallest absolute value, and the norm
    of order 0 is the number of nonzero elements.

    For matrices, the norm of order 1 is the largest sum of absolute values in a column, and the
    norm of order infinity is the largest sum of absolute values in a row. For orders -1 and
    -infinity, the norms are the smallest of these sums. For orders 2 and -2, the norms are the
    largest and the smallest singular value. The norm "nuc" is the sum of the singular values, and
    the norm "fro" is the square root of the sum of squares.

    Args:
        x: array or number.
        ord: order of the norm; None for the square root of the sum of squares.
        axis: one axis for norms of vectors, or two axes for norms of matrices. If `axis` is None,
            the norm of the whole array is computed. The array must then have one or two axes,
            unless `ord` is also None.
        keepdims: whether to keep the reduced axes with length 1.

    Returns:
        An array of floats without the reduced axes.

    Raises:
        ValueError: the order is unknown, or the number of axes is neither one nor two.

    >>> jnp.linalg.norm(jnp.array([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    Array([ 5., 10.], dtype=float32)
    """
    x, = promote_inexact(*h.as_arrays("jnp.linalg.norm", x))
    if axis is None:
        if ord is None:
            return _euclidean(x, tuple(range(x.ndim)), keepdims)
        axis = axes = tuple(range(x.ndim))
    else:
        axes = canonical_axes(axis, x.ndim)
    if len(axes) == 1:
        return _vector(x, ord, axes, keepdims)
    if len(axes) == 2 and axes[0] != axes[1]:
        return _matrix(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: axis={axis}. Pass one axis to compute a "
                     "vector-norm, or two axes to compute a matrix-norm." + here())


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False,
                ord: float | str | None = "fro") -> Array:
    """Compute the norms of the matrices in the last two axes.

    Args:
        x: array with at least two axes.
        keepdims: whether to keep the last two axes with length 1.
        ord: order of the norm, as in `norm`.

    Returns:
        An array of floats without the last two axes.
    """
    return norm(x, ord, (-2, -1), keepdims)


def vector_norm(x: ArrayLike, /, *, axis: AxisLike = None, keepdims: bool = False,
                ord: float = 2) -> Array:
    """Compute the norms of vectors.

    Args:
        x: array or number.
        axis: axis or axes along which the vectors lie. Several axes are treated as one axis that
            contains all their elements. None for all axes.
        keepdims: whether to keep the reduced axes with length 1.
        ord: order of the norm, as in `norm`.

    Returns:
        An array of floats without the reduced axes.

    >>> jnp.linalg.vector_norm(jnp.array([3.0, -4.0]), ord=1)
    Array(7., dtype=float32)
    """
    x = h.default_inexact(*h.as_arrays("jnp.linalg.vector_norm", x))
    axes = tuple(range(x.ndim)) if axis is None else canonical_axes(axis, x.ndim)
    return _vector(x, ord, axes, keepdims)
