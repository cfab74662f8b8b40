"""Elementwise activation functions, with `jax.nn`'s values and its gradients at the kinks.

A kink whose gradient differs from what plain differentiation gives (relu and relu6 are flat exactly
at their corners) has a custom rule; everything else is a composition.
"""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.nn._promote import array, inexact

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh",
    "identity", "leaky_relu", "log1mexp", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid",
    "silu", "soft_sign", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
]

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def tanh(x, /):
    """Hyperbolic tangent."""
    return jnp.tanh(x)


def identity(x):
    """The argument, as an array."""
    return array("identity", x)


@custom_jvp
def relu(x):
    """max(x, 0), with gradient 0 at 0."""
    return jnp.maximum(x, 0)


@custom_jvp
def relu6(x):
    """min(max(x, 0), 6), with gradient 0 at both corners."""
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


# `select`, not multiplication: an infinite tangent on the flat side must not become NaN.
relu.defjvps(lambda dx, y, x: lax.select(x > 0, dx, lax.full_like(dx, 0)))
relu6.defjvps(lambda dx, y, x: lax.select((x > 0) & (x < 6), dx, lax.full_like(dx, 0)))


def squareplus(x, b=4):
    """(x + sqrt(x² + b)) / 2, a smooth relu."""
    x, b = array("squareplus", x), array("squareplus", b)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


def softplus(x):
    """log(1 + exp(x))."""
    return jnp.logaddexp(x, 0)


def sparse_plus(x):
    """0 below -1, x above 1, (x + 1)²/4 between: a softplus of compact transition."""
    x = array("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


def soft_sign(x):
    """x / (|x| + 1)."""
    x = array("soft_sign", x)
    return x / (jnp.abs(x) + 1)


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return lax.logistic(x)


def sparse_sigmoid(x):
    """0 below -1, 1 above 1, linear between: the derivative of `sparse_plus`."""
    return 0.5 * jnp.clip(array("sparse_sigmoid", x) + 1.0, 0.0, 2.0)


def silu(x):
    """x · sigmoid(x), also called swish."""
    x = array("silu", x)
    return x * lax.logistic(x)


swish = silu


def mish(x):
    """x · tanh(softplus(x))."""
    x = array("mish", x)
    return x * jnp.tanh(softplus(x))


def log_sigmoid(x):
    """log(sigmoid(x)), without underflow."""
    return -softplus(-array("log_sigmoid", x))


def elu(x, alpha=1.0):
    """x where positive, alpha·(exp(x) - 1) elsewhere."""
    x = array("elu", x)
    positive = x > 0
    # The inner `where` keeps exp of a large x, and its infinite gradient, out of the unused branch.
    return jnp.where(positive, x, alpha * jnp.expm1(jnp.where(positive, 0.0, x)))


def celu(x, alpha=1.0):
    """max(x, 0) + alpha·(exp(min(x, 0)/alpha) - 1)."""
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


def selu(x):
    """Scaled `elu` whose fixed point is zero mean and unit variance."""
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


def leaky_relu(x, negative_slope=1e-2):
    """x where non-negative, negative_slope·x elsewhere."""
    x = array("leaky_relu", x)
    return jnp.where(x >= 0, x, negative_slope * x)


def hard_tanh(x):
    """x clipped to [-1, 1]."""
    x = array("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


def hard_sigmoid(x):
    """relu6(x + 3) / 6."""
    return relu6(array("hard_sigmoid", x) + 3.0) / 6.0


def hard_silu(x):
    """x · hard_sigmoid(x), also called hard_swish."""
    x = array("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


def gelu(x, approximate=True):
    """x · Φ(x), Φ the normal distribution function; by a tanh formula if `approximate`."""
    (x,) = inexact("gelu", x)
    if approximate:
        slope = np.sqrt(2 / np.pi).astype(x.dtype)
        return x * (0.5 * (1.0 + jnp.tanh(slope * (x + 0.044715 * (x**3)))))
    return (0.5 * x * lax.erfc(-x * np.sqrt(0.5).astype(x.dtype))).astype(x.dtype)


def glu(x, axis=-1):
    """First half of `x` along `axis`, gated by the sigmoid of the second half."""
    x = array("glu", x)
    if x.shape[axis] % 2:
        raise AssertionError(f"glu: needed an even axis size, got {x.shape[axis]} on axis {axis}")
    value, gate = jnp.split(x, 2, axis)
    return value * lax.logistic(gate)


@custom_jvp
def log1mexp(x):
    """log(1 - exp(-x)) for positive x, accurate at both ends."""
    x = array("log1mexp", x)
    # Below log 2, 1 - exp(-x) loses bits and -expm1(-x) does not; above, log1p is the exact one.
    return jnp.where(x < jnp.log(2.0), jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x)))


log1mexp.defjvps(lambda dx, y, x: dx / jnp.expm1(x))
