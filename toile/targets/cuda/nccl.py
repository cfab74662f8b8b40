"""NCCL through its C interface: communicators, and collectives on the streams of GPUs.

Each device of a group has a communicator; all of them create theirs at the same time from one id.
Calls put work on a stream and return; several between `start` and `end` are one operation. Tests
replace `functions`. NCCL allows one device per GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from toile.engine import dtypes
from toile.engine.exchange import Span
from toile.targets.cuda import libraries

ID_BYTES = 128


class UniqueId(ctypes.Structure):
    """Identifies a communicator to its devices; passed by value."""

    _fields_ = (("internal", ctypes.c_ubyte * ID_BYTES),)


_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "ncclGetUniqueId": (_POINTER,),
    "ncclCommInitRank": (_POINTER, _INT, UniqueId, _INT),
    "ncclCommAbort": (_POINTER,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    # source, target, count, type, (operation,) (peer,) communicator, stream
    "ncclAllReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclAllGather": (_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER),
    "ncclReduceScatter": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclSend": (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclRecv": (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
}
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
         "float32": 7, "float64": 8, "bfloat16": 9}  # fmt: skip
OPERATIONS = {"sum": 0, "max": 2, "min": 3}
_BYTES = TYPES["uint8"]
_STATUS = {1: "a CUDA error", 2: "a system error", 3: "an internal error",
           4: "an invalid argument", 5: "invalid usage (two devices on one GPU?)",
           6: "an error in another process, or a lost connection"}  # fmt: skip


def _status(code: int) -> str:
    return f"{_STATUS.get(code, 'unknown')} ({code}; NCCL_DEBUG=INFO says more)"


def functions() -> Any:
    """The functions of NCCL; if it is missing, LibraryError says what to install."""
    return libraries.Functions(libraries.load("nccl"), PROTOTYPES, _status)


def unique_id(calls: Any) -> bytes:
    """A new id, for one communicator."""
    made = UniqueId()
    calls.ncclGetUniqueId(ctypes.addressof(made))
    return bytes(made.internal)


def summand(kind: str, span: Span) -> tuple[int, int, int]:
    """Count, type and operation with which NCCL reduces a span.

    Complex numbers are added as pairs; the sum of booleans is their "or"."""
    name, count = dtypes.name_of(span.dtype), prod(span.shape)
    if name == "bool":
        return count, _BYTES, OPERATIONS["max" if kind == "sum" else kind]
    if name.startswith("complex"):
        return 2 * count, TYPES["float32" if name == "complex64" else "float64"], OPERATIONS[kind]
    return count, TYPES[name], OPERATIONS[kind]


class Communicator:
    """One device's part in a group; its GPU must be current when it is created and used."""

    def __init__(self, calls: Any, id: bytes, size: int, rank: int):
        self.calls, self.size, self.rank = calls, size, rank
        made = ctypes.c_void_p()
        given = UniqueId.from_buffer_copy(id)
        calls.ncclCommInitRank(ctypes.addressof(made), size, given, rank)
        self.handle = made.value

    def issue(
        self, kind: str, sources: Sequence[Span], targets: Sequence[Span],
        perm: Sequence[tuple[int, int]], stream: int,
    ) -> bool:
        """Put a collective (see `Exchange.issue`) on a stream; returns whether data arrives."""
        if kind in OPERATIONS:
            self._grouped([("ncclAllReduce", (x.address, y.address, *summand(kind, x)))
                           for x, y in zip(sources, targets, strict=True)], stream)
            return True
        (x,), (y,) = sources, targets
        if kind == "gather":
            self._grouped([("ncclAllGather", (x.address, y.address, _nbytes(x), _BYTES))], stream)
        elif kind == "scatter":
            count, code, operation = summand("sum", y)
            self._grouped([("ncclReduceScatter",
                            (x.address, y.address, count, code, operation))], stream)
        elif kind == "exchange":
            n = _nbytes(x) // self.size
            self._grouped([call for i in range(self.size) for call in (
                ("ncclSend", (x.address + i * n, n, _BYTES, i)),
                ("ncclRecv", (y.address + i * n, n, _BYTES, i)),
            )], stream)
        else:
            to = [("ncclSend", (x.address, _nbytes(x), _BYTES, b)) for a, b in perm
                  if a == self.rank]
            here = [("ncclRecv", (y.address, _nbytes(y), _BYTES, a)) for a, b in perm
                    if b == self.rank]
            self._grouped([*to, *here], stream)
            return bool(here)
        return True

    def _grouped(self, calls: Sequence[tuple[str, tuple[int, ...]]], stream: int) -> None:
        if len(calls) == 1:
            name, args = calls[0]
            getattr(self.calls, name)(*args, self.handle, stream)
        elif calls:
            self.calls.ncclGroupStart()
            try:
                for name, args in calls:
                    getattr(self.calls, name)(*args, self.handle, stream)
            finally:
                self.calls.ncclGroupEnd()

    def abort(self) -> None:
        """Abort running operations, which may be waiting for a device that has failed."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self.calls.ncclCommAbort(handle)


def _nbytes(x: Span) -> int:
    return prod(x.shape) * x.dtype.itemsize
