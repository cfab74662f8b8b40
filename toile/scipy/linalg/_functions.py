"""Matrix functions (exponential, square root, analytic functions) and Sylvester's equation.

The exponential is computed by scaling the matrix, evaluating a Padé approximant, and squaring the
result repeatedly. The other functions use the complex Schur form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import jvp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact, is_complex
from toile.scipy.linalg._decompositions import inv, rsf2csf, schur, solve, solve_triangular

# Coefficients of the [m/m] Padé approximant of exp, constant term first.
_PADE = {
    3: (120.0, 60.0, 12.0, 1.0),
    5: (30240.0, 15120.0, 3360.0, 420.0, 30.0, 1.0),
    7: (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
    9: (
        17643225600.0, 8821612800.0, 2075673600.0, 302702400.0, 30270240.0, 2162160.0, 110880.0,
        3960.0, 90.0, 1.0,
    ),
    13: (
        64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
        129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
        40840800.0, 960960.0, 16380.0, 182.0, 1.0,
    ),
}

# By precision: 1-norms up to which each degree suffices (Higham 2005), the last one by scaling.
_DEGREES = {
    4: ((3, 5, 7), (4.258730016922831e-001, 1.880152677804762e000), 3.925724783138660),
    8: (
        (3, 5, 7, 9, 13),
        (
            1.495585217958292e-002, 2.539398330063230e-001, 9.504178996162932e-001,
            2.097847961257068e000,
        ),
        5.371920351148152,
    ),
}


def _dot(a, b):
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)


def _pade(degree, a):
    """Return the odd and even parts of the numerator; the denominator is `even - odd`."""
    b = _PADE[degree]
    eye = jnp.eye(a.shape[0], dtype=a.dtype)
    a2 = _dot(a, a)
    powers = [eye, a2]
    for _ in range(2 if degree == 13 else degree // 2 - 1):
        powers.append(_dot(powers[-1], a2))

    def even_sum(coefs):
        return sum(c * p for c, p in zip(coefs[1:], powers[1:]))

    if degree == 13:  # the top half is factored by a⁶ to save products
        odd = _dot(powers[3], even_sum((0, b[9], b[11], b[13]))) + even_sum((0, *b[3:8:2]))
        even = _dot(powers[3], even_sum((0, b[8], b[10], b[12]))) + even_sum((0, *b[2:7:2]))
    else:
        odd, even = even_sum(b[1::2]), even_sum(b[0::2])
    return _dot(a, odd + b[1] * eye), even + b[0] * eye


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Compute the exponential of a square matrix: the sum of `A^k / k!` over `k = 0, 1, 2, ...`.

    Args:
        A: matrices of shape `(..., n, n)`.
        upper_triangular: whether `A` is known to be upper triangular; True saves work.
        max_squarings: maximum number of squarings. If the norm of a matrix is so large that more
            squarings would be needed, the result is NaN.

    Returns:
        The exponentials, with the shape of `A`.

    Raises:
        TypeError: `A` has a 16-bit dtype.
        ValueError: the matrices are not square.

    >>> from toile.scipy import linalg
    >>> linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]]))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    (A,) = inexact("expm", jnp.asarray(A))
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError("Expected A to be a (batched) square matrix, got "
                         f"A.shape={A.shape!r}.{here()}")
    if A.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(f"A.dtype={A.dtype} is not supported.{here()}")
    single = functools.partial(_expm, upper_triangular=upper_triangular, limit=max_squarings)
    return single(A) if A.ndim == 2 else jnp.vectorize(single, signature="(n,n)->(n,n)")(A)


def _expm(a, upper_triangular, limit):
    real = np.dtype(np.real(np.zeros((), a.dtype)).dtype)
    degrees, bounds, largest = _DEGREES[real.itemsize]
    norm = jnp.linalg.norm(a, 1)
    squarings = jnp.maximum(0, jnp.floor(jnp.log2(norm / largest)))
    a = a / 2 ** squarings.astype(a.dtype)
    index = sum((norm >= bound).astype(np.int32) for bound in bounds)
    u, v = lax.switch(index, [functools.partial(_pade, d) for d in degrees], a)
    p, q = u + v, v - u

    def finish(_):
        r = solve_triangular(q, p) if upper_triangular else jnp.linalg.solve(q, p)

        def square(r, i):
            return lax.cond(i < squarings, lambda x: _dot(x, x), lambda x: x, r), None

        return lax.scan(square, r, jnp.arange(limit, dtype=squarings.dtype))[0]

    return lax.cond(squarings > limit, lambda a: jnp.full_like(a, np.nan), finish, a)


def expm_frechet(A: ArrayLike, E: ArrayLike, *, method: str | None = None,
                 compute_expm: bool = True) -> tuple[Array, Array] | Array:
    """Compute the exponential of a square matrix, and the exponential's directional derivative.

    Args:
        A: matrices of shape `(..., n, n)`.
        E: direction of the derivative, with the shape of `A`.
        method: ignored.
        compute_expm: whether to return the exponential.

    Returns:
        A tuple `(exponential, derivative)`, or only the derivative if `compute_expm` is False.

    Raises:
        ValueError: the matrices are not square, or their shapes differ.
    """
    a, e = jnp.asarray(A), jnp.asarray(E)
    for name, x in (("A", a), ("E", e)):
        if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
            raise ValueError(f"expected {name} to be a (batched) square matrix, got "
                             f"{name}.shape={x.shape}{here()}")
    if a.shape != e.shape:
        raise ValueError(f"expected A and E to be the same shape, got A.shape={a.shape} "
                         f"E.shape={e.shape}{here()}")
    y, dy = jvp(expm, (a,), (e,))
    return (y, dy) if compute_expm else dy


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """Compute the principal square root of a square matrix: a matrix `X` such that `X X = A`.

    Args:
        A: one matrix of shape `(n, n)`.
        blocksize: must be 1; other values are not supported.

    Returns:
        The root, which is a complex matrix even if `A` is real.

    Raises:
        NotImplementedError: `blocksize` is greater than 1.

    Differences:
        SciPy returns a real matrix if the root is real.
    """
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet." + here())
    t, z = schur(A, output="complex")
    return _dot(_dot(z, _sqrtm_triangular(t)), jnp.conj(z.T))


def _sqrtm_triangular(t):
    """Compute the square root `u` of an upper triangular matrix `t`, column by column.

    It solves the equations `Σ u(i,k)·u(k,j) = t(i,j)`."""
    diagonal = jnp.sqrt(jnp.diag(t))
    n = t.shape[0]
    index = jnp.arange(n)

    def entry(step, carry):
        j, u = carry
        i = j - 1 - step
        between = (index > i) & (index < j)
        known = jnp.sum(jnp.where(between, u[i, :] * u[:, j], 0.0))
        rest = t[i, j] - known
        value = jnp.where(rest == 0, 0.0, rest / (diagonal[i] + diagonal[j]))
        return j, u.at[i, j].set(value)

    def column(j, u):
        return lax.fori_loop(0, j, entry, (j, u))[1]

    return lax.fori_loop(0, n, column, jnp.diag(diagonal))


def _parlett(f, t):
    """Compute `f(T)` from its diagonal by Parlett's recurrence, superdiagonal by superdiagonal.

    The smallest difference between eigenvalues is returned too."""
    n = t.shape[0]
    index = jnp.arange(n)

    def entry(i, carry):
        p, f, gap = carry
        j = i + p
        between = (index > i) & (index < j)
        mixed = jnp.sum(jnp.where(between, t[i] * f[:, j] - f[i] * t[:, j], 0))
        s = t[i, j] * (f[j, j] - f[i, i]) + mixed
        below = t[j, j] - t[i, i]
        s = jnp.where(below != 0, s / jnp.where(below != 0, below, 1), s)
        return p, f.at[i, j].set(s), jnp.minimum(gap, jnp.abs(below))

    def superdiagonal(p, carry):
        _, f, gap = lax.fori_loop(0, n - p, entry, (p, *carry))
        return f, gap

    return lax.fori_loop(1, n, superdiagonal, (f, jnp.abs(t[0, 0])))


def funm(A: ArrayLike, func: Callable[[Array], Array],
         disp: bool = True) -> Array | tuple[Array, Array]:
    """Apply an analytic function to a square matrix.

    If `A` can be diagonalized as `V D V⁻¹`, the result is `V func(D) V⁻¹`. It is computed by
    Parlett's recurrence, which is inaccurate if two eigenvalues are close to each other.

    Args:
        A: one matrix of shape `(n, n)`, of a floating-point or complex dtype.
        func: function to apply; it is called with the vector of eigenvalues.
        disp: whether to return only the matrix; if False, an estimate of the error is also
            returned.

    Returns:
        A complex matrix. If `disp` is False, a tuple of the matrix and an estimate of its error in
        the 1-norm.

    Raises:
        ValueError: `A` is not a square matrix.

    Differences:
        SciPy returns a real matrix if the result is real. With `disp=True`, SciPy prints a warning
        if the estimated error is large.
    """
    matrix = jnp.asarray(A)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError("expected square array_like input" + here())
    t, z = rsf2csf(*schur(matrix))
    f, gap = _parlett(jnp.diag(func(jnp.diag(t))).astype(t.dtype), t)
    f = z @ f @ jnp.conj(z).T
    if disp:
        return f
    tol = float(jnp.finfo(f.dtype).eps)
    gap = jnp.where(gap == 0.0, tol, gap)
    spread = jnp.linalg.norm(jnp.triu(t, 1), 1)
    estimate = jnp.minimum(1, jnp.maximum(tol, tol / gap * spread))
    return f, jnp.where(jnp.any(jnp.isinf(f)), np.inf, estimate)


def _sylvester_triangular(r, s, f):
    """Solve `r·y + y·s = f` for upper triangular `r` and lower triangular `s`.

    The last element of `y` is computed first."""
    m, n = f.shape
    rows, cols = jnp.arange(m), jnp.arange(n)

    def entry(y, index):
        i, j = index // n, index % n
        known = jnp.sum(jnp.where(rows > i, r[i] * y[:, j], 0.0))
        known = known + jnp.sum(jnp.where(cols > j, y[i] * s[:, j], 0.0))
        return y.at[i, j].set((f[i, j] - known) / (r[i, i] + s[j, j])), None

    return lax.scan(entry, jnp.zeros_like(f), jnp.arange(m * n - 1, -1, -1))[0]


def _sylvester(a, b, c, method, tol):
    if method == "schur":
        r, u = schur(a, output="complex")
        s, v = schur(jnp.conj(b).T, output="complex")
        f = jnp.conj(u).T @ c.astype(r.dtype) @ v
        x = u @ _sylvester_triangular(r, jnp.conj(s).T, f) @ jnp.conj(v).T
    elif method == "eigen":
        wa, ua = jnp.linalg.eig(a)
        wb, ub = jnp.linalg.eig(b)
        f = solve(ua, c.astype(wa.dtype) @ ub)
        x = ua @ (f / (wa[:, None] + wb[None, :])) @ inv(ub)
    else:
        raise ValueError(
            f'Unrecognized method {method}. The two valid methods are either "schur" or '
            f'"eigen".{here()}'
        )
    if not is_complex(c):
        x = x.real
    # A solution exists and is unique unless an eigenvalue of a is minus one of b.
    gaps = jnp.linalg.eigvals(a)[:, None] + jnp.linalg.eigvals(b)[None, :]
    return jnp.where(jnp.any(jnp.abs(gaps) < tol), np.nan, x)


def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *,
                    method: Literal["schur", "eigen"] = "schur", tol: float = 1e-8) -> Array:
    """Solve the Sylvester equation `A X + X B = C`.

    Args:
        A: matrices of shape `(..., m, m)`.
        B: matrices of shape `(..., n, n)`.
        C: matrices of shape `(..., m, n)`.
        method: `"schur"` to use Schur decompositions, or `"eigen"` to use eigenvalue
            decompositions. `"eigen"` is less accurate if `A` or `B` is close to a matrix that
            cannot be diagonalized.
        tol: tolerance for singular equations. If the sum of an eigenvalue of `A` and an eigenvalue
            of `B` has a magnitude below `tol`, the result is NaN, because the equation has no
            unique solution.

    Returns:
        The solution, with the shape of `C`. It is real if `A`, `B` and `C` are real.

    Raises:
        ValueError: the shapes do not match, or `method` is invalid.
    """
    A, B, C = inexact("solve_sylvester", jnp.asarray(A), jnp.asarray(B), jnp.asarray(C))
    m, n = C.shape[-2:]
    if A.shape[-2:] != (m, m) or B.shape[-2:] != (n, n):
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {A.shape}\nB: "
                         f"{B.shape}\nC: {C.shape}{here()}")
    one = functools.partial(_sylvester, method=method, tol=tol)
    return jnp.vectorize(one, signature="(m,m),(n,n),(m,n)->(m,n)")(A, B, C)
