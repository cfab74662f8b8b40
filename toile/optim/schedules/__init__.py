"""Hyperparameters as functions of the step: constants, decays, warm-ups and their combinations.

A schedule is a function from the number of steps taken (a Python number, an array or a tracer) to a
value. Names, arguments and values are Optax's; a schedule computes nothing on the host, so that it
runs inside a jitted update.
"""

import typing as _typing

from toile.engine.lazy import attach as _attach

if _typing.TYPE_CHECKING:
    from toile.optim.base import Schedule, StatefulSchedule
    from toile.optim.hyperparams import (
        InjectHyperparamsState,
        InjectStatefulHyperparamsState,
        WrappedSchedule,
        inject_hyperparams,
        inject_stateful_hyperparams,
    )
    from toile.optim.schedules.decay import (
        constant_schedule,
        cosine_decay_schedule,
        exponential_decay,
        linear_schedule,
        polynomial_schedule,
    )
    from toile.optim.schedules.joining import (
        join_schedules,
        sgdr_schedule,
        warmup_constant_schedule,
        warmup_cosine_decay_schedule,
        warmup_exponential_decay_schedule,
    )
    from toile.optim.schedules.piecewise import (
        cosine_onecycle_schedule,
        linear_onecycle_schedule,
        piecewise_constant_schedule,
        piecewise_interpolate_schedule,
    )

_FROM = {
    "toile.optim.base": "Schedule StatefulSchedule",
    "toile.optim.hyperparams": (
        "InjectHyperparamsState InjectStatefulHyperparamsState WrappedSchedule inject_hyperparams "
        "inject_stateful_hyperparams"
    ),
    "decay": (
        "constant_schedule cosine_decay_schedule exponential_decay linear_schedule "
        "polynomial_schedule"
    ),
    "joining": (
        "join_schedules sgdr_schedule warmup_constant_schedule warmup_cosine_decay_schedule "
        "warmup_exponential_decay_schedule"
    ),
    "piecewise": (
        "cosine_onecycle_schedule linear_onecycle_schedule piecewise_constant_schedule "
        "piecewise_interpolate_schedule"
    ),
}
_MODULES = "decay joining piecewise"
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = [
    "InjectHyperparamsState",
    "InjectStatefulHyperparamsState",
    "Schedule",
    "StatefulSchedule",
    "WrappedSchedule",
    "constant_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "exponential_decay",
    "inject_hyperparams",
    "inject_stateful_hyperparams",
    "join_schedules",
    "linear_onecycle_schedule",
    "linear_schedule",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial_schedule",
    "sgdr_schedule",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]
