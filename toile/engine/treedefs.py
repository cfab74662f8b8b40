"""Tree structures: the registered node types, and PyTreeDef, which is a tree without its leaves.

A PyTreeDef is immutable. Structures that occur repeatedly are interned (`node`), so that equal
structures are usually the same object and comparing them costs nothing; otherwise `==` compares
their nodes. A structure that is rebuilt often compiles its own constructor. This module may import
the modules of the engine below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import NoneType
from typing import Any

from toile.engine.keypaths import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
    keystr,
)
from toile.engine.source import here
from toile.engine.treecode import constructor, extractor, worth_compiling

Flattener = Callable[[Any], tuple[Iterable[Any], Any]]


class NodeType:
    """How values of one type are split into (children, aux) and rebuilt."""

    __slots__ = ("cls", "kind", "flatten", "make", "keyed", "fields", "defs")

    def __init__(
        self,
        cls: type,
        kind: str,
        flatten: Flattener,
        make: Callable[[Any, tuple[Any, ...]], Any],
        keyed: Flattener | None = None,
        fields: tuple[str, ...] | None = None,
    ) -> None:
        self.cls = cls
        self.kind = kind  # "dict", "list", "tuple", "none", "namedtuple" or "custom"
        self.flatten = flatten
        self.make = make
        self.keyed = keyed
        self.fields = fields  # the attributes that hold the children, if the type has them
        self.defs: dict[Any, PyTreeDef] = {}  # interned structures with this root

    def split(self, tree: Any) -> tuple[tuple[Any, ...], Any]:
        """The children and auxiliary data of `tree`; the result of a registered flattener is
        checked."""
        result = self.flatten(tree)
        if self.kind != "custom":
            return result  # type: ignore[return-value]
        return checked(self.cls, result)

    def split_with_keys(self, tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """Like split, with each child paired with its path entry."""
        if self.keyed is not None:
            pairs, aux = checked(self.cls, self.keyed(tree))
            return [(key, child) for key, child in pairs], aux
        children, aux = self.split(tree)
        return list(zip(self.keys(aux, len(children)), children)), aux

    def keys(self, aux: Any, arity: int) -> list[Any]:
        """The path entries of the children, for types that can name them without an instance."""
        if self.kind == "dict":
            return [DictKey(key) for key in aux]
        if self.fields is not None:
            return [GetAttrKey(name) for name in self.fields]
        key = SequenceKey if self.kind in ("list", "tuple") else FlattenedIndexKey
        return [key(i) for i in range(arity)]


def checked(cls: type, result: Any) -> tuple[tuple[Any, ...], Any]:
    """The result of a registered flattener, with its children as a tuple."""
    if type(result) is not tuple or len(result) != 2:
        raise ValueError(
            "The to_iterable function for a custom PyTree node should return a (children, aux_data)"
            f" tuple, got {result!r} from the flatten function of {cls}{here()}"
        )
    children, aux = result
    if type(children) is tuple:
        return result
    try:
        return tuple(children), aux
    except TypeError:
        if hasattr(type(children), "__iter__"):
            raise  # the iterator itself failed: its own error says more
        raise ValueError(
            "The to_iterable function for a custom PyTree node should return a (children, aux_data)"
            f" tuple where 'children' is iterable, got {result!r} from the flatten function of"
            f" {cls}{here()}"
        ) from None


def sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dictionary in the order in which its values are flattened."""
    try:
        return tuple(sorted(tree))
    except Exception as error:
        raise ValueError(
            "Comparator raised exception while sorting pytree dictionary keys: needed keys that"
            f" compare with <, got {list(tree)!r} (use keys of one type, or an OrderedDict){here()}"
        ) from error


def _flatten_dict(tree: dict[Any, Any]) -> tuple[tuple[Any, ...], Any]:
    keys = sorted_keys(tree)
    return tuple([tree[key] for key in keys]), keys


