"""Cross entropies for labels that are independent (sigmoid) or mutually exclusive (softmax).

The results of softmax losses have the shape of the logits without `axis`, the class axis. `where`
masks classes or examples.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.api import custom_jvp
from toile.engine.errors import ShapeError
from toile.engine.source import describe, here, message
from toile.numpy.selection import take_along_axis_telling
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import Axes, check_broadcast, check_dtype, check_floating

__all__ = [
    "poly_loss_cross_entropy", "safe_softmax_cross_entropy", "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss", "softmax_cross_entropy", "softmax_cross_entropy_with_integer_labels",
]


def sigmoid_binary_cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the binary cross entropy between each logit and its label.

    Each label is predicted independently of the others. The loss is
    `-labels * log(p) - (1 - labels) * log(1 - p)` with `p = sigmoid(logits)`. It is computed
    directly from the logits, so it stays precise where `p` is near 0 or 1.

    Args:
        logits: unnormalized scores, a floating-point array.
        labels: probabilities of the positive class, between 0 and 1, which are broadcast against
            `logits`.

    Returns:
        The loss of each element.

    Raises:
        TypeError: `logits` is not floating-point.

    >>> from toile import optim
    >>> optim.sigmoid_binary_cross_entropy(jnp.array([0.0, 5.0]), jnp.array([1, 1])).round(3)
    Array([0.693, 0.007], dtype=float32)
    """
    check_floating("sigmoid_binary_cross_entropy", logits=logits)
    check_broadcast("sigmoid_binary_cross_entropy", logits=logits, labels=labels)
    labels = jnp.astype(labels, logits.dtype)
    # log(1 - sigmoid(x)) is log_sigmoid(-x), which keeps its digits
    return -labels * nn.log_sigmoid(logits) - (1.0 - labels) * nn.log_sigmoid(-logits)


def sigmoid_focal_loss(
    logits: ArrayLike, labels: ArrayLike, *, alpha: ArrayLike | None = None, gamma: ArrayLike = 2.0
) -> Array:
    """Compute the focal loss: binary cross entropy times a factor that is small for easy examples.

    The factor is `(1 - p)**gamma`, where `p` is the predicted probability of the label (Lin et al.,
    2017). This loss is used for object detection, where most examples are background.

    Args:
        logits: unnormalized scores, a floating-point array.
        labels: probabilities of the positive class, between 0 and 1, which are broadcast against
            `logits`.
        alpha: weight of examples with label 1; examples with label 0 have weight `1 - alpha`. If
            `alpha` is None, examples are not weighted.
        gamma: exponent; larger values reduce the loss of easy examples more. With 0, the loss is
            cross entropy.

    Returns:
        The loss of each element.

    Raises:
        TypeError: `logits` is not floating-point.

    >>> from toile import optim
    >>> logits = jnp.array([4.0, -4.0])  # confident: right, wrong
    >>> optim.sigmoid_focal_loss(logits, jnp.array([1, 1])).round(3)
    Array([0.   , 3.875], dtype=float32)
    """
    check_floating("sigmoid_focal_loss", logits=logits)
    check_broadcast("sigmoid_focal_loss", logits=logits, labels=labels)
    labels = jnp.astype(labels, logits.dtype)
    entropy = sigmoid_binary_cross_entropy(logits, labels)
    # 1 - p = p1 (1 - y) + p0 y, in logarithms
    log_p = jnp.stack([nn.log_sigmoid(logits), nn.log_sigmoid(-logits)], axis=-1)
    log_miss = nn.logsumexp(log_p, axis=-1, b=jnp.stack([1 - labels, labels], axis=-1))
    loss = entropy * jnp.exp(gamma * log_miss)
    if alpha is None:
        return loss
    return (alpha * labels + (1.0 - alpha) * (1.0 - labels)) * loss


