"""Kullback-Leibler divergences of predicted from target distributions.

Predictions are logarithms of probabilities, along `axis`; `where` says which elements to count.
"""

from __future__ import annotations

import warnings
from typing import Any

import toile.numpy as jnp
from toile.optim.losses.checks import Axes, check_floating

__all__ = [
    "convex_kl_divergence", "generalized_kl_divergence", "kl_divergence",
    "kl_divergence_with_log_targets",
]


def kl_divergence(log_predictions: Any, targets: Any, axis: Axes = -1, where: Any = None) -> Any:
    """The sum of `targets * (log(targets) - log_predictions)`; 0 where a target is 0.

    >>> round(float(kl_divergence(jnp.log(jnp.array([0.5, 0.5])), jnp.array([1.0, 0.0]))), 4)
    0.6931
    """
    check_floating("kl_divergence", log_predictions=log_predictions, targets=targets)
    log_targets = jnp.where(targets == 0, 0, jnp.log(targets))
    return jnp.sum(targets * (log_targets - log_predictions), axis=axis, where=where)


def kl_divergence_with_log_targets(
    log_predictions: Any, log_targets: Any, axis: Axes = -1, where: Any = None
) -> Any:
    """`kl_divergence` of targets that are logarithms too.

    >>> p = jnp.log(jnp.array([0.5, 0.5]))
    >>> float(kl_divergence_with_log_targets(p, p))
    0.0
    """
    check_floating(
        "kl_divergence_with_log_targets", log_predictions=log_predictions, log_targets=log_targets
    )
    terms = jnp.exp(log_targets) * (log_targets - log_predictions)
    return jnp.sum(terms, axis=axis, where=where)


def generalized_kl_divergence(
    log_predictions: Any, targets: Any, axis: Axes = -1, where: Any = None
) -> Any:
    """`kl_divergence` for distributions that need not sum to 1: plus the difference of the sums.

    >>> float(generalized_kl_divergence(jnp.zeros(3), jnp.ones(3)))
    0.0
    """
    divergence = kl_divergence(log_predictions, targets, axis=axis, where=where)
    surplus = jnp.exp(log_predictions) - targets
    return divergence + jnp.sum(surplus, axis=axis, where=where)


def convex_kl_divergence(
    log_predictions: Any, targets: Any, axis: Axes = -1, where: Any = None
) -> Any:
    """The former name of `generalized_kl_divergence`."""
    warnings.warn(
        "convex_kl_divergence is deprecated: use generalized_kl_divergence", DeprecationWarning,
        stacklevel=2,
    )
    return generalized_kl_divergence(log_predictions, targets, axis=axis, where=where)
