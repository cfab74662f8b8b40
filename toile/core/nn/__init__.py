"""Functional layers: plain functions of a Scope, its inputs and the layer's options.

They are the layers of Linen without modules: parameters are declared on the scope that is passed,
and a caller gives each layer its own scope with `scope.child(layer, name)`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
