"""Derivatives inside modules: nn.vjp, nn.jvp, nn.grad, nn.value_and_grad and nn.custom_vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toile.core import lift
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.lift.autodiff import refuse_reduce_axes
from toile.engine.source import here
from toile.linen.methods import wrap_method_once
from toile.linen.module import Module
from toile.linen.transforms.lifting import _lift_method, lift_direct_transform

__all__ = ["custom_vjp", "grad", "jvp", "value_and_grad", "vjp"]


def vjp(
    fn: Callable[..., Any],
    mdl: Module,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    vjp_variables: CollectionFilter = "params",
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    multi_scope: bool = False,
) -> Any:
    """The value of `fn(mdl, *primals)` and a function from its cotangent to gradients.

    The gradients are those of the variables in `vjp_variables` first, then of each argument.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Scaled(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return x * self.param("scale", nn.initializers.ones, ())
    >>> class Slopes(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         y, pull_back = nn.vjp(lambda m, x: m(x), Scaled(), x)
    ...         return pull_back(jnp.ones_like(y))
    >>> x = jnp.array([2.0, 3.0])
    >>> Slopes().apply(Slopes().init(toile.random.key(0), x), x)
    ({'params': {'scale': Array(5., dtype=float32)}}, Array([1., 1.], dtype=float32))
    """
    refuse_reduce_axes(reduce_axes, "vjp")
    return lift_direct_transform(
        lift.vjp, (fn,), mdl, *primals, multi_scope=multi_scope, has_aux=has_aux,
        vjp_variables=vjp_variables, variables=variables, rngs=rngs,
    )  # fmt: skip


def value_and_grad(
    fn: Callable[..., Any],
    mdl: Module,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """The value of `fn(mdl, *primals)` and its gradients by each argument, not by variables.

    With `has_aux`: ((value, aux), gradients)."""
    refuse_reduce_axes(reduce_axes, "value_and_grad")
    out, *aux, grads = lift_direct_transform(
        lift.value_and_grad, (fn,), mdl, *primals, has_aux=has_aux, variables=variables, rngs=rngs
    )
    if out.shape != ():
        raise ValueError(
            "grad can only work on functions with scalar-valued outputs. out shape="
            f"{out.shape} (sum it, or use nn.vjp){here()}"
        )
    return ((out, *aux) if has_aux else out), grads


def grad(
    fn: Callable[..., Any],
    mdl: Module,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """Gradients of `fn(mdl, *primals)` by each argument, not by variables.

    With `has_aux`: (gradients, aux)."""
    refuse_reduce_axes(reduce_axes, "grad")
    out, grads = value_and_grad(fn, mdl, *primals, has_aux=has_aux, variables=variables, rngs=rngs)
    return (grads, out[1]) if has_aux else grads


def jvp(
    fn: Callable[..., Any],
    mdl: Module,
    primals: Any,
    tangents: Any,
    variable_tangents: Any,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """The value of `fn(mdl, *primals)` and its tangent; variables move by `variable_tangents`.

    A collection that is not in `variable_tangents` does not move.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> class Slope(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         square = lambda m, x: x ** 2
    ...         return nn.jvp(square, self, (x,), (jnp.ones_like(x),), {})[1]
    >>> Slope().apply({}, jnp.array([1.0, 3.0]))
    Array([2., 6.], dtype=float32)
    """
    return lift_direct_transform(
        lift.jvp, (fn,), mdl, primals, tangents, variable_tangents, multi_scope=False,
        variables=variables, rngs=rngs,
    )  # fmt: skip


def custom_vjp(
    fn: Callable[..., Any],
    forward_fn: Callable[..., Any],
    backward_fn: Callable[..., Any],
    grad_vars: CollectionFilter = "params",
    nondiff_argnums: Any = (),
) -> Callable[..., Any]:
    """`fn(mdl, …)` with a custom gradient.

    `forward_fn(mdl, …)` gives (result, residuals); `backward_fn(*nondiff, residuals, ct)`, which
    has no module, gives gradients of the variables in `grad_vars`, then of each argument.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> def forward(mdl, x):
    ...     return nn.vjp(lambda m, x: m(x), mdl, x)
    >>> def signs(pull_back, ct):
    ...     params, x = pull_back(ct)
    ...     return toile.tree.map(jnp.sign, params), x
    >>> signed = nn.custom_vjp(lambda m, x: m(x), forward, signs)
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return signed(nn.Dense(1), x).sum()
    >>> x = jnp.array([[0.5, -2.0]])
    >>> variables = Model().init(toile.random.key(0), x)
    >>> toile.grad(lambda v: Model().apply(v, x))(variables)["params"]["Dense_0"]["kernel"]
    Array([[ 1.],
           [-1.]], dtype=float32)
    """

    def either(*args: Any, needs_residual: bool, **kwargs: Any) -> Any:
        return forward_fn(*args, **kwargs) if needs_residual else fn(*args, **kwargs)

    def make(run: Callable[..., Any]) -> Callable[..., Any]:
        return lift.custom_vjp(
            functools.partial(run, needs_residual=False),
            functools.partial(run, needs_residual=True),
            backward_fn,
            grad_vars,
            nondiff_argnums,
        )

    name = getattr(fn, "__name__", None)
    return _lift_method(make, (wrap_method_once(either),), (name,), None, multi_scope=False)
