"""Probability distributions, one module each, and a few statistics, as in `jax.scipy.stats`.

A distribution offers some of logpdf/pdf (logpmf/pmf), cdf, logcdf, sf, logsf, ppf and isf.
Outside the support the density is 0 and its logarithm -inf. Parameters are checked (NaN where they
are invalid) only where a docstring says so. Each module loads when it is first used.
"""

from toile.engine.lazy import attach as _attach

_FROM = {"_core": "mode rankdata sem", "_kde": "gaussian_kde"}
_MODULES = (
    "bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l "
    "gumbel_r laplace logistic multinomial multivariate_normal nbinom norm pareto poisson t "
    "truncnorm uniform vonmises wrapcauchy"
)
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)
__all__ = [name for name in __dir__() if name[0] != "_"]
