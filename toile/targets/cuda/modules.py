"""Compiles CUDA text to kernels and loads them as functions of the driver.

A text defines the work of one block (see `launches`). It becomes a kernel whose only argument is a
struct of words, passed by value: the arguments of one launch, or a table of several launches with
the first block and the arguments of each. Thus many small launches of one text become one. Kernels
that are in no cache are compiled by NVRTC, several at a time, and their machine code is kept on
disk, one file each.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import threading
import time
import weakref
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

from toile.disk import object_cache
from toile.targets.cuda.driver import driver

FORMAT = "2"  # part of keys on disk: change it whenever texts are compiled differently
MOST_WORDS = 500  # of a kernel's argument: 4 KB, which every driver accepts
ALONE = 64  # words of the argument, if a kernel serves a single launch

PRELUDE = """\
typedef long long Word;
typedef long long i64;
typedef unsigned long long u64;
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef unsigned int u32;
template <int N> struct Words { Word v[N]; };
"""

# A text may define BOUNDS: the threads of a block, and how many blocks a multiprocessor must hold.
_BOUNDS = """
#ifndef BOUNDS
#define BOUNDS THREADS
#endif
"""

# A kernel may be started early, before those end whose results it reads or whose memory it
# overwrites (see `GraphOrder`). It waits for these itself, unless its text does (see `text.READY`),
# and lets the next kernel start only then: if every kernel of a chain let the next one start at
# once, the waiting blocks of many kernels would take the multiprocessors of the one that runs.
_START = """
__device__ inline void start() {
#if __CUDA_ARCH__ >= 900
#ifndef READY
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
"""

# One launch: the arguments are the words themselves.
_ALONE = """
extern "C" __global__ void __launch_bounds__(BOUNDS) kernel(
    const __grid_constant__ Words<%d> w) {
  start();
  body(w.v, blockIdx.x);
}
"""

# Many: v[0] launches of v[1] words each; then their first blocks, and their arguments.
_MANY = """
extern "C" __global__ void __launch_bounds__(BOUNDS) kernel(
    const __grid_constant__ Words<%d> w) {
  start();
  int low = 0, high = (int)w.v[0];
  while (high - low > 1) {
    int middle = (low + high) >> 1;
    if ((Word)blockIdx.x >= w.v[2 + middle]) low = middle; else high = middle;
  }
  body(w.v + 2 + w.v[0] + low * w.v[1], blockIdx.x - (unsigned)w.v[2 + low]);
}
"""

_THREADS = re.compile(r"^#define THREADS (\d+)$", re.MULTILINE)
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_lock = threading.RLock()
_seconds: dict[str, float] = {}  # time of compiling, by the kernel's key
compiled_count = 0  # kernels that NVRTC compiled in this process


class Kernel(NamedTuple):
    """A text as a kernel for a single launch, or for many."""

    text: str
    many: bool = False

    @property
    def room(self) -> int:
        return MOST_WORDS if self.many else ALONE

    @property
    def source(self) -> str:
        """The source that NVRTC compiles."""
        wrapper = _MANY if self.many else _ALONE
        return PRELUDE + self.text + _BOUNDS + _START + wrapper % self.room


def combined(texts: Sequence[str]) -> str:
    """One text for the work of several texts, whose blocks have equally many threads. The first
    argument of a launch is the number of its text."""
    parts = []
    for i, text in enumerate(texts):
        names = sorted({*_DEFINED.findall(text)} - {"THREADS"})
        parts.append(f"namespace part{i} {{\n{text}}}\n"
                     + "".join(f"#undef {name}\n" for name in names))
    cases = "".join(f"    case {i}: part{i}::body(w + 1, block); break;\n"
                    for i in range(len(texts)))
    return (f"#define THREADS {threads_of(texts[0])}\n{''.join(parts)}"
            "__device__ void body(const Word* w, unsigned block) {\n"
            f"  switch ((int)w[0]) {{\n{cases}  }}\n}}\n")


def is_combinable(text: str) -> bool:
    """Whether `combined` accepts a text: one without the settings of a whole kernel."""
    return not {"BOUNDS", "READY"} & set(_DEFINED.findall(text)) and "extern" not in text


def threads_of(text: str) -> int:
    """The number of threads in a block of the kernel."""
    found = _THREADS.search(text)
    assert found is not None, "a kernel's text must define THREADS"
    return int(found[1])


def joined(launches: Sequence[tuple[int, Sequence[int]]]) -> tuple[bool, list[int], int]:
    """Launches (blocks, words) of one text as a single one: whether `many`, argument, blocks."""
    if len(launches) == 1 and len(launches[0][1]) <= ALONE:
        return False, list(launches[0][1]), launches[0][0]
    width = max(len(words) for _, words in launches)
    starts, table, total = [], [], 0
    for blocks, words in launches:
        starts.append(total)
        table += [*words, *[0] * (width - len(words))]
        total += blocks
    return True, [len(launches), width, *starts, *table], total


def capacity(width: int) -> int:
    """How many launches with `width` words each a kernel can serve."""
    return max(1, (MOST_WORDS - 2) // (width + 1))


# ---- compiling


@functools.cache
def _cache() -> object_cache.ObjectCache | None:
    return object_cache.from_environment()


@functools.cache
def _compiler_version() -> str:
    nvrtc = _nvrtc()
    return ".".join(map(str, nvrtc.getVersion()))


def _nvrtc() -> Any:
    try:
        from cupy.cuda import nvrtc
    except ImportError as error:
        raise ImportError(
            "toile: compiling for the GPU needs CuPy, which is not installed (python -m pip "
            "install 'toile[cuda13]', or 'toile[cuda12]' for a driver of CUDA 12)"
        ) from error
    return nvrtc


def key_of(kernel: Kernel, architecture: str) -> str:
    """The key of a kernel's machine code on disk."""
    parts = ("cuda", FORMAT, _compiler_version(), architecture, kernel.source)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_source(source: str, architecture: str) -> bytes:
    """Machine code for an architecture such as sm_90; any thread may call this."""
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        options = (f"-arch={architecture}", "-std=c++17", "--fmad=false",
                   "--device-as-default-execution-space")
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise RuntimeError(f"toile: NVRTC refused a kernel: {error}\n{log}\n{source}") from None
        return nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)


