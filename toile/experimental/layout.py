"""Memory layouts of arrays: arrays are row-major here, so a layout is only remembered."""

from __future__ import annotations

from typing import Any

from toile.engine.records import dataclass

__all__ = ["Format", "Layout", "with_layout_constraint"]


@dataclass(frozen=True)
class Layout:
    """The order of an array's axes in memory, slowest first."""

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    AUTO = None


@dataclass(frozen=True)
class Format:
    """A layout and a sharding."""

    layout: Any = None
    sharding: Any = None


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The tree itself: layouts are the compiler's choice."""
    return x
