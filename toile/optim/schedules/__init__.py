"""Hyperparameters as functions of the step: constants, decays, warm-ups and their combinations.

A schedule is a function from the number of steps taken (a Python number, an array or a tracer) to a
value. Names, arguments and values are Optax's; a schedule computes nothing on the host, so that it
runs inside a jitted update.
"""
# ruff: noqa: F401, F403

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of
from toile.optim import _names_in

_FROM = {
    "toile.optim.base": "Schedule StatefulSchedule",
    "toile.optim.hyperparams": (
        "InjectHyperparamsState InjectStatefulHyperparamsState WrappedSchedule inject_hyperparams "
        "inject_stateful_hyperparams"
    ),
    **_names_in("schedules"),
}
_MODULES = "decay joining piecewise"
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

if _typing.TYPE_CHECKING:
    from toile.optim.base import Schedule, StatefulSchedule
    from toile.optim.hyperparams import (
        InjectHyperparamsState,
        InjectStatefulHyperparamsState,
        WrappedSchedule,
        inject_hyperparams,
        inject_stateful_hyperparams,
    )
    from toile.optim.schedules.decay import *
    from toile.optim.schedules.joining import *
    from toile.optim.schedules.piecewise import *
else:
    __all__ = [*sorted(_names_of(_FROM))]  # noqa: PLE0604