DICT = NodeType(dict, "dict", _flatten_dict, lambda keys, xs: dict(zip(keys, xs)))
LIST = NodeType(list, "list", lambda tree: (tuple(tree), None), lambda _, xs: list(xs))
TUPLE = NodeType(tuple, "tuple", lambda tree: (tree, None), lambda _, xs: tuple(xs))
NONE = NodeType(NoneType, "none", lambda tree: ((), None), lambda _, xs: None)

NODE_TYPES: dict[type, NodeType] = {dict: DICT, list: LIST, tuple: TUPLE, NoneType: NONE}


def node_type(cls: type) -> NodeType | None:
    """The node type of `cls`; None for a leaf. Named tuples are nodes without registration."""
    entry = NODE_TYPES.get(cls)
    if entry is None and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        entry = NODE_TYPES[cls] = NodeType(
            cls,
            "namedtuple",
            lambda tree: (tuple(tree), None),
            lambda _, xs: cls(*xs),
            fields=tuple(cls._fields),
        )
    return entry


CACHE_LIMIT = 4096  # programs that keep creating structures must not fill memory

# Auxiliary data of these exact types is interned. They are immutable and small, and with the types
# in the key equal values are interchangeable (1 == True, and floats have two zeros).
PLAIN = {str, int, bool, NoneType, type}


