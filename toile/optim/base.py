"""Gradient transformations, which are pairs of functions `init` and `update`, and their types.

`init(params)` creates a state. `update(updates, state, params)` returns new updates and a new
state, both as trees. `update` is a pure function, so `jit` can compile it. The `update` of a
`GradientTransformationExtraArgs` also accepts keyword arguments, such as the loss or a function for
a line search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.foreign_names import method_instead
from toile.engine.source import describe, here
from toile.engine.trace import Array
from toile.engine.tracebacks import expect_error

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
    """A protocol for hyperparameters that keep a state between steps.

    Any object with the methods `init`, `update` and `__call__` is a stateful schedule.
    `inject_hyperparams` accepts a stateful schedule in place of a number.

    >>> from toile import optim
    >>> isinstance(optim.WrappedSchedule(lambda step: 0.1), optim.StatefulSchedule)
    True
    """

    def init(self) -> ScheduleState:
        """Create the initial state."""

    def update(self, state: ScheduleState, **extra_args) -> ScheduleState:
        """Return the state after one more step.

        Args:
            state: state before the step.
            extra_args: keyword arguments that were passed to the transformation's `update`.
        """

    def __call__(self, state: ScheduleState, **extra_args) -> ArrayLike:
        """Return the hyperparameter's value for a given state.

        Args:
            state: state that determines the value.
            extra_args: keyword arguments that were passed to the transformation's `update`.
        """


class TransformInitFn(Protocol):
    """The type of functions that create a transformation's state.

    >>> from toile import optim
    >>> init: optim.TransformInitFn = optim.sgd(0.1, momentum=0.9).init
    >>> init(jnp.ones(2))
    (TraceState(trace=Array([0., 0.], dtype=float32)), EmptyState())
    """

    def __call__(self, params: Params) -> OptState:
        """Create the state for a tree of parameters.

        Args:
            params: parameters, which determine the shapes and dtypes in the state.
        """


class TransformUpdateFn(Protocol):
    """The type of pure functions that transform updates.

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
            state: state that `init` or the last call returned.
            params: parameters; only some transformations need them.
        """


class TransformUpdateExtraArgsFn(Protocol):
    """The type of pure functions that transform updates and accept keyword arguments.

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
            state: state that `init` or the last call returned.
            params: parameters; only some transformations need them.
            extra_args: keyword arguments that some transformations read, such as `value`, the loss.
        """


class GradientTransformation(NamedTuple):
    """A pair of pure functions: `init` creates a state, and `update` transforms gradients.

    Every optimizer is a gradient transformation. The updates that `update` returns have the same
    structure as the gradients. `apply_updates` adds these updates to the parameters.

    Args:
        init: function `init(params)` that returns the initial state.
        update: function `update(updates, state, params)` that returns the new updates and the new
            state. `params` may be omitted if the function does not read it.

    >>> from toile import optim
    >>> halve = optim.scale(0.5)
    >>> state = halve.init(jnp.ones(2))
    >>> updates, state = halve.update(jnp.array([2.0, 4.0]), state)
    >>> updates
    Array([1., 2.], dtype=float32)
    """

    init: TransformInitFn
    update: TransformUpdateFn


def _no_attribute(self: Any, name: str) -> Any:
    expect_error()
    raise AttributeError(
        f"{type(self).__name__!r} object has no attribute {name!r}"
        f"{method_instead(name, 'optimizer')}", name=name, obj=self,
    )  # fmt: skip


setattr(GradientTransformation, "__getattr__", _no_attribute)  # noqa: B010  not for type checkers


class GradientTransformationExtraArgs(GradientTransformation):
    """A gradient transformation whose `update` accepts additional keyword arguments.

    The function `chain` returns such a transformation, which passes the keyword arguments to each
    member of the chain that accepts them.

    Args:
        init: function `init(params)` that returns the initial state.
        update: function `update(updates, state, params, **extra_args)` that returns the new updates
            and the new state.

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
    """An empty state, used by transformations that keep no state.

    >>> from toile import optim
    >>> optim.scale(0.5).init(jnp.ones(2))
    EmptyState()
    """


def init_empty_state(params: Params) -> EmptyState:
    """Return an empty state; this is the `init` of transformations that keep no state.

    Args:
        params: parameters, which are ignored.

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
    """Return a step counter that is zero."""
    return jnp.zeros([], jnp.int32)


def required(params: Params | None) -> Params:
    """Return the parameters, or raise an error if the caller omitted them."""
    if params is None:
        raise ValueError(NO_PARAMS_MSG)
    return params


def leafwise(f: Callable[..., Any], needs_params: bool = False) -> GradientTransformation:
    """Create a stateless transformation that applies `f` to each leaf of the updates."""

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
    """Replace updates with zeros, so the parameters stay unchanged.

    In `partition`, use this transformation for parameters that are not trained.

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
    """Create a transformation from a function of updates and parameters.

    Args:
        f: function `f(updates, params)` that returns the new updates. Both arguments are complete
            trees. `params` is None if the caller passes no parameters.

    Returns:
        A stateless gradient transformation.

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
    """Create a transformation from a function that is applied to each leaf.

    Args:
        f: function `f(update, param)` that returns the new update for one leaf. `param` is None if
            the caller passes no parameters.

    Returns:
        A stateless gradient transformation.

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


def check_transformation(tx: Any) -> None:
    """Raise an error unless `tx` has the functions of a gradient transformation."""
    if hasattr(tx, "init") and hasattr(tx, "update"):
        return
    fix = "pass optim.sgd(0.1) or another result of a function of optim"
    if isinstance(tx, (list, tuple)):
        fix = "pass the transformations one by one: optim.chain(a, b), or optim.chain(*transforms)"
    elif callable(tx):
        fix = f"call it: {describe(tx)}(learning_rate)"
    raise AttributeError(
        f"{type(tx).__name__!r} object has no attribute 'init': needed a gradient transformation, "
        f"got {describe(tx)} ({fix}){here()}"
    )


def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """Make a transformation accept keyword arguments that it does not read.

    Args:
        tx: transformation. If it is a `GradientTransformationExtraArgs`, it is returned unchanged.

    Returns:
        A transformation like `tx` whose `update` accepts additional keyword arguments and ignores
        them.

    >>> from toile import optim
    >>> tx = optim.with_extra_args_support(optim.scale(0.5))
    >>> updates, state = tx.update(jnp.array([2.0]), tx.init(jnp.zeros(1)), value=3.0)
    >>> updates
    Array([1.], dtype=float32)
    """
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx
    check_transformation(tx)

    def update(updates, state, params=None, **extra_args):
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)
