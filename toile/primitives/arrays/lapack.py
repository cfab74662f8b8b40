"""Matrix decompositions and solves of raw arrays, by LAPACK and BLAS through SciPy.

A kernel works on one matrix (or one set of them) and returns a tuple, or None if LAPACK fails;
`batched` runs it over the leading axes and turns failures into NaN. SciPy is imported when a kernel
first runs. Arrays of libraries other than NumPy are copied to the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.locks import linear_algebra
from toile.engine.source import here
from toile.primitives.arrays.scipy_extensions import linalg_extension

ndarray = np.ndarray
Kernel = Callable[..., "tuple[Any, ...] | None"]
Spec = tuple[tuple[int, ...], Any]  # shape and dtype of a result

_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}


def batched(
    xp: Any, kernel: Kernel, xs: Sequence[Any], ranks: Sequence[int], outs: Sequence[Spec]
) -> list[Any]:
    """Run `kernel` on each element of a batch; `ranks` are the ranks of one element's operands."""
    if xp is not np:
        on_host = [xp.asnumpy(x) for x in xs]
        return [xp.asarray(r) for r in batched(np, kernel, on_host, ranks, outs)]
    batch = xs[0].shape[: xs[0].ndim - ranks[0]]
    if not batch:
        with linear_algebra:
            found = kernel(*xs)
        if found is None:
            return [_failed(np.empty(shape, dtype)) for shape, dtype in outs]
        return [np.asarray(f, dtype) for f, (_, dtype) in zip(found, outs, strict=True)]
    count, depth = math.prod(batch), len(batch)
    rows = [x.reshape((count, *x.shape[depth:])) for x in xs]
    stacks = [np.empty((count, *shape[depth:]), dtype) for shape, dtype in outs]
    for i in range(count):
        with linear_algebra:
            found = kernel(*[r[i] for r in rows])
        for j, stack in enumerate(stacks):
            if found is None:
                _failed(stack[i : i + 1])
            else:
                stack[i] = found[j]
    return [s.reshape(shape) for s, (shape, _) in zip(stacks, outs, strict=True)]


def _failed(out: ndarray) -> ndarray:
    """Fill with the value that marks a failed decomposition."""
    kind = out.dtype.kind
    out.fill(complex(np.nan, np.nan) if kind == "c" else np.nan if kind == "f" else 0)
    return out


def _routine(name: str, dtype: Any, unitary: str | None = None) -> Any:
    """The LAPACK routine for a dtype; `unitary` is its name for complex matrices."""
    prefix = _PREFIX.get(np.dtype(dtype).char)
    if prefix is None:
        raise NotImplementedError(
            f"Unsupported dtype {np.dtype(dtype)}: {name} needed float32, float64, complex64 or "
            f"complex128 (convert with .astype first){here()}"
        )
    routine = prefix + (unitary if unitary and prefix in "cz" else name)
    return getattr(linalg_extension("_flapack"), routine)


def _sizes(routine: Any, *args: Any, **options: Any) -> list[int]:
    """Best workspace sizes; LAPACK returns floats, so sizes beyond their precision are rounded
    up."""
    *works, info = routine(*args, **options)
    if info:
        return []
    return [int(np.nextafter(np.real(w), np.inf)) if np.real(w) >= 2**24 else int(np.real(w))
            for w in works]


def _fortran(a: Any) -> ndarray:
    """A column-major copy that LAPACK may overwrite."""
    return np.array(a, order="F")


def _usable(a: Any) -> bool:
    """Whether iterations on `a` can converge: infinities and NaN make some of them hang."""
    return bool(np.isfinite(a).all())


# -------------------------------------------------------------------------------- factorizations


def cholesky(a: Any) -> tuple[Any, ...]:
    """The lower factor of a Hermitian matrix given by its lower triangle; NaN if it has none."""
    if not a.size:
        return (a,)
    c, info = _routine("potrf", a.dtype)(_fortran(a), lower=1, clean=1, overwrite_a=1)
    return (np.tril(_failed(c)),) if info else (c,)


def cholesky_update(r: Any, w: Any) -> tuple[Any, ...]:
    """The upper factor of RᵀR + wwᵀ, by Givens rotations of w into the rows of R."""
    r, w = np.array(r), np.array(w)
    for k in range(w.size):
        x, y = r[k, k], w[k]
        if y == 0:
            continue
        norm = np.hypot(x, y)
        c, s = x / norm, y / norm
        r[k], w = c * r[k] + s * w, c * w - s * r[k]
    return (r,)


