"""Linear algebra, with the same names as in `jax.scipy.linalg`.

The package contains factorizations and solvers, matrix functions (`expm`, `sqrtm`, `funm`), a
solver for Sylvester equations, and matrices with a special structure. SciPy's arguments
`overwrite_a`, `overwrite_b` and `check_finite` are accepted but ignored.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
