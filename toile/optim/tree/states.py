"""Functions that find, set and map values in optimizer states by name.

States are NamedTuples, dicts, and tuples of these. A name is the name of a NamedTuple's field or
class, or a key of a dict. Paths are written as in `toile.tree_util`, with a `NamedTupleKey` for a
field.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol, runtime_checkable

from toile import tree as trees
from toile.engine.annotations import PyTree
from toile.engine.records import dataclass
from toile.tree_util import (
    DictKey,
    register_pytree_node_class,
    tree_flatten_with_path,
    treedef_is_leaf,
)

KeyPath = tuple
Filter = Callable[[KeyPath, Any], bool]


@dataclass(frozen=True)
class NamedTupleKey:
    """A path entry that refers to a field of a NamedTuple.

    Args:
        tuple_name: name of the NamedTuple's class.
        name: name of the field.

    >>> from toile import optim
    >>> str(optim.tree.NamedTupleKey("ScaleByAdamState", "mu"))
    'ScaleByAdamState.mu'
    """

    tuple_name: str
    name: str

    def __str__(self) -> str:
        return f"{self.tuple_name}.{self.name}"


@register_pytree_node_class
class ParamsPlaceholder:
    """Placeholder for all parameters in a state; a tree without leaves, used by `map_params`."""

    def tree_flatten(self):
        return (), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls()


@runtime_checkable
class Initable(Protocol):
    """The type of objects with a method `init(params)`, such as gradient transformations."""

    def init(self, params: Any) -> Any:
        """Create the state for a tree of parameters."""


def map_params(
    initable: Callable[[Any], Any] | Initable, f: Callable[..., Any], state: PyTree, /,
    *rest: PyTree, transform_non_params: Callable[..., Any] | None = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> PyTree:
    """Apply a function to the parts of a state that have the structure of the parameters.

    In the state of `adam`, these parts are the two averages; the counter is not included. You can
    use this function, for example, to apply the shardings of the parameters to the state.

    Args:
        initable: transformation that created the state, or its `init` function.
        f: function of a leaf of the state and the corresponding leaves of `rest`.
        state: state of the transformation.
        rest: trees with the structure of the parameters.
        transform_non_params: function that is applied to all other leaves of the state. If None,
            these leaves stay unchanged.
        is_leaf: function that returns True for values that should be treated as leaves, as in
            `toile.tree.map`.

    Returns:
        A tree with the structure of the state.

    >>> from toile import optim
    >>> tx = optim.adam(0.1)
    >>> optim.tree_map_params(tx, lambda x: x.shape, tx.init({"w": jnp.zeros((2, 3))}))
    (ScaleByAdamState(count=Array(0, dtype=int32), mu={'w': (2, 3)}, nu={'w': (2, 3)}),
    EmptyState())
    """
    init = initable.init if isinstance(initable, Initable) else initable

    def on_part(part, value):
        if isinstance(part, ParamsPlaceholder):
            return trees.map(f, value, *rest, is_leaf=is_leaf)
        return value if transform_non_params is None else transform_non_params(value)

    is_placeholder = lambda x: isinstance(x, ParamsPlaceholder)
    return trees.map(on_part, init(ParamsPlaceholder()), state, is_leaf=is_placeholder)


def get_all_with_path(
    tree: PyTree, key: Hashable, filtering: Filter | None = None
) -> list[tuple[KeyPath, Any]]:
    """Find all values with a given name in a tree, and their paths.

    Args:
        tree: tree, for instance the state of an optimizer.
        key: name of a NamedTuple's field or class, or key of a dict.
        filtering: function `f(path, value)`; only values for which it returns True are returned. If
            None, all values are returned.

    Returns:
        A list of pairs (path, value); outer values come before inner values.

    >>> from toile import optim
    >>> [(path, count)] = optim.tree.get_all_with_path(optim.adam(0.1).init(jnp.zeros(1)), "count")
    >>> path, count
    ((SequenceKey(idx=0), NamedTupleKey(tuple_name='ScaleByAdamState', name='count')), Array(0,
    dtype=int32))
    """
    found = _found(tree, key)
    return [(p, x) for p, x in found if filtering(p, x)] if filtering else found


def get(
    tree: PyTree, key: Hashable, default: PyTree = None, filtering: Filter | None = None
) -> Any:
    """Find the value with a given name in a tree.

    Args:
        tree: tree, for instance the state of an optimizer.
        key: name of a NamedTuple's field or class, or key of a dict.
        default: result if the tree does not contain the name.
        filtering: function `f(path, value)`; only values for which it returns True are considered.
            If None, all values are considered.

    Returns:
        The value.

    Raises:
        KeyError: the name occurs more than once.

    >>> from toile import optim
    >>> state = optim.adam(1e-3).init(jnp.zeros(1))
    >>> optim.tree.get(state, "count")
    Array(0, dtype=int32)
    """
    found = get_all_with_path(tree, key, filtering)
    if len(found) > 1:
        places = ", ".join(_text(path) for path, _ in found)
        raise KeyError(f"get: needed one value named {key!r}, got {len(found)}: {places}")
    return found[0][1] if found else default


def set(tree: PyTree, filtering: Filter | None = None, /, **kwargs: PyTree) -> PyTree:
    """Replace all values with given names in a tree.

    Args:
        tree: tree, for instance the state of an optimizer.
        filtering: function `f(path, value)`; only values for which it returns True are replaced. If
            None, all values are replaced.
        kwargs: new values, by name.

    Returns:
        The new tree.

    Raises:
        KeyError: a name does not occur in the tree.

    >>> from toile import optim
    >>> state = optim.tree.set(optim.adam(1e-3).init(jnp.zeros(1)), count=jnp.int32(7))
    >>> optim.tree.get(state, "count")
    Array(7, dtype=int32)
    """
    for name in kwargs:
        if not get_all_with_path(tree, name, filtering):
            where = "that passes the filter" if filtering else "in the tree"
            raise KeyError(f"set: needed a value named {name!r} {where}, got none")
    return _replaced((), tree, kwargs, filtering or (lambda path, value: True))


def _text(path: KeyPath) -> str:
    return "".join(f".{k}" if isinstance(k, NamedTupleKey) else str(k) for k in path)


def _is_named_tuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _has_key(node: Any, key: Any) -> bool:
    if _is_named_tuple(node):
        return key in node._fields or key == type(node).__name__
    return isinstance(node, dict) and key in node


def _children(path: KeyPath, node: Any) -> list[tuple[KeyPath, Any]]:
    """Return the values inside a NamedTuple or a dict, each with its path."""
    if _is_named_tuple(node):
        name = type(node).__name__
        return [((*path, NamedTupleKey(name, f)), getattr(node, f)) for f in node._fields]
    return [((*path, DictKey(key)), value) for key, value in node.items()]


def _holders(path: KeyPath, tree: Any, key: Any) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the outermost nodes that have the key."""
    stop = lambda x: _has_key(x, key) or _is_named_tuple(x)
    for inner, node in tree_flatten_with_path(tree, is_leaf=stop)[0]:
        if _has_key(node, key):
            yield (*path, *inner), node
        elif _is_named_tuple(node):
            for child_path, child in _children((*path, *inner), node):
                yield from _holders(child_path, child, key)


