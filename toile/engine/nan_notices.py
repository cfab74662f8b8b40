"""A warning when a training loop reads a loss that is NaN.

The places where losses are read call `notice`: writers, progress bars, plots and, once a
`TrainState` exists, `float(x)`. The warning says how to find the operation that produced the NaN;
it is issued once in a process. This module may import engine.config, engine.promotion and
engine.source.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from toile.engine.config import flags
from toile.engine.promotion import user_stack_level
from toile.engine.source import is_internal


class Notices:
    """Whether a training run has begun in this process, and whether a NaN was noticed."""

    training = False
    noticed = False

    def begin(self) -> None:
        """Watch `float(x)` from now on: a training run has begun."""
        self.training = True


notices = Notices()


def notice(value: Any, name: str) -> None:
    """Warn if a number that was read is a loss and is NaN."""
    if value != value and "loss" in name.lower():
        _warn(name)


def notice_read() -> None:
    """Warn if the user's own code has just read a NaN with `float(x)`."""
    if not is_internal(sys._getframe(2).f_code):  # the caller of __float__
        _warn("a number that was read during training")


def _warn(what: str) -> None:
    if notices.noticed or "nan" in flags.checks:
        return
    notices.noticed = True
    warnings.warn(
        f"{what} is NaN. To see the operation that produced the first NaN, run the program again "
        'with toile.checks("nan"), or with the environment variable TOILE_CHECKS=nan; the examples '
        "have the flag --checks=nan",
        RuntimeWarning,
        stacklevel=user_stack_level(),
    )
