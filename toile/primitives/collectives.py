"""Operations over named axes: sums, permutations, gathers and exchanges between examples.

Under vmap, a named axis is an array axis, and the rules here turn a collective into an operation on
that axis. Over devices, `toile.parallel` executes the collectives. This module may import the
engine and primitives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.exchange import Exchange, slot
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.trace import axis_size
from toile.primitives.families import (
    Linear,
    bdim_at,
    broadcast_in_dim,
    move_axis,
    mul,
    reduce_sum,
    reshape,
    scalar,
)
from toile.primitives.reductions import ReduceMax, ReduceMin
from toile.primitives.shapes import concatenate_all, iota, slice_axis

Groups = tuple[tuple[int, ...], ...] | None


def check_bound(names: Sequence[Any]) -> int:
    """The product of the sizes of named axes, which must be in scope."""
    size = 1
    for n in names:
        size *= axis_size(n)
    return size


class Collective(Operation):
    """An operation over named axes."""

    handles_zeros = True

    @property
    def exchange_name(self) -> str:
        return self.name

    def varies_over(self, names: frozenset[Any], bound: frozenset[Any]) -> frozenset[Any]:
        return names | (bound & set(self.axis_names))

    def exchange(self) -> Exchange:
        """The exchange with the other devices, on the thread of a device that runs a Program."""
        found = slot.exchange
        if found is None:
            check_bound(self.axis_names)
            raise NameError(
                f"{self.name}: the axes {self.axis_names} are in scope but nothing maps them here "
                "(call it inside the mapped function)" + here()
            )
        return found

    def not_mine(self, axis: Axis) -> bool:
        """Whether a mapped axis is not one of the operation's own."""
        return axis[0] is None or axis[0] not in self.axis_names


@dataclass(frozen=True)
class _OverAxes(Collective):
    """A sum, maximum or minimum over named axes."""

    kind: str
    axes: tuple[Any, ...]
    groups: Groups = None

    @property
    def axis_names(self) -> tuple[Any, ...]:
        return self.axes


@dataclass(frozen=True)
class _AlongAxis(Collective):
    """An operation along one named axis, or along groups of its indices."""

    axis: Any

    @property
    def axis_names(self) -> tuple[Any, ...]:
        return (self.axis,)

    def group_size(self) -> int:
        """The number of examples that exchange values."""
        groups: Groups = getattr(self, "groups", None)
        return len(groups[0]) if groups else axis_size(self.axis)


def _taken(x: Any, indices: Sequence[int]) -> Any:
    """Rows of the leading axis in a given order."""
    if list(indices) == list(range(x.shape[0])):
        return x
    return concatenate_all([slice_axis(x, i, i + 1, 0) for i in indices], 0)


def _grouped(x: Any, groups: tuple[tuple[int, ...], ...]) -> Any:
    """The leading axis as (group, member)."""
    order = [i for g in groups for i in g]
    return reshape(_taken(x, order), (len(groups), len(groups[0]), *x.shape[1:]))


def _ungrouped(x: Any, groups: tuple[tuple[int, ...], ...]) -> Any:
    """Undo `_grouped`."""
    order = [i for g in groups for i in g]
    flat = reshape(x, (len(order), *x.shape[2:]))
    return _taken(flat, [order.index(i) for i in range(len(order))])


