"""A loss scale that adapts: it grows while gradients stay finite and shrinks when they do not.

Half-precision gradients underflow to zero; multiplying the loss by a large number and dividing the
gradients by it afterwards keeps them in range.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toile import api, lax, struct, tree
from toile import numpy as jnp

__all__ = ["DynamicScale", "DynamicScaleResult", "all_finite"]

_LARGEST, _SMALLEST = jnp.finfo(jnp.float32).max, jnp.finfo(jnp.float32).tiny


class DynamicScaleResult(NamedTuple):
    """The next scale, whether the gradients are finite, the value, the gradients in float32."""

    dynamic_scale: Any
    finite: Any
    aux: Any
    grad: Any


def all_finite(grads: Any) -> Any:
    """Whether no leaf of a tree holds an infinity or NaN."""
    finite = jnp.array(True)
    for g in tree.leaves(grads):
        finite &= jnp.all(lax.is_finite(g))
    return finite


class DynamicScale(struct.PyTreeNode):
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

    growth_factor: float = struct.field(pytree_node=False, default=2.0)
    backoff_factor: float = struct.field(pytree_node=False, default=0.5)
    growth_interval: int = struct.field(pytree_node=False, default=2000)
    fin_steps: Any = 0
    scale: Any = 65536.0
    minimum_scale: float | None = struct.field(pytree_node=False, default=_SMALLEST)

    def value_and_grad(
        self,
        fun: Callable[..., Any],
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        axis_name: Any = None,
    ) -> Callable[..., DynamicScaleResult]:
        """`toile.value_and_grad` of the scaled `fun`; the results are scaled back.

        With `axis_name` gradients are averaged over that mapped axis.
        """

        @functools.wraps(fun)
        def scaled(*args: Any) -> Any:
            out = fun(*args)
            return (self.scale * out[0], out[1]) if has_aux else self.scale * out

        inner = api.value_and_grad(scaled, argnums, has_aux)

        def value_and_grad_of(*args: Any) -> DynamicScaleResult:
            value, grad = inner(*args)
            value = (value[0] / self.scale, value[1]) if has_aux else value / self.scale
            grad = tree.map(lambda g: jnp.asarray(g, jnp.float32) / self.scale, grad)
            if axis_name is not None:
                grad = lax.pmean(grad, axis_name)
            finite = all_finite(grad)
            return DynamicScaleResult(self._after(finite), finite, value, grad)

        return value_and_grad_of

    def _after(self, finite: Any) -> DynamicScale:
        """The scale for the next step."""
        grow = self.fin_steps == self.growth_interval
        grown = jnp.minimum(self.scale * self.growth_factor, _LARGEST)
        shrunk = self.scale * self.backoff_factor
        if self.minimum_scale is not None:
            shrunk = jnp.maximum(shrunk, self.minimum_scale)
        kept = jnp.where(grow & finite, grown, self.scale)
        steps = jnp.where(grow | ~finite, 0, self.fin_steps + 1)
        return self.replace(fin_steps=steps, scale=jnp.where(finite, kept, shrunk))
