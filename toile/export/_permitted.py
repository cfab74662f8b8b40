"""What an exported function may refer to by name: operations, parameter classes and functions.

The names in a file are looked up only in these tables.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from toile.disk.plan_schema import Schema, declared
from toile.engine.operation import Operation
from toile.export._dimensions import Dimension

_HOMES = {
    "toile.control": "attention call cond custom linear linear_solve random_draws remat "
                     "reverse_loop scan while_loop",
    "toile.engine": "program",
    "toile.parallel": "varying_values",
    "toile.primitives": "barriers bits choices collectives complexes contractions conv cumulative "
                        "dynamic_slices elementwise families fft gathers linalg linalg_eigen "
                        "linalg_factor linalg_solve low_rank quantized random recurrences "
                        "reductions shapes sorts special threefry_words transcendental windows",
}
# Objects of these classes are not stored as their fields: see `_writing` and `_reading`.
SPECIAL = ("Captured", "CheckIndex", "CustomJVPCall", "CustomVJPCall", "LinearCall", "ReverseLoop")
# Operations that exist only while a Program is transformed, or on the devices of one process.
_LEFT_OUT = {"CustomLinear"}
_ALSO_BASES = {"Call", "RandomClone"}  # operations that other operations are derived from
# Elementwise operations whose `eager` has any number of operands; the others have one.
_OPERANDS = {2: "And Or Xor Igamma Igammac IgammaGradA RandomGammaGrad Polygamma Zeta",
             3: "FusedMultiplyAdd RegularizedIncompleteBeta"}
_PARAMETERS = {
    "toile.api.checkpoint": "BothPolicies NamesPolicy",
    "toile.control.attention": "Form",
    "toile.lax.contractions": "DotAlgorithmPreset Precision",
    "toile.primitives.addresses":
        "GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers",
    "toile.primitives.conv": "ConvDimensionNumbers",
    "toile.primitives.fft": "FftType",
    "toile.lax.raw_bits": "RandomAlgorithm",
}
_CHECKS = Schema([])  # only for the checks of types


def _classes() -> Iterator[type[Operation]]:
    for package, names in _HOMES.items():
        for name in names.split():
            module = importlib.import_module(f"{package}.{name}")
            for x in vars(module).values():
                if isinstance(x, type) and issubclass(x, Operation) and (
                        x.__module__ == module.__name__):
                    yield x


@functools.cache
def operations() -> dict[str, Any]:
    """The classes of operations by name."""
    every = list(_classes())
    families = {base for cls in every for base in cls.__mro__[1:]} - {
        cls for cls in every if cls.__name__ in _ALSO_BASES}
    found = {}
    for cls in every:
        if cls.__name__ not in _LEFT_OUT and cls not in families:
            assert cls.__name__ not in found, f"two operations are called {cls.__name__}"
            found[cls.__name__] = cls
    return found


@functools.cache
def operands(cls: Any) -> int | None:
    """The number of operands of an elementwise operation; None if `infer` checks it."""
    if not cls.by_element or cls.__name__ == "SelectN":
        return None
    names = list(inspect.signature(cls.eager).parameters.values())[2:]
    if any(p.kind is p.VAR_POSITIONAL for p in names):
        return next((n for n, kinds in _OPERANDS.items() if cls.__name__ in kinds.split()), 1)
    return len(names)


@functools.cache
def parameters() -> dict[str, Any]:
    """The classes of parameters by name."""
    return {name: getattr(importlib.import_module(module), name)
            for module, names in _PARAMETERS.items() for name in names.split()}


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """The functions that may occur as parameters, by name."""
    policies = importlib.import_module("toile.api.checkpoint").checkpoint_policies
    found = {f"policy.{name}": getattr(policies, name) for name, value in vars(policies).items()
             if isinstance(value, staticmethod) and name.endswith("able")}
    found["rng_bit_generator"] = importlib.import_module("toile.lax.raw_bits").rng_bit_generator
    return found


@functools.cache
def fields(cls: Any) -> dict[str, str]:
    """The names of a class's fields, with their types as text."""
    if not hasattr(cls, "__dataclass_fields__") and not issubclass(cls, tuple):
        return {}
    return declared(cls)


def fits(annotation: str, value: Any) -> bool:
    """Whether a value has a type, as far as this can be checked."""
    if "Callable" in annotation or "Policy" in annotation:
        return value is None or callable(value)
    if annotation == "Operation":
        return isinstance(value, Operation)
    return _CHECKS.check(annotation).fits(_plain(value))


def _plain(x: Any) -> Any:
    """Return a value with ordinary integers instead of symbolic dimensions."""
    if type(x) is tuple:
        return tuple([_plain(y) for y in x])
    return int.__index__(x) if isinstance(x, Dimension) else x


def is_member(x: Any) -> bool:
    return isinstance(x, enum.Enum)
