"""Functions of `flax.linen.normalization` that layers outside Flax use."""

from __future__ import annotations

import types
from typing import Any

from toile import numpy as jnp
from toile.core.nn.normalization import Axes, canonical_axes
from toile.linen.module import Module
from toile.linen.normalization import _normalize_along, _stats
from toile.nn.initializers import Initializer


def _compute_stats(x: Any, axes: Axes, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Compute the mean and the variance; without `use_mean`, the mean is zero."""
    mean, var = _stats(x, axes, *args, **kwargs)
    return jnp.zeros_like(var) if mean is None else mean, var


def _normalize(
    mdl: Module, x: Any, mean: Any, var: Any, reduction_axes: Axes, feature_axes: Axes,
    dtype: Any, param_dtype: Any, epsilon: float, use_bias: bool, use_scale: bool,
    bias_init: Initializer, scale_init: Initializer, force_float32_reductions: bool = True,
) -> Any:  # fmt: skip
    """Normalize `x` with parameters of `mdl`."""
    layer = types.SimpleNamespace(
        param=mdl.param, dtype=dtype, param_dtype=param_dtype, epsilon=epsilon,
        use_scale=use_scale, bias_init=bias_init, scale_init=scale_init,
        force_float32_reductions=force_float32_reductions,
    )  # fmt: skip
    axes, features = (canonical_axes(x.ndim, a) for a in (reduction_axes, feature_axes))
    return _normalize_along(layer, x, (mean, var), axes, features, use_bias)
