"""Names for users who look inside: Programs, tracers and avals, and containers of variables."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
