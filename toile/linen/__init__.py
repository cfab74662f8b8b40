"""Modules, layers and lifted transformations, with all public names of `flax.linen`.

A family of layers is imported when one of its names is first used.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
