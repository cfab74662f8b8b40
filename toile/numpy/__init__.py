"""NumPy's functions for toile arrays: `import toile.numpy as jnp`.

Names, signatures, defaults, dtypes and results are the same as in `jax.numpy`.

The main differences from NumPy are:

- Arrays are immutable. `x.at[idx].set(y)` returns an updated copy, and `out` is not supported.
- Most functions accept arrays and numbers, but not lists.
- int32 and float32 promote to float32. A Python number adopts the dtype of the array that it is
  combined with, except that an integer array and a Python float promote to float32.
- 64-bit dtypes are available only if x64 is enabled
  (`toile.config.update("jax_enable_x64", True)`).
- Floating-point division by zero and overflow produce infinities or NaN without a warning.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)

from toile.numpy import ufunc_api as _ufunc_api  # noqa: E402, F401 -- gives ufuncs `add.reduce` etc.
