"""Checks of the losses' arguments; Python numbers and lists are treated as arrays."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile.engine.broadcasts import check_pair
from toile.engine.source import here
from toile.primitives.bounds import bounded

__all__ = [
    "check_broadcast", "check_dtype", "check_floating", "check_rank", "check_same_shape",
    "labels_within",
]

Axes = int | tuple[int, ...] | None


def check_dtype(name: str, kind: Any, **arrays: Any) -> None:
    """Raise TypeError unless the dtype of each array is of a given kind, such as `jnp.floating`."""
    for argument, x in arrays.items():
        dtype = jnp.result_type(x)
        if not jnp.issubdtype(dtype, kind):
            raise TypeError(
                f"{name}: needed {argument} with a subdtype of {kind.__name__}, got {dtype}{here()}"
            )


def check_floating(name: str, **arrays: Any) -> None:
    """Raise TypeError unless each array has a floating-point dtype."""
    check_dtype(name, jnp.floating, **arrays)


def check_same_shape(name: str, **arrays: Any) -> None:
    """Raise ValueError unless all arrays have the same shape, to avoid accidental broadcasting."""
    shapes = {argument: jnp.shape(x) for argument, x in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(
            f"{name}: shape mismatch: needed equal shapes, got {shapes} (reshape or slice one of "
            f"them, so that every prediction has a target){here()}"
        )


def check_broadcast(name: str, **arrays: Any) -> None:
    """Warn if two arrays of different rank are both broadcast, such as (N, 1) against (N,)."""
    check_pair(name, **{argument: jnp.shape(x) for argument, x in arrays.items()})


def check_rank(name: str, rank: int, **arrays: Any) -> None:
    """Raise ValueError unless each array has the given number of axes."""
    for argument, x in arrays.items():
        if jnp.ndim(x) != rank:
            raise ValueError(
                f"{name}: needed {argument} of rank {rank}, got {jnp.shape(x)}{here()}"
            )


def labels_within(name: str, labels: Any, classes: int) -> Any:
    """Return the labels; check that each integer label is the index of one of `classes` classes."""
    labels = jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        return labels
    return bounded(labels, 0, classes - 1, name, lambda i: (
        f"{name}: label {i} is out of bounds for {classes} classes: no class is counted as the "
        f"correct one (needed labels in 0 ... {classes - 1})"))
