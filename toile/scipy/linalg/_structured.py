"""Matrices of a known structure, built from their defining vectors or their size.

Index arithmetic on constant index grids gathers the entries, so all are differentiable in their
vectors and batched over leading axes where `jax.scipy.linalg` is.
"""

import math
import operator

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.nn._promote import array, default_float, inexact, is_complex, promoted
from toile.scipy.special import comb

__all__ = [
    "block_diag", "circulant", "companion", "convolution_matrix", "dft", "fiedler",
    "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal",
    "leslie", "pascal", "toeplitz",
]


def block_diag(*arrs):
    """The blocks placed along the diagonal, zeros elsewhere."""

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


def _common_batch(*xs):
    batch = jnp.broadcast_shapes(*(x.shape[:-1] for x in xs))
    return [jnp.broadcast_to(x, (*batch, x.shape[-1])) for x in xs]


def toeplitz(c, r=None):
    """First column c and first row r (conj(c) unless given), constant along diagonals."""
    c = jnp.atleast_1d(array("toeplitz", c))
    r = jnp.conjugate(c) if r is None else jnp.atleast_1d(array("toeplitz", r))
    c, r = _common_batch(*promoted("toeplitz", c, r))
    m, n = c.shape[-1], r.shape[-1]
    if m == 0 or n == 0:
        return jnp.empty((*c.shape[:-1], m, n), dtype=c.dtype)
    values = jnp.concatenate([c[..., ::-1], r[..., 1:]], axis=-1)
    index = np.arange(m)[::-1, None] + np.arange(n)[None, :]
    return values[..., index]


def hankel(c, r=None):
    """First column c and last row r (zeros unless given), constant along antidiagonals."""
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


def circulant(c):
    """First column c, each further column rotated down by one."""
    c = jnp.atleast_1d(array("circulant", c))
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)[None, :]) % max(n, 1)]


def leslie(f, s):
    """Leslie matrix: fecundities f in the first row, survival rates s below the diagonal."""
    f, s = jnp.atleast_1d(array("leslie", f)), jnp.atleast_1d(array("leslie", s))
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


def companion(a):
    """Companion matrix of the polynomial a, highest power first."""
    a = jnp.atleast_1d(*inexact("companion", a))
    if a.shape[-1] < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2; got shape "
                         f"{a.shape}.{here()}")
    first = -a[..., 1:] / a[..., :1]
    n = first.shape[-1]
    out = jnp.broadcast_to(jnp.eye(n, k=-1, dtype=first.dtype), (*first.shape[:-1], n, n))
    return out.at[..., 0, :].set(first)


def fiedler(a):
    """|a(i) - a(j)|."""
    a = jnp.atleast_1d(array("fiedler", a))
    return jnp.abs(a[..., None] - a[..., None, :])


def fiedler_companion(a):
    """Fiedler's pentadiagonal companion matrix of the polynomial a."""
    a = jnp.atleast_1d(*inexact("fiedler_companion", a))
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


def convolution_matrix(a, n, mode="full"):
    """The matrix whose product with a vector of length n is its convolution with a."""
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


def hilbert(n):
    """1/(i + j + 1)."""
    a = jnp.arange(n, dtype=default_float())[:, None]
    return 1 / (a + a.T + 1)


def invhilbert(n):
    """The inverse of `hilbert(n)`."""
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


def pascal(n, kind=None):
    """Pascal's triangle as a lower, upper or (their product) symmetric matrix."""
    kind = _check_kind(kind, "on")
    a = jnp.arange(n, dtype=np.float32)
    lower = _binomial(a[:, None], a[None, :])
    return {"lower": lambda: lower, "upper": lambda: lower.T}.get(
        kind, lambda: jnp.dot(lower, lower.T)
    )()


def invpascal(n, kind=None):
    """The inverse of `pascal(n, kind)`."""
    kind = _check_kind(kind, "one")
    a = jnp.arange(n, dtype=default_float())
    i, j = a[:, None], a[None, :]
    lower = (-1.0) ** (i - j) * _binomial(i, j)
    return {"lower": lambda: lower, "upper": lambda: lower.T}.get(
        kind, lambda: jnp.dot(lower.T, lower)
    )()


def helmert(n, full=False):
    """Helmert's orthogonal contrasts; `full` adds the constant row."""
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


def hadamard(n, dtype=int):
    """Sylvester's Hadamard matrix; n is a power of two."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.{here()}")
    out = np.ones((1, 1), np.int8)
    while len(out) < n:
        out = np.block([[out, out], [out, -out]])
    return jnp.asarray(out, dtype=dtype)


def dft(n, scale=None, *, dtype=None):
    """The matrix of the discrete Fourier transform, optionally over √n or n."""
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.{here()}")
    dtype = jnp.result_type(complex) if dtype is None else np.dtype(dtype)
    if not is_complex(dtype):
        raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.{here()}")
    a = jnp.arange(n, dtype=dtype)
    out = jnp.exp(-2j * np.pi * a[:, None] * a[None, :] / n)
    return out / {None: 1, "sqrtn": math.sqrt(n), "n": n}[scale]
