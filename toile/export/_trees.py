"""Conversion of tree structures to records and back, and the registered node types."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from toile.core.frozen_dict import FrozenDict
from toile.engine.source import here
from toile.engine.treedefs import LEAF, NODE_TYPES, PyTreeDef
from toile.engine.trees import structure
from toile.export._records import TreeData, wrong

T = TypeVar("T")
MOST_DEPTH = 200
MOST_NODES = 10_000_000


class _Registered(NamedTuple):
    """The functions that convert the auxiliary data of a node type to bytes and back."""

    cls: type
    name: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]




def _json(x: Any) -> bytes:
    return json.dumps(x).encode()


def _write_keys(aux: Any) -> bytes:
    keys = list(aux)
    if any(type(k) is not str for k in keys):
        raise NotImplementedError(
            "Serialization of collections.OrderedDict and FrozenDict is supported only when the "
            f"keys are strings. Found keys: {keys}{here()}")
    return _json(keys)


def _read_keys(data: bytes) -> Any:
    return tuple(json.loads(data))


_KNOWN = (
    _Registered(OrderedDict, "collections.OrderedDict", _write_keys, _read_keys),
    _Registered(FrozenDict, "flax.core.FrozenDict", _write_keys, _read_keys),
)
_by_type: dict[type, _Registered] = {x.cls: x for x in _KNOWN}
_by_name: dict[str, _Registered] = {x.name: x for x in _KNOWN}


def register_pytree_node_serialization(
    nodetype: type[T], *, serialized_name: str, serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type[T]:
    """Allow nodes of a type in the arguments and results of exported functions.

    Call `register_pytree_node_serialization` both in the process that exports a function and in the
    process that loads it, after registering the type as a tree node.

    Args:
        nodetype: the type of the nodes.
        serialized_name: name of the type in exported functions; it must be unique.
        serialize_auxdata: function that converts a node's auxiliary data to bytes.
        deserialize_auxdata: the inverse of `serialize_auxdata`.
        from_children: accepted for compatibility with JAX, and ignored; nodes are created by the
            function with which the type was registered as a tree node.

    Returns:
        The type.

    Raises:
        ValueError: the type or the name is already registered, or the type is not a tree node.

    >>> from collections import OrderedDict, namedtuple
    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> _ = toile.tree_util.register_pytree_node(
    ...     Pair, lambda p: ((p.a, p.b), None), lambda aux, children: Pair(*children))
    >>> toile.export.register_pytree_node_serialization(
    ...     Pair, serialized_name="docs.Pair", serialize_auxdata=lambda aux: b"",
    ...     deserialize_auxdata=lambda data: None).__name__
    'Pair'
    """
    _check_new(nodetype, serialized_name)
    entry = NODE_TYPES.get(nodetype)
    if from_children is None and (entry is None or entry.kind == "namedtuple"):
        raise ValueError(
            "If `from_children` is not present, you must call first "
            f"`toile.tree_util.register_pytree_node` for `{nodetype}` (or pass from_children)"
            f"{here()}")
    _add(_Registered(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata))
    return nodetype


def register_namedtuple_serialization(nodetype: type[T], *, serialized_name: str) -> type[T]:
    """Allow named tuples of a type in the arguments and results of exported functions.

    Args:
        nodetype: the type.
        serialized_name: name of the type in exported functions; it must be unique.

    Returns:
        The type.

    Raises:
        ValueError: the type is not a named tuple, or the type or the name is already registered.

    >>> from collections import namedtuple
    >>> Point = toile.export.register_namedtuple_serialization(
    ...     namedtuple("Point", "x y"), serialized_name="docs.Point")
    >>> exported = toile.export.export(toile.jit(lambda p: p.x + p.y))(Point(1.0, 2.0))
    >>> float(toile.export.deserialize(exported.serialize()).call(Point(3.0, 4.0)))
    7.0
    """
    fields = getattr(nodetype, "_fields", None)
    if not isinstance(nodetype, type) or not issubclass(nodetype, tuple) or fields is None:
        raise ValueError(
            "Use `toile.export.register_pytree_node_serialization` for types other than "
            f"`collections.namedtuple`: got {nodetype}{here()}")
    _check_new(nodetype, serialized_name)
    write = lambda aux: _json(list(fields))

    def read(data: bytes) -> Any:
        if json.loads(data) != list(fields):
            raise ValueError(
                f"{serialized_name}: needed a named tuple with the fields {json.loads(data)}, got "
                f"{nodetype} with {list(fields)} (register the type that was exported){here()}")
        return None

    _add(_Registered(nodetype, serialized_name, write, read))
    return nodetype


def _check_new(nodetype: type, name: str) -> None:
    found = _by_type.get(nodetype)
    if found is not None:
        raise ValueError(
            f"Duplicate serialization registration for type `{nodetype}`. Previous registration "
            f"was with serialized_name `{found.name}` (remove one of them).{here()}")
    found = _by_name.get(name)
    if found is not None:
        raise ValueError(
            f"Duplicate serialization registration for serialized_name `{name}`. Previous "
            f"registration was for type `{found.cls}` (choose another name).{here()}")


def _add(registered: _Registered) -> None:
    _by_type[registered.cls] = _by_name[registered.name] = registered


# ---- structures as records


def tree_data(tree: PyTreeDef) -> TreeData:
    """Return the record of a structure."""
    children = tuple([tree_data(c) for c in tree.children()])
    entry = tree.entry
    if entry is None:
        return TreeData("leaf", None, ())
    kind = entry.kind
    registered = _by_type.get(entry.cls)
    if registered is not None:
        data = bytes(registered.write(tree.aux))
        return TreeData("registered", (registered.name, data), children)
    if kind == "dict":
        if any(type(k) is not str for k in tree.aux):
            raise TypeError(
                "Serialization is supported only for dictionaries with string keys. Found key "
                f"{next(k for k in tree.aux if type(k) is not str)!r} (convert the keys to text)"
                f"{here()}")
        return TreeData("dict", tuple(tree.aux), children)
    if kind in ("tuple", "list", "none"):
        return TreeData(kind, None, children)
    raise ValueError(
        f"Cannot serialize PyTreeDef containing an unregistered type `{entry.cls}`. Use "
        "`toile.export.register_pytree_node_serialization` or "
        f"`register_namedtuple_serialization` (in the process that loads, too){here()}")


def treedef(data: TreeData) -> PyTreeDef:
    """Return the structure in a record; raises ValueError if there is none."""
    return _Structures().made(data, 0)


class _Structures:
    """Creates structures; a record that occurs several times is converted only once."""

    def __init__(self) -> None:
        self.known: dict[int, PyTreeDef] = {}

    def made(self, data: TreeData, depth: int) -> PyTreeDef:
        if depth > MOST_DEPTH:
            raise wrong("a tree that is nested too deeply")
        found = self.known.get(id(data))
        if found is None:
            children = tuple([self.made(c, depth + 1) for c in data.children])
            if sum(c.num_nodes for c in children) > MOST_NODES:
                raise wrong("a tree that is too large")
            found = self.known[id(data)] = _with_root(data, children)
        return found


def _with_root(data: TreeData, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    if data.kind == "leaf" and not children:
        return LEAF
    if data.kind == "none" and not children:
        return structure(None)
    if data.kind in ("tuple", "list"):
        made = tuple if data.kind == "tuple" else list
        return PyTreeDef.from_node_data_and_children(None, (made, None), children)
    if data.kind == "dict":
        return _of_dict(data.data, children)
    if data.kind == "registered" and type(data.data) is tuple and len(data.data) == 2:
        return _of_registered(*data.data, children)
    raise wrong(f"a tree of kind {data.kind!r}")


def _of_dict(keys: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    if type(keys) is not tuple or any(type(k) is not str for k in keys) or (
            len(keys) != len(children) or list(keys) != sorted(set(keys))):
        raise wrong("a dictionary with unsuitable keys")
    return PyTreeDef.from_node_data_and_children(None, (dict, list(keys)), children)


def _of_registered(name: Any, content: Any, children: tuple[PyTreeDef, ...]) -> PyTreeDef:
    found = _by_name.get(name) if type(name) is str else None
    if found is None:
        raise wrong(f"a node of the type {name!r}, for which no "
                         "register_pytree_node_serialization was called in this process")
    if type(content) is not bytes:
        raise wrong("a node without data")
    return PyTreeDef.from_node_data_and_children(None, (found.cls, found.read(content)), children)

