"""Losses for numbers and vectors: squared error, Huber, log-cosh and cosine.

If no targets are given, the predictions are treated as the errors.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import Axes, check_broadcast, check_floating, check_same_shape

__all__ = [
    "cosine_distance", "cosine_similarity", "huber_loss", "l2_loss", "log_cosh", "squared_error",
]


def _errors(predictions: Any, targets: Any) -> Any:
    return predictions if targets is None else predictions - targets


def _check_targets(name: str, predictions: Any, targets: Any) -> None:
    if targets is not None:
        check_broadcast(name, predictions=predictions, targets=targets)


def squared_error(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Compute the square of each error, `(predictions - targets)**2`.

    Args:
        predictions: floating-point array of predictions.
        targets: target values, an array with the same shape. If None, `predictions` is taken to
            contain the errors themselves.

    Returns:
        An array with the shape of `predictions`.

    Raises:
        ValueError: the shapes differ.
        TypeError: `predictions` is not floating-point.

    >>> from toile import optim
    >>> optim.squared_error(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0]))
    Array([0., 4.], dtype=float32)
    """
    check_floating("squared_error", predictions=predictions)
    if targets is not None:
        check_same_shape("squared_error", predictions=predictions, targets=targets)
    return _errors(predictions, targets) ** 2


def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Compute half the square of each error, so that the derivative is the error itself.

    Args:
        predictions: floating-point array of predictions.
        targets: target values, an array with the same shape. If None, `predictions` is taken to
            contain the errors themselves.

    Returns:
        An array with the shape of `predictions`.

    Raises:
        ValueError: the shapes differ.
        TypeError: `predictions` is not floating-point.

    >>> from toile import optim
    >>> optim.l2_loss(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0]))
    Array([0., 2.], dtype=float32)
    """
    return 0.5 * squared_error(jnp.asarray(predictions), targets)


def huber_loss(
    predictions: ArrayLike, targets: ArrayLike | None = None, *, delta: ArrayLike = 1.0
) -> Array:
    """Compute the Huber loss, which is quadratic for small errors and linear for large errors.

    For an absolute error `e`, the loss is `0.5 * e**2` if `e <= delta`, and
    `delta * (e - 0.5 * delta)` otherwise. Outliers influence this loss less than they influence the
    squared error.

    Args:
        predictions: floating-point array of predictions.
        targets: target values, which are broadcast against `predictions`. If None, `predictions` is
            taken to contain the errors themselves.
        delta: absolute error at which the linear part begins.

    Returns:
        The loss of each element.

    Raises:
        TypeError: `predictions` is not floating-point.

    >>> from toile import optim
    >>> optim.huber_loss(jnp.array([0.5, 3.0]), jnp.zeros(2))
    Array([0.125, 2.5  ], dtype=float32)
    """
    check_floating("huber_loss", predictions=predictions)
    _check_targets("huber_loss", predictions, targets)
    size = jnp.abs(_errors(predictions, targets))
    within = jnp.minimum(size, delta)
    # size - within is max(size - delta, 0), whose gradient at delta would count twice
    return 0.5 * within**2 + delta * (size - within)


def log_cosh(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Compute `log(cosh(error))`, which is smooth and grows linearly for large errors.

    The loss is close to `error**2 / 2` for small errors and to `|error| - log(2)` for large errors.

    Args:
        predictions: floating-point array of predictions.
        targets: target values, which are broadcast against `predictions`. If None, `predictions` is
            taken to contain the errors themselves.

    Returns:
        The loss of each element.

    Raises:
        TypeError: `predictions` is not floating-point.

    >>> from toile import optim
    >>> optim.log_cosh(jnp.array([0.0, 10.0]), jnp.zeros(2)).round(3)
    Array([0.   , 9.307], dtype=float32)
    """
    check_floating("log_cosh", predictions=predictions)
    _check_targets("log_cosh", predictions, targets)
    errors = _errors(predictions, targets)
    return jnp.logaddexp(errors, -errors) - jnp.log(2.0).astype(errors.dtype)


def cosine_similarity(
    predictions: ArrayLike, targets: ArrayLike, *, epsilon: ArrayLike = 0.0, axis: Axes = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the cosine of the angle between vectors.

    For a vector of zeros, the result is NaN unless `epsilon` is positive.

    Args:
        predictions, targets: floating-point arrays of vectors, which are broadcast against each
            other.
        epsilon: lower bound for the squared norms of the vectors.
        axis: axis or axes along which the vectors lie.
        where: boolean mask of the elements to include, which is broadcast against the vectors. If
            `where` is None, all elements are included.

    Returns:
        The cosine for each pair of vectors, from -1 for opposite directions to 1 for equal
        directions. The result has the shape of the inputs without `axis`.

    Raises:
        TypeError: an input is not floating-point.

    >>> from toile import optim
    >>> vectors = jnp.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    >>> optim.cosine_similarity(vectors, jnp.array([1.0, 0.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    check_floating("cosine_similarity", predictions=predictions, targets=targets)
    _check_targets("cosine_similarity", predictions, targets)

    def unit(x: Any) -> Any:
        squares = jnp.square(x).sum(axis=axis, where=where, keepdims=True)
        return x / jnp.sqrt(squares.clip(epsilon))

    return (unit(predictions) * unit(targets)).sum(axis=axis, where=where)


def cosine_distance(
    predictions: ArrayLike, targets: ArrayLike, *, epsilon: ArrayLike = 0.0, axis: Axes = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute 1 minus the cosine of the angle between vectors.

    Args:
        predictions, targets: floating-point arrays of vectors, which are broadcast against each
            other.
        epsilon: lower bound for the squared norms of the vectors.
        axis: axis or axes along which the vectors lie.
        where: boolean mask of the elements to include, which is broadcast against the vectors. If
            `where` is None, all elements are included.

    Returns:
        The distance for each pair of vectors, from 0 for equal directions to 2 for opposite
        directions. The result has the shape of the inputs without `axis`.

    Raises:
        TypeError: an input is not floating-point.

    >>> from toile import optim
    >>> vectors = jnp.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    >>> optim.cosine_distance(vectors, jnp.array([1.0, 0.0]))
    Array([0., 1., 2.], dtype=float32)
    """
    check_floating("cosine_distance", predictions=predictions, targets=targets)
    similarity = cosine_similarity(predictions, targets, epsilon=epsilon, axis=axis, where=where)
    return 1.0 - similarity
