"""Optimizers, gradient transformations, schedules and losses.

Names, arguments, states and results are the same as in Optax. In addition, masks and labels may be
globs that match parameter paths, such as `"encoder/**"`, and a few functions exist only in toile:
`get_hyperparams`, `set_hyperparams`, `stop_gradients` and `scale_by_path`.
"""

from toile._absent import missing_attribute as _missing
from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _missing)
