"""Products of arrays: matmul, dot, tensordot, inner, outer, kron, cross and the like.

Each contraction is one `lax.dot_general`. Batch axes that are broadcast become free axes of the
operand that has them, so no operand is copied. `einsum` is in summation.py.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile import lax
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.errors import ShapeError
from toile.engine.locks import linear_algebra
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import manipulation, ufuncs
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import canonical_axis, check, promote, raw_buffer
from toile.numpy._operands import no_out
from toile.primitives.arrays.contraction import ONE_THREAD


def element_type(preferred):
    """Convert a user's preferred_element_type to a canonical dtype; None remains None."""
    if preferred is None:
        return None
    return user_dtype(preferred, "preferred_element_type")


def _finish(out, preferred, weak):
    """Make products of weakly typed arrays weak, unless a dtype is preferred."""
    if preferred is None and weak and not out.weak_type:
        return h.with_dtype(out, out.dtype, True)
    return out


def contract(a, b, contracting, batch, precision, preferred):
    """Apply dot_general to operands of one dtype; if both are weakly typed, so is the result."""
    out = lax.dot_general(a, b, (contracting, batch), precision=precision,
                          preferred_element_type=preferred)
    return _finish(out, preferred, a.weak_type and b.weak_type)


def _sizes(got):
    """Format the two lengths in `got` as shapes, if it consists only of lengths."""
    first, _, second = got.partition(" and ")
    return f", got ({first},) and ({second},)." if first.isdigit() else ""


def _mismatch(name, a, b, got):
    return ShapeError(
        f"dot_general requires contracting dimensions to have the same shape{_sizes(got)} {name} "
        f"needed equal lengths along the contracted axes, got {got} of "
        f"{describe(a)} and {describe(b)} (transpose an operand, or name the axes with "
        f"einsum){here()}"
    )


def _raw_matmul(a, b):
    """Compute NumPy's product of two concrete float buffers, or return None."""
    x, y = raw_buffer(a), raw_buffer(b)
    if x is None or y is None or x.dtype is not y.dtype or x.dtype.char not in "fd":
        return None
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        return None
    if x.size * y.size > ONE_THREAD:
        with linear_algebra:
            out = x @ y
    else:
        out = x @ y
    return h.conversion.wrap(out, a.weak_type and b.weak_type)


