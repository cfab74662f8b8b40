"""Operands of launches: where arrays are, before any memory is allocated.

A `Ref` names a buffer and an offset in it; an `Operand` is a strided array that begins there. The
plans and lowerings of both backends describe memory in these terms.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

# Numbers buffers in the order in which they are created, which is the same in every process.
next_serial = itertools.count().__next__


class Temporary:
    """A buffer in the arena of a plan.

    Temporaries are numbered in the order in which they are created, which is the same in every
    process: code that iterates over a set of them sorts by these numbers."""

    __slots__ = ("nbytes", "serial")

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self.serial = next_serial()

    def __lt__(self, other: Temporary) -> bool:
        return self.serial < other.serial


class Scratch(Temporary):
    """A temporary buffer used only by the stages of one equation."""

    __slots__ = ()


class VariableBuffer(Temporary):
    """The buffer of a variable's value in one body.

    Programs may share variables (a checkpointed scan and its recomputation do), and one Program may
    be the body of several loops: each of their plans has buffers of its own. A buffer may have more
    rows than the variable, which others share."""

    __slots__ = ("var",)

    def __init__(self, var: Any, rows: int = 0):
        nbytes = var.aval.nbytes
        super().__init__(nbytes + (rows * nbytes // var.aval.shape[0] if rows else 0))
        self.var = var

    @property
    def aval(self) -> Any:
        """The aval of what the buffer holds: the variable, and perhaps more rows."""
        aval = self.var.aval
        if self.nbytes == aval.nbytes:
            return aval
        return aval.with_shape((self.nbytes * aval.shape[0] // aval.nbytes, *aval.shape[1:]))


class Ref(NamedTuple):
    """The address of a first byte: a place in the buffer of a variable, constant or Scratch."""

    buffer: Any
    offset: int = 0

    def at(self, nbytes: int) -> Ref:
        """The address `nbytes` further on."""
        return Ref(self.buffer, self.offset + nbytes)


Args = tuple[int | Ref, ...]  # arguments of a launch


class Operand(NamedTuple):
    """An array in memory; strides count elements and may be 0 or negative."""

    ref: Ref
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether elements are in row-major order without gaps."""
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != expected:
                return self.size == 0
            expected *= n
        return True
