"""Two small libraries that older tutorials use: layers and optimizers.

A layer of `stax` is a pair of functions, and an optimizer of `optimizers` is a triple of functions.
Names, signatures and results are the same as in `jax.example_libraries`. For new code, use
`toile.linen` and `toile.optim`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
