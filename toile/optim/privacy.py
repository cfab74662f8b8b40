"""Differentially private training, which clips each example's gradient and adds noise."""

from __future__ import annotations

from typing import NamedTuple

from toile import random
from toile import tree as trees
from toile.engine.trace import Array
from toile.optim import base
from toile.optim.accumulation import trace
from toile.optim.adding import canonical_key, key_or_seed
from toile.optim.base import ArrayLike
from toile.optim.clipping import per_example_global_norm_clip
from toile.optim.combining import chain
from toile.optim.scaling import scale_by_learning_rate

__all__ = ["DifferentiallyPrivateAggregateState", "differentially_private_aggregate", "dpsgd"]


class DifferentiallyPrivateAggregateState(NamedTuple):
    """State of `differentially_private_aggregate`.

    Args:
        rng_key: random key for the noise in the next step.

    >>> from toile import optim
    >>> tx = optim.differentially_private_aggregate(1.0, 0.1, key=0)
    >>> tx.init(jnp.zeros(1)).rng_key.shape
    ()
    """

    rng_key: Array


def differentially_private_aggregate(
    l2_norm_clip: ArrayLike, noise_multiplier: ArrayLike, key: Array | int | None = None, *,
    seed: int | None = None,
) -> base.GradientTransformation:
    """Clip per-example gradients, sum them, add noise, and divide by the number of examples.

    The noise is Gaussian with standard deviation `l2_norm_clip * noise_multiplier` (Abadi et al.,
    2016). The gradients passed to `update` must have a leading batch axis with one entry per
    example, like those that `vmap(grad(loss))` returns. Put this transformation first in a chain.

    Args:
        l2_norm_clip: maximum Euclidean norm of one example's gradient.
        noise_multiplier: standard deviation of the noise, relative to `l2_norm_clip`. More noise
            provides more privacy.
        key: random key, or an integer seed. If None, the seed is 0 and a warning is issued.
        seed: older name for `key` (deprecated).

    Returns:
        A gradient transformation.

    Raises:
        ValueError: the leaves have different batch sizes; raised by `update`.

    >>> from toile import optim
    >>> tx = optim.differentially_private_aggregate(1.0, noise_multiplier=1e-8, key=0)
    >>> grads = jnp.array([[3.0, 4.0], [0.2, 0.4]])
    >>> updates, state = tx.update(grads, tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([0.4, 0.6], dtype=float32)
    """
    key = canonical_key(key_or_seed("differentially_private_aggregate", key, seed))
    deviation = l2_norm_clip * noise_multiplier

    init_fn = lambda params: DifferentiallyPrivateAggregateState(key)

    def update_fn(updates, state, params=None):
        leaves, structure = trees.flatten(updates)
        clipped, _ = per_example_global_norm_clip(leaves, l2_norm_clip)
        keys = random.split(state.rng_key, len(leaves) + 1)
        size = leaves[0].shape[0]
        noisy = [
            (g + deviation * random.normal(keys[i + 1], g.shape, g.dtype)) / size
            for i, g in enumerate(clipped)
        ]
        return trees.unflatten(structure, noisy), DifferentiallyPrivateAggregateState(keys[0])

    return base.GradientTransformation(init_fn, update_fn)


def dpsgd(
    learning_rate: base.ScalarOrSchedule, l2_norm_clip: ArrayLike, noise_multiplier: ArrayLike,
    seed: int, momentum: ArrayLike | None = None, nesterov: bool = False,
) -> base.GradientTransformation:
    """Differentially private gradient descent, which needs one gradient per example.

    The gradients must have a leading batch axis with one entry per example.
    `differentially_private_aggregate` combines them, and the result is used in the same way
    as a gradient in `sgd` (Abadi et al., 2016).

    Args:
        learning_rate: step size, a number or a schedule (a function that maps the number of steps
            taken to a number).
        l2_norm_clip: maximum Euclidean norm of one example's gradient.
        noise_multiplier: standard deviation of the noise, relative to `l2_norm_clip`. More noise
            provides more privacy.
        seed: integer seed for the noise.
        momentum: decay rate of the accumulated updates, usually 0.9. If None, there is no momentum.
        nesterov: whether to use Nesterov momentum, which looks one step ahead.

    Returns:
        The optimizer, a pair of functions `init` and `update`. Use `apply_updates` to add the
        updates to the parameters.

    >>> from toile import optim
    >>> tx = optim.dpsgd(0.5, l2_norm_clip=1.0, noise_multiplier=1e-8, seed=0)
    >>> grads = jnp.array([[3.0, 4.0], [0.2, 0.4]])
    >>> updates, state = tx.update(grads, tx.init(jnp.zeros(2)))
    >>> updates.round(3)
    Array([-0.2, -0.3], dtype=float32)
    """
    return chain(
        differentially_private_aggregate(l2_norm_clip, noise_multiplier, key=seed),
        base.identity() if momentum is None else trace(momentum, nesterov),
        scale_by_learning_rate(learning_rate),
    )
