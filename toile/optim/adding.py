"""Transformations that add parameters (weight decay) or noise to updates."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from toile import dtypes, random
from toile import numpy as jnp
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.masking import masked
from toile.optim.numerics import safe_increment
from toile.optim.tree.maths import map_present

__all__ = [
    "AddDecayedWeightsState", "AddNoiseState", "WeightDecaySchedule", "add_decayed_weights",
    "add_noise",
]  # fmt: skip

AddDecayedWeightsState = base.EmptyState


class WeightDecaySchedule(NamedTuple):
    """State of `add_decayed_weights` if the weight decay is a schedule.

    Args:
        count: number of updates made so far.

    >>> from toile import optim
    >>> optim.add_decayed_weights(lambda step: 0.1).init(jnp.zeros(2))
    WeightDecaySchedule(count=Array(0, dtype=int32))
    """

    count: ArrayLike


def add_decayed_weights(
    weight_decay: base.ScalarOrSchedule = 0.0,
    mask: Any | Callable[[base.Params], Any] | None = None,
) -> base.GradientTransformation:
    """Add a multiple of the parameters to the updates (weight decay).

    For an update `g` and a parameter `p`, the result is `g + weight_decay * p`. If
    `add_decayed_weights` comes after a transformation that scales gradients, the weight decay is
    decoupled, as in `adamw`. If `add_decayed_weights` comes before such a transformation, it has
    the effect of a penalty on the squared norm of the parameters.

    Args:
        weight_decay: factor by which the parameters are multiplied, a number or a schedule;
            typical values are 1e-4 to 0.1.
        mask: the parameters that decay, given as a tree of bools with the structure of the
            parameters or a prefix of that structure, as a function that returns such a tree for the
            parameters, or as one or more globs that match parameter paths, such as `"**/kernel"`.
            If `mask` is None, all parameters decay.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx = optim.add_decayed_weights(0.5, mask="**/kernel")
    >>> params = {"a": {"kernel": jnp.ones(1), "bias": jnp.ones(1)}}
    >>> updates, state = tx.update(optim.tree.zeros_like(params), tx.init(params), params)
    >>> updates
    {'a': {'bias': Array([0.], dtype=float32), 'kernel': Array([0.5], dtype=float32)}}
    """
    decay: Any = weight_decay
    scheduled = callable(decay)

    def init_fn(params):
        return WeightDecaySchedule(base.zero_count()) if scheduled else base.EmptyState()

    def update_fn(updates, state, params=None):
        base.required(params)
        if not scheduled and isinstance(decay, (int, float)) and decay == 0.0:
            return updates, state
        strength = decay(state.count) if scheduled else decay
        updates = map_present(lambda g, p: g + strength * p, updates, params)
        return updates, WeightDecaySchedule(safe_increment(state.count)) if scheduled else state

    tx = base.GradientTransformation(init_fn, update_fn)
    return tx if mask is None else masked(tx, mask)


class AddNoiseState(NamedTuple):
    """State of `add_noise`.

    Args:
        count: number of updates made so far.
        rng_key: random key for the noise in the next step.

    >>> from toile import optim
    >>> optim.add_noise(0.01, 0.55, key=0).init(jnp.zeros(2)).count
    Array(0, dtype=int32)
    """

    count: ArrayLike
    rng_key: Array


def canonical_key(key_or_seed: Array | int) -> Array:
    """Return a key unchanged, or create a key from a seed."""
    if isinstance(key_or_seed, Array) and dtypes.issubdtype(key_or_seed.dtype, dtypes.prng_key):
        return key_or_seed
    return random.key(key_or_seed)


def key_or_seed(who: str, key: Array | int | None, seed: int | None) -> Array | int:
    """Return the value of `key` or of the deprecated keyword `seed`; the default is 0."""
    if seed is not None:
        warnings.warn(f"{who}: `seed` is deprecated, use `key`", DeprecationWarning, stacklevel=3)
        if key is not None:
            raise ValueError(f"{who}: needed one of key and seed, got both{here()}")
        return seed
    if key is None:
        warnings.warn(f"{who}: got no key, uses 0; pass a key: this will be an error", stacklevel=3)
        return 0
    return key


def add_noise(
    eta: ArrayLike, gamma: ArrayLike, key: Array | int | None = None, *, seed: int | None = None
) -> base.GradientTransformation:
    """Add Gaussian noise, whose variance at step `t` is `eta / t**gamma`, to the updates.

    Noise can help to train very deep networks (Neelakantan et al., 2015). The state contains the
    random key, so results are reproducible.

    Args:
        eta: variance in the first step.
        gamma: exponent that determines how fast the variance decreases. 0.55 is a typical value;
            with 0, the variance is constant.
        key: random key, or an integer seed. If None, the seed is 0 and a warning is issued.
        seed: older name for `key` (deprecated).

    Returns:
        A gradient transformation.

    Raises:
        ValueError: both `key` and `seed` are given.

    >>> from toile import optim
    >>> tx = optim.add_noise(eta=1.0, gamma=0.55, key=0)
    >>> updates, state = tx.update(jnp.zeros(1000), tx.init(jnp.zeros(1000)))
    >>> bool(0.9 < updates.std() < 1.1)
    True
    """
    key = key_or_seed("add_noise", key, seed)

    init_fn = lambda params: AddNoiseState(base.zero_count(), canonical_key(key))

    def update_fn(updates, state, params=None):
        count = safe_increment(state.count)
        deviation = jnp.sqrt(eta / count**gamma)
        rng_key, sample_key = random.split(state.rng_key)
        noise = tree.random_like(sample_key, updates, random.normal)
        return tree.add_scale(updates, deviation, noise), AddNoiseState(count, rng_key)

    return base.GradientTransformation(init_fn, update_fn)
