"""Special functions, with the same names, dtypes and derivatives as `jax.scipy.special`.

The package contains gamma, beta, error and Bessel functions, exponential integrals, entropies and
more. Integers are converted to floats unless a docstring states otherwise.
"""

# The functions are built from those of `lax` (the gamma, error and Bessel functions) and from
# rational approximations (_tables.py). SciPy itself is never imported here.

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