@dataclass(frozen=True)
class AllReduce(_OverAxes):
    """The sum, maximum or minimum over named axes; every example receives the result."""

    kernel_family = "collectives.all_reduce"
    name = "psum"
    can_make_nan = True

    @property
    def exchange_name(self) -> str:
        return f"p{self.kind}"

    def varies_over(self, names: frozenset[Any], bound: frozenset[Any]) -> frozenset[Any]:
        return names - set(self.axes) if self.groups is None else names

    def together(self) -> Operation:
        return AllReduceTogether(self.kind, self.axes, self.groups)

    def begin(self, number: int) -> Operation:
        return AllReduceBegin(self.kind, self.axes, self.groups, number)

    def end(self) -> Operation:
        return AllReduceEnd(self.kind, self.axes, self.groups)

    def infer(self, x: Aval) -> Aval:
        check_bound(self.axes)
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return self.exchange().all_reduce(self.kind, [x], self.axes, self.groups)[0]

    def _reduce(self, x: Any, axis: int) -> Any:
        if self.kind == "sum":
            return reduce_sum(x, (axis,))
        return (ReduceMax if self.kind == "max" else ReduceMin)((axis,))(x)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        if dx.__class__ is Zero:
            return out, Zero(out)
        if self.kind != "sum":
            raise NotImplementedError(
                f"p{self.kind}: differentiation is not defined (use psum or all_gather){here()}"
            )
        return out, self(dx)

    def transpose(self, ct: Any, x: Any) -> Any:
        return self(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        if self.not_mine(axis):
            return self(x), d
        rest = tuple(a for a in self.axes if a != axis[0])
        if rest and self.groups is not None:
            raise NotImplementedError(
                f"{self.name}: needed a single axis with axis_index_groups, got {self.axes}{here()}"
            )
        out_dim: Dim = None
        if self.groups is not None:
            x = _grouped(bdim_at(x, d, axis[1]), self.groups)
            total = self._reduce(x, 1)
            spread = broadcast_in_dim(total, x.shape, (0, *range(2, x.ndim)))
            x, out_dim = _ungrouped(spread, self.groups), 0
        elif d is not None:
            x = self._reduce(x, d)
        elif self.kind == "sum":
            x = mul(x, scalar(axis[1], x.dtype))
        return (AllReduce(self.kind, rest)(x) if rest else x), out_dim


@dataclass(frozen=True)
class AllReduceTogether(_OverAxes):
    """Sums (or extrema) of several operands over named axes, in one exchange between devices."""

    kernel_family = "collectives.all_reduce"
    name = "psum_together"
    multiple = True
    can_make_nan = True

    def infer(self, *avals: Aval) -> list[Aval]:
        return list(avals)

    def eager(self, xp: Any, *xs: Any) -> Any:
        return self.exchange().all_reduce(self.kind, xs, self.axes, self.groups)


@dataclass(frozen=True)
class AllReduceBegin(_OverAxes):
    """The first half of `AllReduceTogether`; the equations before the second half run meanwhile.

    The result is a placeholder without a value. `number` distinguishes the placeholders of one
    Program."""

    number: int = 0

    kernel_family = "collectives.begin"
    name = "psum_begin"

    def infer(self, *avals: Aval) -> Aval:
        return Aval((), np.dtype(np.uint8))

    def eager(self, xp: Any, *xs: Any) -> Any:
        return np.zeros((), np.uint8)  # on the host the end does all the work


@dataclass(frozen=True)
class AllReduceEnd(_OverAxes):
    """The second half, which turns the placeholder and the operands into the sums (or extrema)."""

    kernel_family = "collectives.end"
    name = "psum_end"
    multiple = True

    def infer(self, begun: Aval, *avals: Aval) -> list[Aval]:
        return list(avals)

    def eager(self, xp: Any, begun: Any, *xs: Any) -> Any:
        return self.exchange().all_reduce(self.kind, xs, self.axes, self.groups)


@dataclass(frozen=True)
class PPermute(_AlongAxis, Linear):
    """The value that another example sends; an example to which nothing is sent receives zeros."""

    perm: tuple[tuple[int, int], ...]

    kernel_family = "collectives.permute"
    name = "ppermute"

    def infer(self, x: Aval) -> Aval:
        n = axis_size(self.axis)
        ends = [[p[i] for p in self.perm] for i in (0, 1)]
        if any(len(set(e)) != len(e) or any(not 0 <= i < n for i in e) for e in ends):
            raise ValueError(f"ppermute sources and destinations must be unique and in [0, {n}), "
                             f"got {self.perm}{here()}")
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        found = self.exchange().permute(x, self.axis, self.perm)
        return np.zeros_like(x) if found is None else found

    def transpose(self, ct: Any, x: Any) -> Any:
        return PPermute(self.axis, tuple((b, a) for a, b in self.perm))(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        if self.not_mine(axis):
            return self(x), d
        n = axis[1]
        x = bdim_at(x, d, n)
        source = {b: a for a, b in self.perm}
        zero = broadcast_in_dim(scalar(0, x.dtype), (1, *x.shape[1:]), ())
        rows = [slice_axis(x, source[i], source[i] + 1, 0) if i in source else zero
                for i in range(n)]
        return concatenate_all(rows, 0), 0


@dataclass(frozen=True)
class AllGather(_AlongAxis, Linear):
    """The values of all examples, stacked along a new axis or joined along an existing axis."""

    dim: int
    tiled: bool = False
    groups: Groups = None

    kernel_family = "collectives.all_gather"
    name = "all_gather"

    def infer(self, x: Aval) -> Aval:
        n, d = self.group_size(), self.dim
        if self.tiled:
            return x.with_shape((*x.shape[:d], n * x.shape[d], *x.shape[d + 1 :]))
        return x.with_shape((*x.shape[:d], n, *x.shape[d:]))

    def eager(self, xp: Any, x: Any) -> Any:
        found = np.moveaxis(self.exchange().all_gather(x, self.axis, self.groups), 0, self.dim)
        if not self.tiled:
            return found
        d = self.dim
        return found.reshape(*x.shape[:d], found.shape[d] * x.shape[d], *x.shape[d + 1 :])

    def transpose(self, ct: Any, x: Any) -> Any:
        return ReduceScatter(self.axis, self.dim, self.tiled, self.groups)(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        if self.not_mine(axis):
            x = move_axis(x, d, 0)
            return AllGather(self.axis, self.dim + 1, self.tiled, self.groups)(x), 0
        x = bdim_at(x, d, axis[1])
        if self.groups is None:
            return self._placed(x, 0), None
        grouped = _grouped(x, self.groups)
        placed = self._placed(grouped, 1)
        size = len(self.groups[0])
        spread = broadcast_in_dim(placed, (placed.shape[0], size, *placed.shape[1:]),
                                  (0, *range(2, placed.ndim + 1)))
        return _ungrouped(spread, self.groups), 0

    def _placed(self, x: Any, at: int) -> Any:
        """Move the gathered axis to its place among the axes after `at`; merge it if tiled."""
        to = at + self.dim
        x = move_axis(x, at, to)
        if not self.tiled:
            return x
        return reshape(x, (*x.shape[:to], x.shape[to] * x.shape[to + 1], *x.shape[to + 2 :]))


@dataclass(frozen=True)
class ReduceScatter(_AlongAxis, Linear):
    """The sum over examples; each example keeps its own part along one axis."""

    dim: int
    tiled: bool = False
    groups: Groups = None

    kernel_family = "collectives.reduce_scatter"
    name = "reduce_scatter"

    def infer(self, x: Aval) -> Aval:
        n = self.group_size()
        d, size = self.dim, x.shape[self.dim]
        if self.tiled:
            if size % n:
                raise shape_error(self.name, f"a size of axis {d} divisible by {n}", [x])
            return x.with_shape((*x.shape[:d], size // n, *x.shape[d + 1 :]))
        if size != n:
            raise shape_error(self.name, f"size {n} of axis {d}", [x])
        return x.with_shape((*x.shape[:d], *x.shape[d + 1 :]))

    def eager(self, xp: Any, x: Any) -> Any:
        d, n = self.dim, self.group_size()
        if self.tiled:
            x = x.reshape(*x.shape[:d], n, x.shape[d] // n, *x.shape[d + 1 :])
        return self.exchange().reduce_scatter(np.moveaxis(x, d, 0), self.axis, self.groups)

    def transpose(self, ct: Any, x: Any) -> Any:
        return AllGather(self.axis, self.dim, self.tiled, self.groups)(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        if self.not_mine(axis):
            x = move_axis(x, d, 0)
            return ReduceScatter(self.axis, self.dim + 1, self.tiled, self.groups)(x), 0
        x = bdim_at(x, d, axis[1])
        groups = self.groups or (tuple(range(axis[1])),)
        n = len(groups[0])
        total = reduce_sum(_grouped(x, groups), (1,))  # (group, ...)
        at = self.dim + 1
        if self.tiled:
            shape = (*total.shape[:at], n, total.shape[at] // n, *total.shape[at + 1 :])
            total = reshape(total, shape)
        return _ungrouped(move_axis(total, at, 1), groups), 0


@dataclass(frozen=True)
class AllToAll(_AlongAxis, Linear):
    """An exchange: example i sends the j-th part of its value to example j, for all i and j."""

    split_axis: int
    concat_axis: int
    groups: Groups = None

    kernel_family = "collectives.all_to_all"
    name = "all_to_all"

    def infer(self, x: Aval) -> Aval:
        n = self.group_size()
        if x.shape[self.split_axis] % n:
            raise shape_error(self.name, f"a size of axis {self.split_axis} divisible by {n}", [x])
        shape = list(x.shape)
        shape[self.split_axis] //= n
        shape[self.concat_axis] *= n
        return x.with_shape(tuple(shape))

    def eager(self, xp: Any, x: Any) -> Any:
        n = self.group_size()
        at, to = self.split_axis, self.concat_axis
        x = x.reshape(*x.shape[:at], n, x.shape[at] // n, *x.shape[at + 1 :])
        found = self.exchange().all_to_all(np.moveaxis(x, at, 0), self.axis, self.groups)
        found = np.moveaxis(found, 0, to)  # (…, sender, size of `to`, …)
        return found.reshape(*found.shape[:to], n * found.shape[to + 1], *found.shape[to + 2 :])

    def transpose(self, ct: Any, x: Any) -> Any:
        return AllToAll(self.axis, self.concat_axis, self.split_axis, self.groups)(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        if self.not_mine(axis):
            x = move_axis(x, d, 0)
            op = AllToAll(self.axis, self.split_axis + 1, self.concat_axis + 1, self.groups)
            return op(x), 0
        x = bdim_at(x, d, axis[1])
        groups = self.groups or (tuple(range(axis[1])),)
        n = len(groups[0])
        x = _grouped(x, groups)  # (group, sender, ...)
        at = self.split_axis + 2
        x = reshape(x, (*x.shape[:at], n, x.shape[at] // n, *x.shape[at + 1 :]))
        x = move_axis(x, at, 1)  # (group, receiver, sender, ...)
        x = move_axis(x, 2, self.concat_axis + 2)
        to = self.concat_axis + 2
        x = reshape(x, (*x.shape[:to], n * x.shape[to + 1], *x.shape[to + 2 :]))
        return _ungrouped(x, groups), 0


@dataclass(frozen=True)
class AxisIndex(_AlongAxis):
    """The index of this example along a named axis."""

    kernel_family = "collectives.axis_index"
    name = "axis_index"
    exchange_name = ""

    def varies_over(self, names: frozenset[Any], bound: frozenset[Any]) -> frozenset[Any]:
        return bound & {self.axis}

    def infer(self) -> Aval:
        axis_size(self.axis)
        return Aval((), np.dtype(np.int32))

    def eager(self, xp: Any) -> Any:
        return np.asarray(self.exchange().index(self.axis), np.int32)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return iota(np.int32, (axis[1],)), 0


def is_number(x: Any) -> bool:
    """Whether a psum operand is a plain constant, whose sum is known immediately."""
    return isinstance(x, (int, float, complex, np.generic)) or (
        isinstance(x, np.ndarray) and dtypes.kind(x.dtype) in "biufc"
    )


