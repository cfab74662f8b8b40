"""Lifted transformations: those of toile for classes, methods and functions of modules.

A plain `toile.vmap` does not know about variables and random streams; the arguments of `nn.vmap`
say what happens to each collection and stream.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
