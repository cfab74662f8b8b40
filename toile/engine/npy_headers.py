"""The header of a .npy file, read only if the file is long enough to have it."""

from __future__ import annotations

import io
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

# For each version: the number of bytes of the header's length, and the header's reader.
_READERS = {(1, 0): (2, npy_format.read_array_header_1_0),
            (2, 0): (4, npy_format.read_array_header_2_0)}


def read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape of an array, whether its order is Fortran's, and its dtype.

    `size` is the number of bytes from here to the end of the file. NumPy would allocate as many
    bytes as the header claims to have. ValueError: the header is damaged, or its version is
    unknown.
    """
    version = npy_format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"a version of {version[0]}.{version[1]}")
    width, read = _READERS[version]
    prefix = file.read(width)
    length = int.from_bytes(prefix, "little")
    if length > size:
        raise ValueError(f"a header of {length} bytes, where {size} are left")
    return read(io.BytesIO(prefix + file.read(length)))
