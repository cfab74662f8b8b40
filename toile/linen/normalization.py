"""Normalization layers: BatchNorm, LayerNorm, RMSNorm, GroupNorm, InstanceNorm.

They differ in the axes that statistics are taken over; the mathematics is shared with
`toile.core.nn.normalization`. Statistics are computed in float32 or wider, unless an option of the
layer says otherwise. SpectralNorm and WeightNorm, which normalize the parameters of another layer,
are in `weight_normalization`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toile import numpy as jnp
from toile.core.nn.normalization import Axes, canonical_axes, group_count, normalized, statistics
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
    """`statistics`, in the dtype that they are computed in."""
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
    """`normalized` with parameters of `layer` of shape `sizes`, in the layer's dtype."""
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
    """A parameter of shape `sizes`, in the shape of the axes `features`."""
    value = layer.param(name, init, sizes, layer.param_dtype)
    if len(sizes) != len(features):
        value = value.reshape([shape[axis] for axis in features])
    return value if layer.force_float32_reductions else jnp.asarray(value, layer.param_dtype)


def _layer_stats(layer: Any, x: Any, axes: Axes, mask: Any, use_mean: bool = True) -> Any:
    """`_stats` with the fields of a layer."""
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
    """Normalize each feature over the batch, and keep averages for evaluation.

    In training, the mean and the variance of the batch are used, and the running averages of them,
    in the collection `batch_stats`, are updated; that needs `mutable=["batch_stats"]`. In
    evaluation, the averages are used and stay unchanged. `init` does not update them either.

    The result has the shape of the input. The parameters `scale` and `bias`, and the averages
    `mean` and `var`, have the sizes of the axes `axis`.

    Args:
        use_running_average: whether the averages are used instead of the batch: True in
            evaluation, False in training. It is given here or to the call.
        axis: axis or axes of the features; statistics are taken over all other axes.
        momentum: how much of the averages remains at each update; the rest comes from the batch.
        epsilon: small number that is added to the variance, to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        axis_name: name of an axis of `vmap` or `pmap` over which statistics are also taken, so
            that several devices normalize as one; None for no such axis.
        axis_index_groups: groups of indices of that axis that share statistics; None for a single
            group.
        use_fast_variance: whether the variance is computed as E[x²] - E[x]², in one pass, which is
            faster but less accurate than E[(x - E[x])²].
        force_float32_reductions: whether statistics are computed in float32 or wider.

    Raises:
        toile.errors.ModifyScopeVariableError: the batch is used, and `batch_stats` is not
            mutable.

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
            x: array that has the feature axes.
            use_running_average: whether the averages are used instead of the batch, if it is not a
                field of the layer.
            mask: array that broadcasts to the shape of `x`; only elements where it is true count
                for the statistics. None for all.

        Returns:
            An array of the shape of `x`.
        """
        use_running_average = merge_param(
            "use_running_average", self.use_running_average, use_running_average
        )
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
    """Normalize each example over its features.

    The result has the shape of the input, with mean 0 and variance 1 over `reduction_axes` before
    the scale and the bias. The parameters `scale` and `bias` have the sizes of `feature_axes`.

    Args:
        epsilon: small number that is added to the variance, to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        reduction_axes: axis or axes that statistics are taken over.
        feature_axes: axis or axes that the scale and the bias have.
        axis_name: name of an axis of `vmap` or `pmap` over which statistics are also taken; None
            for no such axis.
        axis_index_groups: groups of indices of that axis that share statistics; None for a single
            group.
        use_fast_variance: whether the variance is computed as E[x²] - E[x]², in one pass, which is
            faster but less accurate than E[(x - E[x])²].
        force_float32_reductions: whether statistics are computed in float32 or wider.

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
            x: array that has the axes of the layer.
            mask: array that broadcasts to the shape of `x`; only elements where it is true count
                for the statistics. None for all.

        Returns:
            An array of the shape of `x`.
        """
        x = jnp.asarray(x)
        axes = canonical_axes(x.ndim, self.reduction_axes)
        features = canonical_axes(x.ndim, self.feature_axes)
        stats = _layer_stats(self, x, axes, mask)
        return _normalize_along(self, x, stats, axes, features, self.use_bias)


