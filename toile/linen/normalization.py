"""Normalization layers: BatchNorm, LayerNorm, RMSNorm, GroupNorm, InstanceNorm.

They differ in the axes over which the statistics are computed. The computations themselves are
implemented in `toile.core.nn.normalization`. The statistics are computed in at least float32,
unless `force_float32_reductions` is False. SpectralNorm and WeightNorm, which normalize the
parameters of another layer, are in `weight_normalization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toile import numpy as jnp
from toile.core.nn.normalization import Axes, canonical_axes, group_count, normalized, statistics
from toile.engine.extra_warnings import doubt
from toile.engine.lazy import attach_table, names_of
from toile.engine.source import here
from toile.errors import ModifyScopeVariableError
from toile.linen.dtypes import canonicalize_dtype
from toile.linen.methods import compact
from toile.linen.module import Module, merge_param
from toile.nn import initializers
from toile.nn.initializers import Initializer
from toile.typing import Array, Dtype

if TYPE_CHECKING:
    from toile.linen.transforms import map_variables
    from toile.linen.weight_normalization import SpectralNorm, WeightNorm

_ELSEWHERE = {
    "toile.linen.transforms": "map_variables",
    "toile.linen.weight_normalization": "SpectralNorm WeightNorm",
}
__getattr__, __dir__ = attach_table(__name__, names_of(_ELSEWHERE))

__all__ = [
    "BatchNorm", "GroupNorm", "Initializer", "InstanceNorm", "LayerNorm", "Module", "RMSNorm",
    "SpectralNorm", "WeightNorm", "canonicalize_dtype", "compact", "map_variables", "merge_param",
]  # fmt: skip


def _stats(
    x: Any, axes: Axes, dtype: Any, axis_name: Any = None, axis_index_groups: Any = None,
    use_mean: bool = True, use_fast_variance: bool = True, mask: Any = None,
    force_float32_reductions: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Call `statistics` with the input converted to the dtype of the computation."""
    x = jnp.asarray(x)
    if dtype is None:
        dtype = x.dtype
    if force_float32_reductions and dtype != np.float32:
        dtype = jnp.promote_types(dtype, jnp.float32)
    x = x.astype(dtype)
    return statistics(
        x, canonical_axes(x.ndim, axes), axis_name, axis_index_groups, use_mean,
        use_fast_variance, mask,
    )  # fmt: skip


def _normalized(
    layer: Any, x: Any, stats: tuple[Any, Any], kept: tuple[int, ...],
    features: tuple[int, ...], sizes: tuple[int, ...], use_bias: bool,
) -> Any:  # fmt: skip
    """Call `normalized` with parameters of shape `sizes`, and convert to the layer's dtype."""
    if layer.epsilon.__class__ is int and layer.epsilon >= 1:
        kind = type(layer).__name__
        doubt(ValueError(
            f"{kind}: needed a small epsilon, got epsilon={layer.epsilon} for an input of shape "
            f"{x.shape} (the number of features is inferred: write {kind}()){here()}"
        ))
    scale = bias = None
    if layer.use_scale:
        scale = _parameter(layer, "scale", layer.scale_init, sizes, x.shape, features)
    if use_bias:
        bias = _parameter(layer, "bias", layer.bias_init, sizes, x.shape, features)
    y = normalized(x, stats, layer.epsilon, kept, features, scale, bias)
    # The result's dtype is at least that of x and at most that of y.
    if layer.dtype is None and x.dtype == y.dtype and not y.weak_type:
        return y
    return jnp.asarray(y, canonicalize_dtype(x, scale, bias, dtype=layer.dtype))


def _parameter(
    layer: Any, name: str, init: Any, sizes: tuple[int, ...], shape: Any, features: tuple[int, ...]
) -> Any:
    """A parameter of shape `sizes`, reshaped to the sizes of the axes `features`."""
    value = layer.param(name, init, sizes, layer.param_dtype)
    if len(sizes) != len(features):
        value = value.reshape([shape[axis] for axis in features])
    return value if layer.force_float32_reductions else jnp.asarray(value, layer.param_dtype)


