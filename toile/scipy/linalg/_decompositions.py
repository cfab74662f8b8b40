"""Factorizations and the solvers that use them.

The functions are thin wrappers around `lax.linalg` with SciPy's argument names and shapes. They
convert their arguments to a floating-point dtype. A right-hand side with one axis is a vector. A
right-hand side with more axes is a matrix or a batch of matrices.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.lax._polar import weights
from toile.nn._promote import inexact, to_complex


def _H(x):
    return jnp.conj(x.mT)


def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False,
             check_finite: bool = True) -> Array:
    """Compute the Cholesky factor of a Hermitian positive definite matrix.

    The factor is an upper triangular matrix `U` with `a = Uᴴ U`, or a lower triangular matrix `L`
    with `a = L Lᴴ`.

    Args:
        a: matrices of shape `(..., n, n)`. Only the triangle selected by `lower` is read.
        lower: whether the factor is lower triangular.
        overwrite_a, check_finite: ignored.

    Returns:
        The factors, with the shape of `a`. If a matrix is not positive definite, its factor
        contains NaN.

    Differences:
        SciPy raises an error if the matrix is not positive definite. By default,
        `toile.numpy.linalg.cholesky` computes the lower triangular factor, while this function
        computes the upper one.

    >>> from toile.scipy import linalg
    >>> linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 1.],
           [0., 1.]], dtype=float32)
    """
    (a,) = inexact("cholesky", jnp.asarray(a))
    if lower:
        return lax.linalg.cholesky(a, symmetrize_input=False)
    return _H(lax.linalg.cholesky(_H(a), symmetrize_input=False))


def cho_factor(a: ArrayLike, lower: bool = False, overwrite_a: bool = False,
               check_finite: bool = True) -> tuple[Array, bool]:
    """Compute the Cholesky factor of a Hermitian positive definite matrix for use in `cho_solve`.

    Args:
        a: matrices of shape `(..., n, n)`. Only the triangle selected by `lower` is read.
        lower: whether the factor is lower triangular.
        overwrite_a, check_finite: ignored.

    Returns:
        A tuple `(factor, lower)`. If a matrix is not positive definite, its factor contains NaN.

    Differences:
        In the triangle that does not contain the factor, SciPy leaves arbitrary values. In toile,
        these values are 0.
    """
    return cholesky(a, lower=lower), lower


def _per_matrix(name, f, matrices, b):
    """Map `f(*matrices, b)` over batches, where `b` is a vector or a batch of matrices."""
    a = matrices[0]
    parts = ["(n,n)"] + ["(n)"] * (len(matrices) - 1)
    vector = b.ndim == 1
    if not vector and a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1]:
        warnings.warn(
            f"jax.scipy.linalg.{name}: batched 1D solves with b.ndim > 1 are deprecated, and in "
            "the future will be treated as a batched 2D solve. Use b[..., None] and squeeze(-1) "
            "to avoid this warning.",
            FutureWarning,
            stacklevel=3,
        )
        vector = True
    last = "(n)" if vector else "(n,k)"
    signature = f"{','.join([*parts, last])}->{last}"
    return jnp.vectorize(f, signature=signature)(*matrices, b)


def _triangular(a, b, **options):
    column = b.ndim == 1
    out = lax.linalg.triangular_solve(a, b[:, None] if column else b, left_side=True, **options)
    return out[:, 0] if column else out


def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False,
              check_finite: bool = True) -> Array:
    """Solve `a x = b`, given the Cholesky factor of `a`.

    Args:
        c_and_lower: the tuple `(factor, lower)` that `cho_factor` returns.
        b: right-hand side, a vector of length `n` or matrices of shape `(..., n, k)`.
        overwrite_b, check_finite: ignored.

    Returns:
        The solution. It has the shape of `b`, except that the batch axes of the factor and of `b`
        are broadcast against each other.

    >>> from toile.scipy import linalg
    >>> factor = linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> linalg.cho_solve(factor, jnp.array([6.0, 4.0]))
    Array([1., 1.], dtype=float32)
    """
    c, lower = c_and_lower
    c, b = inexact("cho_solve", jnp.asarray(c), jnp.asarray(b))

    def solve(c, b):
        b = _triangular(c, b, lower=lower, transpose_a=not lower, conjugate_a=not lower)
        return _triangular(c, b, lower=lower, transpose_a=lower, conjugate_a=lower)

    return _per_matrix("cho_solve", solve, (c,), b)


_TRANS: dict[int | str, tuple[bool, bool]] = {0: (False, False), 1: (True, False), 2: (True, True)}
_TRANS |= {"N": _TRANS[0], "T": _TRANS[1], "C": _TRANS[2]}


def solve_triangular(a: ArrayLike, b: ArrayLike, trans: int | str = 0, lower: bool = False,
                     unit_diagonal: bool = False, overwrite_b: bool = False, debug: object = None,
                     check_finite: bool = True) -> Array:
    """Solve `a x = b` for a triangular matrix `a`.

    Args:
        a: matrices of shape `(..., n, n)`. Only the triangle selected by `lower` is read.
        b: right-hand side, a vector of length `n` or matrices of shape `(..., n, k)`.
        trans: system to solve: `a x = b` (0 or `"N"`), `aᵀ x = b` (1 or `"T"`) or `aᴴ x = b` (2 or
            `"C"`).
        lower: whether `a` is lower triangular.
        unit_diagonal: if True, all diagonal elements are assumed to be 1 and are not read.
        overwrite_b, debug, check_finite: ignored.

    Returns:
        The solution. It has the shape of `b`, except that the batch axes of `a` and `b` are
        broadcast against each other.

    Raises:
        ValueError: `trans` is invalid.

    Differences:
        If the matrix is singular, SciPy raises an error, while toile's result contains inf or NaN.

    >>> from toile.scipy import linalg
    >>> linalg.solve_triangular(jnp.array([[2.0, 1.0], [0.0, 4.0]]), jnp.array([4.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    if trans not in _TRANS:
        raise ValueError(f"Invalid 'trans' value {trans}{here()}")
    transpose, conjugate = _TRANS[trans]
    a, b = inexact("solve_triangular", jnp.asarray(a), jnp.asarray(b))
    solve = functools.partial(_triangular, lower=lower, transpose_a=transpose,
                              conjugate_a=conjugate, unit_diagonal=unit_diagonal)
    return _per_matrix("solve_triangular", solve, (a,), b)


def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True,
        overwrite_a: bool = False, check_finite: bool = True,
        lapack_driver: str = "gesdd") -> tuple[Array, Array, Array] | Array:
    """Compute the singular value decomposition of a matrix.

    The decomposition is `a = u diag(s) vh`, where the columns of `u` and the rows of `vh` are
    orthonormal.

    Args:
        a: matrices of shape `(..., m, n)`.
        full_matrices: whether `u` and `vh` are square. If False, `u` has `min(m, n)` columns and
            `vh` has `min(m, n)` rows.
        compute_uv: whether to return `u` and `vh`.
        overwrite_a, check_finite, lapack_driver: ignored.

    Returns:
        A tuple `(u, s, vh)`, or only `s` if `compute_uv` is False. The singular values `s` are in
        descending order.
    """
    (a,) = inexact("svd", jnp.asarray(a))
    out = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(out) if compute_uv else out


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Compute the determinant of a square matrix.

    Args:
        a: matrices of shape `(..., n, n)`.
        overwrite_a, check_finite: ignored.

    Returns:
        The determinants, with the shape of `a` without its last two axes.
    """
    return jnp.linalg.det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Compute the inverse of a square matrix.

    To solve `a x = b`, use `solve`, which is faster and more accurate.

    Args:
        a: matrices of shape `(..., n, n)`.
        overwrite_a, check_finite: ignored.

    Returns:
        The inverses, with the shape of `a`. The result for a singular matrix contains inf or NaN.

    Differences:
        SciPy raises an error if the matrix is singular.
    """
    return jnp.linalg.inv(a)


def eigh(a: ArrayLike, b: None = None, lower: bool = True, eigvals_only: bool = False,
         overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True,
         eigvals: None = None, type: int = 1,
         check_finite: bool = True) -> tuple[Array, Array] | Array:
    """Compute the eigenvalues and eigenvectors of a Hermitian matrix.

    Args:
        a: matrices of shape `(..., n, n)`. Each matrix is first made Hermitian: it is replaced
            with the mean of itself and its adjoint.
        b: must be None; other values are not supported.
        lower: ignored, because both triangles of `a` are read.
        eigvals_only: whether to return only the eigenvalues.
        overwrite_a, overwrite_b, turbo, check_finite: ignored.
        eigvals: must be None; other values are not supported.
        type: must be 1; other values are not supported.

    Returns:
        A tuple `(eigenvalues, eigenvectors)`, or only the eigenvalues if `eigvals_only` is True.
        The eigenvalues are real and in ascending order. Column `i` of the eigenvectors belongs to
        eigenvalue `i`.

    Raises:
        NotImplementedError: `b` or `eigvals` is given, or `type` is not 1.

    Differences:
        SciPy reads only one triangle of `a`.
    """
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented" + here())
    if type != 1:
        raise NotImplementedError("Only the type=1 case of eigh is implemented." + here())
    if eigvals is not None:
        raise NotImplementedError("Only the eigvals=None case of eigh is implemented." + here())
    (a,) = inexact("eigh", jnp.asarray(a))
    v, w = lax.linalg.eigh(a, lower=lower)
    return w if eigvals_only else (w, v)


def schur(a: ArrayLike, output: Literal["real", "complex"] = "real") -> tuple[Array, Array]:
    """Compute the Schur decomposition of a square matrix: `a = Z T Zᴴ` with unitary `Z`.

    Args:
        a: matrices of shape `(..., n, n)`, of a floating-point or complex dtype.
        output: `"complex"` for a complex `T`, which is upper triangular; `"real"` for a real `T` if
            `a` is real. A real `T` has a 2 × 2 block on its diagonal for each pair of complex
            conjugate eigenvalues, and is otherwise upper triangular.

    Returns:
        A tuple `(T, Z)`. Both have the shape of `a`.

    Raises:
        ValueError: `output` is invalid.

    Differences:
        SciPy also accepts integers and has more arguments, for example to sort the eigenvalues.
    """
    if output not in ("real", "complex"):
        raise ValueError("Expected 'output' to be either 'real' or 'complex', got "
                         f"output={output!r}.{here()}")
    matrix = jnp.asarray(a)
    if output == "complex":
        matrix = matrix.astype(to_complex(matrix.dtype))
    t, z = lax.linalg.schur(matrix)
    return t, z


def hessenberg(a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False,
               check_finite: bool = True) -> Array | tuple[Array, Array]:
    """Compute the Hessenberg form of a square matrix: `a = Q H Qᴴ` with unitary `Q`.

    All elements of `H` below its first subdiagonal are 0.

    Args:
        a: matrices of shape `(..., n, n)`, of a floating-point or complex dtype. Integers are not
            accepted.
        calc_q: whether to return `Q`.
        overwrite_a, check_finite: ignored.

    Returns:
        `H`, or a tuple `(H, Q)` if `calc_q` is True.
    """
    matrix = jnp.asarray(a)
    n = matrix.shape[-1]
    if n == 0:
        zero = jnp.zeros_like(matrix)
        return (zero, zero) if calc_q else zero
    reflectors, taus = lax.linalg.hessenberg(matrix)
    h = jnp.triu(reflectors, -1)
    if not calc_q:
        return h
    q = lax.linalg.householder_product(reflectors[..., 1:, :-1], taus)
    eye = jnp.broadcast_to(jnp.eye(n, dtype=matrix.dtype), matrix.shape)
    return h, eye.at[..., 1:, 1:].set(q)


def lu_factor(a: ArrayLike, overwrite_a: bool = False,
              check_finite: bool = True) -> tuple[Array, Array]:
    """Compute the LU factorization of a matrix for use in `lu_solve`.

    Args:
        a: matrices of shape `(..., m, n)`.
        overwrite_a, check_finite: ignored.

    Returns:
        A tuple `(lu, pivots)`. The upper triangle of `lu` is `U`, and the part below it is `L`,
        whose diagonal of ones is not stored. In step `i` of the factorization, rows `i` and
        `pivots[i]` were swapped.
    """
    (a,) = inexact("lu_factor", jnp.asarray(a))
    packed, pivots, _ = lax.linalg.lu(a)
    return packed, pivots


def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0,
             overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """Solve `a x = b`, given the LU factorization of `a`.

    Args:
        lu_and_piv: the tuple `(lu, pivots)` that `lu_factor` returns.
        b: right-hand side, a vector of length `n` or matrices of shape `(..., n, k)`.
        trans: system to solve: `a x = b` (0), `aᵀ x = b` (1) or `aᴴ x = b` (2).
        overwrite_b, check_finite: ignored.

    Returns:
        The solution. It has the shape of `b`, except that the batch axes of the factorization and
        of `b` are broadcast against each other.

    Raises:
        ValueError: `trans` is invalid.

    >>> from toile.scipy import linalg
    >>> factors = linalg.lu_factor(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> linalg.lu_solve(factors, jnp.array([4.0, 3.0]))
    Array([3., 2.], dtype=float32)
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}{here()}")
    packed, pivots = lu_and_piv
    packed, b = inexact("lu_solve", jnp.asarray(packed), jnp.asarray(b))
    permutation = lax.linalg.lu_pivots_to_permutation(jnp.asarray(pivots), packed.shape[-2])

    def solve(packed, permutation, b):
        if trans == 0:
            b = _triangular(packed, b[permutation], lower=True, unit_diagonal=True)
            return _triangular(packed, b, lower=False)
        options = {"transpose_a": True, "conjugate_a": trans == 2}
        b = _triangular(packed, b, lower=False, **options)
        b = _triangular(packed, b, lower=True, unit_diagonal=True, **options)
        return b[jnp.argsort(permutation)]

    return _per_matrix("lu_solve", solve, (packed, permutation), b)


def lu(a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False,
       check_finite: bool = True) -> tuple[Array, Array, Array] | tuple[Array, Array]:
    """Compute the LU decomposition of a matrix: `a = P L U`.

    `P` is a permutation matrix, `L` is lower triangular with ones on its diagonal, and `U` is upper
    triangular.

    Args:
        a: one matrix of shape `(m, n)`.
        permute_l: whether to return the product `P L` instead of `P` and `L`.
        overwrite_a, check_finite: ignored.

    Returns:
        A tuple `(P, L, U)`, or `(P L, U)` if `permute_l` is True.

    Differences:
        SciPy also accepts batches of matrices.
    """
    (a,) = inexact("lu", jnp.asarray(a))
    packed, _, permutation = lax.linalg.lu(a)
    m, n = a.shape
    k = min(m, n)
    rows = jnp.arange(m, dtype=permutation.dtype)
    p = jnp.real((permutation[None, :] == rows[:, None]).astype(a.dtype))
    lower = jnp.tril(packed, -1)[:, :k] + jnp.eye(m, k, dtype=a.dtype)
    upper = jnp.triu(packed)[:k, :]
    if permute_l:
        return jnp.matmul(p, lower, precision=lax.Precision.HIGHEST), upper
    return p, lower, upper


def qr(a: ArrayLike, overwrite_a: bool = False, lwork: int | None = None,
       mode: Literal["full", "r", "economic"] = "full", pivoting: bool = False,
       check_finite: bool = True) -> tuple[Array, ...]:
    """Compute the QR decomposition of a matrix: `a = Q R`.

    `Q` has orthonormal columns, and `R` is upper triangular.

    Args:
        a: matrices of shape `(..., m, n)`.
        overwrite_a, lwork, check_finite: ignored.
        mode: `"full"` for a square `Q`, `"economic"` for a `Q` with `min(m, n)` columns, or `"r"`
            to return the full `R` without `Q`.
        pivoting: whether to permute the columns so that the diagonal of `R` decreases in
            magnitude. The decomposition is then `a[:, p] = Q R`.

    Returns:
        A tuple `(Q, R)`, or `(R,)` for `mode="r"`. If `pivoting` is True, the permutation `p` is
        the last element of the tuple.

    Raises:
        ValueError: `mode` is invalid.
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'{here()}")
    (a,) = inexact("qr", jnp.asarray(a))
    q, r, *p = lax.linalg.qr(a, pivoting=pivoting, full_matrices=mode != "economic")
    return (r, *p) if mode == "r" else (q, r, *p)


def qr_multiply(a: ArrayLike, c: ArrayLike, mode: Literal["right", "left"] = "right",
                pivoting: bool = False, conjugate: bool = False, overwrite_a: bool = False,
                overwrite_c: bool = False) -> tuple[Array, ...]:
    """Multiply a matrix by the factor `Q` of the economic QR decomposition of another matrix.

    Args:
        a: matrix of shape `(m, n)` to decompose; `Q` has shape `(m, min(m, n))`.
        c: matrix or vector to multiply by `Q`.
        mode: `"left"` to compute `Q c`, `"right"` to compute `c Q`.
        pivoting: whether to permute the columns of `a`, as in `qr`.
        conjugate: whether to replace `Q` with its complex conjugate.
        overwrite_a, overwrite_c: ignored.

    Returns:
        A tuple `(product, R)`. If `pivoting` is True, the permutation is the last element of the
        tuple.

    Raises:
        ValueError: `mode` is invalid, or the shapes do not match.
    """
    a, c = inexact("qr_multiply", jnp.asarray(a), jnp.asarray(c))
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}{here()}")
    left = mode == "left"
    vector = c.ndim == 1
    if vector:
        c = c[:, None] if left else c[None, :]
    m, n = a.shape[-2:]
    k = min(m, n)
    size, want = (c.shape[-2], k) if left else (c.shape[-1], m)
    if size != want:
        product, kind = ("Q @ c", "columns") if left else ("c @ Q", "rows")
        raise ValueError(f"Array shapes are not compatible for {product} operation: a has shape "
                         f"{tuple(a.shape)} so Q has {want} {kind}, but c has {size} (expected "
                         f"{want}).{here()}")
    q, r, *p = lax.linalg.qr(a, pivoting=pivoting, full_matrices=False)
    q = jnp.conj(q) if conjugate else q
    out = (
        jnp.matmul(q, c, precision=lax.Precision.HIGHEST)
        if left
        else jnp.matmul(c, q, precision=lax.Precision.HIGHEST)
    )
    return (out.ravel() if vector else out, r, *p)


def solve(a: ArrayLike, b: ArrayLike, lower: bool = False, overwrite_a: bool = False,
          overwrite_b: bool = False, debug: bool = False, check_finite: bool = True,
          assume_a: Literal["gen", "sym", "her", "pos"] = "gen") -> Array:
    """Solve `a x = b` for a square matrix `a`.

    Args:
        a: matrices of shape `(..., n, n)`.
        b: right-hand side, a vector of length `n` or matrices of shape `(..., n, k)`.
        lower: whether to read the lower triangle of `a` instead of the upper triangle. This
            argument is ignored unless `assume_a` is `"pos"`.
        overwrite_a, overwrite_b, debug, check_finite: ignored.
        assume_a: `"pos"` if `a` is Hermitian and positive definite, so that the faster Cholesky
            factorization can be used. With `"gen"` (general), `"sym"` (symmetric) and `"her"`
            (Hermitian), the LU factorization is used.

    Returns:
        The solution. It has the shape of `b`, except that the batch axes of `a` and `b` are
        broadcast against each other.

    Raises:
        ValueError: `assume_a` is invalid.

    Differences:
        If the matrix is singular, SciPy raises an error, while toile's result contains inf or NaN.

    >>> from toile.scipy import linalg
    >>> linalg.solve(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.array([4.0, 3.0]))
    Array([3., 2.], dtype=float32)
    """
    valid = ["gen", "sym", "her", "pos"]
    if assume_a not in valid:
        raise ValueError(f"Expected assume_a to be one of {valid}; got {assume_a!r}{here()}")
    if assume_a != "pos":
        return jnp.linalg.solve(a, b)
    a, b = inexact("solve", jnp.asarray(a), jnp.asarray(b))
    factors = cho_factor(lax.stop_gradient(a), lower=lower)
    column = b.ndim == a.ndim - 1
    rhs = b[..., None] if column else b
    shape = jnp.broadcast_shapes(a.shape[:-2], rhs.shape[:-2]) + rhs.shape[-2:]
    rhs = jnp.broadcast_to(rhs, shape)
    # The derivative comes from the implicit equation a·x = b, not from the factorization.
    x = lax.custom_linear_solve(lambda x: jnp.matmul(a, x, precision=lax.Precision.HIGHEST), rhs,
                                solve=lambda _, y: cho_solve(factors, y), symmetric=True)
    return x[..., 0] if column else x


# -- polar ---------------------------------------------------------------------------------------


def _halley_step(u, a, b, c):
    """Return `(b/c)·u + (a - b/c)·u·(I + c·uᴴu)⁻¹`, computed by QR if `c` is large.

    If `c` is small, the result is computed by a Cholesky factorization."""
    m, n = u.shape
    eye = jnp.eye(n, dtype=u.dtype)
    if c > 100:
        root = math.sqrt(c)  # a Python number, which takes the dtype of u
        q, _ = jnp.linalg.qr(jnp.concatenate([root * u, eye]))
        inner = q[:m] @ _H(q[m:]) / root
    else:
        gram = c * (_H(u) @ u) + eye
        inner = _H(cho_solve((cholesky(gram, lower=True), True), _H(u)))
    return (b / c) * u + (a - b / c) * inner


def _qdwh(x, eps, max_iterations):
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    norms = jnp.linalg.norm(x, ord=1) * jnp.linalg.norm(x, ord=np.inf)
    u = x * jnp.where(norms == 0, 1.0, lax.rsqrt(norms)).astype(x.dtype)
    _, by_qr, by_cholesky = weights(eps, max_iterations or 10)
    for a, b, c in by_qr + by_cholesky:
        u = _halley_step(u, a, b, c)
    u = 1.5 * u - 0.5 * u @ (_H(u) @ u)  # one Newton-Schulz step restores orthogonality
    h = _H(u) @ x
    return u, (h + _H(h)) / 2


def _polar_matrix(a, side, method, eps, max_iterations):
    m, n = a.shape
    if method == "svd":
        u, s, vh = lax.linalg.svd(a, full_matrices=False)
        s = s.astype(u.dtype)
        h = (_H(vh) * s[None]) @ vh if side == "right" else (u * s[None]) @ _H(u)
        return u @ vh, h
    if method != "qdwh":
        raise ValueError(f"Unknown polar decomposition method {method}.{here()}")
    if m >= n and side == "right":
        return _qdwh(a, eps, max_iterations)
    if m < n and side == "left":
        u, h = _qdwh(_H(a), eps, max_iterations)
        return _H(u), _H(h)
    raise NotImplementedError(
        "polar: method='qdwh' needed m >= n for side='right', or m < n for side='left', got "
        f"m = {m}, n = {n} and side={side!r}; use method='svd'{here()}")


def polar(a: ArrayLike, side: Literal["right", "left"] = "right", *,
          method: Literal["qdwh", "svd"] = "qdwh", eps: float | None = None,
          max_iterations: int | None = None) -> tuple[Array, Array]:
    """Compute the polar decomposition of a matrix: `a = u p`, or `a = p u`.

    `u` has orthonormal columns or rows, and `p` is Hermitian and positive semidefinite.

    Args:
        a: matrices of shape `(..., m, n)`.
        side: side of `p` in the product: `"right"` for `a = u p`, `"left"` for `a = p u`.
        method: `"qdwh"` for an iterative method, or `"svd"` for the singular value decomposition.
            `"qdwh"` requires `m >= n` for `side="right"` and `m < n` for `side="left"`.
        eps: relative precision of the iteration; None for the machine epsilon of the dtype.
        max_iterations: maximum number of iterations; 10 by default.

    Returns:
        A tuple `(u, p)`.

    Raises:
        NotImplementedError: `method` is `"qdwh"`, and the shape of `a` is not supported for this
            `side`.
        ValueError: `a` has fewer than two dimensions, or `side` or `method` is invalid.
    """
    matrix = jnp.asarray(a)
    if matrix.ndim < 2:
        raise ValueError("The input `a` must be at least a 2-D array." + here())
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'." + here())
    signature = "(m,n)->(m,n),(n,n)" if side == "right" else "(m,n)->(m,n),(m,m)"
    split = functools.partial(_polar_matrix, side=side, method=method, eps=eps,
                              max_iterations=max_iterations)
    return jnp.vectorize(split, signature=signature)(matrix)


# -- real to complex Schur form ------------------------------------------------------------------


def _rotate(m, t, z):
    """Make the subdiagonal entry (m, m-1) zero by rotating rows and columns m-1 and m."""
    n = t.shape[0]
    block = lax.dynamic_slice(t, (m - 1, m - 1), (2, 2))
    mu = jnp.linalg.eigvals(block).astype(t.dtype)[0] - t[m, m]
    below = t[m, m - 1]
    r = jnp.sqrt(jnp.abs(mu) ** 2 + jnp.abs(below) ** 2).astype(t.dtype)
    c, s = mu / r, below / r
    g = jnp.array([[jnp.conj(c), s], [-s, c]])
    rows = lax.dynamic_slice_in_dim(t, m - 1, 2, axis=0)
    rows = jnp.where(jnp.arange(n) >= m - 1, g @ rows, rows)
    t = lax.dynamic_update_slice_in_dim(t, rows, m - 1, axis=0)
    cols = lax.dynamic_slice_in_dim(t, m - 1, 2, axis=1)
    cols = jnp.where(jnp.arange(n)[:, None] < m + 1, cols @ _H(g), cols)
    t = lax.dynamic_update_slice_in_dim(t, cols, m - 1, axis=1)
    cols = lax.dynamic_slice_in_dim(z, m - 1, 2, axis=1)
    return t, lax.dynamic_update_slice_in_dim(z, cols @ _H(g), m - 1, axis=1)


def _rsf2csf_matrix(t, z):
    n = t.shape[0]
    if n == 1:
        return t, z
    eps = float(jnp.finfo(t.dtype).eps)

    def step(i, carry):
        t, z = carry
        m = n - i
        small = eps * (jnp.abs(t[m - 1, m - 1]) + jnp.abs(t[m, m]))
        t, z = lax.cond(jnp.abs(t[m, m - 1]) > small, _rotate, lambda m, t, z: (t, z), m, t, z)
        return t.at[m, m - 1].set(0.0), z

    return lax.fori_loop(1, n, step, (t, z))


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Convert a real Schur form to a complex Schur form, in which `T` is upper triangular.

    Args:
        T, Z: real Schur form, as returned by `schur`: arrays of shape `(..., n, n)`.
        check_finite: ignored.

    Returns:
        A tuple `(T, Z)` of complex arrays.

    Raises:
        ValueError: `T` or `Z` is not square, or their sizes differ.
    """
    t, z = jnp.asarray(T), jnp.asarray(Z)
    for name, x in (("Z", z), ("T", t)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"Input '{name}' must be square.{here()}")
    if t.shape[-1] != z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {z.shape} vs. T: {t.shape}{here()}")
    dtype = to_complex(jnp.result_type(t, z))
    convert = jnp.vectorize(_rsf2csf_matrix, signature="(n,n),(n,n)->(n,n),(n,n)")
    return convert(t.astype(dtype), z.astype(dtype))
