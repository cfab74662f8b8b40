"""A loss scale that adapts: it grows while gradients stay finite and shrinks when they do not.

Half-precision gradients underflow to zero; multiplying the loss by a large number and dividing the
gradients by it afterwards keeps them in range.
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
    """The scale of a loss, adapted step by step; `value_and_grad` gives the next one.

    When gradients are not finite the caller keeps its old parameters::

        >>> scale, p = DynamicScale(growth_interval=10), jnp.float32(1.0)
        >>> loss = lambda p: jnp.asarray(p, jnp.float16) ** 2
        >>> scale, finite, value, grad = scale.value_and_grad(loss)(p)
        >>> bool(finite), float(scale.scale)  # 65536 does not fit into float16
        (False, 32768.0)
        >>> scale, finite, value, grad = scale.value_and_grad(loss)(p)
        >>> p = jnp.where(finite, p - 0.1 * grad, p)

    growth_factor, backoff_factor: how the scale grows and shrinks.
    growth_interval: finite steps in a row before it grows; fin_steps counts them.
    minimum_scale: it never shrinks below this (None: no limit).
    """

    minimum_scale: float | None = struct.field(pytree_node=False, default=_SMALLEST)

    def _bounded(self, grown: Any, shrunk: Any) -> tuple[Any, Any]:
        if self.minimum_scale is not None:
            shrunk = jnp.maximum(shrunk, self.minimum_scale)
        return jnp.minimum(grown, _LARGEST), shrunk
