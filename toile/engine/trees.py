"""Pytrees: flatten nested containers into leaves, and map functions over them.

None is a tree without leaves. The keys of a dict are sorted, but an OrderedDict keeps its order.
Subclasses of the built-in containers are leaves unless they are registered; named tuples are nodes.
Every call to a function transformed by `grad` or `jit` flattens trees, so this code must be fast:
the exact type of a value selects a visitor from a table, the sorted order of a dictionary's keys is
cached, runs of leaves are recognized with set operations, and dictionaries whose structure stays
the same are flattened by code that is compiled for it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from toile.engine.errors import call_error
from toile.engine.keypaths import DictKey, KeyPath
from toile.engine.source import here
from toile.engine.tracebacks import expect_error
from toile.engine.treecode import extractor, worth_compiling
from toile.engine.treedefs import (
    CACHE_LIMIT,
    DICT,
    LEAF,
    LIST,
    NODE_TYPES,
    NONE,
    TUPLE,
    NodeType,
    PyTreeDef,
    checked,
    node,
    node_type,
    remember,
    sorted_keys,
)
from toile.engine.treeerrors import mismatch

if TYPE_CHECKING:
    from toile.engine.annotations import PyTree

IsLeaf = Callable[[Any], bool]
Visitor = Callable[[Any, list[Any]], PyTreeDef]

LEAF_TYPES: set[type] = {int, float, complex, bool, str, bytes}
_VISITORS: dict[type, Visitor] = {}


class _DictOrder:
    """Cached facts about one sequence of string keys: their order and the structures below them.

    When the same structure is found several times in a row, code is compiled that flattens it in
    one pass. If structures alternate, the code is dropped after a few attempts.
    """

    __slots__ = ("keys", "values", "leaf_def", "defs", "code", "last", "repeats", "attempts")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        if len(keys) > 1:
            self.values: Callable[[Any], tuple[Any, ...]] = itemgetter(*keys)
        elif keys:
            (key,) = keys
            self.values = lambda tree: (tree[key],)
        else:
            self.values = lambda tree: ()
        self.leaf_def = node(DICT, keys, (LEAF,) * len(keys))
        self.defs: dict[Any, PyTreeDef] = {}
        self.code: tuple[Callable[[Any], list[Any] | None], PyTreeDef] | None = None
        self.last: PyTreeDef | None = None
        self.repeats = 0
        self.attempts = 4

    def learn(self, found: PyTreeDef) -> None:
        """Record the structure just found below these keys."""
        if found is not self.last:
            self.last, self.repeats, self.code = found, 0, None
            return
        self.repeats += 1
        if self.repeats == worth_compiling(found) and self.attempts:
            self.attempts -= 1
            extract = extractor(found, LEAF_TYPES)
            self.code = None if extract is None else (extract, found)


_ORDERS: dict[tuple[str, ...], _DictOrder] = {}


def _new_order(given: tuple[Any, ...]) -> _DictOrder | None:
    """Cache the order of keys seen for the first time, if they are plain strings."""
    if not all(type(key) is str for key in given):
        return None  # 1 and True are equal keys, but each must be returned unchanged
    if len(_ORDERS) >= CACHE_LIMIT:
        _ORDERS.clear()
    keys = tuple(sorted(given))
    order = _ORDERS[given] = _ORDERS.setdefault(keys, _ORDERS.get(keys) or _DictOrder(keys))
    return order


def _visit_dict(tree: dict[Any, Any], leaves: list[Any]) -> PyTreeDef:
    given = tuple(tree)
    order = _ORDERS.get(given)
    # A key of a str subclass (an enum) can equal a plain string, so the first key is checked.
    if order is None or (given and type(given[0]) is not str):
        order = _new_order(given)
        if order is None:
            keys = sorted_keys(tree)
            return node(DICT, keys, _visit_children([tree[key] for key in keys], leaves))
    if order.code is not None:
        extract, treedef = order.code
        found = extract(tree)
        if found is not None:
            leaves += found
            return treedef
    values = order.values(tree)
    if LEAF_TYPES.issuperset(map(type, values)):
        leaves += values
        return order.leaf_def
    children = _visit_children(values, leaves)
    ids = tuple(map(id, children))
    treedef = order.defs.get(ids) or remember(order.defs, ids, node(DICT, order.keys, children))
    order.learn(treedef)
    return treedef


def _visit_children(values: Iterable[Any], leaves: list[Any]) -> tuple[PyTreeDef, ...]:
    children = []
    for value in values:
        kind = type(value)
        if kind in LEAF_TYPES:
            leaves.append(value)
            children.append(LEAF)
        else:
            children.append((_VISITORS.get(kind) or _visitor(kind))(value, leaves))
    return tuple(children)


def _visit_list(tree: list[Any], leaves: list[Any]) -> PyTreeDef:
    if LEAF_TYPES.issuperset(map(type, tree)):
        leaves += tree
        return _leaf_run(LIST, len(tree))
    return node(LIST, None, _visit_children(tree, leaves))


def _visit_tuple(tree: tuple[Any, ...], leaves: list[Any]) -> PyTreeDef:
    if LEAF_TYPES.issuperset(map(type, tree)):
        leaves += tree
        return _leaf_run(TUPLE, len(tree))
    return node(TUPLE, None, _visit_children(tree, leaves))


def _leaf_run(entry: NodeType, count: int) -> PyTreeDef:
    """The structure of a list or tuple of `count` leaves (the table's other keys are tuples)."""
    defs = entry.defs
    return defs.get(count) or remember(defs, count, node(entry, None, (LEAF,) * count))


_NONE_DEF = node(NONE, None, ())


def _visit_none(tree: None, leaves: list[Any]) -> PyTreeDef:
    return _NONE_DEF


def _visit_leaf(tree: Any, leaves: list[Any]) -> PyTreeDef:
    leaves.append(tree)
    return LEAF


def _node_visitor(entry: NodeType) -> Visitor:
    flatten_node, cls = entry.flatten, entry.cls

    def visit(tree: Any, leaves: list[Any]) -> PyTreeDef:
        children, aux = checked(cls, flatten_node(tree))
        return node(entry, aux, _visit_children(children, leaves))

    return visit


_VISITORS.update({dict: _visit_dict, list: _visit_list, tuple: _visit_tuple})
_VISITORS[type(None)] = _visit_none


def _visitor(cls: type) -> Visitor:
    """The visitor for a type seen for the first time."""
    entry = node_type(cls)
    if entry is None:
        if len(LEAF_TYPES) < CACHE_LIMIT:  # classes made in a loop must not be kept alive
            LEAF_TYPES.add(cls)
        return _visit_leaf
    visitor = _VISITORS[cls] = _node_visitor(entry)
    return visitor


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a tree in order, and its structure."""
    if is_leaf is None:
        kind = type(tree)
        if kind in LEAF_TYPES:
            return [tree], LEAF
        leaves: list[Any] = []
        return leaves, (_VISITORS.get(kind) or _visitor(kind))(tree, leaves)
    leaves = []
    return leaves, _flatten_until(tree, leaves, is_leaf)


def _stops(answer: Any) -> bool:
    if answer is True or answer is False:
        return answer
    if answer is None:  # a predicate without a return statement on some path
        return False
    raise ValueError(
        f"is_leaf predicate returned a non-boolean value {answer!r}; expected a boolean{here()}"
    )


def _flatten_until(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> PyTreeDef:
    entry = None if _stops(is_leaf(tree)) else node_type(type(tree))
    if entry is None:
        leaves.append(tree)
        return LEAF
    children, aux = entry.split(tree)
    return node(entry, aux, tuple([_flatten_until(c, leaves, is_leaf) for c in children]))


def unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of the given structure with the given leaves."""
    return treedef.unflatten(leaves)


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of a tree in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """The structure of a tree."""
    return flatten(tree, is_leaf)[1]


def is_leaf_tree(tree: Any) -> bool:
    """Whether the whole tree is a single leaf."""
    kind = type(tree)
    return kind in LEAF_TYPES or node_type(kind) is None


def flatten_up_to(treedef: PyTreeDef, tree: Any) -> list[Any]:
    """The subtrees of `tree` at the leaves of `treedef`."""
    return treedef.flatten_up_to(tree)


def _columns(
    name: str, treedef: PyTreeDef, tree: Any, rest: tuple[Any, ...], is_leaf: IsLeaf | None
) -> list[list[Any]]:
    """The other trees of a map, each flattened to the structure of the first."""
    out = []
    for other in rest:
        try:
            out.append(flatten_up_to(treedef, other))
        except Exception as error:
            raise (mismatch(name, tree, other, is_leaf) or error) from None
    return out


def tree_map(
    f: Callable[..., Any], tree: PyTree, *rest: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """Apply a function to each leaf of a tree.

    A tree consists of nested lists, tuples, dictionaries and registered classes; everything else is
    a leaf. None is a container without leaves and stays None.

    Args:
        f: a function `f(leaf, *subtrees)`, called with a leaf of `tree` and the corresponding
            subtree of each tree in `rest`.
        tree: the tree, which determines the structure of the result.
        *rest: other trees. `tree` must be a prefix of each of them: they have the same containers
            above the leaves of `tree`.
        is_leaf: a function that is called with each subtree of `tree`; subtrees for which it
            returns True are treated as leaves. By default, no subtree is treated this way.

    Returns:
        A tree of the results.

    Raises:
        ValueError: `tree` is not a prefix of a tree in `rest`; the message says where they differ.

    >>> toile.tree.map(lambda x, y: x + y, {"a": 1, "b": [2, 3]}, {"a": 10, "b": [20, 30]})
    {'a': 11, 'b': [22, 33]}
    """
    first, treedef = flatten(tree, is_leaf)
    columns: list[Any] = []
    try:
        if not rest:
            return treedef.unflatten(list(map(f, first)))
        columns = _columns("tree_map tree", treedef, tree, rest, is_leaf)
        return treedef.unflatten(list(map(f, first, *columns)))
    except Exception as error:
        expect_error()
        told = call_error(error, f, (*first[:1], *[row[0] for row in columns]))
        if told is error:
            raise
        raise told from None


def broadcast_prefix(
    prefix_tree: PyTree, full_tree: PyTree, is_leaf: IsLeaf | None = None
) -> list[Any]:
    """Repeat the leaves of a tree to match the leaves of a larger tree.

    Args:
        prefix_tree: a prefix of `full_tree`: both have the same containers down to the leaves of
            the prefix, each of which represents a whole subtree.
        full_tree: the larger tree.
        is_leaf: a function that is called with each subtree of `prefix_tree`; subtrees for which it
            returns True are treated as leaves. By default, no subtree is treated this way.

    Returns:
        A list with one entry for each leaf of `full_tree`: the corresponding leaf of `prefix_tree`.

    >>> toile.tree_util.broadcast_prefix([1, 2], [("a", "b"), "c"])
    [1, 1, 2]
    """
    first, treedef = flatten(prefix_tree, is_leaf)
    name = "broadcast_prefix prefix_tree"
    (subtrees,) = _columns(name, treedef, prefix_tree, (full_tree,), is_leaf)
    out: list[Any] = []
    for leaf, subtree in zip(first, subtrees):
        out += [leaf] * len(leaves(subtree))
    return out


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """The (key path, leaf) pairs of a tree in order, and its structure."""
    out: list[tuple[KeyPath, Any]] = []
    stops = is_leaf
    if is_leaf is not None and not is_leaf_takes_path:
        stops = lambda path, tree: is_leaf(tree)
    return out, _visit(tree, (), stops, out)


def _visit(
    tree: Any, path: KeyPath, stops: Callable[..., bool] | None, out: list[tuple[KeyPath, Any]]
) -> PyTreeDef:
    """Add the leaves of the subtree at `path`; returns its structure."""
    entry = node_type(type(tree))
    if stops is not None and _stops(stops(path, tree)):
        entry = None
    if entry is None:
        out.append((path, tree))
        return LEAF
    pairs, aux = entry.split_with_keys(tree)
    return node(
        entry, aux, tuple([_visit(child, (*path, key), stops, out) for key, child in pairs]))


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    takes_path: bool = False,
) -> Any:
    """The tree of f(path, leaf, ...) over the leaves of `tree` and the matching parts of `rest`."""
    pairs, treedef = flatten_with_path(tree, is_leaf, takes_path)
    shown = None if takes_path else is_leaf
    columns = _columns("tree_map_with_path tree", treedef, tree, rest, shown)
    rows = zip([path for path, _ in pairs], [leaf for _, leaf in pairs], *columns)
    return treedef.unflatten([f(*row) for row in rows])


def register(
    cls: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
    fields: tuple[str, ...] | None = None,
) -> None:
    """Register a type: values whose type is exactly `cls` become tree nodes."""
    known = NODE_TYPES.get(cls)
    if known is not None and known.kind != "namedtuple":
        raise ValueError(f"Duplicate custom PyTreeDef type registration for {cls}: needed one "
                         f"registration, got a second (remove one of them).{here()}")
    NODE_TYPES[cls] = NodeType(
        cls, "custom", flatten_func, unflatten_func, flatten_with_keys, fields
    )
    if known is not None:
        _ORDERS.clear()  # compiled code may treat cls as a plain named tuple
    _VISITORS.pop(cls, None)
    LEAF_TYPES.discard(cls)


def _flatten_ordered(tree: OrderedDict[Any, Any]) -> tuple[tuple[Any, ...], Any]:
    return tuple(tree.values()), tuple(tree)


def _flatten_defaultdict(tree: defaultdict[Any, Any]) -> tuple[tuple[Any, ...], Any]:
    keys = sorted_keys(tree)
    return tuple([tree[key] for key in keys]), (tree.default_factory, keys)


def _ordered_with_keys(tree: OrderedDict[Any, Any]) -> tuple[Any, Any]:
    return tuple([(DictKey(key), value) for key, value in tree.items()]), tuple(tree)


def _defaultdict_with_keys(tree: defaultdict[Any, Any]) -> tuple[Any, Any]:
    children, aux = _flatten_defaultdict(tree)
    return tuple(zip(map(DictKey, aux[1]), children)), aux


register(
    OrderedDict, _flatten_ordered, lambda keys, xs: OrderedDict(zip(keys, xs)), _ordered_with_keys
)
register(
    defaultdict,
    _flatten_defaultdict,
    lambda aux, xs: defaultdict(aux[0], zip(aux[1], xs)),
    _defaultdict_with_keys,
)


class _Boxed:
    """A callable that functools.partial does not unwrap; equal if the wrapped callables are."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.fun(*args, **kw)

    def __hash__(self) -> int:
        return hash(self.fun)

    def __eq__(self, other: object) -> bool:
        return self.fun == (other.fun if type(other) is _Boxed else other)

    def __repr__(self) -> str:
        return repr(self.fun)


class Partial(functools.partial):
    """A version of `functools.partial` that is also a tree.

    Because a `Partial` is a tree, it can be passed to jitted functions. Its leaves are those of the
    arguments that are already set, and the function is part of its structure.

    Args:
        func: the function to call.
        *args: the first arguments to `func`.
        **kw: keyword arguments for `func`.

    >>> add_two = toile.tree_util.Partial(jnp.add, 2)
    >>> toile.jit(lambda f, x: f(x))(add_two, jnp.arange(3))
    Array([2, 3, 4], dtype=int32)
    """

    def __new__(klass, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        # functools.partial merges nested partials, but the arguments that are leaves of *this* tree
        # must stay as written.
        if isinstance(func, functools.partial):
            inner, func = func, _Boxed(func)
            out = super().__new__(klass, func, *args, **kw)
            func.func, func.args, func.keywords = inner.func, inner.args, inner.keywords
            return out
        return super().__new__(klass, func, *args, **kw)


register(
    Partial,
    lambda partial: ((partial.args, partial.keywords), partial.func),
    lambda func, xs: Partial(func, *xs[0], **xs[1]),
)
