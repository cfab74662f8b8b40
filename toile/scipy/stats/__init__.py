"""Probability distributions, one module for each, and a few statistics, as in `jax.scipy.stats`.

A distribution has some of the functions `pdf` and `logpdf` (`pmf` and `logpmf` for discrete
distributions), `cdf`, `logcdf`, `sf`, `logsf`, `ppf` and `isf`. Outside the support, the density is
0 and its logarithm is -inf. Invalid parameters give NaN only where a docstring says so; elsewhere
they are not checked.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
