"""Factorisations and the solvers that use them.

Thin wrappers of `lax.linalg`: promotion to a floating dtype, SciPy's argument names, and SciPy's
shapes. A right-hand side of rank 1 is one vector; of higher rank, a batch of matrices.
"""

import functools
import warnings

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.lax._polar import weights
from toile.nn._promote import inexact, to_complex

__all__ = [
    "cho_factor", "cho_solve", "cholesky", "det", "eigh", "hessenberg", "inv", "lu", "lu_factor",
    "lu_solve", "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_triangular",
    "svd",
]


def _H(x):
    return jnp.conj(x.mT)


def cholesky(a, lower=False, overwrite_a=False, check_finite=True):
    """The Cholesky factor: upper unless `lower`; only that triangle of `a` is read."""
    (a,) = inexact("cholesky", jnp.asarray(a))
    if lower:
        return lax.linalg.cholesky(a, symmetrize_input=False)
    return _H(lax.linalg.cholesky(_H(a), symmetrize_input=False))


def cho_factor(a, lower=False, overwrite_a=False, check_finite=True):
    """(factor, lower) for `cho_solve`."""
    return cholesky(a, lower=lower), lower


def _per_matrix(name, f, matrices, b):
    """Map `f(*matrices, b)` over batches, `b` holding vectors or matrices."""
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


def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """Solution of a·x = b from the Cholesky factor of a."""
    c, lower = c_and_lower
    c, b = inexact("cho_solve", jnp.asarray(c), jnp.asarray(b))

    def solve(c, b):
        b = _triangular(c, b, lower=lower, transpose_a=not lower, conjugate_a=not lower)
        return _triangular(c, b, lower=lower, transpose_a=lower, conjugate_a=lower)

    return _per_matrix("cho_solve", solve, (c,), b)


_TRANS: dict[int | str, tuple[bool, bool]] = {0: (False, False), 1: (True, False), 2: (True, True)}
_TRANS |= {"N": _TRANS[0], "T": _TRANS[1], "C": _TRANS[2]}


def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, debug=None,
                     check_finite=True):
    """Solution of op(a)·x = b for triangular a; op is nothing, transpose (1, "T") or adjoint."""
    if trans not in _TRANS:
        raise ValueError(f"Invalid 'trans' value {trans}{here()}")
    transpose, conjugate = _TRANS[trans]
    a, b = inexact("solve_triangular", jnp.asarray(a), jnp.asarray(b))
    solve = functools.partial(_triangular, lower=lower, transpose_a=transpose,
                              conjugate_a=conjugate, unit_diagonal=unit_diagonal)
    return _per_matrix("solve_triangular", solve, (a,), b)


def svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True,
        lapack_driver="gesdd"):
    """Singular value decomposition (u, s, vh), or s alone."""
    (a,) = inexact("svd", jnp.asarray(a))
    out = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(out) if compute_uv else out


def det(a, overwrite_a=False, check_finite=True):
    """Determinant."""
    return jnp.linalg.det(a)


def inv(a, overwrite_a=False, check_finite=True):
    """Inverse."""
    return jnp.linalg.inv(a)


def eigh(a, b=None, lower=True, eigvals_only=False, overwrite_a=False, overwrite_b=False,
         turbo=True, eigvals=None, type=1, check_finite=True):
    """Eigenvalues in ascending order, and eigenvectors, of a Hermitian matrix."""
    if b is not None:
        raise NotImplementedError("Only the b=None case of eigh is implemented" + here())
    if type != 1:
        raise NotImplementedError("Only the type=1 case of eigh is implemented." + here())
    if eigvals is not None:
        raise NotImplementedError("Only the eigvals=None case of eigh is implemented." + here())
    (a,) = inexact("eigh", jnp.asarray(a))
    v, w = lax.linalg.eigh(a, lower=lower)
    return w if eigvals_only else (w, v)


def schur(a, output="real"):
    """Schur decomposition (T, Z) with a = Z·T·Zᴴ; "complex" makes T triangular for real a too."""
    if output not in ("real", "complex"):
        raise ValueError("Expected 'output' to be either 'real' or 'complex', got "
                         f"output={output!r}.{here()}")
    a = jnp.asarray(a)
    if output == "complex":
        a = a.astype(to_complex(a.dtype))
    t, z = lax.linalg.schur(a)
    return t, z