def softmax_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, axis: Axes = -1, where: ArrayLike | None = None
) -> Array:
    """Compute the cross entropy between `softmax(logits)` and the class probabilities `labels`.

    The loss is `-sum(labels * log_softmax(logits))`.

    Args:
        logits: unnormalized scores, a floating-point array.
        labels: class probabilities, for instance one-hot vectors, broadcast against `logits`.
        axis: class axis or axes.
        where: boolean mask, either of the classes to include (with the shape of `logits`) or of the
            examples to include (with the shape of `logits` without `axis`). If `where` is None,
            everything is included. The loss of an excluded example is 0.

    Returns:
        The loss of each example, with the shape of `logits` without `axis`.

    Raises:
        TypeError: `logits` is not floating-point.

    >>> from toile import optim
    >>> logits = jnp.array([[1.0, 2.0, 3.0]])
    >>> optim.softmax_cross_entropy(logits, jnp.array([[0.0, 0.0, 1.0]])).round(3)
    Array([0.408], dtype=float32)
    """
    check_floating("softmax_cross_entropy", logits=logits)
    check_broadcast("softmax_cross_entropy", logits=logits, labels=labels)
    where = _with_classes(where, logits, axis)
    scores = nn.log_softmax(logits, axis, where)
    try:
        return -(labels * scores).sum(axis, where=where)
    except ValueError as error:
        if jnp.ndim(labels) != scores.ndim - 1:
            raise
        raise ShapeError(
            f"{message(error)} softmax_cross_entropy: needed labels of shape {scores.shape}, got "
            f"{describe(labels)} (for integer labels use softmax_cross_entropy_with_integer_labels,"
            f" or nn.one_hot(labels, {scores.shape[-1]})){here()}"
        ) from None


def _with_classes(where: Any, logits: Any, axis: Any) -> Any:
    """Add the class axis to a mask of examples; return any other mask unchanged."""
    if where is None or where.ndim == logits.ndim:
        return where
    return jnp.expand_dims(where, axis)


