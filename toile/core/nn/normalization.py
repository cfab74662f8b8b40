"""Batch, layer and group normalization as functions of a Scope.

`statistics` and `normalized` implement the mathematics, and the layers of
`toile.linen.normalization` also call them. The functions here compute the variance as
`E[x²] - E[x]²`, in one pass over the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.core.nn import initializers
from toile.core.scope import Scope
from toile.engine.annotations import Array, DTypeLike
from toile.engine.source import here

__all__ = ["batch_norm", "group_norm", "layer_norm"]


Axes = int | Sequence[int]

# Means of these dtypes are computed without conversion; `mean` widens narrower dtypes for the sum.
_WIDE = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))


def canonical_axes(rank: int, axes: Axes) -> tuple[int, ...]:
    """Axes as sorted, nonnegative numbers without duplicates."""
    if not isinstance(axes, Iterable):
        axes = (axes,)
    found = tuple(sorted({rank + axis if axis < 0 else axis for axis in axes}))
    if found and found[-1] >= rank:
        raise IndexError(
            f"tuple index out of range: needed axes in {-rank} ... {rank - 1} for an input of rank "
            f"{rank}, got axis {found[-1]} (count axes from 0, or from the last with -1){here()}"
        )
    return found


def _abs_sq(x: Any) -> Any:
    """|x|² of each element."""
    if x.dtype.kind == "c":
        return lax.square(lax.real(x)) + lax.square(lax.imag(x))
    return lax.square(x)


def _means(xs: Sequence[Any], axes: tuple[int, ...], mask: Any) -> list[Any]:
    """The mean of each of `xs` over `axes`, taken over the elements that `mask` selects."""
    shape = xs[0].shape
    if mask is not None:
        mask = jnp.broadcast_to(jnp.asarray(mask, dtype=bool), shape)
    if xs[0].dtype not in _WIDE:
        return [x.mean(axes, where=mask) for x in xs]
    if mask is None:
        count: Any = math.prod(shape[axis] for axis in axes)
    else:  # counted once for all of them
        count = lax.reduce_sum(lax.convert_element_type(mask, jnp.float32), axes)
        xs = [jnp.where(mask, x, 0) for x in xs]
    return [lax.reduce_sum(x, axes) / count for x in xs]


def statistics(
    x: Any, axes: tuple[int, ...], axis_name: Any = None, axis_index_groups: Any = None,
    use_mean: bool = True, use_fast_variance: bool = True, mask: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The mean and variance over `axes` and `axis_name`; if not `use_mean`, None and `E|x|²`.

    The fast variance `E|x|² - |E x|²` needs one pass over the data and, with several devices, one
    exchange."""

    def means(*xs: Any) -> list[Any]:
        found = _means(xs, axes, mask)
        if axis_name is None:
            return found
        both = found[0] if len(found) == 1 else jnp.stack(found)
        both = lax.pmean(both, axis_name, axis_index_groups=axis_index_groups)
        return [both] if len(found) == 1 else [both[i] for i in range(len(found))]

    if not use_mean:
        return None, means(_abs_sq(x))[0]
    if not use_fast_variance:
        (mean,) = means(x)
        centered = x - jnp.expand_dims(mean, axes)
        return mean, means(_abs_sq(centered))[0]
    mean, square = means(x, _abs_sq(x))
    # Round-off can make the difference negative.
    return mean, jnp.maximum(0.0, square - _abs_sq(mean))


