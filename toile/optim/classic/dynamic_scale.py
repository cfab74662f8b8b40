"""Loss scaling for 16-bit gradients: as large as stays finite.

This is flax.optim's, without bounds of the scale; `toile.training.dynamic_scale` has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import toile.numpy as jnp
from toile import lax, struct, tree
from toile.api import value_and_grad

__all__ = ["DynamicScale", "DynamicScaleResult"]


class DynamicScaleResult(NamedTuple):
    """What a function made by `DynamicScale.value_and_grad` gives."""

    dynamic_scale: DynamicScale
    finite: Any
    aux: Any
    grad: Any


class DynamicScale(struct.PyTreeNode):
    """A scale that shrinks by backoff_factor where gradients overflow and grows after
    growth_interval finite steps.

    >>> scaled = DynamicScale(scale=4.0)
    >>> scaled, finite, loss, grad = scaled.value_and_grad(jnp.square)(jnp.array(3.0))
    >>> bool(finite), float(loss), float(grad), float(scaled.scale)
    (True, 9.0, 6.0, 4.0)
    """

    growth_factor: float = struct.field(pytree_node=False, default=2.0)
    backoff_factor: float = struct.field(pytree_node=False, default=0.5)
    growth_interval: int = struct.field(pytree_node=False, default=2000)
    fin_steps: Any = 0
    scale: Any = 65536.0

    def value_and_grad(
        self,
        fun: Callable[..., Any],
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        axis_name: str | None = None,
    ) -> Callable[..., DynamicScaleResult]:
        """`toile.value_and_grad` of the scaled loss; float32 gradients, not scaled any more.

        With an axis_name gradients are means over that mapped axis.
        """

        @functools.wraps(fun)
        def scaled(*args: Any) -> Any:
            out = fun(*args)
            return (self.scale * out[0], out[1]) if has_aux else self.scale * out

        slope = value_and_grad(scaled, argnums, has_aux)

        def wrapped(*args: Any) -> DynamicScaleResult:
            out, grad = slope(*args)
            out = (out[0] / self.scale, out[1]) if has_aux else out / self.scale
            grad = tree.map(lambda g: jnp.asarray(g, jnp.float32) / self.scale, grad)
            if axis_name is not None:
                grad = lax.pmean(grad, axis_name)
            finite = jnp.array(True)
            for g in tree.leaves(grad):
                finite &= jnp.all(lax.is_finite(g))
            return DynamicScaleResult(self._after(finite), finite, out, grad)

        return wrapped

    def _after(self, finite: Any) -> DynamicScale:
        """The scale for the next step."""
        grow = self.fin_steps == self.growth_interval
        kept = jnp.where(grow & finite, self.scale * self.growth_factor, self.scale)
        scale = jnp.where(finite, kept, self.scale * self.backoff_factor)
        steps = jnp.where(grow | ~finite, 0, self.fin_steps + 1)
        return self.replace(fin_steps=steps, scale=scale)
