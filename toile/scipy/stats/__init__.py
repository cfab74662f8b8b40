"""Probability distributions, one module each, and a few statistics, as in `jax.scipy.stats`.

A distribution offers some of logpdf/pdf (logpmf/pmf), cdf, logcdf, sf, logsf, ppf and isf.
Outside the support the density is 0 and its logarithm -inf. Parameters are checked (NaN where they
are invalid) only where a docstring says so. Each module loads when it is first used.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
