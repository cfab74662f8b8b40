"""Losses of numbers and vectors: squares, Huber, log-cosh, cosines.

Without targets the predictions are the errors.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile.optim.losses.checks import Axes, check_floating, check_same_shape

__all__ = [
    "cosine_distance", "cosine_similarity", "huber_loss", "l2_loss", "log_cosh", "squared_error",
]


def _errors(predictions: Any, targets: Any) -> Any:
    return predictions if targets is None else predictions - targets


def squared_error(predictions: Any, targets: Any = None) -> Any:
    """The square of each error; shapes have to be equal.

    >>> squared_error(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0])).tolist()
    [0.0, 4.0]
    """
    check_floating("squared_error", predictions=predictions)
    if targets is not None:
        check_same_shape("squared_error", predictions=predictions, targets=targets)
    return _errors(predictions, targets) ** 2


def l2_loss(predictions: Any, targets: Any = None) -> Any:
    """Half the square of each error.

    >>> l2_loss(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0])).tolist()
    [0.0, 2.0]
    """
    return 0.5 * squared_error(jnp.asarray(predictions), targets)


def huber_loss(predictions: Any, targets: Any = None, *, delta: Any = 1.0) -> Any:
    """Half the square of an error up to delta, beyond it the tangent line.

    >>> huber_loss(jnp.array([0.5, 3.0])).tolist()
    [0.125, 2.5]
    """
    check_floating("huber_loss", predictions=predictions)
    size = jnp.abs(_errors(predictions, targets))
    within = jnp.minimum(size, delta)
    # size - within is max(size - delta, 0), whose gradient at delta would count twice
    return 0.5 * within**2 + delta * (size - within)


def log_cosh(predictions: Any, targets: Any = None) -> Any:
    """log(cosh(error)): about error**2 / 2 near 0 and |error| - log(2) far from it.

    >>> [round(float(x), 4) for x in log_cosh(jnp.array([0.0, 10.0]))]
    [0.0, 9.3069]
    """
    check_floating("log_cosh", predictions=predictions)
    errors = _errors(predictions, targets)
    return jnp.logaddexp(errors, -errors) - jnp.log(2.0).astype(errors.dtype)


def cosine_similarity(
    predictions: Any, targets: Any, *, epsilon: Any = 0.0, axis: Axes = -1, where: Any = None
) -> Any:
    """The cosine of the angle between vectors along `axis`; epsilon bounds squared lengths below.

    >>> float(cosine_similarity(jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0])))
    0.0
    """
    check_floating("cosine_similarity", predictions=predictions, targets=targets)

    def unit(x: Any) -> Any:
        squares = jnp.square(x).sum(axis=axis, where=where, keepdims=True)
        return x / jnp.sqrt(squares.clip(epsilon))

    return (unit(predictions) * unit(targets)).sum(axis=axis, where=where)


def cosine_distance(
    predictions: Any, targets: Any, *, epsilon: Any = 0.0, axis: Axes = -1, where: Any = None
) -> Any:
    """1 - `cosine_similarity`.

    >>> float(cosine_distance(jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0])))
    1.0
    """
    check_floating("cosine_distance", predictions=predictions, targets=targets)
    similarity = cosine_similarity(predictions, targets, epsilon=epsilon, axis=axis, where=where)
    return 1.0 - similarity
