"""Quantized parameters: integers or float8 numbers with scales, which modules use like arrays.

`quantize` replaces parameters in a tree with objects of the class `QuantizedArray`. See
docs/quantisation.md.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
