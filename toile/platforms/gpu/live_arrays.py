"""The arrays in a GPU's memory, and the user's lines that created them, found on demand.

The memory of a result carries a `Made`, set when it is allocated: which Program's result it was
first, with the line and the module of the equation. Operations outside `jit` have no traced
equation: their large results record the line that called them. Uploaded arrays are found by their
address. Everything else is found by going through the interpreter's objects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from toile.engine import source
from toile.engine.arrays import ConcreteArray
from toile.engine.avals import Aval
from toile.engine.sharded import Sharded, held
from toile.platforms.gpu.devices import LARGE, DeviceMemory, is_gpu_data, uploads
from toile.platforms.origins import Made, results_of


def noted(made: Made, nbytes: int) -> Made:
    """The `Made` of a result; with the caller's line for large results outside `jit`."""
    if made.source is not None or nbytes < LARGE:
        return made
    path = source.module_path().strip().removeprefix("in module ")
    return made._replace(source=source.user_source(2), scope=made.scope or path)


class Buffer(NamedTuple):
    """Bytes in use on a GPU."""

    nbytes: int
    what: str  # dtype and shape
    made: Made


def live_arrays(objects: Iterable[Any] | None = None) -> list[Buffer]:
    """Arrays in use on GPUs, the largest first."""
    arrays: dict[int, tuple[Aval, int]] = {}
    memories: dict[int, DeviceMemory] = {}
    for x in gc.get_objects() if objects is None else objects:
        kind = type(x)
        if kind is DeviceMemory:
            memories[x.start] = x
        elif issubclass(kind, ConcreteArray) and not x.is_deleted():
            for data in held(x) if issubclass(kind, Sharded) else [x._data]:
                if is_gpu_data(data):
                    arrays[data.data.ptr] = x.aval, data.nbytes
    found = [Buffer(n, aval.str_short(), _maker(at, n, memories))
             for at, (aval, n) in arrays.items()]
    return sorted(found, key=lambda b: -b.nbytes)


def _maker(address: int, nbytes: int, memories: dict[int, DeviceMemory]) -> Made:
    memory = memories.get(address)
    if memory is not None and memory.made is not None:
        return memory.made
    size, line = uploads.get(address, (0, None))
    if memory is None and size == nbytes:
        return Made("a copy from the host", source=line)
    return Made("something else than toile" if memory is None else "toile")


def constants_of(executables: Sequence[Any]) -> list[Buffer]:
    """The constants that compiled Programs keep."""
    found = []
    for x in executables:
        for _, array in list(x.kept):
            what = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            found.append(Buffer(array.nbytes, what, Made("a constant", x.program.name)))
    return found


__all__ = ["Buffer", "Made", "constants_of", "live_arrays", "noted", "results_of"]