class PyTreeDef:
    """The structure of a tree: its containers, with `*` in place of each leaf.

    `toile.tree.structure` and `toile.tree.flatten` return structures; the constructor cannot be
    called. Structures can be compared and hashed.

    Args:
        *args: not used; the constructor raises TypeError.

    >>> structure = toile.tree.structure({"a": [1, 2], "b": None})
    >>> structure
    PyTreeDef({'a': [*, *], 'b': None})
    >>> structure.num_leaves, structure.unflatten([3, 4])
    (2, {'a': [3, 4], 'b': None})
    """

    __slots__ = (
        "entry", "aux", "_children", "num_leaves", "num_nodes",
        "interned", "_hash", "_flat", "_build", "_builds", "_extract", "_matches", "__weakref__",
    )  # fmt: skip

    entry: NodeType | None
    aux: Any
    num_leaves: int
    num_nodes: int
    interned: bool
    _children: tuple[PyTreeDef, ...]
    _flat: bool  # all children are leaves
    _hash: int | None
    _build: Callable[[Any], Any] | None
    _extract: Callable[[Any], Any] | None
    _builds: int
    _matches: int

    def __init__(self, *args: object) -> None:
        raise TypeError(
            "PyTreeDef: no constructor; use tree_structure, or make_from_node_data" + here()
        )

    def children(self) -> list[PyTreeDef]:
        """List the structures of the immediate children."""
        return list(self._children)

    def node_data(self) -> tuple[type, Any] | None:
        """Return the type and the auxiliary data of the root, or None for a leaf."""
        if self.entry is None:
            return None
        return self.entry.cls, list(self.aux) if self.entry.kind == "dict" else self.aux

    def unflatten(self, leaves: Iterable[Any], /) -> Any:
        """Build a tree with this structure from its leaves.

        Args:
            leaves: the leaves, in the order of `toile.tree.leaves`.

        Returns:
            The tree.

        Raises:
            ValueError: there are too few or too many leaves.
        """
        if type(leaves) is not list and type(leaves) is not tuple:
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            if len(leaves) < self.num_leaves:
                raise ValueError(
                    f"Too few leaves for PyTreeDef; expected {self.num_leaves}, got "
                    f"{len(leaves)} (flatten and unflatten trees of one structure){here()}"
                )
            raise ValueError(
                f"Too many leaves for PyTreeDef; expected {self.num_leaves}, got "
                f"{len(leaves)}.{here()}"
            )
        build = self._build
        if build is not None:
            return build(leaves)
        self._builds += 1
        if self._builds == worth_compiling(self):
            self._build = constructor(self) or self._unflatten
        return self._unflatten(leaves)

    def _unflatten(self, leaves: Iterable[Any]) -> Any:
        return self._assemble(iter(leaves))

    def _assemble(self, leaves: Iterator[Any]) -> Any:
        entry = self.entry
        if entry is None:
            return next(leaves)
        if self._flat:
            return entry.make(self.aux, tuple(islice(leaves, self.num_leaves)))
        return entry.make(self.aux, tuple([c._assemble(leaves) for c in self._children]))

    def flatten_up_to(self, tree: Any, /) -> list[Any]:
        """Split a tree into the subtrees at the leaves of this structure.

        Args:
            tree: the tree. This structure must be a prefix of `tree`: both have the same containers
                above the leaves of this structure.

        Returns:
            A list of the subtrees of `tree`, one for each leaf of this structure.

        Raises:
            ValueError: `tree` contains a different container or key.
        """
        if self.entry is None:
            return [tree]
        if self._extract is None:
            self._matches += 1
            if self._matches == worth_compiling(self):
                self._extract = extractor(self, None)
        else:
            found = self._extract(tree)
            if found is not None:
                return found
        out: list[Any] = []
        self._match(tree, out, ())
        return out

    def _match(self, tree: Any, out: list[Any], path: tuple[Any, ...]) -> None:
        entry = self.entry
        if entry is None:
            out.append(tree)
            return
        if type(tree) is not entry.cls:
            raise ValueError(type_mismatch(entry, tree, self._path(path)) + here())
        children, aux = entry.split(tree)
        if len(children) != len(self._children) or not self._same_aux(aux):
            raise ValueError(self._mismatch(tree, children, aux, path) + here())
        if self._flat:
            out.extend(children)
            return
        for i, (child, sub) in enumerate(zip(self._children, children)):
            child._match(sub, out, (path, self, i))

    def _same_aux(self, aux: Any) -> bool:
        return self.aux is aux or bool(self.aux == aux)

    @staticmethod
    def _path(links: tuple[Any, ...]) -> KeyPath:
        """The path for a chain of (parent link, structure, child index) from _match."""
        out: list[Any] = []
        while links:
            links, treedef, i = links
            out.append(treedef.entry.keys(treedef.aux, len(treedef._children))[i])
        return tuple(reversed(out))

    def _mismatch(self, tree: Any, children: Any, aux: Any, path: tuple[Any, ...]) -> str:
        assert self.entry is not None
        where, kind, arity = at(self._path(path)), self.entry.kind, len(self._children)
        if kind == "dict":
            return (
                f"Dict key mismatch; expected keys: {list(self.aux)}; present keys: "
                f"{list(aux)}.{where}"
            )
        if kind in ("list", "tuple", "namedtuple"):
            name = {"list": "List", "tuple": "Tuple", "namedtuple": "Named tuple"}[kind]
            return (
                f"{name} arity mismatch: {len(children)} != {arity}; {kind}: {short(tree)}.{where}"
            )
        if not self._same_aux(aux):
            return (
                f"Mismatch custom node data: {self.aux!r} != {aux!r}; value: {short(tree)}.{where}"
            )
        return (
            f"Custom node arity mismatch: expected {arity} children, got {len(children)};"
            f" value: {short(tree)}.{where}"
        )

    def compose(self, inner: PyTreeDef, /) -> PyTreeDef:
        """Replace each leaf with a structure.

        Args:
            inner: structure of the new subtrees.

        Returns:
            The larger structure.
        """
        if self.entry is None:
            return inner
        return node(self.entry, self.aux, tuple([c.compose(inner) for c in self._children]))

    def walk(
        self,
        f_node: Callable[[tuple[Any, ...], Any], Any],
        f_leaf: Callable[[Any], Any] | None,
        leaves: Iterable[Any],
        /,
    ) -> Any:
        """Combine the leaves of a tree from the bottom up.

        Args:
            f_node: a function `f(results, data)`, called for each node with a tuple of the results
                for its children and with its data, such as the keys of a dictionary.
            f_leaf: a function `f(leaf)`, called for each leaf; if None, the leaves are used
                unchanged.
            leaves: the leaves of the tree, in order.

        Returns:
            The result of `f_node` at the root.
        """
        iterator = iter(leaves)

        def fold(treedef: PyTreeDef) -> Any:
            if treedef.entry is None:
                try:
                    leaf = next(iterator)
                except StopIteration:
                    raise ValueError("Too few leaves for PyTreeDef" + here()) from None
                return leaf if f_leaf is None else f_leaf(leaf)
            folded = tuple([fold(child) for child in treedef._children])
            data = treedef.node_data()
            assert data is not None
            return f_node(folded, data[1])

        result = fold(self)
        if next(iterator, self) is not self:
            raise ValueError("Too many leaves for PyTreeDef" + here())
        return result

    def from_iterable_tree(self, tree: Any, /) -> Any:
        """Build a tree with this structure from nested iterables.

        Args:
            tree: nested iterables that contain, for each container of this structure, an iterable
                of the same length.

        Returns:
            The tree.
        """
        if self.entry is None:
            return tree
        parts = tuple(tree)
        if len(parts) != len(self._children):
            raise ValueError(
                f"Arity mismatch between trees: needed {len(self._children)} parts for"
                f" {self}, got {len(parts)}{here()}"
            )
        xs = tuple([c.from_iterable_tree(part) for c, part in zip(self._children, parts)])
        return self.entry.make(self.aux, xs)

    @staticmethod
    def from_node_data_and_children(
        registry: Any, node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef], /
    ) -> PyTreeDef:
        """Create a structure from its root and its children.

        Args:
            registry: accepted for compatibility with JAX, and ignored.
            node_data: type and auxiliary data of the root, as returned by `node_data()`; None for a
                leaf.
            children: structures of the children.

        Returns:
            The structure.
        """
        return make_from_node_data(node_data, children)

    def serialize_using_proto(self) -> bytes:
        """Encode the structure as a protocol buffer.

        Only lists, tuples, None and dictionaries with string keys can be encoded.

        Returns:
            The bytes.
        """
        from toile.engine.treeproto import dumps

        return dumps(self)

    @staticmethod
    def deserialize_using_proto(registry: Any, data: bytes, /) -> PyTreeDef:
        """Read a structure from the bytes that `serialize_using_proto` returned.

        Args:
            registry: accepted for compatibility with JAX, and ignored.
            data: the bytes.

        Returns:
            The structure.
        """
        from toile.engine.treeproto import loads

        return loads(data)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not PyTreeDef:
            return NotImplemented
        return equal(self, other)

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            entry = self.entry
            try:
                aux = hash(self.aux)
            except Exception:  # unhashable auxiliary data can still be compared
                aux = 0
            value = self._hash = hash((entry and entry.cls, aux, self._children))
        return value

    def __repr__(self) -> str:
        return f"PyTreeDef({text(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_from_node_data, (self.node_data(), self._children)


