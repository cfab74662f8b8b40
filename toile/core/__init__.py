"""Programs, tracers and abstract values, for code that looks inside toile, and variables."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
