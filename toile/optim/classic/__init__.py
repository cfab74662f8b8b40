"""Optimizers as objects, with the names, rules and state dicts of flax.optim.

An `OptimizerDef` (`Adam(learning_rate=0.1)`) says how one parameter changes; `create(params)` makes
an `Optimizer`, a tree of parameters and state, and `apply_gradient(grads)` gives the next one.
Newer programs use the gradient transformations of `toile.optim` in their place.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
