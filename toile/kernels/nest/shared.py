"""Code shared by writers of loop nests: order of nodes and passes, code of nodes, sums of parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from toile.compiler.ir import loop_nests
from toile.compiler.ir.groups import Group
from toile.compiler.ir.loop_nests import (
    Access,
    Apply,
    Constant,
    Index,
    Load,
    LoopNest,
    Loops,
    Number,
    Pick,
    Place,
    Reduce,
    Total,
)
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.views import row_major
from toile.compiler.plan.quotients import reciprocal_products
from toile.compiler.scalar.builder import Value, kind, part
from toile.compiler.scalar.fusible import lowered, rounded
from toile.compiler.scalar.mathematics import Builder
from toile.compiler.scalar.totals import accumulator


def address(p: Place, plan: Any) -> Ref:
    """The address of a memory operand."""
    base = p.base if isinstance(p.base, Ref) else plan.ref(p.base)
    return base.at(p.offset * p.dtype.itemsize)


def constant_words(value: np.ndarray) -> list[int]:
    """The words of one constant."""
    if kind(value.dtype) == "c":
        to = part(value.dtype)
        parts = [np.asarray(value.real, to), np.asarray(value.imag, to)]
        return [w for p in parts for w in constant_words(p)]
    raw = value.tobytes().ljust(8, b"\0")
    return [int(np.frombuffer(raw, np.int64)[0])]


class Nodes(ABC):
    """Writes the nodes of a nest with a scalar builder; subclasses say where operands are.

    `here` is the device's description of the current loop position."""

    k: Builder

    def __init__(self, nest: LoopNest):
        self.nest = nest
        self.level, self.varies = loop_nests.levels(nest)
        self.products = reciprocal_products(nest)
        self.accesses: list[Access] = [*nest.loads, *(a for _, a in nest.stores)]
        self.reductions = {n: x for n, x in enumerate(nest.nodes) if isinstance(x, Reduce)}
        self.totals = {n: x for n, x in enumerate(nest.nodes) if isinstance(x, Total)}
        self.values: dict[int, Value] = {}
        self.saved: set[int] = set()  # nodes that an earlier pass has saved

    @abstractmethod
    def load(self, operand: int, here: Any) -> Value:
        """An element of an operand."""

    @abstractmethod
    def pick(self, operand: int, index: Value, here: Any) -> Value:
        """The element of an operand at an offset, in elements, from the current position."""

    @abstractmethod
    def constant(self, index: int, dtype: np.dtype) -> Value:
        """One of the nest's constants."""

    @abstractmethod
    def count(self, axes: tuple[int, ...], dtype: np.dtype, here: Any) -> Value:
        """The index along some axes, of which the last runs fastest."""

    def node(self, n: int, here: Any) -> Value:
        """Write the code of one node whose arguments have been written."""
        node = self.nest.nodes[n]
        match node:
            case Load(operand):
                return self.load(operand, here)
            case Pick(operand, index, _):
                return self.pick(operand, self.values[index], here)
            case Constant(index, dtype):
                return self.constant(index, dtype)
            case Number(value, dtype):
                return self.k.constant(value, dtype)
            case Index(axes, dtype):
                return self.count(axes, dtype, here)
            case Apply(op, args, dtype):
                xs = [self.values[a] for a in args]
                if dtype.name in self.nest.rounds:
                    return rounded(self.k, op, xs, dtype)
                out = self.k.quotient(*xs) if n in self.products else lowered(self.k, op, xs)
                return out if out.dtype == dtype else Value(out.name, dtype, out.imag)
        raise AssertionError(node)

    def needed(self, wanted: Sequence[int]) -> list[int]:
        """The nodes to write for the wanted ones, in order, except those already known."""
        found: set[int] = set()
        stack = list(wanted)
        while stack:
            n = stack.pop()
            if n in found or n in self.values:
                continue
            found.add(n)
            node = self.nest.nodes[n]
            if isinstance(node, Apply) and n not in self.saved:
                stack += node.args
            elif isinstance(node, Pick):
                stack.append(node.index)
        return sorted(found)

    def evaluate(self, nodes: Sequence[int], here: Any) -> None:
        """Write the nodes that have not been written yet."""
        for n in nodes:
            if n not in self.values:
                self.values[n] = self.node(n, here)

    def stages(
        self, stores: Sequence[int], totals: Sequence[int] = ()
    ) -> Iterator[tuple[list[int], list[int], list[int]]]:
        """The passes over a row: the reductions, totals and stores of each."""
        made = {s: self.level[self.nest.stores[s][0]] for s in stores}
        last = max([*made.values(), *(self.level[n] for n in totals),
                    *(self.level[n] - 1 for n in self.reductions)], default=0)
        for stage in range(last + 1):
            found = ([n for n in self.reductions if self.level[n] == stage + 1],
                     [n for n in totals if self.level[n] == stage],
                     [s for s in stores if made[s] == stage])
            if any(found):
                yield found


def sum_of_row_parts(
    node: Reduce, ref: Ref, out: Place, parts: int, outer: Sequence[int], group: Group
) -> Loops:
    """The nest that sums partial results, which are rows of `parts` elements."""
    dtype, rank = accumulator(node.dtype), len(outer)
    nest = LoopNest(
        "row", rank, 1, 0, (Load(0), Reduce(node.kind, 0, node.dtype)),
        (Access(dtype, 1, True),), ((1, Access(out.dtype, 0, False)),), (),
    )
    source = Place(ref, 0, (*(s * parts for s in row_major(outer)), 1), dtype)
    target = out._replace(strides=(*out.strides[:rank], 0))
    return Loops(nest, (*outer, parts), [source], [target], [], group)
