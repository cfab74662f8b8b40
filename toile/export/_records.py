"""The records that an exported function consists of, and their bytes.

The bytes consist of a header (magic, format number, length, checksum) and data, which contains
numbers, text and the records of this module, but no code. Records refer only to records before
them, so cycles are impossible. The format number is increased when earlier versions of toile cannot
read new files. Files with smaller format numbers can always be read.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, NamedTuple

from toile.disk.plan_data import decode, encode
from toile.disk.plan_schema import Damaged, Record, Schema, Unencodable
from toile.engine.errors import UnreadableFileError
from toile.engine.source import here

FORMAT = 1
_MAGIC = b"\x89toile\r\n"
_HEADER = struct.Struct("<8sIQ32s")  # magic, format, length of the content, checksum


class Size(NamedTuple):
    """An integer that depends on the dimension variables."""

    text: str


class Number(NamedTuple):
    """The value of a literal that depends on the dimension variables."""

    text: str


class AvalData(NamedTuple):
    """The type of an array; sizes are integers or `Size`."""

    shape: tuple
    dtype: Any
    weak: bool


class ConstantData(NamedTuple):
    """An array: its type and its elements as bytes, in C order."""

    aval: AvalData
    content: Any


class Member(NamedTuple):
    """A member of an enumeration."""

    kind: str
    name: str


class Named(NamedTuple):
    """A function of toile."""

    name: str


class Fields(NamedTuple):
    """An operation, or an object among its parameters: its class and its fields."""

    kind: str
    names: tuple
    values: tuple


class EquationData(NamedTuple):
    """An equation. Its operands are indices of variables, or -1 - i for literal i.

    The results get the next indices. Their types are inferred by the operation."""

    op: Fields
    ins: tuple
    scope: tuple


class ProgramData(NamedTuple):
    """A Program. Its inputs are the variables 0, 1, ..."""

    name: str
    inputs: tuple
    literals: tuple
    equations: tuple
    outputs: tuple


class TreeData(NamedTuple):
    """The structure of a tree: the kind of its root, the root's data, and its children."""

    kind: str
    data: Any
    children: tuple


class ExportData(NamedTuple):
    """An exported function."""

    name: str
    program: ProgramData
    constants: tuple
    in_tree: TreeData
    out_tree: TreeData
    out_avals: tuple
    labels: tuple  # names of the arguments, for messages
    in_specs: tuple  # the entries of partition specs, or None
    out_specs: tuple
    variables: tuple
    constraints: tuple
    platforms: tuple
    checks: tuple
    devices: int
    wide: bool  # traced with 64-bit types
    vjp_order: int


_TYPES: dict[str, dict[str, str]] = {
    "Size": {"text": "str"},
    "Number": {"text": "str"},
    "AvalData": {"shape": "tuple[int | Size, ...]", "dtype": "dtype", "weak": "bool"},
    "ConstantData": {"aval": "AvalData", "content": "bytes | Number"},
    "Member": {"kind": "str", "name": "str"},
    "Named": {"name": "str"},
    "Fields": {"kind": "str", "names": "tuple[str, ...]", "values": "tuple[data, ...]"},
    "EquationData": {"op": "Fields", "ins": "tuple[int, ...]", "scope": "tuple[str, ...]"},
    "ProgramData": {
        "name": "str", "inputs": "tuple[AvalData, ...]", "literals": "tuple[ConstantData, ...]",
        "equations": "tuple[EquationData, ...]", "outputs": "tuple[int, ...]"},
    "TreeData": {"kind": "str", "data": "data", "children": "tuple[TreeData, ...]"},
    "ExportData": {
        "name": "str", "program": "ProgramData", "constants": "tuple[ConstantData, ...]",
        "in_tree": "TreeData", "out_tree": "TreeData", "out_avals": "tuple[AvalData, ...]",
        "labels": "tuple[str, ...]", "in_specs": "tuple[data, ...]",
        "out_specs": "tuple[data, ...]",
        "variables": "tuple[str, ...]", "constraints": "tuple[str, ...]",
        "platforms": "tuple[str, ...]", "checks": "tuple[str, ...]", "devices": "int",
        "wide": "bool", "vjp_order": "int"},
}
# The order is part of the format.
_SCHEMA = Schema([Record(__name__, name, types=types) for name, types in _TYPES.items()],
                 arrays=False)


class Wrong(ValueError):
    """A part of a record makes no sense; `unreadable` completes the message."""


def wrong(what: str) -> Wrong:
    """Return the error for a record that contains `what`."""
    return Wrong(what)


def to_bytes(exported: ExportData) -> bytearray:
    """Convert an exported function to bytes."""
    try:
        content = encode(exported, _SCHEMA)
    except Unencodable as error:
        raise ValueError(
            "Exported.serialize: needed a function whose operations are data, got "
            f"{exported.name}, but {error} (nest fewer transformations){here()}") from None
    head = _HEADER.pack(_MAGIC, FORMAT, len(content), _checksum(FORMAT, content))
    return bytearray(head + content)


def _checksum(version: int, content: bytes) -> bytes:
    return hashlib.sha256(_MAGIC + struct.pack("<IQ", version, len(content)) + content).digest()


def from_bytes(blob: bytes, what: str) -> ExportData:
    """Read an exported function from bytes; `what` describes their origin in errors."""
    data = bytes(blob)
    if len(data) < _HEADER.size or data[:len(_MAGIC)] != _MAGIC:
        raise unreadable(what, "it does not begin like the result of Exported.serialize()")
    _, version, length, checksum = _HEADER.unpack_from(data)
    if version > FORMAT:
        raise unreadable(what, f"it has format {version}, and this version of toile reads "
                         f"formats up to {FORMAT}", "install a newer version of toile")
    content = data[_HEADER.size:]
    if version < 1 or length != len(content):
        raise unreadable(what, f"it has {len(content)} bytes of content, and its header says "
                         f"{length}")
    if _checksum(version, content) != checksum:
        raise unreadable(what, "its checksum is wrong")
    try:
        found = decode(content, _SCHEMA)
    except Damaged as error:
        raise unreadable(what, str(error)) from None
    if not isinstance(found, ExportData):
        raise unreadable(what, f"it holds a {type(found).__name__}")
    return found


def unreadable(what: str, problem: str, advice: str = "export the function again"
               ) -> UnreadableFileError:
    """Return the error for bytes that are not an exported function."""
    return UnreadableFileError(
        f"{what}: needed an exported function of toile, but {problem} ({advice}){here()}")
