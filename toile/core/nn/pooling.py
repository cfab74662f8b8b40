"""Pooling: the sum, mean, maximum or minimum of windows over the axes between batch and features.

Each function calls `lax.reduce_window`. Inputs have shape (*batch, *space, features), and the
number of batch axes may be zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here

__all__ = ["avg_pool", "max_pool", "min_pool", "pool"]


def pool(
    inputs: Array,
    init: ArrayLike,
    reduce_fn: Callable[[Any, Any], Any],
    window_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: str | Sequence[tuple[int, int]],
) -> Array:
    """Reduce every window over the spatial axes to one value.

    Inputs have shape (*batch, *space, features), with one spatial axis for each entry of
    `window_shape`. The number of batch axes is arbitrary and may be zero.

    Args:
        inputs: array to pool.
        init: value with which the reduction of each window starts; it must be the identity element
            of `reduce_fn`.
        reduce_fn: function `f(x, y)` that combines two values, such as `toile.lax.add`.
        window_shape: size of the window along each spatial axis.
        strides: step between windows along each spatial axis; if None, 1.
        padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial axis. Padding has the
            value `init`.

    Returns:
        An array of shape (*batch, *new space, features).

    Raises:
        AssertionError: the window, the strides or the padding does not match the input.

    >>> import toile.linen as nn
    >>> nn.pool(jnp.arange(6.0).reshape(1, 6, 1), 0.0, lax.add, (2,), (2,), "VALID").ravel()
    Array([1., 5., 9.], dtype=float32)
    """
    if isinstance(window_shape, int) or strides and isinstance(strides, int):
        raise TypeError(
            "pool: needed a size for each spatial axis, got the window "
            f"{window_shape} and strides {strides} for an input of shape {inputs.shape} (write "
            f"window_shape=(2, 2), strides=(2, 2) for images){here()}"
        )
    window = tuple(window_shape)
    strides = tuple(strides) if strides else (1,) * len(window)
    _check("as many strides as window axes", len(strides) == len(window), strides, window)
    batch = inputs.ndim - len(window) - 1
    single = batch == 0
    if single:
        inputs, batch = inputs[None], 1
    _check("window axes and an axis of features", batch > 0, inputs.shape, window)
    if not isinstance(padding, str):
        pairs: tuple[Any, ...] = tuple(map(tuple, padding))
        _check("a pair for each window axis", len(pairs) == len(window), pairs, window)
        _check("pairs (low, high)", all(len(pair) == 2 for pair in pairs), pairs, window)
        padding = ((0, 0),) * batch + pairs + ((0, 0),)
    dims, strides = (1,) * batch + window + (1,), (1,) * batch + strides + (1,)
    y = lax.reduce_window(inputs, init, reduce_fn, dims, strides, padding)
    return lax.squeeze(y, (0,)) if single else y


def _check(needed: str, holds: bool, got: Any, window: tuple[int, ...]) -> None:
    if not holds:
        raise AssertionError(f"pool: needed {needed}, got {got} with the window {window} "
                             "(inputs are (batch, *space, features), and the window has the "
                             f"spatial axes only){here()}")


def avg_pool(
    inputs: Array,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """Compute the mean of every window over the spatial axes.

    Inputs have shape (*batch, *space, features), with one spatial axis for each entry of
    `window_shape`. The number of batch axes is arbitrary and may be zero.

    Args:
        inputs: array to pool.
        window_shape: size of the window along each spatial axis.
        strides: step between windows along each spatial axis; 1 by default.
        padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial axis.
        count_include_pad: whether padding counts as zeros in the mean. If False, the mean is taken
            only over the elements that are not padding.

    Returns:
        An array of shape (*batch, *new space, features).

    >>> import toile.linen as nn
    >>> nn.avg_pool(jnp.arange(6.0).reshape(1, 6, 1), (2,), strides=(2,)).ravel()
    Array([0.5, 2.5, 4.5], dtype=float32)
    """
    y = pool(inputs, 0.0, lax.add, window_shape, strides, padding)
    if count_include_pad:
        return y / math.prod(window_shape)
    shape = (*inputs.shape[:-1], 1)  # the counts are the same for all features and examples
    if len(shape) - 2 == len(window_shape):
        shape = (1, *shape[1:])
    return y / pool(jnp.ones(shape), 0.0, lax.add, window_shape, strides, padding)


def max_pool(
    inputs: Array,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
) -> Array:
    """Compute the maximum of every window over the spatial axes.

    Inputs have shape (*batch, *space, features), with one spatial axis for each entry of
    `window_shape`. The number of batch axes is arbitrary and may be zero.

    Args:
        inputs: array to pool.
        window_shape: size of the window along each spatial axis.
        strides: step between windows along each spatial axis; 1 by default.
        padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial axis. Padding has the
            value -inf.

    Returns:
        An array of shape (*batch, *new space, features).

    >>> import toile.linen as nn
    >>> nn.max_pool(jnp.arange(5.0).reshape(1, 5, 1), (3,), padding="SAME").ravel()
    Array([1., 2., 3., 4., 4.], dtype=float32)
    """
    return pool(inputs, -jnp.inf, lax.max, window_shape, strides, padding)


def min_pool(
    inputs: Array,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
) -> Array:
    """Compute the minimum of every window over the spatial axes.

    Inputs have shape (*batch, *space, features), with one spatial axis for each entry of
    `window_shape`. The number of batch axes is arbitrary and may be zero.

    Args:
        inputs: array to pool.
        window_shape: size of the window along each spatial axis.
        strides: step between windows along each spatial axis; 1 by default.
        padding: `"SAME"`, `"VALID"`, or a pair (low, high) for each spatial axis. Padding has the
            value inf.

    Returns:
        An array of shape (*batch, *new space, features).

    >>> from toile.linen.pooling import min_pool
    >>> min_pool(jnp.arange(5.0).reshape(1, 5, 1), (3,), padding="SAME").ravel()
    Array([0., 0., 1., 2., 3.], dtype=float32)
    """
    return pool(inputs, jnp.inf, lax.min, window_shape, strides, padding)
