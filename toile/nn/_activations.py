"""Elementwise activation functions, with the same values and gradients as in `jax.nn`.

Custom rules define the gradients of `log1mexp`, `relu` and `relu6`. At their kinks, the gradients
of `relu` and `relu6` are exactly 0. All other functions are compositions.
"""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import array, inexact

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def tanh(x: ArrayLike, /) -> Array:
    """Compute the hyperbolic tangent of each element.

    Args:
        x: array or number.

    Returns:
        An array of the same shape with values in [-1, 1]; integers become floats.

    >>> toile.nn.tanh(jnp.array([-1.0, 0.0, 1.0]))
    Array([-0.7615942,  0.       ,  0.7615942], dtype=float32)
    """
    return jnp.tanh(x)


def identity(x: ArrayLike) -> Array:
    """Return the argument as an array.

    Args:
        x: array or number.

    Returns:
        An array with the same values and dtype.

    >>> toile.nn.identity(jnp.array([1, 2]))
    Array([1, 2], dtype=int32)
    """
    return array("identity", x)


@custom_jvp
def relu(x: ArrayLike) -> Array:
    """Replace negative elements with 0: compute `max(x, 0)`.

    The gradient at 0 is 0.

    Args:
        x: array or number.

    Returns:
        An array of the same shape and dtype.

    >>> toile.nn.relu(jnp.array([-2.0, 0.0, 3.0]))
    Array([0., 0., 3.], dtype=float32)
    >>> toile.grad(toile.nn.relu)(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return jnp.maximum(x, 0)


@custom_jvp
def relu6(x: ArrayLike) -> Array:
    """Limit each element to the interval from 0 to 6.

    The gradient is 0 at both ends of the interval and outside it.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.relu6(jnp.array([-2.0, 3.0, 8.0]))
    Array([0., 3., 6.], dtype=float32)
    """
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


# `select`, not multiplication: an infinite tangent on the flat side must not become NaN.
relu.defjvps(lambda dx, y, x: lax.select(x > 0, dx, lax.full_like(dx, 0)))
relu6.defjvps(lambda dx, y, x: lax.select((x > 0) & (x < 6), dx, lax.full_like(dx, 0)))


def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """Compute `(x + sqrt(x**2 + b)) / 2`, a smooth form of `relu` without exponentials.

    Args:
        x: array or number.
        b: smoothness of the corner; with 0, the function equals `relu`. `b` is broadcast against
            `x`.

    Returns:
        An array with the shape that the two arguments broadcast to; integers become floats.

    >>> toile.nn.squareplus(jnp.array([-3.0, 0.0, 3.0]))
    Array([0.30277562, 1.        , 3.3027756 ], dtype=float32)
    """
    x, b = array("squareplus", x), array("squareplus", b)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


def softplus(x: ArrayLike) -> Array:
    """Compute `log(1 + exp(x))`, a smooth form of `relu`, without overflow.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.softplus(jnp.array([-1.0, 0.0, 100.0]))
    Array([  0.3132617,   0.6931472, 100.       ], dtype=float32)
    """
    return jnp.logaddexp(x, 0)


def sparse_plus(x: ArrayLike) -> Array:
    """Compute a smooth form of `relu` that is exactly 0 below -1 and exactly `x` above 1.

    Between -1 and 1, the result is `(x + 1)**2 / 4`.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.sparse_plus(jnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    x = array("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


def soft_sign(x: ArrayLike) -> Array:
    """Compute `x / (|x| + 1)`, which approaches -1 and 1 more slowly than `tanh` does.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.soft_sign(jnp.array([-1.0, 0.0, 3.0]))
    Array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    x = array("soft_sign", x)
    return x / (jnp.abs(x) + 1)


def sigmoid(x: ArrayLike) -> Array:
    """Compute the logistic function `1 / (1 + exp(-x))`.

    Args:
        x: array or number of a floating-point or complex dtype.

    Returns:
        An array of the same shape and dtype, with values in [0, 1] for real numbers.

    Raises:
        TypeError: `x` has an integer or boolean dtype.

    >>> toile.nn.sigmoid(jnp.array([-2.0, 0.0, 2.0]))
    Array([0.11920293, 0.5       , 0.880797  ], dtype=float32)
    """
    return lax.logistic(x)


def sparse_sigmoid(x: ArrayLike) -> Array:
    """Compute `(x + 1) / 2`, limited to the interval from 0 to 1.

    This function is the derivative of `sparse_plus`.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.sparse_sigmoid(jnp.array([-2.0, 0.0, 0.5, 2.0]))
    Array([0.  , 0.5 , 0.75, 1.  ], dtype=float32)
    """
    return 0.5 * jnp.clip(array("sparse_sigmoid", x) + 1.0, 0.0, 2.0)


def silu(x: ArrayLike) -> Array:
    """Compute `x * sigmoid(x)`, also called swish.

    Args:
        x: array or number of a floating-point or complex dtype.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` has an integer or boolean dtype.

    >>> toile.nn.silu(jnp.array([-1.0, 0.0, 1.0]))
    Array([-0.2689414,  0.       ,  0.7310586], dtype=float32)
    """
    x = array("silu", x)
    return x * lax.logistic(x)


swish = silu


def mish(x: ArrayLike) -> Array:
    """Compute `x * tanh(softplus(x))`.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.mish(jnp.array([-1.0, 0.0, 1.0]))
    Array([-0.30340147,  0.        ,  0.8650984 ], dtype=float32)
    """
    x = array("mish", x)
    return x * jnp.tanh(softplus(x))


def log_sigmoid(x: ArrayLike) -> Array:
    """Compute the logarithm of the sigmoid, without underflow for very negative `x`.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.log_sigmoid(jnp.array([-200.0, 0.0, 2.0]))
    Array([-2.000000e+02, -6.931472e-01, -1.269280e-01], dtype=float32)
    """
    return -softplus(-array("log_sigmoid", x))


def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Compute the exponential linear unit: `x` if `x > 0`, otherwise `alpha * (exp(x) - 1)`.

    Args:
        x: array or number.
        alpha: scale of the negative part, which approaches `-alpha` for very negative `x`. `alpha`
            is broadcast against `x`.

    Returns:
        An array with the shape that the two arguments broadcast to; integers become floats.

    >>> toile.nn.elu(jnp.array([-2.0, 0.0, 2.0]))
    Array([-0.86466473,  0.        ,  2.        ], dtype=float32)
    """
    x = array("elu", x)
    positive = x > 0
    # The inner `where` keeps exp of a large x, and its infinite gradient, out of the unused branch.
    return jnp.where(positive, x, alpha * jnp.expm1(jnp.where(positive, 0.0, x)))


def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """Compute a variant of `elu`: `x` if `x > 0`, otherwise `alpha * (exp(x / alpha) - 1)`.

    Unlike `elu`, this function is continuously differentiable for every `alpha`.

    Args:
        x: array or number.
        alpha: scale of the negative part, which approaches `-alpha` for very negative `x`. `alpha`
            is broadcast against `x`.

    Returns:
        An array with the shape that the two arguments broadcast to; integers become floats.

    >>> toile.nn.celu(jnp.array([-2.0, 0.0, 2.0]), alpha=0.5)
    Array([-0.49084216,  0.        ,  2.        ], dtype=float32)
    """
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


def selu(x: ArrayLike) -> Array:
    """Compute the scaled exponential linear unit: `elu` with fixed constants.

    The constants are chosen so that, in deep networks with suitable initial weights, the
    activations keep a mean of 0 and a variance of 1.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.selu(jnp.array([-2.0, 0.0, 2.0]))
    Array([-1.5201665,  0.       ,  2.101402 ], dtype=float32)
    """
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 1e-2) -> Array:
    """Multiply negative elements by a small slope and leave the others unchanged.

    The gradient at 0 is 1.

    Args:
        x: array or number.
        negative_slope: factor by which negative elements are multiplied. The factor is broadcast
            against `x`.

    Returns:
        An array with the shape that the two arguments broadcast to; integers become floats.

    >>> toile.nn.leaky_relu(jnp.array([-2.0, 0.0, 2.0]))
    Array([-0.02,  0.  ,  2.  ], dtype=float32)
    """
    x = array("leaky_relu", x)
    return jnp.where(x >= 0, x, negative_slope * x)


def hard_tanh(x: ArrayLike) -> Array:
    """Limit each element to the interval from -1 to 1.

    The gradient is 1 inside the interval and at its ends, and 0 outside it.

    Args:
        x: array or number.

    Returns:
        An array of the same shape and dtype.

    >>> toile.nn.hard_tanh(jnp.array([-2.0, 0.5, 2.0]))
    Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    x = array("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


def hard_sigmoid(x: ArrayLike) -> Array:
    """Compute `relu6(x + 3) / 6`, a piecewise linear sigmoid.

    Args:
        x: array or number.

    Returns:
        An array of the same shape with values in [0, 1]; integers become floats.

    >>> toile.nn.hard_sigmoid(jnp.array([-4.0, 0.0, 1.5]))
    Array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return relu6(array("hard_sigmoid", x) + 3.0) / 6.0


def hard_silu(x: ArrayLike) -> Array:
    """Compute `x * hard_sigmoid(x)`, also called hard swish.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.hard_silu(jnp.array([-4.0, 1.0, 4.0]))
    Array([-0.       ,  0.6666667,  4.       ], dtype=float32)
    """
    x = array("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """Compute the Gaussian error linear unit, `x * Φ(x)`.

    `Φ` is the cumulative distribution function of the standard normal distribution.

    Args:
        x: array or number.
        approximate: whether to use a `tanh`-based approximation, whose error is less than 0.001.
            In other libraries, the exact function is often the default.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.gelu(jnp.array([-1.0, 0.0, 1.0]))
    Array([-0.158808,  0.      ,  0.841192], dtype=float32)
    >>> toile.nn.gelu(jnp.array([-1.0, 0.0, 1.0]), approximate=False)
    Array([-0.15865526,  0.        ,  0.8413447 ], dtype=float32)
    """
    (x,) = inexact("gelu", x)
    if approximate:
        slope = np.sqrt(2 / np.pi).astype(x.dtype)
        return x * (0.5 * (1.0 + jnp.tanh(slope * (x + 0.044715 * (x**3)))))
    return (0.5 * x * lax.erfc(-x * np.sqrt(0.5).astype(x.dtype))).astype(x.dtype)


def glu(x: ArrayLike, axis: int = -1) -> Array:
    """Compute a gated linear unit: the first half of `x` times the sigmoid of the second half.

    Args:
        x: array of a floating-point dtype.
        axis: axis along which `x` is split into halves; its size must be even.

    Returns:
        An array with the shape of `x`, except that `axis` is half as long.

    Raises:
        AssertionError: the size of `axis` is odd.

    >>> toile.nn.glu(jnp.array([1.0, 2.0, 0.0, 100.0]))
    Array([0.5, 2. ], dtype=float32)
    """
    x = array("glu", x)
    if x.shape[axis] % 2:
        raise AssertionError(f"glu: needed an even axis size, got {x.shape[axis]} on axis {axis}")
    value, gate = jnp.split(x, 2, axis)
    return value * lax.logistic(gate)


@custom_jvp
def log1mexp(x: ArrayLike) -> Array:
    """Compute `log(1 - exp(-x))` for positive `x`, accurately even where `x` is small or large.

    The result is -inf where `x` is 0, and NaN where `x` is negative.

    Args:
        x: array or number.

    Returns:
        An array of the same shape; integers become floats.

    >>> toile.nn.log1mexp(jnp.array([1e-8, 1.0, 50.0]))
    Array([-1.8420681e+01, -4.5867509e-01, -1.9287499e-22], dtype=float32)
    """
    x = array("log1mexp", x)
    # Below log 2, 1 - exp(-x) loses bits and -expm1(-x) does not; above, log1p is the exact one.
    return jnp.where(x < jnp.log(2.0), jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x)))


log1mexp.defjvps(lambda dx, y, x: dx / jnp.expm1(x))
