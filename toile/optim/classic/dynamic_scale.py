"""Loss scaling, which uses the largest scale for which 16-bit gradients stay finite.

The class `DynamicScale` in this module comes from `flax.optim`. The class of the same name in
`toile.training.dynamic_scale` also limits the scale.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import toile.numpy as jnp
from toile import lax, struct, tree
from toile.api import value_and_grad
from toile.engine.annotations import Array, PyTree
from toile.optim.base import ArrayLike

__all__ = ["DynamicScale", "DynamicScaleResult"]


class DynamicScaleResult(NamedTuple):
    """The result of `DynamicScale.value_and_grad`.

    Args:
        dynamic_scale: scale for the next step.
        finite: boolean scalar, True if all gradients are finite. If `finite` is False, skip the
            step.
        aux: value of the function, or the pair (value, aux) if `has_aux` is True.
        grad: gradients of the original, unscaled function, in float32.

    >>> from toile import optim
    >>> result = optim.DynamicScale(scale=4.0).value_and_grad(jnp.square)(jnp.array(3.0))
    >>> result.aux, result.grad
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32))
    """

    dynamic_scale: PyTree
    finite: ArrayLike
    aux: PyTree
    grad: PyTree


def all_finite(grads: PyTree) -> Array:
    """Return whether all elements of a tree of arrays are finite.

    Args:
        grads: tree of arrays.

    Returns:
        A boolean scalar, False if an element is infinite or NaN.

    >>> all_finite({"w": jnp.array([1.0, jnp.inf])})
    Array(False, dtype=bool)
    """
    finite = jnp.array(True)
    for g in tree.leaves(grads):
        finite &= jnp.all(lax.is_finite(g))
    return finite


def scaled_value_and_grad(
    fun: Callable[..., Any], scale: Any, argnums: Any, has_aux: bool, axis_name: Any
) -> Callable[..., tuple[Any, Any]]:
    """Create a function that computes `fun`'s value and float32 gradients, using a scaled loss."""

    @functools.wraps(fun)
    def scaled(*args: Any) -> Any:
        out = fun(*args)
        return (scale * out[0], out[1]) if has_aux else scale * out

    slope = value_and_grad(scaled, argnums, has_aux)

    def scaled_back(*args: Any) -> tuple[Any, Any]:
        value, grad = slope(*args)
        value = (value[0] / scale, value[1]) if has_aux else value / scale
        grad = tree.map(lambda g: jnp.asarray(g, jnp.float32) / scale, grad)
        return value, grad if axis_name is None else lax.pmean(grad, axis_name)

    return scaled_back


class DynamicScale(struct.PyTreeNode):
    """Loss scaling for float16, with a scale that adapts to the gradients.

    Small gradients become 0 in float16. Multiplying the loss by a scale avoids this. The scale is
    reduced when gradients overflow and increased after enough steps with finite gradients. This
    class comes from `flax.optim` and does not limit the scale, unlike the class in
    `toile.training.dynamic_scale`.

    Args:
        growth_factor: factor by which the scale is multiplied to increase it.
        backoff_factor: factor by which the scale is multiplied if gradients are not finite.
        growth_interval: number of consecutive steps with finite gradients that must precede an
            increase. If the gradients in the following step are finite too, that step increases
            the scale. As long as all gradients are finite, the scale therefore increases once
            every `growth_interval + 1` steps.
        fin_steps: number of steps with finite gradients since the scale last changed.
        scale: the current scale.

    >>> from toile import optim
    >>> scaled = optim.DynamicScale(scale=4.0)
    >>> scaled, finite, loss, grad = scaled.value_and_grad(jnp.square)(jnp.array(3.0))
    >>> bool(finite), float(loss), float(grad), float(scaled.scale)
    (True, 9.0, 6.0, 4.0)
    """

    growth_factor: float = struct.field(pytree_node=False, default=2.0)
    backoff_factor: float = struct.field(pytree_node=False, default=0.5)
    growth_interval: int = struct.field(pytree_node=False, default=2000)
    fin_steps: ArrayLike = 0
    scale: ArrayLike = 65536.0

    def value_and_grad(
        self, fun: Callable[..., PyTree], argnums: int | Sequence[int] = 0, has_aux: bool = False,
        axis_name: str | None = None,
    ) -> Callable[..., DynamicScaleResult]:
        """Create a function that computes the value and gradients of `fun`, using a scaled loss.

        Args:
            fun: function to differentiate.
            argnums: positions of the arguments to differentiate with respect to.
            has_aux: whether `fun` returns a pair (value, aux).
            axis_name: name of the mapped axis over which gradients are averaged. If `axis_name` is
                None, gradients are not averaged.

        Returns:
            A function that accepts the arguments of `fun` and returns a `DynamicScaleResult`.
        """
        scaled = scaled_value_and_grad(fun, self.scale, argnums, has_aux, axis_name)

        def value_and_grad_of(*args: Any) -> DynamicScaleResult:
            value, grad = scaled(*args)
            finite = all_finite(grad)
            return DynamicScaleResult(self._after(finite), finite, value, grad)

        return value_and_grad_of

    def _after(self, finite: Any) -> Any:
        """Return the `DynamicScale` for the next step."""
        grow = self.fin_steps == self.growth_interval
        grown, shrunk = self._bounded(
            self.scale * self.growth_factor, self.scale * self.backoff_factor
        )
        kept = jnp.where(grow & finite, grown, self.scale)
        steps = jnp.where(grow | ~finite, 0, self.fin_steps + 1)
        return self.replace(fin_steps=steps, scale=jnp.where(finite, kept, shrunk))

    def _bounded(self, grown: Any, shrunk: Any) -> tuple[Any, Any]:
        """Return the increased and the reduced scale; this class does not limit them."""
        return grown, shrunk
