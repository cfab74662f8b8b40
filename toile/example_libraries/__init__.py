"""The two small libraries that old tutorials are written with: layers and optimizers.

`stax` makes layers as pairs of functions, `optimizers` makes optimizers as triples of them; names,
signatures and results are those of `jax.example_libraries`. For new code there are `toile.linen`
and `toile.optim`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
