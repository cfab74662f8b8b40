"""jit and checkpoint of functions of scopes, and the folding of random streams that jit uses.

The Python code of a jitted function of a scope runs once. Its changes to the counters of random
draws are stored in the structure of its result, and each later call repeats them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from toile import api
from toile.api.checkpoint import checkpoint as engine_checkpoint
from toile.core.filters import CollectionFilter, DenyList, Filter, PRNGSequenceFilter
from toile.core.lift.packing import Packed, flat_counts, lifted
from toile.core.rng import LazyRng
from toile.engine import trees
from toile.engine.devices import Device
from toile.engine.source import here
from toile.tree_util import register_static


def refuse_concrete(concrete: bool) -> None:
    """Raise an error for an option of `checkpoint` that is no longer supported."""
    if concrete:
        raise NotImplementedError(
            "The concrete argument is deprecated. Use static_argnums instead, for arguments "
            f"that Python's control flow depends on{here()}"
        )


def checkpoint(
    fn: Callable[..., Any],
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    concrete: bool = False,
    prevent_cse: bool = True,
    static_argnums: int | tuple[int, ...] = (),
    policy: Callable[..., bool] | None = None,
) -> Callable[..., Any]:
    """Recompute a function of a scope in the backward pass instead of storing intermediate results.

    Args:
        fn: function `f(scope, *args)`.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        concrete: must be False; use `static_argnums` instead.
        prevent_cse: whether to prevent the compiler from merging the recomputation with the
            original computation. Inside `scan`, this protection is not needed, so `prevent_cse` can
            be False.
        static_argnums: positions of arguments that are not traced; the first argument after the
            scope has position 0.
        policy: function that selects the intermediate results to keep, such as one of
            `toile.checkpoint_policies`; if None, no results are kept.

    Returns:
        A function with the arguments of `fn`.
    """

    def inner(packed: Packed, *args: Any, **kwargs: Any) -> Any:
        refuse_concrete(concrete)

        @functools.wraps(fn)
        def pure(variables: Any, rngs: Any, *args: Any, **kwargs: Any) -> Any:
            return packed.run(fn, variables, rngs, *args, **kwargs)

        run = engine_checkpoint(
            pure,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=trees.tree_map(lambda n: n + 2, static_argnums),
        )
        return run(packed.variables, packed.rngs, *args, **kwargs)

    return lifted(inner, (variables,), (variables,), (rngs,), name="remat", enable_kwargs=True)


remat = checkpoint


@register_static
class Draws(tuple[Any, ...]):
    """The number of draws from each counter of each scope, as part of a structure."""

    __slots__ = ()


def _drawn(before: dict[Any, int], counters: dict[Any, Any]) -> tuple[Any, ...]:
    """The number of draws since `before`; counters that are new are included with 0 draws."""
    after = flat_counts(counters)
    return tuple(
        (path, n - before.get(path, 0))
        for path, n in after.items()
        if path not in before or n != before[path]
    )


def _draw_again(counters: dict[Any, Any], drawn: tuple[Any, ...]) -> None:
    for (*path, name), n in drawn:
        place = counters
        for key in path:
            place = place.setdefault(key, {})
        if name is not None:
            place[name] = place.get(name, 0) + n


def _hashable(x: Filter) -> Filter:
    """The filter in a form that can be part of a cache key."""
    if isinstance(x, str):
        return (x,)
    if isinstance(x, DenyList):
        return DenyList(_hashable(x.deny))
    return tuple(sorted(x)) if isinstance(x, Iterable) else x


def _without_suffix(rngs: Any) -> Any:
    """The streams without the paths of their scopes, so that equal modules share a trace."""
    return trees.tree_map(
        lambda x: x.clear_suffix() if isinstance(x, LazyRng) else x,
        rngs,
        is_leaf=lambda x: isinstance(x, LazyRng),
    )


class _Calls(threading.local):
    """The calls of a jitted function that are running, from the outermost to the innermost."""

    def __init__(self) -> None:
        self.stack: list[Packed] = []


def jit(
    fn: Callable[..., Any],
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    donate_argnums: int | Iterable[int] = (),
    device: Device | None = None,
    backend: str | None = None,
) -> Callable[..., Any]:
    """Compile a function of a scope, tracing it once for each set of shapes and dtypes.

    Args:
        fn: function `f(scope, key, *args)`, where `key` is hashable. A different key causes a new
            trace.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.
        static_argnums: positions of arguments that are constants in the trace; the scope has
            position 0, and the key is not counted.
        static_argnames: names of keyword arguments that are constants in the trace.
        donate_argnums: positions of arguments whose memory may be reused, counted as in
            `static_argnums`.
        device: device to run on; if None, the default device is used.
        backend: name of the platform to run on; if None, the default platform is used.

    Returns:
        A function with the arguments of `fn`. Its method `why()` lists the cause of each trace.
    """
    calls = _Calls()

    # It must not close over the scopes of one call, because its trace is used for many calls.
    @functools.wraps(fn)
    def pure(fingerprint: Any, variables: Any, rngs: Any, *args: Any, **kwargs: Any) -> Any:
        packed = calls.stack[-1]
        before = [flat_counts(s.rng_counters) for s in packed.outer]
        y, changed = packed.run(fn, variables, rngs, fingerprint[1], *args, **kwargs)
        pairs = zip(before, packed.outer, strict=True)
        return y, changed, Draws(_drawn(b, s.rng_counters) for b, s in pairs)

    # `pure` has three parameters in place of the scope: the fingerprint, variables and streams.
    run = api.jit(
        pure,
        static_argnums=(0, *(n + 2 for n in _numbers(static_argnums) if n > 0)),
        static_argnames=static_argnames,
        donate_argnums=tuple(n + 2 for n in _numbers(donate_argnums) if n > 0),
        device=device,
        backend=backend,
    )

    def inner(packed: Packed, key: Any, *args: Any, **kwargs: Any) -> Any:
        mutable = tuple(_hashable(packed.inner_mutable(s)) for s in packed.outer)
        calls.stack.append(packed)
        try:
            y, changed, drawn = run(
                (mutable, key), packed.variables, _without_suffix(packed.rngs), *args, **kwargs
            )
        finally:
            calls.stack.pop()
        if not packed.entered:  # traced before: the counters did not move
            for scope, counts in zip(packed.outer, drawn, strict=True):
                _draw_again(scope.rng_counters, counts)
        return y, changed

    groups = (variables,), (variables,), (rngs,)
    lifted_fn: Any = lifted(inner, *groups, name="jit", enable_kwargs=True)
    lifted_fn.why = run.why
    return lifted_fn


def _numbers(argnums: int | Iterable[int]) -> tuple[int, ...]:
    return tuple(argnums) if isinstance(argnums, Iterable) else (argnums,)


def fold_rngs(
    fn: Callable[..., Any], variables: CollectionFilter = True, rngs: PRNGSequenceFilter = True
) -> Callable[..., Any]:
    """Make a function of a scope draw the same random numbers as under `jit`, without compiling it.

    Args:
        fn: function `f(scope, key, *args)`, where `key` is hashable.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        A function with the arguments of `fn`.
    """

    def inner(packed: Packed, key: Any, *args: Any, **kwargs: Any) -> Any:
        rngs = _without_suffix(packed.rngs)
        return packed.run(fn, packed.variables, rngs, key, *args, **kwargs)

    return lifted(inner, (variables,), (variables,), (rngs,), name="fold_rngs", enable_kwargs=True)
