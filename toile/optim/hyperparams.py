"""Hyperparameters as part of the state: seen, scheduled and set while training runs.

`inject_hyperparams(adam)(learning_rate=1e-3)` keeps its numbers in `state.hyperparams` as arrays of
the parameters' dtype. Another value there is another argument of a jitted step, not another step:
`set_hyperparams` keeps dtypes, so that nothing is traced again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from toile import dtypes
from toile import numpy as jnp
from toile import tree as trees
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment

__all__ = [
    "InjectHyperparamsState", "InjectStatefulHyperparamsState", "WrappedSchedule",
    "WrappedScheduleState", "get_hyperparams", "inject_hyperparams", "inject_stateful_hyperparams",
    "set_hyperparams",
]  # fmt: skip


class InjectHyperparamsState(NamedTuple):
    """Steps taken, hyperparameters, the inner state."""

    count: ArrayLike
    hyperparams: dict[str, ArrayLike]
    inner_state: base.OptState


class InjectStatefulHyperparamsState(NamedTuple):
    """Steps taken, hyperparameters, what their schedules remember, the inner state."""

    count: ArrayLike
    hyperparams: dict[str, ArrayLike]
    hyperparams_states: dict[str, base.ScheduleState]
    inner_state: base.OptState


class WrappedScheduleState(NamedTuple):
    """Steps taken."""

    count: ArrayLike


class WrappedSchedule:
    """A function of the step as a stateful schedule."""

    def __init__(self, schedule_fn: base.Schedule):
        self.schedule_fn = schedule_fn

    def init(self) -> WrappedScheduleState:
        """No steps taken."""
        return WrappedScheduleState(base.zero_count())

    def update(self, state: WrappedScheduleState, **extra_args) -> WrappedScheduleState:
        """One more step."""
        return WrappedScheduleState(safe_increment(state.count))

    def __call__(self, state: WrappedScheduleState, **extra_args) -> ArrayLike:
        return self.schedule_fn(state.count)


def _in_dtype(x: Any, dtype: Any) -> Any:
    """Floating-point numbers without a strong dtype in this one; anything else unchanged."""
    if isinstance(x, Array) and not getattr(x, "weak_type", False):
        return x
    kind = x.dtype if hasattr(x, "dtype") else type(x)
    return jnp.asarray(x, dtype=dtype) if dtypes.issubdtype(kind, jnp.floating) else x


def _sorted_arguments(arguments: dict[str, Any], static: set[str]) -> tuple[dict, dict, dict]:
    """Arguments as schedules, numbers, and what the factory gets as it is."""
    schedules, numbers, others = {}, {}, {}
    for name, value in arguments.items():
        if name in static or isinstance(value, bool):
            others[name] = value
        elif isinstance(value, base.StatefulSchedule):
            schedules[name] = value
        elif callable(value):
            schedules[name] = WrappedSchedule(value)
        elif isinstance(value, (int, float, Array, np.ndarray)):
            numbers[name] = value
        else:
            others[name] = value
    return schedules, numbers, others


def inject_hyperparams(
    inner_factory: Callable[..., base.GradientTransformation],
    static_args: str | Iterable[str] = (), hyperparam_dtype: Any | None = None,
) -> Callable[..., base.GradientTransformationExtraArgs]:
    """The factory of a transformation whose state holds its numeric arguments.

    Schedules (functions of the step) are evaluated each step; numbers stay as they are set in the
    state. static_args, bools and anything that is not a number go to the factory as they are.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5)
    >>> state = tx.init(jnp.zeros(1))
    >>> state = optim.set_hyperparams(state, learning_rate=0.25)
    >>> updates, state = tx.update(jnp.ones(1), state, jnp.zeros(1))
    >>> print(updates, state.hyperparams["learning_rate"])
    [-0.25] 0.25
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if not static <= signature.parameters.keys():
        raise ValueError(
            f"inject_hyperparams: needed static_args among {list(signature.parameters)}, got "
            f"{sorted(static - signature.parameters.keys())}"
        )

    @functools.wraps(inner_factory)
    def factory(*args, **kwargs) -> base.GradientTransformationExtraArgs:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        schedules, numbers, others = _sorted_arguments(bound.arguments, static)

        def dtype_for(params):
            return tree.dtype(params, "highest") if hyperparam_dtype is None else hyperparam_dtype

        def init_fn(params):
            dtype = dtype_for(params)
            states = {name: s.init() for name, s in schedules.items()}
            values = {name: jnp.asarray(_in_dtype(x, dtype)) for name, x in numbers.items()}
            for name, schedule in schedules.items():
                values[name] = _in_dtype(schedule(states[name]), dtype)
            inner = inner_factory(**others, **values).init(params)
            return InjectStatefulHyperparamsState(base.zero_count(), values, states, inner)

        def update_fn(updates, state, params=None, **extra_args):
            dtype = dtype_for(params)
            states = state.hyperparams_states
            values = {name: _in_dtype(x, dtype) for name, x in state.hyperparams.items()}
            for name, schedule in schedules.items():
                values[name] = _in_dtype(schedule(states[name], **extra_args), dtype)
            states = {n: s.update(states[n], **extra_args) for n, s in schedules.items()}
            inner = base.with_extra_args_support(inner_factory(**others, **values))
            updates, kept = inner.update(updates, state.inner_state, params, **extra_args)
            count = safe_increment(state.count)
            return updates, InjectStatefulHyperparamsState(count, values, states, kept)

        return base.GradientTransformationExtraArgs(init_fn, update_fn)

    return factory


def inject_stateful_hyperparams(
    inner_factory: Callable[..., base.GradientTransformation],
    static_args: str | Iterable[str] = (), hyperparam_dtype: Any | None = None,
) -> Callable[..., base.GradientTransformationExtraArgs]:
    """An older name of `inject_hyperparams`."""
    return inject_hyperparams(inner_factory, static_args, hyperparam_dtype)


_STATES = (InjectHyperparamsState, InjectStatefulHyperparamsState)


def _injected(x: Any) -> bool:
    return isinstance(x, _STATES)


def _nested(state: Any) -> list[Any]:
    """All states with hyperparameters, outermost first."""
    found = []
    for node in trees.leaves(state, is_leaf=_injected):
        if _injected(node):
            found += [node, *_nested(node.inner_state)]
    return found


def get_hyperparams(state: base.OptState) -> dict[str, ArrayLike]:
    """All hyperparameters that a state holds, by name; the outermost of a name counts."""
    values: dict[str, ArrayLike] = {}
    for node in _nested(state):
        values = {**node.hyperparams, **values}
    return values


def set_hyperparams(state: base.OptState, **values: ArrayLike) -> base.OptState:
    """The state with these hyperparameters, wherever they occur in it, in the dtypes they have.

    A step jitted before keeps its trace. A scheduled one is overwritten by its schedule.
    """
    known = get_hyperparams(state)
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        raise KeyError(f"set_hyperparams: needed names among {sorted(known)}, got {unknown}")

    def changed(node):
        if not _injected(node):
            return node
        new = dict(node.hyperparams)
        for name in new.keys() & values.keys():
            new[name] = jnp.asarray(values[name], dtype=jnp.asarray(new[name]).dtype)
        inner = trees.map(changed, node.inner_state, is_leaf=_injected)
        return node._replace(hyperparams=new, inner_state=inner)

    return trees.map(changed, state, is_leaf=_injected)