def _found(tree: Any, key: Any, path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    holders = list(_holders(path, tree, key))
    found = []
    for place, node in holders:
        if _is_named_tuple(node) and key == type(node).__name__:
            found.append((place, node))
        else:
            found += [(p, x) for p, x in _children(place, node) if _name(p[-1]) == key]
    for place, node in holders:
        for child_path, child in _children(place, node):
            found += _found(child, key, child_path)
    return found


def _name(entry: Any) -> Any:
    return entry.name if isinstance(entry, NamedTupleKey) else entry.key


def _replaced(path: KeyPath, node: Any, values: dict, allowed: Filter) -> Any:
    named = _is_named_tuple(node)
    if named and type(node).__name__ in values and allowed(path, node):
        return values[type(node).__name__]
    if named or isinstance(node, dict):
        new = {}
        for place, child in _children(path, node):
            name = _name(place[-1])
            hit = name in values and allowed(place, child)
            new[name] = values[name] if hit else _replaced(place, child, values, allowed)
        if named:
            return node._replace(**new)
        changed = copy.copy(node)
        changed.update(new)
        return changed
    children, structure = tree_flatten_with_path(node, is_leaf=lambda x: x is not node)
    if treedef_is_leaf(structure):
        return node
    return structure.unflatten(
        [_replaced((*path, *p), child, values, allowed) for p, child in children]
    )
