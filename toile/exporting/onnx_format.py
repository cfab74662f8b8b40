"""Writes and reads the messages in ONNX files with `engine.protobuf`.

Opset version 18 is written. The field numbers are from onnx.proto. This module may import only the
engine.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from toile.engine import protobuf as pb
from toile.engine.file_reader import element_count, unreadable

OPSET, IR_VERSION = 18, 8
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32), 2: np.dtype(np.uint8), 3: np.dtype(np.int8), 4: np.dtype(np.uint16),
    5: np.dtype(np.int16), 6: np.dtype(np.int32), 7: np.dtype(np.int64), 9: np.dtype(bool),
    10: np.dtype(np.float16), 11: np.dtype(np.float64), 12: np.dtype(np.uint32),
    13: np.dtype(np.uint64), 16: np.dtype(ml_dtypes.bfloat16),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 5, 6, 7, 8
MOST_GRAPHS = 32  # largest number of graphs nested in each other


class Graph(NamedTuple):
    """A graph that is part of an attribute: encoded when written, decoded when read."""

    data: Any


# ----------------------------------------------------------------------------------------- writing


def tensor(name: str, x: np.ndarray) -> bytes:
    """A TensorProto."""
    dims = b"".join(pb.field(1, n) for n in x.shape)
    data = np.ascontiguousarray(x).tobytes()
    return dims + pb.field(2, CODES[x.dtype]) + pb.field(8, name) + pb.field(9, data)


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto."""
    head = pb.field(1, name)
    if isinstance(value, Graph):
        return head + pb.field(6, value.data) + pb.field(20, GRAPH)
    if isinstance(value, np.ndarray):
        return head + pb.field(5, tensor("", value)) + pb.field(20, TENSOR)
    if isinstance(value, str):
        return head + pb.field(4, value) + pb.field(20, STRING)
    if isinstance(value, float):
        number = pb.varint(2 << 3 | pb.FIXED32) + struct.pack("<f", value)
        return head + number + pb.field(20, FLOAT)
    if isinstance(value, int):
        return head + pb.field(3, value) + pb.field(20, INT)
    return head + b"".join(pb.field(8, int(n)) for n in value) + pb.field(20, INTS)


def node(op: str, ins: Sequence[str], outs: Sequence[str], attributes: dict[str, Any],
         name: str, doc: str) -> bytes:
    """A NodeProto."""
    parts = [pb.field(1, x) for x in ins] + [pb.field(2, x) for x in outs]
    parts += [pb.field(3, name), pb.field(4, op)]
    parts += [pb.field(5, attribute(k, v)) for k, v in attributes.items()]
    return b"".join([*parts, pb.field(6, doc) if doc else b""])


def value_info(name: str, dtype: np.dtype[Any], shape: Sequence[int | str]) -> bytes:
    """A ValueInfoProto; sizes that are text are free."""
    dims = b"".join(pb.field(1, pb.field(2 if isinstance(n, str) else 1, n)) for n in shape)
    kind = pb.field(1, CODES[dtype]) + pb.field(2, dims)
    return pb.field(1, name) + pb.field(2, pb.field(1, kind))


def graph(name: str, nodes: Sequence[bytes], initializers: Sequence[bytes],
          ins: Sequence[bytes], outs: Sequence[bytes]) -> bytes:
    """A GraphProto."""
    parts = [pb.field(1, n) for n in nodes] + [pb.field(2, name)]
    parts += [pb.field(5, t) for t in initializers] + [pb.field(11, v) for v in ins]
    return b"".join([*parts, *(pb.field(12, v) for v in outs)])


def model(body: bytes, version: str) -> bytes:
    """A ModelProto."""
    opset = pb.field(1, "") + pb.field(2, OPSET)
    return (pb.field(1, IR_VERSION) + pb.field(2, "toile") + pb.field(3, version)
            + pb.field(7, body) + pb.field(8, opset))


# ----------------------------------------------------------------------------------------- reading


class NodeData(NamedTuple):
    """A node of a graph."""

    op: str
    domain: str
    ins: list[str]
    outs: list[str]
    attributes: dict[str, Any]
    name: str


class ValueData(NamedTuple):
    """An input or output of a graph; sizes are integers, or text if they are free."""

    name: str
    dtype: Any
    shape: tuple[int | str, ...]


class GraphData(NamedTuple):
    """A graph, with its weights by name."""

    nodes: list[NodeData]
    weights: dict[str, np.ndarray]
    ins: list[ValueData]
    outs: list[ValueData]


def _need(holds: Any, needed: str, got: Any) -> None:
    if not holds:
        raise unreadable("from_onnx", needed, str(got)[:200])


def _text(fields: dict[int, list[Any]], number: int) -> str:
    values = fields.get(number, [b""])
    _need(isinstance(values[-1], bytes), f"text in field {number}", values[-1])
    return values[-1].decode()


def _texts(fields: dict[int, list[Any]], number: int) -> list[str]:
    values = fields.get(number, [])
    _need(all(isinstance(v, bytes) for v in values), f"text in field {number}", "integers")
    return [v.decode() for v in values]


def _messages(fields: dict[int, list[Any]], number: int) -> list[bytes]:
    values = fields.get(number, [])
    _need(all(isinstance(v, bytes) for v in values), f"messages in field {number}", "integers")
    return values


def _signed(n: int) -> int:
    return n - (1 << 64) if n >> 63 else n


