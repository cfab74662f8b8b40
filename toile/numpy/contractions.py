"""Products of arrays: matmul, dot, tensordot, inner, outer, kron, cross and the like.

All contractions are one `lax.dot_general`; batch axes that broadcast become free axes of the
operand that has them, so nothing is copied to be multiplied. einsum is in summation.py.
"""

import operator
from typing import Any

import numpy as np

from toile import lax
from toile.engine.errors import ShapeError
from toile.engine.locks import linear_algebra
from toile.engine.source import describe, here
from toile.numpy import _helpers as h
from toile.numpy import manipulation, ufuncs
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import canonical_axis, check, promote, raw_buffer
from toile.numpy._operands import no_out
from toile.primitives.arrays.contraction import ONE_THREAD

__all__ = [
    "cross", "dot", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot",
    "vecmat",
]


def element_type(preferred):
    """A user's preferred_element_type as a canonical dtype, or None."""
    if preferred is None:
        return None
    return user_dtype(preferred, "preferred_element_type")


def _finish(out, preferred, weak):
    """Products of weakly typed arrays are weak; a preferred type never is."""
    if preferred is None and weak and not out.weak_type:
        return h.with_dtype(out, out.dtype, True)
    return out


def contract(a, b, contracting, batch, precision, preferred):
    """dot_general of operands of one dtype, with the weak bit of both."""
    out = lax.dot_general(a, b, (contracting, batch), precision=precision,
                          preferred_element_type=preferred)
    return _finish(out, preferred, a.weak_type and b.weak_type)


def _sizes(got):
    """The two lengths as shapes, if `got` names nothing but lengths."""
    first, _, second = got.partition(" and ")
    return f", got ({first},) and ({second},)." if first.isdigit() else ""


def _mismatch(name, a, b, got):
    return ShapeError(
        f"dot_general requires contracting dimensions to have the same shape{_sizes(got)}: {name} "
        f"needed equal lengths along the contracted axes, got {got} of "
        f"{describe(a)} and {describe(b)} (transpose an operand, or name the axes with "
        f"einsum){here()}"
    )


def _raw_matmul(a, b):
    """NumPy's product of two concrete float buffers, or None."""
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


def matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """Matrix product over the last two axes; leading axes broadcast."""
    if precision is None and preferred_element_type is None:
        out = _raw_matmul(a, b)
        if out is not None:
            return out
    check("matmul", a, b)
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
    """`x` without the leading axes that broadcast, and the numbers of those that are left.

    `lead` and `other` are the leading sizes of both operands, aligned from the last: an axis of
    length one on one side only is dropped there and free on the other side.
    """
    missing = len(lead) - (x.ndim - 2)
    drop = tuple(d for d in range(x.ndim - 2) if x.shape[d] == 1 and other[missing + d] != 1)
    names = [missing + d for d in range(x.ndim - 2) if d not in drop]
    return lax.squeeze(x, drop) if drop else x, names


def _batched_matmul(a, b, precision, preferred):
    """Both operands are matrices with leading axes, b at least one of them."""
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


def dot(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """Product over the last axis of `a` and the last but one (or only) axis of `b`."""
    preferred = element_type(preferred_element_type)
    a, b = promote(a, b, name="dot")
    if a.ndim == 0 or b.ndim == 0:
        contracting: Any = ((), ())
    else:
        contracting = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
        if a.shape[-1] != b.shape[contracting[1][0]]:
            raise _mismatch("dot", a, b, f"{a.shape[-1]} and {b.shape[contracting[1][0]]}")
    return contract(a, b, contracting, ((), ()), precision, preferred)


def vdot(a, b, *, precision=None, preferred_element_type=None):
    """Product of the flattened arguments, the first conjugated."""
    check("vdot", a, b)
    if h.issubdtype(h.result_type(a), np.complexfloating):
        a = ufuncs.conj(a)
    return dot(manipulation.ravel(a), manipulation.ravel(b), precision=precision,
               preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Products of vectors along `axis`, the first conjugated; other axes broadcast."""
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
        x1 = ufuncs.conj(x1)
    out = matmul(lax.expand_dims(x1, (x1.ndim - 1,)), lax.expand_dims(x2, (x2.ndim,)),
                 precision=precision, preferred_element_type=preferred_element_type)
    return lax.squeeze(out, (out.ndim - 2, out.ndim - 1))


def matvec(x1, x2, /):
    """Matrices times vectors; leading axes broadcast."""
    x1, x2 = h.as_arrays("matvec", x1, x2)
    if x1.ndim < 2 or x2.ndim < 1:
        raise ValueError(f"matvec: needed a matrix and a vector, got {x1.shape} and "
                         f"{x2.shape}{here()}")
    out = matmul(x1, lax.expand_dims(x2, (x2.ndim,)))
    return lax.squeeze(out, (out.ndim - 1,))


def vecmat(x1, x2, /):
    """Conjugated vectors times matrices; leading axes broadcast."""
    x1, x2 = h.as_arrays("vecmat", x1, x2)
    if x1.ndim < 1 or x2.ndim < 2:
        raise ValueError(f"vecmat: needed a vector and a matrix, got {x1.shape} and "
                         f"{x2.shape}{here()}")
    out = matmul(lax.expand_dims(ufuncs.conj(x1), (x1.ndim - 1,)), x2)
    return lax.squeeze(out, (out.ndim - 2,))


def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None, out_sharding=None):
    """Sum of products over the given axes of `a` and `b`."""
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


def inner(a, b, *, precision=None, preferred_element_type=None):
    """Sum of products over the last axes."""
    a, b = h.as_arrays("inner", a, b)
    if a.ndim == 0 or b.ndim == 0:
        out = ufuncs.multiply(a, b)
        return out if preferred_element_type is None else lax.convert_element_type(
            out, element_type(preferred_element_type))
    return tensordot(a, b, (-1, -1), precision=precision,
                     preferred_element_type=preferred_element_type)


def outer(a, b, out=None):
    """The product of every element of `a` with every element of `b`."""
    no_out("outer", out)
    a, b = h.as_arrays("outer", a, b)
    return ufuncs.multiply(lax.reshape(a, (a.size, 1)), lax.reshape(b, (1, b.size)))


def kron(a, b):
    """The Kronecker product: blocks of `b` scaled by the elements of `a`."""
    a, b = h.as_arrays("kron", a, b)
    rank = max(a.ndim, b.ndim)
    a = lax.reshape(a, (1,) * (rank - a.ndim) + a.shape)
    b = lax.reshape(b, (1,) * (rank - b.ndim) + b.shape)
    out = ufuncs.multiply(lax.expand_dims(a, tuple(range(1, 2 * rank, 2))),
                          lax.expand_dims(b, tuple(range(0, 2 * rank, 2))))
    return lax.reshape(out, tuple(m * n for m, n in zip(a.shape, b.shape)))


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """The vector product of vectors of length 2 or 3."""
    a, b = promote(*h.as_arrays("cross", a, b))
    if axis is not None:
        axisa = axisb = axisc = axis
    a = manipulation.moveaxis(a, axisa, -1)
    b = manipulation.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product" + here())
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
