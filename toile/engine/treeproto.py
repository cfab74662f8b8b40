"""Tree structures as bytes, in the protocol buffer format that JAX uses for them.

Nodes are written in postorder, each as field 1: its arity (1), its type (2) and, for a dictionary,
the indices of its keys (3) in the table of strings, field 2.
"""

from __future__ import annotations

from toile.engine.errors import UnreadableFileError
from toile.engine.file_reader import guarded
from toile.engine.protobuf import decode, field, varint, varint_at
from toile.engine.source import here
from toile.engine.treedefs import DICT, LEAF, LIST, NONE, TUPLE, PyTreeDef, node

LEAF_TYPE = 1
TYPES = {"list": 2, "none": 3, "tuple": 4, "dict": 5}
MAX_TREE_DEPTH = 256  # functions that walk trees recurse once per level
ENTRIES = {2: LIST, 3: NONE, 4: TUPLE, 5: DICT}


def _keys(treedef: PyTreeDef, strings: dict[str, int]) -> bytes:
    """The indices of a dictionary's keys; new keys are added to the table."""
    for key in treedef.aux:
        if type(key) is not str:
            raise ValueError(
                "Only string keys are supported in proto pytree serialization, got"
                f" {key!r}{here()}"
            )
    numbers = [strings.setdefault(key, len(strings)) for key in treedef.aux]
    return field(1, b"".join(map(varint, numbers)))


def _write(treedef: PyTreeDef, strings: dict[str, int], out: list[bytes]) -> None:
    for child in treedef._children:
        _write(child, strings, out)
    entry, arity = treedef.entry, len(treedef._children)
    kind = LEAF_TYPE if entry is None else TYPES.get(entry.kind)
    if kind is None:
        assert entry is not None
        raise ValueError(
            "User-defined nodes are not supported when serializing pytrees as protocol buffers:"
            f" got {entry.cls} (convert it to a builtin container, or use pickle){here()}"
        )
    content = (field(1, arity) if arity else b"") + field(2, kind)
    if entry is DICT and arity:
        content += field(3, _keys(treedef, strings))
    out.append(field(1, content))


def dumps(treedef: PyTreeDef) -> bytes:
    """The structure as bytes."""
    strings: dict[str, int] = {}
    out: list[bytes] = []
    _write(treedef, strings, out)
    return b"".join(out + [field(2, key) for key in strings])


def _read_keys(packed: bytes, strings: list[str]) -> tuple[str, ...]:
    out, at = [], 0
    while at < len(packed):
        number, at = varint_at(packed, at)
        out.append(strings[number])
    return tuple(out)


def _read(data: bytes) -> PyTreeDef:
    fields = decode(data)
    strings = [content.decode() for content in fields.get(2, ())]
    stack: list[tuple[PyTreeDef, int]] = []  # with their depths
    for content in fields.get(1, ()):
        parts = decode(content)
        arity, kind = parts.get(1, [0])[-1], parts[2][-1]
        keys = _read_keys(b"".join(decode(parts.get(3, [b""])[-1]).get(1, ())), strings)
        _check_node(kind, arity, keys, len(stack))
        if kind == LEAF_TYPE:
            stack.append((LEAF, 1))
            continue
        below = stack[len(stack) - arity :]
        del stack[len(stack) - arity :]
        depth = 1 + max((depth for _, depth in below), default=0)
        if depth > MAX_TREE_DEPTH:
            raise ValueError(f"more than {MAX_TREE_DEPTH} levels")
        aux = keys if kind == TYPES["dict"] else None
        stack.append((node(ENTRIES[kind], aux, tuple([child for child, _ in below])), depth))
    ((treedef, _),) = stack
    return treedef


def _check_node(kind: int, arity: int, keys: tuple[str, ...], have: int) -> None:
    """Raise unless a node has the children and keys that its type requires."""
    if kind != LEAF_TYPE and kind not in ENTRIES:
        raise ValueError(f"a node of type {kind}")
    if arity > (0 if kind in (LEAF_TYPE, TYPES["none"]) else have):
        raise ValueError(f"a node of {arity} children where there are {have}")
    if len(set(keys)) != (arity if kind == TYPES["dict"] else 0):
        raise ValueError(f"a node of {arity} children with {len(set(keys))} keys")


def loads(data: bytes) -> PyTreeDef:
    """The structure written by `dumps`."""
    data = bytes(data)
    try:
        with guarded("deserialize_using_proto", "a tree structure"):
            return _read(data)
    except UnreadableFileError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise UnreadableFileError(
            f"Could not deserialize PyTreeDefProto: needed bytes from serialize_using_proto,"
            f" got {len(data)} other bytes: {reason}{here()}"
        ) from error
