"""Transformations of functions of scopes: one mechanism, `pack`, under all of them."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