class RMSNorm(Module):
    """Divide each example by the root of the mean square of its features, without centering.

    The result has the shape of the input. The parameter `scale` has the sizes of `feature_axes`.

    Args:
        epsilon: small number that is added to the mean square, to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the scale when it is created.
        use_scale: whether the result is multiplied by a scale.
        scale_init: initializer of the scale.
        reduction_axes: axis or axes that the mean square is taken over.
        feature_axes: axis or axes that the scale has.
        axis_name: name of an axis of `vmap` or `pmap` over which the mean is also taken; None for
            no such axis.
        axis_index_groups: groups of indices of that axis that share the mean; None for a single
            group.
        use_fast_variance: no effect on the result: the mean is not subtracted.
        force_float32_reductions: whether the mean square is computed in float32 or wider.

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
            x: array that has the axes of the layer.
            mask: array that broadcasts to the shape of `x`; only elements where it is true count
                for the mean square. None for all.

        Returns:
            An array of the shape of `x`.
        """
        x = jnp.asarray(x)
        axes = canonical_axes(x.ndim, self.reduction_axes)
        features = canonical_axes(x.ndim, self.feature_axes)
        stats = _layer_stats(self, x, axes, mask, use_mean=False)
        return _normalize_along(self, x, stats, axes, features, False)


class GroupNorm(Module):
    """Normalize each example over groups of channels and over all axes before the channels.

    Channels are the last axis, and the first axis is the batch. The result has the shape of the
    input. The parameters `scale` and `bias` have the number of channels as their shape.

    Args:
        num_groups: number of groups; None if `group_size` is given.
        group_size: number of channels in a group; None if `num_groups` is given.
        epsilon: small number that is added to the variance, to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        reduction_axes: axes that statistics are taken over, the last one among them; None means all
            but the first. It is needed for inputs with several batch axes.
        axis_name: name of an axis of `vmap` or `pmap` over which statistics are also taken; None
            for no such axis.
        axis_index_groups: groups of indices of that axis that share statistics; None for a single
            group.
        use_fast_variance: whether the variance is computed as E[x²] - E[x]², in one pass, which is
            faster but less accurate than E[(x - E[x])²].
        force_float32_reductions: whether statistics are computed in float32 or wider.

    Raises:
        ValueError: both or neither of `num_groups` and `group_size` are given; the channels are
            not a multiple of them; or `reduction_axes` lacks the last axis.

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
            mask: array that broadcasts to the shape of `x` and has its last axis; only elements
                where it is true count for the statistics. None for all.

        Returns:
            An array of the shape of `x`.
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
    """Normalize each channel of each example over all other axes.

    The result has the shape of the input, whose first axis is the batch. The parameters `scale`
    and `bias` have the sizes of `feature_axes`.

    Args:
        epsilon: small number that is added to the variance, to avoid division by zero.
        dtype: dtype of the result; None for the dtype that the input and the parameters promote to.
        param_dtype: dtype of the parameters when they are created.
        use_bias: whether a bias is added.
        use_scale: whether the result is multiplied by a scale.
        bias_init: initializer of the bias.
        scale_init: initializer of the scale.
        feature_axes: axis or axes of the channels; statistics are taken over all other axes but
            the first.
        axis_name: name of an axis of `vmap` or `pmap` over which statistics are also taken; None
            for no such axis.
        axis_index_groups: groups of indices of that axis that share statistics; None for a single
            group.
        use_fast_variance: whether the variance is computed as E[x²] - E[x]², in one pass, which is
            faster but less accurate than E[(x - E[x])²].
        force_float32_reductions: whether statistics are computed in float32 or wider.

    Raises:
        ValueError: `feature_axes` has the first axis.

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
            x: array of shape (batch, ...) that has the axes of the layer.
            mask: array that broadcasts to the shape of `x`; only elements where it is true count
                for the statistics. None for all.

        Returns:
            An array of the shape of `x`.
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
