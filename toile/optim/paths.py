"""Globs, such as "encoder/**" or ["*/bias", "head/**"], that select leaves by path.

A path consists of the dict keys, field names and positions on the way to a leaf, joined by "/". In
a glob, `*` matches any characters within one name, `?` matches one character, `[ab]` matches one of
the characters in brackets, and `**` matches any number of names, including none. A glob that
matches no leaf raises an error, because it would otherwise silently have no effect.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from toile import tree as trees
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.tree_util import PyTreeDef, tree_flatten_with_path

__all__ = ["globs_of", "is_labels", "label_tree", "mask_tree", "matches", "path_of", "paths"]


@functools.lru_cache(maxsize=4096)
def _pattern(glob: str) -> re.Pattern[str]:
    """Return the regular expression that corresponds to a glob, for paths that start with "/"."""
    text = ""
    for name in glob.strip("/").split("/"):
        if name == "**":
            text += "(?:/[^/]+)*"
            continue
        text += "/"
        i = 0
        while i < len(name):
            end = name.find("]", i + 2) if name[i] == "[" else -1
            if end > 0:
                inside = name[i + 1 : end].replace("\\", "\\\\")
                negated = inside[0] in "!^"
                text += f"[^/{inside[1:]}]" if negated else f"[{inside}]"
                i = end + 1
                continue
            text += {"*": "[^/]*", "?": "[^/]"}.get(name[i]) or re.escape(name[i])
            i += 1
    return re.compile(text)


def matches(glob: str, path: str) -> bool:
    """Return whether a path matches a glob.

    Args:
        glob: pattern. `*` matches any characters within one name, `?` matches one character, `[ab]`
            matches one of the characters in brackets, and `**` matches any number of names,
            including none.
        path: names joined by "/".

    Returns:
        A bool.

    >>> from toile.optim import paths
    >>> paths.matches("encoder/**", "encoder/layer_0/kernel"), paths.matches("*/bias", "a/b/bias")
    (True, False)
    """
    return _pattern(glob).fullmatch("/" + path) is not None


def path_of(keys: tuple) -> str:
    """Join the names in a key path with "/".

    Args:
        keys: key path, as returned by `toile.tree_util.tree_flatten_with_path`.

    Returns:
        The path.

    >>> from toile.optim import paths
    >>> leaves, structure = toile.tree_util.tree_flatten_with_path({"a": [1.0, 2.0]})
    >>> [paths.path_of(keys) for keys, leaf in leaves]
    ['a/0', 'a/1']
    """
    return "/".join(str(_name(key)) for key in keys)


def _name(key: Any) -> Any:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return key


def is_hole(x: Any) -> bool:
    """Return whether `x` is a missing leaf, which still has a path: None or a `MaskedNode`."""
    return x is None or (isinstance(x, tuple) and not x and hasattr(x, "_fields"))


def paths(tree: PyTree) -> tuple[list[str], PyTreeDef]:
    """Return the paths of all leaves, and the structure of the tree.

    None and `MaskedNode` are treated as leaves.

    Args:
        tree: any tree.

    Returns:
        The list of paths and the structure.

    >>> from toile.optim.paths import paths
    >>> paths({"a": {"kernel": 1.0, "bias": None}})[0]
    ['a/bias', 'a/kernel']
    """
    leaves, structure = tree_flatten_with_path(tree, is_leaf=is_hole)
    return [path_of(keys) for keys, _ in leaves], structure


def globs_of(mask: PyTree) -> tuple[str, ...] | None:
    """Return the globs that define a mask, or None if the mask is not given as globs.

    Args:
        mask: string, list or tuple of strings, or any other mask.

    Returns:
        A tuple of strings, or None.

    >>> from toile.optim import paths
    >>> paths.globs_of("**/bias"), paths.globs_of({"w": True})
    (('**/bias',), None)
    """
    if isinstance(mask, str):
        return (mask,)
    if isinstance(mask, (list, tuple)) and mask and all(isinstance(m, str) for m in mask):
        return tuple(mask)
    return None


def _matched(who: str, globs: Any, found: list[str]) -> list[list[bool]]:
    table = [[matches(glob, path) for path in found] for glob in globs]
    unmatched = [glob for glob, row in zip(globs, table) if not any(row)]
    if unmatched:
        hints = [f"{g}/**" for g in unmatched if any(matches(f"{g}/**", path) for path in found)]
        hint = f"; did you mean {', '.join(map(repr, hints))}?" if hints else ""
        some = ", ".join(found[:8]) + (f", … ({len(found)} in all)" if len(found) > 8 else "")
        raise ValueError(
            f"{who}: needed globs that match some parameter, got {', '.join(map(repr, unmatched))},"
            f" which matches none{hint} (the paths are: {some or 'none, the tree is empty'})"
            f"{here()}"
        )
    return table


def mask_tree(globs: str | Sequence[str], tree: PyTree, who: str = "mask") -> PyTree:
    """Create a tree of bools that are True for leaves whose path matches one of the globs.

    Args:
        globs: one or more globs that match paths.
        tree: tree of parameters.
        who: function name that error messages start with.

    Returns:
        A tree with the structure of `tree`.

    Raises:
        ValueError: a glob matches no leaf.

    >>> from toile.optim import paths
    >>> paths.mask_tree("**/kernel", {"a": {"kernel": 1.0, "bias": 2.0}})
    {'a': {'bias': False, 'kernel': True}}
    """
    found, structure = paths(tree)
    table = _matched(who, globs_of(globs), found)
    return trees.unflatten(structure, [any(column) for column in zip(*table)])


def is_labels(labels: PyTree, params: PyTree) -> bool:
    """Return whether labels are given as a dict from globs to labels.

    A dict with the same keys as the parameters is treated as an ordinary tree of labels.

    Args:
        labels: labels in any form.
        params: tree of parameters.

    Returns:
        A bool.

    >>> from toile.optim import paths
    >>> paths.is_labels({"head/**": "fast", "**": "slow"}, {"head": {"w": 1.0}})
    True
    """
    if not isinstance(labels, Mapping) or not labels:
        return False
    if not all(isinstance(key, str) for key in labels):
        return False
    if any(isinstance(label, (Mapping, list)) for label in labels.values()):
        return False
    if isinstance(params, Mapping) and params.keys() == labels.keys():
        return False
    return any(set(key) & set("*?[/") for key in labels)


def label_tree(labels: Mapping[str, Hashable], tree: PyTree, who: str = "partition") -> PyTree:
    """Create a tree of labels, each determined by the first glob that matches the leaf's path.

    Args:
        labels: dict from globs to labels.
        tree: tree of parameters.
        who: function name that error messages start with.

    Returns:
        A tree with the structure of `tree`.

    Raises:
        ValueError: a glob matches no leaf, or a leaf matches no glob.

    >>> from toile.optim import paths
    >>> paths.label_tree({"head/**": 1, "**": 2}, {"head": {"w": 1.0}, "body": {"w": 2.0}})
    {'body': {'w': 2}, 'head': {'w': 1}}
    """
    found, structure = paths(tree)
    table = _matched(who, labels, found)
    names, chosen, left = list(labels.values()), [], []
    for path, column in zip(found, zip(*table)):
        if not any(column):
            left.append(path)
            continue
        chosen.append(names[column.index(True)])
    if left:
        raise ValueError(
            f"{who}: needed a label for every parameter, got none for {', '.join(left[:8])} "
            f"(end the globs with '**' to label the rest){here()}"
        )
    return trees.unflatten(structure, chosen)