def matmul(a: ArrayLike, b: ArrayLike, *, precision: lax.PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None, out_sharding: object = None) -> Array:
    """Multiply matrices, as the operator `@` does.

    Args:
        a, b: arrays with matrices in the last two axes; the leading axes are broadcast. A
            one-dimensional array is treated as a row vector on the left and as a column vector on
            the right.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        The matrix products. The axis of a one-dimensional operand does not appear in the result.

    Raises:
        ShapeError: the size of the last axis of `a` differs from the size of the second-to-last
            axis of `b`. The error is both a TypeError and a ValueError.
        ValueError: an operand is a number. To multiply by a number, use `*`.

    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    if precision is None and preferred_element_type is None:
        out = _raw_matmul(a, b)
        if out is not None:
            return out
    check("matmul", a, b)
    a, b = h.unwrapped(a), h.unwrapped(b)
    for i, x in enumerate((a, b)):
        if np.ndim(x) < 1:
            raise ValueError(f"matmul input operand {i} must have ndim at least 1, but it has "
                             f"ndim {np.ndim(x)} (multiply by a number with *){here()}")
    preferred = element_type(preferred_element_type)
    a, b = promote(a, b)
    a_row, b_column = a.ndim == 1, b.ndim == 1
    k, l = a.shape[-1], b.shape[0 if b_column else -2]
    if k != l:
        raise _mismatch("matmul", a, b, f"{k} and {l}")
    if a_row or b_column or b.ndim == 2:
        # no batch axis is shared: the free axes of a, then those of b
        return contract(a, b, ((a.ndim - 1,), (0 if b_column else b.ndim - 2,)), ((), ()),
                        precision, preferred)
    return _batched_matmul(a, b, precision, preferred)


def _batch_axes(x, lead, other):
    """Remove leading axes of `x` that are broadcast, and list the other leading axes.

    `lead` and `other` are the leading sizes of both operands, aligned from the last: an axis of
    length one on one side only is dropped there and free on the other side.
    """
    missing = len(lead) - (x.ndim - 2)
    drop = tuple(d for d in range(x.ndim - 2) if x.shape[d] == 1 and other[missing + d] != 1)
    names = [missing + d for d in range(x.ndim - 2) if d not in drop]
    return lax.squeeze(x, drop) if drop else x, names


def _batched_matmul(a, b, precision, preferred):
    """Multiply arrays of matrices; `b` has at least one leading axis."""
    rank = max(a.ndim, b.ndim)
    lead_a, lead_b = ((1,) * (rank - x.ndim) + x.shape[:-2] for x in (a, b))
    try:
        h.broadcast_shapes(lead_a, lead_b)
    except ValueError:
        raise ValueError("matmul: needed leading axes that broadcast, got shapes "
                         f"{a.shape} and {b.shape}{here()}") from None
    (a, names_a), (b, names_b) = _batch_axes(a, lead_a, lead_b), _batch_axes(b, lead_b, lead_a)
    both = [d for d in names_a if d in names_b]
    batch = (tuple(names_a.index(d) for d in both), tuple(names_b.index(d) for d in both))
    out = contract(a, b, ((a.ndim - 1,), (b.ndim - 2,)), batch, precision, preferred)
    order = both + [d for d in names_a if d not in both] + ["row"]
    order += [d for d in names_b if d not in both] + ["column"]
    perm = tuple(order.index(d) for d in [*sorted(set(names_a) | set(names_b)), "row", "column"])
    return out if perm == tuple(range(out.ndim)) else lax.transpose(out, perm)


def dot(a: ArrayLike, b: ArrayLike, *, precision: lax.PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None, out_sharding: object = None) -> Array:
    """Compute the dot product of two arrays.

    Products are summed over the last axis of `a` and the second-to-last axis of `b`. For two
    vectors, the result is the inner product; for two matrices, it is the matrix product. To
    multiply stacks of matrices and broadcast their leading axes, use `matmul`.

    Args:
        a: first operand; its last axis is summed over. If `a` is a number, `b` is multiplied by
            this number.
        b: second operand; its second-to-last axis (or its only axis) is summed over. If `b` is a
            number, `a` is multiplied by this number.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the remaining axes of `a`, followed by the remaining axes of `b`.

    >>> jnp.dot(jnp.array([1, 2]), jnp.array([3, 4]))
    Array(11, dtype=int32)
    """
    preferred = element_type(preferred_element_type)
    a, b = promote(a, b, name="dot")
    if a.ndim == 0 or b.ndim == 0:
        contracting: Any = ((), ())
    else:
        contracting = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
        if a.shape[-1] != b.shape[contracting[1][0]]:
            raise _mismatch("dot", a, b, f"{a.shape[-1]} and {b.shape[contracting[1][0]]}")
    return contract(a, b, contracting, ((), ()), precision, preferred)


def vdot(a: ArrayLike, b: ArrayLike, *, precision: lax.PrecisionLike = None,
         preferred_element_type: DTypeLike | None = None) -> Array:
    """Compute the dot product of two flattened arrays, after conjugating the first array.

    Args:
        a, b: arrays of equal size.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sum and of the result; None for the dtype that the
            operands promote to.

    Returns:
        A scalar: an array of rank 0.

    >>> jnp.vdot(jnp.array([1j, 2]), jnp.array([1j, 2]))
    Array(5.+0.j, dtype=complex64)
    """
    check("vdot", a, b)
    a, b = h.unwrapped(a), h.unwrapped(b)
    if h.issubdtype(h.result_type(a), np.complexfloating):
        a = ufuncs.conj(a)
    return dot(manipulation.ravel(a), manipulation.ravel(b), precision=precision,
               preferred_element_type=preferred_element_type)


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1,
           precision: lax.PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Compute dot products of pairs of vectors, after conjugating the first vector of each pair.

    Args:
        x1, x2: arrays with vectors along `axis`; the other axes are broadcast.
        axis: axis along which the vectors lie.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.

    Returns:
        An array of dot products, without the axis of the vectors.

    >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    x1, x2 = h.as_arrays("vecdot", x1, x2)
    if x1.ndim < 1 or x2.ndim < 1:
        raise ValueError("vector_dot: inputs must be at least 1-dimensional; got "
                         f"shapes {x1.shape}, {x2.shape}{here()}")
    i, j = canonical_axis(axis, x1.ndim), canonical_axis(axis, x2.ndim)
    if x1.shape[i] != x2.shape[j]:
        raise ValueError(f"axes must match; got shapes {x1.shape} and {x2.shape} with "
                         f"axis={axis}{here()}")
    x1, x2 = manipulation.moveaxis(x1, i, -1), manipulation.moveaxis(x2, j, -1)
    if h.issubdtype(x1.dtype, np.complexfloating):
        x1 = h.arr(ufuncs.conj(x1))
    out = matmul(lax.expand_dims(x1, (x1.ndim - 1,)), lax.expand_dims(x2, (x2.ndim,)),
                 precision=precision, preferred_element_type=preferred_element_type)
    return lax.squeeze(out, (out.ndim - 2, out.ndim - 1))


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply matrices by vectors.

    Args:
        x1: array with matrices in the last two axes.
        x2: array with vectors in the last axis. The leading axes of both arrays are broadcast.

    Returns:
        An array with the resulting vectors in the last axis.
    """
    x1, x2 = h.as_arrays("matvec", x1, x2)
    if x1.ndim < 2 or x2.ndim < 1:
        raise ValueError(f"matvec: needed a matrix and a vector, got {x1.shape} and "
                         f"{x2.shape}{here()}")
    out = matmul(x1, lax.expand_dims(x2, (x2.ndim,)))
    return lax.squeeze(out, (out.ndim - 1,))


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply the conjugates of vectors by matrices.

    Args:
        x1: array with vectors in the last axis.
        x2: array with matrices in the last two axes. The leading axes of both arrays are broadcast.

    Returns:
        An array with the resulting vectors in the last axis.
    """
    x1, x2 = h.as_arrays("vecmat", x1, x2)
    if x1.ndim < 1 or x2.ndim < 2:
        raise ValueError(f"vecmat: needed a vector and a matrix, got {x1.shape} and "
                         f"{x2.shape}{here()}")
    out = matmul(lax.expand_dims(ufuncs.conj(x1), (x1.ndim - 1,)), x2)
    return lax.squeeze(out, (out.ndim - 2,))


def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
              *, precision: lax.PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None,
              out_sharding: object = None) -> Array:
    """Multiply two arrays and sum over pairs of their axes.

    Args:
        a, b: the operands.
        axes: number of axes to sum over; the last axes of `a` are paired with the first axes of
            `b`. Alternatively, a list of axes of `a` and a list of axes of `b`, whose elements are
            paired in order.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the remaining axes of `a`, followed by the remaining axes of `b`.

    >>> jnp.tensordot(jnp.ones((2, 3, 4)), jnp.ones((4, 3, 5)), axes=([1, 2], [1, 0])).shape
    (2, 5)
    """
    preferred = element_type(preferred_element_type)
    a, b = promote(a, b, name="tensordot")
    if isinstance(axes, (int, np.integer)):
        count = operator.index(axes)
        if count > min(a.ndim, b.ndim):
            raise TypeError(f"Number of tensordot axes (axes {count}) exceeds input ranks "
                            f"({a.shape} and {b.shape}){here()}")
        left, right = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    elif isinstance(axes, (tuple, list)) and len(axes) == 2:
        if any(isinstance(x, str) for x in axes):
            raise TypeError("tensordot requires both axes lists to be either ints, tuples or "
                            f"lists, got {axes[0]!r} and {axes[1]!r}{here()}")
        left, right = (tuple(x) if isinstance(x, (tuple, list, np.ndarray)) else (x,)
                       for x in axes)
        if len(left) != len(right):
            raise TypeError("tensordot requires axes lists to have equal length, got "
                            f"{left} and {right}.{here()}")
        left = tuple(canonical_axis(x, a.ndim) for x in left)
        right = tuple(canonical_axis(x, b.ndim) for x in right)
    else:
        raise TypeError("tensordot axes argument must be an int, a pair of ints, or a pair of "
                        f"lists/tuples of ints, got {axes!r}{here()}")
    if any(a.shape[i] != b.shape[j] for i, j in zip(left, right)):
        raise _mismatch("tensordot", a, b, f"axes {left} and {right}")
    return contract(a, b, (left, right), ((), ()), precision, preferred)


def inner(a: ArrayLike, b: ArrayLike, *, precision: lax.PrecisionLike = None,
          preferred_element_type: DTypeLike | None = None) -> Array:
    """Multiply two arrays and sum over the last axis of each.

    Args:
        a, b: the operands; their last axes must have the same length. If one operand is a number,
            the other operand is multiplied by this number.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.

    Returns:
        An array with the remaining axes of `a`, followed by the remaining axes of `b`.
    """
    a, b = h.as_arrays("inner", a, b)
    if a.ndim == 0 or b.ndim == 0:
        out = ufuncs.multiply(a, b)
        return out if preferred_element_type is None else lax.convert_element_type(
            out, element_type(preferred_element_type))
    return tensordot(a, b, (-1, -1), precision=precision,
                     preferred_element_type=preferred_element_type)


def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Multiply each element of one flattened array by each element of another.

    Args:
        a, b: arrays or numbers.
        out: not supported; must be None.

    Returns:
        A matrix with a row for each element of `a` and a column for each element of `b`.
    """
    no_out("outer", out)
    a, b = h.as_arrays("outer", a, b)
    return ufuncs.multiply(lax.reshape(a, (a.size, 1)), lax.reshape(b, (1, b.size)))


