"""Running sums, products, extrema and log-sum-exps along one axis.

The running sum is linear. The tangents of the others are given by a linear recurrence over the
steps, for both modes of differentiation. This module may import the engine and other modules of
`primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives import arrays, division
from toile.primitives.bits import eq
from toile.primitives.elementwise import max_, min_, select
from toile.primitives.families import (
    FLOATING,
    NUMERIC,
    accepts_text,
    fill_shape,
    full_like,
    mul,
    sub,
)
from toile.primitives.recurrences import LinearRecurrence, moved
from toile.primitives.shapes import iota
from toile.primitives.transcendental import exp


@dataclass(frozen=True)
class Cumulative(Operation):
    """All partial results of an associative function along `axis`."""

    axis: int
    reverse: bool = False
    kernel_family = "cumulative"
    handles_zeros = True
    accepts: ClassVar[str] = NUMERIC
    can_make_nan = True
    kind: ClassVar[str]
    combines = "running"

    def infer(self, x: Aval) -> Aval:
        if not 0 <= self.axis < x.ndim:
            raise ValueError(
                f"axis {self.axis} is out of bounds for array of shape {x.shape}{here()}"
            )
        if dtypes.kind(x.dtype) not in self.accepts:
            raise shape_error(self.name, f"{accepts_text(self.accepts)} operands", [x])
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return arrays.cumulative(xp, x, self.axis, self.kind, self.reverse)

    def weights(self, x: Any, out: Any) -> tuple[Any, Any]:
        """The derivatives of a partial result with respect to the previous one and the element x.

        The first partial result is the element itself; the former derivative is not used there."""
        raise NotImplementedError

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        if dx.__class__ is Zero:
            return out, Zero(out)
        if x.shape[self.axis] < 2:
            return out, dx
        by_before, by_element = self.weights(x, out)
        return out, LinearRecurrence(self.axis, self.reverse)(by_before, mul(by_element, dx))

    def before(self, out: Any, fill: Any = 0) -> Any:
        """The partial results before those in `out`; `fill` before the first."""
        return moved(out, self.axis, self.reverse, fill)

    def except_first(self, x: Any, value: Any) -> Any:
        """x, with `value` where the first partial results are."""
        index = iota(np.int32, x.shape, self.axis)
        first = full_like(index, x.shape[self.axis] - 1 if self.reverse else 0)
        return select(eq(index, first), fill_shape(full_like(x, value), x.shape), x)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return replace(self, axis=self.axis + (self.axis >= d))(xs[0]), d

    def flops(self, *avals: Aval) -> int:
        return avals[0].size

    divide = division.whole_along_axis


@dataclass(frozen=True)
class Cumsum(Cumulative):
    """The cumulative sum."""

    kind = "sum"

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        return out, Zero(out) if dx.__class__ is Zero else self(dx)

    def transpose(self, ct: Any, x: Any) -> Any:
        return Cumsum(self.axis, not self.reverse)(ct)


@dataclass(frozen=True)
class Cumprod(Cumulative):
    """The cumulative product."""

    kind = "prod"

    def weights(self, x: Any, out: Any) -> tuple[Any, Any]:
        return x, self.before(out, 1)


@dataclass(frozen=True)
class _Extremum(Cumulative):
    """A cumulative maximum or minimum; an element that ties with those before gets one half."""

    step: ClassVar[Any]

    def weights(self, x: Any, out: Any) -> tuple[Any, Any]:
        by_before, by_element = self.step.partials(out, self.before(out), x)
        return by_before(), self.except_first(by_element(), 1)


@dataclass(frozen=True)
class Cummax(_Extremum):
    """The cumulative maximum."""

    kind, step = "max", max_


@dataclass(frozen=True)
class Cummin(_Extremum):
    """The cumulative minimum."""

    kind, step = "min", min_


@dataclass(frozen=True)
class Cumlogsumexp(Cumulative):
    """The cumulative log(Σ exp(x))."""

    kind = "logsumexp"
    combines = ""  # kernels have no step for it
    accepts = FLOATING

    def weights(self, x: Any, out: Any) -> tuple[Any, Any]:
        # exp(before - out) and exp(x - out); an infinity counts as 0 there
        base = _finite(out)
        return tuple(exp(self.except_first(sub(_finite(y), base), 0))
                     for y in (self.before(out), x))


def _finite(x: Any) -> Any:
    """x with +inf replaced by 0."""
    top = full_like(x, float("inf"))
    return select(eq(x, fill_shape(top, x.shape)), fill_shape(full_like(x, 0), x.shape), x)
