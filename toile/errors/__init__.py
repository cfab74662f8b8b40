"""toile's errors. Most docstrings show a program that raises the error, and a repaired program."""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
