"""Logarithms with removable singularities (xlogy, entr, kl_div), the logit pair, Box-Cox, softmax.

x·log y is 0 at x = 0 whatever y; the custom rules keep derivatives free of the NaN that the plain
composition would give there.
"""

import numpy as np

from toile import lax, nn
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.nn._promote import inexact, real_inexact
from toile.nn._softmax import logsumexp as logsumexp

__all__ = [
    "boxcox", "boxcox1p", "entr", "expit", "kl_div", "log_softmax", "logit", "logsumexp",
    "rel_entr", "softmax", "xlog1py", "xlogy",
]


def expit(x):
    """The logistic sigmoid."""
    return lax.logistic(*inexact("expit", x))


@custom_jvp
def logit(x):
    """log(x / (1 - x)), the inverse of `expit`."""
    (x,) = inexact("logit", x)
    return jnp.log(x / (1 - x))


logit.defjvps(lambda dx, y, x: dx / (x * (1 - x)))


def _x_log(log, inner):
    """x·log(y) for a logarithm of `inner(y)`, with a derivative free of NaN."""

    @custom_jvp
    def times_log(x, y):
        return jnp.where((x != 0.0) | jnp.isnan(y), x * log(y), jnp.zeros_like(x))

    @times_log.defjvp
    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        out = times_log(x, y)
        return out, (dx * log(y) + dy * x / inner(y)).astype(out.dtype)

    return times_log


_xlogy = _x_log(jnp.log, lambda y: y)
_xlog1py = _x_log(jnp.log1p, lambda y: 1 + y)


def xlogy(x, y):
    """x·log(y), 0 where x is 0."""
    return _xlogy(*inexact("xlogy", x, y))


def xlog1py(x, y):
    """x·log(1 + y), 0 where x is 0."""
    return _xlog1py(*inexact("xlog1py", x, y))


@custom_jvp
def _xlogx(x):
    return xlogy(x, x)


_xlogx.defjvps(lambda dx, y, x: dx * (jnp.log(x) + 1))


def entr(x):
    """-x·log(x), the entropy of one probability; -inf for negative x."""
    (x,) = real_inexact("entr", x)
    return jnp.where(x < 0, jnp.full_like(x, -np.inf), -_xlogx(x))


def rel_entr(p, q):
    """p·log(p/q), with its limits at zero."""
    p, q = real_inexact("rel_entr", p, q)
    both = (p > 0.0) & (q > 0.0)
    safe_p, safe_q = jnp.where(both, p, 1), jnp.where(both, q, 1)
    value = _xlogx(safe_p) - xlogy(safe_p, safe_q)
    at_zero = jnp.where((p == 0.0) & (q >= 0.0), 0.0, np.inf)
    return jnp.where(both, value, at_zero)


def kl_div(p, q):
    """rel_entr(p, q) - p + q, the pointwise Kullback-Leibler divergence."""
    p, q = real_inexact("kl_div", p, q)
    return rel_entr(p, q) - p + q


def _box_cox(log_x, lmbda):
    zero = lmbda == 0
    safe = jnp.where(zero, jnp.ones_like(lmbda), lmbda)
    return jnp.where(zero, log_x, jnp.expm1(safe * log_x) / safe)


def boxcox(x, lmbda):
    """(x^λ - 1)/λ, log(x) at λ = 0."""
    x, lmbda = inexact("boxcox", x, lmbda)
    return _box_cox(jnp.log(x), lmbda)


def boxcox1p(x, lmbda):
    """((1+x)^λ - 1)/λ, log(1+x) at λ = 0."""
    x, lmbda = inexact("boxcox1p", x, lmbda)
    return _box_cox(jnp.log1p(x), lmbda)


def softmax(x, /, *, axis=None):
    """exp(x) normalised to sum 1, over all elements unless `axis` is given."""
    return nn.softmax(x, axis=axis)


def log_softmax(x, /, *, axis=None):
    """Logarithm of `softmax`."""
    return nn.log_softmax(x, axis=axis)
