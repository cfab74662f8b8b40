"""Linear algebra on batches of matrices, with the names and signatures of `jax.lax.linalg`.

Operands are batches of matrices in their last axes. Decompositions that fail give NaN. The
operations and their derivatives are in toile.primitives.linalg_*.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from typing import Any

from toile.engine import dtypes
from toile.engine.conversion import as_array
from toile.engine.source import here
from toile.lax._polar import qdwh
from toile.primitives import linalg_eigen as eigen
from toile.primitives import linalg_factor as factor
from toile.primitives import linalg_solve as solves
from toile.primitives.elementwise import convert
from toile.primitives.families import add, broadcast_in_dim, mul, reshape
from toile.primitives.linalg import matmul, swapped, symmetrize, tril

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update", "eig",
    "eigh", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qdwh",
    "qr", "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal",
    "tridiagonal_solve",
]


class EigImplementation(enum.Enum):
    """Who computes a general eigendecomposition."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """How a Hermitian eigendecomposition is computed."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """How a singular value decomposition is computed."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """The lower triangular L with x = L Lᴴ; NaN where x is not positive definite.

    >>> import numpy, toile.lax as lax
    >>> lax.linalg.cholesky(numpy.float32([[4, 2], [2, 5]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    x = as_array(x)
    return factor.Cholesky()(symmetrize(x) if symmetrize_input else x)


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """The upper triangular factor of RᵀR + wwᵀ."""
    return factor.CholeskyUpdate()(as_array(r_matrix), as_array(w_vector))


def eig(x: Any, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True,
        enable_eigvec_derivs: bool = False, implementation: EigImplementation | None = None,
        use_magma: bool | None = None) -> list[Any]:
    """Eigenvalues of general matrices, then left and right eigenvectors where asked.

    Eigenvectors can be differentiated with `enable_eigvec_derivs`, which asserts that eigenvalues
    are distinct and that no eigenvector has two components tied for the largest magnitude."""
    if use_magma is not None:
        warnings.warn(
            "use_magma is deprecated, please use implementation=EigImplementation.MAGMA instead.",
            DeprecationWarning, stacklevel=2,
        )
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    if implementation not in (None, EigImplementation.LAPACK):
        raise ValueError("eig: needed the LAPACK implementation, the only one there is, got "
                         f"{implementation}{here()}")
    op = eigen.Eig(compute_left_eigenvectors, compute_right_eigenvectors, enable_eigvec_derivs)
    return op(as_array(x))


def eigh(x: Any, *, lower: bool = True, symmetrize_input: bool = True,
         sort_eigenvalues: bool = True, subset_by_index: tuple[int, int] | None = None,
         implementation: EighImplementation | None = None) -> tuple[Any, Any]:
    """Eigenvectors (as columns) and ascending eigenvalues of Hermitian matrices.

    >>> import numpy, toile.lax as lax
    >>> lax.linalg.eigh(numpy.float32([[3, 0], [0, 1]]))[1]
    Array([1., 3.], dtype=float32)
    """
    if implementation not in (None, EighImplementation.QR):
        raise NotImplementedError("eigh: needed the QR implementation or None, got "
                                  f"{implementation}{here()}")
    x = as_array(x)
    op = eigen.Eigh(lower, sort_eigenvalues, _range(subset_by_index))
    v, w = op(symmetrize(x) if symmetrize_input else x)
    return v, w


def _range(subset: Any) -> tuple[int, int] | None:
    return None if subset is None else (int(subset[0]), int(subset[1]))


def hessenberg(a: Any) -> tuple[Any, Any]:
    """The upper Hessenberg form over the Householder reflectors that make it, and their factors."""
    return eigen.Hessenberg()(as_array(a))


def householder_product(a: Any, taus: Any) -> Any:
    """The product of the Householder reflectors in the lower triangle of `a`."""
    return factor.HouseholderProduct()(as_array(a), as_array(taus))


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Q c, or c Q, or with Qᴴ, for the Q of a QR factorization that is kept as reflectors."""
    return factor.Ormqr(left, transpose)(as_array(a), as_array(taus), as_array(c))


def lu(x: Any) -> tuple[Any, Any, Any]:
    """Packed LU factors of the rows in pivoted order, the row swaps, and that order."""
    return factor.Lu()(as_array(x))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The order of rows that the row swaps of `lu` make."""
    return factor.LuPivotsToPermutation(int(permutation_size))(as_array(pivots))


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True,
       use_magma: bool | None = None) -> Any:
    """(Q, R) with x = Q R, or (Q, R, p) with x[:, p] = Q R."""
    return tuple(factor.Qr(pivoting, full_matrices)(as_array(x)))


def schur(x: Any, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
          select_callable: Callable[..., Any] | None = None) -> Any:
    """The triangular form T and, where asked, the unitary Q with x = Q T Qᴴ."""
    if sort_eig_vals:
        raise NotImplementedError("schur: sorting of the eigenvalues is not implemented" + here())
    return eigen.Schur(compute_schur_vectors)(as_array(x))


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True,
        subset_by_index: tuple[int, int] | None = None,
        algorithm: SvdAlgorithm | None = None) -> Any:
    """(U, s, Vᴴ) with x = U diag(s) Vᴴ, or s alone.

    >>> import numpy, toile.lax as lax
    >>> lax.linalg.svd(numpy.float32([[3, 0], [0, 4]]), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
        raise NotImplementedError("svd: needed the QR or the divide-and-conquer algorithm, got "
                                  f"{algorithm}{here()}")
    by = "qr" if algorithm is SvdAlgorithm.QR else "default"
    op = eigen.Svd(full_matrices, compute_uv, _range(subset_by_index), by)
    s, *vectors = op(as_array(x))
    return (vectors[0], s, vectors[1]) if vectors else s


def symmetric_product(a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0,
                      symmetrize_output: bool = False) -> Any:
    """alpha A Aᵀ + beta C; the lower triangle counts, unless the output is symmetrized."""
    a, c = as_array(a_matrix), as_array(c_matrix)
    shapes = a.shape[-2:], c.shape[-2:]
    if a.ndim < 2 or c.shape != (*a.shape[:-1], a.shape[-2]):
        raise ValueError("symmetric_product: needed matrices of shapes (m, n) and (m, m) with "
                         f"equal batch axes, got {shapes[0]} and {shapes[1]}{here()}")
    product = mul(matmul(a, swapped(a)), convert(as_array(alpha), a.dtype))
    out = add(product, mul(c, convert(as_array(beta), c.dtype)))
    return add(tril(out), swapped(tril(out, -1))) if symmetrize_output else out


def triangular_solve(a: Any, b: Any, *, left_side: bool = False, lower: bool = False,
                     transpose_a: bool = False, conjugate_a: bool = False,
                     unit_diagonal: bool = False) -> Any:
    """x with op(a) x = b, or x op(a) = b, for a triangular a (a zero diagonal: inf, NaN).

    >>> import numpy, toile.lax as lax
    >>> lax.linalg.triangular_solve(numpy.float32([[2, 0], [1, 1]]), numpy.float32([4, 3]),
    ...                             left_side=True, lower=True)
    Array([2., 1.], dtype=float32)
    """
    a, b = as_array(a), as_array(b)
    conjugated = conjugate_a and dtypes.kind(a.dtype) == "c"
    op = solves.TriangularSolve(left_side, lower, transpose_a, conjugated, unit_diagonal)
    if b.ndim != a.ndim - 1:
        return op(a, b)
    axes = tuple(range(b.ndim)) if left_side else (*range(b.ndim - 1), b.ndim)
    wide = (*b.shape, 1) if left_side else (*b.shape[:-1], 1, b.shape[-1])
    return reshape(op(a, broadcast_in_dim(b, wide, axes)), b.shape)


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """Hermitian matrices in tridiagonal form: (a with reflectors, diagonal, next one, factors)."""
    return eigen.Tridiagonal(lower)(as_array(a))


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """x with A x = b for the matrices A of three diagonals (dl[0] and du[-1] are not read)."""
    return solves.TridiagonalSolve(perturb_singular)(*map(as_array, (dl, d, du, b)))
