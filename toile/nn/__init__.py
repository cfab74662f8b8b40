"""Neural-network functions: activations, softmax and relatives, attention, initializers.

Pure compositions over `toile.lax` and `toile.numpy`; nothing here is a primitive. Names, defaults,
dtypes and the gradients at kinks are those of `jax.nn`. `toile.scipy` builds on this package.
"""
# ruff: noqa: F403 -- every module says what is public in its __all__

from toile.nn import initializers as initializers
from toile.nn._activations import *
from toile.nn._attention import dot_product_attention as dot_product_attention
from toile.nn._scaled import *
from toile.nn._softmax import *

__all__ = [name for name in globals() if name[0] != "_"]
