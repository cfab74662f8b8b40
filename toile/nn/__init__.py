"""Functions for neural networks: activations, softmax, attention and initializers.

Names, defaults, dtypes and results are the same as in `jax.nn`, including the gradients at points
where a function such as `relu` is not differentiable.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
