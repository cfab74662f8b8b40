"""Functions on trees (nested containers of arrays and other leaves), named as in `jax.tree_util`.

`toile.tree` provides the most common functions under shorter names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from toile.engine import trees
from toile.engine.annotations import PyTree
from toile.engine.errors import call_error
from toile.engine.keypaths import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyEntry,
    KeyPath,
    SequenceKey,
    keystr,
)
from toile.engine.source import describe, here
from toile.engine.tracebacks import expect_error
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


def tree_flatten(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[Leaf], PyTreeDef]:
    """Split a tree into a list of its leaves and its structure.

    Lists, tuples, named tuples, dictionaries, `OrderedDict`, `defaultdict`, None and registered
    types are nodes; anything else is a leaf. The keys of a `dict` are visited in sorted order. None
    is a node without leaves.

    Args:
        tree: nested containers of leaves.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.

    Returns:
        The pair (leaves, structure). `tree_unflatten` builds a tree from the structure.

    >>> toile.tree.flatten({'b': 1, 'a': [2, None]})
    ([2, 1], PyTreeDef({'a': [*, None], 'b': *}))
    """
    return trees.flatten(tree, is_leaf)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Leaf]) -> PyTree:
    """Build a tree from its structure and its leaves; the inverse of `tree_flatten`.

    Args:
        treedef: structure that `tree_flatten` or `tree_structure` returned.
        leaves: one value for each leaf of the structure. The values may be of any type.

    Returns:
        The tree.

    Raises:
        ValueError: the number of values differs from the number of leaves in the structure.

    >>> leaves, treedef = toile.tree.flatten({'a': 1, 'b': (2, 3)})
    >>> toile.tree.unflatten(treedef, [x * 10 for x in leaves])
    {'a': 10, 'b': (20, 30)}
    """
    if not hasattr(treedef, "unflatten"):
        raise AttributeError(f"{type(treedef).__name__!r} object has no attribute 'unflatten': "
                             f"needed a structure, got {describe(treedef)} (write tree_unflatten("
                             f"treedef, leaves)){here()}")
    return treedef.unflatten(leaves)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[Leaf]:
    """List the leaves of a tree in order.

    Args:
        tree: nested containers of leaves.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.

    Returns:
        The leaves, in the same order as in `tree_flatten`.

    >>> toile.tree.leaves({'b': 1, 'a': [2, (3, None)]})
    [2, 3, 1]
    """
    return trees.flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """Return the structure of a tree.

    Args:
        tree: nested containers of leaves.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.

    Returns:
        The structure. When it is printed, `*` stands for a leaf. Structures can be compared and
        hashed.

    >>> toile.tree.structure({'a': [1, 2]})
    PyTreeDef({'a': [*, *]})
    >>> toile.tree.structure([1, 2]) == toile.tree.structure(["x", "y"])
    True
    """
    return trees.flatten(tree, is_leaf)[1]


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """Return the structure of a tuple whose elements have the given structures.

    Args:
        treedefs: structures of the elements of the tuple.

    Returns:
        The structure of the tuple.

    >>> from toile.tree_util import tree_structure, treedef_tuple
    >>> treedef_tuple([tree_structure([1, 2]), tree_structure(3)])
    PyTreeDef(([*, *], *))
    """
    return node(TUPLE, None, tuple(treedefs))


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """List the structures of the immediate children of a structure.

    Args:
        treedef: structure of a tree.

    Returns:
        One structure for each child. The list is empty for a leaf.

    >>> toile.tree_util.treedef_children(toile.tree.structure({'a': [1, 2], 'b': 3}))
    [PyTreeDef([*, *]), PyTreeDef(*)]
    """
    return treedef.children()


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Test whether a structure is a single node: a leaf, None or an empty container.

    Args:
        treedef: structure of a tree.

    Returns:
        True if the structure has exactly one node.

    >>> from toile.tree_util import treedef_is_leaf
    >>> treedef_is_leaf(toile.tree.structure(1)), treedef_is_leaf(toile.tree.structure([]))
    (True, True)
    >>> treedef_is_leaf(toile.tree.structure([1]))
    False
    """
    return treedef.num_nodes == 1


