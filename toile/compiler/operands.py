"""Operands of launches: where arrays lie, before any memory is given out.

A `Ref` names a buffer and an offset in it; an `Operand` is a strided array that begins there. Both
backends' plans and lowerings speak of memory in these words.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Scratch:
    """A temporary buffer that only the stages of one equation use."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int):
        self.nbytes = nbytes


class Ref(NamedTuple):
    """Where bytes begin: in the buffer of a variable, a constant or a Scratch."""

    buffer: Any
    offset: int = 0

    def at(self, nbytes: int) -> Ref:
        """The place some bytes further."""
        return Ref(self.buffer, self.offset + nbytes)


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
        """Whether elements lie in row-major order without gaps."""
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != expected:
                return self.size == 0
            expected *= n
        return True
