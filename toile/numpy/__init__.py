"""NumPy's interface on toile arrays: `import toile.numpy as jnp`.

Names, signatures, defaults, dtypes and results are those of `jax.numpy`. Each module below holds
one family and lists its public names in `__all__`; families that models rarely use are loaded when
one of their names is first used.

Differences from NumPy: arrays cannot be changed, and there is no `out`. Most functions take arrays
and numbers, not lists. int32 and float32 promote to float32, and a Python number takes the dtype of
the array beside it if that has the same kind. 64-bit dtypes need x64 to be enabled. Division by
zero, overflow and the like give infinities and NaN without a warning.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)

from toile.numpy import ufunc_api as _ufunc_api  # noqa: E402, F401 -- gives ufuncs `add.reduce` etc.