def _new(entry: NodeType | None, aux: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    out = object.__new__(PyTreeDef)
    out.entry, out.aux, out._children = entry, aux, children
    leaves, nodes = (1, 1) if entry is None else (0, 1)
    for child in children:
        leaves += child.num_leaves
        nodes += child.num_nodes
    out.num_leaves, out.num_nodes = leaves, nodes
    out._flat = nodes == leaves + 1 == len(children) + 1
    out.interned, out._builds, out._matches = False, 0, 0
    out._hash = out._build = out._extract = None
    return out


LEAF = _new(None, None, ())
LEAF.interned = True


def aux_key(aux: Any) -> Any:
    """A key for interning `aux`, or None if it cannot be interned."""
    kind = type(aux)
    if kind in PLAIN:
        return kind, aux
    if kind is tuple:
        kinds = tuple([type(x) for x in aux])
        if PLAIN.issuperset(kinds):
            return kinds, aux
    return None


def node(entry: NodeType, aux: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    """The structure with this root and these children, interned if possible."""
    ids = tuple(map(id, children))  # interned structures keep their children: ids stay valid
    key: Any = ids
    if aux is not None:
        plain = aux_key(aux)
        if plain is None:
            return _new(entry, aux, children)
        key = (plain, ids)
    return entry.defs.get(key) or _interned(key, entry, aux, children)


def _interned(key: Any, entry: NodeType, aux: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    """A new structure, interned if all its children are."""
    out = _new(entry, aux, children)
    out.interned = all(child.interned for child in children)
    return remember(entry.defs, key, out)


def remember(table: dict[Any, PyTreeDef], key: Any, treedef: PyTreeDef) -> PyTreeDef:
    """Add an interned structure to a table, and return the structure."""
    if treedef.interned:
        if len(table) >= CACHE_LIMIT:
            table.clear()
        table[key] = treedef
    return treedef


def make_from_node_data(
    node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]
) -> PyTreeDef:
    """The structure with the given root (as PyTreeDef.node_data returns it) and children."""
    children = tuple(children)
    if node_data is None:
        return LEAF
    cls, aux = node_data
    entry = node_type(cls)
    if entry is None:
        raise ValueError(f"PyTreeDef: needed a registered node type, got {cls}{here()}")
    if entry.kind == "dict":
        aux = tuple(aux)
    return node(entry, aux, children)


def equal(a: PyTreeDef, b: PyTreeDef) -> bool:
    """Whether two structures have the same nodes, with equal auxiliary data."""
    if a is b:
        return True
    if a.entry is not b.entry or a.num_nodes != b.num_nodes or a.num_leaves != b.num_leaves:
        return False
    if len(a._children) != len(b._children):
        return False
    if a.aux is not b.aux:
        try:
            same = bool(a.aux == b.aux)
        except Exception as error:
            raise ValueError(
                "Exception raised while checking equality of metadata fields of pytree. Make sure"
                " that metadata fields are hashable and have simple equality semantics. (Note:"
                " arrays cannot be passed as metadata fields!)"
                f" The node: {a.entry and a.entry.cls}.{here()}"
            ) from error
        if not same:
            return False
    return all(map(equal, a._children, b._children))


def text(treedef: PyTreeDef) -> str:
    """The structure as text, for its repr."""
    entry = treedef.entry
    if entry is None:
        return "*"
    parts = [text(child) for child in treedef._children]
    inside = ", ".join(parts)
    if entry.kind == "tuple":
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    if entry.kind == "list":
        return f"[{inside}]"
    if entry.kind == "none":
        return "None"
    if entry.kind == "dict":
        pairs = [f"{key!r}: {part}" for key, part in zip(treedef.aux, parts)]
        return "{" + ", ".join(pairs) + "}"
    if entry.kind == "namedtuple":
        return f"CustomNode(namedtuple[{entry.cls.__name__}], [{inside}])"
    return f"CustomNode({entry.cls.__name__}[{treedef.aux}], [{inside}])"


def at(path: KeyPath) -> str:
    """` This is at key path ...` for the end of a message; nothing at the root."""
    return f" This is at key path {keystr(path)}." if path else ""


def short(value: Any, limit: int = 200) -> str:
    """The repr of a value, shortened to keep the message readable."""
    written = repr(value)
    return written if len(written) <= limit else written[: limit - 3] + "..."


def type_mismatch(entry: NodeType, tree: Any, path: KeyPath) -> str:
    """The message for a value whose type differs from the structure's at `path`."""
    where = at(path)
    if entry.kind == "custom":
        return (
            f"Custom node type mismatch: expected type: {entry.cls}, value: {short(tree)}.{where}"
        )
    if entry.kind == "namedtuple":
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return (
                f"Named tuple type mismatch: expected type: {entry.cls},"
                f" tuple: {short(tree)}.{where}"
            )
        return f"Expected named tuple, got {short(tree)}. Its type is {entry.cls}.{where}"
    name = "None" if entry.kind == "none" else entry.kind
    hint = ""
    if entry.kind == "none":
        hint = " None is a tree without leaves; pass is_leaf=lambda x: x is None to map over it."
    return f"Expected {name}, got {short(tree)}.{where}{hint}"