def integers(fields: dict[int, list[Any]], number: int) -> list[int]:
    """A repeated integer field, packed or not."""
    found: list[int] = []
    for v in fields.get(number, []):
        if isinstance(v, int):
            found.append(_signed(v))
            continue
        at = 0
        while at < len(v):
            n, at = pb.varint_at(v, at)
            found.append(_signed(n))
    return found


def _numbers(fields: dict[int, list[Any]], number: int, code: str) -> np.ndarray:
    """A repeated field of fixed-size numbers, packed or not."""
    parts = fields.get(number, [])
    _need(all(isinstance(v, bytes) for v in parts), f"numbers in field {number}", "integers")
    return np.frombuffer(b"".join(parts), np.dtype(code))


def read_tensor(data: bytes) -> tuple[str, np.ndarray]:
    """The name and the values of a TensorProto."""
    f = pb.decode(data)
    name, code = _text(f, 8), int(f.get(2, [0])[-1])
    _need(14 not in f or f[14][-1] == 0, f"weights inside the file for {name!r}",
          "weights in another file (save the model as one file)")
    _need(code in DTYPES, f"a number type that toile has for {name!r}", f"type {code}")
    dtype, shape = DTYPES[code], tuple(integers(f, 1))
    count = element_count("from_onnx", shape, dtype.itemsize)
    if 9 in f:
        raw = f[9][-1]
        _need(isinstance(raw, bytes) and len(raw) == count * dtype.itemsize,
              f"{count * dtype.itemsize} bytes for {name!r}", f"{len(raw) if raw else 0}")
        return name, np.frombuffer(raw, dtype).reshape(shape)
    values = _typed(f, dtype)
    _need(values.size == count, f"{count} numbers for {name!r}", values.size)
    return name, values.reshape(shape)


def _typed(f: dict[int, list[Any]], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype == np.float32:
        return _numbers(f, 4, "<f4")
    if dtype == np.float64:
        return _numbers(f, 10, "<f8")
    if dtype in (np.uint32, np.uint64):
        return np.array(integers(f, 11), np.int64).astype(dtype)
    if dtype == np.int64:
        return np.array(integers(f, 7), np.int64)
    values = np.array(integers(f, 5), np.int64)
    if dtype.itemsize == 2 and dtype.kind not in "iu":  # the bits of float16 and bfloat16
        return values.astype(np.uint16).view(dtype)
    return values.astype(dtype)


def _read_attribute(data: bytes, depth: int) -> tuple[str, Any]:
    f = pb.decode(data)
    name, kind = _text(f, 1), int(f.get(20, [0])[-1])
    if kind == FLOAT:
        return name, float(_numbers(f, 2, "<f4")[-1]) if 2 in f else 0.0
    if kind == INT:
        return name, (integers(f, 3) or [0])[-1]
    if kind == STRING:
        return name, _text(f, 4)
    if kind == TENSOR:
        return name, read_tensor(_messages(f, 5)[-1])[1]
    if kind == GRAPH:
        return name, Graph(read_graph(_messages(f, 6)[-1], depth + 1))
    if kind == FLOATS:
        return name, [float(x) for x in _numbers(f, 7, "<f4")]
    if kind == STRINGS:
        return name, _texts(f, 9)
    _need(kind == INTS, f"an attribute type that toile has for {name!r}", f"type {kind}")
    return name, integers(f, 8)


def _read_node(data: bytes, depth: int) -> NodeData:
    f = pb.decode(data)
    attributes = dict(_read_attribute(a, depth) for a in _messages(f, 5))
    return NodeData(_text(f, 4), _text(f, 7), _texts(f, 1), _texts(f, 2), attributes, _text(f, 3))


def _read_value(data: bytes) -> ValueData:
    f = pb.decode(data)
    name = _text(f, 1)
    kinds = _messages(pb.decode(f[2][-1]), 1) if 2 in f else []
    if not kinds:
        return ValueData(name, None, ())
    kind = pb.decode(kinds[-1])
    code = int(kind.get(1, [0])[-1])
    _need(code in DTYPES, f"a number type that toile has for {name!r}", f"type {code}")
    shape: list[int | str] = []
    for dim in _messages(pb.decode(kind[2][-1]), 1) if 2 in kind else []:
        d = pb.decode(dim)
        shape.append(integers(d, 1)[-1] if 1 in d else _text(d, 2) or "?")
    return ValueData(name, DTYPES[code], tuple(shape))


def read_graph(data: bytes, depth: int = 0) -> GraphData:
    """A GraphProto."""
    _need(depth <= MOST_GRAPHS, f"at most {MOST_GRAPHS} graphs inside each other", "more")
    f = pb.decode(data)
    weights = dict(read_tensor(t) for t in _messages(f, 5))
    return GraphData([_read_node(n, depth) for n in _messages(f, 1)], weights,
                     [_read_value(v) for v in _messages(f, 11)],
                     [_read_value(v) for v in _messages(f, 12)])


def read_model(data: bytes) -> tuple[GraphData, int]:
    """The graph of a ModelProto, and the version of its operators."""
    f = pb.decode(data)
    graphs = _messages(f, 7)
    _need(graphs, "a model with a graph", "none")
    version = 0
    for opset in _messages(f, 8):
        o = pb.decode(opset)
        if _text(o, 1) in ("", "ai.onnx"):
            version = integers(o, 2)[-1] if 2 in o else 0
    _need(7 <= version <= 30, "operators of a version from 7 to 30", version)
    return read_graph(graphs[-1]), version


def count_of(shape: Sequence[int]) -> int:
    """The number of elements of a shape."""
    return math.prod(shape)
