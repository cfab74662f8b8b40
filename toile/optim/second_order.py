"""Products with the Hessian of a loss, and diagonals of curvature matrices.

A loss is a function (params, inputs, targets) -> scalar; vectors are as long as all parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile.api import grad, jvp, vmap
from toile.flatten_util import ravel_pytree

__all__ = ["fisher_diag", "hessian_diag", "hvp"]

Loss = Callable[[Any, Any, Any], Any]


def hvp(loss: Loss, v: Any, params: Any, inputs: Any, targets: Any) -> Any:
    """The Hessian of the loss times the vector v, as a tree like params.

    >>> loss = lambda p, x, y: jnp.sum(x * p**2)
    >>> hvp(loss, jnp.array([1.0, 0.0]), jnp.ones(2), jnp.array([3.0, 4.0]), None).tolist()
    [6.0, 0.0]
    """
    _, unravel = ravel_pytree(params)
    slope = grad(lambda p: loss(p, inputs, targets))
    return jvp(slope, [params], [unravel(v)])[1]


def hessian_diag(loss: Loss, params: Any, inputs: Any, targets: Any) -> Any:
    """The diagonal of the Hessian of the loss, as a vector.

    >>> loss = lambda p, x, y: jnp.sum(x * p**2)
    >>> hessian_diag(loss, jnp.ones(2), jnp.array([3.0, 4.0]), None).tolist()
    [6.0, 8.0]
    """

    def entry(v: Any) -> Any:
        return jnp.vdot(v, ravel_pytree(hvp(loss, v, params, inputs, targets))[0])

    return vmap(entry)(jnp.eye(ravel_pytree(params)[0].size))


def fisher_diag(negative_log_likelihood: Loss, params: Any, inputs: Any, targets: Any) -> Any:
    """The diagonal of the observed Fisher information: the squared gradient, as a vector.

    >>> loss = lambda p, x, y: jnp.sum(x * p**2)
    >>> fisher_diag(loss, jnp.ones(2), jnp.array([3.0, 4.0]), None).tolist()
    [36.0, 64.0]
    """
    slope = grad(negative_log_likelihood)(params, inputs, targets)
    return jnp.square(ravel_pytree(slope)[0])
