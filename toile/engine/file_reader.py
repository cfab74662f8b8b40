"""Helpers for readers of files: limits, checks, and one error for files that cannot be read.

A file may be damaged or malicious. Before a reader trusts a length, shape or count, it compares the
number with the bytes that are present, so that memory and time stay within a stated multiple of the
file's size. Whatever Python raises on damaged bytes becomes an `UnreadableFileError`. This module
may import only the engine's errors.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from toile.engine.errors import UnreadableFileError
from toile.engine.source import here

MAX_DEPTH = 128  # levels of nesting; functions that walk trees recurse at each
MAX_AXES = 64  # NumPy's limit
_LARGEST = 2**63
_LARGEST_BYTES: dict[Any, int] = {np.dtype(bool): 1} | {
    np.dtype(getattr(ml_dtypes, name)): 2**bits - 1
    for name, bits in [
        ("int1", 1), ("uint1", 1), ("int2", 2), ("uint2", 2), ("int4", 4), ("uint4", 4),
        ("float4_e2m1fn", 4), ("float6_e2m3fn", 6), ("float6_e3m2fn", 6),
    ]
    if hasattr(ml_dtypes, name)
}  # fmt: skip

# Errors that damaged bytes cause in Python, NumPy and the standard library. MemoryError is not
# among them: sizes are compared with the file's before allocation, so a MemoryError is genuine.
_DAMAGE: tuple[type[Exception], ...] = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, RuntimeError,
    SyntaxError, struct.error,
)  # fmt: skip


def unreadable(reader: str, needed: str, got: str, hint: str = "") -> UnreadableFileError:
    """The error of a reader: what it needed, what the file has, and what to do about it."""
    tail = f" ({hint})" if hint else ""
    return UnreadableFileError(f"{reader}: needed {needed}, got {got}{tail}{here()}")


@contextlib.contextmanager
def guarded(
    reader: str, needed: str, where: str = "", also: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn errors that damaged bytes raise within the block into an UnreadableFileError.

    `where` names the file, for errors that do not name it themselves.
    """
    try:
        yield
    except UnreadableFileError as error:
        message, line, place = str(error).partition("\n")
        if where.strip(" ()") in message:
            raise
        raise UnreadableFileError(f"{message}{where}{line}{place}") from error.__cause__
    except _DAMAGE + also as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        got = f"one that is truncated, corrupted or of another format{where}"
        raise unreadable(reader, needed, f"{got}: {reason}") from error


def element_count(reader: str, shape: Any, itemsize: int) -> int:
    """The number of elements of a shape read from a file, which must be a valid array shape."""
    fits = isinstance(shape, (list, tuple)) and len(shape) <= MAX_AXES
    fits = fits and all(type(n) is int and 0 <= n < _LARGEST for n in shape)
    if fits and math.prod(n for n in shape if n) * max(itemsize, 1) < _LARGEST:
        return math.prod(shape)
    raise unreadable(
        reader, f"a shape of at most {MAX_AXES} sizes, whose bytes can be counted", brief(shape)
    )


def check_values(reader: str, x: np.ndarray) -> np.ndarray:
    """The array, after a check that its bytes are values of its dtype.

    Booleans are bytes of 0 and 1 (compiled code relies on it), numbers of fewer than eight bits
    have zeros in the high bits, characters are valid Unicode.
    """
    most = _LARGEST_BYTES.get(x.dtype)
    if most is None and x.dtype.kind != "U":
        return x
    codes = np.ascontiguousarray(x).reshape(-1).view(np.uint8 if most is not None else np.uint32)
    most = 0x10FFFF if most is None else most
    found = int(codes.max()) if codes.size else 0
    if found > most:
        raise unreadable(reader, f"values of {x.dtype} of at most {most:#x}", f"{found:#x}")
    return x


def brief(x: Any) -> str:
    """A short text for a value from a file, however large or deeply nested the value is."""
    if isinstance(x, (str, bytes)):
        return f"{x[:60]!r}" + f"... of length {len(x)}" * (len(x) > 60)
    if type(x) is int and abs(x) >= 2**128:
        return f"an integer of {x.bit_length()} bits"
    if x is None or isinstance(x, (bool, int, float, complex, np.dtype)):
        return repr(x)
    if isinstance(x, (list, tuple)) and len(x) <= MAX_AXES and all(type(n) is int for n in x):
        return f"{type(x).__name__} of " + ", ".join(brief(n) for n in x) if x else f"{x!r}"
    if isinstance(x, (Mapping, Sequence, set, frozenset)):
        return f"a {type(x).__name__} of {len(x)}"
    return f"a {type(x).__name__}"
