"""Linear algebra on batches of matrices, with the names and signatures of `jax.lax.linalg`.

Matrices are in the last two axes, and leading axes are batch axes. A decomposition that fails
returns NaN. `toile.numpy.linalg` and `toile.scipy.linalg` contain similar functions with the names
of NumPy and SciPy.
"""

# The operations and their derivatives are in toile.primitives.linalg_*.

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from typing import Any

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
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
    """The library that decomposes general matrices in `eig`; toile supports only LAPACK."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """The algorithm that decomposes Hermitian matrices in `eigh`; toile supports only QR."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """The algorithm that `svd` uses.

    toile supports the QR algorithm and the divide-and-conquer algorithm, which is the default.
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Factor positive definite matrices into lower triangular matrices and their adjoints.

    Args:
        x: matrices in the last two axes, of a float or complex dtype.
        symmetrize_input: whether to first replace `x` with the mean of `x` and its adjoint. If
            False, only the lower triangle is read.

    Returns:
        The lower triangular matrices L with `x = L Lᴴ`, in an array with the shape and dtype of
        `x`. If a matrix is not positive definite, its factor contains NaN.

    >>> lax.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    a = as_array(x)
    return factor.Cholesky()(symmetrize(a) if symmetrize_input else a)


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """Update the Cholesky factor of a matrix to which a matrix of rank 1 is added.

    Args:
        r_matrix: upper triangular matrix R, the factor of `RᵀR`.
        w_vector: vector w, which is added as `wwᵀ`.

    Returns:
        The upper triangular factor of `RᵀR + wwᵀ`.

    >>> lax.linalg.cholesky_update(jnp.diag(jnp.array([3.0, 1.0])), jnp.array([4.0, 0.0]))
    Array([[5., 0.],
           [0., 1.]], dtype=float32)
    """
    return factor.CholeskyUpdate()(as_array(r_matrix), as_array(w_vector))


def eig(x: ArrayLike, *, compute_left_eigenvectors: bool = True,
        compute_right_eigenvectors: bool = True, enable_eigvec_derivs: bool = False,
        implementation: EigImplementation | None = None,
        use_magma: bool | None = None) -> list[Array]:
    """Compute eigenvalues and eigenvectors of general matrices.

    Args:
        x: square matrices in the last two axes, of a float or complex dtype.
        compute_left_eigenvectors: whether to return left eigenvectors.
        compute_right_eigenvectors: whether to return right eigenvectors.
        enable_eigvec_derivs: whether eigenvectors can be differentiated. By setting it to True, you
            promise that the eigenvalues are distinct and that no eigenvector has two elements tied
            for the largest magnitude.
        implementation: None or `EigImplementation.LAPACK`, the only supported library.
        use_magma: deprecated. False means LAPACK, and True raises an error.

    Returns:
        A list of the eigenvalues and, if requested, the left and the right eigenvectors, as the
        columns of matrices. All arrays are complex. The eigenvalues are in no particular order.

    >>> values, = lax.linalg.eig(jnp.array([[0.0, -1.0], [1.0, 0.0]]),
    ...     compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    >>> jnp.sort(values.imag)
    Array([-1.,  1.], dtype=float32)
    """
    if use_magma is not None:
        warnings.warn(
            "use_magma is deprecated, please use implementation=EigImplementation.MAGMA instead.",
            DeprecationWarning, stacklevel=2,
        )
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    if implementation not in (None, EigImplementation.LAPACK):
        raise ValueError("eig: needed the LAPACK implementation, the only one available, got "
                         f"{implementation}{here()}")
    op = eigen.Eig(compute_left_eigenvectors, compute_right_eigenvectors, enable_eigvec_derivs)
    return op(as_array(x))