def treedef_is_strict_leaf(treedef: PyTreeDef) -> bool:
    """Test whether a structure is a single leaf; None and empty containers do not count as leaves.

    Args:
        treedef: structure of a tree.

    Returns:
        True if the structure is a single leaf.

    >>> from toile.tree_util import treedef_is_strict_leaf
    >>> treedef_is_strict_leaf(toile.tree.structure(1))
    True
    >>> treedef_is_strict_leaf(toile.tree.structure([]))
    False
    """
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def all_leaves(iterable: Iterable[Leaf], is_leaf: IsLeaf | None = None) -> bool:
    """Test whether all elements of an iterable are leaves.

    Args:
        iterable: values to test.
        is_leaf: function `f(part)`. A container (or None) for which it returns True counts as a
            leaf. If `is_leaf` is None, neither containers nor None count as leaves.

    Returns:
        False if at least one element is a container (or None) that does not count as a leaf;
        otherwise, True. `is_leaf` is first called with a list of all elements; if it returns True
        for that list, the result is False, as in JAX.

    >>> toile.tree_util.all_leaves([1, "a", 2.0])
    True
    >>> toile.tree_util.all_leaves([1, [2]])
    False
    """
    if is_leaf is None:
        return all(trees.is_leaf_tree(item) for item in iterable)
    items = list(iterable)
    found = trees.leaves(items, is_leaf)
    return len(found) == len(items) and all(a is b for a, b in zip(items, found, strict=True))


def is_tree_node(typ: type) -> bool:
    """Test whether values of a type are tree nodes rather than leaves.

    A subclass of a node type is a node type only if the subclass has also been registered. Named
    tuples are an exception: they are always nodes.

    Args:
        typ: type to test.

    Returns:
        True for built-in containers and registered types.

    >>> toile.tree_util.is_tree_node(dict), toile.tree_util.is_tree_node(set)
    (True, False)
    """
    return node_type(typ) is not None


def build_tree(treedef: PyTreeDef, xs: PyTree) -> PyTree:
    """Build a tree with a given structure from nested iterables.

    Args:
        treedef: structure of the result.
        xs: nested iterables. Each iterable contains one element for each child of the corresponding
            node in the structure.

    Returns:
        The tree.

    Raises:
        ValueError: the length of an iterable differs from the number of children of its node.

    >>> toile.tree_util.build_tree(toile.tree.structure({'a': 0, 'b': (0, 0)}), [1, [2, 3]])
    {'a': 1, 'b': (2, 3)}
    """
    return treedef.from_iterable_tree(xs)


def tree_transpose(
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: PyTree
) -> PyTree:
    """Swap the two levels of a tree of trees; for example, a list of pairs becomes a pair of lists.

    Args:
        outer_treedef: structure of the outer level.
        inner_treedef: structure of each inner tree; if None, the structure of the first inner tree
            is used.
        pytree_to_transpose: tree with the outer structure that contains, in place of each leaf, a
            tree with the inner structure.

    Returns:
        A tree with the inner structure that contains, in place of each leaf, a tree with the outer
        structure.

    Raises:
        TypeError: the number of leaves in the tree is not the number of leaves in the outer
            structure times the number of leaves in the inner structure.

    >>> pairs = [(1, 'a'), (2, 'b'), (3, 'c')]
    >>> toile.tree.transpose(toile.tree.structure([0, 0, 0]), toile.tree.structure((0, 0)), pairs)
    ([1, 2, 3], ['a', 'b', 'c'])
    """
    flat, treedef = trees.flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if treedef.num_leaves != inner * outer:
        expected = outer_treedef.compose(inner_treedef)
        raise TypeError(f"Mismatch\n{treedef}\n != \n{expected}{here()}")
    return inner_treedef.unflatten([outer_treedef.unflatten(flat[i::inner]) for i in range(inner)])


