"""Functional layers: plain functions of a Scope, inputs and options.

They correspond to the layers of Linen, but they are not modules. Each function declares its
parameters in the scope that is passed to it. The caller creates a separate scope for each layer
with `scope.child(layer, name)`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