def eigh(x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True,
         sort_eigenvalues: bool = True, subset_by_index: tuple[int, int] | None = None,
         implementation: EighImplementation | None = None) -> tuple[Array, Array]:
    """Compute eigenvectors and eigenvalues of symmetric or Hermitian matrices.

    Args:
        x: square matrices in the last two axes, of a float or complex dtype.
        lower: whether to read only the lower triangle; if False, only the upper triangle is read.
            `lower` is ignored if `symmetrize_input` is True.
        symmetrize_input: whether to first replace `x` with the mean of `x` and its adjoint.
        sort_eigenvalues: ignored, because the eigenvalues are always in ascending order.
        subset_by_index: a pair `(start, end)` to compute only the eigenvalues at positions `start`
            to `end - 1` in ascending order; None for all.
        implementation: None or `EighImplementation.QR`, the only supported algorithm.

    Returns:
        A pair: the eigenvectors, as the columns of matrices, and the eigenvalues, which are real.
        Note the order: `jnp.linalg.eigh` returns the eigenvalues first.

    >>> vectors, values = lax.linalg.eigh(jnp.array([[3.0, 0.0], [0.0, 1.0]]))
    >>> values
    Array([1., 3.], dtype=float32)
    """
    if implementation not in (None, EighImplementation.QR):
        raise NotImplementedError("eigh: needed the QR implementation or None, got "
                                  f"{implementation}{here()}")
    a = as_array(x)
    op = eigen.Eigh(lower, sort_eigenvalues, _range(subset_by_index))
    v, w = op(symmetrize(a) if symmetrize_input else a)
    return v, w


def _range(subset: Any) -> tuple[int, int] | None:
    return None if subset is None else (int(subset[0]), int(subset[1]))


def hessenberg(a: ArrayLike) -> list[Array]:
    """Reduce square matrices to upper Hessenberg form, with zeros below the first subdiagonal.

    Args:
        a: square matrices in the last two axes, of a float or complex dtype.

    Returns:
        A list of two arrays: matrices that contain the Hessenberg form in their upper part and the
        Householder reflectors below it, and the scale factors of the reflectors.

    >>> form, taus = lax.linalg.hessenberg(jnp.eye(3))
    >>> form.shape, taus.shape
    ((3, 3), (2,))
    """
    return eigen.Hessenberg()(as_array(a))


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """Multiply Householder reflectors to form the matrices Q that they represent.

    Args:
        a: matrices whose columns contain the reflectors below the diagonal.
        taus: scale factors of the reflectors, at most one for each column.

    Returns:
        The matrices Q, which have orthonormal columns and the shape of `a`.

    >>> jnp.diag(lax.linalg.householder_product(jnp.eye(2), jnp.array([2.0, 0.0])))
    Array([-1.,  1.], dtype=float32)
    """
    return factor.HouseholderProduct()(as_array(a), as_array(taus))


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True,
          transpose: bool = False) -> Array:
    """Multiply matrices by the factor Q of a QR factorization, stored as Householder reflectors.

    Args:
        a: matrices whose columns contain the reflectors below the diagonal.
        taus: scale factors of the reflectors.
        c: matrices to multiply.
        left: whether Q is the left factor of the product; if False, it is the right factor.
        transpose: whether to multiply by the adjoint of Q instead of Q.

    Returns:
        The product `Q c`, `c Q`, `Qᴴ c` or `c Qᴴ`, with the shape of `c`.

    >>> lax.linalg.ormqr(jnp.eye(2), jnp.array([2.0, 0.0]), jnp.array([[3.0], [4.0]]))
    Array([[-3.],
           [ 4.]], dtype=float32)
    """
    return factor.Ormqr(left, transpose)(as_array(a), as_array(taus), as_array(c))


def lu(x: ArrayLike) -> list[Array]:
    """Factor matrices into lower and upper triangular matrices, after swapping rows.

    Args:
        x: matrices in the last two axes, of a float or complex dtype.

    Returns:
        A list of three arrays. The first contains the factor U in its upper triangle and the factor
        L below it; L has ones on its diagonal, which are not stored. The second contains the pivots
        as int32: step `i` swaps rows `i` and `pivots[i]`. The third is the resulting order of the
        rows: `x[order] = L U`.

    >>> factors, pivots, order = lax.linalg.lu(jnp.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> factors
    Array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float32)
    >>> order
    Array([1, 0], dtype=int32)
    """
    return factor.Lu()(as_array(x))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """Convert the pivots of an LU factorization to a permutation of the rows.

    Args:
        pivots: integers along the last axis: step `i` swaps rows `i` and `pivots[i]`.
        permutation_size: number of rows.

    Returns:
        The order of the rows after all swaps, as int32 along the last axis.

    >>> lax.linalg.lu_pivots_to_permutation(jnp.array([2, 2]), 3)
    Array([2, 0, 1], dtype=int32)
    """
    return factor.LuPivotsToPermutation(int(permutation_size))(as_array(pivots))


