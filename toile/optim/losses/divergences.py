"""Kullback-Leibler divergences between target and predicted distributions.

Predictions are logarithms of probabilities. `axis` is the axis along which each distribution lies,
and `where` masks the elements of the distributions.
"""

from __future__ import annotations

import warnings

import toile.numpy as jnp
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import Axes, check_broadcast, check_floating

__all__ = [
    "convex_kl_divergence", "generalized_kl_divergence", "kl_divergence",
    "kl_divergence_with_log_targets",
]


def kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: Axes = -1, where: ArrayLike | None = None
) -> Array:
    """Compute the Kullback-Leibler divergence between target and predicted distributions.

    The divergence is `sum(targets * (log(targets) - log_predictions))`. Terms whose target is 0 are
    0.

    Args:
        log_predictions: logarithms of predicted probabilities, a floating-point array.
        targets: target probabilities, a floating-point array that is broadcast against the
            predictions.
        axis: axis or axes along which each distribution lies.
        where: boolean mask of the elements to include, which is broadcast against the inputs. If
            `where` is None, all elements are included.

    Returns:
        The divergence for each pair of distributions, with the shape of the inputs without `axis`.

    Raises:
        TypeError: an input is not floating-point.

    >>> from toile import optim
    >>> optim.kl_divergence(jnp.log(jnp.array([0.5, 0.5])), jnp.array([1.0, 0.0])).round(3)
    Array(0.693, dtype=float32)
    """
    check_floating("kl_divergence", log_predictions=log_predictions, targets=targets)
    check_broadcast("kl_divergence", log_predictions=log_predictions, targets=targets)
    log_targets = jnp.where(targets == 0, 0, jnp.log(targets))
    return jnp.sum(targets * (log_targets - log_predictions), axis=axis, where=where)


def kl_divergence_with_log_targets(
    log_predictions: ArrayLike, log_targets: ArrayLike, axis: Axes = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the Kullback-Leibler divergence for targets given as log probabilities.

    The divergence is `sum(exp(log_targets) * (log_targets - log_predictions))`.

    Args:
        log_predictions: logarithms of predicted probabilities, a floating-point array.
        log_targets: logarithms of target probabilities, a floating-point array that is broadcast
            against the predictions.
        axis: axis or axes along which each distribution lies.
        where: boolean mask of the elements to include, which is broadcast against the inputs. If
            `where` is None, all elements are included.

    Returns:
        The divergence for each pair of distributions, with the shape of the inputs without `axis`.

    Raises:
        TypeError: an input is not floating-point.

    >>> from toile import optim
    >>> predicted, target = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
    >>> optim.kl_divergence_with_log_targets(predicted, target).round(3)
    Array(0.131, dtype=float32)
    """
    check_floating(
        "kl_divergence_with_log_targets", log_predictions=log_predictions, log_targets=log_targets
    )
    check_broadcast(
        "kl_divergence_with_log_targets", log_predictions=log_predictions, log_targets=log_targets
    )
    terms = jnp.exp(log_targets) * (log_targets - log_predictions)
    return jnp.sum(terms, axis=axis, where=where)


def generalized_kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: Axes = -1, where: ArrayLike | None = None
) -> Array:
    """Compute the Kullback-Leibler divergence between weights that need not sum to 1.

    The result, `kl_divergence` plus `sum(exp(log_predictions) - targets)`, is never negative.

    Args:
        log_predictions: logarithms of predicted weights, a floating-point array.
        targets: target weights, a floating-point array that is broadcast against the predictions.
        axis: axis or axes over which the divergence is summed.
        where: boolean mask of the elements to include, which is broadcast against the inputs. If
            `where` is None, all elements are included.

    Returns:
        The divergence for each pair of distributions, with the shape of the inputs without `axis`.

    Raises:
        TypeError: an input is not floating-point.

    >>> from toile import optim
    >>> optim.generalized_kl_divergence(jnp.zeros(3), jnp.full(3, 2.0)).round(3)
    Array(1.159, dtype=float32)
    """
    divergence = kl_divergence(log_predictions, targets, axis=axis, where=where)
    surplus = jnp.exp(log_predictions) - targets
    return divergence + jnp.sum(surplus, axis=axis, where=where)


def convex_kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: Axes = -1, where: ArrayLike | None = None
) -> Array:
    """Compute `generalized_kl_divergence` under its former name, which is deprecated.

    Args:
        log_predictions: logarithms of predicted weights, a floating-point array.
        targets: target weights, a floating-point array that is broadcast against the predictions.
        axis: axis or axes over which the divergence is summed.
        where: boolean mask of the elements to include, which is broadcast against the inputs. If
            `where` is None, all elements are included.

    Returns:
        The divergence for each pair of distributions, with the shape of the inputs without `axis`.

    >>> import warnings
    >>> from toile import optim
    >>> with warnings.catch_warnings(action="ignore"):
    ...     loss = optim.convex_kl_divergence(jnp.zeros(3), jnp.ones(3))
    >>> loss
    Array(0., dtype=float32)
    """
    warnings.warn(
        "convex_kl_divergence is deprecated: use generalized_kl_divergence", DeprecationWarning,
        stacklevel=2,
    )
    return generalized_kl_divergence(log_predictions, targets, axis=axis, where=where)
