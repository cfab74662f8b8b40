"""Devices that are threads of this process, and their collectives.

Each device of a run has an `Exchange`. All of them share a `World`, in which the devices of a group
synchronize: the last device to arrive combines the values of all devices. Sums are computed in the
order of devices, so the results are bit-for-bit identical on all devices. When a device fails,
`stop` wakes the other devices. If a device has finished while others wait for it, an error is
raised. This module may import the engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine import exchange as interface
from toile.engine.exchange import Groups
from toile.engine.locks import InterruptibleCondition

# (name, size, this device's index) of each axis that one mapping binds.
Place = tuple[tuple[Any, int, int], ...]
Path = tuple[Any, ...]

# Larger arrays are reduced by all devices together, each taking a part.
TOGETHER = 1 << 16


def flat_index(at: Sequence[int], sizes: Sequence[int]) -> int:
    """The row-major index of a position in a grid of these sizes."""
    k = 0
    for i, size in zip(at, sizes, strict=True):
        k = k * size + i
    return k


class Stopped(BaseException):
    """Raised in devices that wait for a device that has failed."""


class _Pending:
    """One collective of a group, while its devices arrive."""

    __slots__ = ("values", "what", "done", "result")

    def __init__(self, what: Any):
        self.values: dict[int, Any] = {}
        self.what = what
        self.done = False
        self.result: Any = None


class Group:
    """Devices that a collective joins, as seen by one of them: all paths, and its own place."""

    __slots__ = ("members", "place", "size")

    def __init__(self, members: tuple[Path, ...], place: int):
        self.members, self.place, self.size = members, place, len(members)


class World:
    """Where the devices of one run synchronize."""

    def __init__(self) -> None:
        self.condition = InterruptibleCondition()
        self.pending: dict[tuple[Path, ...], _Pending] = {}
        self.finished: set[Path] = set()
        self.error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Wake all devices and keep them from waiting again; only the first error is recorded."""
        with self.condition:
            if self.error is None and not isinstance(error, Stopped):
                self.error = error
            self.condition.notify_all()

    def finish(self, path: Path) -> None:
        """Record that a device has finished; collectives that wait for it must fail."""
        with self.condition:
            self.finished.add(path)
            if self.pending:
                self.condition.notify_all()

    def meet(
        self, group: Group, what: Any, value: Any, combine: Callable[[list[Any]], Any]
    ) -> Any:
        """Wait for a group's devices; return `combine` of their values, in order, computed once."""
        with self.condition:
            if self.error is not None:
                raise Stopped
            found = self.pending.get(group.members)
            if found is None:
                found = self.pending[group.members] = _Pending(what)
            elif found.what != what:
                raise RuntimeError(
                    f"collectives: needed the same one on all devices, got {found.what} on one "
                    f"and {what} on another (a condition that differs between devices?)"
                )
            found.values[group.place] = value
            if len(found.values) == group.size:
                del self.pending[group.members]
                found.result = combine([found.values[i] for i in range(group.size)])
                found.values.clear()
                found.done = True
                self.condition.notify_all()
                return found.result
            while not found.done:
                self._check(group, found)
                self.condition.wait()
            return found.result

    def _check(self, group: Group, found: _Pending) -> None:
        """Raise if a missing device can no longer arrive."""
        if self.error is not None:
            raise Stopped
        if not self.finished:
            return
        for i, path in enumerate(group.members):
            gone = any(path[:n] in self.finished for n in range(1, len(path) + 1))
            if gone and i not in found.values:
                raise RuntimeError(
                    f"collectives: a device waits in {found.what} for device {i} of its group, "
                    "which has finished without it (a collective under a condition that differs "
                    "between devices?)"
                )