class Unspecified:
    """The type of the default value of arguments for which None is a valid value."""


UNSPECIFIED = Unspecified()


def tree_reduce(
    function: Callable[[T, Any], T], tree: PyTree, initializer: T | Unspecified = UNSPECIFIED,
    is_leaf: IsLeaf | None = None,
) -> T:
    """Combine the leaves of a tree from left to right, as `functools.reduce` does with a list.

    Args:
        function: function `f(result, leaf)` that combines the result so far with the next leaf.
        tree: nested containers of leaves.
        initializer: value to start with. If it is omitted, the reduction starts with the first
            leaf.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.

    Returns:
        The combined value.

    Raises:
        TypeError: the tree has no leaves, and `initializer` is not given.

    >>> params = {'w': jnp.ones((2, 3)), 'b': jnp.ones(3)}
    >>> toile.tree.reduce(lambda count, x: count + x.size, params, 0)
    9
    """
    leaves = trees.leaves(tree, is_leaf)
    try:
        if isinstance(initializer, Unspecified):
            return functools.reduce(function, leaves)
        return functools.reduce(function, leaves, initializer)
    except Exception as error:
        expect_error()
        start = leaves if isinstance(initializer, Unspecified) else [initializer, *leaves]
        told = call_error(error, function, start[:2]) if start[1:] else error
        if told is error:
            raise
        raise told from None


def tree_reduce_associative(
    operation: Callable[[T, T], T], tree: PyTree, *, identity: T | Unspecified = UNSPECIFIED,
    is_leaf: IsLeaf | None = None,
) -> T:
    """Combine the leaves of a tree pairwise with an associative operation.

    The two halves of the list of leaves are reduced separately, and their results are combined.
    When many arrays are summed this way, the chain of dependent additions is shorter and the
    rounding errors are smaller than in a left-to-right reduction.

    Args:
        operation: associative function `f(x, y)` that combines two leaves or intermediate results.
        tree: nested containers of leaves.
        identity: result for a tree that has no leaves.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.

    Returns:
        The combination of all leaves, in order.

    Raises:
        TypeError: the tree has no leaves, and `identity` is not given.

    >>> toile.tree.reduce_associative(lambda x, y: f"({x}+{y})", ["a", "b", "c", "d"])
    '((a+b)+(c+d))'
    """

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


def tree_all(tree: PyTree, *, is_leaf: IsLeaf | None = None) -> bool:
    """Test whether all leaves of a tree are true.

    Args:
        tree: nested containers of values that can be converted to bool.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.

    Returns:
        False if at least one leaf is false; otherwise, True. If there are no leaves, the result is
        True.

    >>> toile.tree.all({'a': True, 'b': [1, 0]})
    False
    """
    return all(trees.leaves(tree, is_leaf))


