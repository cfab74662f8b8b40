"""Lifted transformations: those of toile for classes, methods and functions of modules.

A plain `toile.vmap` knows nothing of variables and random streams; `nn.vmap` is told what becomes
of each collection and stream.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
