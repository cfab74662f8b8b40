"""A convolution in one form: extents and strides, whatever the layout.

    y[n, g, o, p] = sum over c, t of x[n, g, c, (p*stride + t*dilation - low) / base] w[g, o, c, t]

for images n, groups g, channels c, output features o, and positions p and taps t along three
spatial axes; terms whose quotient is not an index of x are zero. The derivative of a convolution
with respect to its kernels is such a sum too, with images and channels exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import gcd, prod

from toile.compiler.ir.extents import larger
from toile.compiler.ir.operands import Operand, Ref
from toile.engine.records import dataclass
from toile.primitives.conv import ConvGeneralDilated

SPATIAL = 3


@dataclass(frozen=True)
class Axis:
    """One spatial axis; x, w and y are the operands' strides along it, in elements."""

    size: int = 1
    taps: int = 1
    outs: int = 1
    stride: int = 1
    low: int = 0
    base: int = 1
    dilation: int = 1
    x: int = 0
    w: int = 0
    y: int = 0


@dataclass(frozen=True)
class Problem:
    """A convolution of arrays in memory; strides count elements."""

    images: int
    groups: int
    channels: int  # of one group
    features: int  # of one group
    axes: tuple[Axis, ...]
    x: Ref
    w: Ref
    y: Ref
    x_image: int
    x_group: int
    x_channel: int
    w_group: int
    w_channel: int
    w_feature: int
    y_image: int
    y_group: int
    y_feature: int
    type: str  # float or double; bfloat or i8 where products are of terms as they are stored
    slack: bool = False  # whether a tile's row may be read from any element of x, even the last

    @property
    def taps(self) -> int:
        return prod(a.taps for a in self.axes)

    @property
    def positions(self) -> int:
        return prod(a.outs for a in self.axes)

    @property
    def itemsize(self) -> int:
        return {"float": 4, "double": 8, "bfloat": 2, "i8": 1}[self.type]

    @property
    def flops(self) -> int:
        return 2 * self.images * self.groups * self.positions * (
            self.taps * self.channels * self.features)

    def numbers(self, names: Sequence[str], **given: int) -> list[int]:
        """The values of these names for a kernel: the given ones, else fields; strides in bytes."""
        own = lambda name: getattr(self, name) * (self.itemsize if name[1] == "_" else 1)
        return [given[name] if name in given else own(name) for name in names]


def problem_of(
    op: ConvGeneralDilated, x: Operand, w: Operand, y: Operand, type: str
) -> Problem:
    """An operation on these operands, in this form."""
    x_spec, w_spec, y_spec = op.dimension_numbers
    groups = max(op.feature_group_count, op.batch_group_count)
    by_batch = op.batch_group_count > 1
    images = x.shape[x_spec[0]] // (groups if by_batch else 1)
    channels = x.shape[x_spec[1]] // (1 if by_batch else groups)
    features = w.shape[w_spec[0]] // groups
    axes = [Axis()] * (SPATIAL - len(x_spec) + 2)
    for d, (i, j, k) in enumerate(zip(x_spec[2:], w_spec[2:], y_spec[2:], strict=True)):
        axes.append(Axis(
            x.shape[i], w.shape[j], y.shape[k], op.window_strides[d], op.padding[d][0],
            op.lhs_dilation[d], op.rhs_dilation[d], x.strides[i], w.strides[j], y.strides[k],
        ))  # fmt: skip
    x_image, x_channel = x.strides[x_spec[0]], x.strides[x_spec[1]]
    w_feature, y_feature = w.strides[w_spec[0]], y.strides[y_spec[1]]
    return Problem(
        images, groups, channels, features, tuple(axes), x.ref, w.ref, y.ref,
        x_image if images > 1 else 0,
        images * x_image if by_batch else channels * x_channel,
        x_channel if channels > 1 else 1,
        features * w_feature, w.strides[w_spec[1]], w_feature if features > 1 else 1,
        y.strides[y_spec[0]] if images > 1 else 0, features * y_feature,
        y_feature if features > 1 else 1, type,
    )  # fmt: skip


def phases(axis: Axis) -> list[tuple[int, int, Axis]]:
    """Split one axis of a convolution of a dilated operand into axes of plain convolutions.

    Position p needs tap t at p*stride + t*dilation - low, which is an element of x iff base divides
    it. That depends only on p modulo base / gcd(stride, base), and for each residue the taps that
    contribute form an arithmetic progression. Returns, for each residue, the first position, the
    first tap and the new axis, which has 0 taps if none contributes.
    """
    if axis.base == 1:
        return [(0, 0, axis)]
    base, common = axis.base, gcd(axis.dilation, axis.base)
    period, step = base // gcd(axis.stride, base), base // common
    found = []
    for residue in range(min(period, axis.outs)):
        shift = residue * axis.stride - axis.low
        first = next(
            (t for t in range(min(step, axis.taps)) if (shift + t * axis.dilation) % base == 0), -1
        )
        tap = max(first, 0)
        found.append((residue, tap, replace(
            axis, taps=0 if first < 0 else -((first - axis.taps) // step),
            outs=-((residue - axis.outs) // period), stride=axis.stride * period // base,
            low=-((shift + tap * axis.dilation) // base), base=1,
            dilation=axis.dilation // common, w=axis.w * step, y=axis.y * period,
        )))  # fmt: skip
    return found


def plain_parts(axes: Sequence[Axis]) -> Iterator[tuple[tuple[Axis, ...], int, int]]:
    """Axes of plain convolutions that together give all outputs of dilated ones.

    With each: the offset of its first output in y and of its first tap in w, in elements."""
    for phase in product(*map(phases, axes)):
        found = tuple(axis for _, _, axis in phase)
        y = sum(first * a.y for (first, _, _), a in zip(phase, axes, strict=True))
        w = sum(first * a.w for (_, first, _), a in zip(phase, axes, strict=True))
        if any(a.taps == 0 for a in found):
            found = tuple(replace(a, taps=0) for a in found)
        yield found, y, w


def undilated(p: Problem) -> list[Problem]:
    """The convolutions without dilated operands that together give all outputs of `p`."""
    return [replace(p, axes=axes, y=p.y.at(y * p.itemsize), w=p.w.at(w * p.itemsize))
            for axes, y, w in plain_parts(p.axes)]


def grain_of(extent: int, threads: int, work: int) -> int:
    """Units per chunk: about four chunks for each thread, or one chunk if there is little work."""
    if work < 200_000:
        return extent
    return larger(1, -(-extent // (4 * threads)))


def lanes_per_block(least: int, lanes: int, rows: int, threads: int) -> int:
    """Lanes of a unit: more than `least` if there are enough units for all threads."""
    while rows * -(-lanes // least) > 64 * threads and least < lanes:
        least *= 2
    return least


WINDOW = "size taps outs stride low dilation".split()  # numbers of an axis for kernels over windows


def axis_numbers(axes: Sequence[Axis], size: int, sides: str) -> tuple[int, ...]:
    """The numbers of axes as kernel arguments: WINDOW, and strides of some operands in bytes."""
    return tuple(n for a in axes for n in (
        *(getattr(a, name) for name in WINDOW), *(getattr(a, side) * size for side in sides)))