def _layer_stats(layer: Any, x: Any, axes: Axes, mask: Any, use_mean: bool = True) -> Any:
    """Call `_stats` with the fields of a layer."""
    return _stats(
        x, axes, layer.dtype, layer.axis_name, layer.axis_index_groups, use_mean,
        layer.use_fast_variance, mask, layer.force_float32_reductions,
    )  # fmt: skip


def _normalize_along(
    layer: Any, x: Any, stats: Any, axes: tuple[int, ...], features: tuple[int, ...], use_bias: bool
) -> Any:
    """Normalize with statistics over `axes` and a scale and bias along `features`."""
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    sizes = tuple(x.shape[axis] for axis in features)
    return _normalized(layer, x, stats, kept, features, sizes, use_bias)


class BatchNorm(Module):
    """Normalizes each feature over the batch, and keeps running averages for evaluation.

    In training, the layer normalizes with the mean and the variance of the batch and updates their
    running averages in the collection `batch_stats`; this requires `mutable=["batch_stats"]`. In
    evaluation, the layer normalizes with the running averages and does not change them. `init` does
    not update them either.

    The result has the shape of the input. The shape of the parameters `scale` and `bias` and of the
    running averages `mean` and `var` consists of the sizes of the axes in `axis`.

    Args:
        use_running_average: whether to normalize with the running averages instead of the
            statistics of the batch: True in evaluation, False in training. Pass this option either
            here or in the call.
        axis: axis or axes of the features; the statistics are computed over all other axes.
        momentum: decay rate of the running averages, that is, the fraction of the old value that
            each update keeps.
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether to add a bias.
        use_scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        axis_name: name of a mapped axis (of `vmap` or `pmap`) over which the statistics are also
            computed, so that all devices use the same statistics; None for no mapped axis.
        axis_index_groups: groups of indices of the mapped axis. Each group has separate statistics.
            If `axis_index_groups` is None, there is a single group.
        use_fast_variance: whether to compute the variance in one pass as `E[x²] - E[x]²`, which is
            faster but less accurate than computing `E[(x - E[x])²]`.
        force_float32_reductions: whether to compute the statistics with at least float32 precision.

    Raises:
        toile.errors.ModifyScopeVariableError: `use_running_average` is False, and `batch_stats` is
            not mutable.

    >>> import toile.linen as nn
    >>> x = toile.random.normal(key(0), (5, 6))
    >>> model = nn.BatchNorm(momentum=0.9)
    >>> variables = model.init(key(1), x, use_running_average=False)
    >>> toile.tree.map(jnp.shape, variables)
    {'batch_stats': {'mean': (6,), 'var': (6,)}, 'params': {'bias': (6,), 'scale': (6,)}}
    >>> y, updated = model.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
    >>> y.mean(0).round(4) + 0
    Array([0., 0., 0., 0., 0., 0.], dtype=float32)
    >>> model.apply({**variables, **updated}, x, use_running_average=True).shape
    (5, 6)
    """

    use_running_average: bool | None = None
    axis: Axes = -1
    momentum: float = 0.99
    epsilon: float = 1e-5
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = initializers.zeros
    scale_init: Initializer = initializers.ones
    axis_name: str | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(
        self, x: Array, use_running_average: bool | None = None, *, mask: Array | None = None
    ) -> Array:
        """Normalize `x`.

        Args:
            x: array to normalize, which must have the axes in `axis`.
            use_running_average: whether to normalize with the running averages; if None, the
                layer's field is used.
            mask: array that broadcasts to the shape of `x`. Only elements for which the mask is
                true are included in the statistics. If `mask` is None, all elements are included.

        Returns:
            An array with the shape of `x`.
        """
        use_running_average = merge_param(
            "use_running_average", self.use_running_average, use_running_average
        )
        if use_running_average.__class__ is int and use_running_average > 1:
            doubt(ValueError(
                "BatchNorm: needed True or False for use_running_average, got "
                f"{use_running_average} (the number of features is inferred: write "
                f"BatchNorm(use_running_average=not train)){here()}"
            ))
        x = jnp.asarray(x)
        features = canonical_axes(x.ndim, self.axis)
        axes = tuple(i for i in range(x.ndim) if i not in features)
        sizes = tuple(x.shape[axis] for axis in features)
        exact = not self.force_float32_reductions
        kept_dtype = self.param_dtype if exact else jnp.float32
        kept_mean = self.variable("batch_stats", "mean", jnp.zeros, sizes, kept_dtype)
        kept_var = self.variable("batch_stats", "var", jnp.ones, sizes, kept_dtype)
        if use_running_average:
            mean, var = kept_mean.value, kept_var.value
            if exact:
                mean, var = (jnp.asarray(s, self.param_dtype) for s in (mean, var))
        else:
            initializing = self.is_initializing()
            if not initializing and not self.is_mutable_collection("batch_stats"):
                raise ModifyScopeVariableError(
                    "batch_stats", "mean", self.scope.path_text, type(self).__name__
                )
            mean, var = _stats(
                x, axes, self.dtype, None if initializing else self.axis_name,
                self.axis_index_groups, True, self.use_fast_variance, mask,
                self.force_float32_reductions,
            )  # fmt: skip
            if not initializing:
                old, new = self.momentum, 1 - self.momentum
                kept_mean.value = old * kept_mean.value + new * mean
                kept_var.value = old * kept_var.value + new * var
        return _normalize_along(self, x, (mean, var), axes, features, self.use_bias)


