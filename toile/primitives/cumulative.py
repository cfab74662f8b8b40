"""Running sums, products, extrema and log-sum-exps along one axis.

The running sum is linear. The others are differentiated through a tree of (value, tangent) pairs,
combined in the order of a parallel prefix scan, so that tied extrema share their tangents
as in such a scan. May import the engine, primitives.families, elementwise, transcendental, shapes
and the array kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives import arrays, division
from toile.primitives.bits import eq, ne
from toile.primitives.complexes import real
from toile.primitives.elementwise import abs_, log, max_, min_, select
from toile.primitives.families import (
    FLOATING,
    NUMERIC,
    accepts_text,
    add,
    fill_shape,
    full_like,
    mul,
    neg,
    sub,
)
from toile.primitives.shapes import Rev, concatenate_all, pad, slice_axis
from toile.primitives.transcendental import exp, log1p

Pair = tuple[Any, Any]


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

    def combine(self, first: Pair, second: Pair) -> Pair:
        """The function on (value, tangent) pairs."""
        raise NotImplementedError

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        if dx.__class__ is Zero:
            return out, Zero(out)
        pair = (x, dx)
        if self.reverse:
            pair = (Rev((self.axis,))(x), Rev((self.axis,))(dx))
        _, dout = scan_pairs(self.combine, pair, self.axis)
        return out, Rev((self.axis,))(dout) if self.reverse else dout

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return replace(self, axis=self.axis + (self.axis >= d))(xs[0]), d

    def flops(self, *avals: Aval) -> int:
        return avals[0].size

    divide = division.whole_along_axis


def scan_pairs(combine: Callable[[Pair, Pair], Pair], pair: Pair, axis: int) -> Pair:
    """Inclusive scan of pairs of arrays: combine neighbors, scan the half-size array, recombine."""
    n = pair[0].shape[axis]
    if n < 2:
        return pair

    def part(p: Pair, start: int, limit: int, stride: int = 1) -> Pair:
        return tuple(slice_axis(x, start, limit, axis, stride) for x in p)

    odd = scan_pairs(combine, combine(part(pair, 0, n - 1, 2), part(pair, 1, n, 2)), axis)
    if n > 2:
        before = odd if n % 2 else part(odd, 0, odd[0].shape[axis] - 1)
        even = combine(before, part(pair, 2, n, 2))
        first = part(pair, 0, 1)
        even = tuple(
            concatenate_all([f, e], axis) for f, e in zip(first, even, strict=True)
        )
    else:
        even = part(pair, 0, 1)
    return tuple(_interleave(e, o, axis) for e, o in zip(even, odd, strict=True))


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """even[0], odd[0], even[1], odd[1] ... along one axis."""
    more = even.shape[axis] - odd.shape[axis]

    def spread(x: Any, low: int, high: int) -> Any:
        config = [(0, 0, 0)] * x.ndim
        config[axis] = (low, high, 1)
        return pad(x, full_like(x, 0), tuple(config))

    return add(spread(even, 0, 1 - more), spread(odd, 1, more))


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

    def combine(self, first: Pair, second: Pair) -> Pair:
        return mul.jvp(*zip(first, second, strict=True))


@dataclass(frozen=True)
class Cummax(Cumulative):
    """The cumulative maximum."""

    kind = "max"

    def combine(self, first: Pair, second: Pair) -> Pair:
        return max_.jvp(*zip(first, second, strict=True))


@dataclass(frozen=True)
class Cummin(Cumulative):
    """The cumulative minimum."""

    kind = "min"

    def combine(self, first: Pair, second: Pair) -> Pair:
        return min_.jvp(*zip(first, second, strict=True))


@dataclass(frozen=True)
class Cumlogsumexp(Cumulative):
    """The cumulative log(Σ exp(x))."""

    kind = "logsumexp"
    combines = ""  # kernels have no step for it
    accepts = FLOATING

    def combine(self, first: Pair, second: Pair) -> Pair:
        (x, dx), (y, dy) = first, second
        out = _logaddexp(x, y)
        # d out = dx exp(x - out) + dy exp(y - out); an infinity counts as 0 there
        base = _finite(out)
        return out, add(
            mul(dx, exp(sub(_finite(x), base))), mul(dy, exp(sub(_finite(y), base)))
        )


def _finite(x: Any) -> Any:
    """x with +inf replaced by 0."""
    top = full_like(x, float("inf"))
    return select(eq(x, fill_shape(top, x.shape)), fill_shape(full_like(x, 0), x.shape), x)


def _logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)) without overflow."""
    if dtypes.kind(x.dtype) == "c":
        return _complex_logaddexp(x, y)
    top, difference = max_(x, y), sub(x, y)
    nan = ne(difference, difference)  # equal infinities, or a NaN that propagates
    return select(nan, add(x, y), add(top, log1p(exp(neg(abs_(difference))))))


def _complex_logaddexp(x: Any, y: Any) -> Any:
    """The same for complex numbers, scaled by the larger real part."""
    larger = eq(real(x), max_(real(x), real(y)))
    high, low = select(larger, x, y), select(larger, y, x)
    return add(high, log(add(full_like(x, 1), exp(sub(low, high)))))