def hessenberg(a, *, calc_q=False, overwrite_a=False, check_finite=True):
    """Hessenberg form H, or (H, Q) with a = Q·H·Qᴴ."""
    a = jnp.asarray(a)
    n = a.shape[-1]
    if n == 0:
        return (jnp.zeros_like(a), jnp.zeros_like(a)) if calc_q else jnp.zeros_like(a)
    reflectors, taus = lax.linalg.hessenberg(a)
    h = jnp.triu(reflectors, -1)
    if not calc_q:
        return h
    q = lax.linalg.householder_product(reflectors[..., 1:, :-1], taus)
    eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
    return h, eye.at[..., 1:, 1:].set(q)


def lu_factor(a, overwrite_a=False, check_finite=True):
    """(packed LU, pivots) for `lu_solve`."""
    (a,) = inexact("lu_factor", jnp.asarray(a))
    packed, pivots, _ = lax.linalg.lu(a)
    return packed, pivots


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """Solution of a·x = b (or with aᵀ, aᴴ) from the LU factorisation of a."""
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


def lu(a, permute_l=False, overwrite_a=False, check_finite=True):
    """(P, L, U) with a = P·L·U, or (P·L, U)."""
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


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """QR decomposition: (Q, R), (R,) for mode "r"; column pivots are appended if asked."""
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'{here()}")
    (a,) = inexact("qr", jnp.asarray(a))
    q, r, *p = lax.linalg.qr(a, pivoting=pivoting, full_matrices=mode != "economic")
    return (r, *p) if mode == "r" else (q, r, *p)


def qr_multiply(a, c, mode="right", pivoting=False, conjugate=False, overwrite_a=False,
                overwrite_c=False):
    """Q·c ("left") or c·Q ("right"), and R, for the economic QR decomposition of a."""
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


def solve(a, b, lower=False, overwrite_a=False, overwrite_b=False, debug=False, check_finite=True,
          assume_a="gen"):
    """Solution of a·x = b; "pos" uses Cholesky, reading one triangle of a."""
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
    # The derivative comes from the implicit equation a·x = b, not from the factorisation.
    x = lax.custom_linear_solve(lambda x: jnp.matmul(a, x, precision=lax.Precision.HIGHEST), rhs,
                                solve=lambda _, y: cho_solve(factors, y), symmetric=True)
    return x[..., 0] if column else x


# -- polar ---------------------------------------------------------------------------------------


def _halley_step(u, a, b, c):
    """u ← (b/c)·u + (a - b/c)·u·(I + c·uᴴu)⁻¹, by QR while c is large, else by Cholesky."""
    m, n = u.shape
    eye = jnp.eye(n, dtype=u.dtype)
    if c > 100:
        q, _ = jnp.linalg.qr(jnp.concatenate([np.sqrt(c) * u, eye]))
        inner = q[:m] @ _H(q[m:]) / np.sqrt(c)
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
        h = (_H(vh) * s) @ vh if side == "right" else (u * s) @ _H(u)
        return u @ vh, h
    if method != "qdwh":
        raise ValueError(f"Unknown polar decomposition method {method}.{here()}")
    if m >= n and side == "right":
        return _qdwh(a, eps, max_iterations)
    if m < n and side == "left":
        u, h = _qdwh(_H(a), eps, max_iterations)
        return _H(u), _H(h)
    raise NotImplementedError("method='qdwh' only supports mxn matrices where m < n where "
                              f"side='right' and m >= n side='left', got {a.shape} with "
                              f"side={side!r}{here()}")


def polar(a, side="right", *, method="qdwh", eps=None, max_iterations=None):
    """Polar decomposition (u, p): a = u·p, or a = p·u for side "left"."""
    a = jnp.asarray(a)
    if a.ndim < 2:
        raise ValueError("The input `a` must be at least a 2-D array." + here())
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'." + here())
    signature = "(m,n)->(m,n),(n,n)" if side == "right" else "(m,n)->(m,n),(m,m)"
    split = functools.partial(_polar_matrix, side=side, method=method, eps=eps,
                              max_iterations=max_iterations)
    return jnp.vectorize(split, signature=signature)(a)


# -- real to complex Schur form ------------------------------------------------------------------


def _rotate(m, t, z):
    """Remove the subdiagonal entry (m, m-1) by a rotation of rows and columns m-1 and m."""
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


def rsf2csf(T, Z, check_finite=True):
    """The complex Schur form from the real one."""
    T, Z = jnp.asarray(T), jnp.asarray(Z)
    for name, x in (("Z", Z), ("T", T)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"Input '{name}' must be square.{here()}")
    if T.shape[-1] != Z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {Z.shape} vs. T: {T.shape}{here()}")
    dtype = to_complex(jnp.result_type(T, Z))
    convert = jnp.vectorize(_rsf2csf_matrix, signature="(n,n),(n,n)->(n,n),(n,n)")
    return convert(T.astype(dtype), Z.astype(dtype))