class LayerNorm(Module):
    """Normalizes each example over its features.

    The result has the shape of the input. Before the scale and the bias are applied, it has mean 0
    and variance 1 over `reduction_axes`. The shape of the parameters `scale` and `bias` consists of
    the sizes of the axes in `feature_axes`.

    Args:
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether to add a bias.
        use_scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        reduction_axes: axis or axes over which the statistics are computed.
        feature_axes: axis or axes along which the scale and the bias vary.
        axis_name: name of a mapped axis (of `vmap` or `pmap`) over which the statistics are also
            computed; None for no mapped axis.
        axis_index_groups: groups of indices of the mapped axis. Each group has separate statistics.
            If `axis_index_groups` is None, there is a single group.
        use_fast_variance: whether to compute the variance in one pass as `E[x²] - E[x]²`, which is
            faster but less accurate than computing `E[(x - E[x])²]`.
        force_float32_reductions: whether to compute the statistics with at least float32 precision.

    >>> import toile.linen as nn
    >>> x = toile.random.normal(key(0), (3, 4, 5))
    >>> variables = nn.LayerNorm().init(key(1), x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (5,), 'scale': (5,)}}
    >>> y = nn.LayerNorm(reduction_axes=(1, 2)).apply(variables, x)
    >>> y.mean((1, 2)).round(4) + 0
    Array([0., 0., 0.], dtype=float32)
    """

    epsilon: float = 1e-6
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = initializers.zeros
    scale_init: Initializer = initializers.ones
    reduction_axes: Axes = -1
    feature_axes: Axes = -1
    axis_name: str | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalize `x`.

        Args:
            x: array to normalize, which must have the axes in `reduction_axes` and `feature_axes`.
            mask: array that broadcasts to the shape of `x`. Only elements for which the mask is
                true are included in the statistics. If `mask` is None, all elements are included.

        Returns:
            An array with the shape of `x`.
        """
        x = jnp.asarray(x)
        axes = canonical_axes(x.ndim, self.reduction_axes)
        features = canonical_axes(x.ndim, self.feature_axes)
        stats = _layer_stats(self, x, axes, mask)
        return _normalize_along(self, x, stats, axes, features, self.use_bias)


class RMSNorm(Module):
    """Divides each example by the root mean square of its features, without centering.

    The result has the shape of the input. The shape of the parameter `scale` consists of the sizes
    of the axes in `feature_axes`.

    Args:
        epsilon: small number that is added to the mean square to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the scale when it is created.
        use_scale: whether to multiply the result by a scale.
        scale_init: initializer of the scale.
        reduction_axes: axis or axes over which the mean square is computed.
        feature_axes: axis or axes along which the scale varies.
        axis_name: name of a mapped axis (of `vmap` or `pmap`) over which the mean square is also
            computed; None for no mapped axis.
        axis_index_groups: groups of indices of the mapped axis. Each group has a separate mean
            square. If `axis_index_groups` is None, there is a single group.
        use_fast_variance: not used, since the mean is not subtracted.
        force_float32_reductions: whether to compute the mean square with at least float32
            precision.

    >>> import toile.linen as nn
    >>> x = toile.random.normal(key(0), (5, 6))
    >>> variables = nn.RMSNorm().init(key(1), x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'scale': (6,)}}
    >>> y = nn.RMSNorm().apply(variables, x)
    >>> (y * y).mean(1).round(4)
    Array([1., 1., 1., 1., 1.], dtype=float32)
    """

    epsilon: float = 1e-6
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    use_scale: bool = True
    scale_init: Initializer = initializers.ones
    reduction_axes: Axes = -1
    feature_axes: Axes = -1
    axis_name: str | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalize `x`.

        Args:
            x: array to normalize, which must have the axes in `reduction_axes` and `feature_axes`.
            mask: array that broadcasts to the shape of `x`. Only elements for which the mask is
                true are included in the mean square. If `mask` is None, all elements are included.

        Returns:
            An array with the shape of `x`.
        """
        x = jnp.asarray(x)
        axes = canonical_axes(x.ndim, self.reduction_axes)
        features = canonical_axes(x.ndim, self.feature_axes)
        stats = _layer_stats(self, x, axes, mask, use_mean=False)
        return _normalize_along(self, x, stats, axes, features, False)


