"""Loss functions with the same names, arguments and values as in Optax.

Most of these functions accept arrays of predictions and targets and return the loss of each example
or element; the caller computes the mean over the batch. They are differentiable and work under
`jit` and `vmap`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
