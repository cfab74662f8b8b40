"""Sparse arrays: multidimensional arrays that store only some of their elements.

`BCOO` is the most complete format, and `sparsify` lets functions of arrays work on it.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
