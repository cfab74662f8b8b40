"""Hyperparameters stored in the state, where they can be read and changed during training.

`inject_hyperparams(adam)(learning_rate=1e-3)` stores the numeric arguments in `state.hyperparams`
as arrays with the dtype of the parameters. These arrays are passed to a jitted step as arguments,
and `set_hyperparams` preserves their dtypes, so a new value does not cause the step to be traced
again.
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
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment
from toile.optim.recorded_hyperparams import bind, recorded
from toile.optim.scaling import ScaleByScheduleState
from toile.typing import DTypeLike

__all__ = [
    "InjectHyperparamsState", "InjectStatefulHyperparamsState", "WrappedSchedule",
    "WrappedScheduleState", "get_hyperparams", "inject_hyperparams", "inject_stateful_hyperparams",
    "set_hyperparams",
]  # fmt: skip


class InjectHyperparamsState(NamedTuple):
    """State of `inject_hyperparams` in older versions of Optax.

    Args:
        count: number of updates made so far.
        hyperparams: dict from names to values.
        inner_state: state of the inner transformation.

    >>> from toile import optim
    >>> state = optim.InjectHyperparamsState(0, {"learning_rate": jnp.float32(0.5)}, ())
    >>> optim.get_hyperparams(state)
    {'learning_rate': Array(0.5, dtype=float32)}
    """

    count: ArrayLike
    hyperparams: dict[str, ArrayLike]
    inner_state: base.OptState


class InjectStatefulHyperparamsState(NamedTuple):
    """State of `inject_hyperparams`.

    Args:
        count: number of updates made so far.
        hyperparams: dict from names to values; `set_hyperparams` changes the values.
        hyperparams_states: dict from the names of scheduled hyperparameters to the states of their
            schedules.
        inner_state: state of the inner transformation.

    >>> from toile import optim
    >>> state = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5).init(jnp.zeros(1))
    >>> state.hyperparams
    {'learning_rate': Array(0.5, dtype=float32)}
    """

    count: ArrayLike
    hyperparams: dict[str, ArrayLike]
    hyperparams_states: dict[str, base.ScheduleState]
    inner_state: base.OptState


class WrappedScheduleState(NamedTuple):
    """State of a `WrappedSchedule`.

    Args:
        count: number of steps taken.

    >>> from toile import optim
    >>> optim.WrappedSchedule(lambda step: 0.1).init()
    WrappedScheduleState(count=Array(0, dtype=int32))
    """

    count: ArrayLike


class WrappedSchedule:
    """A stateful schedule created from a function of the step count.

    Args:
        schedule_fn: function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> schedule = optim.WrappedSchedule(lambda step: 0.5**step)
    >>> state = schedule.update(schedule.init())
    >>> schedule(state)
    Array(0.5, dtype=float32, weak_type=True)
    """

    def __init__(self, schedule_fn: base.Schedule):
        self.schedule_fn = schedule_fn

    def init(self) -> WrappedScheduleState:
        """Create the initial state."""
        return WrappedScheduleState(base.zero_count())

    def update(self, state: WrappedScheduleState, **extra_args) -> WrappedScheduleState:
        """Return the state after one more step.

        Args:
            state: state before the step.
            extra_args: keyword arguments, which are ignored.
        """
        return WrappedScheduleState(safe_increment(state.count))

    def __call__(self, state: WrappedScheduleState, **extra_args) -> ArrayLike:
        """Return the schedule's value for a given state.

        Args:
            state: state that contains the step count.
            extra_args: keyword arguments, which are ignored.
        """
        return self.schedule_fn(state.count)


def _in_dtype(x: Any, dtype: Any) -> Any:
    """Convert a weakly typed floating-point number to a dtype; return anything else unchanged."""
    if isinstance(x, Array) and not getattr(x, "weak_type", False):
        return x
    kind = x.dtype if hasattr(x, "dtype") else type(x)
    return jnp.asarray(x, dtype=dtype) if dtypes.issubdtype(kind, jnp.floating) else x


def _sorted_arguments(arguments: dict[str, Any], static: set[str]) -> tuple[dict, dict, dict]:
    """Sort arguments into schedules, numbers, and those passed to the factory unchanged."""
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
    static_args: str | Iterable[str] = (), hyperparam_dtype: DTypeLike | None = None,
) -> Callable[..., base.GradientTransformationExtraArgs]:
    """Store the numeric arguments of an optimizer in its state, where they can be changed.

    The state has a field `hyperparams`, a dict from names to values. `set_hyperparams` can change
    these values without causing a jitted step to be recompiled. Schedules are evaluated in each
    step. Bools and values that are not numbers are passed to `inner_factory` unchanged.

    Args:
        inner_factory: a function that returns a transformation, for example `adam`.
        static_args: name or names of arguments that are passed to `inner_factory` unchanged.
        hyperparam_dtype: dtype of floating-point hyperparameters. If None, the dtype of the
            parameters is used; if the parameters have different dtypes, the dtype to which all
            of these promote is used.

    Returns:
        A function that accepts the arguments of `inner_factory` and returns the transformation.

    Raises:
        ValueError: a name in `static_args` is not a parameter of `inner_factory`.

    >>> from toile import optim
    >>> tx = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5)
    >>> state = tx.init(jnp.zeros(1))
    >>> state = optim.set_hyperparams(state, learning_rate=0.25)
    >>> updates, state = tx.update(jnp.ones(1), state, jnp.zeros(1))
    >>> updates, state.hyperparams["learning_rate"]
    (Array([-0.25], dtype=float32), Array(0.25, dtype=float32))
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    if not callable(inner_factory):
        raise TypeError(
            f"{type(inner_factory).__name__} is not a callable object: inject_hyperparams needed a "
            "function that makes an optimizer, got an optimizer (pass the function, then its "
            f"arguments: optim.inject_hyperparams(optim.adam)(learning_rate=0.1)){here()}"
        )
    signature = inspect.signature(inner_factory)
    if not static <= signature.parameters.keys():
        raise ValueError(
            f"inject_hyperparams: needed static_args among {list(signature.parameters)}, got "
            f"{sorted(static - signature.parameters.keys())}{here()}"
        )

    @functools.wraps(inner_factory)
    def factory(*args, **kwargs) -> base.GradientTransformationExtraArgs:
        bound = bind(inner_factory, signature, args, kwargs)
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
    static_args: str | Iterable[str] = (), hyperparam_dtype: DTypeLike | None = None,
) -> Callable[..., base.GradientTransformationExtraArgs]:
    """Call `inject_hyperparams`, which is the newer name of this function.

    Args:
        inner_factory: a function that returns a transformation, for example `adam`.
        static_args: name or names of arguments that are passed to `inner_factory` unchanged.
        hyperparam_dtype: dtype of floating-point hyperparameters. If None, the dtype of the
            parameters is used; if the parameters have different dtypes, the dtype to which all
            of these promote is used.

    Returns:
        A function that accepts the arguments of `inner_factory` and returns the transformation.

    >>> from toile import optim
    >>> tx = optim.inject_stateful_hyperparams(optim.sgd)(learning_rate=lambda step: 0.5**step)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.ones(1), state, jnp.zeros(1))
    ...     print(updates)
    [-1.]
    [-0.5]
    """
    return inject_hyperparams(inner_factory, static_args, hyperparam_dtype)