def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True,
       use_magma: bool | None = None) -> tuple[Array, ...]:
    """Factor matrices into Q, with orthonormal columns, and R, which is upper triangular.

    Args:
        x: matrices in the last two axes, of a float or complex dtype.
        pivoting: whether to permute columns so that the diagonal of R decreases in magnitude.
        full_matrices: if True, Q is square; if False, Q has `min(rows, columns)` columns.
        use_magma: ignored.

    Returns:
        A tuple (Q, R) such that `x = Q R`. If `pivoting` is True, a tuple (Q, R, p) such that
        `x[:, p] = Q R`.

    >>> q, r = lax.linalg.qr(jnp.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> jnp.abs(r).round(4)
    Array([[5. , 2.2],
           [0. , 0.4]], dtype=float32)
    """
    return tuple(factor.Qr(pivoting, full_matrices)(as_array(x)))


def schur(x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
          select_callable: Callable[..., Any] | None = None) -> list[Array]:
    """Compute the Schur decomposition of square matrices: `x = Q T Qᴴ` with unitary Q.

    Args:
        x: square matrices in the last two axes, of a float or complex dtype.
        compute_schur_vectors: whether to return the matrices Q.
        sort_eig_vals: must be False; sorting is not supported.
        select_callable: ignored, because eigenvalues are not sorted.

    Returns:
        A list of T and, if requested, Q. T is upper triangular, except that for real matrices it
        has a 2-by-2 block on the diagonal for each pair of complex conjugate eigenvalues.

    Raises:
        NotImplementedError: `sort_eig_vals` is True.

    >>> t, q = lax.linalg.schur(jnp.array([[2.0, 1.0], [0.0, 3.0]]))
    >>> t
    Array([[2., 1.],
           [0., 3.]], dtype=float32)
    """
    if sort_eig_vals:
        raise NotImplementedError("schur: sorting of the eigenvalues is not implemented" + here())
    return eigen.Schur(compute_schur_vectors)(as_array(x))


