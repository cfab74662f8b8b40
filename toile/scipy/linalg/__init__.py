"""Linear algebra with the names of `jax.scipy.linalg`.

Factorisations and solvers over `lax.linalg`, matrix functions (expm, sqrtm, funm), Sylvester
equations, and constructors of structured matrices. Arguments that only matter to LAPACK callers
(`overwrite_a`, `check_finite`) are accepted and ignored.
"""

from toile.scipy.linalg._decompositions import (
    cho_factor,
    cho_solve,
    cholesky,
    det,
    eigh,
    hessenberg,
    inv,
    lu,
    lu_factor,
    lu_solve,
    polar,
    qr,
    qr_multiply,
    rsf2csf,
    schur,
    solve,
    solve_triangular,
    svd,
)
from toile.scipy.linalg._functions import expm, expm_frechet, funm, solve_sylvester, sqrtm
from toile.scipy.linalg._structured import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)
from toile.scipy.linalg._tridiagonal import eigh_tridiagonal

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion",
    "convolution_matrix", "det", "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet", "fiedler",
    "fiedler_companion", "funm", "hadamard", "hankel", "helmert", "hessenberg", "hilbert", "inv",
    "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve", "pascal", "polar", "qr",
    "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester", "solve_triangular", "sqrtm", "svd",
    "toeplitz",
]
