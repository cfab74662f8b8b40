"""Attention as a single operation for backends that have a kernel for it; otherwise, a call.

The operation carries the Program of the plain form (matrix products before and after a softmax),
which defines the operation and provides all of its rules except the one for reverse mode. In
reverse mode, the derivative is another operation, whose operands are those of the attention, its
result, and the logarithms of its sums. That operation carries the derivative of the plain form,
starting from the operands; the compiler merges the recomputed part with the forward pass. This
module may import control.call and the modules below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from toile.control.call import Call, map_where, pruned
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.platform_registry import default_device
from toile.engine.program import Program, Var, derive, without_dead_code
from toile.engine.records import dataclass
from toile.engine.trace import state
from toile.transforms.jvp import jvp_program
from toile.transforms.masks import nonzero_mask, pick
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_program

HALVES = ("bfloat16", "float16")


class Form(NamedTuple):
    """Parameters of an attention: softmax(q·k·scale + bias)·v, over the visible keys.

    `operands` contains the names of the operands. The first three are q, k and v, each of shape
    (*batch, positions, heads, depth). Keys and values may have fewer heads than queries; each is
    then shared by a group of query heads. Any of the following may come next: bias and mask, which
    have all axes of the shape (*batch, heads, queries, keys) and broadcast to it, and query_lengths
    and key_lengths, of shape (*batch,). A key is visible where the mask is true or nonzero. For a
    query without visible keys, the result is the mean of all values; for a query beyond its query
    length, it is zero."""

    scale: float
    operands: tuple[str, ...] = ("q", "k", "v")
    causal: bool = False  # query i sees keys up to i
    window: tuple[int, int] | None = None  # number of visible keys before and after a query


@dataclass(frozen=True)
class _Whole(Call):
    """A single operation; a call if it is differentiated, or mapped in only some of q, k, v."""

    form: Form = Form(1.0)
    moving: tuple[bool, ...] = ()  # for a derivative: which operands have tangents
    full: Program | None = None  # for an attention whose Program has lost its second result
    direction: ClassVar[str] = ""  # "forward" or "backward"; "": libraries lack it
    backend_chooses = True

    def with_program(self, program: Program) -> Call:
        return Call(program, self.label)

    def dce(self, used: Sequence[bool]) -> Any:
        return None

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        if any(d is None for d in dims[:3]):  # products can exploit that all examples share keys
            return super().vmap(axis, xs, dims)
        outs = self.mapped(axis)(*map_where(xs, dims, axis[1]))
        return outs, [0] * len(outs)

    def mapped(self, axis: Axis) -> Call:
        """The operation with one more batch axis in front of all operands and results."""
        return replace(self, program=_over(self.program, axis))


def _over(program: Program, axis: Axis) -> Program:
    return vmap_program(program, axis, [0] * len(program.inputs), True)[0]


class Attention(_Whole):
    """The result and, if used, the logarithms of the sums of exponentials.

    The logarithms are float32, of shape (*batch, heads, queries)."""

    name = "attention"
    direction = "forward"

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]] | None:
        if not used[0]:
            return None
        program, kept = pruned(self.program, used)
        op = replace(self, program=program, full=self._full)
        return (op, kept, list(used)) if all(kept) else None

    def mapped(self, axis: Axis) -> Call:
        full = None if self.full is None else _over(self.full, axis)
        return replace(self, program=_over(self.program, axis), full=full)

    @property
    def _full(self) -> Program:
        return self.program if self.full is None else self.full

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        moving = tuple(nonzero_mask(tangents))
        out, sums = replace(self, program=self._full, full=None)(*primals)
        program = _tangent(self._full, moving)
        op = AttentionTangent(program, self.label, self.form, moving)
        (tangent,) = op(*primals, out, sums, *pick(tangents, moving))
        n = len(self.program.outputs)
        return [out, sums][:n], [tangent, Zero(sums)][:n]


def _tangent(full: Program, moving: tuple[bool, ...]) -> Program:
    """The Program that maps (operands, result, sums, tangents) to the result's tangent."""

    def make() -> Program:
        program, _ = jvp_program(full, moving, (True, False))
        program = without_dead_code(program, [False, False, True])
        n = len(moving)
        made = [Var(a) for a in full.out_avals]
        return Program([*program.inputs[:n], *made, *program.inputs[n:]], program.equations,
                       program.outputs, program.name)

    return full.memoized(("tangent of attention", moving), make)


class AttentionTangent(_Whole):
    """The derivative along tangents of the operands that are `moving`."""

    name = "attention_tangent"

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        if not all(linear[len(self.moving) + 2 :]):
            return super().split(linear, args)
        return [None], self, list(args)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        n = len(self.moving) + 2
        linear = [type(x) is Aval for x in xs]
        program, nonzero = transpose_program(self.program, linear, [True])
        if not (all(linear[n:]) and all(nonzero)):
            return super().transpose(ct, *xs)
        op = AttentionGradient(program, self.label, self.form, self.moving)
        return (*([None] * n), *op(*xs[:n], *ct))


class AttentionGradient(_Whole):
    """The cotangents of the operands that are `moving`.

    The operands are those of the attention, its two results, and the cotangent of the first."""

    name = "attention_gradient"
    direction = "backward"


def wanted(*heads: Any) -> bool:
    """Whether a backend may have an attention kernel for these queries, keys and values."""
    trace = state.trace
    if trace is None or not trace.staging:
        return False
    kinds = {x.dtype.name for x in heads}
    return len(kinds) == 1 and kinds <= set(HALVES) and default_device() is not None


def attend(fun: Callable[..., Sequence[Any]], form: Form, *operands: Any) -> Any:
    """Attention; `fun`, the plain form, maps operands to the result and the logarithms of sums."""
    program = derive(fun, [aval_of(x) for x in operands], "attention")
    return Attention(program, "attention", form)(*operands)[0]
