"""The peak GPU memory that toile has used, measured in CuPy's memory pool.

jax reports its own peak. CuPy's pool reports only the memory that it holds, which includes memory
that has been freed.
"""

from __future__ import annotations

from typing import Any

_watches: list[Any] = []


def watch() -> None:
    """Count the memory that this thread allocates from now on."""
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
    """The peak of this thread since `watch` was called, plus what other threads use now."""
    import cupy

    pool = cupy.get_default_memory_pool()
    if not _watches:
        return pool.total_bytes()
    return _watches[0].peak + max(0, pool.used_bytes() - _watches[0].used)
