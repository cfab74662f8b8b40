"""Reads at computed places: of several that exclude each other, a kernel makes one.

A rolled or concatenated array is a choice between elements of its parts,

    select(c, select(inside_a, fill, a[i]), select(inside_b, fill, b[j]))

of which each thread needs one. The kernel chooses the address, and then reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

import numpy as np

from toile.compiler.ir.loop_nests import (
    Apply,
    Load,
    LoopNest,
    Node,
    Pick,
    Reduce,
    Total,
    levels,
)


class Read(NamedTuple):
    """A pick, the node of the condition under which it counts, and of the value otherwise."""

    node: int
    mask: int | None
    fill: int | None


class Choice(NamedTuple):
    """The second of two reads where the condition `which` holds; elsewhere, the first."""

    which: int
    reads: tuple[Read | Choice, Read | Choice]


def reads_of(tree: Read | Choice) -> Iterator[Read]:
    """All reads of which one is made."""
    if isinstance(tree, Read):
        yield tree
    else:
        for part in tree.reads:
            yield from reads_of(part)


def choices_of(nest: LoopNest) -> tuple[dict[int, Choice], set[int]]:
    """The nodes that choose between reads, and the nodes that only such choices use."""
    if sum(isinstance(n, Pick) for n in nest.nodes) < 2:
        return {}, set()
    uses, alike = _uses(nest), list(zip(*levels(nest), strict=True))
    trees: dict[int, Read | Choice] = {}
    parts: dict[int, set[int]] = {}  # the nodes that each tree replaces
    for n, node in enumerate(nest.nodes):
        if isinstance(node, Pick):
            trees[n], parts[n] = Read(n, None, None), set()
        elif _selects(node, nest):
            own = {a: trees[a] for a in node.args[1:] if a in trees and uses[a] == 1
                   and a not in nest.scratch and alike[a] == alike[n]}
            tree = _tree_of(nest, node.args, own)
            if tree is not None:
                trees[n], parts[n] = tree, {*own}.union(*(parts[a] for a in own))
    made = {n: tree for n, tree in trees.items() if isinstance(tree, Choice)}
    inside = set().union(*(parts[n] for n in made))
    return {n: tree for n, tree in made.items() if n not in inside}, inside


def _selects(node: Node, nest: LoopNest) -> TypeGuard[Apply]:
    """Whether a node chooses between two others by a boolean; a number may be neither 0 nor 1."""
    if not isinstance(node, Apply) or not node.op.is_selection or len(node.args) != 3:
        return False
    which = nest.nodes[node.args[0]]
    return (nest.loads[which.operand] if isinstance(which, Load) else which).dtype == np.bool_


def _tree_of(
    nest: LoopNest, args: tuple[int, ...], known: dict[int, Read | Choice]
) -> Read | Choice | None:
    """The tree of a selection whose cases may be trees."""
    which, *cases = args
    first, second = (known.get(a) for a in cases)
    if first is not None and second is not None and _agree(nest, first, second):
        return Choice(which, (first, second))
    if first is None and isinstance(second, Read) and second.mask is None:
        return Read(second.node, which, cases[0])
    return None


def _uses(nest: LoopNest) -> Counter[int]:
    """How often each node is used; nodes that are stored count as used several times."""
    found: Counter[int] = Counter()
    for node in nest.nodes:
        if isinstance(node, Apply):
            found.update(node.args)
        elif isinstance(node, (Reduce, Total)):
            found[node.arg] += 2
        elif isinstance(node, Pick):
            found[node.index] += 1
    for n, _ in nest.stores:
        found[n] += 2
    return found


def _agree(nest: LoopNest, first: Read | Choice, second: Read | Choice) -> bool:
    """Whether all reads have one dtype in memory, and one value where they do not count."""
    reads = [*reads_of(first), *reads_of(second)]
    picks = [nest.nodes[r.node] for r in reads]
    dtypes = {nest.loads[p.operand].dtype for p in picks if isinstance(p, Pick)}
    return len(dtypes) == 1 and len({r.fill for r in reads} - {None}) <= 1

