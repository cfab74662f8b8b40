"""Derivatives inside modules: nn.vjp, nn.jvp, nn.grad, nn.value_and_grad and nn.custom_vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toile.core import lift
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.lift.autodiff import refuse_reduce_axes
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.linen.methods import wrap_method_once
from toile.linen.module import Module
from toile.linen.transforms.lifting import _lift_method, lift_direct_transform

__all__ = ["custom_vjp", "grad", "jvp", "value_and_grad", "vjp"]


def vjp(
    fn: Callable[..., Any],
    mdl: Module,
    *primals: PyTree,
    has_aux: bool = False,
    reduce_axes: Sequence[str] = (),
    vjp_variables: CollectionFilter = "params",
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    multi_scope: bool = False,
) -> Any:
    """Return the value of a function of a module, and a function that computes the gradients.

    Args:
        fn: function `f(mdl, *primals)`.
        mdl: the module.
        *primals: arguments of `fn`, trees of arrays.
        has_aux: whether `fn` returns a pair `(value, aux)`; `aux` is not differentiated.
        reduce_axes: must be empty.
        vjp_variables: filter that selects the collections to differentiate with respect to.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        multi_scope: whether the fields of `mdl` and the arguments may contain modules that are not
            submodules of `mdl`. If True, the gradients of the variables are a list with one entry
            for each module.

    Returns:
        The pair `(value, pull_back)`; if `has_aux` is True, the tuple `(value, pull_back, aux)`.
        Call `pull_back` with a cotangent that has the shape of the value. It returns a tuple that
        contains the gradients of the variables, by collection, followed by the gradient of each
        argument.

    >>> import toile.linen as nn
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
    >>> Slopes().apply(Slopes().init(key(0), x), x)
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
    *primals: PyTree,
    has_aux: bool = False,
    reduce_axes: Sequence[str] = (),
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """Compute a scalar function of a module, and its gradients with respect to `primals`.

    Args:
        fn: function `f(mdl, *primals)` that returns a scalar.
        mdl: the module.
        *primals: arguments of `fn`, trees of arrays.
        has_aux: whether `fn` returns a pair `(scalar, aux)`; `aux` is not differentiated.
        reduce_axes: must be empty.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The pair `(value, gradients)`; if `has_aux` is True, the pair `((value, aux), gradients)`.
        The gradients are a tuple with one gradient for each argument.

    Raises:
        ValueError: the value is not a scalar.

    >>> import toile.linen as nn
    >>> class Model(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.value_and_grad(lambda m, x: (x**2).sum(), self, x)
    >>> Model().apply({}, jnp.array([1.0, 3.0]))
    (Array(10., dtype=float32), (Array([2., 6.], dtype=float32),))
    """
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
    *primals: PyTree,
    has_aux: bool = False,
    reduce_axes: Sequence[str] = (),
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """Compute the gradients of a scalar function of a module with respect to `primals`.

    Args:
        fn: function `f(mdl, *primals)` that returns a scalar.
        mdl: the module.
        *primals: arguments of `fn`, trees of arrays.
        has_aux: whether `fn` returns a pair `(scalar, aux)`; `aux` is not differentiated.
        reduce_axes: must be empty.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        A tuple with one gradient for each argument; if `has_aux` is True, the pair
        `(gradients, aux)`.

    Raises:
        ValueError: the value is not a scalar.

    >>> import toile.linen as nn
    >>> class Slope(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.grad(lambda m, x: (x**2).sum(), self, x)
    >>> Slope().apply({}, jnp.array([1.0, 3.0]))
    (Array([2., 6.], dtype=float32),)
    """
    refuse_reduce_axes(reduce_axes, "grad")
    out, grads = value_and_grad(fn, mdl, *primals, has_aux=has_aux, variables=variables, rngs=rngs)
    return (grads, out[1]) if has_aux else grads


def jvp(
    fn: Callable[..., Any],
    mdl: Module,
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    variable_tangents: Mapping[str, PyTree],
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> tuple[Any, Any]:
    """Compute the value and the directional derivative of a function of a module.

    Args:
        fn: function `f(mdl, *primals)`.
        mdl: the module.
        primals: tuple of the arguments of `fn`.
        tangents: tuple with one tangent for each argument, of the same shape as that argument.
        variable_tangents: tangents of the variables, by collection. Collections without an entry
            are treated as constants.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The pair `(value, derivative)`.

    >>> import toile.linen as nn
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
    nondiff_argnums: int | Sequence[int] = (),
) -> Callable[..., Any]:
    """Define a custom gradient for a function of a module.

    Args:
        fn: function `f(mdl, *args)`.
        forward_fn: function that takes the arguments of `fn` and returns the pair
            `(result, residuals)`. It is called instead of `fn` when gradients are computed.
        backward_fn: function `f(*nondiff_args, residuals, ct)`, where `nondiff_args` are the
            arguments at `nondiff_argnums` and `ct` is the cotangent of the result. It returns a
            tuple that contains the gradients of the variables in `grad_vars`, by collection,
            followed by the gradient of each differentiated argument.
        grad_vars: filter that selects the collections to differentiate with respect to.
        nondiff_argnums: positions of the arguments that are not differentiated but are passed to
            `backward_fn`; the module has position 0.

    Returns:
        A function with the arguments of `fn`.

    >>> import toile.linen as nn
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
    >>> variables = Model().init(key(0), x)
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
