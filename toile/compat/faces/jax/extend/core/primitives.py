"""`jax.extend.core.primitives`: JAX's names for operations."""

from toile.compat import jax_primitives as _of_lax
from toile.compat.faces.jax.extend.core.call_primitives import CallPrimitive
from toile.control import call, custom, remat
from toile.primitives import barriers, linalg_eigen, linalg_factor, linalg_solve, random

globals().update({k: v for k, v in vars(_of_lax).items() if k.endswith("_p")})

cholesky_p, lu_p, qr_p = linalg_factor.Cholesky, linalg_factor.Lu, linalg_factor.Qr
householder_product_p = linalg_factor.HouseholderProduct
lu_pivots_to_permutation_p = linalg_factor.LuPivotsToPermutation
eig_p, eigh_p, svd_p = linalg_eigen.Eig, linalg_eigen.Eigh, linalg_eigen.Svd
schur_p, hessenberg_p = linalg_eigen.Schur, linalg_eigen.Hessenberg
tridiagonal_p, triangular_solve_p = linalg_eigen.Tridiagonal, linalg_solve.TriangularSolve
tridiagonal_solve_p = linalg_solve.TridiagonalSolve
random_seed_p, random_split_p = random.RandomSeed, random.RandomSplit
random_fold_in_p, random_bits_p = random.RandomFoldIn, random.RandomBits
random_wrap_p, random_unwrap_p = random.RandomWrap, random.RandomUnwrap

jit_p = pjit_p = call.Call
custom_jvp_call_p, custom_vjp_call_p = custom.CustomJVPCall, custom.CustomVJPCall
remat_p, name_p = remat.Remat, barriers.Name
# Calls that only packages record.
call_p, closed_call_p = CallPrimitive("call", False), CallPrimitive("closed_call", True)

__all__ = [name for name in globals() if name.endswith("_p")]
