"""Arrays from buffers, text, files and other libraries, and back to files.

What is read becomes a concrete array at once. May import the engine and `creation`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import Array
from toile.engine.conversion import from_numpy, wrap
from toile.engine.gpu import shared
from toile.engine.promotion import narrowed
from toile.numpy.creation import asarray

__all__ = [
    "from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring", "load", "save", "savez",
]

save = np.save
savez = np.savez


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """A one-dimensional array of what a buffer holds."""
    return asarray(np.frombuffer(buffer, dtype=dtype, count=count, offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """A one-dimensional array of the numbers written in `string`."""
    return asarray(np.fromstring(string, dtype=dtype, count=count, sep=sep))


def _impure(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"jnp.{name}() is not implemented because reading it twice need not give the same values "
        f"(use jnp.asarray(np.{name}(...)) outside of transformed functions)"
    )


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Not available: see the error it raises."""
    raise _impure("fromfile")


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Not available: see the error it raises."""
    raise _impure("fromiter")


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array over the data of any object that supports DLPack."""
    if isinstance(x, Array):
        return asarray(x, copy=copy, device=device)
    on_gpu = shared(x)
    if on_gpu is not None:
        return asarray(wrap(on_gpu), copy=copy, device=device)
    values = np.from_dlpack(x)
    return from_numpy(np.asarray(values, narrowed(values.dtype)))


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """The array in a .npy file; a .npz file or pickled objects come as NumPy gives them."""
    # NumPy writes types it does not know, such as bfloat16, as two opaque bytes.
    loaded = np.load(file, *args, **kwargs)
    if not isinstance(loaded, np.ndarray) or loaded.dtype == object:
        return loaded
    if loaded.dtype == np.dtype("V2"):
        loaded = loaded.view(dtypes.bfloat16.dtype)
    return asarray(loaded)
