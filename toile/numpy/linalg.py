"""Linear algebra, as `jax.numpy.linalg`: factorisations of `lax.linalg` and their uses.

Leading axes are batches. `solve` and `inv` factor once and are differentiated through the system
they solve, not through the factorisation. Norms are in norms.py.
"""

import functools
import math
import operator
from typing import Any, NamedTuple

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import vmap
from toile.engine.arrays import Array
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.numpy import _helpers as h
from toile.numpy._helpers import as_array, promote_inexact
from toile.numpy.norms import matrix_norm, norm, vector_norm

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
    "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]


class EigResult(NamedTuple):
    """Result of eig."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """Result of eigh."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """Result of qr."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """Result of slogdet."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Result of svd."""

    U: Any
    S: Any
    Vh: Any


def _matrix(name, a, square=False, error=ValueError):
    """`a` as an inexact array of matrices; `error` if its rank is too low."""
    a, = promote_inexact(*h.as_arrays(name, a))
    a = h.with_dtype(a, a.dtype, False)
    if square and (a.ndim < 2 or a.shape[-1] != a.shape[-2]):
        raise ValueError(f"Argument to {name} must have shape [..., n, n], got shape {a.shape} "
                         f"(needed square matrices){here()}")
    if a.ndim < 2:
        raise error(f"{name}: input must have rank at least 2, but got shape={a.shape}{here()}")
    return a


def _h(a):
    """Conjugate transpose of the last two axes."""
    a = jnp.matrix_transpose(a)
    return jnp.conj(a) if h.issubdtype(a.dtype, np.complexfloating) else a


# Factorisations.

def cholesky(a, *, upper=False, symmetrize_input=True):
    """The lower (or upper) triangular factor of positive definite matrices; NaN where it fails."""
    a = _matrix("jnp.linalg.cholesky", a, square=True)
    lower = lax.linalg.cholesky(_h(a) if upper else a, symmetrize_input=symmetrize_input)
    return _h(lower) if upper else lower


def _reflected(a):
    """One matrix reduced to R, the tails of the reflecting vectors below it; their factors."""
    m, n = a.shape
    rows = lax.iota(np.int32, m)
    columns = lax.iota(np.int32, n)

    def step(j, carry):
        a, taus = carry
        x, alpha = a[:, j], a[j, j]
        tail = jnp.where(rows > j, x, 0)
        rest = jnp.sum(jnp.square(abs(tail)))
        size = jnp.sqrt(jnp.square(abs(alpha)) + rest)
        beta = jnp.where(jnp.real(alpha) >= 0, -size, size)
        done = (rest == 0) & (jnp.imag(alpha) == 0)
        beta = jnp.where(done, alpha, lax.convert_element_type(beta, a.dtype))
        tau = jnp.where(done, 0, (beta - alpha) / jnp.where(done, 1, beta))
        tail = tail / jnp.where(done, 1, alpha - beta)
        v = jnp.where(rows == j, 1, tail)
        moved = jnp.matmul(jnp.conj(v), a, precision=lax.Precision.HIGHEST)
        later = a - jnp.conj(tau) * jnp.outer(v, moved)
        kept = jnp.where(rows == j, beta, jnp.where(rows > j, tail, x))
        a = jnp.where(columns > j, later, a)
        return a.at[:, j].set(kept), taus.at[j].set(tau)

    start = a, lax.full((min(m, n),), 0, a.dtype)
    return lax.fori_loop(0, min(m, n), step, start) if a.size else start


def qr(a, mode="reduced"):
    """Orthonormal times upper triangular; mode is reduced (or full), complete, r or raw."""
    a = _matrix("jnp.linalg.qr", a, error=TypeError)
    if mode == "raw":
        reduce = _reflected
        for _ in a.shape[:-2]:
            reduce = vmap(reduce)
        packed, taus = reduce(a)
        return QRResult(jnp.matrix_transpose(packed), taus)
    if mode not in ("reduced", "complete", "full", "r"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'{here()}")
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def svd(a, full_matrices=True, compute_uv=True, hermitian=False, subset_by_index=None):
    """Singular values in decreasing order and the two sets of singular vectors."""
    a = _matrix("jnp.linalg.svd", a, error=TypeError)
    if hermitian:
        return _hermitian_svd(a, compute_uv)
    out = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv,
                         subset_by_index=subset_by_index)
    return SVDResult(*out) if compute_uv else out