class GroupNorm(Module):
    """Normalizes groups of channels in each example, over all axes except the batch axis.

    The first axis is the batch axis, and the last axis contains the channels. The result has the
    shape of the input. The parameters `scale` and `bias` have shape (channels,).

    Args:
        num_groups: number of groups; must be None if `group_size` is given.
        group_size: number of channels in each group; must be None if `num_groups` is given.
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether to add a bias.
        use_scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        reduction_axes: axes over which the statistics are computed; they must include the last
            axis. If `reduction_axes` is None, all axes except the first are used. Set
            `reduction_axes` for inputs with several batch axes.
        axis_name: name of a mapped axis (of `vmap` or `pmap`) over which the statistics are also
            computed; None for no mapped axis.
        axis_index_groups: groups of indices of the mapped axis. Each group has separate statistics.
            If `axis_index_groups` is None, there is a single group.
        use_fast_variance: whether to compute the variance in one pass as `E[x²] - E[x]²`, which is
            faster but less accurate than computing `E[(x - E[x])²]`.
        force_float32_reductions: whether to compute the statistics with at least float32 precision.

    Raises:
        ValueError: both or neither of `num_groups` and `group_size` are given, the number of
            channels is not a multiple of the argument that is given, or `reduction_axes` does not
            include the last axis.

    >>> import toile.linen as nn
    >>> x = toile.random.normal(key(0), (3, 4, 5, 6))
    >>> variables = nn.GroupNorm(num_groups=3).init(key(1), x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (6,), 'scale': (6,)}}
    >>> y = nn.GroupNorm(num_groups=3).apply(variables, x)
    >>> y[..., :2].mean((1, 2, 3)).round(4) + 0  # the first group
    Array([0., 0., 0.], dtype=float32)
    """

    num_groups: int | None = 32
    group_size: int | None = None
    epsilon: float = 1e-6
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = initializers.zeros
    scale_init: Initializer = initializers.ones
    reduction_axes: Axes | None = None
    axis_name: str | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalize `x`.

        Args:
            x: array of shape (batch, ..., channels).
            mask: array that broadcasts to the shape of `x`; its last axis must have the size of the
                last axis of `x`. Only elements for which the mask is true are included in the
                statistics. If `mask` is None, all elements are included.

        Returns:
            An array with the shape of `x`.
        """
        x = jnp.asarray(x)
        axes = self.reduction_axes
        axes = canonical_axes(x.ndim, (*range(1, x.ndim - 1), -1) if axes is None else axes)
        if axes[-1] != x.ndim - 1:
            raise ValueError(
                "GroupNorm: The reduction axes must include the final dimension as this is assumed "
                f"to be the feature axis: got {self.reduction_axes} of {x.ndim} axes{here()}"
            )
        channels = x.shape[-1]
        groups = group_count("GroupNorm", self.num_groups, self.group_size, channels)
        # In the shape (..., group, channel of the group) statistics broadcast without copies.
        split = (groups, channels // groups)
        grouped = x.reshape((*x.shape[:-1], *split))
        if mask is not None:
            mask = mask.reshape((*mask.shape[:-1], *split))
        axes = (*axes[:-1], x.ndim)
        kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
        stats = _layer_stats(self, grouped, axes, mask)
        features = (x.ndim - 1, x.ndim)
        y = _normalized(self, grouped, stats, kept, features, (channels,), self.use_bias)
        return y.reshape(x.shape)


class InstanceNorm(Module):
    """Normalizes each channel of each example over all axes except the batch and channel axes.

    The first axis of the input is the batch axis. The result has the shape of the input. The shape
    of the parameters `scale` and `bias` consists of the sizes of the axes in `feature_axes`.

    Args:
        epsilon: small number that is added to the variance to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether to add a bias.
        use_scale: whether to multiply the result by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        feature_axes: axis or axes of the channels; the statistics are computed over all other axes
            except the first.
        axis_name: name of a mapped axis (of `vmap` or `pmap`) over which the statistics are also
            computed; None for no mapped axis.
        axis_index_groups: groups of indices of the mapped axis. Each group has separate statistics.
            If `axis_index_groups` is None, there is a single group.
        use_fast_variance: whether to compute the variance in one pass as `E[x²] - E[x]²`, which is
            faster but less accurate than computing `E[(x - E[x])²]`.
        force_float32_reductions: whether to compute the statistics with at least float32 precision.

    Raises:
        ValueError: `feature_axes` includes the first axis.

    >>> import toile.linen as nn
    >>> x = toile.random.normal(key(0), (2, 3, 4, 5))  # batch, height, width, channels
    >>> variables = nn.InstanceNorm().init(key(1), x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'bias': (5,), 'scale': (5,)}}
    >>> y = nn.InstanceNorm().apply(variables, x)
    >>> y.mean((1, 2)).round(4)[0] + 0
    Array([0., 0., 0., 0., 0.], dtype=float32)
    """

    epsilon: float = 1e-6
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = initializers.zeros
    scale_init: Initializer = initializers.ones
    feature_axes: Axes = -1
    axis_name: str | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = True
    force_float32_reductions: bool = True

    @compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """Normalize `x`.

        Args:
            x: array of shape (batch, ...), which must have the axes in `feature_axes`.
            mask: array that broadcasts to the shape of `x`. Only elements for which the mask is
                true are included in the statistics. If `mask` is None, all elements are included.

        Returns:
            An array with the shape of `x`.
        """
        x = jnp.asarray(x)
        features = canonical_axes(x.ndim, self.feature_axes)
        if 0 in features:
            raise ValueError(
                "InstanceNorm: The channel axes cannot include the leading dimension as this is "
                f"assumed to be the batch axis: got {self.feature_axes} of {x.ndim} axes{here()}"
            )
        axes = tuple(i for i in range(1, x.ndim) if i not in features)
        stats = _layer_stats(self, x, axes, mask)
        return _normalize_along(self, x, stats, axes, features, self.use_bias)