def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute the Kronecker product, which contains a scaled copy of `b` for each element of `a`.

    Args:
        a: array whose elements scale the copies.
        b: array to copy. If the arrays differ in rank, the one with fewer axes gets leading axes of
            length 1.

    Returns:
        An array in which the length of each axis is the product of the lengths of that axis in `a`
        and in `b`.

    >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2]))
    Array([ 1,  2, 10, 20], dtype=int32)
    """
    a, b = h.as_arrays("kron", a, b)
    rank = max(a.ndim, b.ndim)
    x, y = (lax.reshape(z, (1,) * (rank - z.ndim) + z.shape) for z in (a, b))
    out = ufuncs.multiply(lax.expand_dims(x, tuple(range(1, 2 * rank, 2))),
                          lax.expand_dims(y, tuple(range(0, 2 * rank, 2))))
    return lax.reshape(out, tuple(m * n for m, n in zip(x.shape, y.shape)))


def cross(a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1,
          axis: int | None = None) -> Array:
    """Compute cross products of vectors of length 2 or 3.

    Vectors of length 2 lie in a plane. The cross product of two such vectors is returned as a
    number: its component perpendicular to the plane.

    Args:
        a, b: arrays of vectors; all axes except the ones along which the vectors lie are broadcast.
        axisa, axisb: axes of `a` and `b` along which the vectors lie.
        axisc: axis of the result along which the vectors lie.
        axis: axis to use instead of `axisa`, `axisb` and `axisc`; None to use those three.

    Returns:
        An array of vectors, or of numbers if all vectors have length 2.

    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    a, b = promote(*h.as_arrays("cross", a, b))
    if axis is not None:
        axisa = axisb = axisc = axis
    a = manipulation.moveaxis(a, axisa, -1)
    b = manipulation.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product, got "
                         f"{a.shape} and {b.shape} (name the axis of the vectors with axis=)"
                         f"{here()}")
    part = lambda x, i: x[..., i]
    minor = lambda i, j: part(a, i) * part(b, j) - part(a, j) * part(b, i)
    if a.shape[-1] == 2 and b.shape[-1] == 2:
        return minor(0, 1)
    lead = manipulation.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    pad3 = lambda x: x if x.shape[-1] == 3 else lax.pad(
        x, lax.full((), 0, x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(0, 1, 0)])
    a, b = pad3(a), pad3(b)
    parts = [minor(1, 2), minor(2, 0), minor(0, 1)]
    out = lax.concatenate([lax.expand_dims(h.broadcast_to(p, lead), (len(lead),)) for p in parts],
                          len(lead))
    return manipulation.moveaxis(out, -1, axisc)