def _hermitian_svd(a, compute_uv):
    """Singular values of a Hermitian matrix are the sizes of its eigenvalues."""
    w, v = eigh(a)
    s = jnp.absolute(w)
    order = jnp.flip(_argsort_last(s), -1)
    s = jnp.take_along_axis(s, order, axis=-1)
    if not compute_uv:
        return s
    sign = jnp.take_along_axis(jnp.sign(w), order, axis=-1)
    rows = lax.expand_dims(order, (order.ndim - 1,))
    u = jnp.take_along_axis(v, rows, axis=-1)
    vh = _h(jnp.multiply(u, lax.expand_dims(sign, (sign.ndim - 1,))))
    return SVDResult(u, s, vh)


def _argsort_last(x):
    places = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
    return lax.sort((x, places), dimension=x.ndim - 1, num_keys=1)[1]


def svdvals(x, /):
    """Singular values in decreasing order."""
    return svd(x, compute_uv=False, hermitian=False)


def _general(name, a):
    a = _matrix(name, a, error=TypeError)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"The input to eig must be a square matrix. Got shape {a.shape} in "
                         f"{name}.{here()}")
    return a


def eig(a):
    """Eigenvalues and right eigenvectors of general matrices, complex."""
    a = _general("jnp.linalg.eig", a)
    w, v = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a):
    """Eigenvalues of general matrices, complex."""
    a = _general("jnp.linalg.eigvals", a)
    return lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def eigh(a, UPLO=None, symmetrize_input=True):
    """Eigenvalues in increasing order and eigenvectors of Hermitian matrices."""
    a = _matrix("jnp.linalg.eigh", a, square=True)
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}{here()}")
    v, w = lax.linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a, UPLO="L", *, symmetrize_input=True):
    """Eigenvalues of Hermitian matrices in increasing order."""
    return eigh(a, UPLO, symmetrize_input)[0]


# Linear systems.

def _rows(x, order):
    """The rows of matrices `x` in the given order, batch by batch."""
    order = lax.expand_dims(order, (order.ndim,))
    return jnp.take_along_axis(x, order, axis=-2, mode="promise_in_bounds")


def _lu_solve(lu, permutation, b, transposed):
    """Solve with the factors of P a = L U, or with their (plain) transposes."""
    solve_with = functools.partial(lax.linalg.triangular_solve, lu, left_side=True)
    if not transposed:
        y = solve_with(_rows(b, permutation), lower=True, unit_diagonal=True)
        return solve_with(y, lower=False)
    y = solve_with(b, lower=False, transpose_a=True)
    y = solve_with(y, lower=True, transpose_a=True, unit_diagonal=True)
    return _rows(y, _argsort_last(permutation))


def _solve_matrix(a, b):
    """x with a x = b, for matrices with equal leading axes."""
    lu, _, permutation = lax.linalg.lu(lax.stop_gradient(a))
    return lax.custom_linear_solve(
        lambda x: jnp.matmul(a, x, precision=lax.Precision.HIGHEST), b,
        lambda _, v: _lu_solve(lu, permutation, v, False),
        lambda _, v: _lu_solve(lu, permutation, v, True))


def solve(a, b):
    """x with a x = b; `b` is a vector if it has rank 1, else matrices."""
    a, b = promote_inexact(*h.as_arrays("jnp.linalg.solve", a, b))
    if a.ndim < 2:
        raise ValueError("left hand array must be at least two dimensional; got "
                         f"a.shape={a.shape}{here()}")
    if b.ndim < 1:
        raise ValueError("right hand array must be at least one dimensional; got "
                         f"b.shape={b.shape}{here()}")
    if a.shape[-1] != a.shape[-2]:
        raise ValueError("The arguments to solve must have shapes a=[..., m, m] and b=[..., m, k] "
                         f"or b=[..., m]; got a={a.shape} and b={b.shape}{here()}")
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    if b.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: needed b with {a.shape[-1]} rows, got a={a.shape} and "
                         f"b={b.shape}{here()}")
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = h.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = h.broadcast_to(b, (*lead, *b.shape[-2:]))
    x = _solve_matrix(h.with_dtype(a, a.dtype, False), h.with_dtype(b, b.dtype, False))
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


def inv(a):
    """The inverses of square matrices."""
    a = _matrix("jnp.linalg.inv", a, square=True)
    eye = h.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _solve_matrix(a, eye)


