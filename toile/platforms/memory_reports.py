"""What all devices report when memory runs out: the error, sizes as text, what saves memory.

This module may import the engine and platforms.origins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SAVINGS = "smaller batches, toile.checkpoint on layers, donate_argnums for the state, bfloat16"


class OutOfMemoryError(MemoryError, RuntimeError):
    """A device does not have the memory that a program needs."""


def size(nbytes: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError


def largest(buffers: Iterable[Any], most: int) -> list[str]:
    """The lines for the largest buffers: size, dtype and shape, where they come from.

    Buffers of less than 1% of the largest are left out."""
    found = sorted(buffers, key=lambda b: -b.nbytes)[:most]
    found = [b for b in found if b.nbytes * 100 >= found[0].nbytes]
    return [f"    {size(b.nbytes):>10}  {b.what}  {b.made}" for b in found]
