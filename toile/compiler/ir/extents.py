"""The smallest and the largest of several sizes.

Sizes may be expressions of a batch size that is not known yet (`FreeSize` in `exporting`). Use
these functions instead of `min` and `max` for numbers that become arguments of kernels or sizes of
memory: the result is then an expression too, and not the one that is smaller for one batch size.
"""

from __future__ import annotations


def smaller(*sizes: int) -> int:
    """The smallest size."""
    return _chosen("min", sizes)


def larger(*sizes: int) -> int:
    """The largest size."""
    return _chosen("max", sizes)


def are_known(*sizes: int) -> bool:
    """Whether none of the sizes is an expression. A kernel that is right only for some sizes, for
    example from a tile's width on, can be chosen only for sizes that are known."""
    return not any(hasattr(x, "extreme") for x in sizes)


def _chosen(kind: str, sizes: tuple[int, ...]) -> int:
    found = next((x for x in sizes if hasattr(x, "extreme")), None)
    if found is not None:
        made: int = found.extreme(kind, sizes)
        return made
    return min(sizes) if kind == "min" else max(sizes)
