"""Optimizers as objects, with the names, update rules and state dicts of `flax.optim`.

An `OptimizerDef`, for example `Adam(learning_rate=0.1)`, defines how a parameter changes in a step.
Its method `create(params)` creates an `Optimizer`, which is a tree that contains the parameters and
the state. The `Optimizer`'s method `apply_gradient(grads)` returns the next `Optimizer`. New
programs should use the gradient transformations in `toile.optim`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
