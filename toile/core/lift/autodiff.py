"""Derivatives of functions of scopes: vjp, value_and_grad, jvp and custom_vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from toile import api
from toile import numpy as jnp
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.lift.packing import Packed, lifted
from toile.core.scope import Scope
from toile.engine import trees
from toile.engine.annotations import PyTree
from toile.engine.source import here


def refuse_reduce_axes(reduce_axes: Any, what: str) -> None:
    """Raise an error for an option that is no longer supported."""
    if reduce_axes:
        raise NotImplementedError(f"reduce_axes argument to {what} is deprecated{here()}")


def _pull_back(tree: Any, backward: Callable[..., Any], ct: Any) -> Any:
    """The gradients of the variables, in the structure of the scopes, and of the arguments."""
    variables, *inputs = backward(ct)
    return (trees.unflatten(tree, variables), *inputs)


def vjp(
    fn: Callable[..., Any],
    scope: Scope,
    *primals: PyTree,
    has_aux: bool = False,
    reduce_axes: Sequence[str] = (),
    vjp_variables: CollectionFilter = "params",
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """Return the value of a function of a scope, and a function that computes the gradients.

    Args:
        fn: function `f(scope, *primals)`.
        scope: the scope.
        *primals: arguments of `fn`, trees of arrays.
        has_aux: whether `fn` returns a pair `(value, aux)`; `aux` is not differentiated.
        reduce_axes: must be empty.
        vjp_variables: filter that selects the collections to differentiate with respect to.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The pair `(value, pull_back)`; if `has_aux` is True, the tuple `(value, pull_back, aux)`.
        Call `pull_back` with a cotangent that has the shape of the value. It returns a tuple that
        contains the gradients of the variables, by collection, followed by the gradient of each
        argument.
    """
    refuse_reduce_axes(reduce_axes, "vjp")
    return _vjp("vjp", fn, scope, primals, has_aux, vjp_variables, variables, rngs)


def _vjp(
    name: str, fn: Callable[..., Any], scope: Scope, primals: tuple[Any, ...], has_aux: bool,
    vjp_variables: CollectionFilter, variables: CollectionFilter, rngs: PRNGSequenceFilter,
) -> Any:  # fmt: skip
    """The value, a function that turns its cotangent into gradients, and `aux` if `has_aux`."""

    def inner(packed: Packed, *args: Any) -> Any:
        moving, fixed = packed.variables

        @functools.wraps(fn)
        def pure(moving: Any, *args: Any) -> Any:
            out, changed = packed.run(fn, (moving, fixed), packed.rngs, *args)
            y, aux = out if has_aux else (out, ())
            return y, (aux, changed)

        y, backward, (aux, changed) = api.vjp(pure, moving, *args, has_aux=True)
        pull_back = trees.Partial(functools.partial(_pull_back, packed.tree), backward)
        return ((y, pull_back, aux) if has_aux else (y, pull_back)), changed

    run = lifted(inner, (vjp_variables, variables), (variables,), (rngs,), name=name)
    return run(scope, *primals)


def value_and_grad(
    fn: Callable[..., Any],
    scope: Scope,
    *primals: PyTree,
    has_aux: bool = False,
    reduce_axes: Sequence[str] = (),
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """Compute the value and the gradients of a scalar function of a scope and arguments.

    The gradients are taken with respect to the arguments, not with respect to the variables.

    Args:
        fn: function `f(scope, *primals)` that returns a scalar.
        scope: the scope.
        *primals: arguments of `fn`, trees of arrays.
        has_aux: whether `fn` returns a pair `(scalar, aux)`; `aux` is not differentiated.
        reduce_axes: must be empty.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The pair `(value, gradients)`; if `has_aux` is True, the tuple `(value, aux, gradients)`.
        The gradients are a tuple with one gradient for each argument.
    """
    refuse_reduce_axes(reduce_axes, "value_and_grad")
    y, pull_back, *aux = _vjp("value_and_grad", fn, scope, primals, has_aux, False, variables, rngs)
    (backward,) = pull_back.args  # without variables there is no structure of scopes to restore
    _, *grads = backward(jnp.ones_like(y))
    return y, *aux, tuple(grads)


def jvp(
    fn: Callable[..., Any],
    scope: Scope,
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    variable_tangents: PyTree,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> tuple[Any, Any]:
    """Compute the value and the directional derivative of a function of a scope.

    Args:
        fn: function `f(scope, *primals)`.
        scope: the scope.
        primals: tuple of the arguments of `fn`.
        tangents: tuple with one tangent for each argument, of the same shape as that argument.
        variable_tangents: tangents of the variables, by collection. Collections without an entry
            are treated as constant.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The pair `(value, derivative)`.
    """
    given = tuple(
        {col: ts for col, ts in by_collection.items() if ts}
        for by_collection in trees.flatten_up_to(trees.structure(scope), variable_tangents)
    )

    def inner(packed: Packed, *args: Any) -> Any:
        moving, fixed = packed.variables

        @functools.wraps(fn)
        def pure(moving: Any, args: Any) -> Any:
            return packed.run(fn, (moving, fixed), packed.rngs, *args)

        (y, changed), (dy, _) = api.jvp(pure, (moving, args), (given, tangents))
        return (y, dy), changed

    target = tuple(given[0])
    run = lifted(inner, (target, variables), (variables,), (rngs,), name="jvp")
    return run(scope, *primals)


def custom_vjp(
    fn: Callable[..., Any],
    forward_fn: Callable[..., Any],
    backward_fn: Callable[..., Any],
    grad_vars: CollectionFilter = "params",
    nondiff_argnums: int | Sequence[int] = (),
) -> Callable[..., Any]:
    """Define a custom gradient for a function of a scope.

    Args:
        fn: function `f(scope, *args)`.
        forward_fn: function that takes the same arguments and returns the pair
            `(result, residuals)`. It is called instead of `fn` when gradients are computed. The
            residuals may contain the function that `vjp` returns.
        backward_fn: function `f(*nondiff_args, residuals, ct)`, where `nondiff_args` are the
            arguments at `nondiff_argnums` and `ct` is the cotangent of the result. It returns a
            tuple that contains the gradients of the variables in `grad_vars`, by collection,
            followed by the gradient of each argument.
        grad_vars: filter that selects the collections to differentiate with respect to.
        nondiff_argnums: positions of the arguments that are not differentiated but are passed to
            `backward_fn`; the scope has position 0.

    Returns:
        A function with the arguments of `fn`.
    """

    def inner(packed: Packed, *args: Any) -> Any:
        moving, fixed = packed.variables

        def pure(moving: Any, *args: Any) -> Any:
            return packed.run(fn, (moving, fixed), packed.rngs, *args)

        def forward(moving: Any, *args: Any) -> Any:
            (y, residuals), changed = packed.run(forward_fn, (moving, fixed), packed.rngs, *args)
            return (y, changed), residuals

        def backward(*args: Any) -> Any:
            *nondiff, residuals, (ct, _) = args
            variables, *inputs = backward_fn(*nondiff, residuals, ct)
            return (tuple(trees.flatten_up_to(packed.tree, variables)), *inputs)

        run = api.custom_vjp(pure, nondiff_argnums=nondiff_argnums)
        run.defvjp(forward, backward)
        return run(moving, *args)

    return lifted(inner, (grad_vars, True), (grad_vars, True), (True,), name="custom_vjp")
