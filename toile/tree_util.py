"""Functions on trees of containers, under the names of `jax.tree_util`.

The work is done by toile.engine.trees; this module adds several forms of registration, the
functions written in terms of flatten, and the names. `toile.tree` has the same functions under
shorter names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from toile.engine import trees
from toile.engine.keypaths import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    SequenceKey,
    keystr,
)
from toile.engine.source import here
from toile.engine.treedefs import TUPLE, PyTreeDef, node, node_type
from toile.engine.treeerrors import equality_errors, prefix_errors
from toile.engine.trees import Partial, broadcast_prefix, tree_map

T = TypeVar("T")
Typ = TypeVar("Typ", bound=Any)
Leaf = Any
IsLeaf = Callable[[Any], bool]

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "Partial", "PyTreeDef",
    "SequenceKey", "all_leaves", "broadcast_prefix", "build_tree", "default_registry",
    "equality_errors", "flatten_one_level", "flatten_one_level_with_keys", "generate_key_paths",
    "is_tree_node", "keystr", "prefix_errors", "register_dataclass", "register_pytree_node",
    "register_pytree_node_class", "register_pytree_with_keys", "register_pytree_with_keys_class",
    "register_static", "tree_all", "tree_broadcast", "tree_flatten", "tree_flatten_with_path",
    "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce",
    "tree_reduce_associative", "tree_structure", "tree_transpose", "tree_unflatten",
    "treedef_children", "treedef_is_leaf", "treedef_is_strict_leaf", "treedef_tuple",
]  # fmt: skip


def tree_flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Leaf], PyTreeDef]:
    """The leaves of a tree in order, and its structure.

    >>> tree_flatten({'b': 1, 'a': [2, None]})
    ([2, 1], PyTreeDef({'a': [*, None], 'b': *}))
    """
    return trees.flatten(tree, is_leaf)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Leaf]) -> Any:
    """The tree of the given structure with the given leaves."""
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Leaf]:
    """The leaves of a tree in order."""
    return trees.flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """The structure of a tree."""
    return trees.flatten(tree, is_leaf)[1]


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees with the given structures."""
    return node(TUPLE, None, tuple(treedefs))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the immediate children."""
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is a single node: a leaf, or an empty container."""
    return treedef.num_nodes == 1


def treedef_is_strict_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is a leaf, and not an empty container."""
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf | None = None) -> bool:
    """Whether every element is a leaf."""
    if is_leaf is None:
        return all(trees.is_leaf_tree(item) for item in iterable)
    items = list(iterable)
    found = trees.leaves(items, is_leaf)
    return len(found) == len(items) and all(a is b for a, b in zip(items, found, strict=True))


def is_tree_node(typ: type) -> bool:
    """Whether values of exactly this type are nodes."""
    return node_type(typ) is not None


def build_tree(treedef: PyTreeDef, xs: Any) -> Any:
    """The tree of the given structure from nested iterables of the same arities."""
    return treedef.from_iterable_tree(xs)


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Exchange the two levels of a tree of trees: a list of pairs becomes a pair of lists."""
    flat, treedef = trees.flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if treedef.num_leaves != inner * outer:
        expected = outer_treedef.compose(inner_treedef)
        raise TypeError(f"Mismatch\n{treedef}\n != \n{expected}{here()}")
    return inner_treedef.unflatten([outer_treedef.unflatten(flat[i::inner]) for i in range(inner)])


class Unspecified:
    """The default of an argument for which None is a valid value."""


UNSPECIFIED = Unspecified()


def tree_reduce(
    function: Callable[[T, Any], T], tree: Any, initializer: T | Unspecified = UNSPECIFIED,
    is_leaf: IsLeaf | None = None,
) -> T:
    """Fold the leaves from the left: function(... function(initializer, first) ..., last)."""
    if isinstance(initializer, Unspecified):
        return functools.reduce(function, trees.leaves(tree, is_leaf))
    return functools.reduce(function, trees.leaves(tree, is_leaf), initializer)


def tree_reduce_associative(
    operation: Callable[[T, T], T], tree: Any, *, identity: T | Unspecified = UNSPECIFIED,
    is_leaf: IsLeaf | None = None,
) -> T:
    """Fold the leaves by halves, with an associative operation."""

    def fold(items: list[T]) -> T:
        if len(items) == 1:
            return items[0]
        middle = len(items) // 2
        return operation(fold(items[:middle]), fold(items[middle:]))

    items = trees.leaves(tree, is_leaf)
    if items:
        return fold(items)
    if isinstance(identity, Unspecified):
        raise TypeError(
            "tree_reduce_associative: Must specify identity for parallel reduction of empty"
            " sequence." + here()
        )
    return identity


def tree_all(tree: Any, *, is_leaf: IsLeaf | None = None) -> bool:
    """Whether every leaf is true."""
    return all(trees.leaves(tree, is_leaf))


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`full_tree` with each leaf replaced by the leaf of `prefix_tree` above it."""
    leaves = broadcast_prefix(prefix_tree, full_tree, is_leaf=is_leaf)
    return tree_structure(full_tree).unflatten(leaves)


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """The (key path, leaf) pairs of a tree in order, and its structure."""
    return trees.flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The (key path, leaf) pairs of a tree in order."""
    return trees.flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def generate_key_paths(tree: Any) -> list[tuple[KeyPath, Any]]:
    """The (key path, leaf) pairs of a tree in order."""
    return trees.flatten_with_path(tree)[0]


