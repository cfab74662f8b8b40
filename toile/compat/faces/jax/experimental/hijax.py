"""`jax.experimental.hijax`: what `flax.nnx` needs to define its own types of values.

toile has no types that are defined by packages, so nothing can be bound: `nnx` uses them only if
its option `use_hijax` is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.compat.faces.jax.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal
from toile.engine.avals import Aval as AbstractValue
from toile.engine.source import here

__all__ = [
    "AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrim", "HiPrimitive", "HiType",
    "MutableHiType", "QuasiDynamicData", "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
    "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal", "register_hitype",
]


class HiType:
    """Base class of types of values that a package defines."""


class MutableHiType(HiType):
    """Base class of such types whose values change."""


class QuasiDynamicData:
    """Base class of what is known about a value that changes."""


class AvalQDD:
    """A type and what is known about its value."""

    def __init__(self, aval: Any, qdd: Any):
        self.aval, self.qdd = aval, qdd


class AvalMutableQDD(AvalQDD):
    """The same, of a value that changes."""


class HiPrimitive:
    """Base class of operations on such types, which toile cannot bind."""

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def bind(self, *args: Any, **params: Any) -> Any:
        raise NotImplementedError(
            f"{self.name}: needed an operation on arrays, got one on a type that a package "
            f"defines, which toile does not have (for flax.nnx, turn off use_hijax){here()}"
        )


class HiPrim:
    """Base class of operations on such types, with their rules as methods; toile cannot run them.

    An instance holds the types of its operands and of its result."""

    def __init__(self) -> None:
        pass

    def __call__(self, *args: Any) -> Any:
        return HiPrimitive(type(self).__name__).bind(*args)


VJPHiPrimitive = HiPrim  # its name up to JAX 0.11.1


class aval_property:
    """A property that a type of values gives to the values."""

    def __init__(self, fget: Callable[..., Any]):
        self.fget = fget


class aval_method:
    """A method that a type of values gives to the values."""

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun


class _Effects:
    """The effects that loops may have."""

    def add_type(self, effect: type) -> None:
        """Loops of toile may have every effect."""


control_flow_allowed_effects = _Effects()


def register_hitype(value: type, typeof: Callable[[Any], Any]) -> None:
    """Note how the type of a value is found; nothing asks for it, as nothing can be bound."""
