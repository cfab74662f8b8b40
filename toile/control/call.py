"""Operations that carry Programs, and the simplest of them: a call.

The rules of such an operation use derived Programs: the jvp, the split into known and linear
parts, the transpose and the vmap. Each is made once and cached with the Program. This module may
import the engine, primitives and transforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from toile.control.jax_parameters import closed, fields_of
from toile.engine import program_keys as key_uses
from toile.engine.avals import Aval, aval_of
from toile.engine.config import flags
from toile.engine.conversion import as_array, raw_operand
from toile.engine.key_uses import KeyUse
from toile.engine.operation import Axis, Dim, Operation, infer_list
from toile.engine.program import (
    Equation,
    Program,
    Var,
    execute,
    used_vars,
    without_dead_code,
    wrap_outputs,
)
from toile.engine.records import dataclass
from toile.engine.sharded import device_of_call, placing, run_call
from toile.engine.trace import state
from toile.engine.traits import Shape
from toile.primitives.families import bdim_at
from toile.primitives.rules import frame_rule, itself
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import split_program
from toile.transforms.masks import fill, nonzero_mask, pick, spread
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_program


class Carrier(Operation):
    """An operation that carries Programs; its results are a list."""

    multiple = True
    handles_zeros = True
    interned = False
    carries_programs = True
    key_use = key_uses.call

    @property
    def effects(self) -> frozenset[str]:
        return frozenset().union(*(p.effects for p in self.programs()))

    @property
    def axis_names(self) -> tuple[Any, ...]:
        return tuple(n for p in self.programs() for n in p.axis_names)

    physical = itself  # Programs run on raw buffers

    jax_names: ClassVar[dict[str, str]] = {}  # fields whose parameters JAX names differently
    takes_consts: ClassVar[bool] = False  # the first operands may be values of the Program

    def as_params(self) -> dict[str, Any]:
        return {self.jax_names.get(k, k): closed(v) for k, v in self.fields().items()}

    @classmethod
    def apply(cls, args: Sequence[Any], params: dict[str, Any]) -> Any:
        fields, consts = fields_of(cls.name, cls.jax_names, params, cls.takes_consts)
        return cls(**fields)(*consts, *args)

    def grown_axis(self, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
        return result.index(n) if n in result else None

    def flops(self, *avals: Aval) -> int:
        return sum(program_flops(p) for p in self.programs())  # counted once each


class LoopCarrier(Carrier):
    """A loop; without a trace it runs as a Program of one equation, which a backend compiles."""

    def __call__(self, *args: Any) -> Any:
        if state.trace is not None:
            return state.trace.process(self, args)
        arrays = [as_array(a) for a in args]
        avals = tuple(aval_of(a) for a in arrays)
        key = ("whole", self, avals, flags.allow_excess_precision)
        whole = self.programs()[0].memoized(key, lambda: self._whole(avals))
        raws = [raw_operand(a) for a in arrays]
        results = run_call(whole, device_of_call(arrays, raws), raws)
        wrap = placing.place(whole, arrays)
        return wrap(results) if wrap else wrap_outputs(whole, results)

    def _whole(self, avals: Sequence[Aval]) -> Program:
        ins = [Var(a) for a in avals]
        outs = [Var(a) for a in infer_list(self, avals)]
        return Program(ins, [Equation(self, list(ins), outs)], outs, self.name)


class ByIdentity:
    """Mixin for operations that hold a user's functions: each is equal only to itself."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    physical = itself  # functions are given raw buffers


def leading(mask: Sequence[bool]) -> list[Dim]:
    """The dims of values whose mapped axis, if any, is in front."""
    return [0 if m else None for m in mask]


def move_mapped(xs: Sequence[Any], dims: Sequence[Dim], size: int, to: int = 0) -> list[Any]:
    """Mapped axes moved to the front, or to position `to`; unmapped values are unchanged."""
    return [x if d is None else bdim_at(x, d, size, to) for x, d in zip(xs, dims, strict=True)]


def map_where(xs: Sequence[Any], dims: Sequence[Dim], size: int,
              mask: Sequence[bool] | None = None) -> list[Any]:
    """All values with a mapped axis in front, or only those where the mask holds."""
    mask = [True] * len(xs) if mask is None else mask
    return [bdim_at(x, d, size) if m else x for x, d, m in zip(xs, dims, mask, strict=True)]


@dataclass(frozen=True)
class Call(Carrier):
    """Runs a Program: the operation that a trace records for a call to a jitted function."""

    program: Program
    label: str = "jit"

    jax_names = {"program": "jaxpr", "label": "name"}
    takes_consts = True
    name = "jit"
    title = "jit-compiled function"
    checked = sparse = frame_rule("call")
    is_inlined = True

    def programs(self) -> Sequence[Program]:
        return (self.program,)

    def called_program(self) -> Program:
        return self.program

    def infer(self, *avals: Aval) -> list[Aval]:
        return self.program.out_avals

    def __call__(self, *args: Any) -> Any:
        divided = placing.divide(self.program, args) if state.trace is None else None
        return super().__call__(*args) if divided is None else divided

    def eager(self, xp: Any, *xs: Any) -> Any:
        return execute(self.program, xs)

    def key_use(self, avals: Sequence[Aval]) -> KeyUse:
        if self.label == "rematted":  # the forward pass has already counted it
            return KeyUse()
        return super().key_use(avals)

    def with_program(self, program: Program) -> Call:
        return Call(program, self.label)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        nonzero = nonzero_mask(tangents)
        program, moving = jvp_program(self.program, nonzero)
        outs = self.with_program(program)(*primals, *pick(tangents, nonzero))
        n = len(moving)
        return outs[:n], spread(outs[n:], moving, outs[:n])

    def taylor(self, f: Any, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        own = type(self).jvp is not Call.jvp
        return f.integrated(self, primals, series) if own else f.inlined(self, primals, series)

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        parts = split_program(self.program, linear)
        known = pick(args, linear, False)
        outs = self.with_program(parts.known)(*known)
        n = sum(not z for z in parts.is_linear)
        residuals = parts.residual_values(known, outs[n:])
        if not any(parts.is_linear):
            return outs[:n], None, None
        moving = pick(args, linear)
        return parts.known_outputs(outs[:n]), self.with_program(parts.linear), residuals + moving

    def transpose(self, ct: Any, *xs: Any) -> Any:
        linear = [type(x) is Aval for x in xs]
        arriving = nonzero_mask(ct)
        program, nonzero = transpose_program(self.program, linear, arriving)
        outs = self.with_program(program)(*pick(xs, linear, False), *pick(ct, arriving))
        return tuple(fill(spread(outs, nonzero, pick(xs, linear)), linear))

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        mapped = leading([d is not None for d in dims])
        program, out_dims = vmap_program(self.program, axis, mapped)
        return self.with_program(program)(*move_mapped(xs, dims, axis[1])), out_dims

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        program, kept = pruned(self.program, used)
        return self.with_program(program), kept, list(used)


def pruned(program: Program, used: Sequence[bool]) -> tuple[Program, list[bool]]:
    """The Program for some of its outputs, and which inputs it still needs."""

    def make() -> tuple[Program, list[bool]]:
        small = without_dead_code(program, used)
        live = used_vars(small)
        kept = [v in live for v in program.inputs]
        inputs = pick(program.inputs, kept)
        return Program(inputs, small.equations, small.outputs, program.name), kept

    return program.memoized(("dce", tuple(used)), make)


def program_flops(program: Program) -> int:
    """Floating-point operations of a Program, the sum over its operations."""
    return sum(e.op.flops(*(a.aval for a in e.ins)) for e in program.equations)
