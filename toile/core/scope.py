"""Scopes, which give functions access to their variables and random keys.

A Scope refers to one level of a nested dict of variables and to one level of a tree that counts
random draws. The root scope owns both. `init` and `apply` turn functions of a Scope into pure
functions. Modules are built on scopes.
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
from toile.core.parameter_classes import runner_of
from toile.core.rng import LazyRng, fold_in_static, is_valid_rng, is_valid_rngs
from toile.core.scope_class import Scope, child_rng_token, no_flag
from toile.core.variables import Variable
from toile.engine.lazy import attach_table
from toile.engine.source import here
from toile.engine.trace import Array

__all__ = [
    "CollectionFilter", "DenyList", "Filter", "LazyRng", "PRNGSequenceFilter", "Scope", "Variable",
    "apply", "bind", "child_rng_token", "filter_to_set", "fold_in_static", "group_collections",
    "in_filter", "init", "intersect_filters", "is_filter_empty", "lazy_init", "no_flag",
    "subtract_filters", "union_filters",
]  # fmt: skip

__getattr__, __dir__ = attach_table(__name__, {})  # Flax's private names: toile.compat


def _is_valid_collection(col: Any) -> bool:
    return isinstance(col, dict | FrozenDict) and all(isinstance(name, str) for name in col)


def _is_valid_variables(variables: Mapping[str, Any]) -> bool:
    """Whether the keys are strings and the values are collections, with any contents."""
    return all(
        isinstance(name, str) and _is_valid_collection(col) for name, col in variables.items()
    )


def _owned(variables: Mapping[str, Any], mutable: CollectionFilter) -> dict[str, Any]:
    """The variables, in which the collections that may change are copies."""
    return {
        key: unfreeze(value) if in_filter(mutable, key) else value
        for key, value in variables.items()
    }


def bind(
    variables: Mapping[str, Any],
    rngs: Mapping[str, Array] | None = None,
    mutable: CollectionFilter = False,
    flags: Mapping[str, Any] | None = None,
) -> Scope:
    """Create a scope from variables and random streams, for interactive use.

    Args:
        variables: nested dict of collections.
        rngs: dict that maps stream names to keys; None if no keys are needed.
        mutable: filter that selects the collections that may change: True for all, a name, a list
            of names, or a `DenyList`. These collections are copied.
        flags: settings, such as `{"initializing": True}`, that can be read from the scope and all
            its descendants.

    Returns:
        A root scope.

    Raises:
        toile.errors.ApplyScopeInvalidVariablesTypeError: `variables` is not a dict of dicts.
        toile.errors.InvalidRngError: `rngs` is not a dict of keys.

    >>> from toile.core import bind
    >>> bind({"params": {"w": 2.0}}).get_variable("params", "w")
    2.0
    """
    if not hasattr(variables, "items") or not _is_valid_variables(variables):
        raise errors.ApplyScopeInvalidVariablesTypeError(variables)
    if rngs is not None and not is_valid_rngs(rngs):
        raise errors.InvalidRngError(
            "rngs should be a dictionary mapping strings to `jax.PRNGKey` (toile.random.key), got "
            f"{type(rngs).__name__}: {rngs!r}"
        )
    return Scope(_owned(variables, mutable), rngs=rngs, mutable=mutable, flags=flags)


def _named_streams(rngs: Any, where: str) -> Any:
    """A dict of keys by stream name; a single key becomes the stream 'params'."""
    if not is_valid_rng(rngs) and not is_valid_rngs(rngs):
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
    """Turn a function of a scope into a pure function of variables.

    Args:
        fn: function whose first argument is a `Scope`.
        mutable: filter that selects the collections that may change: True for all, a name, a list
            of names, or a `DenyList`.
        flags: settings that can be read from the scope that `fn` receives and from all its
            descendants.

    Returns:
        A function `f(variables, *args, rngs=None, **kwargs)`. It returns the result of `fn` or, if
        `mutable` is not False, the pair `(result, mutable collections)`.

    >>> from toile.core import apply
    >>> apply(lambda scope, x: scope.get_variable("params", "w") * x)({"params": {"w": 2.0}}, 3.0)
    6.0
    """

    @functools.wraps(fn)
    def wrapper(variables: Any, *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        if rngs is not None:
            rngs = _named_streams(rngs, "The ``rngs`` argument passed to an apply function")
        params = variables.get("params") if hasattr(variables, "get") else None
        if isinstance(params, dict | FrozenDict) and "params" in params:
            raise errors.ApplyScopeInvalidVariablesStructureError(variables)
        run = runner_of(params)
        if run is not None:
            return run(lambda: called(variables, args, rngs, kwargs))
        return called(variables, args, rngs, kwargs)

    def called(variables: Any, args: Any, rngs: Any, kwargs: Any) -> Any:
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
    """Turn a function of a scope into a function that returns the result and new variables.

    Args:
        fn: function whose first argument is a `Scope`.
        mutable: filter that selects the collections that are created: True for all, a name, a list
            of names, or a `DenyList`.
        flags: settings that can be read from the scope that `fn` receives and from all its
            descendants. The flag `initializing` is always set.

    Returns:
        A function `f(rngs, *args, **kwargs)` that returns the pair `(result, variables)`. `rngs` is
        one key for the stream `params`, or a dict that maps stream names to keys.

    >>> import toile.linen as nn
    >>> from toile.core import init
    >>> def scaled(scope, x):
    ...     return x * scope.param("w", nn.initializers.ones, ())
    >>> init(scaled)(key(0), 3.0)
    (Array(3., dtype=float32), {'params': {'w': Array(1., dtype=float32)}})
    """

    @functools.wraps(fn)
    def wrapper(rngs: Any, *args: Any, **kwargs: Any) -> Any:
        rngs = _named_streams(rngs, "First argument passed to an init function")
        run = apply(fn, mutable=mutable, flags={**(flags or {}), "initializing": True})
        return run({}, *args, rngs=rngs, **kwargs)

    return wrapper


def lazy_init(
    fn: Callable[..., Any], mutable: CollectionFilter = True, flags: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Turn a function of a scope into a function that creates only the variables.

    The result is not computed.

    Args:
        fn: function whose first argument is a `Scope`.
        mutable: filter that selects the collections that are created: True for all, a name, a list
            of names, or a `DenyList`.
        flags: settings that can be read from the scope that `fn` receives and from all its
            descendants. The flag `initializing` is always set.

    Returns:
        A function `f(rngs, *args, **kwargs)` that returns the variables. An argument can be a
        `toile.ShapeDtypeStruct` if no variable depends on its values.

    >>> import toile.linen as nn
    >>> from toile.core import lazy_init
    >>> def scaled(scope, x):
    ...     return x * scope.param("w", nn.initializers.ones, x.shape)
    >>> lazy_init(scaled)(key(0), toile.ShapeDtypeStruct((2,), jnp.float32))
    {'params': {'w': Array([1., 1.], dtype=float32)}}
    """
    return partial_eval.lazy_init(
        lambda *args, **kwargs: init(fn, mutable, flags)(*args, **kwargs)[1]
    )
