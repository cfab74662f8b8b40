"""Batch, layer and group normalization as functions of a Scope.

All take the variance as E[x²] - E[x]², which needs one pass over the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.core.nn import initializers
from toile.core.scope import Scope
from toile.engine.source import here

__all__ = ["batch_norm", "group_norm", "layer_norm"]


def _moments(mean_of: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """Mean and variance, by a function that takes the mean over some axes."""
    mean = mean_of(x)
    return mean, mean_of(lax.square(x)) - lax.square(mean)


def batch_norm(
    scope: Scope,
    x: Any,
    use_running_average: bool = False,
    axis: int | tuple[int, ...] = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-5,
    dtype: Any = jnp.float32,
    bias: bool = True,
    scale: bool = True,
    bias_init: Any = initializers.zeros,
    scale_init: Any = initializers.ones,
    axis_name: str | None = None,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    kind: str = "batch_stats",
) -> Any:
    """Normalize with the statistics of the batch, or with their running averages.

    `axis` are the axes of features, which keep statistics of their own; the averages are the
    variables 'mean' and 'var' of the collection `kind`. With `axis_name`, means are taken over a
    mapped axis too.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> y, variables = init(nn.batch_norm)(toile.random.key(0), jnp.ones((4, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'batch_stats': {'mean': (3,), 'var': (3,)}, 'params': {'bias': (3,), 'scale': (3,)}}
    """
    x = jnp.asarray(x, jnp.float32)
    axes = axis if isinstance(axis, tuple) else (axis,)
    kept = {a + x.ndim if a < 0 else a for a in axes}
    reduced = tuple(i for i in range(x.ndim) if i not in kept)

    def mean_of(values: Any) -> Any:
        m = jnp.mean(values, reduced, keepdims=True)
        if axis_name is None:
            return m
        return lax.pmean(m, axis_name=axis_name, axis_index_groups=axis_index_groups)

    mean, var = _moments(mean_of, x)
    broadcast, stored = mean.shape, tuple(size for size in mean.shape if size != 1)
    creating = not scope.has_variable(kind, "mean")
    average_mean = scope.variable(kind, "mean", jnp.zeros, stored)
    average_var = scope.variable(kind, "var", jnp.ones, stored)
    if use_running_average:
        mean = jnp.reshape(average_mean.value, broadcast)
        var = jnp.reshape(average_var.value, broadcast)
    elif not creating:
        step = 1.0 - momentum
        for average, now in ((average_mean, mean), (average_var, var)):
            average.value += step * (jnp.reshape(now, stored) - average.value)
    factor = lax.rsqrt(var + epsilon)
    if scale:
        factor = factor * scope.param("scale", scale_init, stored).reshape(broadcast)
    y = (x - mean) * factor
    if bias:
        y = y + scope.param("bias", bias_init, stored).reshape(broadcast)
    return jnp.asarray(y, dtype)


def layer_norm(
    scope: Scope,
    x: Any,
    epsilon: float = 1e-6,
    dtype: Any = jnp.float32,
    bias: bool = True,
    scale: bool = True,
    bias_init: Any = initializers.zeros,
    scale_init: Any = initializers.ones,
) -> Any:
    """Normalize every example over its features, the last axis.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> y, variables = init(nn.layer_norm)(toile.random.key(0), jnp.arange(6.0).reshape(2, 3))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (3,), 'scale': (3,)}}
    >>> y.round(3)
    Array([[-1.225,  0.   ,  1.225],
           [-1.225,  0.   ,  1.225]], dtype=float32)
    """
    features = x.shape[-1:]
    mean, var = _moments(lambda values: jnp.mean(values, axis=-1, keepdims=True), x)
    factor = lax.rsqrt(var + epsilon)
    if scale:
        factor = factor * jnp.asarray(scope.param("scale", scale_init, features), dtype)
    y = (x - mean) * factor
    if bias:
        y = y + jnp.asarray(scope.param("bias", bias_init, features), dtype)
    return y


def group_norm(
    scope: Scope,
    x: Any,
    num_groups: int | None = 32,
    group_size: int | None = None,
    epsilon: float = 1e-6,
    dtype: Any = jnp.float32,
    bias: bool = True,
    scale: bool = True,
    bias_init: Any = initializers.zeros,
    scale_init: Any = initializers.ones,
) -> Any:
    """Normalize every example over groups of channels and the axes between batch and channels.

    Give either the number of groups or, with num_groups=None, the channels in each.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import init, nn
    >>> y, variables = init(nn.group_norm)(toile.random.key(0), jnp.ones((2, 5, 6)), num_groups=3)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (1, 1, 6), 'scale': (1, 1, 6)}}
    """
    x = jnp.asarray(x, jnp.float32)
    shape, channels = x.shape, x.shape[-1]
    groups = _groups(channels, num_groups, group_size)
    x = x.reshape(*shape[:-1], groups, channels // groups)
    axes = (*range(1, x.ndim - 2), x.ndim - 1)
    mean, var = _moments(lambda values: jnp.mean(values, axis=axes, keepdims=True), x)
    y = ((x - mean) * lax.rsqrt(var + epsilon)).reshape(shape)
    features = (*(1 for _ in shape[:-1]), channels)
    if scale:
        y = y * scope.param("scale", scale_init, features)
    if bias:
        y = y + scope.param("bias", bias_init, features)
    return y.astype(dtype)


def _groups(channels: int, num_groups: int | None, group_size: int | None) -> int:
    """The number of groups, from whichever of the two options is given."""
    if (num_groups is None) == (group_size is None):
        raise ValueError(
            "group_norm: Either `num_groups` or `group_size` should be specified, but not both of "
            f"them, got num_groups={num_groups} and group_size={group_size}{here()}"
        )
    if group_size is None:
        return num_groups  # type: ignore[return-value]
    if channels % group_size:
        raise ValueError(
            f"group_norm: Number of channels ({channels}) is not multiple of the group size "
            f"({group_size}){here()}"
        )
    return channels // group_size