def tree_broadcast(
    prefix_tree: PyTree, full_tree: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """Repeat the leaves of a tree to give it the structure of a deeper tree.

    Args:
        prefix_tree: tree that is a prefix of `full_tree`: both have the same containers, down to
            the leaves of `prefix_tree`.
        full_tree: tree with the structure of the result; its leaves are not used.
        is_leaf: function `f(part)`. A container in `prefix_tree` for which it returns True is
            treated as a leaf. If `is_leaf` is None, no container is treated as a leaf.

    Returns:
        A tree with the structure of `full_tree`. Each leaf of `prefix_tree` is repeated for all
        leaves of the corresponding part of `full_tree`.

    Raises:
        ValueError: `prefix_tree` is not a prefix of `full_tree`.

    >>> toile.tree.broadcast({'a': 0, 'b': 1}, {'a': [5, 6], 'b': {'c': 7}})
    {'a': [0, 0], 'b': {'c': 1}}
    """
    leaves = broadcast_prefix(prefix_tree, full_tree, is_leaf=is_leaf)
    return tree_structure(full_tree).unflatten(leaves)


def tree_flatten_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Leaf]], PyTreeDef]:
    """Split a tree into a list of (path, leaf) pairs and the structure of the tree.

    Args:
        tree: nested containers of leaves.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.
        is_leaf_takes_path: whether `is_leaf` is called as `f(path, part)`.

    Returns:
        The list of (path, leaf) pairs, and the structure. A path is a tuple with one entry, such as
        a `DictKey`, for each level; `keystr` converts a path to a string.

    >>> pairs, treedef = toile.tree.flatten_with_path({'a': [1, 2]})
    >>> [(toile.tree_util.keystr(path), leaf) for path, leaf in pairs]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return trees.flatten_with_path(tree, is_leaf, is_leaf_takes_path)


def tree_leaves_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Leaf]]:
    """List the (path, leaf) pairs of a tree.

    Args:
        tree: nested containers of leaves.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.
        is_leaf_takes_path: whether `is_leaf` is called as `f(path, part)`.

    Returns:
        The list of (path, leaf) pairs. A path is a tuple with one entry for each level.

    >>> toile.tree.leaves_with_path({'a': [1]})
    [((DictKey(key='a'), SequenceKey(idx=0)), 1)]
    """
    return trees.flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def generate_key_paths(tree: PyTree) -> list[tuple[KeyPath, Leaf]]:
    """List the (path, leaf) pairs of a tree.

    Args:
        tree: nested containers of leaves.

    Returns:
        The list of (path, leaf) pairs. A path is a tuple with one entry for each level.

    >>> toile.tree_util.generate_key_paths((5, {'a': 6}))
    [((SequenceKey(idx=0),), 5), ((SequenceKey(idx=1), DictKey(key='a')), 6)]
    """
    return trees.flatten_with_path(tree)[0]


def tree_map_with_path(
    f: Callable[..., Any], tree: PyTree, *rest: PyTree,
    is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False,
) -> PyTree:
    """Apply a function to the path and the value of each leaf of a tree.

    Args:
        f: function `f(path, leaf, *parts)`, where `parts` are the parts of the trees in `rest` that
            correspond to the leaf.
        tree: nested containers of leaves.
        rest: other trees. `tree` must be a prefix of each of them: each must have the same
            containers as `tree`, down to the leaves of `tree`.
        is_leaf: function `f(part)`. A container for which it returns True is treated as a leaf. If
            `is_leaf` is None, no container is treated as a leaf.
        is_leaf_takes_path: whether `is_leaf` is called as `f(path, part)`.

    Returns:
        A tree with the structure of `tree` and the results of `f` as leaves.

    >>> def label(path, x): return toile.tree_util.keystr(path, simple=True, separator='.')
    >>> toile.tree.map_with_path(label, {'w': 1, 'layers': [2, 3]})
    {'layers': ['layers.0', 'layers.1'], 'w': 'w'}
    """
    return trees.map_with_path(f, tree, *rest, is_leaf=is_leaf, takes_path=is_leaf_takes_path)


def flatten_one_level(tree: PyTree) -> tuple[Iterable[PyTree], Hashable]:
    """Split a node into its immediate children and its auxiliary data.

    Args:
        tree: a container, not a leaf.

    Returns:
        The children and the auxiliary data. The auxiliary data, such as the keys of a dictionary,
        contains everything else that is needed to rebuild the node.

    Raises:
        ValueError: `tree` is a leaf.

    >>> children, aux = toile.tree_util.flatten_one_level({'a': 1, 'b': [2, 3]})
    >>> children, aux
    ((1, [2, 3]), ('a', 'b'))
    """
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
    tree: PyTree,
) -> tuple[Iterable[tuple[Hashable, PyTree]], Hashable]:
    """Split a node into (path entry, child) pairs and its auxiliary data.

    Args:
        tree: a container, not a leaf.

    Returns:
        The (path entry, child) pairs and the auxiliary data, as in `flatten_one_level`.

    Raises:
        ValueError: `tree` is a leaf.

    >>> pairs, aux = toile.tree_util.flatten_one_level_with_keys({'a': 1})
    >>> pairs
    ((DictKey(key='a'), 1),)
    """
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
    """Register a type so that its values are tree nodes.

    Transforms such as `grad`, `jit` and `vmap` then apply to the children of these values.
    Subclasses of the type are not registered.

    Args:
        nodetype: type to register.
        flatten_func: function `f(value)` that returns the children and the auxiliary data. The
            auxiliary data is part of the structure and must be hashable and comparable.
        unflatten_func: function `f(aux, children)` that rebuilds a value. The children may be of
            any type, including types that the constructor does not accept.
        flatten_with_keys_func: like `flatten_func`, but returns (path entry, child) pairs in place
            of the children. If it is None, paths contain the positions of the children.

    Raises:
        ValueError: the type is already registered.

    >>> class Point:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    >>> toile.tree_util.register_pytree_node(
    ...     Point, lambda p: ((p.x, p.y), None), lambda aux, children: Point(*children))
    >>> toile.tree.map(lambda x: x * 2, Point(1, 2)).y
    4
    """
    trees.register(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_node_class(cls: Typ) -> Typ:
    """Decorate a class so that its instances are tree nodes.

    Args:
        cls: class with a method `tree_flatten()` that returns the children and the auxiliary data,
            and a class method `tree_unflatten(aux, children)` that rebuilds an instance.

    Returns:
        The class.

    >>> @toile.tree_util.register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    ...     def tree_flatten(self): return (self.x, self.y), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux, children): return cls(*children)
    >>> toile.tree.leaves(Pair(1, [2, 3]))
    [1, 2, 3]
    """
    missing = [name for name in ("tree_flatten", "tree_unflatten") if not hasattr(cls, name)]
    if missing:
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {missing[-1]!r}: "
                             "needed the method tree_flatten and the class method tree_unflatten "
                             f"(add {' and '.join(missing)}){here()}")
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys(
    nodetype: type[T], flatten_with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], T],
    flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Register a type so that its values are tree nodes with named children.

    Args:
        nodetype: type to register.
        flatten_with_keys: function `f(value)` that returns (path entry, child) pairs and the
            auxiliary data, which must be hashable and comparable.
        unflatten_func: function `f(aux, children)` that rebuilds a value.
        flatten_func: function `f(value)` that returns the children and the auxiliary data. If it is
            None, `flatten_with_keys` is called and the path entries are dropped, which is slower.

    Raises:
        ValueError: the type is already registered.

    >>> from toile.tree_util import GetAttrKey, keystr, register_pytree_with_keys
    >>> class Segment:
    ...     def __init__(self, start, stop): self.start, self.stop = start, stop
    >>> register_pytree_with_keys(
    ...     Segment, lambda s: ([(GetAttrKey(n), getattr(s, n)) for n in ('start', 'stop')], None),
    ...     lambda aux, children: Segment(*children))
    >>> [keystr(path) for path, _ in toile.tree.leaves_with_path(Segment(1, 2))]
    ['.start', '.stop']
    """

    def without_keys(tree: T) -> tuple[tuple[Any, ...], Any]:
        pairs, aux = flatten_with_keys(tree)
        return tuple([child for _, child in pairs]), aux

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Decorate a class so that its instances are tree nodes with named children.

    Args:
        cls: class with a method `tree_flatten_with_keys()` that returns (path entry, child) pairs
            and the auxiliary data, and a class method `tree_unflatten(aux, children)` that rebuilds
            an instance. The class may also have a method `tree_flatten()`, which returns the
            children without path entries. This method is used where paths are not needed.

    Returns:
        The class.

    >>> from toile.tree_util import GetAttrKey, keystr
    >>> @toile.tree_util.register_pytree_with_keys_class
    ... class Box:
    ...     def __init__(self, content): self.content = content
    ...     def tree_flatten_with_keys(self): return [(GetAttrKey('content'), self.content)], None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux, children): return cls(*children)
    >>> [keystr(path) for path, _ in toile.tree.leaves_with_path(Box([1, 2]))]
    ['.content[0]', '.content[1]']
    """
    flatten_func = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(
        cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, flatten_func
    )
    return cls


def register_dataclass(
    nodetype: Typ, data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None, drop_fields: Sequence[str] = (),
) -> Typ:
    """Register a dataclass as a tree node; each field is a child or part of the structure.

    If the lists of fields are omitted, this function can be used as a decorator. Fields declared
    with `toile.tree.static` (or with the metadata `static=True`) are then part of the structure,
    and all other fields are children.

    Args:
        nodetype: class to register, usually a dataclass.
        data_fields: names of the fields that are children, such as arrays; if None, they are
            inferred.
        meta_fields: names of the fields that are part of the structure; if None, they are inferred.
            Their values must be hashable and comparable.
        drop_fields: names of fields that are ignored. When a value is rebuilt, these fields have
            their default values.

    Returns:
        The class.

    Raises:
        ValueError: `data_fields` and `meta_fields` overlap, or the class is already registered. For
            a dataclass, the error is also raised unless the two lists (given or inferred) together
            contain exactly the fields that are parameters of `__init__` and are not in
            `drop_fields`.
        TypeError: only one of the two lists is given, or neither is given and the class is not a
            dataclass.

    >>> import dataclasses
    >>> @toile.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: toile.Array
    ...     activation: str = toile.tree.static(default="relu")
    >>> toile.tree.map(lambda x: x + 1, Layer(jnp.zeros(2)))
    Layer(weight=Array([1., 1.], dtype=float32), activation='relu')
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
    """Register a class so that its instances are part of a tree's structure rather than leaves.

    A jitted function treats an argument of such a class as a constant and is compiled again for
    every new value.

    Args:
        cls: class whose instances are hashable and comparable.

    Returns:
        The class.

    >>> @toile.tree_util.register_static
    ... class Mode(str): pass
    >>> toile.tree.leaves({'mode': Mode("train"), 'x': 1})
    [1]
    """
    trees.register(cls, lambda x: ((), x), lambda x, _: x)
    return cls


