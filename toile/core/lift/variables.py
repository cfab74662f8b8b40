"""Transforms that change the variables that a function sees: map_variables and swap_collection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.core.filters import (
    CollectionFilter,
    PRNGSequenceFilter,
    intersect_filters,
    is_filter_empty,
    subtract_filters,
)
from toile.core.frozen_dict import unfreeze
from toile.core.lift.packing import Packed, lifted
from toile.core.scope import Scope
from toile.engine import trees


def id_fn(x: Any) -> Any:
    """Return the argument."""
    return x


def map_variables(
    fn: Callable[..., Any],
    mapped_collections: CollectionFilter,
    map_in_fn: Callable[..., Any] = id_fn,
    map_out_fn: Callable[..., Any] = id_fn,
    init: bool = False,
    mutable: bool = False,
    rngs: PRNGSequenceFilter = True,
    variables: CollectionFilter = True,
) -> Callable[..., Any]:
    """Convert a scope's variables between the stored form and the form that `fn` uses.

    Args:
        fn: function `f(scope, *args)`.
        mapped_collections: filter that selects the collections to convert.
        map_in_fn: function `f(collections)` that takes the dict of stored collections and returns
            the dict of collections that `fn` uses.
        map_out_fn: function `f(collections)` that takes the dict of collections that `fn` created
            or changed, and returns the dict of collections to store.
        init: whether to run `fn` once beforehand to create its variables. It is run only if some
            converted collections are mutable.
        mutable: whether `fn` may change the converted collections.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        variables: filter that selects the collections visible inside the transform; True selects
            all.

    Returns:
        A function with the arguments of `fn`.
    """
    stored = mutable or init

    def inner(packed: Packed, *args: Any, **kwargs: Any) -> Any:
        target, rest = packed.variables
        if init:
            scopes = packed.scopes((target, rest), packed.rngs)
            if any(_can_create(s, mapped_collections) for s in trees.leaves(scopes)):
                fn(scopes, *args, **kwargs)
                target, _ = packed.repack(scopes)
                target = tuple(map_out_fn(x) for x in target)
        target = tuple(map_in_fn(unfreeze(x)) for x in target)
        writable = True if stored else subtract_filters(True, mapped_collections)
        scopes = packed.scopes((target, rest), packed.rngs, mutable_filter=writable)
        y = fn(scopes, *args, **kwargs)
        target, rest = packed.repack(scopes)
        if stored:
            target = tuple(map_out_fn(x) for x in target)
        return y, (target, rest)

    ins = (mapped_collections, variables)
    outs = ins if stored else (False, subtract_filters(variables, mapped_collections))
    return lifted(inner, ins, outs, (rngs,), name="map_variables", enable_kwargs=True)


def _can_create(scope: Scope, collections: CollectionFilter) -> bool:
    return not is_filter_empty(intersect_filters(scope.mutable, collections))


def swap_collection(fn: Callable[..., Any], col_a: str, col_b: str) -> Callable[..., Any]:
    """Swap the names of two collections of variables inside a function of a scope.

    Args:
        fn: function `f(scope, *args)`.
        col_a, col_b: names of the collections.

    Returns:
        A function with the arguments of `fn`.
    """

    def swap(target: dict[str, Any]) -> dict[str, Any]:
        a, b = target.get(col_a, {}), target.get(col_b, {})
        return {**target, col_a: b, col_b: a}

    return map_variables(fn, (col_a, col_b), swap, swap, mutable=True)
