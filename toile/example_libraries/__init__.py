"""Two small libraries that older tutorials use: layers and optimizers.

In `stax`, a layer is a pair of functions. In `optimizers`, an optimizer is a triple of functions.
Names, signatures and results are the same as in `jax.example_libraries`. In new code, use
`toile.linen` and `toile.optim`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
