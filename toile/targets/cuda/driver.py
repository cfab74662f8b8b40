"""The CUDA driver: the lowest layer of the GPU backend, which tests can replace.

`Driver` loads machine code, launches kernels, captures and launches graphs, and copies memory,
through the C interface of libcuda (a call costs about 1 us; CuPy's own launch costs 8). Devices,
contexts and memory belong to CuPy: its pool grows on demand and is shared with other users of CuPy.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from toile.targets.cuda import starting
from toile.targets.cuda.presence import driver_count as device_count
from toile.targets.cuda.presence import driver_library as library
from toile.targets.cuda.presence import wait_until

Word = ctypes.c_int64
_HANDLE = ctypes.c_void_p
_RELAXED = 2  # capture mode: other threads may continue to allocate
# The types of arguments, one letter each.
_TYPES = {"P": _HANDLE, "i": ctypes.c_int, "I": ctypes.c_uint, "L": ctypes.c_uint64,
          "N": ctypes.c_size_t, "B": ctypes.c_ubyte}
_CALLS = {"cuModuleLoadData": "PP", "cuModuleGetFunction": "PPP", "cuModuleUnload": "P",
          "cuLaunchKernel": "PIIIIIIIPPP", "cuFuncSetAttribute": "Pii",
          "cuStreamBeginCapture_v2": "Pi", "cuStreamEndCapture": "PP",
          "cuGraphInstantiateWithFlags": "PPL", "cuGraphLaunch": "PP", "cuGraphDestroy": "P",
          "cuGraphExecDestroy": "P", "cuGraphGetNodes": "PPP", "cuStreamSynchronize": "P",
          "cuStreamQuery": "P", "cuMemcpyDtoDAsync_v2": "PPNP", "cuMemcpyHtoDAsync_v2": "PPNP",
          "cuMemcpyDtoHAsync_v2": "PPNP", "cuGetErrorName": "iP", "cuGetErrorString": "iP",
          "cuDeviceGetCount": "P", "cuInit": "P", "cuDriverGetVersion": "P", "cuEventCreate": "PI",
          "cuEventDestroy_v2": "P", "cuEventRecordWithFlags": "PPI", "cuEventElapsedTime": "PPP",
          "cuStreamWaitEvent": "PPI", "cuMemsetD8Async": "PBNP", "cuPointerGetAttribute": "PiP",
          "cuGraphNodeGetType": "PP", "cuCtxGetDevice": "P", "cuDeviceGetAttribute": "Pii"}
# Functions for conditional nodes, which older drivers lack.
_LATER = {"cuGraphConditionalHandleCreate": "PPPII", "cuGraphAddNode_v2": "PPPPNP",
          "cuStreamGetCaptureInfo_v3": "PPPPPPP", "cuStreamBeginCaptureToGraph": "PPPPNI",
          "cuStreamUpdateCaptureDependencies_v2": "PPPNI", "cuStreamCreate": "PI",
          "cuCtxGetCurrent": "P"}
_SINCE = (12040, 12080)  # first driver versions with IF and WHILE, and with SWITCH
_KERNEL, _CONDITIONAL = 0, 13  # CU_GRAPH_NODE_TYPE_...
_REPLACE = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES
# CUgraphEdgeData: CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, port 0, and
# CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, a byte each.
_EARLY = 1 | 1 << 16
_CAPABILITY = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_HOPPER = 9
_NON_BLOCKING = 1  # streams: not ordered with the default one
IF, WHILE, SWITCH = 0, 1, 2  # kinds of conditional nodes
_EXTERNAL = 1  # of records: a node of the graph, not a dependency within the capture
_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MEMORY_TYPE = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
_SHARED_OF_BLOCK = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
SHARED_OF_HOPPER = 227 << 10  # bytes of shared memory
_SHARED_OF_ALL = 48 << 10  # bytes that are available without asking

_INVALID_VALUE, OUT_OF_MEMORY = 1, 2  # error codes


class NodeParams(ctypes.Structure):
    """CUgraphNodeParams of a conditional node."""

    _fields_: ClassVar = [
        ("node_type", ctypes.c_int), ("reserved", ctypes.c_int * 3),
        ("condition", ctypes.c_uint64), ("kind", ctypes.c_int), ("count", ctypes.c_uint),
        ("graphs", ctypes.POINTER(_HANDLE)), ("context", _HANDLE),
        ("padding", ctypes.c_int64 * 26),
    ]


class CudaError(RuntimeError):
    """A call of the driver failed."""

    def __init__(self, call: str, code: int, text: str):
        super().__init__(f"CUDA: {call} failed with {text} ({code})")
        self.code = code


class Driver:
    """Calls of libcuda, with error checks."""

    def __init__(self) -> None:
        found = library()
        if found is None:
            raise RuntimeError(
                "toile: needed the NVIDIA driver (libcuda), found none (install the driver, or "
                "set TOILE_PLATFORM=cpu)"
            )
        self.calls: dict[str, Any] = {}
        self._bind(found, _CALLS)
        self.launch_kernel = self.calls["cuLaunchKernel"]
        self.graph_launch = self.calls["cuGraphLaunch"]
        self.copy_from_host = self.calls["cuMemcpyHtoDAsync_v2"]
        self.pointer_attribute = self.calls["cuPointerGetAttribute"]
        self._unread = ctypes.c_uint()
        self._asked = _HANDLE(ctypes.addressof(self._unread)), ctypes.c_int(_MEMORY_TYPE)
        self._allowed: dict[int, int] = {}  # bytes of dynamic shared memory, by function
        self._allowing = threading.Lock()
        self._modules: dict[int, Any] = {}  # by function
        self._generations: dict[int, int] = {}  # of GPUs, by number: their compute capability

    def _bind(self, found: Any, table: dict[str, str]) -> None:
        for name, types in table.items():
            function = getattr(found, name)
            function.argtypes = [_TYPES[x] for x in types]
            function.restype = ctypes.c_int
            self.calls[name] = function

    def check(self, call: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self.calls["cuGetErrorName"](code, ctypes.addressof(text))
            name = (text.value or b"an unknown error").decode()
            self.calls["cuGetErrorString"](code, ctypes.addressof(text))
            raise CudaError(call, code, f"{name}: {(text.value or b'').decode()}")

    def _do(self, call: str, *args: Any) -> None:
        code = self.calls[call](*args)
        if code:
            self.check(call, code)

    def _new(self, call: str, *args: Any) -> int:
        """The value that a call writes through its first argument."""
        made = _HANDLE()
        self._do(call, ctypes.addressof(made), *args)
        return made.value or 0

    # ---- code
    def load(self, cubin: bytes, name: str) -> int:
        """Load the function of a cubin; it stays loaded until `unload`."""
        module, function = _HANDLE(), _HANDLE()
        self._do("cuModuleLoadData", ctypes.addressof(module), cubin)
        self._do("cuModuleGetFunction", ctypes.addressof(function), module, name.encode())
        self._modules[function.value or 0] = module
        return function.value or 0

    def unload(self, function: int) -> None:
        """Unload a function that is not running; its device must be current."""
        with self._allowing:
            self._allowed.pop(function, None)
        self._do("cuModuleUnload", self._modules.pop(function))

    def allow_shared(self, function: int, nbytes: int) -> None:
        """Allow a function more than 48 KiB of dynamic shared memory.

        Launches of several sizes share a function: it keeps the largest size requested."""
        with self._allowing:
            if nbytes > self._allowed.get(function, 0):
                self._do("cuFuncSetAttribute", function, _SHARED_BYTES, nbytes)
                self._allowed[function] = nbytes

    def launch(
        self, function: int, blocks: int, threads: int, shared: int, stream: int, words: Any
    ) -> None:
        """Launch with one argument: a struct of 64-bit words, which is copied immediately."""
        argument = ctypes.c_void_p(ctypes.addressof(words))
        code = self.launch_kernel(
            function, blocks, 1, 1, threads, 1, 1, shared, stream, ctypes.addressof(argument), None
        )
        if code:
            self.check("cuLaunchKernel", code)

    def launch_with(self, function: int, sizes: Sequence[int], shared: int, stream: int,
                    arguments: Any) -> None:
        """Launch with separate arguments, given by their addresses; `sizes` are those of the grid
        and of a block."""
        code = self.launch_kernel(function, *sizes, shared, stream, ctypes.addressof(arguments),
                                  None)
        if code:
            self.check("cuLaunchKernel", code)

    def launcher(
        self, function: int, blocks: int, threads: int, shared: int, stream: int, words: Any
    ) -> Callable[[], None]:
        """`launch` with these arguments, prepared: the words are read in each call."""
        argument = ctypes.c_void_p(ctypes.addressof(words))
        where, start = ctypes.c_void_p(ctypes.addressof(argument)), self.launch_kernel
        sizes = [ctypes.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1, shared)]
        given = (_HANDLE(function), *sizes, _HANDLE(stream), where, None)

        def launch(kept: Any = (argument, words)) -> None:
            code = start(*given)
            if code:
                self.check("cuLaunchKernel", code)

        return launch

    # ---- memory
    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._do("cuMemcpyDtoDAsync_v2", target, source, nbytes, stream)

    def upload(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy from host memory, which has been read when this returns.

        The driver reads memory that it knows (page-locked, as a loader's batches may be) only when
        the stream gets there: this waits for it. Other memory is read at once."""
        code = self.copy_from_host(target, source, nbytes, stream)
        if code:
            self.check("cuMemcpyHtoDAsync_v2", code)
        if self.pointer_attribute(*self._asked, source) != _INVALID_VALUE:
            self._do("cuStreamSynchronize", stream)

    def download(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy to host memory and wait. Not interruptible, since the target might then be freed."""
        self.synchronize(stream)
        self._do("cuMemcpyDtoHAsync_v2", target, source, nbytes, stream)
        self._do("cuStreamSynchronize", stream)

    def clear(self, target: int, nbytes: int, stream: int) -> None:
        """Set bytes to 0."""
        self._do("cuMemsetD8Async", target, 0, nbytes, stream)

    def synchronize(self, stream: int) -> None:
        """Wait for the work on a stream; Ctrl-C ends the wait."""
        wait_until(functools.partial(self.calls["cuStreamQuery"], stream))
        self._do("cuStreamSynchronize", stream)

    def wait(self, stream: int, other: int) -> None:
        """Make later work on a stream wait for the present work of another stream of the GPU."""
        event = self.event()
        self.record(event, other)
        self._do("cuStreamWaitEvent", stream, event, 0)
        self.forget_event(event)  # takes effect once it has occurred

    # ---- times
    def event(self) -> int:
        """A new event, which can be recorded on a stream and then has a time."""
        return self._new("cuEventCreate", 0)

    def record(self, event: int, stream: int, captured: bool = False) -> None:
        """Record an event after the work on the stream; if `captured`, as a node of the graph."""
        self._do("cuEventRecordWithFlags", event, stream, _EXTERNAL if captured else 0)

    def elapsed(self, first: int, second: int) -> float:
        """Seconds between two events that have occurred."""
        found = ctypes.c_float()
        self._do("cuEventElapsedTime", ctypes.addressof(found), first, second)
        return found.value / 1e3

    def forget_event(self, event: int) -> None:
        self._do("cuEventDestroy_v2", event)

    # ---- graphs
    def begin_capture(self, stream: int) -> None:
        starting.wait()
        self._do("cuStreamBeginCapture_v2", stream, _RELAXED)

    def end_capture(self, stream: int) -> int:
        """End the capture; the graph of what was issued on the stream since its beginning."""
        graph = _HANDLE()
        self._do("cuStreamEndCapture", stream, ctypes.addressof(graph))
        return graph.value or 0

    def abandon_capture(self, stream: int) -> None:
        """End a capture that failed; errors are ignored."""
        graph = _HANDLE()
        self.calls["cuStreamEndCapture"](stream, ctypes.addressof(graph))
        if graph.value:
            self.calls["cuGraphDestroy"](graph)

    # ---- conditional nodes
    @functools.cached_property
    def conditionals(self) -> int:
        """The last kind of conditional nodes that the driver supports; -1: none."""
        version = ctypes.c_int()
        self._do("cuDriverGetVersion", ctypes.addressof(version))
        found = library()
        if version.value < _SINCE[0] or any(not hasattr(found, name) for name in _LATER):
            return -1
        self._bind(found, _LATER)
        return SWITCH if version.value >= _SINCE[1] else WHILE

    def new_stream(self) -> int:
        """A stream for capturing bodies; it is never destroyed."""
        return self._new("cuStreamCreate", _NON_BLOCKING)

    def _context(self) -> Any:
        found = _HANDLE()
        self._do("cuCtxGetCurrent", ctypes.addressof(found))
        return found

    def _captured(self, stream: int) -> tuple[Any, Any, Any, Any]:
        """The graph being captured on a stream, and its last nodes with their edges, until the next
        call in the same thread."""
        self._do("cuStreamGetCaptureInfo_v3", stream, *_capture.places)
        return _capture.found

    # ---- the order of captured nodes
    def last_nodes(self, stream: int) -> tuple[int, ...]:
        """The nodes that the next work captured on a stream will wait for."""
        _, nodes, _, count = self._captured(stream)
        found = _handles(count.value).from_address(nodes.value) if count.value else ()
        return tuple(found)

    def wait_for_nodes(self, stream: int, nodes: Sequence[int], early: bool = False) -> None:
        """Let the next work captured on a stream wait for these nodes, and for no others.

        early: it is a kernel that may be started before these kernels end, because it waits for
        their end itself (see `modules`)."""
        held = _handles(len(nodes))(*nodes)
        edges = (ctypes.c_uint64 * len(nodes))(*[_EARLY] * len(nodes)) if early else None
        self._do("cuStreamUpdateCaptureDependencies_v2", stream,
                 ctypes.addressof(held) if nodes else None,
                 ctypes.addressof(edges) if edges else None, len(nodes), _REPLACE)

    def is_kernel(self, node: int) -> bool:
        """Whether a node of a graph is a kernel."""
        found = ctypes.c_int()
        self._do("cuGraphNodeGetType", node, ctypes.addressof(found))
        return found.value == _KERNEL

    def starts_early(self) -> bool:
        """Whether kernels in a graph of the current device may be started before those that they
        wait for end."""
        device = ctypes.c_int()
        self._do("cuCtxGetDevice", ctypes.addressof(device))
        if device.value not in self._generations:
            found = ctypes.c_int()
            self._do("cuDeviceGetAttribute", ctypes.addressof(found), _CAPABILITY, device.value)
            self._generations[device.value] = found.value
        return self.conditionals >= 0 and self._generations[device.value] >= _HOPPER

    def condition(self, stream: int) -> int:
        """A new value for a conditional node of the graph being captured."""
        made = ctypes.c_uint64()
        graph = self._captured(stream)[0]
        self._do("cuGraphConditionalHandleCreate", ctypes.addressof(made), graph, self._context(),
                 0, 0)
        return made.value

    def branch(self, stream: int, condition: int, kind: int, count: int) -> list[int]:
        """Add a conditional node to the graph being captured; returns its empty body graphs."""
        graph, nodes, edges, before = self._captured(stream)
        params = NodeParams(node_type=_CONDITIONAL, condition=condition, kind=kind, count=count,
                            context=self._context())
        node = _HANDLE()
        self._do("cuGraphAddNode_v2", ctypes.addressof(node), graph, nodes, edges, before,
                 ctypes.addressof(params))
        self._do("cuStreamUpdateCaptureDependencies_v2", stream, ctypes.addressof(node), None, 1,
                 _REPLACE)
        return [params.graphs[i] or 0 for i in range(count)]

    def begin_body(self, stream: int, graph: int) -> None:
        """Capture what is issued on a stream into a body graph."""
        self._do("cuStreamBeginCaptureToGraph", stream, graph, None, None, 0, _RELAXED)

    def end_body(self, stream: int) -> None:
        """End that capture; the graph belongs to its node."""
        self.end_capture(stream)

    def abandon_body(self, stream: int) -> None:
        """End that capture after a failure; errors are ignored."""
        graph = _HANDLE()
        self.calls["cuStreamEndCapture"](stream, ctypes.addressof(graph))

    # ---- running graphs
    def instantiate(self, graph: int) -> int:
        """An executable graph; the graph it is made from is destroyed."""
        try:
            return self._new("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self.calls["cuGraphDestroy"](graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        code = self.graph_launch(graph, stream)
        if code:
            self.check("cuGraphLaunch", code)

    def destroy(self, graph: int) -> None:
        self._do("cuGraphExecDestroy", graph)


class _Capture(threading.local):
    """Memory for the driver's answers about a capture; it is kept, since every node asks."""

    def __init__(self) -> None:
        self.status, count = ctypes.c_int(), ctypes.c_size_t()
        self.found = _HANDLE(), _HANDLE(), _HANDLE(), count
        self.places = (ctypes.addressof(self.status), None, *map(ctypes.addressof, self.found))


_capture = _Capture()


@functools.cache
def _handles(count: int) -> Any:
    """The type of an array of handles."""
    return _HANDLE * count


@functools.cache
def _words(count: int) -> Any:
    """The type of an array of words; cached, because each type is a reference cycle."""
    return Word * count


def words_of(values: Sequence[int], room: int = 0) -> Any:
    """64-bit words as a C array, padded to `room` words; values above 2**63 - 1 wrap."""
    made = _words(max(len(values), room, 1))()
    for i, v in enumerate(values):
        made[i] = v if v < 1 << 63 else v - (1 << 64)
    return made


def shared_limit() -> int:
    """Bytes of shared memory that a block may have on the current GPU.

    If no GPU is current, this is the limit of all GPUs here; if there is none, that of Hopper."""
    found: Any = library()
    count, current = device_count(), ctypes.c_int()
    if not count:
        return SHARED_OF_HOPPER
    if found.cuCtxGetDevice(_HANDLE(ctypes.addressof(current))):  # there is none
        return min(map(_shared_of, range(count)))
    return _shared_of(current.value)


@functools.cache
def _shared_of(device: int) -> int:
    """The same for a GPU given by its number."""
    found: Any = library()
    value = ctypes.c_int()
    code = found.cuDeviceGetAttribute(
        _HANDLE(ctypes.addressof(value)), _SHARED_OF_BLOCK, device)
    return _SHARED_OF_ALL if code else value.value


_driver: Any = None


def driver() -> Any:
    """The driver of this process; tests replace it with `use`."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver


def use(other: Any) -> Any:
    """Replace the driver; returns the previous one."""
    global _driver
    before, _driver = _driver, other
    return before


__all__ = ["IF", "SWITCH", "WHILE", "CudaError", "Driver", "device_count", "driver", "library",
           "shared_limit", "use", "words_of"]
