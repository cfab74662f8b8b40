"""A loss scale that grows while gradients are finite and shrinks when they are not.

In half precision, small gradients underflow to zero. Multiplying the loss by a large number, and
afterward dividing the gradients by the same number, prevents this.
"""

from __future__ import annotations

from typing import Any

from toile import numpy as jnp
from toile import struct
from toile.optim.classic import dynamic_scale
from toile.optim.classic.dynamic_scale import DynamicScaleResult, all_finite

__all__ = ["DynamicScale", "DynamicScaleResult", "all_finite"]

_LARGEST, _SMALLEST = jnp.finfo(jnp.float32).max, jnp.finfo(jnp.float32).tiny


class DynamicScale(dynamic_scale.DynamicScale):
    """Loss scale that grows while gradients are finite and shrinks when they are not.

    In float16, small gradients underflow to zero. Multiplying the loss by a large number, and
    afterward dividing the gradients by the same number, prevents underflow. If the gradients are
    not finite, the scale was too large: keep the old parameters and continue with the new scale.

    Args:
        growth_factor: factor by which the scale is multiplied to increase it.
        backoff_factor: factor by which the scale is multiplied to reduce it.
        growth_interval: number of consecutive steps with finite gradients that must precede an
            increase. If the gradients in the following step are finite too, that step increases the
            scale. As long as all gradients are finite, the scale therefore increases once every
            `growth_interval + 1` steps.
        fin_steps: number of consecutive steps with finite gradients since the last increase.
        scale: the current scale.
        minimum_scale: minimum scale; if None, there is no limit.

    >>> from toile.training.dynamic_scale import DynamicScale
    >>> scale, p = DynamicScale(growth_interval=10), jnp.float32(1.0)
    >>> loss = lambda p: jnp.asarray(p, jnp.float16) ** 2
    >>> for _ in range(3):
    ...     scale, finite, value, grad = scale.value_and_grad(loss)(p)
    ...     p = jnp.where(finite, p - 0.1 * grad, p)
    ...     print(bool(finite), scale.scale, p)  # 65536 does not fit into float16
    False 32768.0 1.0
    False 16384.0 1.0
    True 16384.0 0.8
    """

    minimum_scale: float | None = struct.field(pytree_node=False, default=_SMALLEST)

    def _bounded(self, grown: Any, shrunk: Any) -> tuple[Any, Any]:
        if self.minimum_scale is not None:
            shrunk = jnp.maximum(shrunk, self.minimum_scale)
        return jnp.minimum(grown, _LARGEST), shrunk