def softmax_cross_entropy_with_integer_labels(
    logits: ArrayLike, labels: ArrayLike, axis: int | tuple[int, ...] = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute the cross entropy between `softmax(logits)` and classes given as integers.

    The result is the same as that of `softmax_cross_entropy` with one-hot labels, but the one-hot
    labels are not computed. For a label that is out of range, the loss is NaN.

    Args:
        logits: unnormalized scores, a floating-point array.
        labels: index of each example's correct class, an integer array with the shape of `logits`
            without `axis`.
        axis: class axis; if it is a tuple of axes, labels are indices into the flattened axes.
        where: boolean mask, either of the classes to include (with the shape of `logits`) or of the
            examples to include (with the shape of `logits` without `axis`). If `where` is None,
            everything is included. The loss of an excluded example is 0.

    Returns:
        The loss of each example.

    Raises:
        TypeError: `logits` is not floating-point, or `labels` are not integers.

    >>> from toile import optim
    >>> logits = jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    >>> optim.softmax_cross_entropy_with_integer_labels(logits, jnp.array([2, 0])).round(3)
    Array([0.408, 2.408], dtype=float32)
    """
    name = "softmax_cross_entropy_with_integer_labels"
    check_floating(name, logits=logits)
    check_dtype(name, jnp.integer, labels=labels)
    where = _with_classes(where, logits, axis)
    if isinstance(axis, tuple):
        logits, where = _last(logits, axis), where if where is None else _last(where, axis)
        axis = len(logits.shape) - 1
    elif isinstance(axis, int):
        axis = _canonical(axis, logits.ndim)
    else:
        raise ValueError(
            f"{name}: needed an axis of type int or tuple of int, got {type(axis)}{here()}"
        )
    if jnp.ndim(labels) >= logits.ndim:
        raise ValueError(
            f"{name}: needed labels with one axis less than the logits {describe(logits)}, got "
            f"{describe(labels)} (for one-hot labels use softmax_cross_entropy; remove an axis of "
            f"size 1 with labels.squeeze(-1)){here()}"
        )
    places = jnp.expand_dims(labels, axis)
    if where is None:
        classes = logits.shape[axis]
        found = take_along_axis_telling(logits, places, axis, name, lambda i: (
            f"{name}: label {i} is out of bounds for {classes} classes: its loss is NaN (needed "
            f"labels in 0 ... {classes - 1}; `where` leaves examples out)"))
    else:  # labels of examples that are left out may be anything
        found = jnp.take_along_axis(logits, places, axis=axis, mode="fill")
    loss = nn.logsumexp(logits, axis=axis, where=where) - found.take(0, axis=axis)
    return loss if where is None else jnp.where(jnp.any(where, axis), loss, 0.0)


def _canonical(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {ndim}{here()}")
    return axis % ndim


def _last(x: Any, axes: tuple[int, ...]) -> Any:
    """Move some axes to the end, and flatten them to one."""
    axes = tuple(_canonical(a, x.ndim) for a in axes)
    rest = tuple(a for a in range(x.ndim) if a not in axes)
    x = x.transpose(rest + axes)
    return x.reshape(x.shape[: len(rest)] + (-1,))


def _weighted_log_softmax(x: Any, weights: Any) -> Any:
    logp = nn.log_softmax(x, axis=-1)
    return jnp.where(weights != 0.0, weights * logp, jnp.zeros_like(logp))


@custom_jvp
def weighted_logsoftmax(x: ArrayLike, weights: ArrayLike) -> Array:
    """Compute `weights * log_softmax(x)` along the last axis, with 0 where a weight is 0.

    Where a weight is 0, the result and its derivative with respect to `x` are 0, even if the log
    probability is infinite.

    Args:
        x: unnormalized scores.
        weights: factors by which the log probabilities are multiplied.

    Returns:
        An array with the shape of `x`.

    >>> from toile.optim.losses.classification import weighted_logsoftmax
    >>> weighted_logsoftmax(jnp.array([-jnp.inf, 0.0]), jnp.array([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return _weighted_log_softmax(x, weights)


@weighted_logsoftmax.defjvp
def _weighted_logsoftmax_jvp(primals: Any, tangents: Any) -> Any:
    x, weights = primals
    dx, dweights = tangents
    mean = jnp.sum(dx * nn.softmax(x, axis=-1), axis=-1, keepdims=True)
    tangent = weights * dx - weights * mean + dweights * nn.log_softmax(x, axis=-1)
    return _weighted_log_softmax(x, weights), tangent


def safe_softmax_cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute `softmax_cross_entropy`; logits may be -inf for classes whose label is 0.

    Args:
        logits: unnormalized scores, a floating-point array; the classes lie along the last axis.
        labels: class probabilities, with the shape of `logits`.

    Returns:
        The loss of each example.

    Raises:
        TypeError: `logits` is not floating-point.

    >>> from toile import optim
    >>> logits = jnp.array([-jnp.inf, 0.0, 0.0])
    >>> optim.safe_softmax_cross_entropy(logits, jnp.array([0.0, 1.0, 0.0])).round(3)
    Array(0.693, dtype=float32)
    """
    check_floating("safe_softmax_cross_entropy", logits=logits)
    check_broadcast("safe_softmax_cross_entropy", logits=logits, labels=labels)
    return -jnp.sum(weighted_logsoftmax(logits, labels), axis=-1)


def poly_loss_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, epsilon: ArrayLike = 2.0, axis: Axes = -1,
    where: ArrayLike | None = None,
) -> Array:
    """Compute cross entropy plus a term proportional to 1 minus the correct class's probability.

    The loss is `softmax_cross_entropy + epsilon * sum(labels * (1 - softmax(logits)))` (Leng et
    al., 2022).

    Args:
        logits: unnormalized scores, a floating-point array.
        labels: class probabilities, a floating-point array that is broadcast against `logits`.
        epsilon: weight of the added term. With 0, the loss is cross entropy.
        axis: class axis or axes.
        where: boolean mask of the classes to include, with the shape of `logits`. If `where` is
            None, all classes are included.

    Returns:
        The loss of each example, with the shape of `logits` without `axis`.

    Raises:
        TypeError: `logits` or `labels` is not a floating-point array.

    >>> from toile import optim
    >>> logits, labels = jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0])
    >>> optim.poly_loss_cross_entropy(logits, labels).round(3)  # log(2) + 2 * 0.5
    Array(1.693, dtype=float32)
    """
    check_floating("poly_loss_cross_entropy", logits=logits, labels=labels)
    check_broadcast("poly_loss_cross_entropy", logits=logits, labels=labels)
    missing = labels * (1 - nn.softmax(logits, axis=axis, where=where))
    entropy = softmax_cross_entropy(logits, labels, axis=axis, where=where)
    return entropy + epsilon * jnp.sum(missing, axis=axis, where=where)
