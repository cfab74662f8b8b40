"""Functional layers: plain functions of a Scope, inputs and options.

They are the layers of Linen without modules. Each function declares its parameters in the scope
that is passed to it, and the caller makes a separate scope for each layer with
`scope.child(layer, name)`.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
