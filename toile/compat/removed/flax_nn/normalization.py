"""Normalization layers of `flax.nn`."""

from __future__ import annotations

from typing import Any

from toile import numpy as jnp
from toile.compat.removed.flax_nn.module_class import Module
from toile.compat.removed.flax_nn.module_scope import scope_of
from toile.core import nn as functions
from toile.core.nn import initializers
from toile.core.nn.normalization import canonical_axes, normalized, statistics
from toile.engine.source import here

__all__ = ["BatchNorm", "GroupNorm", "LayerNorm"]


class BatchNorm(Module):
    """Normalization with the mean and the variance of a batch, or with their running averages."""

    def apply(self, x: Any, batch_stats: Any = None, use_running_average: bool = False,
              axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-5,
              dtype: Any = jnp.float32, bias: bool = True, scale: bool = True,
              bias_init: Any = initializers.zeros, scale_init: Any = initializers.ones,
              axis_name: Any = None, axis_index_groups: Any = None) -> Any:
        x = jnp.asarray(x, jnp.float32)
        features = canonical_axes(x.ndim, axis)
        stored = tuple(x.shape[a] for a in features)
        averages = None
        if self.is_stateful() or batch_stats is not None:
            averages = (self.state("mean", stored, initializers.zeros, batch_stats),
                        self.state("var", stored, initializers.ones, batch_stats))
        if use_running_average:
            mean, var = self._averages(averages)
        else:
            reduced = tuple(a for a in range(x.ndim) if a not in features)
            over = None if self.is_initializing() else axis_name
            mean, var = statistics(x, reduced, over, axis_index_groups)
            if averages is not None and not self.is_initializing():
                for average, now in zip(averages, (mean, var), strict=True):
                    average.value = momentum * average.value + (1 - momentum) * now
        factor = self.param("scale", stored, scale_init) if scale else None
        offset = self.param("bias", stored, bias_init) if bias else None
        y = normalized(x, (mean, var), epsilon, features, features, factor, offset)
        return jnp.asarray(y, dtype)

    def _averages(self, averages: Any) -> tuple[Any, Any]:
        if averages is None:
            raise ValueError(
                f"{self._frame.path}: when use_running_average is True, BatchNorm needed stored "
                "averages, got none: either use a stateful context or provide batch_stats "
                f"(with nn.stateful(state, mutable=False): ...){here()}"
            )
        return averages[0].value, averages[1].value


class LayerNorm(Module):
    """Normalization of each example over its last axis."""

    def apply(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return functions.layer_norm(scope_of(self), x, *args, **kwargs)


class GroupNorm(Module):
    """Normalization of groups of channels."""

    def apply(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return functions.group_norm(scope_of(self), x, *args, **kwargs)
