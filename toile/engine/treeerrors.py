"""Find where two trees differ in structure, with the key path of each difference.

This code runs only after a mismatch, so clarity is more important than speed. A difference is
reported at the topmost node where the trees differ; the subtrees below it are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toile.engine.keypaths import KeyPath, keystr
from toile.engine.source import here
from toile.engine.treedefs import node_type, short

if TYPE_CHECKING:
    from toile.engine.annotations import PyTree

IsLeaf = Callable[[Any], bool]
LISTED = 4  # differences listed in one message


def one_level(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """The path entries, children and auxiliary data of a node."""
    entry = node_type(type(tree))
    if entry is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}{here()}")
    pairs, aux = entry.split_with_keys(tree)
    return tuple([key for key, _ in pairs]), tuple([child for _, child in pairs]), aux


def _is_leaf(tree: Any, is_leaf: IsLeaf | None) -> bool:
    return node_type(type(tree)) is None or (is_leaf is not None and bool(is_leaf(tree)))


def _lone_keys(keys1: tuple[Any, ...], keys2: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """The entries on one side only; none if they cannot be compared."""
    try:
        missing = [key for key in keys1 if key not in keys2]
        return missing, [key for key in keys2 if key not in keys1]
    except Exception:
        return [], []


def _key_difference(keys1: tuple[Any, ...], keys2: tuple[Any, ...]) -> str:
    """The entries on one side only, in brackets."""
    missing, extra = _lone_keys(keys1, keys2)
    parts = [f"only in the first: {' '.join(map(str, missing))}"] if missing else []
    parts += [f"only in the second: {' '.join(map(str, extra))}"] if extra else []
    return f" ({'; '.join(parts)})" if parts else ""


def _differ(a: Any, b: Any) -> bool:
    try:
        return a is not b and not bool(a == b)
    except Exception:
        return True


def _counts_differ(keys1: tuple[Any, ...], keys2: tuple[Any, ...], prefix: bool) -> str:
    """The explanation for nodes with different numbers of children."""
    lone = [key for side in _lone_keys(keys1, keys2) for key in side]
    if not lone:
        return "the numbers of children do not match"
    sides = _key_difference(keys1, keys2)
    if prefix:
        shown = " ".join([str(getattr(key, "key", key)) for key in lone])
        return f"the symmetric difference on key sets is\n    {shown}\n{sides.lstrip()}"
    shown = " ".join([repr(getattr(key, "key", key)) for key in lone])
    return (
        "the numbers of children do not match, with the symmetric difference of key sets:"
        f" {{{shown}}}{sides}"
    )


def _count(n: int) -> str:
    return f"{n} child" if n == 1 else f"{n} children"


def _differences(
    path: KeyPath, t1: Any, t2: Any, is_leaf: IsLeaf | None, prefix: bool
) -> Iterator[tuple[KeyPath, str, str, str, str]]:
    """Yield (path, what each of the trees has, explanation, its short form) for each difference."""
    leaf1 = _is_leaf(t1, is_leaf)
    if leaf1 and (prefix or _is_leaf(t2, is_leaf)):
        return
    cls = type(t1)
    if cls is not type(t2):
        yield path, str(cls), str(type(t2)), "their Python types differ", "different types"
        return
    if leaf1:  # same type, but is_leaf calls only the first a leaf
        yield path, "a leaf", f"{cls}, a node", "only one of them is a leaf", "different types"
        return
    keys1, children1, aux1 = one_level(t1)
    keys2, children2, aux2 = one_level(t2)
    n1, n2 = len(children1), len(children2)
    if n1 != n2 and isinstance(t1, (list, tuple)):
        name = cls.__name__
        yield (
            path, f"{name} of length {n1}", f"{name} of length {n2}", "the lengths do not match",
            f"different lengths of {name}",
        )  # fmt: skip
    elif n1 != n2:
        yield (
            path, f"{cls} with {_count(n1)}", f"{cls} with {_count(n2)}",
            _counts_differ(keys1, keys2, prefix), "different numbers of pytree children",
        )  # fmt: skip
    elif _differ(aux1, aux2):
        yield (
            path, f"{cls} with pytree metadata {short(aux1)}",
            f"{cls} with pytree metadata {short(aux2)}",
            "the pytree node metadata does not match" + _key_difference(keys1, keys2),
            "different pytree metadata",
        )  # fmt: skip
    else:
        for key, c1, c2 in zip(keys1, children1, children2):
            yield from _differences((*path, key), c1, c2, is_leaf, prefix)


def equality_errors(
    tree1: PyTree, tree2: PyTree, is_leaf: IsLeaf | None = None
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Find where the structures of two trees differ.

    A difference is reported at the topmost node where the trees differ; the subtrees below it are
    not compared.

    Args:
        tree1, tree2: the trees.
        is_leaf: a function that is called with each subtree; subtrees for which it returns True are
            treated as leaves. By default, there is no such function.

    Yields:
        Tuples (key path, description of the first tree at this path, description of the second
        tree, explanation). The last three entries are strings.

    >>> for path, one, two, why in toile.tree_util.equality_errors({"a": [1, 2]}, {"a": [1]}):
    ...     print(toile.tree_util.keystr(path), one, two, why, sep=", ")
    ['a'], list of length 2, list of length 1, the lengths do not match
    """
    for found in _differences((), tree1, tree2, is_leaf, prefix=False):
        yield found[:4]


