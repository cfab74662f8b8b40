"""Transforms of functions of scopes, all of which are built on one mechanism, `pack`."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
