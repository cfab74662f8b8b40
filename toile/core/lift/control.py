"""while_loop, cond and switch over functions of scopes.

Branches are traced one after the other with the same counters of random draws. Loops cannot create
variables, because each step must return the same structure that it receives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from toile import lax, random
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.lift.axes import streams, tree_map_rngs, unzipped
from toile.core.lift.packing import Packed, lifted
from toile.core.scope import Scope
from toile.engine.annotations import ArrayLike, PyTree

C = TypeVar("C")


def while_loop(
    cond_fn: Callable[[Scope, C], bool],
    body_fn: Callable[[Scope, C], C],
    scope: Scope,
    init: C,
    carry_variables: CollectionFilter = False,
    broadcast_variables: CollectionFilter = True,
    split_rngs: Mapping[PRNGSequenceFilter, bool] = {},
) -> C:
    """Repeat `c = body_fn(scope, c)` while `cond_fn(scope, c)` is true.

    For random streams that are split, the key for the body of step `i` is derived by folding in
    `i`, and the key for the condition of step `i` is derived by folding in `-i`.

    Args:
        cond_fn: function `f(scope, carry)` that returns a boolean scalar.
        body_fn: function `f(scope, carry)` that returns the next carry, with the same shapes and
            dtypes as `carry`.
        scope: the scope.
        init: initial carry, a tree of arrays.
        carry_variables: filter that selects the collections that each step may change and pass on
            to the next step.
        broadcast_variables: filter that selects the collections that the loop can only read; True
            selects all other collections.
        split_rngs: dict that maps each random stream to True if every step gets a different key, or
            to False if all steps get the same key. Streams that are not listed are not visible
            inside the loop.

    Returns:
        The last carry.
    """
    rng_groups, splits = unzipped(streams(split_rngs))

    def inner(packed: Packed) -> Any:
        carried, shared = packed.variables

        def streams(i: Any) -> tuple[Any, ...]:
            return tuple(
                tree_map_rngs(lambda key: random.fold_in(key, i), group) if split else group
                for group, split in zip(packed.rngs, splits, strict=True)
            )

        def continues(state: Any) -> Any:
            i, carried, c = state
            inside = packed.scopes((carried, shared), streams(-i), mutable_filter=False)
            return cond_fn(inside, c)

        def step(state: Any) -> Any:
            i, carried, c = state
            c, (changed,) = packed.run(body_fn, (carried, shared), streams(i), c)
            return i + 1, packed.completed(carried, changed), c

        start = (0, carried, init)
        _, carried, c = lax.while_loop(packed.steady(continues), packed.steady(step), start)
        return c, (carried,)

    run = lifted(
        inner, (carry_variables, broadcast_variables), (carry_variables,), rng_groups,
        name="while_loop",
    )  # fmt: skip
    return run(scope)


def cond(
    pred: ArrayLike,
    true_fun: Callable[..., C],
    false_fun: Callable[..., C],
    scope: Scope,
    *operands: PyTree,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """Call one of two functions of a scope, selected by a boolean.

    Args:
        pred: boolean scalar, which may be a traced value.
        true_fun: function `f(scope, *operands)` that is called if `pred` is true.
        false_fun: function `f(scope, *operands)` that is called otherwise. Both functions must
            return results with the same shapes and dtypes, and must create and change the same
            variables.
        scope: the scope.
        *operands: arguments of both functions, trees of arrays.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The result of the function that is called.
    """

    def choose(branches: Sequence[Callable[..., Any]]) -> Any:
        return lax.cond(pred, *branches, *operands)

    return _branches("cond", choose, (true_fun, false_fun), scope, variables, rngs)


def switch(
    index: ArrayLike,
    branches: Sequence[Callable[..., C]],
    scope: Scope,
    *operands: PyTree,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """Call one of several functions of a scope, selected by an integer.

    Args:
        index: integer scalar. An index out of range is clamped to the first or last branch.
        branches: functions `f(scope, *operands)`. All of them must return results with the same
            shapes and dtypes, and must create and change the same variables. If the branches use
            different variables, call all of them once directly when the variables are being
            initialized.
        scope: the scope.
        *operands: arguments of the functions, trees of arrays.
        variables: filter that selects the collections visible inside the transform; True selects
            all.
        rngs: filter that selects the random streams visible inside the transform; True selects all.

    Returns:
        The result of the function that is called.
    """

    def choose(branches: Sequence[Callable[..., Any]]) -> Any:
        return lax.switch(index, branches, *operands)

    return _branches("switch", choose, branches, scope, variables, rngs)


def _branches(
    name: str, choose: Callable[..., Any], branches: Sequence[Callable[..., Any]], scope: Scope,
    variables: CollectionFilter, rngs: PRNGSequenceFilter,
) -> Any:  # fmt: skip
    """Run one of several functions of a scope."""

    def inner(packed: Packed) -> Any:
        return choose(
            [functools.partial(packed.run, f, packed.variables, packed.rngs) for f in branches]
        )

    return lifted(inner, (variables,), (variables,), (rngs,), name=name)(scope)
