"""Cross entropies: between logits and labels, independent (sigmoid) or exclusive (softmax).

`axis` holds the classes and leaves the shape; `where` says which of them to count.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.api import custom_jvp
from toile.optim.losses.checks import Axes, check_dtype, check_floating

__all__ = [
    "poly_loss_cross_entropy", "safe_softmax_cross_entropy", "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss", "softmax_cross_entropy", "softmax_cross_entropy_with_integer_labels",
]


def sigmoid_binary_cross_entropy(logits: Any, labels: Any) -> Any:
    """The cross entropy of each logit with its label in [0, 1].

    >>> float(sigmoid_binary_cross_entropy(jnp.array(0.0), jnp.array(1.0)))  # log(2)
    0.6931471824645996
    """
    check_floating("sigmoid_binary_cross_entropy", logits=logits)
    labels = jnp.astype(labels, logits.dtype)
    # log(1 - sigmoid(x)) is log_sigmoid(-x), which keeps its digits
    return -labels * nn.log_sigmoid(logits) - (1.0 - labels) * nn.log_sigmoid(-logits)


def sigmoid_focal_loss(logits: Any, labels: Any, *, alpha: Any = None, gamma: Any = 2.0) -> Any:
    """The cross entropy times `(1 - p)**gamma`, p being the probability given to the label.

    alpha, if given, weights the positive class and 1 - alpha the negative one. Labels may lie
    between 0 and 1. See https://arxiv.org/abs/1708.02002.

    >>> logits = jnp.array([4.0, -4.0])  # sure and right, sure and wrong
    >>> [round(float(x), 4) for x in sigmoid_focal_loss(logits, jnp.array([1.0, 1.0]))]
    [0.0, 3.8749]
    """
    check_floating("sigmoid_focal_loss", logits=logits)
    labels = jnp.astype(labels, logits.dtype)
    entropy = sigmoid_binary_cross_entropy(logits, labels)
    # 1 - p = p1 (1 - y) + p0 y, in logarithms
    log_p = jnp.stack([nn.log_sigmoid(logits), nn.log_sigmoid(-logits)], axis=-1)
    log_miss = nn.logsumexp(log_p, axis=-1, b=jnp.stack([1 - labels, labels], axis=-1))
    loss = entropy * jnp.exp(gamma * log_miss)
    if alpha is None:
        return loss
    return (alpha * labels + (1.0 - alpha) * (1.0 - labels)) * loss


def softmax_cross_entropy(logits: Any, labels: Any, axis: Axes = -1, where: Any = None) -> Any:
    """The cross entropy of softmax(logits) with label probabilities, over `axis`.

    >>> logits = jnp.array([[1.0, 2.0, 3.0]])
    >>> [round(float(x), 4) for x in softmax_cross_entropy(logits, jnp.array([[0.0, 0.0, 1.0]]))]
    [0.4076]
    """
    check_floating("softmax_cross_entropy", logits=logits)
    where = _with_classes(where, logits, axis)
    return -(labels * nn.log_softmax(logits, axis, where)).sum(axis, where=where)


def _with_classes(where: Any, logits: Any, axis: Any) -> Any:
    """A mask of examples as a mask of logits."""
    if where is None or where.ndim == logits.ndim:
        return where
    return jnp.expand_dims(where, axis)


def softmax_cross_entropy_with_integer_labels(
    logits: Any, labels: Any, axis: int | tuple[int, ...] = -1, where: Any = None
) -> Any:
    """The cross entropy of softmax(logits) with classes given as integers.

    With a tuple `axis` labels index its flattened axes. An example whose classes are all masked
    has loss 0.

    >>> logits = jnp.array([[1.0, 2.0, 3.0]])
    >>> losses = softmax_cross_entropy_with_integer_labels(logits, jnp.array([2]))
    >>> [round(float(x), 4) for x in losses]
    [0.4076]
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
        raise ValueError(f"{name}: needed an axis of type int or tuple of int, got {type(axis)}")
    found = jnp.take_along_axis(logits, jnp.expand_dims(labels, axis), axis=axis)
    loss = nn.logsumexp(logits, axis=axis, where=where) - found.take(0, axis=axis)
    return loss if where is None else jnp.where(jnp.any(where, axis), loss, 0.0)


def _canonical(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return axis % ndim


def _last(x: Any, axes: tuple[int, ...]) -> Any:
    """An array with some axes moved to the end and flattened to one."""
    axes = tuple(_canonical(a, x.ndim) for a in axes)
    rest = tuple(a for a in range(x.ndim) if a not in axes)
    x = x.transpose(rest + axes)
    return x.reshape(x.shape[: len(rest)] + (-1,))


def _weighted_log_softmax(x: Any, weights: Any) -> Any:
    logp = nn.log_softmax(x, axis=-1)
    return jnp.where(weights != 0.0, weights * logp, jnp.zeros_like(logp))


@custom_jvp
def weighted_logsoftmax(x: Any, weights: Any) -> Any:
    """`weights * log_softmax(x)` that is 0 where a weight is 0, even if the logarithm is infinite.

    >>> weighted_logsoftmax(jnp.array([-jnp.inf, 0.0]), jnp.array([0.0, 1.0])).tolist()
    [0.0, 0.0]
    """
    return _weighted_log_softmax(x, weights)


@weighted_logsoftmax.defjvp
def _weighted_logsoftmax_jvp(primals: Any, tangents: Any) -> Any:
    x, weights = primals
    dx, dweights = tangents
    mean = jnp.sum(dx * nn.softmax(x, axis=-1), axis=-1, keepdims=True)
    tangent = weights * dx - weights * mean + dweights * nn.log_softmax(x, axis=-1)
    return _weighted_log_softmax(x, weights), tangent


def safe_softmax_cross_entropy(logits: Any, labels: Any) -> Any:
    """`softmax_cross_entropy` over the last axis that allows logits of -inf where labels are 0.

    >>> logits = jnp.array([-jnp.inf, 0.0, 0.0])
    >>> round(float(safe_softmax_cross_entropy(logits, jnp.array([0.0, 1.0, 0.0]))), 4)
    0.6931
    """
    check_floating("safe_softmax_cross_entropy", logits=logits)
    return -jnp.sum(weighted_logsoftmax(logits, labels), axis=-1)


def poly_loss_cross_entropy(
    logits: Any, labels: Any, *, epsilon: Any = 2.0, axis: Axes = -1, where: Any = None
) -> Any:
    """The cross entropy plus epsilon times the probability missing from the labelled class.

    See https://arxiv.org/abs/2204.12511.

    >>> logits, labels = jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0])
    >>> round(float(poly_loss_cross_entropy(logits, labels)), 4)  # log(2) + 2 * 0.5
    1.6931
    """
    check_floating("poly_loss_cross_entropy", logits=logits, labels=labels)
    missing = labels * (1 - nn.softmax(logits, axis=axis, where=where))
    entropy = softmax_cross_entropy(logits, labels, axis=axis, where=where)
    return entropy + epsilon * jnp.sum(missing, axis=axis, where=where)
