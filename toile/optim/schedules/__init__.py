"""Schedules: hyperparameters that are functions of the step count.

A schedule maps the number of steps taken (a Python number, an array or a tracer) to a value. This
package contains constants, decays, warm-ups and combinations of these. Names, arguments and values
are the same as in Optax. Schedules can be evaluated inside a jitted update.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
