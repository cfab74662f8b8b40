"""Matrices with a special structure, built from a vector or from their size.

The elements are gathered with constant indices. The matrices can therefore be differentiated with
respect to the vectors. Leading axes are batch axes wherever `jax.scipy.linalg` allows batches.
"""

from __future__ import annotations

import math
import operator
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.nn._promote import array, default_float, inexact, is_complex, promoted
from toile.scipy.special import comb


def block_diag(*arrs: ArrayLike) -> Array:
    """Build a matrix with the given blocks along its diagonal and zeros elsewhere.

    Args:
        arrs: blocks with at most two dimensions. A number or a vector is treated as a block with
            one row.

    Returns:
        The matrix, with the dtype that the blocks promote to. It has shape `(1, 0)` if there are no
        blocks.

    Raises:
        ValueError: a block has more than two dimensions.

    >>> from toile.scipy import linalg
    >>> linalg.block_diag(jnp.array([[1, 2]]), 3)
    Array([[1, 2, 0],
           [0, 0, 3]], dtype=int32)
    """

    blocks = promoted("block_diag", *(arrs or (jnp.zeros((1, 0)),)))
    for i, a in enumerate(blocks):
        if a.ndim > 2:
            raise ValueError("Arguments to jax.scipy.linalg.block_diag must have at most 2 "
                             f"dimensions, got {a} at argument {i}.{here()}")
    blocks = [jnp.atleast_2d(a) for a in blocks]
    total, before, rows = sum(a.shape[1] for a in blocks), 0, []
    for a in blocks:
        after = total - a.shape[1] - before
        rows.append(jnp.pad(a, ((0, 0), (before, after))))
        before += a.shape[1]
    return jnp.concatenate(rows, axis=0)


def _vectors(name: str, x: ArrayLike) -> Array:
    """Convert `x` to an array of vectors, which are along its last axis."""
    return jnp.atleast_1d(array(name, x))


def _common_batch(*xs: Array) -> list[Array]:
    batch = jnp.broadcast_shapes(*(x.shape[:-1] for x in xs))
    return [jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in xs]


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Build a Toeplitz matrix, which is constant along each diagonal.

    Args:
        c: first columns, along the last axis; leading axes are batch axes.
        r: first rows, along the last axis. Their first elements are not used. If `r` is None, the
            complex conjugate of `c` is used.

    Returns:
        Matrices of shape `(..., m, n)`, where `m` and `n` are the lengths of `c` and `r`.

    >>> from toile.scipy import linalg
    >>> linalg.toeplitz(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], dtype=int32)
    """
    c = _vectors("toeplitz", c)
    r = jnp.conjugate(c) if r is None else _vectors("toeplitz", r)
    c, r = _common_batch(*promoted("toeplitz", c, r))
    m, n = c.shape[-1], r.shape[-1]
    if m == 0 or n == 0:
        return jnp.empty((*c.shape[:-1], m, n), dtype=c.dtype)
    values = jnp.concatenate([c[..., ::-1], r[..., 1:]], axis=-1)
    index = np.arange(m)[::-1, None] + np.arange(n)[None, :]
    return values[..., index]


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Build a Hankel matrix, which is constant along each antidiagonal.

    Args:
        c: first columns, along the last axis; leading axes are batch axes.
        r: last rows, along the last axis. Their first elements are not used. If `r` is None, a row
            of zeros with the length of `c` is used.

    Returns:
        Matrices of shape `(..., m, n)`, where `m` and `n` are the lengths of `c` and `r`.

    Raises:
        ValueError: an argument is a scalar.

    >>> from toile.scipy import linalg
    >>> linalg.hankel(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int32)
    """
    c = array("hankel", c)
    r = jnp.zeros_like(c) if r is None else array("hankel", r)
    for name, x in (("c", c), ("r", r)):
        if x.ndim == 0:
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a "
                             f"scalar.{here()}")
    c, r = _common_batch(*promoted("hankel", c, r))
    m, n = c.shape[-1], r.shape[-1]
    if m == 0 or n == 0:
        return jnp.empty((*c.shape[:-1], m, n), dtype=c.dtype)
    values = jnp.concatenate([c, r[..., 1:]], axis=-1)
    return values[..., np.arange(m)[:, None] + np.arange(n)[None, :]]


