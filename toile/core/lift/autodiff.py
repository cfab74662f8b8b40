"""Derivatives of functions of scopes: vjp, value_and_grad, jvp and custom_vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toile import api
from toile import numpy as jnp
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.lift.packing import Packed, lifted
from toile.core.scope import Scope
from toile.engine import trees
from toile.engine.source import here


def refuse_reduce_axes(reduce_axes: Any, what: str) -> None:
    """Raise an error for an option that is no longer supported."""
    if reduce_axes:
        raise NotImplementedError(f"reduce_axes argument to {what} is deprecated{here()}")


def _pull_back(tree: Any, backward: Callable[..., Any], ct: Any) -> Any:
    """Gradients of the variables, in the tree of scopes, and of the arguments."""
    variables, *inputs = backward(ct)
    return (trees.unflatten(tree, variables), *inputs)


def vjp(
    fn: Callable[..., Any],
    scope: Scope,
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    vjp_variables: CollectionFilter = "params",
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """The value of `fn(scope, *primals)` and a function from its cotangent to gradients.

    The gradients are those of the variables in `vjp_variables` first, then of each argument."""
    refuse_reduce_axes(reduce_axes, "vjp")
    return _vjp("vjp", fn, scope, primals, has_aux, vjp_variables, variables, rngs)


def _vjp(
    name: str, fn: Callable[..., Any], scope: Scope, primals: tuple[Any, ...], has_aux: bool,
    vjp_variables: CollectionFilter, variables: CollectionFilter, rngs: PRNGSequenceFilter,
) -> Any:  # fmt: skip
    """(value, function from its cotangent to gradients), and what is auxiliary if `has_aux`."""

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
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> Any:
    """The value of `fn(scope, *primals)` and its gradients by each argument, not by variables."""
    refuse_reduce_axes(reduce_axes, "value_and_grad")
    y, pull_back, *aux = _vjp("value_and_grad", fn, scope, primals, has_aux, False, variables, rngs)
    _, *grads = pull_back(jnp.ones_like(y))
    return y, *aux, tuple(grads)


def jvp(
    fn: Callable[..., Any],
    scope: Scope,
    primals: Any,
    tangents: Any,
    variable_tangents: Any,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> tuple[Any, Any]:
    """The value of `fn(scope, *primals)` and its tangent.

    `variable_tangents` has tangents by collection; a collection that is not there does not move."""
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
    nondiff_argnums: Any = (),
) -> Callable[..., Any]:
    """`fn` with a custom gradient.

    `forward_fn(scope, …)` gives (result, residuals); `backward_fn(*nondiff, residuals, ct)`, which
    has no scope, gives gradients of the variables in `grad_vars`, then of each argument. The
    function that `vjp` returns may be a residual."""

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
