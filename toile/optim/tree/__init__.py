"""Functions on trees of arrays: arithmetic, dtypes, random numbers, and access to states."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
