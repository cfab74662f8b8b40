"""TensorBoard event files: write tensors for TensorBoard's dashboards, and read them back.

An event file is a TFRecord file of Event messages. The first message contains the version of the
format. All other messages contain a step, a time, and values with tags. The messages have the
layout that tensorboard.compat.proto defines.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from toile.engine.file_reader import check_values, element_count, guarded, unreadable
from toile.engine.protobuf import decode, double, field
from toile.engine.source import here
from toile.metrics import records

_STRING = 7
_MOST_REPEATED = 1 << 24  # maximum number of elements of a tensor that is stored as one number
_DTYPES = {
    np.dtype(d): n
    for d, n in (
        *((np.float32, 1), (np.float64, 2), (np.int32, 3), (np.uint8, 4), (np.int16, 5)),
        *((np.int8, 6), (np.complex64, 8), (np.int64, 9), (np.bool_, 10)),
        *((ml_dtypes.bfloat16, 14), (np.uint16, 17), (np.complex128, 18), (np.float16, 19)),
        *((np.uint32, 22), (np.uint64, 23)),
    )
}
_FROM_NUMBER = {n: d for d, n in _DTYPES.items()}


def tensor(value: Any) -> bytes:
    """Encode an array of numbers or of text (str or bytes) as a TensorProto."""
    array = np.asarray(value)
    if array.dtype.kind in "USO":
        texts = [t.encode() if isinstance(t, str) else bytes(t) for t in array.reshape(-1).tolist()]
        content, number = b"".join(field(8, t) for t in texts), _STRING
    elif array.dtype in _DTYPES:
        content, number = field(4, np.ascontiguousarray(array).tobytes()), _DTYPES[array.dtype]
    else:
        raise TypeError(f"tensor: needed numbers or text, got an array of {array.dtype}{here()}")
    shape = b"".join(field(2, field(1, int(n))) for n in array.shape)
    return field(1, number) + field(2, shape) + content


def metadata(plugin: str, content: bytes = b"") -> bytes:
    """Encode a SummaryMetadata, which specifies the dashboard that shows a value."""
    return field(1, field(1, plugin) + (field(2, content) if content else b""))


def summary(tag: str, tensor_proto: bytes, metadata_proto: bytes | None) -> bytes:
    """Encode a Summary with one value."""
    described = b"" if metadata_proto is None else field(9, metadata_proto)
    return field(1, field(1, tag) + field(8, tensor_proto) + described)


def event(summary_proto: bytes, step: int, wall_time: float) -> bytes:
    """Encode an Event that contains a Summary."""
    return double(1, wall_time) + (field(2, step) if step else b"") + field(5, summary_proto)


class EventWriter:
    """A writer that creates a TensorBoard event file and appends events to it.

    Args:
        log_dir: folder for the event file; the folder is created if it does not exist.
    """

    _made = 0

    def __init__(self, log_dir: str | os.PathLike[str]):
        os.makedirs(log_dir, exist_ok=True)
        now = time.time()
        host, number = socket.gethostname() or "localhost", EventWriter._made
        EventWriter._made += 1
        name = f"events.out.tfevents.{int(now):010d}.{host}.{os.getpid()}.{number}.v2"
        self.path = os.path.join(os.fspath(log_dir), name)
        self._file = open(self.path, "ab", buffering=1 << 17)
        version = double(1, now) + field(3, "brain.Event:2")
        self._file.write(records.frame(version))
        self._file.flush()

    def add(self, summary_proto: bytes, step: int) -> None:
        """Append an encoded Summary to the file."""
        self._file.write(records.frame(event(summary_proto, int(step), time.time())))

    def flush(self) -> None:
        """Pass all buffered events to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


@dataclass(frozen=True)
class Value:
    """One value read from an event file.

    Args:
        step: step number.
        wall_time: time at which the value was written, in seconds since 1970.
        tag: name of the value.
        plugin: name of the dashboard that shows the value.
        data: array of numbers, or of `bytes` objects for text.
        content: additional data for the dashboard.
    """

    step: int
    wall_time: float
    tag: str
    plugin: str
    data: Any
    content: bytes = b""  # the plugin's own data


