"""Labels made less certain."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile.optim.losses.checks import Axes, check_floating

__all__ = ["smooth_labels"]


def smooth_labels(labels: Any, alpha: Any, *, axis: Axes = -1, where: Any = None) -> Any:
    """One-hot labels mixed with the uniform distribution, which gets the weight alpha.

    >>> [round(float(x), 4) for x in smooth_labels(jnp.array([0.0, 1.0]), 0.2)]
    [0.1, 0.9]
    """
    check_floating("smooth_labels", labels=labels)
    if where is None:
        classes = jnp.size(labels, axis)
    else:
        classes = jnp.sum(where, axis, keepdims=True)
    return (1.0 - alpha) * labels + alpha / classes
