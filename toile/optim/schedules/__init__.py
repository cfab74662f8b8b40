"""Hyperparameters as functions of the step: constants, decays, warm-ups and their combinations.

A schedule is a function from the number of steps taken (a Python number, an array or a tracer) to a
value. Names, arguments and values are Optax's; a schedule computes nothing on the host, so that it
runs inside a jitted update.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
