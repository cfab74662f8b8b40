"""Matrix decompositions that exported NumPy files contain.

This module may import only NumPy.
"""

import numpy as np


def cholesky(x):
    """The lower triangular factor; NaN for a matrix that is not positive definite."""
    out = np.empty_like(x)
    for place in np.ndindex(x.shape[:-2]):
        try:
            out[place] = np.linalg.cholesky(x[place])
        except np.linalg.LinAlgError:
            out[place] = np.nan
    return np.tril(out)


def lu(x):
    """LU with row exchanges: the packed factors, the exchanged rows and the permutation."""
    x = x.copy()
    m, n = x.shape[-2:]
    k = min(m, n)
    pivots = np.zeros((*x.shape[:-2], k), np.int32)
    order = np.broadcast_to(np.arange(m, dtype=np.int32), (*x.shape[:-2], m)).copy()
    for place in np.ndindex(x.shape[:-2]):
        a, rows = x[place], order[place]
        for i in range(k):
            p = i + int(np.argmax(np.abs(a[i:, i].real) + np.abs(a[i:, i].imag)))
            pivots[place][i] = p
            if p != i:
                a[[i, p]] = a[[p, i]]
                rows[[i, p]] = rows[[p, i]]
            if a[i, i] != 0:
                a[i + 1 :, i] /= a[i, i]
                a[i + 1 :, i + 1 :] -= np.outer(a[i + 1 :, i], a[i, i + 1 :])
    return x, pivots, order


def pivots_to_permutation(pivots, size):
    """The permutation that a list of row exchanges makes."""
    out = np.broadcast_to(np.arange(size, dtype=np.int32), (*pivots.shape[:-1], size)).copy()
    for place in np.ndindex(pivots.shape[:-1]):
        rows = out[place]
        for i, p in enumerate(pivots[place]):
            rows[[i, p]] = rows[[p, i]]
    return out


def solve_tridiagonal(below, diagonal, above, b):
    """Solve a x = b for a matrix with three diagonals."""
    n = diagonal.shape[-1]
    a = np.zeros((*diagonal.shape, n), diagonal.dtype)
    i = np.arange(n)
    a[..., i, i] = diagonal
    a[..., i[1:], i[:-1]] = below[..., 1:]
    a[..., i[:-1], i[1:]] = above[..., :-1]
    return np.linalg.solve(a, b)


def solve_triangular(a, b, left, lower, transpose, conjugate, unit):
    """Solve a x = b, or x a = b, for a triangular matrix a."""
    a = np.tril(a) if lower else np.triu(a)
    if unit:
        a = np.where(np.eye(a.shape[-1], dtype=bool), a.dtype.type(1), a)
    if conjugate:
        a = np.conjugate(a)
    if transpose != (not left):  # solve with the transpose
        a, lower = np.swapaxes(a, -1, -2), not lower
    b = b if left else np.swapaxes(b, -1, -2)
    n = a.shape[-1]
    x = np.array(np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]),
                                     *b.shape[-2:])))
    for i in range(n) if lower else range(n - 1, -1, -1):
        known = slice(0, i) if lower else slice(i + 1, n)
        x[..., i, :] -= (a[..., i : i + 1, known] @ x[..., known, :])[..., 0, :]
        x[..., i, :] /= a[..., i, i, None]
    return x if left else np.swapaxes(x, -1, -2)
