"""Training and inference programs that `benchmarks.programs` measures, as users write them.

Each file in this folder has a tuple `PROGRAMS`. A program is written once with the names of JAX,
Flax and Optax, which are attributes of a namespace (`operation_cells.library`). It is also written
in PyTorch if there is a natural equivalent.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

FILES = ("vision", "language", "structures", "science", "fields")


class Made(NamedTuple):
    """A step, the initial state and a batch; `step(state, *batch)` returns a new state and a
    result.

    The step is pure and not jitted; the caller may donate the state."""

    step: Callable[..., tuple[Any, Any]]
    state: Any
    batch: tuple[Any, ...]


class Program(NamedTuple):
    """A program and the sizes at which it runs.

    `make(L, **size)` creates the program from the namespace of a library. `torch(torch, device,
    **size)` returns a function that runs one step in PyTorch; `torch` is None if there is no
    PyTorch version. `sizes` contains the sizes "tiny", "cpu" and "gpu".

    If `restarts` is not 0, every `restarts` steps begin with the initial state again, for programs
    whose steps do more and more work, such as solvers that need more iterations. The function for
    PyTorch then has an argument: whether its step begins with the initial state."""

    name: str
    make: Callable[..., Made]
    sizes: dict[str, dict[str, Any]]
    torch: Callable[..., Callable[..., Any]] | None = None
    restarts: int = 0


def programs() -> dict[str, Program]:
    """All programs by name, in the order of the table."""
    files = [importlib.import_module(f"benchmarks.zoo.{name}") for name in FILES]
    return {program.name: program for file in files for program in file.PROGRAMS}


def names() -> list[str]:
    """The names of all programs."""
    return list(programs())
