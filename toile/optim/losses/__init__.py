"""Loss functions, with the names, arguments and values of Optax.

Each takes arrays of predictions and targets and gives the loss of every example (or element); the
caller takes the mean over a batch. All are differentiable and run under jit and vmap.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
