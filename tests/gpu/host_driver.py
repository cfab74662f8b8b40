"""A driver whose device is the host: the seam below which tests of whole programs need no GPU.

Machine code is the text itself, run by `fibers`; memory is NumPy's; a graph is what was issued
while capturing, done again when it is launched, in a random order that its edges allow. A
conditional node is a function that does the graphs of its bodies by a number that kernels write.
"""

import contextlib
import ctypes
import random
import threading
import time
import weakref

import numpy as np
import pytest

from tests.gpu import emulator, fibers
from tests.gpu.fake_libraries import FakeCublas
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile.compiler.compilation import compile_program
from toile.compiler.index_tests import tested
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array
from toile.engine.program import closed, trace_program
from toile.engine.trees import flatten
from toile.platforms.gpu.execution import Executable
from toile.platforms.gpu.index_words import report
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import cublas, cudnn, cufft, cusolver
from toile.targets.cuda import driver as driver_module
from toile.targets.cuda import modules as kernels


class HostMemory:
    """Bytes that arrays lie in."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.bytes = np.full(nbytes + 256, 0xA5, np.uint8)
        self.start = -(-self.bytes.ctypes.data // 256) * 256

    def array(self, shape, dtype, offset):
        first = self.start - self.bytes.ctypes.data + offset
        return np.ndarray(shape, dtype, self.bytes, first)


class HostDevice:
    """What the backend asks of a device."""

    platform, architecture, processors, id = "gpu", "sm_90", 132, 0
    device_kind = "the host"
    stream, capture_stream = 7, 8

    def __init__(self):
        self.lock = threading.RLock()
        self.allocated = self.trimmed = 0
        self.tested = set()

    def current(self):
        return contextlib.nullcontext()

    def synchronize(self):
        report(self.tested)

    def host_words(self, count):
        memory, start = self.allocate(4 * count)
        return memory.array((count,), np.int32, 0), start, memory

    def trim(self):
        self.trimmed += 1

    def allocate(self, nbytes):
        self.allocated += nbytes
        memory = HostMemory(nbytes)
        return memory, memory.start

    def memory_stats(self):
        return {"bytes_in_use": self.allocated, "bytes_limit": 1 << 40}


class Graph:
    """What was captured: pieces of work, and the earlier ones that each waits for."""

    def __init__(self):
        self.work, self.needed = [], []
        self.last = ()  # what the next piece waits for
        self.early = False  # whether the next piece is started before what it waits for ends
        self.kernels, self.started_early = set(), set()  # handles

    def append(self, work, kernel=False):
        assert kernel or not self.early, "only toile's own kernels wait for others themselves"
        self.work.append(work)
        self.needed.append(self.last)
        self.last = (len(self.work),)  # a handle is not 0
        if kernel:
            self.kernels.add(len(self.work))
        if self.early:
            self.started_early.add(len(self.work))
        self.early = False

    def run(self, random):
        """Do the work in any order that the graph allows."""
        missing = [len(set(needed)) for needed in self.needed]
        after = [[] for _ in self.work]
        for i, needed in enumerate(self.needed):
            for n in set(needed):
                after[n - 1].append(i)
        ready = [i for i, n in enumerate(missing) if not n]
        while ready:
            i = ready.pop(random.randrange(len(ready)))
            self.work[i]()
            for j in after[i]:
                missing[j] -= 1
                if not missing[j]:
                    ready.append(j)


class HostDriver:
    """Does at once, or records while capturing, what the driver is asked."""

    def __init__(self):
        self.sources = []
        self.capturing = []  # streams with what was issued on them, the innermost last
        self.graphs = {}
        self.times = []  # of events
        self.launched = self.graphs_launched = 0
        self.conditionals = driver_module.SWITCH
        self.conditions = []  # the numbers
        self.streams = 100
        self.shared = {}  # bytes of shared memory that functions were allowed
        self.random = random.Random(0)  # chooses an order in which a graph's nodes run

    @property
    def recording(self):
        """What is captured now, innermost; None: nothing is."""
        return self.capturing[-1][1] if self.capturing else None

    def _do(self, work, stream=None, kernel=False):
        if self.recording is not None:
            assert stream in (None, self.capturing[-1][0]), "a stream that is not captured"
            self.recording.append(work, kernel)
        else:
            work()

    def load(self, code, name):
        self.sources.append(code.decode())
        return len(self.sources)

    def unload(self, function):
        assert self.sources[function - 1] is not None, "it was unloaded before"
        self.sources[function - 1] = None

    def allow_shared(self, function, nbytes):
        self.shared[function] = max(nbytes, self.shared.get(function, 0))

    def launch(self, function, blocks, threads, shared, stream, words):
        assert shared <= self.shared.get(function, 48 << 10), "more shared memory than allowed"
        given = list(words)
        source = self.sources[function - 1]
        text, wrapper = source.removeprefix(kernels.PRELUDE).rsplit('\nextern "C"', 1)
        assert threads == kernels.threads_of(text)
        assert "__ldg(" not in text or not (self.recording and self.recording.early), (
            "the compiler may move such reads before the wait")
        self.launched += 1
        if "while (high" not in wrapper:
            self._do(lambda: fibers.execute(emulator.on_host(text), given, blocks), stream, True)
            return
        count, width = given[0], given[1]
        starts = [*given[2 : 2 + count], blocks]
        for i in range(count):
            first = 2 + count + i * width
            part, many = given[first : first + width], starts[i + 1] - starts[i]
            code = emulator.on_host(text)
            self._do(lambda part=part, many=many, code=code: fibers.execute(code, part, many),
                     stream, True)

    def launcher(self, *given):
        return lambda: self.launch(*given)

    def copy(self, target, source, nbytes, stream):
        self._do(lambda: ctypes.memmove(target, source, nbytes), stream)

    def upload(self, target, source, nbytes, stream):
        assert self.recording is None, "a graph cannot wait for the host"
        ctypes.memmove(target, source, nbytes)

    download = upload

    def synchronize(self, stream):
        assert self.recording is None, "a graph cannot wait for the host"

    def clear(self, target, nbytes, stream):
        self._do(lambda: ctypes.memset(target, 0, nbytes), stream)

    def wait(self, stream, other):
        pass  # all that was asked for is done

    def begin_capture(self, stream):
        assert not self.capturing
        self.capturing.append((stream, Graph()))

    def last_nodes(self, stream):
        assert stream == self.capturing[-1][0]
        return self.recording.last

    def wait_for_nodes(self, stream, nodes, early=False):
        assert stream == self.capturing[-1][0]
        assert all(0 < n <= len(self.recording.work) for n in nodes)
        assert not early or all(map(self.is_kernel, nodes))
        self.recording.last, self.recording.early = tuple(nodes), early

    def starts_early(self):
        return True

    def is_kernel(self, node):
        return node in self.recording.kernels

    def end_capture(self, stream):
        (ended, work), = self.capturing
        assert ended == stream
        self.capturing.clear()
        self.graphs[len(self.graphs) + 1] = work
        return len(self.graphs)

    def abandon_capture(self, stream):
        assert len(self.capturing) < 2, "a body is still captured"
        self.capturing.clear()

    def new_stream(self):
        self.streams += 1
        return self.streams

    def condition(self, stream):
        assert stream == self.capturing[-1][0]
        self.conditions.append(ctypes.c_uint(0xA5A5))
        return ctypes.addressof(self.conditions[-1])

    def branch(self, stream, condition, kind, count):
        assert stream == self.capturing[-1][0] and kind <= self.conditionals
        assert count == 1 or kind == driver_module.SWITCH
        value = ctypes.c_uint.from_address(condition)
        bodies = [Graph() for _ in range(count)]

        def decide():
            if kind == driver_module.WHILE:
                while value.value:
                    bodies[0].run(self.random)
            elif kind == driver_module.IF and value.value:
                bodies[0].run(self.random)
            elif kind == driver_module.SWITCH and value.value < count:
                bodies[value.value].run(self.random)

        self.recording.append(decide)
        return bodies

    def begin_body(self, stream, graph):
        assert not graph.work and stream not in [s for s, _ in self.capturing]
        self.capturing.append((stream, graph))

    def end_body(self, stream):
        assert self.capturing.pop()[0] == stream and self.capturing

    abandon_body = end_body

    def event(self):
        self.times.append(None)
        return len(self.times) - 1

    def record(self, event, stream, captured=False):
        assert captured == (self.recording is not None) and len(self.capturing) < 2
        self._do(lambda: self.times.__setitem__(event, time.process_time()))

    def elapsed(self, first, second):
        return self.times[second] - self.times[first]

    def forget_event(self, event):
        self.times[event] = None

    def instantiate(self, graph):
        return graph

    def launch_graph(self, graph, stream):
        self.graphs_launched += 1
        self.graphs[graph].run(self.random)

    def destroy(self, graph):
        del self.graphs[graph]
        self.graphs[graph] = None


INVALID_VALUE = 1  # of codes


def _number(x):
    return getattr(x, "value", x)


class CudaLibrary:
    """libcuda below a true `Driver`, as far as shared memory and copies from the host go.

    limits: bytes of shared memory that a block may have, of each GPU. A copy of what is in `locked`
    (first and last address) is made when its stream is waited for, that of other memory at once.
    Calls without a meaning here succeed; kernels are not run."""

    def __init__(self, *limits):
        self.limits = limits
        self.functions, self.locked, self.later, self.names = {}, [], [], []
        self.allowed = {}  # bytes of dynamic shared memory, by function
        self.current = None  # the GPU

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        meaning = getattr(CudaLibrary, f"_{name.removesuffix('_v2')}", lambda *_: 0)

        def function(*args):
            self.names.append(name)
            return meaning(self, *map(_number, args))

        setattr(self, name, function)
        return function

    def _cuCtxGetDevice(self, device):
        if self.current is None:
            return 201  # CUDA_ERROR_INVALID_CONTEXT
        ctypes.c_int.from_address(device).value = self.current
        return 0

    def _cuDeviceGetAttribute(self, found, attribute, device):
        if self.limits[device] is None:
            return INVALID_VALUE
        assert attribute == 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        ctypes.c_int.from_address(found).value = self.limits[device]
        return 0

    def _cuModuleLoadData(self, module, code):
        made = self.functions.setdefault(code, len(self.functions) + 1)
        ctypes.c_void_p.from_address(module).value = made
        return 0

    def _cuModuleGetFunction(self, function, module, name):
        ctypes.c_void_p.from_address(function).value = module
        return 0

    def _cuFuncSetAttribute(self, function, attribute, value):
        if attribute != 8 or value > self.limits[0]:
            return INVALID_VALUE
        self.allowed[function] = value
        return 0

    def _cuLaunchKernel(self, function, *args):
        return INVALID_VALUE if args[6] > self.allowed.get(function, 48 << 10) else 0

    def _is_locked(self, address):
        return any(first <= address <= last for first, last in self.locked)

    def _cuPointerGetAttribute(self, found, attribute, address):
        if attribute != 2 or not self._is_locked(address):
            return INVALID_VALUE
        ctypes.c_uint.from_address(found).value = 1  # CU_MEMORYTYPE_HOST
        return 0

    def _cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        copy = lambda: ctypes.memmove(target, source, nbytes)
        if self._is_locked(source):
            self.later.append(copy)
        else:
            copy()
        return 0

    def _cuStreamSynchronize(self, stream):
        while self.later:
            self.later.pop(0)()
        return 0


@contextlib.contextmanager
def cuda_library(monkeypatch, *limits):
    """A true `Driver` over a library that is not there."""
    found = CudaLibrary(*limits)
    monkeypatch.setattr(driver_module, "library", lambda: found)
    monkeypatch.setattr(driver_module, "device_count", lambda: len(limits))
    driver_module._shared_of.cache_clear()
    before = driver_module.use(driver_module.Driver())
    try:
        yield found
    finally:
        driver_module.use(before)
        driver_module._shared_of.cache_clear()


class RecordedCublas:
    """cuBLAS on host memory; while capturing, products wait for the graph, numbers do not."""

    def __init__(self, driver):
        self.driver, self.library = driver, FakeCublas()

    def __getattr__(self, name):
        call = getattr(self.library, name)

        def issued(*args):
            if self.driver.recording is None or "Gemm" not in name:
                return call(*args)
            args = list(args)
            for i in (6, 15 if "Strided" in name else 13):  # alpha and beta are read now
                held = ctypes.create_string_buffer(ctypes.string_at(args[i], 8), 16)
                args[i] = ctypes.addressof(held)
                self.driver.recording.append(lambda held=held: held)
            self.driver.recording.append(lambda: call(*args))

        return issued


@contextlib.contextmanager
def host_gpu(monkeypatch):
    """A device on the host, in place of a GPU."""
    made = HostDriver()
    device = HostDevice()
    before = driver_module.use(made)
    monkeypatch.setattr(kernels, "compile_source", lambda source, architecture: source.encode())
    monkeypatch.setattr(kernels, "_compiler_version", lambda: "host")
    monkeypatch.setattr(kernels, "_cache", lambda: None)
    monkeypatch.setattr(kernels, "_known", weakref.WeakValueDictionary())
    blas = cublas.Blas(RecordedCublas(made), None, 4096)
    monkeypatch.setattr(cublas, "blas", lambda: blas)
    if not cudnn.ENGINES.used:  # that of a GPU that may be there
        monkeypatch.setattr(cudnn.ENGINES, "used", [None])
    monkeypatch.setattr(cufft.ENGINES, "used", [FakeCufft(made)])
    monkeypatch.setattr(cusolver.ENGINES, "used", [FakeCusolver(made)])
    try:
        yield made, device
    finally:
        driver_module.use(before)


def compiled(program, device):
    """The executable of a Program on a host device."""
    tests = tested(program)
    plan = compile_program(program if tests is None else tests.keeping(), TARGET)
    return Executable(plan.given, plan, device, None, tests)


def run(executable, raws, device):
    """The results of one call, as NumPy arrays."""
    held = [np.ascontiguousarray(x) for x in raws]
    memory = [device.allocate(n) for n in executable.out_bytes]
    executable.run([x.ctypes.data for x in held] + [p for _, p in memory])
    return [m.array(shape, dtype, 0).copy()
            for (m, _), (shape, dtype) in zip(memory, executable.out_specs, strict=True)]


def results_of(fun, args):
    """The flat results of a function, planned for a GPU: of a second call, which is a graph."""
    leaves = [as_array(x) for x in args]

    def flat(*xs):
        return [as_array(o) for o in flatten(fun(*xs))[0]]

    program = closed(*trace_program(flat, [aval_of(x) for x in leaves], "program"))
    with pytest.MonkeyPatch.context() as patches, host_gpu(patches) as (_, device):
        executable = compiled(program, device)
        run(executable, [x._data for x in leaves], device)
        return run(executable, [x._data for x in leaves], device)