def _made(kernel: Kernel, architecture: str, key: str) -> bytes:
    global compiled_count
    started = time.perf_counter()
    cubin = compile_source(kernel.source, architecture)
    _seconds[key] = time.perf_counter() - started
    compiled_count += 1
    cache = _cache()
    if cache is not None:
        cache.put(key, cubin)
    return cubin


def users_code(source: str, architecture: str) -> bytes:
    """Machine code of a source that a user has written, from disk or compiled."""
    parts = ("user", FORMAT, _compiler_version(), architecture, source)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cache = _cache()
    code = cache.get(key) if cache is not None else None
    if code is None:
        code = compile_source(source, architecture)
        if cache is not None:
            cache.put(key, code)
    return code


def _all_made(missing: Sequence[Kernel], architecture: str, keys: dict[Kernel, str]
              ) -> dict[Kernel, bytes]:
    """Compile kernels in parallel, or one by one while the interpreter shuts down."""
    begun = []
    try:
        from concurrent.futures import ThreadPoolExecutor  # rarely needed; imports logging

        with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
            for k in missing:
                begun.append(pool.submit(_made, k, architecture, keys[k]))
    except RuntimeError:  # no threads can be started any more
        pass
    made = [x.result() for x in begun]
    made += [_made(k, architecture, keys[k]) for k in missing[len(made):]]
    return dict(zip(missing, made, strict=True))


class Loaded:
    """A kernel in the memory of a device; released when nothing holds a `Function` of it."""

    code_bytes = 0  # of all loaded kernels

    def __init__(self, device: Any, code: bytes):
        owner, nbytes = driver(), len(code)
        self.function = owner.load(code, "kernel")
        Loaded.code_bytes += nbytes
        # Not `__del__`: other threads can still get this object from `_known` while that runs.
        weakref.finalize(self, _released, nbytes, device, owner, self.function).atexit = False


def _released(nbytes: int, device: Any, owner: Any, function: int) -> None:
    """Record that a kernel is no longer used, so that `unload` frees its memory on the device."""
    if _freed is not None:  # None while the interpreter shuts down
        Loaded.code_bytes -= nbytes
        _freed.append((device, owner, function))


class Function(int):
    """A kernel's function, which stays loaded as long as this object exists."""

    loaded: Loaded

    @classmethod
    def of(cls, loaded: Loaded) -> Function:
        made = cls(loaded.function)
        made.loaded = loaded
        return made


_freed: list[tuple[Any, Any, int]] = []  # device, driver and function: to be unloaded


def unload() -> None:
    """Unload the kernels that are no longer used, after waiting for their devices."""
    with _lock:
        freed = [_freed.pop() for _ in range(len(_freed))]
        for device in {d for d, _, _ in freed}:
            with device.current():
                device.synchronize()
                for where, owner, function in freed:
                    if where is device:
                        owner.unload(function)


def functions(kernels: Iterable[Kernel], device: Any) -> dict[Kernel, Function]:
    """The functions of kernels on a device, which must be current; missing ones are compiled."""
    wanted = list(dict.fromkeys(kernels))
    architecture = device.architecture
    with _lock:
        held = {k: x for k in wanted if (x := _known.get((device, k))) is not None}
        keys = {k: key_of(k, architecture) for k in wanted if k not in held}
        if keys:
            unload()  # never during a capture, whose kernels are already loaded
        found: dict[Kernel, bytes] = {}
        cache = _cache()
        if cache is not None:
            for k, key in keys.items():
                code = cache.get(key)
                if code is not None:
                    found[k] = code
        missing = [k for k in keys if k not in found]
        if missing:
            found.update(_all_made(missing, architecture, keys))
        for k, code in found.items():
            held[k] = _known[device, k] = Loaded(device, code)
        return {k: Function.of(held[k]) for k in wanted}


def loaded(device: Any) -> set[Kernel]:
    """The kernels that a device has in memory."""
    return {kernel for where, kernel in list(_known) if where is device}


def compile_seconds(kernel: Kernel, architecture: str) -> float | None:
    """How long compiling a kernel took in this process; None if it was on disk."""
    return _seconds.get(key_of(kernel, architecture))


_known: MutableMapping[tuple[Any, Kernel], Loaded] = weakref.WeakValueDictionary()
