"""Linear recurrences: h[t] = a[t] h[t - 1] + b[t] along one axis.

A recurrence is linear in b. Its transpose is a recurrence from the other end that has each
coefficient one step further on, which is what `shifted` means. The derivatives of running products,
extrema and log-sum-exps are recurrences too. This module may import the engine and other modules of
`primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives import arrays, division
from toile.primitives.families import NUMERIC, accepts_text, add, bdim_at, full_like, mul
from toile.primitives.shapes import pad


def moved(x: Any, axis: int, backward: bool, fill: Any = 0) -> Any:
    """Move x by one element: out[t] = x[t - 1], or x[t + 1] if `backward`, and `fill` where there
    is no such element."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (-1, 1, 0) if backward else (1, -1, 0)
    return pad(x, full_like(x, fill), tuple(config))


@dataclass(frozen=True)
class LinearRecurrence(Operation):
    """h[t] = a[t] h[t - 1] + b[t] along `axis`, with h[0] = b[0]: a[0] is not used.

    reverse: h[t] = a[t] h[t + 1] + b[t], from the end. shifted: the coefficient has the index of
    the previous state: it is a[t - 1] or, in reverse, a[t + 1]."""

    axis: int
    reverse: bool = False
    shifted: bool = False
    kernel_family = "cumulative.recurrence"
    kind = combines = "recurrence"
    handles_zeros = True
    can_make_nan = True

    def infer(self, a: Aval, b: Aval) -> Aval:
        if a.shape != b.shape or a.dtype != b.dtype or dtypes.kind(a.dtype) not in NUMERIC:
            needed = f"two {accepts_text(NUMERIC)} operands of one shape and dtype"
            raise shape_error(self.name, needed, [a, b])
        if not 0 <= self.axis < a.ndim:
            raise ValueError(
                f"axis {self.axis} is out of bounds for array of shape {a.shape}{here()}"
            )
        return Aval(a.shape, a.dtype, a.weak_type and b.weak_type)

    def eager(self, xp: Any, a: Any, b: Any) -> Any:
        return arrays.linear_recurrence(xp, a, b, self.axis, self.reverse, self.shifted)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (a, b), (da, db) = primals, tangents
        h = self(a, b)
        terms = [] if db.__class__ is Zero else [db]
        if da.__class__ is not Zero:
            before = partial(moved, axis=self.axis, backward=self.reverse)
            terms.append(before(mul(da, h)) if self.shifted else mul(da, before(h)))
        if not terms:
            return h, Zero(h)
        return h, self(a, terms[0] if len(terms) == 1 else add(*terms))

    def transpose(self, ct: Any, a: Any, b: Any) -> Any:
        if type(a) is Aval:
            raise NotImplementedError(f"{self.name}: is not linear in the coefficients{here()}")
        return None, LinearRecurrence(self.axis, not self.reverse, not self.shifted)(a, ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        d = next(d for d in dims if d is not None)
        args = [bdim_at(x, e, axis[1], d) for x, e in zip(xs, dims, strict=True)]
        return replace(self, axis=self.axis + (self.axis >= d))(*args), d

    def flops(self, *avals: Aval) -> int:
        return 2 * avals[0].size

    divide = division.whole_along_axis