class ThreadExchange(interface.Exchange):
    """The exchange of one device of a run.

    `path` identifies the device in its World: for each enclosing mapping, it contains the number of
    that mapping among those that its device has run, and the indices along the axes of the
    mapping."""

    def __init__(self, world: World, levels: tuple[tuple[int, Place], ...]):
        self.world, self.levels = world, levels
        self.path: Path = tuple((n, tuple(i for _, _, i in place)) for n, place in levels)
        self.groups: dict[Any, Group] = {}
        self.count = itertools.count()  # numbers the mappings that this device starts

    def inside(self, number: int, place: Place) -> ThreadExchange:
        """The exchange of a device of a mapping that this device starts."""
        return ThreadExchange(self.world, (*self.levels, (number, place)))

    def index(self, axis: Any) -> int:
        for _, place in reversed(self.levels):
            for name, _, i in place:
                if name == axis:
                    return i
        raise NameError(f"unbound axis name: {axis}")

    def group(self, axes: tuple[Any, ...], groups: Groups) -> Group:
        """The devices that differ from this one only in their indices along `axes`."""
        found = self.groups.get((axes, groups))
        if found is None:
            found = self.groups[axes, groups] = self._group(axes, groups)
        return found

    def _group(self, axes: tuple[Any, ...], groups: Groups) -> Group:
        free = set(axes)
        choices: list[list[Any]] = []
        for number, place in reversed(self.levels):  # inner axes shadow outer ones of the same name
            ranges = []
            for name, size, i in reversed(place):
                ranges.append(range(size) if name in free else (i,))
                free.discard(name)
            ranges.reverse()
            choices.append([(number, p) for p in itertools.product(*ranges)])
        if free:
            raise NameError(f"unbound axis name: {next(iter(free))}")
        choices.reverse()
        members = tuple(itertools.product(*choices))
        if groups is not None:  # along one axis, so members are in the order of its indices
            own = next(g for g in groups if members.index(self.path) in g)
            members = tuple(members[i] for i in own)
        return Group(members, members.index(self.path))

    # ---- collectives
    def all_reduce(
        self, kind: str, xs: Sequence[Any], axes: tuple[Any, ...], groups: Groups
    ) -> list[Any]:
        return self.reduced_over(self.group(axes, groups), kind, xs, (f"p{kind}", axes))

    def reduced_over(self, group: Group, kind: str, xs: Sequence[Any], what: Any) -> list[Any]:
        """The arrays of the threads of a group, reduced; the result is the same on all threads."""
        if group.size == 1:
            return [np.array(x) for x in xs]
        if sum(x.nbytes for x in xs) <= TOGETHER:
            return self.world.meet(
                group, what, xs, lambda all_: [reduced(kind, same) for same in zip(*all_)]
            )

        def begin(all_: list[Any]) -> Any:
            return all_, [np.empty(x.size, x.dtype) for x in all_[0]]

        all_, outs = self.world.meet(group, what, [_flat(x) for x in xs], begin)
        for same, out in zip(zip(*all_, strict=True), outs, strict=True):
            lo, hi = (k * out.size // group.size for k in (group.place, group.place + 1))
            if hi > lo:
                reduced(kind, [x[lo:hi] for x in same], out[lo:hi])
        self.world.meet(group, (*what, "end"), None, _nothing)
        return [o.reshape(x.shape) for o, x in zip(outs, xs, strict=True)]

    def _shared(self, what: Any, group: Group, x: Any, read: Callable[[list[Any]], Any]) -> Any:
        """`read` applied to the arrays of a group while all of them are kept unchanged."""
        if group.size == 1:
            return read([x])
        result = read(self.world.meet(group, what, x, list))
        self.world.meet(group, (what, "end"), None, _nothing)
        return result

    def all_gather(self, x: Any, axis: Any, groups: Groups) -> Any:
        return self._shared(("all_gather", axis), self.group((axis,), groups), x, np.stack)

    def reduce_scatter(self, x: Any, axis: Any, groups: Groups) -> Any:
        group = self.group((axis,), groups)
        return self._shared(("reduce_scatter", axis), group, x,
                            lambda xs: reduced("sum", [x[group.place] for x in xs]))

    def all_to_all(self, x: Any, axis: Any, groups: Groups) -> Any:
        group = self.group((axis,), groups)
        return self._shared(("all_to_all", axis), group, x,
                            lambda xs: np.stack([x[group.place] for x in xs]))

    def permute(self, x: Any, axis: Any, perm: Sequence[tuple[int, int]]) -> Any:
        group = self.group((axis,), None)
        source = next((a for a, b in perm if b == group.place), None)
        return self._shared(("ppermute", axis), group, x,
                            lambda xs: None if source is None else np.array(xs[source]))


def _nothing(_: list[Any]) -> None:
    return None


def _flat(x: Any) -> Any:
    return np.ascontiguousarray(x).reshape(-1)


_FUNCTIONS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def reduced(kind: str, xs: Sequence[Any], out: Any = None) -> Any:
    """The arrays reduced from first to last; narrow floats are summed as float32."""
    function, first = _FUNCTIONS[kind], xs[0]
    if kind == "sum" and dtypes.is_inexact(first.dtype) and first.dtype.itemsize < 4:
        total = first.astype(np.float32)
        for x in xs[1:]:
            total += x.astype(np.float32)
        total = total.astype(first.dtype)
        if out is not None:
            out[...] = total
        return total
    if kind != "sum" and dtypes.kind(first.dtype) == "c":
        return (np.max if kind == "max" else np.min)(np.stack(xs), axis=0, out=out)
    if first.dtype == np.bool_ and kind != "sum":
        function = np.logical_or if kind == "max" else np.logical_and
    out = np.empty(first.shape, first.dtype) if out is None else out
    if len(xs) == 1:
        out[...] = first
        return out
    function(first, xs[1], out=out)
    for x in xs[2:]:
        function(out, x, out=out)
    return out