def lu(a: Any) -> tuple[Any, ...] | None:
    """Packed factors, row swaps and the resulting permutation."""
    m, n = a.shape
    if not a.size:
        return a, np.zeros(min(m, n), np.int32), np.arange(m, dtype=np.int32)
    packed, pivots, info = _routine("getrf", a.dtype)(_fortran(a), overwrite_a=1)
    if info < 0:
        return None
    return packed, pivots, permutation(pivots, m)


def permutation(pivots: Any, size: int) -> ndarray:
    """The order of rows after a sequence of row swaps; those with missing rows are ignored."""
    order = list(range(size))
    for i, j in enumerate(pivots.tolist()):
        if 0 <= j < size:
            order[i], order[j] = order[j], order[i]
    return np.array(order, np.int32)


def geqrf(a: Any) -> tuple[Any, ...] | None:
    """R above the diagonal, Householder vectors below it, and their factors."""
    m, n = a.shape
    if not a.size:
        return a, np.zeros(min(m, n), a.dtype)
    work = _sizes(_routine("geqrf_lwork", a.dtype), m, n)
    packed, taus, _, info = _routine("geqrf", a.dtype)(_fortran(a), *work, overwrite_a=1)
    return None if info else (packed, taus)


def geqp3(a: Any) -> tuple[Any, ...] | None:
    """`geqrf` of the columns in pivot order, and that order."""
    routine = _routine("geqp3", a.dtype)
    work = int(np.real(routine(a, lwork=-1)[3][0]))
    packed, order, taus, _, info = routine(_fortran(a), lwork=work, overwrite_a=1)
    return None if info else (packed, taus, order - 1)


def householder_product(a: Any, taus: Any) -> tuple[Any, ...] | None:
    """The first columns of the product of the reflectors from `geqrf`."""
    if not a.size:
        return (a,)
    if not taus.size:
        return (np.eye(*a.shape, dtype=a.dtype),)
    routine = _routine("orgqr", a.dtype, "ungqr")
    work = int(np.real(routine(a, taus, lwork=-1)[1][0]))
    q, _, info = routine(_fortran(a), taus, lwork=work, overwrite_a=1)
    return None if info else (q,)


def ormqr(left: bool, adjoint: bool, a: Any, taus: Any, c: Any) -> tuple[Any, ...] | None:
    """Q c, Qᴴ c, c Q or c Qᴴ for the reflectors from `geqrf`."""
    if not c.size or not taus.size:
        return (c,)
    flip = "N" if not adjoint else "T" if a.dtype.kind == "f" else "C"
    routine = _routine("ormqr", a.dtype, "unmqr")
    side, a = "L" if left else "R", _fortran(a[:, : taus.size])
    work = int(np.real(routine(side, flip, a, taus, c, -1)[1][0]))
    out, _, info = routine(side, flip, a, taus, _fortran(c), work, overwrite_c=1)
    return None if info else (out,)


def qr(full: bool, pivoting: bool, a: Any) -> tuple[Any, ...] | None:
    """Q, R and, with pivoting, the order of the columns."""
    m, n = a.shape
    k = m if full else min(m, n)
    if not a.size:
        empty = np.eye(m, k, dtype=a.dtype), np.zeros((k, n), a.dtype)
        return (*empty, np.zeros(n, np.int32)) if pivoting else empty
    found = geqp3(a) if pivoting else geqrf(a)
    if found is None:
        return None
    packed, taus = found[0], found[1]
    wide = np.zeros((m, k), a.dtype, order="F")
    wide[:, : min(k, n)] = packed[:, : min(k, n)]
    q = householder_product(wide, taus)
    return None if q is None else (*q, np.triu(packed[:k]), *found[2:])


# --------------------------------------------------------------------- eigenvalues, singular values


def eigh_work(lower: bool, vectors: bool, n: int, dtype: Any) -> list[int]:
    """The workspace of `eigh`: numbers, integers and, for complex matrices, real numbers."""
    return _sizes(_routine("syevd_lwork", dtype, "heevd_lwork"), n, compute_v=vectors, lower=lower)


def svd_work(name: str, full: bool, vectors: bool, m: int, n: int, dtype: Any) -> list[int]:
    """The workspace of `svd` by a routine."""
    options = {"compute_uv": vectors, "full_matrices": full}
    return _sizes(_routine(f"{name}_lwork", dtype), m, n, **options)


