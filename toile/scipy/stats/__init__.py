"""Probability distributions and sample statistics, as in `jax.scipy.stats`.

Each distribution has a module with some of the functions `pdf` and `logpdf` (`pmf` and `logpmf`
for discrete distributions), `cdf`, `logcdf`, `sf`, `logsf`, `ppf` and `isf`. Outside the support,
the density is 0 and its logarithm is -inf. Parameters are not checked, unless a docstring states
that the result is NaN for invalid parameters.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
