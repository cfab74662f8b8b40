"""Schedules: hyperparameters that are functions of the step count.

A schedule maps the number of steps taken (a Python number, an array or a tracer) to a value. There
are constants, decays, warm-ups and combinations of them. Names, arguments and values are the same
as in Optax. A schedule computes nothing on the host, so it can run inside a jitted update.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
