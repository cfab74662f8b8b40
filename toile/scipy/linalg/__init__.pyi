"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.scipy.linalg._decompositions import (
    cho_factor as cho_factor,
    cho_solve as cho_solve,
    cholesky as cholesky,
    det as det,
    eigh as eigh,
    hessenberg as hessenberg,
    inv as inv,
    lu as lu,
    lu_factor as lu_factor,
    lu_solve as lu_solve,
    polar as polar,
    qr as qr,
    qr_multiply as qr_multiply,
    rsf2csf as rsf2csf,
    schur as schur,
    solve as solve,
    solve_triangular as solve_triangular,
    svd as svd,
)
from toile.scipy.linalg._functions import (
    expm as expm,
    expm_frechet as expm_frechet,
    funm as funm,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
)
from toile.scipy.linalg._structured import (
    block_diag as block_diag,
    circulant as circulant,
    companion as companion,
    convolution_matrix as convolution_matrix,
    dft as dft,
    fiedler as fiedler,
    fiedler_companion as fiedler_companion,
    hadamard as hadamard,
    hankel as hankel,
    helmert as helmert,
    hilbert as hilbert,
    invhilbert as invhilbert,
    invpascal as invpascal,
    leslie as leslie,
    pascal as pascal,
    toeplitz as toeplitz,
)
from toile.scipy.linalg._tridiagonal import eigh_tridiagonal as eigh_tridiagonal
