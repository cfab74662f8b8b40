"""Optimizers: gradient transformations and their chains, schedules, losses.

Names, arguments, states and results are those of Optax. What it lacks: a glob of parameter paths
("encoder/**") wherever a mask or labels are taken, and `get_hyperparams`, `set_hyperparams`.
"""

from toile._absent import missing_attribute as _missing
from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _missing)
