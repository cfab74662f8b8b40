"""Products with logarithms (xlogy, entr, kl_div), logit and expit, Box-Cox, and softmax.

`x·log(y)` is 0 at `x = 0` for every `y` except NaN. Custom rules avoid the NaN that automatic
differentiation would produce there.
"""

from __future__ import annotations

import numpy as np

from toile import lax, nn
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.annotations import Array, ArrayLike, AxisLike
from toile.nn._promote import inexact, real_inexact
from toile.nn._softmax import logsumexp as logsumexp


def expit(x: ArrayLike) -> Array:
    """Compute the logistic function `1 / (1 + exp(-x))`, which is the inverse of `logit`.

    Args:
        x: array or number.

    Returns:
        A floating-point array with the shape of `x`. For real `x`, its values are between 0 and 1.
    """
    return lax.logistic(*inexact("expit", x))


@custom_jvp
def logit(x: ArrayLike) -> Array:
    """Compute the log-odds of a probability, `log(x / (1 - x))`, which is the inverse of `expit`.

    Args:
        x: probabilities. The result is -inf at 0, inf at 1, and NaN outside `[0, 1]`.

    Returns:
        A floating-point array with the shape of `x`.
    """
    (x,) = inexact("logit", x)
    return jnp.log(x / (1 - x))


logit.defjvps(lambda dx, y, x: dx / (x * (1 - x)))


def _x_log(log, inner):
    """Return the function `x·log(inner(y))`, which is 0 at `x = 0`, with a custom derivative."""

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


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute `x log(y)`; the result is 0 where `x` is 0, unless `y` is NaN.

    Args:
        x: factors, which are broadcast against `y`.
        y: numbers whose logarithms are computed.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    >>> from toile.scipy import special
    >>> special.xlogy(jnp.array([0.0, 2.0]), jnp.array([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return _xlogy(*inexact("xlogy", x, y))


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute `x log(1 + y)`; the result is 0 where `x` is 0, unless `y` is NaN.

    The result is accurate even for small `y`.

    Args:
        x: factors, which are broadcast against `y`.
        y: numbers; the logarithms of `1 + y` are multiplied by `x`.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    return _xlog1py(*inexact("xlog1py", x, y))


@custom_jvp
def _xlogx(x):
    return xlogy(x, x)


_xlogx.defjvps(lambda dx, y, x: dx * (jnp.log(x) + 1))


def entr(x: ArrayLike) -> Array:
    """Compute the contribution of one probability to the entropy: `-x log(x)`.

    The result is 0 at 0 and -inf for negative `x`. The sum of the results for all probabilities of
    a distribution is the entropy of the distribution in nats.

    Args:
        x: probabilities, or other real numbers.

    Returns:
        A floating-point array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    (x,) = real_inexact("entr", x)
    return jnp.where(x < 0, jnp.full_like(x, -np.inf), -_xlogx(x))


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """Compute the contribution of one outcome to the relative entropy: `p log(p / q)`.

    The result is `p log(p / q)` where both `p` and `q` are positive, 0 where `p` is 0 and `q` is
    not negative, and inf otherwise. The sum of the results for all outcomes is the Kullback-Leibler
    divergence of `p` from `q`.

    Args:
        p, q: probabilities, which are broadcast against each other.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.

    Differences:
        If an argument is NaN, SciPy returns NaN, whereas toile returns inf.
    """
    p, q = real_inexact("rel_entr", p, q)
    both = (p > 0.0) & (q > 0.0)
    safe_p, safe_q = jnp.where(both, p, 1), jnp.where(both, q, 1)
    value = _xlogx(safe_p) - xlogy(safe_p, safe_q)
    at_zero = jnp.where((p == 0.0) & (q >= 0.0), 0.0, np.inf)
    return jnp.where(both, value, at_zero)


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """Compute the contribution of one outcome to a divergence: `p log(p / q) - p + q`.

    Unlike the result of `rel_entr`, the result is never negative. If `p` and `q` are distributions,
    each of which sums to 1, the sum of `kl_div` and the sum of `rel_entr` both equal the
    Kullback-Leibler divergence. For finite `p` and `q`, the result is inf wherever the result of
    `rel_entr` is inf.

    Args:
        p, q: probabilities or other nonnegative numbers, which are broadcast against each other.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.
    """
    p, q = real_inexact("kl_div", p, q)
    return rel_entr(p, q) - p + q


def _box_cox(log_x, lmbda):
    zero = lmbda == 0
    safe = jnp.where(zero, jnp.ones_like(lmbda), lmbda)
    return jnp.where(zero, log_x, jnp.expm1(safe * log_x) / safe)


def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Compute the Box-Cox transformation: `(x^lmbda - 1) / lmbda`, or `log(x)` where `lmbda` is 0.

    Args:
        x: positive numbers. The result is NaN for negative numbers.
        lmbda: powers, which are broadcast against `x`.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    x, lmbda = inexact("boxcox", x, lmbda)
    return _box_cox(jnp.log(x), lmbda)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """Compute the Box-Cox transformation of `1 + x`, accurately even for small `x`.

    The result is `((1 + x)^lmbda - 1) / lmbda`, or `log(1 + x)` where `lmbda` is 0.

    Args:
        x: numbers greater than -1. The result is NaN for smaller numbers.
        lmbda: powers, which are broadcast against `x`.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    x, lmbda = inexact("boxcox1p", x, lmbda)
    return _box_cox(jnp.log1p(x), lmbda)


def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Compute the softmax function: the exponentials of the elements, divided by their sum.

    Args:
        x: array of logits.
        axis: axis or axes along which the results sum to 1; None for all.

    Returns:
        An array with the shape of `x`.

    Differences:
        By default, `toile.nn.softmax` uses the last axis, while this function uses all axes, as in
        SciPy.
    """
    return nn.softmax(x, axis=axis)


def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Array:
    """Compute the logarithm of `softmax`, accurately even where `softmax` underflows to 0.

    Args:
        x: array of logits.
        axis: axis or axes along which the exponentials of the results sum to 1; None for all.

    Returns:
        An array with the shape of `x`.

    Differences:
        By default, `toile.nn.log_softmax` uses the last axis, while this function uses all axes, as
        in SciPy.
    """
    return nn.log_softmax(x, axis=axis)
