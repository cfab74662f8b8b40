"""One row for each operation: how it is applied, to what, and what NumPy says of the result.

A `Row` names the operation's class, a function that applies it, its operands, an oracle in terms
of NumPy, and which properties hold. `ROWS` is all of them; `INTERNAL` lists the classes that have
none, each with its reason. The properties themselves are in `test_operations.py`.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = ("float32", "float64", "float16", "bfloat16")
REALS = ("float32", "float64")
INTS = ("int32", "uint8", "int8", "int64")
COMPLEX = ("complex64", "complex128")
INEXACT = (*FLOATS, *COMPLEX)
NUMBERS = ("float32", "float64", "bfloat16", "int32", "uint8", *COMPLEX)
MATRICES = (*REALS, *COMPLEX)


def dtype_of(name: str) -> np.dtype:
    """A NumPy dtype, those of ml_dtypes included."""
    return np.dtype(getattr(ml_dtypes, name, name))


@contextlib.contextmanager
def noted(case: object) -> Iterator[None]:
    """Name the case in what it raises: for tests that try several, which costs less than a test
    of pytest for each of thousands."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"with {case}")
        raise


@dataclass(frozen=True)
class Operand:
    """How to draw an operand: its shape, its range, and its dtype unless that is the row's."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str | None = None
    # Values that lie well apart, for operations that compare elements.
    apart: bool = False

    def draw(self, rng: np.random.Generator, dtype: str) -> np.ndarray:
        """Values of the operand for a row run in `dtype`."""
        made = dtype_of(self.dtype or dtype)
        if made.kind == "b":
            return rng.random(self.shape) < 0.5
        if made.kind in "iu":
            low = max(self.low, 0) if made.kind == "u" else self.low
            return rng.integers(int(low), int(self.high) + 1, self.shape).astype(made)
        if made.kind == "c":
            return (self._real(rng) + 1j * self._real(rng)).astype(made)
        return self._real(rng).astype(made)

    def _real(self, rng: np.random.Generator) -> np.ndarray:
        if not self.apart:
            return rng.uniform(self.low, self.high, self.shape)
        count = int(np.prod(self.shape))
        values = np.linspace(self.low, self.high, count)
        return rng.permutation(values).reshape(self.shape)


def X(*shape: int, low: float = -2.0, high: float = 2.0, apart: bool = False) -> Operand:
    """An operand of the row's dtype."""
    return Operand(shape, low, high, None, apart)


def I(*shape: int, low: int = 0, high: int = 2, dtype: str = "int32") -> Operand:  # noqa: E743
    """An integer operand."""
    return Operand(shape, low, high, dtype)


def B(*shape: int) -> Operand:
    """A boolean operand."""
    return Operand(shape, dtype="bool")


@dataclass(frozen=True)
class Row:
    """An operation at work."""

    op: type
    run: Callable[..., Any]
    operands: Sequence[Operand]
    # Results from NumPy operands, as NumPy arrays; or None where `check` says what must hold.
    oracle: Callable[..., Any] | None = None
    # Asserts what must hold of results: check(results, *operands).
    check: Callable[..., None] | None = None
    dtypes: Sequence[str] = REALS
    # Operands to differentiate (None: all of the row's dtype; (): it has no derivative).
    moving: Sequence[int] | None = None
    # Operands in which the operation is jointly linear, hence can be transposed.
    linear: Sequence[int] = ()
    # Whether forward mode is defined, and results are smooth enough for a second derivative.
    forward: bool = True
    second: bool = True
    # Operands that vmap may map (None: all).
    mapped: Sequence[int] | None = None
    rtol: float = 1e-5
    # Relative error of finite differences to allow in float64.
    slack: float = 2e-6
    # Whether the class must be seen in the staged Program (collectives vanish in vmap).
    staged: bool = True
    label: str = ""

    def __str__(self) -> str:
        return f"{self.op.__name__}{'-' if self.label else ''}{self.label}"

    def rng(self, salt: str = "") -> np.random.Generator:
        """A generator that depends on the row alone."""
        return np.random.default_rng(zlib.crc32(f"{self}{salt}".encode()))

    def arguments(self, dtype: str, salt: str = "") -> list[np.ndarray]:
        """Operands drawn for one dtype."""
        rng = self.rng(salt)
        return [o.draw(rng, dtype) for o in self.operands]

    def differentiable(self, dtype: str) -> list[int]:
        """The operands to differentiate in `dtype`."""
        if dtype_of(dtype).kind not in "fc":
            return []
        if self.moving is not None:
            return list(self.moving)
        return [i for i, o in enumerate(self.operands) if o.dtype is None]

    def mappable(self) -> list[int]:
        """The operands that vmap may map."""
        return list(range(len(self.operands))) if self.mapped is None else list(self.mapped)
