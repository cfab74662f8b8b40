"""Hessian-vector products, and diagonals of the Hessian and Fisher information matrices.

A loss is a function `loss(params, inputs, targets)` that returns a scalar. Vectors have one element
for each element of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile.api import grad, jvp, vmap
from toile.engine.annotations import Array, ArrayLike, PyTree
from toile.flatten_util import ravel_pytree

__all__ = ["fisher_diag", "hessian_diag", "hvp"]

Loss = Callable[[Any, Any, Any], Any]


def hvp(loss: Loss, v: ArrayLike, params: PyTree, inputs: PyTree, targets: PyTree) -> PyTree:
    """Multiply the Hessian of a loss by a vector without computing the Hessian itself.

    Args:
        loss: function of `params`, `inputs` and `targets` that returns a scalar.
        v: vector with one element for each element of the parameters, in the order of
            `ravel_pytree`.
        params: tree of parameters, with respect to which the loss is differentiated.
        inputs, targets: the other arguments of the loss.

    Returns:
        The product, a tree with the structure and shapes of `params`.

    >>> from toile.optim import second_order
    >>> loss = lambda params, inputs, targets: jnp.sum(inputs * params**2)
    >>> second_order.hvp(loss, jnp.array([1.0, 0.0]), jnp.ones(2), jnp.array([3.0, 4.0]), None)
    Array([6., 0.], dtype=float32)
    """
    _, unravel = ravel_pytree(params)
    slope = grad(lambda p: loss(p, inputs, targets))
    return jvp(slope, [params], [unravel(jnp.asarray(v))])[1]


def hessian_diag(loss: Loss, params: PyTree, inputs: PyTree, targets: PyTree) -> Array:
    """Compute the diagonal of the Hessian of a loss.

    This function computes one Hessian-vector product for each element of the parameters.

    Args:
        loss: function of `params`, `inputs` and `targets` that returns a scalar.
        params: tree of parameters, with respect to which the loss is differentiated.
        inputs, targets: the other arguments of the loss.

    Returns:
        A vector with one element for each element of the parameters, in the order of
        `ravel_pytree`.

    >>> from toile.optim import second_order
    >>> loss = lambda params, inputs, targets: jnp.sum(inputs * params**2)
    >>> second_order.hessian_diag(loss, jnp.ones(2), jnp.array([3.0, 4.0]), None)
    Array([6., 8.], dtype=float32)
    """

    def entry(v: Any) -> Any:
        return jnp.vdot(v, ravel_pytree(hvp(loss, v, params, inputs, targets))[0])

    return vmap(entry)(jnp.eye(ravel_pytree(params)[0].size))


def fisher_diag(
    negative_log_likelihood: Loss, params: PyTree, inputs: PyTree, targets: PyTree
) -> Array:
    """Estimate the diagonal of the Fisher information matrix by squaring the gradient.

    Args:
        negative_log_likelihood: function of `params`, `inputs` and `targets` that returns a scalar.
        params: tree of parameters, with respect to which the function is differentiated.
        inputs, targets: the other arguments of the function.

    Returns:
        A vector with one element for each element of the parameters, in the order of
        `ravel_pytree`.

    >>> from toile.optim import second_order
    >>> loss = lambda params, inputs, targets: jnp.sum(inputs * params**2)
    >>> second_order.fisher_diag(loss, jnp.ones(2), jnp.array([3.0, 4.0]), None)
    Array([36., 64.], dtype=float32)
    """
    slope = grad(negative_log_likelihood)(params, inputs, targets)
    return jnp.square(ravel_pytree(slope)[0])