def normalized(
    x: Any, stats: tuple[Any, Any], epsilon: float, kept: tuple[int, ...],
    features: tuple[int, ...], scale: Any = None, bias: Any = None,
) -> Any:  # fmt: skip
    """The result of `(x - mean) / sqrt(variance + epsilon) * scale + bias`.

    The statistics have the axes `kept` of `x`. The scale and the bias have the axes `features` of
    `x`."""
    mean, var = stats
    shape = x.shape
    mul, axes = lax.rsqrt(var + epsilon), kept
    if scale is not None and kept != features:  # multiply before there are many axes
        axes = tuple(sorted({*kept, *features}))
        common = tuple(shape[axis] for axis in axes)
        mul = _broadcast(mul, common, tuple(map(axes.index, kept)))
        scale = _broadcast(scale, common, tuple(map(axes.index, features)))
    if scale is not None:
        mul = mul * scale
    y = x if mean is None else x - _broadcast(mean, shape, kept)
    y = y * _broadcast(mul, shape, axes)
    return y if bias is None else y + _broadcast(bias, shape, features)


def _broadcast(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """`x` broadcast to `shape`; its axes become the axes `axes` of the result."""
    return x if len(axes) == len(shape) else lax.broadcast_in_dim(x, shape, axes)


def group_count(layer: str, num_groups: int | None, group_size: int | None, channels: int) -> int:
    """The number of groups, checked against the number of channels."""
    if (num_groups is None) == (group_size is None):
        raise ValueError(
            f"{layer}: Either `num_groups` or `group_size` should be specified, but not both of "
            f"them, got num_groups={num_groups}, group_size={group_size} (with `group_size` "
            f"pass `num_groups=None`, whose default is 32){here()}"
        )
    if group_size is not None:
        if channels % group_size != 0:
            raise ValueError(
                f"{layer}: Number of channels ({channels}) is not multiple of the group size "
                f"({group_size}) (choose a group_size that divides the channels).{here()}"
            )
        return channels // group_size
    groups: Any = num_groups
    if groups <= 0 or channels % groups != 0:
        raise ValueError(
            f"{layer}: Number of groups ({groups}) does not divide the number of channels "
            f"({channels}) (choose a num_groups that divides them).{here()}"
        )
    return groups


def batch_norm(
    scope: Scope,
    x: Array,
    use_running_average: bool = False,
    axis: int | tuple[int, ...] = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-5,
    dtype: DTypeLike = jnp.float32,
    bias: bool = True,
    scale: bool = True,
    bias_init: Callable[..., Any] = initializers.zeros,
    scale_init: Callable[..., Any] = initializers.ones,
    axis_name: str | None = None,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
    kind: str = "batch_stats",
) -> Array:
    """Normalize each feature with the statistics of the batch or with their running averages.

    Args:
        scope: scope that contains the parameters `scale` and `bias` and the running averages `mean`
            and `var`. The shape of each of these arrays consists of the sizes of the feature axes.
        x: array to normalize.
        use_running_average: whether to normalize with the running averages instead of the
            statistics of the batch. If False, each call updates the averages, except the call that
            creates them.
        axis: axis or axes of the features; the statistics are computed over all other axes.
        momentum: decay rate of the running averages, that is, the fraction of the old value that
            each update keeps.
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the result.
        bias: whether to add a bias.
        scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        axis_name: name of a mapped axis over which the statistics are also computed; None for no
            mapped axis.
        axis_index_groups: groups of indices of the mapped axis; each group has separate statistics.
            If `axis_index_groups` is None, there is a single group.
        kind: name of the collection that stores the running averages.

    Returns:
        An array with the shape of `x`.

    >>> from toile.core import init, nn
    >>> y, variables = init(nn.batch_norm)(key(0), jnp.ones((4, 3)))
    >>> toile.tree.map(jnp.shape, variables)
    {'batch_stats': {'mean': (3,), 'var': (3,)}, 'params': {'bias': (3,), 'scale': (3,)}}
    """
    x = jnp.asarray(x, jnp.float32)
    features = canonical_axes(x.ndim, axis)
    reduced = tuple(i for i in range(x.ndim) if i not in features)
    mean, var = statistics(x, reduced, axis_name, axis_index_groups)
    sizes, stored = mean.shape, tuple(size for size in mean.shape if size != 1)
    creating = not scope.has_variable(kind, "mean")
    average_mean = scope.variable(kind, "mean", jnp.zeros, stored)
    average_var = scope.variable(kind, "var", jnp.ones, stored)
    if use_running_average:
        mean = jnp.reshape(average_mean.value, sizes)
        var = jnp.reshape(average_var.value, sizes)
    elif not creating:
        step = 1.0 - momentum
        for average, now in ((average_mean, mean), (average_var, var)):
            average.value += step * (jnp.reshape(now, stored) - average.value)
    factor = scope.param("scale", scale_init, stored).reshape(sizes) if scale else None
    offset = scope.param("bias", bias_init, stored).reshape(sizes) if bias else None
    y = normalized(x, (mean, var), epsilon, features, features, factor, offset)
    return jnp.asarray(y, dtype)


def layer_norm(
    scope: Scope,
    x: Array,
    epsilon: float = 1e-6,
    dtype: DTypeLike = jnp.float32,
    bias: bool = True,
    scale: bool = True,
    bias_init: Callable[..., Any] = initializers.zeros,
    scale_init: Callable[..., Any] = initializers.ones,
) -> Any:
    """Normalize an array over its last axis.

    Args:
        scope: scope that contains the parameters `scale` and `bias`, which have the size of the
            last axis.
        x: array with at least one axis.
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the scale and the bias in the computation.
        bias: whether to add a bias.
        scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.

    Returns:
        An array with the shape of `x`.

    >>> from toile.core import init, nn
    >>> y, variables = init(nn.layer_norm)(key(0), jnp.arange(6.0).reshape(2, 3))
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (3,), 'scale': (3,)}}
    >>> y.round(3)
    Array([[-1.225,  0.   ,  1.225],
           [-1.225,  0.   ,  1.225]], dtype=float32)
    """
    last, sizes = x.ndim - 1, x.shape[-1:]
    factor = jnp.asarray(scope.param("scale", scale_init, sizes), dtype) if scale else None
    offset = jnp.asarray(scope.param("bias", bias_init, sizes), dtype) if bias else None
    stats = statistics(x, (last,))
    return normalized(x, stats, epsilon, tuple(range(last)), (last,), factor, offset)


def group_norm(
    scope: Scope,
    x: Array,
    num_groups: int | None = 32,
    group_size: int | None = None,
    epsilon: float = 1e-6,
    dtype: DTypeLike = jnp.float32,
    bias: bool = True,
    scale: bool = True,
    bias_init: Callable[..., Any] = initializers.zeros,
    scale_init: Callable[..., Any] = initializers.ones,
) -> Any:
    """Normalize each group of channels over all axes except the batch axis.

    Args:
        scope: scope that contains the parameters `scale` and `bias`, of shape (1, ..., 1,
            channels).
        x: array of shape (batch, ..., channels).
        num_groups: number of groups; must be None if `group_size` is given.
        group_size: number of channels in each group; if it is given, `num_groups` must be None.
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the result.
        bias: whether to add a bias.
        scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.

    Returns:
        An array with the shape of `x`.

    >>> from toile.core import init, nn
    >>> y, variables = init(nn.group_norm)(key(0), jnp.ones((2, 5, 6)), num_groups=3)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (1, 1, 6), 'scale': (1, 1, 6)}}
    """
    x = jnp.asarray(x, jnp.float32)
    channels, last = x.shape[-1], x.ndim - 1
    groups = group_count("group_norm", num_groups, group_size, channels)
    split = (groups, channels // groups)
    # In the shape (..., group, channel of the group) statistics broadcast without copies.
    grouped = x.reshape(*x.shape[:-1], *split)
    sizes = (*(1 for _ in range(last)), channels)
    factor = scope.param("scale", scale_init, sizes).reshape(split) if scale else None
    offset = scope.param("bias", bias_init, sizes).reshape(split) if bias else None
    stats = statistics(grouped, (*range(1, last), last + 1))
    kept = tuple(sorted({0, last}))
    y = normalized(grouped, stats, epsilon, kept, (last, last + 1), factor, offset)
    return y.reshape(x.shape).astype(dtype)