def eig_work(left: bool, right: bool, n: int, dtype: Any) -> list[int]:
    """The workspace of `eig`."""
    return _sizes(_routine("geev_lwork", dtype), n, compute_vl=left, compute_vr=right)


def qr_work(m: int, n: int, k: int, dtype: Any) -> int:
    """The workspace of `geqrf` and of the product of the first k columns of its reflectors."""
    first = _sizes(_routine("geqrf_lwork", dtype), m, n)[0]
    wide, taus = np.zeros((m, k), dtype, order="F"), np.zeros(min(m, n), dtype)
    return max(first, int(_routine("orgqr", dtype)(wide, taus, lwork=-1)[1][0]))


def eigh(lower: bool, a: Any) -> tuple[Any, ...] | None:
    """Eigenvectors and ascending eigenvalues of a Hermitian matrix given by one triangle."""
    n = a.shape[-1]
    if not a.size:
        return a, np.zeros(n, a.real.dtype)
    if not _usable(a):
        return None
    work = eigh_work(lower, True, n, a.dtype)
    routine = _routine("syevd", a.dtype, "heevd")
    names = ("lwork", "liwork", "lrwork")
    w, v, info = routine(_fortran(a), lower=lower, overwrite_a=1,
                         **dict(zip(names, work, strict=False)))
    return None if info else (v, w)


def eig(left: bool, right: bool, a: Any) -> tuple[Any, ...] | None:
    """Eigenvalues, then left and right eigenvectors if requested."""
    n = a.shape[-1]
    if not a.size:
        return (np.zeros(n, a.dtype), *[a] * (left + right))
    if not _usable(a):
        return None
    work = eig_work(left, right, n, a.dtype)
    *w, vl, vr, info = _routine("geev", a.dtype)(_fortran(a), left, right, *work, overwrite_a=1)
    if info:
        return None
    if len(w) == 1:
        return (w[0], *([vl] if left else []), *([vr] if right else []))
    values = np.empty(n, np.result_type(a.dtype, np.complex64))
    values.real, values.imag = w
    vectors = [v for v, asked in ((vl, left), (vr, right)) if asked]
    return (values, *[_conjugate_pairs(w[1], v) for v in vectors])


def _conjugate_pairs(imaginary: Any, v: Any) -> ndarray:
    """Complex eigenvectors from LAPACK's packing: a pair's real part, then its imaginary part."""
    out = v.astype(np.result_type(v.dtype, np.complex64))
    for j in np.flatnonzero(imaginary > 0):
        out[:, j].imag = v[:, j + 1]
        out[:, j + 1] = out[:, j].conj()
    return out


def svd(full: bool, vectors: bool, by_qr: bool, a: Any) -> tuple[Any, ...] | None:
    """Descending singular values, then U and Vᴴ if requested."""
    m, n = a.shape
    k = min(m, n)
    if not a.size:
        s = np.zeros(0, a.real.dtype)
        shapes = ((m, m), (n, n)) if full else ((m, k), (k, n))
        return (s, *[np.eye(*shape, dtype=a.dtype) for shape in shapes]) if vectors else (s,)
    if not _usable(a):
        return None
    name = "gesvd" if by_qr else "gesdd"
    work = svd_work(name, full, vectors, m, n, a.dtype)
    u, s, vh, info = _routine(name, a.dtype)(_fortran(a), vectors, full, *work, overwrite_a=1)
    if info:
        return None
    return (s, u, vh) if vectors else (s,)


def schur(vectors: bool, a: Any) -> tuple[Any, ...] | None:
    """The (real: quasi-) triangular form and, if requested, its basis."""
    if not a.size:
        return (a, a) if vectors else (a,)
    if not _usable(a):
        return None

    def unsorted(*_: Any) -> None:
        return None

    routine = _routine("gees", a.dtype)
    work = int(np.real(routine(unsorted, a, lwork=-1)[-2][0]))
    t, *_, basis, _, info = routine(
        unsorted, _fortran(a), compute_v=vectors, lwork=work, overwrite_a=1
    )
    if info:
        return None
    return (t, basis) if vectors else (t,)


def hessenberg(a: Any) -> tuple[Any, ...] | None:
    """The upper Hessenberg form with its reflectors below, and their factors."""
    n = a.shape[-1]
    if n <= 1:
        return a, np.zeros(max(n - 1, 0), a.dtype)
    work = _sizes(_routine("gehrd_lwork", a.dtype), n, 0, n - 1)
    packed, taus, info = _routine("gehrd", a.dtype)(
        _fortran(a), 0, n - 1, *work, overwrite_a=1
    )
    return None if info else (packed, taus)


