"""Smooth versions of functions that have no useful derivative, by the mean over perturbed inputs.

f(x) becomes E[f(x + sigma z)] for noise z, estimated from samples. The derivatives, of any order,
use values of f alone: the score-function estimator with the factor exp(l - stop(l)), l being the
log probability of a sample; its value is 1, its derivative that of l.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile import lax, random, tree
from toile.api import vmap
from toile.optim import tree as whole

__all__ = ["Gumbel", "Normal", "make_perturbed_fun"]


class Normal:
    """Normal noise."""

    def sample(self, key: Any, sample_shape: Any = (), dtype: Any = float) -> Any:
        """Samples of a shape."""
        return random.normal(key, sample_shape, dtype)

    def log_prob(self, inputs: Any) -> Any:
        """The log density up to a constant."""
        return -0.5 * inputs**2


class Gumbel:
    """Gumbel noise: the argmax of perturbed logits is a sample of their softmax."""

    def sample(self, key: Any, sample_shape: Any = (), dtype: Any = float) -> Any:
        """Samples of a shape."""
        return random.gumbel(key, sample_shape, dtype)

    def log_prob(self, inputs: Any) -> Any:
        """The log density."""
        return -inputs - jnp.exp(-inputs)


_GUMBEL = Gumbel()


def make_perturbed_fun(
    fun: Callable[[Any], Any], num_samples: int = 1000, sigma: Any = 0.1, noise: Any = _GUMBEL,
    use_baseline: bool = True,
) -> Callable[[Any, Any], Any]:
    """A differentiable estimate (key, x) -> tree of `fun`, a function from trees to trees.

    use_baseline subtracts fun(x) in the estimate of derivatives, which lowers their variance.
    See https://arxiv.org/abs/2002.08676 and https://arxiv.org/abs/1802.05098.

    >>> sign = make_perturbed_fun(jnp.sign, num_samples=2000, sigma=1.0, noise=Normal())
    >>> slope = toile.grad(sign, argnums=1)(key(0), jnp.array(0.0))
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
