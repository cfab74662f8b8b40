"""A function that scales gradients, and a normal distribution parameterized by its log scale."""

from __future__ import annotations

from collections.abc import Sequence

from toile import lax, random
from toile import numpy as jnp
from toile import tree as trees
from toile.api import custom_vjp
from toile.engine.trace import Array
from toile.optim import base
from toile.optim.base import ArrayLike
from toile.scipy.stats import norm

__all__ = ["MultiNormalDiagFromLogScale", "multi_normal", "scale_gradient"]


@custom_vjp
def _with_scaled_gradient(inputs, scale):
    return inputs


_with_scaled_gradient.defvjp(
    lambda inputs, scale: (inputs, scale),
    lambda scale, ct: (trees.map(lambda g: g * scale, ct), None),
)


def scale_gradient(inputs: base.ArrayTree, scale: ArrayLike) -> base.ArrayTree:
    """Return the inputs unchanged, but multiply their gradients by a factor.

    The factor is applied in the backward pass. A factor of 0 blocks gradients.

    Args:
        inputs: tree of arrays.
        scale: factor, a Python number.

    Returns:
        A tree equal to `inputs`.

    >>> from toile import optim
    >>> toile.grad(lambda x: 2.0 * optim.scale_gradient(x, 0.5))(1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if scale == 1.0:
        return inputs
    if scale == 0.0:
        return lax.stop_gradient(inputs)
    return _with_scaled_gradient(inputs, scale)


class MultiNormalDiagFromLogScale:
    """A distribution of independent normal variables with given means and log scales.

    Args:
        loc: means.
        log_scale: logarithms of the standard deviations, broadcast against `loc`.

    >>> from toile import optim
    >>> normal = optim.MultiNormalDiagFromLogScale(jnp.zeros(2), jnp.zeros(2))
    >>> normal.log_prob(jnp.zeros(2)).round(3), normal.sample((3,), key(0)).shape
    (Array(-1.838, dtype=float32), (3, 2))
    """

    def __init__(self, loc: ArrayLike, log_scale: ArrayLike):
        self._mean, self._log_scale = jnp.asarray(loc), jnp.asarray(log_scale)
        self._scale = jnp.exp(log_scale)
        self._param_shape = lax.broadcast_shapes(self._mean.shape, self._scale.shape)

    def sample(self, shape: base.Shape, key: base.PRNGKey) -> Array:
        """Draw samples.

        Args:
            shape: sizes of the leading axes of the result.
            key: random key.

        Returns:
            An array whose shape is `shape` followed by the shape of the variables.
        """
        noise = random.normal(key, shape=(*shape, *self._param_shape))
        return noise * self._scale + self._mean

    def log_prob(self, x: ArrayLike) -> Array:
        """Compute the joint log density of the variables.

        Args:
            x: values; the last axes correspond to the variables.

        Returns:
            An array whose axes are the leading axes of `x`.
        """
        axes = tuple(-(i + 1) for i in range(len(self._param_shape)))
        return jnp.sum(norm.logpdf(x, loc=self._mean, scale=self._scale), axis=axes)

    @property
    def log_scale(self) -> Array:
        """The logarithms of the standard deviations."""
        return self._log_scale

    @property
    def params(self) -> Sequence[Array]:
        """The means and the logarithms of the standard deviations."""
        return [self._mean, self._log_scale]


def multi_normal(loc: ArrayLike, log_scale: ArrayLike) -> MultiNormalDiagFromLogScale:
    """Create a distribution of independent normal variables with given means and log scales.

    Args:
        loc: means.
        log_scale: logarithms of the standard deviations, broadcast against `loc`.

    Returns:
        A `MultiNormalDiagFromLogScale`.

    >>> from toile import optim
    >>> optim.multi_normal(jnp.zeros(2), jnp.zeros(2)).log_prob(jnp.ones(2)).round(3)
    Array(-2.838, dtype=float32)
    """
    return MultiNormalDiagFromLogScale(loc=loc, log_scale=log_scale)
