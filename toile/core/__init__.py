"""Scopes, variables, frozen dicts, and names that are used to inspect programs and tracers."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
