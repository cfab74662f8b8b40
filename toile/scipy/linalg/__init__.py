"""Linear algebra, with the names of `jax.scipy.linalg`.

The package contains factorizations and solvers, matrix functions (`expm`, `sqrtm`, `funm`), a
solver for Sylvester equations, and matrices with a special structure. The arguments `overwrite_a`,
`overwrite_b` and `check_finite` of SciPy are accepted and ignored.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
