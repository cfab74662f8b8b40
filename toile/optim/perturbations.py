"""Smooth versions of functions that have no useful derivative, such as `argmax`.

`f(x)` is replaced by the mean of `f(x + sigma * z)` over random noise `z`, estimated from samples.
Derivatives of any order are computed only from values of `f` (the score-function estimator).
"""
# The estimator has the factor exp(l - stop(l)), where l is the log probability of a sample: its
# value is 1, and its derivative is that of l.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile import lax, random, tree
from toile.api import vmap
from toile.engine.annotations import Array, DTypeLike, PyTree, ShapeLike
from toile.optim import tree as whole
from toile.optim.base import ArrayLike

__all__ = ["Gumbel", "Normal", "make_perturbed_fun"]


class Normal:
    """Standard normal noise for `make_perturbed_fun`.

    >>> from toile.optim import perturbations
    >>> perturbations.Normal().log_prob(jnp.array([0.0, 2.0]))
    Array([-0., -2.], dtype=float32)
    """

    def sample(self, key: Array, sample_shape: ShapeLike = (), dtype: DTypeLike = float) -> Array:
        """Draw samples.

        Args:
            key: random key.
            sample_shape: shape of the samples.
            dtype: floating-point dtype of the samples.
        """
        return random.normal(key, sample_shape, dtype)

    def log_prob(self, inputs: ArrayLike) -> Array:
        """Compute the log density of each element, up to a constant.

        Args:
            inputs: values of the noise.
        """
        return -0.5 * inputs**2


class Gumbel:
    """Gumbel noise for `make_perturbed_fun`.

    If this noise is added to logits, the argmax of the sum is a sample from the distribution
    `softmax(logits)`.

    >>> from toile.optim import perturbations
    >>> perturbations.Gumbel().log_prob(jnp.array([0.0]))
    Array([-1.], dtype=float32)
    """

    def sample(self, key: Array, sample_shape: ShapeLike = (), dtype: DTypeLike = float) -> Array:
        """Draw samples.

        Args:
            key: random key.
            sample_shape: shape of the samples.
            dtype: floating-point dtype of the samples.
        """
        return random.gumbel(key, sample_shape, dtype)

    def log_prob(self, inputs: ArrayLike) -> Array:
        """Compute the log density of each element.

        Args:
            inputs: values of the noise.
        """
        return -inputs - jnp.exp(-inputs)


_GUMBEL = Gumbel()


def make_perturbed_fun(
    fun: Callable[[PyTree], PyTree], num_samples: int = 1000, sigma: ArrayLike = 0.1,
    noise: Normal | Gumbel = _GUMBEL, use_baseline: bool = True,
) -> Callable[[Array, PyTree], PyTree]:
    """Create a smooth version of a function that has no useful derivative, such as `argmax`.

    The smooth function uses samples to estimate the mean of `fun(x + sigma * z)` over random noise
    `z`. Its derivatives of any order are computed only from values of `fun`, so `fun` may be
    piecewise constant (Berthet et al., 2020).

    Args:
        fun: function that maps a tree to a tree.
        num_samples: number of samples; with more samples, the estimate is more precise.
        sigma: scale of the noise; with larger values, the result is smoother.
        noise: distribution of the noise, an object with methods `sample(key, shape, dtype)` and
            `log_prob(z)`, such as `Normal()`. The default is `Gumbel()`.
        use_baseline: whether to subtract `fun(x)` when derivatives are estimated, which makes the
            estimates more precise.

    Returns:
        A function `f(key, x)` that accepts a random key and a tree and returns the estimate.

    >>> from toile.optim import perturbations
    >>> smooth = perturbations.make_perturbed_fun(
    ...     jnp.sign, num_samples=2000, sigma=1.0, noise=perturbations.Normal()
    ... )
    >>> slope = toile.grad(smooth, argnums=1)(key(0), jnp.array(0.0))
    >>> bool(abs(slope - 0.8) < 0.1)  # sqrt(2/pi)
    True
    """

    def one(key: Any, x: Any, baseline: Any) -> Any:
        z = whole.random_like(key, x, sampler=noise.sample)
        shifted = lax.stop_gradient(tree.map(lambda x, z: x + sigma * z, x, z))
        z = tree.map(lambda x, y: (y - x) / sigma, x, shifted)  # the same noise, as a function of x
        log_prob = whole.sum(tree.map(noise.log_prob, z))
        box = jnp.exp(log_prob - lax.stop_gradient(log_prob))
        out = whole.scale(box, fun(shifted))
        return whole.add_scale(out, 1 - box, baseline) if use_baseline else out

    def estimate(key: Any, x: Any) -> Any:
        baseline = fun(lax.stop_gradient(x)) if use_baseline else None
        keys = random.split(key, num_samples)
        outs = vmap(one, in_axes=(0, None, None))(keys, x, baseline)
        return tree.map(lambda out: jnp.mean(out, axis=0), outs)

    return estimate
