"""Sums of an array and a product of two small arrays, as low-rank adapters add them to weights.

`LowRankSum` stays a single operation while a function is traced, so that products can use its
operands one after the other. The compiler replaces the remaining ones by other operations. This
module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives.contractions import LETTERS, DotGeneral
from toile.primitives.families import add, bdim_at


@dataclass(frozen=True)
class LowRankSum(Operation):
    """w + a @ b, where w has batch axes, then input axes, then output axes.

    `a` has the batch axes, the input axes and one axis for the rank; `b` has the batch axes, the
    axis for the rank and the output axes."""

    inputs: int  # number of input axes
    outputs: int  # number of output axes

    handles_zeros = True

    def labels(self, rank: int) -> tuple[str, str, str]:
        """Labels of the axes of w, a and b, where w has `rank` axes."""
        w, small = LETTERS[:rank], LETTERS[rank]
        split, batch = rank - self.outputs, rank - self.outputs - self.inputs
        return w, w[:split] + small, w[:batch] + small + w[split:]

    def infer(self, w: Aval, a: Aval, b: Aval) -> Aval:
        fits = w.ndim >= self.inputs + self.outputs and w.dtype == a.dtype == b.dtype
        if fits:
            sizes: dict[str, int] = {}
            fits = all(
                len(labels) == x.ndim
                and all(sizes.setdefault(c, n) == n for c, n in zip(labels, x.shape, strict=True))
                for labels, x in zip(self.labels(w.ndim), (w, a, b), strict=True)
            )
        if not fits:
            raise shape_error(
                self.name, f"an array of one dtype with {self.inputs} input and {self.outputs} "
                "output axes, and factors that fit it", [w, a, b],
                "the axis of the rank is the last one of a, and precedes the output axes of b")
        return Aval(w.shape, w.dtype)

    def _product(self, rank: int) -> DotGeneral:
        w, a, b = self.labels(rank)
        return DotGeneral(a, b, w)

    def eager(self, xp: Any, w: Any, a: Any, b: Any) -> Any:
        return w + self._product(w.ndim).eager(xp, a, b)

    def decoded(self, w: Any, a: Any, b: Any) -> Any:
        """The result as a composition of other operations."""
        return add(w, self._product(w.ndim)(a, b))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (w, a, b), (dw, da, db) = primals, tangents
        out, product = self(w, a, b), self._product(w.ndim)
        total: Any = dw
        for d, pair in ((da, (da, b)), (db, (a, db))):
            if d.__class__ is not Zero:
                part = product(*pair)
                total = part if total.__class__ is Zero else add(total, part)
        return out, total

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(*(bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True))), 0
