"""What a gradient transformation is: a pair of functions, `init` and `update`.

`init(params)` makes a state; `update(updates, state, params)` gives new updates and a new state,
both as trees. An update is a pure function, so `jit` can compile all of it.
A `GradientTransformationExtraArgs` also takes keywords (a loss value, a function for line search).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.trace import Array

__all__ = [
    "ArrayTree", "EmptyState", "GradientTransformation", "GradientTransformationExtraArgs",
    "NO_PARAMS_MSG", "OptState", "PRNGKey", "Params", "PyTree", "ScalarOrSchedule", "Schedule",
    "ScheduleState", "Shape", "StatefulSchedule", "TransformInitFn", "TransformUpdateExtraArgsFn",
    "TransformUpdateFn", "Updates", "identity", "init_empty_state", "set_to_zero", "stateless",
    "stateless_with_tree_map", "with_extra_args_support",
]  # fmt: skip

NO_PARAMS_MSG = (
    "update: needed the current parameters, got params=None "
    "(call update(updates, state, params): this transformation reads their values)"
)

PyTree = Any
Shape = Sequence[int]
PRNGKey = Array

if TYPE_CHECKING:  # arithmetic would be checked for every pair of members of these unions
    ArrayLike = Any
    ArrayTree = Any
else:
    from toile.typing import ArrayLike

    ArrayTree = ArrayLike | Iterable["ArrayTree"] | Mapping[Any, "ArrayTree"]

OptState = ArrayTree
Params = ArrayTree
Updates = Params
Schedule = Callable[[ArrayLike], ArrayLike]
ScheduleState = Any
ScalarOrSchedule = float | Array | Schedule


@runtime_checkable
class StatefulSchedule(Protocol):
    """A hyperparameter that keeps its own state between steps.

    Anything with these three methods is one; `inject_hyperparams` accepts it in place of a number.

    >>> from toile import optim
    >>> isinstance(optim.WrappedSchedule(lambda step: 0.1), optim.StatefulSchedule)
    True
    """

    def init(self) -> ScheduleState:
        """Make the state before the first step."""

    def update(self, state: ScheduleState, **extra_args) -> ScheduleState:
        """Return the state after one more step.

        Args:
            state: state before the step.
            extra_args: keywords that the update of the transformation was given.
        """

    def __call__(self, state: ScheduleState, **extra_args) -> ArrayLike:
        """Return the value in this state.

        Args:
            state: state to read.
            extra_args: keywords that the update of the transformation was given.
        """


class TransformInitFn(Protocol):
    """The type of functions that make the state of a transformation.

    >>> from toile import optim
    >>> init: optim.TransformInitFn = optim.sgd(0.1, momentum=0.9).init
    >>> init(jnp.ones(2))
    (TraceState(trace=Array([0., 0.], dtype=float32)), EmptyState())
    """

    def __call__(self, params: Params) -> OptState:
        """Make the state for a tree of parameters.

        Args:
            params: parameters, whose shapes and dtypes the state follows.
        """


class TransformUpdateFn(Protocol):
    """The type of functions that transform updates; they are pure.

    >>> from toile import optim
    >>> update: optim.TransformUpdateFn = optim.scale(0.5).update
    >>> update(jnp.array([2.0]), optim.EmptyState())
    (Array([1.], dtype=float32), EmptyState())
    """

    def __call__(
        self, updates: Updates, state: OptState, params: Params | None = None
    ) -> tuple[Updates, OptState]:
        """Return the transformed updates and the new state.

        Args:
            updates: tree of gradients, or the result of another transformation.
            state: state from `init` or from the last call.
            params: parameters, for transformations that read them.
        """


class TransformUpdateExtraArgsFn(Protocol):
    """The type of functions that transform updates and take additional keyword arguments.

    >>> from toile import optim
    >>> update: optim.TransformUpdateExtraArgsFn = optim.scale_by_polyak().update
    >>> update(jnp.array([2.0]), optim.EmptyState(), value=1.0)
    (Array([0.5], dtype=float32), EmptyState())
    """

    def __call__(
        self, updates: Updates, state: OptState, params: Params | None = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        """Return the transformed updates and the new state.

        Args:
            updates: tree of gradients, or the result of another transformation.
            state: state from `init` or from the last call.
            params: parameters, for transformations that read them.
            extra_args: what some transformations read, for instance the loss as `value`.
        """


class GradientTransformation(NamedTuple):
    """A pair of pure functions: `init` makes a state, `update` transforms gradients.

    Every optimizer is one. Results are trees like the gradients, and are added to the parameters
    (`apply_updates`).

    Args:
        init: function from parameters to a state.
        update: function from (updates, state, params) to (new updates, new state); `params` may be
            left out where it is not read.

    >>> from toile import optim
    >>> halve = optim.scale(0.5)
    >>> state = halve.init(jnp.ones(2))
    >>> updates, state = halve.update(jnp.array([2.0, 4.0]), state)
    >>> updates
    Array([1., 2.], dtype=float32)
    """

    init: TransformInitFn
    update: TransformUpdateFn


class GradientTransformationExtraArgs(GradientTransformation):
    """A transformation whose `update` accepts any additional keyword arguments.

    A chain is one; it passes the keywords to those of its members that accept them.

    Args:
        init: function from parameters to a state.
        update: function from (updates, state, params) and keywords to (new updates, new state).

    >>> from toile import optim
    >>> tx = optim.scale_by_polyak()
    >>> isinstance(tx, optim.GradientTransformationExtraArgs)
    True
    >>> updates, state = tx.update(jnp.array([2.0]), tx.init(jnp.zeros(1)), value=1.0)
    >>> updates
    Array([0.5], dtype=float32)
    """

    update: TransformUpdateExtraArgsFn


class EmptyState(NamedTuple):
    """An empty state, for transformations that keep no state.

    >>> from toile import optim
    >>> optim.scale(0.5).init(jnp.ones(2))
    EmptyState()
    """


def init_empty_state(params: Params) -> EmptyState:
    """Make an empty state: the `init` of transformations that keep no state.

    Args:
        params: parameters, which are not read.

    Returns:
        An `EmptyState`.

    >>> from toile import optim
    >>> negate = optim.GradientTransformation(
    ...     optim.init_empty_state, lambda updates, state, params=None: (-updates, state)
    ... )
    >>> negate.update(jnp.array([1.0]), negate.init(jnp.zeros(1)))
    (Array([-1.], dtype=float32), EmptyState())
    """
    return EmptyState()


def zero_count() -> Array:
    """A step counter at its start."""
    return jnp.zeros([], jnp.int32)


def required(params: Params | None) -> Params:
    """The parameters, or an error where the caller left them out."""
    if params is None:
        raise ValueError(NO_PARAMS_MSG)
    return params


def leafwise(f: Callable[..., Any], needs_params: bool = False) -> GradientTransformation:
    """A transformation without state that maps f over updates (and parameters) leaf by leaf."""

    def update_fn(updates, state, params=None):
        rest = (required(params),) if needs_params else ()
        return trees.map(f, updates, *rest), state

    return GradientTransformation(init_empty_state, update_fn)


def identity() -> GradientTransformation:
    """Return updates unchanged.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.identity()
    >>> updates, state = tx.update(jnp.array([1.0, 2.0]), tx.init(jnp.zeros(2)))
    >>> updates
    Array([1., 2.], dtype=float32)
    """

    def update_fn(updates, state, params=None):
        return updates, state

    return GradientTransformation(init_empty_state, update_fn)


def set_to_zero() -> GradientTransformation:
    """Replace updates by zeros, so that parameters stay unchanged.

    It is used in `partition` for the parameters that are not trained.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.set_to_zero()
    >>> updates, state = tx.update(jnp.array([1.0, 2.0]), tx.init(jnp.zeros(2)))
    >>> updates
    Array([0., 0.], dtype=float32)
    """
    return leafwise(jnp.zeros_like)


def stateless(f: Callable[[Updates, Params | None], Updates]) -> GradientTransformation:
    """Make a transformation from a function of updates and parameters.

    Args:
        f: function from (updates, params), both whole trees, to new updates; `params` is None where
            the caller gives none.

    Returns:
        A gradient transformation without state.

    >>> from toile import optim
    >>> decay = optim.stateless(lambda updates, params: optim.tree.add_scale(updates, 0.5, params))
    >>> params = {"w": jnp.array([2.0])}
    >>> updates, state = decay.update({"w": jnp.array([1.0])}, decay.init(params), params)
    >>> updates
    {'w': Array([2.], dtype=float32)}
    """

    def update_fn(updates, state, params=None):
        return f(updates, params), EmptyState()

    return GradientTransformation(init_empty_state, update_fn)


def stateless_with_tree_map(
    f: Callable[[ArrayLike, ArrayLike | None], ArrayLike],
) -> GradientTransformation:
    """Make a transformation from a function of one leaf and its parameter.

    Args:
        f: function from (update, param), the arrays of one leaf, to the new update; `param` is None
            where the caller gives no parameters.

    Returns:
        A gradient transformation without state.

    >>> from toile import optim
    >>> decay = optim.stateless_with_tree_map(lambda update, param: update + 0.5 * param)
    >>> params = {"w": jnp.array([2.0])}
    >>> updates, state = decay.update({"w": jnp.array([1.0])}, decay.init(params), params)
    >>> updates
    {'w': Array([2.], dtype=float32)}
    """

    def over_leaves(updates, params):
        if params is None:
            return trees.map(lambda u: f(u, None), updates)
        return trees.map(f, updates, params)

    return stateless(over_leaves)


def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """Make a transformation accept keywords that it does not read.

    Args:
        tx: transformation; one that accepts keywords already is returned unchanged.

    Returns:
        A transformation that does the same and ignores additional keyword arguments of `update`.

    >>> from toile import optim
    >>> tx = optim.with_extra_args_support(optim.scale(0.5))
    >>> updates, state = tx.update(jnp.array([2.0]), tx.init(jnp.zeros(1)), value=3.0)
    >>> updates
    Array([1.], dtype=float32)
    """
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx

    def update(updates, state, params=None, **extra_args):
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)