def prefix_errors(
    prefix_tree: PyTree, full_tree: PyTree, is_leaf: IsLeaf | None = None
) -> list[Callable[[str], ValueError]]:
    """Explain why a tree is not a prefix of another tree.

    A prefix has the same nodes as the full tree down to the leaves of the prefix, each of which
    represents a whole subtree of the full tree.

    Args:
        prefix_tree: tree that should be a prefix of `full_tree`.
        full_tree: tree with which `prefix_tree` is compared.
        is_leaf: a function that is called with each subtree of the prefix; subtrees for which it
            returns True are treated as leaves. By default, there is no such function.

    Returns:
        A list of functions, one for each difference. Each function accepts the name to use for the
        prefix in the error message, and returns a ValueError. The list is empty if `prefix_tree` is
        a prefix of `full_tree`.

    >>> (make_error,) = toile.tree_util.prefix_errors([1, 2], [3])
    >>> print(str(make_error("in_axes")).splitlines()[0])
    pytree structure error: different lengths of list at key path
    """

    def maker(found: tuple[KeyPath, str, str, str, str]) -> Callable[[str], ValueError]:
        path, first, second, explanation, title = found
        return lambda name: ValueError(
            f"pytree structure error: {title} at key path\n    {name}{keystr(path)}\n"
            f"There the prefix pytree {name} has\n    {first}\n"
            f"but the full pytree has\n    {second}\nso {explanation}."
        )

    return [maker(f) for f in _differences((), prefix_tree, full_tree, is_leaf, prefix=True)]


def mismatch(
    name: str, prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None
) -> ValueError | None:
    """One error that lists the differences by key path; None if there are none."""
    found = list(_differences((), prefix_tree, full_tree, is_leaf, prefix=True))
    if not found:
        return None
    path, first, second, why, title = found[0]
    text = (
        f"pytree structure error: {title} at key path {name}{keystr(path)}: needed {first}, got "
        f"{second}, so {' '.join(why.split())} (needed trees of equal structure: give both the "
        "same keys and containers)"
    )
    if len(found) > 1:
        text += "\nMore differences:"
    for path, first, second, *_ in found[1:LISTED]:
        text += f"\n  - at {name}{keystr(path)}: needed {first}, got {second}"
    if len(found) > LISTED:
        text += f"\n  - and {len(found) - LISTED} more"
    return ValueError(text + here())
