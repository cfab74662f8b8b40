"""Linear algebra with the names of `jax.scipy.linalg`.

Factorisations and solvers over `lax.linalg`, matrix functions (expm, sqrtm, funm), Sylvester
equations, and constructors of structured matrices. Arguments that only matter to LAPACK callers
(`overwrite_a`, `check_finite`) are accepted and ignored.
"""
# ruff: noqa: F403 -- every module says what is public in its __all__

from toile.scipy.linalg._decompositions import *
from toile.scipy.linalg._functions import *
from toile.scipy.linalg._structured import *
from toile.scipy.linalg._tridiagonal import *

__all__ = [name for name in globals() if name[0] != "_"]