_STATES = (InjectHyperparamsState, InjectStatefulHyperparamsState)


def _injected(x: Any) -> bool:
    return isinstance(x, _STATES)


def _nested(state: Any) -> list[Any]:
    """Return all states that contain hyperparameters, outermost first."""
    found = []
    for node in trees.leaves(state, is_leaf=_injected):
        if _injected(node):
            found += [node, *_nested(node.inner_state)]
    return found


def get_hyperparams(
    state: base.OptState, tx: base.GradientTransformation | None = None
) -> dict[str, ArrayLike]:
    """Return the hyperparameters of an optimizer, such as the current learning rate.

    Args:
        state: state of any optimizer, or a `TrainState`, which contains the optimizer as well. Only
            the parts created by `inject_hyperparams` contain hyperparameters.
        tx: the optimizer. If it is given, the result also contains the numbers with which `adam`
            and the other optimizers were created, and the values of their schedules in the next
            step. The numbers are stored in the optimizer and not in its state, because the state
            must have the same structure as in Optax. To change them during training, create the
            optimizer with `inject_hyperparams`.

    Returns:
        A dict from names to values. If a name occurs more than once in the state, the dict contains
        the outermost value or, within a chain, the first value. If a name occurs more than once in
        `tx`, the dict contains the last value in the chain. Values in the state take precedence
        over values in `tx`.

    Differences:
        Optax does not have this function.

    >>> from toile import optim
    >>> tx = optim.chain(optim.clip(1.0), optim.inject_hyperparams(optim.sgd)(learning_rate=0.5))
    >>> optim.get_hyperparams(tx.init(jnp.zeros(1)))
    {'learning_rate': Array(0.5, dtype=float32)}
    >>> tx = optim.sgd(optim.linear_schedule(1.0, 0.0, transition_steps=4))
    >>> updates, state = tx.update(jnp.ones(1), tx.init(jnp.zeros(1)))
    >>> optim.get_hyperparams(state, tx)
    {'learning_rate': Array(0.75, dtype=float32)}
    """
    if tx is None and hasattr(state, "opt_state") and hasattr(state, "tx"):
        state, tx = state.opt_state, state.tx
    values: dict[str, ArrayLike] = {}
    for node in _nested(state):
        values = {**node.hyperparams, **values}
    if tx is not None:
        for name, value in recorded(tx).items():
            if callable(value):
                value = value(_count(state))
            values.setdefault(name, jnp.asarray(value))
    return values


