"""The Dirichlet distribution; the components run along the first axis of x."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlogy


def logpdf(x, alpha):
    """Log of the density; the last component of x may be left out."""
    x, alpha = inexact("dirichlet.logpdf", jnp.asarray(x), jnp.asarray(alpha))
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}{here()}")
    size = alpha.shape[0]
    if x.shape[0] not in (size, size - 1):
        raise ValueError("`x` must have either the same number of entries as `alpha` or one entry "
                         f"fewer; got x.shape={x.shape}, alpha.shape={alpha.shape}{here()}")
    if x.shape[0] != size:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)], axis=0)
    constant = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    alpha = jnp.reshape(alpha, (size,) + (1,) * (x.ndim - 1))
    value = jnp.sum(xlogy(alpha - 1, x), axis=0) - constant
    on_simplex = jnp.all(x > 0, axis=0) & (jnp.abs(jnp.sum(x, axis=0) - 1) < 1e-6)
    return jnp.where(on_simplex, value, -np.inf)


def pdf(x, alpha):
    """Density."""
    return lax.exp(logpdf(x, alpha))
