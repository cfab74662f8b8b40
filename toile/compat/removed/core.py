"""Names of `jax.core`, `jax.abstract_arrays` and `jax.interpreters` that JAX has removed."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import toile
from toile.compat.jax_core import ShapedArray
from toile.compat.removed.arrays import concrete_or_error
from toile.engine.avals import Aval, aval_of
from toile.engine.program import ClosedProgram, Program

__all__ = [
    "ConcreteArray", "TypedJaxpr", "UnshapedArray", "abstractify", "array_types",
    "backend_specific_translations", "call_translations", "concrete_or_error", "device_put",
    "eval_context", "jaxpr_as_fun", "make_shaped_array", "multi_host_supported_collectives",
    "raise_to_shaped", "subjaxprs", "translations", "unit",
]

unit = None
TypedJaxpr = ClosedProgram
eval_context = toile.ensure_compile_time_eval
abstractify = make_shaped_array = aval_of
array_types = {toile.Array}
multi_host_supported_collectives: set[Any] = set()
translations: dict[Any, Any] = {}
call_translations: dict[Any, Any] = {}
backend_specific_translations: dict[str, dict[Any, Any]] = collections.defaultdict(dict)


class UnshapedArray(ShapedArray):
    """An abstract value without a shape; toile has none."""


class ConcreteArray(ShapedArray):
    """An abstract value with a value; in toile, the array itself is used."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return aval_of(args[-1])


def raise_to_shaped(aval: Aval, weak_type: bool | None = None) -> Aval:
    """The shape and dtype of an abstract value, with another `weak_type` if it is given."""
    if weak_type is None or weak_type == aval.weak_type:
        return aval
    return Aval(aval.shape, aval.dtype, weak_type)


def device_put(x: Any, device: Any = None) -> Any:
    """Place an array on a device."""
    return toile.device_put(x, device)


def jaxpr_as_fun(closed: ClosedProgram) -> Callable[..., list[Any]]:
    """The function of the arguments of a Program."""
    return lambda *args: toile.core.eval_jaxpr(closed.jaxpr, closed.consts, *args)


def subjaxprs(jaxpr: Program) -> list[Program]:
    """The Programs within the equations of a Program."""
    found = []
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(part, ClosedProgram):
                    found.append(part.jaxpr)
                elif isinstance(part, Program):
                    found.append(part)
    return found
