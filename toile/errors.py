"""The errors users see, each with a broken and a repaired program in its docstring."""

from toile.engine.errors import (
    ConcretizationTypeError,
    JAXIndexError,
    JaxRuntimeError,
    JAXTypeError,
    KeyReuseError,
    NonConcreteBooleanIndexError,
    NonHashableStaticArgumentError,
    ShapeError,
    ToileError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TreeStructureError,
    UnexpectedTracerError,
)

__all__ = [
    "ConcretizationTypeError",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "KeyReuseError",
    "NonConcreteBooleanIndexError",
    "NonHashableStaticArgumentError",
    "ShapeError",
    "ToileError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TreeStructureError",
    "UnexpectedTracerError",
]
