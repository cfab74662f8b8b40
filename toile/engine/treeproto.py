"""Tree structures as bytes, in the protocol buffer format that JAX uses for them.

The nodes follow each other children first, each as field 1: its arity (1), its type (2) and, for a
dictionary, the numbers of its keys (3) in the table of strings, field 2.
"""

from __future__ import annotations

from toile.engine.source import here
from toile.engine.treedefs import DICT, LEAF, LIST, NONE, TUPLE, PyTreeDef, node

LEAF_TYPE = 1
TYPES = {"list": 2, "none": 3, "tuple": 4, "dict": 5}
ENTRIES = {2: LIST, 3: NONE, 4: TUPLE, 5: DICT}


def _varint(value: int) -> bytes:
    """An unsigned number, seven bits to a byte, the low ones first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _keys(treedef: PyTreeDef, strings: dict[str, int]) -> bytes:
    """The numbers of a dictionary's keys; new ones enter the table."""
    for key in treedef.aux:
        if type(key) is not str:
            raise ValueError(
                "Only string keys are supported in proto pytree serialization, got"
                f" {key!r}{here()}"
            )
    numbers = [strings.setdefault(key, len(strings)) for key in treedef.aux]
    return _field(1, b"".join(map(_varint, numbers)))


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
    content = (_varint(8) + _varint(arity) if arity else b"") + _varint(16) + _varint(kind)
    if entry is DICT and arity:
        content += _field(3, _keys(treedef, strings))
    out.append(_field(1, content))


def dumps(treedef: PyTreeDef) -> bytes:
    """The structure as bytes."""
    strings: dict[str, int] = {}
    out: list[bytes] = []
    _write(treedef, strings, out)
    return b"".join(out + [_field(2, key.encode()) for key in strings])


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def _fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """For each field of a message its number and its value, a number or bytes."""
    out, at = [], 0
    while at < len(data):
        tag, at = _number(data, at)
        value, at = _number(data, at)
        content = b""
        if tag & 7 == 2:
            content, at = data[at : at + value], at + value
        elif tag & 7 != 0 or at > len(data):
            raise ValueError("neither a number nor bytes")
        out.append((tag >> 3, value, content))
    return out


def _read_keys(data: bytes, strings: list[str]) -> tuple[str, ...]:
    out, at = [], 0
    for _, _, packed in _fields(data):
        while at < len(packed):
            number, at = _number(packed, at)
            out.append(strings[number])
    return tuple(out)


def _read(data: bytes) -> PyTreeDef:
    fields = _fields(data)
    strings = [content.decode() for field, _, content in fields if field == 2]
    stack: list[PyTreeDef] = []
    for _, _, content in [field for field in fields if field[0] == 1]:
        parts = {field: (value, inside) for field, value, inside in _fields(content)}
        (arity, _), (kind, _) = parts.get(1, (0, b"")), parts[2]
        if kind == LEAF_TYPE:
            stack.append(LEAF)
            continue
        first = len(stack) - arity
        keys = _read_keys(parts.get(3, (0, b""))[1], strings)
        if first < 0 or (kind == TYPES["dict"] and len(keys) != arity):
            raise ValueError("a node lacks children or keys")
        children = tuple(stack[first:])
        del stack[first:]
        stack.append(node(ENTRIES[kind], keys if kind == TYPES["dict"] else None, children))
    (treedef,) = stack
    return treedef


def loads(data: bytes) -> PyTreeDef:
    """The structure that `dumps` wrote."""
    try:
        return _read(bytes(data))
    except Exception as error:
        raise ValueError(
            f"Could not deserialize PyTreeDefProto: needed what serialize_using_proto returned,"
            f" got {len(data)} other bytes{here()}"
        ) from error
