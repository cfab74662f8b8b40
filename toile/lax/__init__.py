"""The basic operations on arrays, with the same names as in `jax.lax`.

The functions accept toile arrays, NumPy arrays and Python numbers. They are the basis of
`toile.numpy`, but are stricter: operands must have the same dtype and the same shape, except that
scalars and axes of size 1 are broadcast. This module also contains functions for control flow
(`scan`, `while_loop`, `cond`) and collectives (`psum`).
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)

from toile.lax.fft import fft as fft  # noqa: E402 -- the function, not the module of that name