def circulant(c: ArrayLike) -> Array:
    """Build a circulant matrix, whose columns are rotations of the first column.

    Args:
        c: first columns, along the last axis; leading axes are batch axes.

    Returns:
        Matrices of shape `(..., n, n)`. Each column is the previous column rotated down by one.

    >>> from toile.scipy import linalg
    >>> linalg.circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    c = _vectors("circulant", c)
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)[None, :]) % max(n, 1)]


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Build a Leslie matrix, which advances a population of age groups by one step.

    Args:
        f: birth rates of the `n` age groups, along the last axis. They are the first row of the
            matrix. `n` must be at least 2.
        s: survival rates of all age groups except the last. They are the elements directly below
            the diagonal.

    Returns:
        Matrices of shape `(..., n, n)`.

    Raises:
        ValueError: the lengths do not match.
    """
    f, s = _vectors("leslie", f), _vectors("leslie", s)
    if f.shape[-1] < 2:
        raise ValueError("The length of f along the last axis must be at least 2; got shape "
                         f"{f.shape}.{here()}")
    if s.shape[-1] != f.shape[-1] - 1:
        raise ValueError("Incorrect lengths for f and s. The length of s along the last axis must "
                         f"be one less than the length of f; got f shape {f.shape} and s shape "
                         f"{s.shape}.{here()}")
    f, s = _common_batch(*promoted("leslie", f, s))
    n = f.shape[-1]
    out = jnp.zeros((*f.shape[:-1], n, n), dtype=f.dtype)
    out = out.at[..., np.arange(1, n), np.arange(n - 1)].set(s)
    return out.at[..., 0, :].set(f)


