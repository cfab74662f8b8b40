"""A value of a divided Program on one device, and its conversion between layouts.

A `Placed` value has a part on each device; its sum over the mesh axes in `partial` is still
pending. A `Spread` value, such as a broadcast or an iota, is made in any layout that is needed. A
`Frame` stages the collectives that a conversion needs: pending sums are scattered where the
requested layout divides the value along their axis, an axis that moves is exchanged, missing parts
are gathered, and parts that are not needed are sliced off. This module may import control and the
layers below it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.program import Equation
from toile.parallel.meshes import Mesh
from toile.parallel.spmd import Layout
from toile.primitives.collectives import AllGather, AllReduce, AllToAll, AxisIndex, ReduceScatter
from toile.primitives.dynamic_slices import DynamicSlice
from toile.primitives.families import add, mul, scalar
from toile.primitives.random import RandomUnwrap, RandomWrap

Names = tuple[Any, ...]


def whole(rank: int) -> Layout:
    """The layout of a value that every device holds whole."""
    return ((),) * rank


class Placed:
    """A value in parts: the part of this device, and the layout of all parts."""

    __slots__ = ("aval", "layout", "value", "partial", "zero", "forms")

    def __init__(self, aval: Aval, layout: Layout, value: Any, partial: Names = (),
                 zero: bool = False):
        self.aval, self.layout, self.value, self.partial = aval, tuple(layout), value, partial
        self.zero = zero  # all zeros, which can also be taken for a pending sum
        self.forms: dict[Layout, Any] = {}

    uniform = False


class Spread:
    """A value whose computation is put off until its layout is known."""

    __slots__ = ("aval", "layout", "make", "zero", "uniform", "forms")
    partial: Names = ()

    def __init__(self, aval: Aval, layout: Layout, make: Callable[[Layout], Any],
                 zero: bool = False, uniform: bool = False):
        self.aval, self.layout, self.make = aval, tuple(layout), make
        self.zero, self.uniform = zero, uniform  # all zeros; all elements equal
        self.forms: dict[Layout, Any] = {}


Value = Placed | Spread


class Frame:
    """A Program that is being divided: its mesh, and the current equation."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.sizes: dict[Any, int] = dict(mesh.shape)
        self.notes: list[str] = []
        self.equation: Equation | None = None
        self.single: Sequence[bool] = ()  # its operands that nothing else reads
        self.indices: dict[Any, Any] = {}

    # ---- sizes
    def parts(self, names: Sequence[Any]) -> int:
        return math.prod(self.sizes[n] for n in names)

    def local(self, shape: Sequence[int], layout: Layout) -> tuple[int, ...]:
        """The shape of one part."""
        return tuple(n // self.parts(names) for n, names in zip(shape, layout, strict=True))

    def ordered(self, names: Sequence[Any]) -> Names:
        """Names in mesh order, without axes of size 1."""
        return tuple(n for n in self.mesh.axis_names if n in names and self.sizes[n] > 1)

    def index(self, names: Names) -> Any:
        """The index of this device's part along some axes, of which the first varies slowest."""
        found = self.indices.get(names)
        if found is None:
            found = AxisIndex(names[-1])()
            if len(names) > 1:
                size = scalar(self.sizes[names[-1]], np.int32)
                found = add(mul(self.index(names[:-1]), size), found)
            self.indices[names] = found
        return found

    # ---- values
    def placed(self, aval: Aval, layout: Layout, value: Any, partial: Names = ()) -> Placed:
        """A value in parts."""
        return Placed(aval, layout, value, partial)

    def placed_all(
        self, op: Any, avals: Sequence[Aval], layouts: Sequence[Layout], found: Any
    ) -> list[Value]:
        """The results of an operation in parts."""
        results = found if op.multiple else [found]
        return list(map(Placed, avals, layouts, results))

    def spread(self, *args: Any) -> Spread:
        """A value whose computation is put off until its layout is known."""
        return Spread(*args)

    def is_zero(self, v: Value) -> bool:
        """Whether a value is known to be the number 0."""
        data = getattr(getattr(v, "value", None), "_data", None)
        return isinstance(data, np.ndarray) and not data.shape and bool(data == 0)

    def reduced(self, kind: str, names: Names, value: Any) -> Any:
        """A value combined over the devices along some mesh axes."""
        return AllReduce(kind, names)(value)

    # ---- layouts
    def through_reshape(
        self, shape: Sequence[int], new: Sequence[int], layout: Layout
    ) -> tuple[Layout, Layout]:
        """The part of a layout that a reshape keeps, before and after it.

        Axes are grouped by equal products. A group counts its elements in row-major order, so mesh
        axes can divide only the first axis of a group, or a later axis if all axes before it have
        size 1 on each device."""
        before: list[Names] = [()] * len(shape)
        after: list[Names] = [()] * len(new)
        for ins, outs in _groups(shape, new):
            names: list[tuple[int, Any]] = []
            for i in ins:
                names += [(i, n) for n in layout[i]]
                if self.parts(layout[i]) != shape[i]:
                    break
            for o in outs:
                while names and self._divides(new[o], (*after[o], names[0][1])):
                    i, n = names.pop(0)
                    before[i], after[o] = (*before[i], n), (*after[o], n)
                if self.parts(after[o]) != new[o]:
                    break
        return tuple(before), tuple(after)

    def _divides(self, size: int, names: Names) -> bool:
        return size % self.parts(names) == 0

    def common(self, values: Sequence[Value]) -> Layout:
        """A layout for values of one shape: that of the value with the most parts, divided further
        along axes that only other values divide."""
        ranked = sorted(values, key=lambda v: -self.parts([n for e in v.layout for n in e]))
        layout = list(ranked[0].layout)
        used = {n for e in layout for n in e}
        for v in ranked[1:]:
            for i, names in enumerate(v.layout):
                if names and not layout[i] and not used & set(names):
                    layout[i] = names
                    used |= set(names)
        return tuple(layout)

    def to(self, v: Value, layout: Layout) -> Any:
        """This device's part of a value in a given layout, with no pending sums."""
        layout = tuple(layout)
        if isinstance(v, Placed) and v.partial:
            self._settle(v, layout)
        found = v.forms.get(layout)
        if found is None:
            if isinstance(v, Spread):
                found = v.make(layout)
            else:
                found = v.value if v.layout == layout else self._moved(v, layout)
            v.forms[layout] = found
        return found

    def natural(self, v: Value) -> Any:
        """The part in the value's own layout, with no pending sums."""
        if isinstance(v, Placed) and v.partial:
            self._settle(v, v.layout)  # keeps the layout
        return self.to(v, v.layout)

    def _settle(self, v: Placed, wanted: Layout) -> None:
        """Add up pending sums, scattered where the wanted layout divides more along their axis."""
        left, x, have = list(v.partial), v.value, list(v.layout)
        i = 0
        while i < len(have):
            following = wanted[i][len(have[i]):len(have[i]) + 1]
            if wanted[i][:len(have[i])] == have[i] and following and following[0] in left:
                x = ReduceScatter(following[0], i, True)(x)
                have[i] += following
                left.remove(following[0])
            else:
                i += 1
        if left:
            x = AllReduce("sum", self.ordered(left))(x)
        v.value, v.layout, v.partial = x, tuple(have), ()
        v.forms.clear()

    def _moved(self, v: Placed, wanted: Layout) -> Any:
        """Convert a value to another layout: exchange, gather, slice."""
        x, have = v.value, list(v.layout)
        keyed = dtypes.is_extended(v.aval.dtype)
        if keyed and any(a != b[:len(a)] for a, b in zip(have, wanted, strict=True)):
            x = RandomUnwrap()(x)
        missing: list[Any] = []
        for i in range(len(have)):
            while have[i] != wanted[i][:len(have[i])]:
                name = have[i][-1]
                to = next((j for j, names in enumerate(have) if j != i and self.sizes[name] > 1
                           and wanted[j][:len(names) + 1] == (*names, name)), None)
                have[i] = have[i][:-1]
                if to is not None:
                    x = AllToAll(name, to, i)(x)
                    have[to] = (*have[to], name)
                elif self.sizes[name] > 1:
                    x = AllGather(name, i, True)(x)
                    missing.append(name)
        if missing:
            self.note(v.aval, missing)
        if keyed and x is not v.value:
            x = RandomWrap(v.aval.dtype)(x)
        return self._cut(x, tuple(have), wanted)

    def _cut(self, x: Any, have: Layout, wanted: Layout) -> Any:
        """The slice of a part that a finer layout keeps."""
        more = [b[len(a):] for a, b in zip(have, wanted, strict=True)]
        sizes = tuple(n // self.parts(names) for n, names in zip(x.shape, more, strict=True))
        if sizes == x.shape:
            return x
        starts = [
            mul(self.index(names), scalar(n, np.int32)) if self.parts(names) > 1
            else scalar(0, np.int32)
            for n, names in zip(sizes, more, strict=True)
        ]
        return DynamicSlice(sizes)(x, *starts)

    # ---- notes for `explain`
    @contextlib.contextmanager
    def without_notes(self) -> Iterator[None]:
        """Drop the notes about gathers that are made inside this block."""
        before, count = self.equation, len(self.notes)
        self.equation = None
        yield
        del self.notes[count:]
        self.equation = before

    def note(self, aval: Aval, names: Sequence[Any]) -> None:
        """Note that the current equation gathers an operand."""
        e = self.equation
        what = "the result" if e is None else str(e.op)
        where = f" at {e.source}" if e is not None and e.source else ""
        along = ", ".join(repr(n) for n in names)
        self.notes.append(f"{what}{where} gathers {aval.str_short()} along {along}")


def _groups(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of two shapes that have equal numbers of elements."""
    found: list[tuple[list[int], list[int]]] = []
    if 0 in a:
        return found
    i = j = 0
    while i < len(a) and j < len(b):
        ins, outs, m, n = [i], [j], a[i], b[j]
        i, j = i + 1, j + 1
        while m != n:
            if m < n:
                ins.append(i)
                m, i = m * a[i], i + 1
            else:
                outs.append(j)
                n, j = n * b[j], j + 1
        found.append((ins, outs))
    return found
