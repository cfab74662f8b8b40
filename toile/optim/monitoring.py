"""Transformations that measure updates in a chain and store the results in the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toile.optim import base
from toile.optim.accumulation import ema
from toile.optim.base import ArrayLike
from toile.optim.combining import chain
from toile.typing import DTypeLike

__all__ = [
    "MonitorState", "SnapshotState", "measure_with_ema", "monitor", "snapshot",
]  # fmt: skip

Measure = Callable[[base.Updates], base.ArrayTree]


class SnapshotState(NamedTuple):
    """State of `snapshot`.

    Args:
        measurement: dict that contains the measurement under its name.

    >>> from toile import optim
    >>> optim.snapshot("norm", optim.global_norm).init(jnp.zeros(2))
    SnapshotState(measurement={'norm': Array(0., dtype=float32)})
    """

    measurement: dict[str, base.ArrayTree]


def snapshot(measure_name: str, measure: Measure) -> base.GradientTransformation:
    """Store a measurement of the updates in the optimizer's state, without changing the updates.

    Args:
        measure_name: name of the measurement. To read the measurement, call
            `optim.tree.get(state, measure_name)`.
        measure: function that maps updates to an array or a tree. To create the initial state,
            `init` applies this function to the parameters.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.chain(optim.snapshot("norm", optim.global_norm), optim.sgd(0.1))
    >>> updates, state = tx.update(jnp.array([3.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> optim.tree.get(state, "norm")
    Array(5., dtype=float32)
    """
    init_fn = lambda params: SnapshotState({measure_name: measure(params)})

    def update_fn(updates, state, params=None):
        return updates, SnapshotState({measure_name: measure(updates)})

    return base.GradientTransformation(init_fn, update_fn)


class MonitorState(NamedTuple):
    """State of `monitor`.

    Args:
        measurements: dict from names to measurements; empty before the first update.
        measure_states: states of the measures, in the order of the dict passed to `monitor`.

    >>> from toile import optim
    >>> optim.monitor({"norm": optim.global_norm}).init(jnp.zeros(2))
    MonitorState(measurements={}, measure_states=(EmptyState(),))
    """

    measurements: dict[str, base.ArrayTree]
    measure_states: tuple[base.OptState, ...]


def monitor(
    measures: dict[str, base.GradientTransformationExtraArgs | Measure],
) -> base.GradientTransformationExtraArgs:
    """Store several measurements of the updates in the state; the updates stay unchanged.

    Args:
        measures: dict that maps names to measures. A measure is a function of the updates, or a
            transformation that may keep a state, such as the result of `measure_with_ema`.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.monitor({"norm": optim.global_norm, "largest": optim.tree.max})
    >>> updates, state = tx.update(jnp.array([3.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> state.measurements
    {'norm': Array(5., dtype=float32), 'largest': Array(4., dtype=float32)}
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
    measure: Measure, decay: ArrayLike, debias: bool = True,
    accumulator_dtype: DTypeLike | None = None,
) -> base.GradientTransformationExtraArgs:
    """Create a measure for `monitor` that is the moving average of another measure.

    Args:
        measure: function that maps updates to an array or a tree.
        decay: decay rate of the average; values closer to 1 average over more steps.
        debias: whether to correct the average for the bias caused by initializing it to zero.
        accumulator_dtype: dtype in which the average is stored. If `accumulator_dtype` is None, the
            dtype of the measurement is used.

    Returns:
        A transformation that can be passed to `monitor`.

    >>> from toile import optim
    >>> tx = optim.monitor({"norm": optim.measure_with_ema(optim.global_norm, decay=0.5)})
    >>> state = tx.init(jnp.zeros(1))
    >>> for grad in (1.0, 4.0):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    >>> state.measurements
    {'norm': Array(3., dtype=float32)}
    """
    average = ema(decay, debias, accumulator_dtype)
    average = average._replace(init=lambda params, init=average.init: init(measure(params)))
    return chain(_as_transformation(measure), average)
