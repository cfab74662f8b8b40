"""Measurements of updates as they pass through a chain, kept in the state to be logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from toile.optim import base
from toile.optim.accumulation import ema
from toile.optim.base import ArrayLike
from toile.optim.combining import chain

__all__ = [
    "MonitorState", "SnapshotState", "measure_with_ema", "monitor", "snapshot",
]  # fmt: skip

Measure = Callable[[base.Updates], base.ArrayTree]


class SnapshotState(NamedTuple):
    """The measurement, under its name."""

    measurement: dict[str, Any]


def snapshot(measure_name: str, measure: Measure) -> base.GradientTransformation:
    """Updates pass unchanged; measure(updates) is found in the state under measure_name.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.chain(optim.snapshot("norm", optim.tree.norm), optim.sgd(0.1))
    >>> _, state = tx.update(jnp.array([3.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> print(optim.tree.get(state, "norm"))
    5.0
    """
    init_fn = lambda params: SnapshotState({measure_name: measure(params)})

    def update_fn(updates, state, params=None):
        return updates, SnapshotState({measure_name: measure(updates)})

    return base.GradientTransformation(init_fn, update_fn)


class MonitorState(NamedTuple):
    """The measurements by name, and the states of what makes them."""

    measurements: dict[str, base.ArrayTree]
    measure_states: tuple[base.OptState, ...]


def monitor(
    measures: dict[str, base.GradientTransformationExtraArgs | Measure],
) -> base.GradientTransformationExtraArgs:
    """Updates pass unchanged; the result of each measure is kept in the state.

    A measure is a function of updates, or a transformation that may keep a state.
    """

    wrapped = {name: _as_transformation(m) if callable(m) else m for name, m in measures.items()}
    makers = {name: base.with_extra_args_support(tx) for name, tx in wrapped.items()}

    init_fn = lambda params: MonitorState({}, tuple(tx.init(params) for tx in makers.values()))

    def update_fn(updates, state, params=None, **extra_args):
        found, states = {}, []
        for (name, tx), inner in zip(makers.items(), state.measure_states):
            found[name], inner = tx.update(updates, inner, params, **extra_args)
            states.append(inner)
        return updates, MonitorState(found, tuple(states))

    return base.GradientTransformationExtraArgs(init_fn, update_fn)


def _as_transformation(measure: Measure) -> base.GradientTransformation:
    return base.stateless(lambda updates, params: measure(updates))


def measure_with_ema(
    measure: Measure, decay: ArrayLike, debias: bool = True, accumulator_dtype: Any | None = None,
) -> base.GradientTransformationExtraArgs:
    """For `monitor`: the moving average of a measure."""
    average = ema(decay, debias, accumulator_dtype)
    average = average._replace(init=lambda params, init=average.init: init(measure(params)))
    return chain(_as_transformation(measure), average)
