"""`jax.interpreters.partial_eval`: traces flat functions and removes dead code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval
from toile.engine.program import Program, trace_program, without_dead_code
from toile.transforms.masks import pick

__all__ = ["dce_jaxpr", "trace_to_jaxpr_dynamic"]


def trace_to_jaxpr_dynamic(
    fun: Any, in_avals: Sequence[Aval], **_: Any
) -> tuple[Program, list[Aval], list[Any]]:
    """The Program of a flat function, the types of its results, and the values it closes over."""
    name = getattr(fun, "__name__", "program")
    program, consts = trace_program(fun.call_wrapped, in_avals, name, kind="make_jaxpr")
    return program, program.out_avals, consts


def dce_jaxpr(
    jaxpr: Program, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[bool]]:
    """The Program of some of the results, and which arguments it has; arguments that it does not
    need are removed unless `instantiate` is true for them."""
    smaller = without_dead_code(jaxpr, used_outputs)
    ends = [a for e in smaller.equations for a in e.ins] + list(smaller.outputs)
    read = {id(a) for a in ends}
    kept = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else instantiate
    used = [id(v) in read or k for v, k in zip(jaxpr.invars, kept, strict=True)]
    made = Program([*jaxpr.constvars, *pick(jaxpr.invars, used)], smaller.equations,
                   smaller.outputs, jaxpr.name)
    made.hidden = len(jaxpr.constvars)
    return made, used