def _lu_diagonal(a):
    """The diagonal of U, and the sign of the row exchanges, of P a = L U."""
    lu, pivots, _ = lax.linalg.lu(a)
    places = lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1)
    moved = lax.convert_element_type(lax.ne(pivots, places), np.int32)
    parity = lax.rem(lax.reduce_sum(moved, (moved.ndim - 1,)), np.int32(2))
    sign = lax.sub(lax.full_like(parity, 1), lax.mul(parity, lax.full_like(parity, 2)))
    return jnp.diagonal(lu, 0, -2, -1), lax.convert_element_type(sign, a.dtype)


def slogdet(a, *, method=None):
    """Sign and logarithm of the size of determinants."""
    a = _matrix("jnp.linalg.slogdet", a, square=True)
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' and "
                         f"'qr'.{here()}")
    lead = a.shape[:-2]
    if a.shape[-1] == 0:
        real = h.dtypes.dtype_to_real(a.dtype)
        return SlogdetResult(lax.full(lead, 1, a.dtype), lax.full(lead, 0, real))
    diag, flip = _lu_diagonal(a)
    logs = jnp.sum(jnp.log(abs(diag)), axis=-1)
    sign = jnp.prod(jnp.sign(diag), axis=-1) * flip
    # a zero pivot makes the determinant exactly zero
    none = jnp.any(diag == 0, axis=-1)
    return SlogdetResult(jnp.where(none, 0, sign), jnp.where(none, -np.inf, logs))


def det(a):
    """Determinants, by formula up to 3 x 3 and from the LU factors beyond."""
    a = _matrix("jnp.linalg.det", a, square=True)
    n = a.shape[-1]
    e = lambda i, j: a[..., i, j]
    if n == 0:
        return lax.full(a.shape[:-2], 1, a.dtype)
    if n == 1:
        return e(0, 0)
    if n == 2:
        return e(0, 0) * e(1, 1) - e(0, 1) * e(1, 0)
    if n == 3:
        minor = lambda i, j: e(1, i) * e(2, j) - e(1, j) * e(2, i)
        return e(0, 0) * minor(1, 2) - e(0, 1) * minor(0, 2) + e(0, 2) * minor(0, 1)
    diag, sign = _lu_diagonal(a)
    return jnp.prod(diag, axis=-1) * sign


# Rank and inverses.

def _cutoff(a, rtol, largest):
    """rtol * the largest singular value; rtol defaults to 10 max(m, n) eps."""
    if rtol is None:
        rtol = 10.0 * max(a.shape[-2:]) * float(h.dtypes.finfo(a.dtype).eps)
    rtol = lax.convert_element_type(h.arr(rtol), largest.dtype)
    if rtol.ndim:
        rtol = lax.expand_dims(rtol, (rtol.ndim,))
    return jnp.multiply(rtol, largest)


def _inverse_values(s, keep):
    """1 / s where a singular value is kept, 0 elsewhere."""
    return jnp.where(keep, 1 / jnp.where(keep, s, 1), 0)


def pinv(a, rtol=None, hermitian=False, *, rcond=None):
    """The pseudo-inverse, singular values below the cutoff taken as zero."""
    a = _matrix("jnp.linalg.pinv", a)
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: only one of rtol and rcond may be specified." + here())
    rtol = rcond if rtol is None else rtol
    m, n = a.shape[-2:]
    if m == 0 or n == 0:
        return lax.full((*a.shape[:-2], n, m), 0, a.dtype)
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    keep = jnp.greater(s, _cutoff(a, rtol, s[..., :1]))
    inverse = _inverse_values(s, keep)
    left = _h(vh) * lax.convert_element_type(lax.expand_dims(inverse, (inverse.ndim - 1,)), a.dtype)
    return jnp.matmul(left, _h(u), precision=lax.Precision.HIGHEST)


