"""Writes functions as programs that run without toile, and reads models of other libraries.

- `to_numpy`: one Python file that needs NumPy only
"""

from toile.engine.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