class PyTreeRegistry:
    """The table of node types; `default_registry` is the only instance."""

    def flatten(self, tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[Leaf], PyTreeDef]:
        """Split a tree into its leaves and its structure, as `tree_flatten` does."""
        return trees.flatten(tree, is_leaf)

    def flatten_one_level(self, tree: PyTree) -> tuple[Iterable[PyTree], Hashable] | None:
        """Split a node as `flatten_one_level` does, but return None for a leaf."""
        return None if trees.is_leaf_tree(tree) else flatten_one_level(tree)

    def flatten_one_level_with_keys(
        self, tree: PyTree
    ) -> tuple[Iterable[tuple[Hashable, PyTree]], Hashable] | None:
        """Split a node as `flatten_one_level_with_keys` does, but return None for a leaf."""
        return None if trees.is_leaf_tree(tree) else flatten_one_level_with_keys(tree)

    def flatten_with_path(
        self, tree: PyTree, is_leaf: Callable[..., bool] | None = None, takes_path: bool = False
    ) -> tuple[list[tuple[KeyPath, Leaf]], PyTreeDef]:
        """Split a tree as `tree_flatten_with_path` does."""
        return trees.flatten_with_path(tree, is_leaf, takes_path)

    def is_node(self, cls: type) -> bool:
        """Test whether values of a type are nodes, as `is_tree_node` does."""
        return is_tree_node(cls)

    def register_node(self, *args: Any, **kw: Any) -> None:
        """Register a type as a tree node, as `register_pytree_node` does."""
        register_pytree_node(*args, **kw)

    def register_dataclass_node(
        self, cls: type, data_fields: Sequence[str], meta_fields: Sequence[str]
    ) -> None:
        """Register a class as `register_dataclass` does when both lists of fields are given."""
        register_dataclass(cls, data_fields, meta_fields)

    def __reduce__(self) -> str:
        return "default_registry"


default_registry = PyTreeRegistry()
