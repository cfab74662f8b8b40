"""Trees of arrays as HTML: folds by the first key, with the number of elements and bytes in each.

The number of lines of a tree is limited. Its own entries come first, and the remaining lines are
divided among its branches, so that all branches of a large tree are shown and only their depth is
limited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from toile.displays.markup import amount, bold, clipped, fold, left_out, pale, quantity, table
from toile.engine import dtypes
from toile.engine.arrays import KeyArray
from toile.engine.keypaths import keystr
from toile.engine.trees import flatten_with_path

MOST_LINES = 300  # of all folds together
MOST_NAME = 80  # characters


@dataclass
class Branch:
    """A part of a tree: its arrays and other values by name, its branches, and their totals."""

    leaves: dict[str, Any] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=dict)
    arrays: int = 0
    size: int = 0
    nbytes: int = 0

    @property
    def total(self) -> str:
        """How much there is, as text."""
        if not self.arrays:
            return "no arrays"
        count = f"{self.size:,} in {quantity(self.arrays, 'array')}"
        return f"{count}, {amount(self.nbytes, 'B')}"


def joined(branches: Iterable[Branch]) -> Branch:
    """A branch with the totals of several."""
    parts = list(branches)
    arrays, size = sum(b.arrays for b in parts), sum(b.size for b in parts)
    return Branch(arrays=arrays, size=size, nbytes=sum(b.nbytes for b in parts))


def _is_box(x: Any) -> bool:
    """Whether it is a box with names of axes around an array, as `linen.Partitioned`."""
    return hasattr(x, "unbox") and hasattr(x, "value")


def branch_of(tree: Any) -> Branch:
    """The leaves of a tree, by the names in their paths."""
    root = Branch()
    for path, leaf in flatten_with_path(tree, is_leaf=_is_box)[0]:
        leaf = leaf.value if _is_box(leaf) else leaf
        *above, name = [keystr((key,), simple=True) for key in path] or [""]
        at = root
        _count(at, leaf)
        for key in above:
            at = at.branches.setdefault(key, Branch())
            _count(at, leaf)
        at.leaves[name] = leaf
    return root


def _count(branch: Branch, leaf: Any) -> None:
    if is_array(leaf):
        size = math.prod(leaf.shape)
        branch.arrays += 1
        branch.size += size
        branch.nbytes += size * leaf.dtype.itemsize


def is_array(x: Any) -> bool:
    """Whether something has a shape and a dtype."""
    return not _is_deleted_key(x) and hasattr(x, "shape") and hasattr(x, "dtype")


def _is_deleted_key(x: Any) -> bool:
    """Whether it is a donated key, which has no shape; other deleted arrays have theirs."""
    return isinstance(x, KeyArray) and x.is_deleted()


def cells_of(name: str, leaf: Any) -> tuple[str, ...]:
    """A line of a table: name, dtype, shape, number of elements."""
    name = clipped(name, MOST_NAME)
    if _is_deleted_key(leaf):
        return name, dtypes.name_of(leaf.dtype), "deleted", ""
    if not is_array(leaf):
        return name, type(leaf).__name__, clipped(repr(leaf), MOST_NAME), ""
    shape = str(list(leaf.shape))
    return name, dtypes.name_of(leaf.dtype), shape, f"{math.prod(leaf.shape):,}"


def leaf_table(leaves: dict[str, Any], most: int = MOST_LINES) -> str:
    """A table of arrays, one on a line."""
    if not leaves:
        return ""
    rows = (cells_of(name, leaf) for name, leaf in leaves.items())
    return table(("", "dtype", "shape", "count"), rows, left=(0, 1), most=most, what="array")


def branch_html(branch: Branch, lines: int = MOST_LINES) -> str:
    """The entries of a branch: a table of its leaves, and folds of its branches."""
    shown = min(len(branch.leaves), lines)
    lines -= shown
    leaves = leaf_table(branch.leaves, shown)

    def inside(name: str, lines: int) -> str:
        below = branch.branches[name]
        title = f"{bold(clipped(name, MOST_NAME))} {pale(below.total)}"
        return fold(title, branch_html(below, lines) if lines else "")

    return leaves + shared_lines(branch.branches, inside, lines, "part")


def shared_lines(
    names: Iterable[str], draw: Callable[[str, int], str], lines: int, what: str
) -> str:
    """Draw as many as there are lines, each with its share of the lines that are left.

    Args:
        names: what there is to draw.
        draw: makes the HTML of one of them in so many lines besides its own.
        lines: how many lines there are.
        what: name of one of them, for the line that counts those left out.
    """
    names = list(names)
    shown = names[: max(lines, 0)]
    spare = max(lines, 0) - len(shown)
    parts = [draw(name, spare // len(shown)) for name in shown]
    return "".join(parts) + left_out(len(names) - len(shown), what)


def tree_html(title: str, tree: Any, is_open: bool = False, lines: int = MOST_LINES) -> str:
    """A tree under a title with its totals.

    Args:
        title: HTML before the totals.
        tree: any tree of arrays.
        is_open: whether its first level is unfolded.
        lines: how many lines it may have.
    """
    branch = branch_of(tree)
    return fold(f"{title} {pale(branch.total)}", branch_html(branch, lines), is_open)