def tree_map_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """The tree of f(path, leaf, ...) over the leaves of `tree` and the matching parts of `rest`."""
    return trees.map_with_path(f, tree, *rest, is_leaf=is_leaf, takes_path=is_leaf_takes_path)


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """The immediate children of a node, and its auxiliary data."""
    entry = node_type(type(tree))
    if entry is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}{here()}")
    children, aux = entry.split(tree)
    if entry.kind in ("list", "custom"):
        return list(children), aux
    if entry.kind == "namedtuple":
        return list(children), entry.cls
    return children, aux


def flatten_one_level_with_keys(
    tree: Any,
) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """Like flatten_one_level, with each child paired with its path entry."""
    entry = node_type(type(tree))
    if entry is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}{here()}")
    pairs, aux = entry.split_with_keys(tree)
    if entry.kind == "custom":
        return pairs, aux
    return tuple(pairs), entry.cls if entry.kind == "namedtuple" else aux


def register_pytree_node(
    nodetype: type[T], flatten_func: Callable[[T], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], T],
    flatten_with_keys_func: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make values of exactly the type `nodetype` tree nodes.

    flatten_func(value) returns (children, aux); unflatten_func(aux, children) undoes it. Structures
    compare equal if their aux do.
    """
    trees.register(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_node_class(cls: Typ) -> Typ:
    """Register a class with a method tree_flatten() and a classmethod tree_unflatten(aux, xs)."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys(
    nodetype: type[T], flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Like register_pytree_node, for a flattener whose children are (path entry, child) pairs."""

    def without_keys(tree: T) -> tuple[tuple[Any, ...], Any]:
        pairs, aux = flatten_with_keys(tree)
        return tuple([child for _, child in pairs]), aux

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Register a class with a method tree_flatten_with_keys() and tree_unflatten(aux, xs)."""
    flatten_func = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(
        cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, flatten_func
    )
    return cls


def register_dataclass(
    nodetype: Typ, data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None, drop_fields: Sequence[str] = (),
) -> Typ:
    """Register a class whose `data_fields` are children and whose `meta_fields` are structure.

    For a dataclass the lists may be omitted: fields with metadata static=True are structure.
    """
    if data_fields is None or meta_fields is None:
        data_fields, meta_fields = _inferred_fields(nodetype, data_fields, meta_fields)
    data, meta = tuple(data_fields), tuple(meta_fields)
    if dataclasses.is_dataclass(nodetype):
        needed = {f.name for f in dataclasses.fields(nodetype) if f.init} - set(drop_fields)
        given = {*data, *meta}
        if given != needed:
            raise ValueError(
                "register_dataclass: data_fields and meta_fields must include all dataclass fields"
                f" with ``init=True`` and only them, here those of {nodetype}."
                + (f" Missing fields: {needed - given}." if needed - given else "")
                + (" Add them to drop_fields to suppress this error." if needed - given else "")
                + (f" Unexpected fields: {given - needed}." if given - needed else "") + here()
            )
    if overlap := set(data) & set(meta):
        raise ValueError(
            "register_dataclass: data_fields and meta_fields must not overlap. Overlapping fields:"
            f" {overlap}.{here()}"
        )

    def flatten_func(x: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple([getattr(x, n) for n in data]), tuple([getattr(x, n) for n in meta])

    def unflatten_func(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return nodetype(**dict(zip(meta, aux)), **dict(zip(data, children)))

    trees.register(nodetype, flatten_func, unflatten_func, fields=data)
    return nodetype


def _inferred_fields(
    nodetype: type, data_fields: Any, meta_fields: Any
) -> tuple[list[str], list[str]]:
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either is"
            f" specified. Got {data_fields=} {meta_fields=}.{here()}"
        )
    if not dataclasses.is_dataclass(nodetype):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields are required when nodetype is not a"
            f" dataclass. Got {nodetype=}.{here()}"
        )
    data: list[str] = []
    meta: list[str] = []
    for field in dataclasses.fields(nodetype):
        (meta if field.metadata.get("static", False) else data).append(field.name)
    return data, meta


def register_static(cls: type[T]) -> type[T]:
    """Register a hashable class as a node without children: its value is part of the structure."""
    trees.register(cls, lambda x: ((), x), lambda x, _: x)
    return cls


class PyTreeRegistry:
    """The table of node types, as an object; there is one, `default_registry`."""

    def flatten(self, tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
        """Like tree_flatten."""
        return trees.flatten(tree, is_leaf)

    def flatten_one_level(self, tree: Any) -> tuple[Iterable[Any], Hashable] | None:
        """Like flatten_one_level; None for a leaf."""
        return None if trees.is_leaf_tree(tree) else flatten_one_level(tree)

    def flatten_one_level_with_keys(self, tree: Any) -> tuple[Iterable[Any], Hashable] | None:
        """Like flatten_one_level_with_keys; None for a leaf."""
        return None if trees.is_leaf_tree(tree) else flatten_one_level_with_keys(tree)

    def flatten_with_path(
        self, tree: Any, is_leaf: Callable[..., bool] | None = None, takes_path: bool = False
    ) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
        """Like tree_flatten_with_path."""
        return trees.flatten_with_path(tree, is_leaf, takes_path)

    def is_node(self, cls: type) -> bool:
        """Like is_tree_node."""
        return is_tree_node(cls)

    def register_node(self, *args: Any, **kw: Any) -> None:
        """Like register_pytree_node."""
        register_pytree_node(*args, **kw)

    def register_dataclass_node(
        self, cls: type, data_fields: Sequence[str], meta_fields: Sequence[str]
    ) -> None:
        """Like register_dataclass with both lists given."""
        register_dataclass(cls, data_fields, meta_fields)

    def __reduce__(self) -> str:
        return "default_registry"


default_registry = PyTreeRegistry()
