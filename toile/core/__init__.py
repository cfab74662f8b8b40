"""Scopes, variables and frozen dicts, and names for code that inspects programs and tracers."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
