"""custom_linear_solve: x with A x = b, where A and its solver are given as Programs.

The operands are the values that the functions close over, followed by b. The derivative solves a
second system; the transpose solves the system with A transposed. This module may import
control.call and the modules below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.control.call import Carrier, leading, map_where, move_mapped
from toile.engine import key_uses
from toile.engine.avals import Aval, Zero
from toile.engine.operation import Axis, Dim
from toile.engine.program import Program, evaluate, execute
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.families import instantiate, neg, sub
from toile.transforms.jvp import jvp_program
from toile.transforms.masks import nonzero_mask, pick, spread
from toile.transforms.vmap import vmap_program


@dataclass(frozen=True)
class LinearSolve(Carrier):
    """The solution of A x = b that `solve` computes; `matvec` and `vecmat` multiply by A and Aᵀ."""

    matvec: Program
    vecmat: Program | None
    solve: Program
    transpose_solve: Program | None
    params: int
    unknowns: int

    name = "custom_linear_solve"
    is_inlined = True
    key_use = key_uses.uses_all
    can_make_nan = True

    def programs(self) -> Sequence[Program]:
        every = (self.solve, self.matvec, self.vecmat, self.transpose_solve)
        return [p for p in every if p is not None]

    def infer(self, *avals: Aval) -> list[Aval]:
        return self.solve.out_avals

    def eager(self, xp: Any, *xs: Any) -> Any:
        return execute(self.solve, xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # A x = b, so A dx = db - dA x.
        k, n = self.params, self.unknowns
        outs = self(*primals)
        params, d_params, db = primals[:k], tangents[:k], list(tangents[k:])
        nonzero = nonzero_mask(d_params)
        if any(nonzero):
            program, moving = jvp_program(self.matvec, nonzero + [False] * n)
            found = evaluate(program, [*params, *outs[:n], *pick(d_params, nonzero)])
            d_a = spread(found[n:], moving, outs[:n])
            db = [_difference(b, a) for b, a in zip(db, d_a, strict=True)]
        if all(t.__class__ is Zero for t in db):
            return outs, [Zero(o) for o in outs]
        dx = self(*params, *[instantiate(t) for t in db])
        return outs, [*dx[:n], *(Zero(o) for o in outs[n:])]

    def transpose(self, ct: Any, *xs: Any) -> Any:
        if self.transpose_solve is None or self.vecmat is None:
            raise TypeError(
                "transpose_solve required for backwards mode automatic differentiation of "
                "custom_linear_solve (pass transpose_solve=, or symmetric=True)" + here()
            )
        k, n = self.params, self.unknowns
        op = LinearSolve(self.vecmat, self.matvec, self.transpose_solve, self.solve, k, n)
        found = op(*xs[:k], *[instantiate(c) for c in ct[:n]])
        return (*([None] * k), *found[:n])

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        # Map all unknowns: the solver may mix them.
        k, n, size = self.params, self.unknowns, axis[1]
        mapped = leading([d is not None for d in dims[:k]] + [True] * n)

        def over(program: Program) -> Program:
            return vmap_program(program, axis, mapped, True)[0]

        op = LinearSolve(
            over(self.matvec), self.vecmat and over(self.vecmat), over(self.solve),
            self.transpose_solve and over(self.transpose_solve), k, n)
        moved = move_mapped(xs[:k], dims[:k], size) + map_where(xs[k:], dims[k:], size)
        return op(*moved), [0] * len(self.solve.outputs)


def _difference(a: Any, b: Any) -> Any:
    if b.__class__ is Zero:
        return a
    return neg(b) if a.__class__ is Zero else sub(a, b)
