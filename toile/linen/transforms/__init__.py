"""Lifted transforms: versions of toile's transforms for module classes, methods and functions.

The plain `toile.vmap` does not handle variables and random streams. The arguments of `nn.vmap`
specify what happens to each collection and stream, and the other transforms here work in the same
way.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