def matrix_rank(M, rtol=None, *, hermitian=False, tol=None):
    """The number of singular values above the cutoff."""
    M, = promote_inexact(M, name="jnp.linalg.matrix_rank")
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified." + here())
    rtol = tol if rtol is None else rtol
    if M.ndim < 2:
        return lax.convert_element_type(jnp.any(jnp.not_equal(M, 0)), h.index_dtype())
    s = svd(M, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        rtol = max(M.shape[-2:]) * float(h.dtypes.finfo(s.dtype).eps)
    limit = _cutoff(M, rtol, jnp.max(s, axis=-1, keepdims=True))
    return jnp.sum(jnp.greater(s, limit), axis=-1)


def cond(x, p=None):
    """The condition number in the norm `p`."""
    x, = promote_inexact(*h.as_arrays("jnp.linalg.cond", x))
    if x.ndim < 2:
        raise ValueError("jnp.linalg.cond: input array must be at least 2D; got shape "
                         f"{x.shape}{here()}")
    if not x.size:
        raise ValueError("jnp.linalg.cond: input array must not be empty; got shape "
                         f"{x.shape}{here()}")
    x = h.with_dtype(x, x.dtype, False)
    if p in (None, 2, -2):
        s = svd(x, compute_uv=False)
        largest, smallest = s[..., 0], s[..., s.shape[-1] - 1]
        r = smallest / largest if p == -2 else largest / smallest
    else:
        if x.shape[-1] != x.shape[-2]:
            raise ValueError(f"jnp.linalg.cond: for {p=}, array must be square; got shape "
                             f"{x.shape}{here()}")
        r = norm(x, p, axis=(-2, -1)) * norm(inv(x), p, axis=(-2, -1))
    bad = jnp.any(jnp.isnan(x), axis=(-2, -1))
    return jnp.where(jnp.isnan(r) & ~bad, np.inf, r)


def lstsq(a, b, rcond=None, *, numpy_resid=False):
    """The x of least squared error in a x = b: (x, residuals, rank, singular values)."""
    a, b = promote_inexact(*h.as_arrays("jnp.linalg.lstsq", a, b))
    if a.ndim != 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be two-dimensional{here()}")
    if b.ndim not in (1, 2):
        raise TypeError(f"{b.ndim}-dimensional array given. Array must be one or "
                        f"two-dimensional{here()}")
    if a.shape[0] != b.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match" + here())
    m, n = a.shape
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    dtype, high = a.dtype, lax.Precision.HIGHEST
    if rcond is None:
        rcond = float(h.dtypes.finfo(dtype).eps) * max(m, n)
    else:
        rcond = jnp.where(jnp.less(rcond, 0), float(h.dtypes.finfo(dtype).eps), rcond)
    if a.size == 0:
        s = lax.full((0,), 0, dtype)
        rank = h.arr(np.asarray(0, np.int32))
        x = lax.full((n, b.shape[1]), 0, dtype)
    else:
        u, s, vh = svd(a, full_matrices=False)
        keep = s >= lax.convert_element_type(h.arr(rcond), s.dtype) * s[0]
        rank = jnp.sum(keep)
        inverse = lax.expand_dims(_inverse_values(s, keep), (1,))
        inner = jnp.matmul(_h(u), b, precision=high)
        inner = lax.convert_element_type(inverse, dtype) * inner
        x = jnp.matmul(_h(vh), inner, precision=high)
    error = b - jnp.matmul(a, x, precision=high)
    residuals = jnp.sum(jnp.square(abs(error)), axis=0)
    if numpy_resid and (int(h.concrete(rank, "rank with numpy_resid=True")) < n or m <= n):
        residuals = lax.full((0,), 0, s.dtype)
    return (lax.squeeze(x, (1,)) if vector else x), residuals, rank, s


# Compositions.

def matrix_power(a, n):
    """Square matrices multiplied by themselves n times; negative n inverts first."""
    a = as_array("jnp.linalg.matrix_power", a)
    if a.ndim < 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional"
                        f" (in matrix_power){here()}")
    if a.shape[-1] != a.shape[-2]:
        raise TypeError("Last 2 dimensions of the array must be square (in matrix_power); got "
                        f"{a.shape}{here()}")
    try:
        n = operator.index(n) if not isinstance(n, Array) else h.static_int(
            n, "exponent of jnp.linalg.matrix_power")
    except TypeError:
        if isinstance(n, Tracer):
            raise
        raise TypeError(f"exponent must be an integer, got {n}{here()}") from None
    if n == 0:
        return h.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    if n < 0:
        a, n = inv(a), -n
    result = None
    while n:
        if n & 1:
            result = a if result is None else jnp.matmul(result, a)
        n >>= 1
        a = jnp.matmul(a, a) if n else a
    return result


