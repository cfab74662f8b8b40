"""Linear algebra with the names of `jax.scipy.linalg`.

Factorisations and solvers over `lax.linalg`, matrix functions (expm, sqrtm, funm), Sylvester
equations, and constructors of structured matrices. Arguments that only matter to LAPACK callers
(`overwrite_a`, `check_finite`) are accepted and ignored.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
