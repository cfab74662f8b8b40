"""The most memory of a GPU that toile had in use at one time, as CuPy's pool gave it out.

jax tells its own peak; CuPy's pool tells what it holds, which includes what is free again.
"""

from __future__ import annotations

from typing import Any

_watches: list[Any] = []


def watch() -> None:
    """Count what this thread allocates from now on."""
    import cupy

    class Watch(cupy.cuda.MemoryHook):
        name = "peak"
        used = peak = 0

        def malloc_postprocess(self, **kwargs: Any) -> None:
            self.used += kwargs["mem_size"]
            self.peak = max(self.peak, self.used)

        def free_postprocess(self, **kwargs: Any) -> None:
            self.used -= kwargs["mem_size"]

    _watches.append(Watch())
    _watches[0].__enter__()


def peak_bytes() -> int:
    """The peak since `watch`, with what other threads have now."""
    import cupy

    pool = cupy.get_default_memory_pool()
    if not _watches:
        return pool.total_bytes()
    return _watches[0].peak + max(0, pool.used_bytes() - _watches[0].used)
