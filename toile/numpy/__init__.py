"""NumPy's interface on toile arrays: `import toile.numpy as jnp`.

Names, signatures, defaults, dtypes and results are those of `jax.numpy`. Each module below holds
one family and lists its public names in `__all__`; families that models rarely use are loaded when
one of their names is first used.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
