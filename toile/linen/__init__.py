"""Modules, layers and lifted transforms, with all public names of `flax.linen`.

Each group of layers is imported when one of its names is first used.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
