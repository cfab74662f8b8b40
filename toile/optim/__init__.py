"""Optimizers: gradient transformations and their chains, schedules, losses.

Names, arguments, states and results are those of Optax. Two things are added: masks and labels may
be globs of parameter paths (`"encoder/**"`), and `get_hyperparams` and `set_hyperparams` read and
change hyperparameters in a state.
"""

from toile._absent import missing_attribute as _missing
from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _missing)
