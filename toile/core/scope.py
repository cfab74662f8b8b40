"""Scopes: where the functions of a network find their variables and random keys.

A Scope is a cursor into one nested dict of variables, owned by the root scope, and into a tree of
counters of random draws. `init` and `apply` make pure functions of functions that take a Scope;
Modules are a layer over this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from toile import errors
from toile.core import partial_eval
from toile.core.filters import (
    CollectionFilter,
    DenyList,
    Filter,
    PRNGSequenceFilter,
    filter_to_set,
    group_collections,
    in_filter,
    intersect_filters,
    is_filter_empty,
    subtract_filters,
    union_filters,
)
from toile.core.frozen_dict import FrozenDict, unfreeze
from toile.core.rng import LazyRng, fold_in_static
from toile.core.rng import is_valid_rng as _is_valid_rng
from toile.core.rng import is_valid_rngs as _is_valid_rngs
from toile.core.scope_class import Scope, child_rng_token, no_flag
from toile.core.variables import Variable
from toile.engine.source import here
from toile.engine.trace import Array  # noqa: F401

__all__ = [
    "CollectionFilter", "DenyList", "Filter", "LazyRng", "PRNGSequenceFilter", "Scope", "Variable",
    "apply", "bind", "child_rng_token", "filter_to_set", "fold_in_static", "group_collections",
    "in_filter", "init", "intersect_filters", "is_filter_empty", "lazy_init", "no_flag",
    "subtract_filters", "union_filters",
]  # fmt: skip


def _is_valid_collection(col: Any) -> bool:
    return isinstance(col, dict | FrozenDict) and all(isinstance(name, str) for name in col)


def _is_valid_variables(variables: Mapping[str, Any]) -> bool:
    """Whether names map to collections; what is in those is the user's."""
    return all(
        isinstance(name, str) and _is_valid_collection(col) for name, col in variables.items()
    )


def _owned(variables: Mapping[str, Any], mutable: CollectionFilter) -> dict[str, Any]:
    """Copies of the collections that may change, the others as they are."""
    return {
        key: unfreeze(value) if in_filter(mutable, key) else value
        for key, value in variables.items()
    }


def bind(
    variables: Mapping[str, Any],
    rngs: Any = None,
    mutable: CollectionFilter = False,
    flags: Mapping[str, Any] | None = None,
) -> Scope:
    """A root scope over variables and streams, for interactive use."""
    if not hasattr(variables, "items") or not _is_valid_variables(variables):
        raise errors.ApplyScopeInvalidVariablesTypeError()
    if rngs is not None and not _is_valid_rngs(rngs):
        raise errors.InvalidRngError(
            "rngs should be a dictionary mapping strings to `jax.PRNGKey` (toile.random.key), got "
            f"{type(rngs).__name__}: {rngs!r}"
        )
    return Scope(_owned(variables, mutable), rngs=rngs, mutable=mutable, flags=flags)


def _named_streams(rngs: Any, where: str) -> Any:
    """A single key feeds the stream 'params'."""
    if not _is_valid_rng(rngs) and not _is_valid_rngs(rngs):
        raise ValueError(
            f"{where} should be a ``jax.PRNGKey`` or a dictionary mapping strings to "
            f"``jax.PRNGKey`` (toile.random.key), got {type(rngs).__name__}: {rngs!r}{here()}"
        )
    return rngs if isinstance(rngs, dict | FrozenDict) else {"params": rngs}


def apply(
    fn: Callable[..., Any],
    mutable: CollectionFilter = False,
    flags: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """`fn(scope, …)` as a function of variables; changed collections come back if `mutable`."""

    @functools.wraps(fn)
    def wrapper(variables: Any, *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        if rngs is not None:
            rngs = _named_streams(rngs, "The ``rngs`` argument passed to an apply function")
        params = variables.get("params") if hasattr(variables, "get") else None
        if isinstance(params, dict | FrozenDict) and "params" in params:
            raise errors.ApplyScopeInvalidVariablesStructureError(variables)
        root = bind(variables, rngs=rngs, mutable=mutable, flags=flags)
        try:
            y = fn(root, *args, **kwargs)
        finally:
            root.invalidate()
        return y if mutable is False else (y, root.mutable_variables())

    return wrapper


def init(
    fn: Callable[..., Any], mutable: CollectionFilter = True, flags: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """`fn(scope, …)` as a function of random streams that gives (result, new variables)."""

    @functools.wraps(fn)
    def wrapper(rngs: Any, *args: Any, **kwargs: Any) -> Any:
        rngs = _named_streams(rngs, "First argument passed to an init function")
        run = apply(fn, mutable=mutable, flags={**(flags or {}), "initializing": True})
        return run({}, *args, rngs=rngs, **kwargs)

    return wrapper


def lazy_init(
    fn: Callable[..., Any], mutable: CollectionFilter = True, flags: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Like `init`, but arguments may be ShapeDtypeStructs; gives the variables alone."""
    return partial_eval.lazy_init(
        lambda *args, **kwargs: init(fn, mutable, flags)(*args, **kwargs)[1]
    )