def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True,
        subset_by_index: tuple[int, int] | None = None,
        algorithm: SvdAlgorithm | None = None) -> Any:
    """Compute the singular value decomposition of matrices.

    Args:
        x: matrices in the last two axes, of a float or complex dtype.
        full_matrices: if True, U and Vᴴ are square; if False, U has `min(rows, columns)` columns,
            and Vᴴ has the same number of rows.
        compute_uv: whether to return U and Vᴴ.
        subset_by_index: a pair `(start, end)` to compute only the singular values at positions
            `start` to `end - 1` in descending order; None for all. A pair requires
            `full_matrices=False` if U and Vᴴ are returned.
        algorithm: None, `SvdAlgorithm.QR` or `SvdAlgorithm.DIVIDE_AND_CONQUER`.

    Returns:
        A tuple (U, s, Vᴴ) with `x = U diag(s) Vᴴ`, or only s if `compute_uv` is False. The singular
        values s are real and in descending order.

    Raises:
        NotImplementedError: `algorithm` is not supported.

    >>> lax.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
        raise NotImplementedError("svd: needed the QR or the divide-and-conquer algorithm, got "
                                  f"{algorithm}{here()}")
    by = "qr" if algorithm is SvdAlgorithm.QR else "default"
    op = eigen.Svd(full_matrices, compute_uv, _range(subset_by_index), by)
    s, *vectors = op(as_array(x))
    return (vectors[0], s, vectors[1]) if vectors else s


def symmetric_product(a_matrix: ArrayLike, c_matrix: ArrayLike, *, alpha: float = 1.0,
                      beta: float = 0.0, symmetrize_output: bool = False) -> Array:
    """Compute `alpha A Aᵀ + beta C` for matrices A and symmetric matrices C.

    Args:
        a_matrix: matrices of shape (..., m, n).
        c_matrix: matrices of shape (..., m, m).
        alpha: factor by which `A Aᵀ` is multiplied.
        beta: factor by which C is multiplied.
        symmetrize_output: whether to copy the lower triangle of the result to the upper triangle.
            If False, only the lower triangle is meaningful.

    Returns:
        Matrices of shape (..., m, m).

    >>> lax.linalg.symmetric_product(jnp.array([[1.0], [2.0]]), jnp.eye(2), beta=10.0)
    Array([[11.,  2.],
           [ 2., 14.]], dtype=float32)
    """
    a, c = as_array(a_matrix), as_array(c_matrix)
    shapes = a.shape[-2:], c.shape[-2:]
    if a.ndim < 2 or c.shape != (*a.shape[:-1], a.shape[-2]):
        raise ValueError("symmetric_product: needed matrices of shapes (m, n) and (m, m) with "
                         f"equal batch axes, got {shapes[0]} and {shapes[1]}{here()}")
    product = mul(matmul(a, swapped(a)), convert(as_array(alpha), a.dtype))
    out = add(product, mul(c, convert(as_array(beta), c.dtype)))
    return add(tril(out), swapped(tril(out, -1))) if symmetrize_output else out


def triangular_solve(a: ArrayLike, b: ArrayLike, *, left_side: bool = False, lower: bool = False,
                     transpose_a: bool = False, conjugate_a: bool = False,
                     unit_diagonal: bool = False) -> Array:
    """Solve linear systems whose coefficient matrices are triangular.

    If a diagonal contains a zero, the solution contains infinities or NaN.

    Args:
        a: matrices in the last two axes. Only the triangle selected by `lower` is read.
        b: right-hand sides: matrices, or vectors if `b` has one axis fewer than `a`.
        left_side: whether to solve `a x = b`; if False, `x a = b` is solved.
        lower: whether `a` is lower triangular; if False, it is upper triangular.
        transpose_a: whether to replace `a` with its transpose.
        conjugate_a: whether to replace `a` with its complex conjugate.
        unit_diagonal: whether to assume that all diagonal elements are 1, without reading them.

    Returns:
        The solutions x, with the shape of `b`.

    >>> a, b = jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([4.0, 3.0])
    >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    Array([2., 1.], dtype=float32)
    """
    m, right = as_array(a), as_array(b)
    conjugated = conjugate_a and dtypes.kind(m.dtype) == "c"
    op = solves.TriangularSolve(left_side, lower, transpose_a, conjugated, unit_diagonal)
    shape, rank = right.shape, right.ndim
    if rank != m.ndim - 1:
        return op(m, right)
    axes = tuple(range(rank)) if left_side else (*range(rank - 1), rank)
    wide = (*shape, 1) if left_side else (*shape[:-1], 1, shape[-1])
    return reshape(op(m, broadcast_in_dim(right, wide, axes)), shape)


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> list[Array]:
    """Reduce symmetric or Hermitian matrices to tridiagonal form.

    Args:
        a: square matrices in the last two axes, of a float or complex dtype.
        lower: whether to read the lower triangle; if False, the upper triangle is read.

    Returns:
        A list of four arrays: matrices that contain the Householder reflectors of the reduction,
        the diagonals, the off-diagonals, and the scale factors of the reflectors.

    >>> reflectors, d, e, taus = lax.linalg.tridiagonal(jnp.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> d, e
    (Array([2., 3.], dtype=float32), Array([1.], dtype=float32))
    """
    return eigen.Tridiagonal(lower)(as_array(a))


def tridiagonal_solve(dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *,
                      perturb_singular: bool = False) -> Array:
    """Solve linear systems whose coefficient matrices are tridiagonal.

    Args:
        dl: elements below the diagonal, with the shape of `d`; `dl[i]` is in row `i`, and the first
            element is not read.
        d: elements of the diagonal, along the last axis.
        du: elements above the diagonal, with the shape of `d`; the last element is not read.
        b: right-hand sides, as the columns of matrices.
        perturb_singular: whether to perturb the pivots of singular matrices slightly, so that the
            solution is finite.

    Returns:
        The solutions x, with the shape of `b`.

    >>> one, two = jnp.ones(3), 2 * jnp.ones(3)
    >>> lax.linalg.tridiagonal_solve(one, two, one, jnp.array([[3.0], [4.0], [3.0]])).round(4)
    Array([[1.],
           [1.],
           [1.]], dtype=float32)
    """
    return solves.TridiagonalSolve(perturb_singular)(*map(as_array, (dl, d, du, b)))
