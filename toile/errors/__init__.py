"""Errors that users see; each docstring has a program that raises the error and a repaired one."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
