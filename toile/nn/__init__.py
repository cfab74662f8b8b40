"""Neural-network functions: activations, softmax and relatives, attention, initializers.

Pure compositions over `toile.lax` and `toile.numpy`; nothing here is a primitive. Names, defaults,
dtypes and the gradients at kinks are those of `jax.nn`. `toile.scipy` builds on this package.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
