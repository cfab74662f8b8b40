"""What a gradient transformation is: a pair of functions, `init` and `update`.

`init(params)` makes a state; `update(updates, state, params)` gives new updates and a new state,
both as trees, with nothing hidden: an update is a pure function that jit stages whole.
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
    """A hyperparameter that keeps a state of its own between steps."""

    def init(self) -> ScheduleState:
        """The state before the first step."""

    def update(self, state: ScheduleState, **extra_args) -> ScheduleState:
        """The state after one more step."""

    def __call__(self, state: ScheduleState, **extra_args) -> ArrayLike:
        """The value in this state."""


class TransformInitFn(Protocol):
    """Makes the state of a transformation."""

    def __call__(self, params: Params) -> OptState:
        """The state for parameters like these."""


class TransformUpdateFn(Protocol):
    """Transforms updates; a pure function of its arguments."""

    def __call__(
        self, updates: Updates, state: OptState, params: Params | None = None
    ) -> tuple[Updates, OptState]:
        """New updates and the new state."""


class TransformUpdateExtraArgsFn(Protocol):
    """Transforms updates, with further keywords that some transformations read."""

    def __call__(
        self, updates: Updates, state: OptState, params: Params | None = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        """New updates and the new state."""


class GradientTransformation(NamedTuple):
    """A pair of pure functions: init makes a state, update transforms gradients.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> halve = optim.scale(0.5)
    >>> state = halve.init(jnp.ones(2))
    >>> updates, state = halve.update(jnp.array([2.0, 4.0]), state)
    >>> print(updates)
    [1. 2.]
    """

    init: TransformInitFn
    update: TransformUpdateFn


class GradientTransformationExtraArgs(GradientTransformation):
    """A transformation whose update accepts any further keywords."""

    update: TransformUpdateExtraArgsFn


class EmptyState(NamedTuple):
    """The state of a transformation that remembers nothing."""


def init_empty_state(params: Params) -> EmptyState:
    """The init function of a transformation that remembers nothing."""
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
    """Updates pass unchanged."""

    def update_fn(updates, state, params=None):
        return updates, state

    return GradientTransformation(init_empty_state, update_fn)


def set_to_zero() -> GradientTransformation:
    """Updates become zero, so that parameters stay as they are."""
    return leafwise(jnp.zeros_like)


def stateless(f: Callable[[Updates, Params | None], Updates]) -> GradientTransformation:
    """The transformation f(updates, params), as it is."""

    def update_fn(updates, state, params=None):
        return f(updates, params), EmptyState()

    return GradientTransformation(init_empty_state, update_fn)


def stateless_with_tree_map(
    f: Callable[[ArrayLike, ArrayLike | None], ArrayLike],
) -> GradientTransformation:
    """The transformation f(update, param) of each leaf; param is None when there are none."""

    def over_leaves(updates, params):
        if params is None:
            return trees.map(lambda u: f(u, None), updates)
        return trees.map(f, updates, params)

    return stateless(over_leaves)


def with_extra_args_support(tx: GradientTransformation) -> GradientTransformationExtraArgs:
    """The same transformation, ignoring keywords that it does not know."""
    if isinstance(tx, GradientTransformationExtraArgs):
        return tx

    def update(updates, state, params=None, **extra_args):
        return tx.update(updates, state, params)

    return GradientTransformationExtraArgs(tx.init, update)
