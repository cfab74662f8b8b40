"""Modules as Flax users know them: every public name of `flax.linen`.

Each family of layers loads when one of it is first used.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
