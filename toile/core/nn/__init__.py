"""Functional layers: plain functions of a Scope, its inputs and the layer's options.

They are what Linen's layers would be without Modules: parameters are declared on the scope at hand,
and a caller gives each layer a scope of its own with `scope.child(layer, name)`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
