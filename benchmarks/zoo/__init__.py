"""Programs that `benchmarks.programs` measures, training and inference, as users write them.

Each file of this folder has a tuple `PROGRAMS`. A program is written once against the names of JAX,
Flax and Optax, which it gets as the attributes of a namespace (`operation_cells.library`), and once
in PyTorch where that has a natural equivalent.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

FILES = ("vision", "language", "structures", "science", "fields")


class Made(NamedTuple):
    """A step, the first state and a batch: `step(state, *batch)` gives the next state and a result.

    The step is pure and not yet jitted; its caller may donate the state."""

    step: Callable[..., tuple[Any, Any]]
    state: Any
    batch: tuple[Any, ...]


class Program(NamedTuple):
    """A program and the sizes at which it runs.

    `make(L, **size)` makes it from the namespace of a library; `torch(torch, device, **size)` gives
    a function that runs one step in PyTorch, or is None. `sizes` has "tiny", "cpu" and "gpu"."""

    name: str
    make: Callable[..., Made]
    sizes: dict[str, dict[str, Any]]
    torch: Callable[..., Callable[[], Any]] | None = None


def programs() -> dict[str, Program]:
    """All programs by name, in the order of the table."""
    files = [importlib.import_module(f"benchmarks.zoo.{name}") for name in FILES]
    return {program.name: program for file in files for program in file.PROGRAMS}


def names() -> list[str]:
    """The names of all programs."""
    return list(programs())
