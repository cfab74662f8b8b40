"""JAX's call primitives, which packages bind and look for in Programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.compat.faces.jax.extend.core import Primitive
from toile.compat.faces.jax.extend.linear_util import WrappedFun
from toile.compat.faces.jax.interpreters import ad, batching, mlir
from toile.engine.avals import aval_of
from toile.engine.program import ClosedProgram, Program, ProgramTrace, evaluate, trace_program
from toile.engine.trace import state
from toile.transforms.jvp import jvp_flat
from toile.transforms.vmap import vmap_flat


class CallPrimitive(Primitive):
    """A call of a flat function, which a trace records with the function's Program."""

    multiple_results = call_primitive = True

    def __init__(self, name: str, closed: bool):
        super().__init__(name)
        self.closed = closed  # whether its parameter is a closed Program
        self.def_impl(self.run)
        self.def_abstract_eval(lambda *avals, call_jaxpr: self.program(call_jaxpr).out_avals)
        mlir.register_lowering(self, mlir.lower_fun(self.run))
        ad.primitive_jvps[self] = lambda primals, tangents, **params: jvp_flat(
            lambda *xs: self.run(*xs, **params), primals, tangents)
        batching.axis_primitive_batchers[self] = lambda size, name, _, xs, dims, **params: (
            vmap_flat(lambda *ys: self.run(*ys, **params), (name, size), xs, dims))

    def bind(self, *args: Any, subfuns: Sequence[WrappedFun] = (), **params: Any) -> Any:
        if "call_jaxpr" in params:  # an equation's parameters
            return super().bind(*args, **params)
        fun, xs = (subfuns[0], args) if subfuns else (args[0], args[1:])
        if state.trace.__class__ is not ProgramTrace:
            return fun.call_wrapped(*xs)
        program, consts = trace_program(fun.call_wrapped, [aval_of(x) for x in xs], self.name)
        whole = Program(program.inputs, program.equations, program.outputs, self.name)
        return super().bind(
            *consts, *xs, call_jaxpr=ClosedProgram(whole, []) if self.closed else whole)

    def program(self, call_jaxpr: Any) -> Program:
        """The Program in the parameter of an equation."""
        return call_jaxpr.program if self.closed else call_jaxpr

    def run(self, *xs: Any, call_jaxpr: Any) -> list[Any]:
        """The results of a recorded call."""
        return evaluate(self.program(call_jaxpr), xs)