def read(path: str | os.PathLike[str]) -> Iterator[Value]:
    """Read the values from a TensorBoard event file.

    Scalars in files written by TensorFlow 1 or PyTorch can be read too.

    Args:
        path: path of an event file, or of a folder, in which case all its event files are read.

    Yields:
        The values, in the order in which the file contains them.

    Raises:
        toile.errors.UnreadableFileError: the file is damaged or is not an event file.
    """
    if os.path.isdir(path):
        for name in sorted(n for n in os.listdir(path) if "tfevents" in n):
            yield from read(os.path.join(path, name))
        return
    plugins: dict[str, tuple[str, bytes]] = {}  # named by a tag's first value, not by all
    for number, record in enumerate(records.read(path)):
        where = f" (record {number} of {os.fspath(path)})"
        with guarded("read", "an event of TensorBoard", where):
            values = _values(record, plugins)
        yield from values


def _values(record: bytes, plugins: dict[str, tuple[str, bytes]]) -> list[Value]:
    """Decode the values of an event."""
    found = decode(record)
    (now,) = struct.unpack("<d", found[1][0]) if 1 in found else (0.0,)
    step = found.get(2, [0])[0]
    step -= (step >> 63) << 64  # two's complement
    return [
        _value(decode(value), step, now, plugins)
        for one in found.get(5, [])
        for value in decode(one).get(1, [])
    ]


def _value(
    fields: dict[int, list[Any]], step: int, now: float, plugins: dict[str, tuple[str, bytes]]
) -> Value:
    tag = fields[1][0].decode()
    if 9 in fields:
        data = decode(decode(fields[9][0]).get(1, [b""])[0])
        plugins[tag] = (data.get(1, [b""])[0].decode(), data.get(2, [b""])[0])
    plugin, content = plugins.get(tag, ("", b""))
    if 8 in fields:
        array = _array(decode(fields[8][0]))
    elif 2 in fields:
        array = np.array(struct.unpack("<f", fields[2][0])[0], np.float32)
        plugin = plugin or "scalars"
    else:
        array = None
    return Value(step, now, tag, plugin, array, content)


def _array(fields: dict[int, list[Any]]) -> np.ndarray:
    """Decode the array of a TensorProto."""
    dims = decode(fields.get(2, [b""])[0]).get(2, [])
    shape = tuple(decode(d).get(1, [0])[0] for d in dims)
    number = fields[1][0]
    dtype = np.dtype(object) if number == _STRING else _FROM_NUMBER[number]
    count = element_count("read", shape, dtype.itemsize)
    if number == _STRING:
        texts = fields.get(8, [])
        _check_content(len(texts), count, "texts")
        out = np.empty(count, object)
        out[:] = texts
        return out.reshape(shape)
    if 4 in fields or not count:
        data = fields.get(4, [b""])[0]
        _check_content(len(data), count * dtype.itemsize, "bytes")
        return check_values("read", np.frombuffer(data, dtype).reshape(shape))
    listed = _listed(fields, dtype)
    if listed.size == 1 and count <= _MOST_REPEATED:  # one number stands for all, as a view
        return np.broadcast_to(listed, shape)
    _check_content(listed.size, count, "numbers")
    return listed.reshape(shape)


def _check_content(have: int, needed: int, what: str) -> None:
    if have != needed:
        raise unreadable("read", f"{needed} {what} for a tensor's shape", str(have))


def _listed(fields: dict[int, list[Any]], dtype: np.dtype) -> np.ndarray:
    """Decode the numbers of a TensorProto that stores them in a field for their type."""
    for number, kind in ((5, np.float32), (6, np.float64)):
        if number in fields:
            return np.frombuffer(b"".join(fields[number]), kind).astype(dtype)
    raise unreadable("read", "a tensor's content", f"fields {sorted(fields)}"[:300])
