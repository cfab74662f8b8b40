"""while_loop, cond and switch over functions of scopes.

Branches are traced one after the other with the same counters of random draws; loops cannot create
variables, because what a step returns has to fit what it is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from toile import lax, random
from toile.core.filters import CollectionFilter, PRNGSequenceFilter
from toile.core.lift.axes import tree_map_rngs, unzipped
from toile.core.lift.packing import Packed, lifted
from toile.core.scope import Scope

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
    """Repeat `c = body_fn(scope, c)` while `cond_fn(scope, c)`.

    Only carried collections may change. Streams that are split give step i keys folded with i, and
    its condition keys folded with -i.
    """
    rng_groups, splits = unzipped(split_rngs.items())

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

        _, carried, c = lax.while_loop(continues, step, (0, carried, init))
        return c, (carried,)

    run = lifted(
        inner, (carry_variables, broadcast_variables), (carry_variables,), rng_groups,
        name="while_loop",
    )  # fmt: skip
    return run(scope)


def cond(
    pred: Any,
    true_fun: Callable[..., C],
    false_fun: Callable[..., C],
    scope: Scope,
    *operands: Any,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """`true_fun(scope, *operands)` if `pred`, else `false_fun(scope, *operands)`.

    Both have to return and to leave behind the same tree: what one creates, both create."""

    def choose(branches: Sequence[Callable[..., Any]]) -> Any:
        return lax.cond(pred, *branches, *operands)

    return _branches("cond", choose, (true_fun, false_fun), scope, variables, rngs)


def switch(
    index: Any,
    branches: Sequence[Callable[..., C]],
    scope: Scope,
    *operands: Any,
    variables: CollectionFilter = True,
    rngs: PRNGSequenceFilter = True,
) -> C:
    """`branches[index](scope, *operands)`; all have to return and leave behind the same tree.

    Where branches have variables of their own, run all of them once under init, then switch."""

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
