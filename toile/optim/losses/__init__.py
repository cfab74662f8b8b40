"""Loss functions with the same names, arguments and values as in Optax.

Most of them take arrays of predictions and targets and return the loss of each example or element;
the caller takes the mean over the batch. They are differentiable and work under `jit` and `vmap`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
