"""Optimizers, gradient transformations, schedules and losses.

Names, arguments, states and results are the same as in Optax, with two additions. Masks and labels
may be globs that match parameter paths, such as `"encoder/**"`. `get_hyperparams` and
`set_hyperparams` read and change the hyperparameters in a state.
"""

from toile._absent import missing_attribute as _missing
from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _missing)