def tridiagonal(lower: bool, a: Any) -> tuple[Any, ...] | None:
    """The tridiagonal form with its reflectors, its two diagonals, and the reflectors' factors."""
    n = a.shape[-1]
    if n <= 1:
        none = np.zeros(0, a.dtype)
        return a.real.astype(a.dtype), a.diagonal().real, none.real, none
    work = _sizes(_routine("sytrd_lwork", a.dtype, "hetrd_lwork"), n, lower=lower)
    routine = _routine("sytrd", a.dtype, "hetrd")
    packed, d, e, taus, info = routine(_fortran(a), lower, *work, overwrite_a=1)
    return None if info else (packed, d, e, taus)


# ----------------------------------------------------------------------------------------- solves


def triangular_solve(
    left: bool, lower: bool, transposed: bool, conjugated: bool, unit: bool, a: Any, b: Any
) -> tuple[Any, ...]:
    """X with op(A) X = B or X op(A) = B; zeros on the diagonal give infinities and NaN."""
    from scipy.linalg import blas

    if not b.size:
        return (b,)
    dtype = b.dtype
    if dtype.char not in _PREFIX:  # narrow floats are solved in float32
        a, b = a.astype(np.float32), b.astype(np.float32)
    if conjugated and not transposed:
        a = a.conj()
    routine = getattr(blas, _PREFIX[b.dtype.char] + "trsm")
    flip = 0 if not transposed else 2 if conjugated else 1
    x = routine(1, _fortran(a), _fortran(b), side=not left, lower=lower, trans_a=flip, diag=unit,
                overwrite_b=1)
    return (x.astype(dtype, copy=False),)


def lu_solve(transposed: bool, packed: Any, pivots: Any, b: Any) -> tuple[Any, ...] | None:
    """X with A X = B (or Aᵀ X = B) from the packed factors and row swaps of A."""
    if not b.size:
        return (b,)
    x, info = _routine("getrs", b.dtype)(
        _fortran(packed), pivots, _fortran(b), trans=transposed, overwrite_b=1
    )
    return None if info else (x,)


def tridiagonal_solve(
    perturb: bool, dl: Any, d: Any, du: Any, b: Any
) -> tuple[Any, ...] | None:
    """X with A X = B for a tridiagonal matrix; dl[0] and du[-1] are not read."""
    n = d.shape[0]
    if not b.size:
        return (b,)
    if n == 1:
        pivot = _away_from_zero(d, np.abs(d).max()) if perturb else d
        return None if not perturb and d[0] == 0 else (b / pivot[0],)
    if perturb:
        return _perturbed_solve(dl, d, du, b)
    *_, x, info = _routine("gtsv", b.dtype)(dl[1:], d, du[:-1], b)
    return None if info else (x,)


def _away_from_zero(pivots: Any, largest: Any) -> ndarray:
    """Pivots that are tiny compared with the largest element of U, moved away from zero."""
    info = np.finfo(pivots.dtype)
    least = max(info.eps * largest, info.tiny)
    size = np.abs(pivots)
    direction = np.where(size == 0, 1, pivots / np.where(size == 0, 1, size))
    return np.where(size < least, direction * least, pivots).astype(pivots.dtype)


def _perturbed_solve(dl: Any, d: Any, du: Any, b: Any) -> tuple[Any, ...] | None:
    """Like `tridiagonal_solve`, for matrices that may be singular."""
    n = d.shape[0]
    if n == 2:  # gttrf's second superdiagonal would be empty: pad with an equation x = 0
        one, zero = np.ones(1, d.dtype), np.zeros(1, d.dtype)
        wide = np.concatenate([b, np.zeros((1, b.shape[1]), b.dtype)])
        found = _perturbed_solve(
            np.concatenate([dl, zero]), np.concatenate([d, one * np.abs(d).max(initial=1)]),
            np.concatenate([du[:1], zero, zero]), wide,
        )
        return None if found is None else (found[0][:2],)
    low, main, up, up2, order, info = _routine("gttrf", b.dtype)(dl[1:], d, du[:-1])
    if info < 0:
        return None
    largest = max(np.abs(v).max(initial=0) for v in (main, up, up2))
    main = _away_from_zero(main, largest)
    x, info = _routine("gttrs", b.dtype)(low, main, up, up2, order, b)
    return None if info else (x,)