def multi_dot(arrays, *, precision=None):
    """The product of several matrices, multiplied in the cheapest order."""
    arrays = h.as_arrays("jnp.linalg.multi_dot", *arrays)
    if len(arrays) < 2:
        raise ValueError("multi_dot requires at least two arrays; got "
                         f"len(arrays)={len(arrays)}{here()}")
    shapes = [a.shape for a in arrays]
    ends = arrays[0].ndim, arrays[-1].ndim
    if not {1, 2}.issuperset(ends) or any(a.ndim != 2 for a in arrays[1:-1]):
        raise ValueError("multi_dot: input arrays must all be two-dimensional, except for the first"
                         f" and last, of one dimension or two. Got array shapes {shapes}{here()}")
    if any(s[-1] != t[0] for s, t in zip(shapes, shapes[1:])):
        raise ValueError("multi_dot: last dimension of each array must match first dimension of "
                         f"following array. Got array shapes {shapes}{here()}")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    terms = [letters[i:i + 2] for i in range(len(arrays))]
    terms[0] = terms[0][1:] if arrays[0].ndim == 1 else terms[0]
    terms[-1] = terms[-1][:1] if arrays[-1].ndim == 1 else terms[-1]
    out = (terms[0][0] if arrays[0].ndim == 2 else "") + (
        terms[-1][1] if arrays[-1].ndim == 2 else "")
    return jnp.einsum(",".join(terms) + "->" + out, *arrays, precision=precision)


def tensorinv(a, ind=2):
    """The inverse of tensordot with `a` over its last axes."""
    a = as_array("tensorinv", a)
    ind = h.static_int(ind, "ind argument of jnp.linalg.tensorinv")
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}{here()}")
    left, right = a.shape[:ind], a.shape[ind:]
    size = math.prod(left)
    if size != math.prod(right):
        raise ValueError("tensorinv is only possible when the product of the first `ind` "
                         f"dimensions equals that of the remaining dimensions. Got shape {a.shape} "
                         f"with ind={ind}.{here()}")
    return lax.reshape(inv(lax.reshape(a, (size, size))), (*right, *left))


def tensorsolve(a, b, axes=None):
    """x with tensordot(a, x, x.ndim) = b."""
    a, b = h.as_arrays("tensorsolve", a, b)
    if axes is not None:
        a = jnp.moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    out = a.shape[b.ndim:]
    if a.shape[:b.ndim] != b.shape:
        raise ValueError("After moving axes to end, leading shape of a must match shape of b. got "
                         f"a.shape={a.shape}, b.shape={b.shape}{here()}")
    if int(np.prod(out)) != b.size:
        raise ValueError(f"Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]);"
                         f" got a.shape={a.shape}, b.ndim={b.ndim}.{here()}")
    flat = lax.reshape(a, (b.size, b.size))
    return lax.reshape(solve(flat, lax.reshape(b, (b.size,))), out)


def cross(x1, x2, /, *, axis=-1):
    """The vector product of vectors of length 3."""
    x1, x2 = h.as_arrays("jnp.linalg.cross", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they "
                         f"have lengths {x1.shape[axis]} and {x2.shape[axis]}{here()}")
    return jnp.cross(x1, x2, axis=axis)


def outer(x1, x2, /):
    """The products of all pairs from two vectors."""
    x1, x2 = h.as_arrays("jnp.linalg.outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {x1.ndim=} "
                         f"{x2.ndim=}{here()}")
    return jnp.outer(x1, x2)


def matrix_transpose(x, /):
    """Matrices with rows and columns exchanged."""
    return jnp.matrix_transpose(x)


def diagonal(x, /, *, offset=0):
    """Diagonals of matrices."""
    return jnp.diagonal(x, offset, -2, -1)


def trace(x, /, *, offset=0, dtype=None):
    """Sums of diagonals of matrices."""
    return jnp.trace(x, offset, -2, -1, dtype)


def matmul(x1, x2, /, *, precision=None, preferred_element_type=None):
    """Matrix product."""
    return jnp.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Products of vectors, the first conjugated."""
    return jnp.vecdot(x1, x2, axis=axis, precision=precision,
                               preferred_element_type=preferred_element_type)


def tensordot(x1, x2, /, *, axes=2, precision=None, preferred_element_type=None,
              out_sharding=None):
    """Sum of products over the given axes."""
    return jnp.tensordot(x1, x2, axes, precision=precision,
                                  preferred_element_type=preferred_element_type)
