"""The parameters of operations that carry Programs, in the form that JAX gives them.

Interpreters written for JAX read `eqn.params["jaxpr"].jaxpr` and apply an equation with
`eqn.primitive.bind(*args, **eqn.params)`. This module may import the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toile.engine.program import ClosedProgram, Program
from toile.engine.source import here


class Subfunction:
    """A function among the parameters to bind; `call_wrapped` calls it, as in JAX."""

    __slots__ = ("call_wrapped",)

    def __init__(self, fun: Any):
        self.call_wrapped = fun

    def __call__(self, *args: Any) -> Any:
        return self.call_wrapped(*args)


def with_all_inputs(program: Program) -> Program:
    """A Program in which values that the function closed over are inputs like the others."""

    def make() -> Program:
        return Program(program.inputs, program.equations, program.outputs, program.name)

    return program.memoized("all inputs", make) if program.hidden else program


def closed(value: Any) -> Any:
    """A parameter, with closed Programs in the place of Programs."""
    if isinstance(value, Program):
        return ClosedProgram(with_all_inputs(value), [])
    if isinstance(value, tuple) and value and isinstance(value[0], Program):
        return tuple(map(closed, value))
    return value


def opened(name: str, value: Any, consts: list[Any]) -> Any:
    """The reverse of `closed`; adds the values that a Program closes over to `consts`."""
    if isinstance(value, ClosedProgram):
        consts += value.consts
        return value.program
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], ClosedProgram):
        return tuple(opened(name, v, consts) for v in value)
    return value


def fields_of(name: str, names: Mapping[str, str], params: Mapping[str, Any],
              takes_consts: bool) -> tuple[dict[str, Any], Sequence[Any]]:
    """The fields of an operation from JAX's parameters, and the values that its Program needs.

    `names` maps fields to JAX's names."""
    to_field = {theirs: ours for ours, theirs in names.items()}
    consts: list[Any] = []
    found = {to_field.get(key, key): opened(key, v, consts) for key, v in params.items()}
    if consts and not takes_consts:
        raise ValueError(
            f"{name}.bind: needed programs without values of their own, got {len(consts)} of them "
            f"(pass these values as arguments){here()}"
        )
    return found, consts
