"""Special functions, with the names, dtypes and derivatives of `jax.scipy.special`.

Compositions over `lax` (which has the gamma, error and Bessel families) plus rational
approximations from `_tables`. The real SciPy is never imported here.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
