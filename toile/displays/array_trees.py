"""Trees of arrays as HTML: each branch is a fold titled with its number of elements and bytes.

The number of lines is limited. The leaves of a branch are shown first, and the remaining lines are
divided equally among its branches. A large tree therefore shows all branches, but not to their full
depth.
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
        """The number of elements, arrays and bytes, as text."""
        if not self.arrays:
            return "no arrays"
        count = f"{self.size:,} in {quantity(self.arrays, 'array')}"
        return f"{count}, {amount(self.nbytes, 'B')}"


def joined(branches: Iterable[Branch]) -> Branch:
    """Return a branch whose totals are the sums of the totals of several branches."""
    parts = list(branches)
    arrays, size = sum(b.arrays for b in parts), sum(b.size for b in parts)
    return Branch(arrays=arrays, size=size, nbytes=sum(b.nbytes for b in parts))


def _is_box(x: Any) -> bool:
    """Whether `x` is a box around an array, such as `linen.Partitioned`, which names its axes."""
    return hasattr(x, "unbox") and hasattr(x, "value")


def branch_of(tree: Any) -> Branch:
    """Sort the leaves of a tree into nested branches, named by the keys of their paths."""
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
    """Whether `x` has a shape and a dtype."""
    return not _is_deleted_key(x) and hasattr(x, "shape") and hasattr(x, "dtype")


def _is_deleted_key(x: Any) -> bool:
    """Whether `x` is a deleted key array, which has no shape. Other deleted arrays keep theirs."""
    return isinstance(x, KeyArray) and x.is_deleted()


def cells_of(name: str, leaf: Any) -> tuple[str, ...]:
    """Return the cells of a row: the name, the dtype, the shape and the number of elements."""
    name = clipped(name, MOST_NAME)
    if _is_deleted_key(leaf):
        return name, dtypes.name_of(leaf.dtype), "deleted", ""
    if not is_array(leaf):
        return name, type(leaf).__name__, clipped(repr(leaf), MOST_NAME), ""
    shape = str(list(leaf.shape))
    return name, dtypes.name_of(leaf.dtype), shape, f"{math.prod(leaf.shape):,}"


def leaf_table(leaves: dict[str, Any], most: int = MOST_LINES) -> str:
    """Return an HTML table with one row for each array."""
    if not leaves:
        return ""
    rows = (cells_of(name, leaf) for name, leaf in leaves.items())
    return table(("", "dtype", "shape", "count"), rows, left=(0, 1), most=most, what="array")


def branch_html(branch: Branch, lines: int = MOST_LINES) -> str:
    """Return the HTML of a branch: a table of its leaves, then a fold for each of its branches."""
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
    """Draw items on a limited number of lines, which are divided equally among the items.

    Args:
        names: names of the items.
        draw: a function `f(name, n)` that returns the HTML of an item, with at most `n` lines below
            its title.
        lines: number of lines for all items together. Items that do not fit are left out.
        what: noun for an item, used in the line that counts the omitted items.
    """
    names = list(names)
    shown = names[: max(lines, 0)]
    spare = max(lines, 0) - len(shown)
    parts = [draw(name, spare // len(shown)) for name in shown]
    return "".join(parts) + left_out(len(names) - len(shown), what)


def tree_html(title: str, tree: Any, is_open: bool = False, lines: int = MOST_LINES) -> str:
    """Return the HTML of a tree of arrays, under a title that ends with its totals.

    Args:
        title: HTML before the totals.
        tree: tree of arrays.
        is_open: whether the first level is unfolded.
        lines: maximum number of lines.
    """
    branch = branch_of(tree)
    return fold(f"{title} {pale(branch.total)}", branch_html(branch, lines), is_open)
