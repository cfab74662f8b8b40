"""The public functions of the operations, after jax.lax: strict in dtypes and shapes.

Functions take arrays, NumPy arrays and Python numbers. `toile.numpy` promotes and broadcasts; here
operands agree in dtype, and in shape up to scalars and axes of size 1. Each module below holds one
family and lists its public names in `__all__`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)

from toile.lax.fft import fft as fft  # noqa: E402 -- the function, not the module of that name