def _count(state: Any) -> Any:
    """The number of steps that a schedule has seen; 0 if the state does not contain it."""
    has_count = lambda x: "count" in getattr(x, "_fields", ())
    found = [x for x in trees.leaves(state, is_leaf=has_count) if has_count(x)]
    scheduled = [x for x in found if isinstance(x, ScaleByScheduleState)]
    return (scheduled or found)[0].count if found else 0


def set_hyperparams(state: base.OptState, **values: ArrayLike) -> base.OptState:
    """Return a state with new values for some hyperparameters.

    Each hyperparameter is set wherever its name occurs in the state. It keeps its dtype, so a
    jitted step is not recompiled. If a hyperparameter has a schedule, the schedule overwrites the
    new value in the next step.

    Args:
        state: state of any optimizer. Only the parts created by `inject_hyperparams` are changed.
        values: new values, by name.

    Returns:
        The new state.

    Raises:
        KeyError: one of the names does not occur in the state.

    Differences:
        Optax does not have this function.

    >>> from toile import optim
    >>> state = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5).init(jnp.zeros(1))
    >>> optim.set_hyperparams(state, learning_rate=0.25).hyperparams
    {'learning_rate': Array(0.25, dtype=float32)}
    """
    known = get_hyperparams(state)
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        raise KeyError(f"set_hyperparams: needed names among {sorted(known)}, got {unknown} (only "
                       "optimizers made with inject_hyperparams, such as inject_hyperparams(adam)"
                       f"(learning_rate=1e-3), have hyperparameters in their state){here()}")

    def changed(node):
        if not _injected(node):
            return node
        new = dict(node.hyperparams)
        for name in new.keys() & values.keys():
            new[name] = jnp.asarray(values[name], dtype=jnp.asarray(new[name]).dtype)
        inner = trees.map(changed, node.inner_state, is_leaf=_injected)
        return node._replace(hyperparams=new, inner_state=inner)

    return trees.map(changed, state, is_leaf=_injected)
