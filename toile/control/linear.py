"""A call that is linear in some operands, with a user-defined transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.control.call import Call, leading, map_where, move_mapped
from toile.engine import dtypes
from toile.engine.avals import Zero, aval_of
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import Program
from toile.engine.records import dataclass
from toile.primitives.families import add, instantiate, zeros
from toile.transforms.masks import nonzero_mask
from toile.transforms.vmap import vmap_program


@dataclass(frozen=True)
class LinearCall(Call):
    """A call that is linear in its last operands, with a user-defined transpose.

    The operands are the values that the function closes over, the residuals and the linear
    operands; `consts` and `residuals` are the numbers of the first two. `transposed()` returns the
    transpose's Program and the values that it closes over. The Program takes those values, the
    residuals and the cotangents."""

    transposed: Callable[[], tuple[Program, list[Any]]] | None = None
    consts: int = 0
    residuals: int = 0

    name = "linear_call"

    def with_program(self, program: Program) -> Call:
        return Call(program, self.label)  # other derived forms have no special transpose

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        k = self.consts + self.residuals
        outs = self(*primals)
        douts: Sequence[Any] = [Zero(o) for o in outs]
        if any(nonzero_mask(tangents[:k])):  # not linear in these: use the function's own jvp
            still = [Zero(x) for x in primals[k:]]
            _, douts = Call(self.program, self.label).jvp(primals, [*tangents[:k], *still])
        if any(nonzero_mask(tangents[k:])):
            dxs = [zeros(aval_of(x)) if t.__class__ is Zero else t
                   for x, t in zip(primals[k:], tangents[k:], strict=True)]
            moved = self(*primals[:k], *dxs)
            douts = [_added(o, d, m) for o, d, m in zip(outs, douts, moved, strict=True)]
        return outs, douts

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        if any(linear[: self.consts + self.residuals]):
            return Call(self.program, self.label).split(linear, args)
        return [None] * len(self.program.outputs), self, args

    def transpose(self, ct: Any, *xs: Any) -> Any:
        k, m = self.consts, self.consts + self.residuals
        assert self.transposed is not None
        program, consts = self.transposed()
        back = lambda: (self.program, list(xs[:k]))
        op = LinearCall(program, self.label, back, len(consts), self.residuals)
        found = op(*consts, *xs[k:m], *[instantiate(c) for c in ct])
        return (*([None] * m), *found)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        # Map all linear operands and results: either function may mix them.
        k, m, size = self.consts, self.consts + self.residuals, axis[1]
        given = leading([d is not None for d in dims[:m]])
        linear, results = len(xs) - m, len(self.program.outputs)
        program, _ = vmap_program(self.program, axis, [*given, *([0] * linear)], True)

        def transposed() -> tuple[Program, list[Any]]:
            assert self.transposed is not None
            own, consts = self.transposed()
            mapped: list[Dim] = [*([None] * len(consts)), *given[k:], *([0] * results)]
            return vmap_program(own, axis, mapped, True)[0], consts

        moved = move_mapped(xs[:m], dims[:m], size) + map_where(xs[m:], dims[m:], size)
        op = LinearCall(program, self.label, transposed, k, self.residuals)
        return op(*moved), [0] * results

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        return self, [True] * len(self.program.inputs), [True] * len(used)


def _added(out: Any, d: Any, moved: Any) -> Any:
    """The tangent of a result, which is the sum of two parts; the first may be zero."""
    if not dtypes.is_inexact(aval_of(out).dtype):
        return Zero(out)
    return moved if d.__class__ is Zero else add(d, moved)