def companion(a: ArrayLike) -> Array:
    """Build a polynomial's companion matrix, whose eigenvalues are the polynomial's roots.

    Args:
        a: coefficients along the last axis, highest power first. There must be at least two
            coefficients, and the first must not be 0.

    Returns:
        Matrices of shape `(..., n, n)` with a floating-point or complex dtype, where `n` is the
        degree of the polynomial.

    Raises:
        ValueError: there are fewer than two coefficients.

    Differences:
        If the first coefficient is 0, SciPy raises an error, while toile's result contains inf or
        NaN.

    >>> from toile.scipy import linalg
    >>> linalg.companion(jnp.array([1, -3, 2]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    (a,) = inexact("companion", a)
    a = _vectors("companion", a)
    if a.shape[-1] < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2; got shape "
                         f"{a.shape}.{here()}")
    first = -a[..., 1:] / a[..., :1]
    n = first.shape[-1]
    out = jnp.broadcast_to(jnp.eye(n, k=-1, dtype=first.dtype), (*first.shape[:-1], n, n))
    return out.at[..., 0, :].set(first)


def fiedler(a: ArrayLike) -> Array:
    """Build a Fiedler matrix, whose elements are the absolute differences `|a[i] - a[j]|`.

    Args:
        a: vectors of numbers along the last axis; leading axes are batch axes.

    Returns:
        Matrices of shape `(..., n, n)`.
    """
    a = _vectors("fiedler", a)
    return jnp.abs(a[..., None] - a[..., None, :])


def fiedler_companion(a: ArrayLike) -> Array:
    """Build a polynomial's Fiedler companion matrix, which has at most five nonzero diagonals.

    As in `companion`, the eigenvalues of the matrix are the roots of the polynomial.

    Args:
        a: coefficients along the last axis, highest power first. There must be at least one
            coefficient, and the first must not be 0.

    Returns:
        Matrices of shape `(..., n, n)` with a floating-point or complex dtype, where `n` is the
        degree of the polynomial.

    Raises:
        ValueError: there are no coefficients.
    """
    (a,) = inexact("fiedler_companion", a)
    a = _vectors("fiedler_companion", a)
    if a.shape[-1] == 0:
        raise ValueError("fiedler_companion requires the last axis of 'a' to have nonzero length, "
                         f"but got an array of shape {a.shape}.{here()}")
    n = a.shape[-1] - 1
    if n == 0:
        return jnp.empty((*a.shape[:-1], 0, 0), dtype=a.dtype)
    a = a / a[..., :1]
    out = jnp.zeros((*a.shape[:-1], n, n), dtype=a.dtype).at[..., 0, 0].set(-a[..., 1])
    if n > 1:
        out = out.at[..., 1, 0].set(1)
    for i in range(0, n, 2):  # even rows carry the coefficients, ones sit two off the diagonal
        if i + 1 < n:
            out = out.at[..., i, i + 1].set(-a[..., i + 2])
        if i + 2 < n:
            out = out.at[..., i, i + 2].set(1)
        if i >= 2:
            out = out.at[..., i, i - 1].set(-a[..., i + 1])
    for i in range(3, n, 2):
        out = out.at[..., i, i - 2].set(1)
    return out


def convolution_matrix(a: ArrayLike, n: int,
                       mode: Literal["full", "valid", "same"] = "full") -> Array:
    """Build a matrix whose product with a vector is the convolution of `a` and the vector.

    Args:
        a: vectors along the last axis; leading axes are batch axes.
        n: length of the vectors to convolve with `a`, and number of columns of the matrix.
        mode: part of the convolution that is computed, as in `toile.numpy.convolve`.

    Returns:
        Matrices of shape `(..., m, n)`, where `m` is the length of the convolution.

    Raises:
        ValueError: `n` is not positive, `a` is empty or a scalar, or `mode` is invalid.

    >>> from toile.scipy import linalg
    >>> linalg.convolution_matrix(jnp.array([1, 2]), 3)
    Array([[1, 0, 0],
           [2, 1, 0],
           [0, 2, 1],
           [0, 0, 2]], dtype=int32)
    """
    n = operator.index(n)
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.{here()}")
    a = array("convolution_matrix", a)
    if a.ndim == 0:
        raise ValueError("convolution_matrix: a must be at least 1-dimensional, got a "
                         "scalar." + here())
    m = a.shape[-1]
    if m < 1:
        raise ValueError(f"len(a) must be at least 1; got shape {a.shape}.{here()}")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.{here()}")
    overlap = min(n, m) - 1
    head = {"full": 0, "same": overlap // 2, "valid": overlap}[mode]
    tail = {"full": 0, "same": overlap - overlap // 2, "valid": overlap}[mode]
    pad = [(0, 0)] * (a.ndim - 1) + [(n - 1, n - 1)]
    padded = jnp.pad(a, pad)
    rows = np.arange(head, m + n - 1 - tail)[:, None]
    return padded[..., rows - np.arange(n)[None, :] + n - 1]


def hilbert(n: int) -> Array:
    """Build a Hilbert matrix, whose element at row `i` and column `j` is `1 / (i + j + 1)`.

    Args:
        n: number of rows and columns.

    Returns:
        A matrix of shape `(n, n)`, of the default float dtype.
    """
    a = jnp.arange(n, dtype=default_float())[:, None]
    return 1 / (a + a.T + 1)


def invhilbert(n: int) -> Array:
    """Build the inverse of the Hilbert matrix with `n` rows, using a formula for its elements.

    Args:
        n: number of rows and columns.

    Returns:
        A matrix of shape `(n, n)`, of the default float dtype.

    Differences:
        SciPy has an argument `exact`, which requests exact integers of any size.
    """
    a = jnp.arange(n, dtype=default_float())
    i, j = a[:, None], a[None, :]
    s = i + j
    sign = (-1.0) ** s
    return sign * (s + 1.0) * comb(n + i, n - j - 1) * comb(n + j, n - i - 1) * comb(s, i) ** 2


def _binomial(n, k):
    return jnp.exp(lax.lgamma(n + 1.0) - lax.lgamma(n - k + 1.0) - lax.lgamma(k + 1.0))


def _check_kind(kind, preposition):
    kind = "symmetric" if kind is None else kind
    valid = ["symmetric", "lower", "upper"]
    if kind not in valid:
        raise ValueError(f"Expected kind to be {preposition} of: {valid}; got {kind}{here()}")
    return kind


def pascal(n: int, kind: Literal["symmetric", "lower", "upper"] | None = None) -> Array:
    """Build a Pascal matrix, whose elements are binomial coefficients.

    Args:
        n: number of rows and columns.
        kind: `"lower"` for Pascal's triangle as a lower triangular matrix, `"upper"` for its
            transpose, or `"symmetric"` for the product of the two. The default is `"symmetric"`.

    Returns:
        A matrix of shape `(n, n)`, of dtype `float32`.

    Raises:
        ValueError: `kind` is invalid.

    Differences:
        SciPy returns integers and has an argument `exact`.

    >>> from toile.scipy import linalg
    >>> linalg.pascal(3, kind="lower").round()
    Array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 2., 1.]], dtype=float32)
    """
    kind = _check_kind(kind, "on")
    a = jnp.arange(n, dtype=np.float32)
    lower = _binomial(a[:, None], a[None, :])
    return {"lower": lambda: lower, "upper": lambda: lower.T}.get(
        kind, lambda: jnp.dot(lower, lower.T)
    )()


def invpascal(n: int, kind: Literal["symmetric", "lower", "upper"] | None = None) -> Array:
    """Build the inverse of the Pascal matrix with `n` rows, using a formula for its elements.

    Args:
        n: number of rows and columns.
        kind: form of the Pascal matrix, as in `pascal`.

    Returns:
        A matrix of shape `(n, n)`, of the default float dtype.

    Raises:
        ValueError: `kind` is invalid.

    Differences:
        SciPy returns integers and has an argument `exact`.
    """
    kind = _check_kind(kind, "one")
    a = jnp.arange(n, dtype=default_float())
    i, j = a[:, None], a[None, :]
    lower = (-1.0) ** (i - j) * _binomial(i, j)
    return {"lower": lambda: lower, "upper": lambda: lower.T}.get(
        kind, lambda: jnp.dot(lower.T, lower)
    )()


def helmert(n: int, full: bool = False) -> Array:
    """Build a Helmert matrix, whose rows are orthonormal.

    The product of the matrix and a vector shows how much each element of the vector, except the
    first, differs from the mean of the elements before it (up to a factor that depends only on the
    position).

    Args:
        n: number of columns.
        full: whether to add a first row whose elements are all `1/√n`, which makes the matrix
            square.

    Returns:
        A matrix of shape `(n - 1, n)`, or `(n, n)` if `full` is True, of the default float dtype.

    Raises:
        ValueError: `n` is less than 1.
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.{here()}")
    dtype = default_float()
    i, j = np.arange(n - 1)[:, None], np.arange(n)[None, :]
    k = jnp.asarray(i + 1, dtype)
    scale = jnp.sqrt(k * (k + 1))
    out = jnp.where(j <= i, 1.0 / scale, jnp.where(j == i + 1, -k / scale, jnp.zeros_like(scale)))
    if full:
        row = jnp.full((1, n), 1.0 / math.sqrt(n), dtype=out.dtype)
        out = jnp.concatenate([row, out], axis=0)
    return out


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Build a Hadamard matrix, whose elements are 1 or -1 and whose rows are orthogonal.

    Args:
        n: number of rows and columns, a power of 2.
        dtype: dtype of the elements.

    Returns:
        A matrix of shape `(n, n)`, built by Sylvester's construction.

    Raises:
        ValueError: `n` is not a power of 2.

    >>> from toile.scipy import linalg
    >>> linalg.hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.{here()}")
    out = np.ones((1, 1), np.int8)
    while len(out) < n:
        out = np.block([[out, out], [out, -out]])
    return jnp.asarray(out, dtype=dtype)


def dft(n: int, scale: Literal["sqrtn", "n"] | None = None, *,
        dtype: DTypeLike | None = None) -> Array:
    """Build a matrix whose product with a vector is the vector's discrete Fourier transform.

    Args:
        n: length of the vectors.
        scale: `"sqrtn"` to divide the matrix by `√n`, which makes it unitary; `"n"` to divide it by
            `n`; None for no scaling.
        dtype: complex dtype of the elements; None for the default complex dtype.

    Returns:
        A matrix of shape `(n, n)`.

    Raises:
        ValueError: `scale` is invalid, or `dtype` is not complex.
    """
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.{here()}")
    dtype = jnp.result_type(complex) if dtype is None else np.dtype(dtype)
    if not is_complex(dtype):
        raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.{here()}")
    a = jnp.arange(n, dtype=dtype)
    out = jnp.exp(-2j * np.pi * a[:, None] * a[None, :] / n)
    return out / {None: 1, "sqrtn": math.sqrt(n), "n": n}[scale]
