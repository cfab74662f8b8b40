"""Loop nests: what a group computes, in a form that groups with the same kernel code share.

A `LoopNest` holds no extents, strides or constants: those are arguments of the kernel, so that
equal layers share a kernel, whatever the batch size is. Axes are numbered from the outside in:

  map      every axis is an output axis; the innermost is the vector loop
  row      `outer` output axes, then the axes summed over; several passes over a row
  partial  like row, with one pass over a part of the first axis summed over; gives partial sums
  column   `outer` output axes, the axes summed over, then the output axes inside them

A row nest may have totals: sums over its rows, each an array with the axes that rows have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.groups import Group
from toile.compiler.ir.operands import Ref
from toile.engine.operation import Operation
from toile.engine.program import Var
from toile.engine.records import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a memory operand."""

    operand: int


@dataclass(frozen=True, slots=True)
class Pick:
    """An element of a memory operand. The node `index` gives its distance, in elements, from the
    place that belongs to the position along the axes."""

    operand: int
    index: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar argument of the kernel."""

    index: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Number:
    """A constant that is part of the code; a shift by a known count, for example, is faster."""

    value: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Index:
    """The position along some axes as one number; the last axis runs fastest."""

    axes: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operation on other nodes."""

    op: Operation
    args: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """A node combined over the reduced axes: reduce_sum, reduce_max ..."""

    kind: str
    arg: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Total:
    """A node combined over the outer axes of a nest that works row by row."""

    kind: str
    arg: int
    dtype: np.dtype


Node = Load | Pick | Constant | Number | Index | Apply | Reduce | Total


class Access(NamedTuple):
    """How the kernel reaches a memory operand."""

    dtype: np.dtype
    inner: int  # stride along the innermost axis: 0, 1, or 2 for any other
    varies: bool  # along the axes of the inner loops (the reduced ones; in maps the innermost)
    picked: bool = False  # its elements are read by `Pick`


@dataclass(frozen=True)
class LoopNest:
    """The structure of a kernel: everything that determines its code."""

    kind: str
    outer: int
    reduced: int  # how many axes are summed over
    inner: int  # output axes inside the reduced ones
    nodes: tuple[Node, ...]
    loads: tuple[Access, ...]
    stores: tuple[tuple[int, Access], ...]  # each node that is stored, and how
    constants: tuple[np.dtype, ...]
    scratch: frozenset[int] = frozenset()  # nodes kept in a row buffer between passes
    rounds: frozenset[str] = frozenset()  # narrow dtypes that every operation rounds to

    @property
    def rank(self) -> int:
        return self.outer + self.reduced + self.inner


class Place(NamedTuple):
    """A memory operand of one launch: elements from `offset` on, strides by axis, in elements."""

    base: Var | Ref
    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype


@dataclass
class Loops:
    """A loop nest with the operands and extents that it is applied to."""

    nest: LoopNest
    extents: tuple[int, ...]
    loads: list[Place]
    stores: list[Place]
    constants: list[Any]
    group: Group


def levels(nest: LoopNest) -> tuple[list[int], list[bool]]:
    """For each node: after how many passes it is known, and whether it varies along a row."""
    level: list[int] = []
    varies: list[bool] = []
    first = nest.outer - (nest.kind == "map")
    for node in nest.nodes:
        known, differs = 0, False  # as for constants
        match node:
            case Load(operand):
                differs = nest.loads[operand].varies
            case Pick(operand, index, _):
                known, differs = level[index], nest.loads[operand].varies or varies[index]
            case Index(axes, _):
                differs = any(a >= first for a in axes)
            case Apply(_, args, _):
                known = max((level[a] for a in args), default=0)
                differs = any(varies[a] for a in args)
            case Reduce(_, arg, _):
                known = level[arg] + 1
            case Total(_, arg, _):
                known, differs = level[arg], True
        level.append(known)
        varies.append(differs)
    return level, varies


def rounds_total(nest: LoopNest, n: int) -> bool:
    """Whether a reduction is rounded like a stored value before other nodes read it.

    A total that is only stored is not rounded: it may be a part of a larger one."""
    node = nest.nodes[n]
    return (isinstance(node, Reduce) and node.dtype.name in nest.rounds
            and any(n in x.args for x in nest.nodes if isinstance(x, Apply)))
