"""The multinomial distribution."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.nn._promote import inexact, is_integer, promoted
from toile.scipy.special import gammaln, xlogy


def logpmf(x, n, p):
    """Log of the probability of the counts x in n trials; x and n are integers."""
    (p,) = inexact("multinomial.logpmf", p)
    x, n = promoted("multinomial.logpmf", x, n)
    if not is_integer(x):
        raise ValueError(f"x and n must be of integer type; got x.dtype={x.dtype}, "
                         f"n.dtype={n.dtype}{here()}")
    x, n = x.astype(p.dtype), n.astype(p.dtype)
    value = gammaln(n + 1) + jnp.sum(xlogy(x, p) - gammaln(x + 1), axis=-1)
    return jnp.where(jnp.equal(jnp.sum(x), n), value, -np.inf)


def pmf(x, n, p):
    """Probability of the counts x in n trials."""
    return lax.exp(logpmf(x, n, p))
