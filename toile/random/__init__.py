"""Random numbers from explicit keys, with the same names, arguments and results as `jax.random`.

`key(seed)` creates a key, and `split` creates new keys from it. Use each key only once. Equal keys
yield equal numbers, on every device, both inside and outside `jit`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)

from toile.random.bits import bits as bits  # noqa: E402 -- the function, not the module of that name
