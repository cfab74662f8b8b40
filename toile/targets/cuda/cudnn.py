"""cuDNN through its frontend: turns descriptions of graphs into plans that run on raw pointers.

A description is a frozen value that says everything but addresses; it adds itself to a graph of the
frontend. Plans are cached in memory by device and description, and on disk in the frontend's
serialized form. Only deterministic engines are used: the first in the library's heuristic order
that can be built. Nothing is timed.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from toile.compiler.ir.operands import Ref
from toile.disk import object_cache
from toile.targets.cuda import libraries, starting
from toile.targets.cuda.engines import Engines, warn_once
from toile.targets.cuda.launches import Call, Pointers

FORMAT = "2"  # of keys on disk
LEAST_FRONTEND = (1, 9)
TYPES = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16",
    "int32": "INT32", "int64": "INT64", "bool": "BOOLEAN", "int8": "INT8", "uint8": "UINT8",
}  # fmt: skip


class Unsupported(Exception):
    """No engine supports a description."""


@dataclass(frozen=True)
class Tensor:
    """Extents, strides in elements, and the name of a dtype."""

    dim: tuple[int, ...]
    stride: tuple[int, ...]
    type: str


class Description(Protocol):
    """A graph: equal descriptions have equal plans."""

    name: str

    def add(self, cudnn: Any, graph: Any) -> None:
        """Add tensors (numbered) and operations to a graph of the frontend."""

    def left_out(self) -> tuple[str, ...]:
        """Notes of engines that must not be used."""


class BuiltPlan(Protocol):
    """A graph with an engine."""

    workspace: int  # bytes

    def execute(self, pointers: Mapping[int, int], workspace: int, stream: int) -> None:
        """Issue it; `pointers` are given by the numbers of the tensors."""


class Engine(Protocol):
    """Turns descriptions into plans."""

    def plan(self, description: Any) -> BuiltPlan:
        """The plan of a description; raises Unsupported."""


RESULTS = {"fprop": "y", "dgrad": "x", "wgrad": "w"}  # by kind of convolution
NUMBERS = {"x": 1, "w": 2, "y": 3}  # tensor numbers


@dataclass(frozen=True)
class Convolution:
    """y = x * w with groups, or the gradient of x (dgrad) or w (wgrad), given that of y.

    Dims are (images, channels, spatial...), (features, channels of a group, spatial...) and
    (images, features, spatial...)."""

    kind: str
    x: Tensor
    w: Tensor
    y: Tensor
    low: tuple[int, ...]
    high: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    tf32: bool = True

    @property
    def name(self) -> str:
        return self.kind

    def add(self, cudnn: Any, graph: Any) -> None:
        """Add the convolution node."""
        result = RESULTS[self.kind]
        given = inputs(cudnn, graph, NUMBERS, [
            (name, getattr(self, name)) for name in "xwy" if name != result])
        method, names = {
            "fprop": (graph.conv_fprop, {"image": "x", "weight": "w"}),
            "dgrad": (graph.conv_dgrad, {"loss": "y", "filter": "w"}),
            "wgrad": (graph.conv_wgrad, {"image": "x", "loss": "y"}),
        }[self.kind]
        wide = "float64" if self.x.type == "float64" else "float32"
        out = method(
            **{key: given[name] for key, name in names.items()}, pre_padding=list(self.low),
            post_padding=list(self.high), stride=list(self.stride), dilation=list(self.dilation),
            compute_data_type=data_type(cudnn, wide))  # fmt: skip
        output(cudnn, out, getattr(self, result), NUMBERS[result])

    def left_out(self) -> tuple[str, ...]:
        """Nondeterminism, and low precision: half for float32 operands, or sums in half."""
        notes = ["NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION"]
        if self.x.type in ("float32", "float64"):
            notes.append("DOWN_CONVERT_INPUTS")
            if not self.tf32:
                notes.append("TENSOR_CORE")
        return tuple(notes)


def data_type(cudnn: Any, name: str) -> Any:
    """The frontend's name for a dtype."""
    return getattr(cudnn.data_type, TYPES[name])


def inputs(
    cudnn: Any, graph: Any, numbers: Mapping[str, int], tensors: Iterable[tuple[str, Tensor]]
) -> dict[str, Any]:
    """The input tensors of a graph, by name."""
    return {name: graph.tensor(name=name, dim=list(t.dim), stride=list(t.stride),
                               uid=numbers[name], data_type=data_type(cudnn, t.type))
            for name, t in tensors}


def output(cudnn: Any, made: Any, tensor: Tensor, number: int) -> None:
    """Declare a result of a node."""
    made.set_output(True)
    made.set_uid(number)
    made.set_dim(list(tensor.dim))
    made.set_stride(list(tensor.stride))
    made.set_data_type(data_type(cudnn, tensor.type))


# ---- the frontend
class FrontendPlan:
    """A built graph of the frontend; `kept` is its description, if it came from disk."""

    def __init__(self, owner: Frontend, graph: Any, kept: Any = None):
        self.owner, self.graph, self.kept = owner, graph, kept
        self.workspace = max(int(graph.get_workspace_size()), 0)

    def execute(self, pointers: Mapping[int, int], workspace: int, stream: int) -> None:
        """Issue the plan."""
        with self.owner.lock:
            try:
                self._issue(pointers, workspace, stream)
            except Exception:
                if self.kept is None or not self._rebuilt():
                    raise
                self._issue(pointers, workspace, stream)

    def _issue(self, pointers: Mapping[int, int], workspace: int, stream: int) -> None:
        owner = self.owner
        if stream != owner.stream:
            owner.cudnn.set_stream(handle=owner.handle, stream=stream)
            owner.stream = stream
        self.graph.execute(dict(pointers), workspace, handle=owner.handle)

    def _rebuilt(self) -> bool:
        """Build a plan from disk again because it could not run; returns whether that succeeded."""
        self.owner.forget(self.kept)
        made = self.owner.built(self.kept)
        self.kept = None
        if made is None or made.workspace > self.workspace:
            return False
        self.graph = made.graph
        return True


class Frontend:
    """The frontend with a handle on one device, and the plans built there."""

    def __init__(self, cudnn: Any, device: str, cache: Any, ordinal: int | None = None):
        self.cudnn, self.device, self.cache = cudnn, device, cache
        self.handle = handle_of(cudnn, ordinal)
        self.stream: int | None = None
        self.lock = threading.RLock()
        self.plans: dict[Any, FrontendPlan | None] = {}

    def plan(self, description: Any) -> FrontendPlan:
        """The plan of a description, from memory, from disk, or newly built."""
        with self.lock:
            if description not in self.plans:
                self.plans[description] = self._loaded(description) or self.built(description)
            found = self.plans[description]
        if found is None:
            raise Unsupported(description)
        return found

    def _key(self, description: Any) -> str:
        parts = ("cudnn", FORMAT, str(self.cudnn.__version__), str(self.cudnn.backend_version()),
                 self.device, repr(description))  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _loaded(self, description: Any) -> FrontendPlan | None:
        data = self.cache.get(self._key(description)) if self.cache is not None else None
        if data is None:
            return None
        try:
            self._leave_stream()
            graph = self.cudnn.pygraph(handle=self.handle)
            graph.deserialize(self.handle, data)
            return FrontendPlan(self, graph, description)
        except Exception:  # of another driver or library: ignore it
            self.forget(description)
            return None

    def _leave_stream(self) -> None:
        """Set the handle to the default stream: building a plan queries the handle's stream, and
        that of the last plan may have been destroyed."""
        if self.stream:
            self.cudnn.set_stream(handle=self.handle, stream=0)
            self.stream = 0

    def forget(self, description: Any) -> None:
        """Remove a plan from disk."""
        if self.cache is not None:
            self.cache.remove(self._key(description))

    def built(self, description: Any) -> FrontendPlan | None:
        """A newly built plan, also stored on disk; None if no engine supports it."""
        cudnn = self.cudnn
        self._leave_stream()
        float_type = cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            name=description.name, intermediate_data_type=float_type,
            compute_data_type=float_type, handle=self.handle)  # fmt: skip
        description.add(cudnn, graph)
        notes = [getattr(cudnn.numerical_note, n) for n in description.left_out()
                 if hasattr(cudnn.numerical_note, n)]
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            if notes:
                graph.deselect_numeric_notes(notes)
            graph.check_support()
            graph.build_plans()
            built = FrontendPlan(self, graph)
        except (cudnn.cudnnGraphNotSupportedError, NotImplementedError, RuntimeError, ValueError):
            return None
        self._keep(description, graph)
        return built

    def _keep(self, description: Any, graph: Any) -> None:
        if self.cache is None:
            return
        try:
            data = graph.serialize()
        except Exception:  # engines that cannot be serialized are built in each process
            return
        self.cache.put(self._key(description), bytes(data))


def handle_of(cudnn: Any, ordinal: int | None) -> Any:
    """A handle on the current device. The frontend's own function imports NVIDIA's Python bindings
    only to ask for the current device."""
    if ordinal is None or not hasattr(cudnn, "Handle"):
        return cudnn.create_handle()
    made = ctypes.c_void_p()
    status = libraries.load("cudnn").cudnnCreate(ctypes.byref(made))
    if status:
        raise RuntimeError(f"cudnnCreate failed with status {status}")
    return cudnn.Handle(made.value, ordinal, 0)


# What toile uses of the frontend.
_USED = ("pygraph", "data_type", "heur_mode", "numerical_note", "create_handle", "set_stream",
         "backend_version", "cudnnGraphNotSupportedError")


def _damaged(problem: str) -> str:
    return (f"toile: needed nvidia-cudnn-frontend, found a package `cudnn` that does not work "
            f"({problem}): pip install --force-reinstall nvidia-cudnn-frontend")


def frontend() -> tuple[Any, str]:
    """The frontend and "", or None and the reason why it cannot be used."""
    try:
        libraries.load("cudnn")
    except libraries.LibraryError as error:
        return None, str(error)
    try:
        import cudnn
    except (ImportError, OSError) as error:
        return None, (f"toile: needed nvidia-cudnn-frontend, found none ({error}): "
                      f"{libraries.extra()}")
    except Exception as error:  # whatever a damaged package raises
        return None, _damaged(repr(error))
    try:
        version = tuple(int(n) for n in cudnn.__version__.split(".")[:2])
        for name in _USED if version >= LEAST_FRONTEND else ():
            getattr(cudnn, name)
    except (AttributeError, ValueError) as error:
        return None, _damaged(str(error))
    if version < LEAST_FRONTEND:
        return None, (f"toile: needed nvidia-cudnn-frontend >= {'.'.join(map(str, LEAST_FRONTEND))}"
                      f", found {cudnn.__version__}: pip install -U nvidia-cudnn-frontend")
    return cudnn, ""


_INSTEAD = "convolutions and attention use toile's own kernels, which are slower"


def make() -> Any:
    """The engine of the current device, or None if there is no cuDNN."""
    starting.wait()
    found, problem = frontend()
    if found is None:
        warn_once(problem, _INSTEAD)
        return None
    import cupy

    device = cupy.cuda.Device()
    properties = cupy.cuda.runtime.getDeviceProperties(device.id)
    name = f"{properties['name']!r} {device.compute_capability}"
    try:
        return Frontend(found, name, object_cache.from_environment(), device.id)
    except RuntimeError as error:  # no handle: the driver is too old for this cuDNN
        supported = ".".join(map(str, libraries.driver_version() or ()))
        warn_once(f"toile: needed a driver that supports cuDNN {found.backend_version()}, found "
                  f"one for CUDA {supported} ({error}): install a newer driver, or an older cuDNN "
                  "with pip install 'nvidia-cudnn-cu12<=9.10'", _INSTEAD)
        return None


ENGINES = Engines(make)
engine, use = ENGINES.current, ENGINES.use


@dataclass(frozen=True)
class GraphCall(Call):
    """A plan on buffers: `places` has addresses of tensors by number; it writes `results`."""

    description: Any
    places: tuple[tuple[int, Ref], ...]
    results: tuple[int, ...]
    workspace: Ref | None
    note: str = field(default="cuDNN", compare=False)
    shared = 1  # the handle

    @property
    def reads(self) -> frozenset[Any]:
        return self._buffers(lambda n: n not in self.results)

    @property
    def writes(self) -> frozenset[Any]:
        return self._buffers(lambda n: n in self.results)

    def _buffers(self, wanted: Callable[[int], bool]) -> frozenset[Any]:
        """The buffers of some tensors, and the workspace."""
        room = () if self.workspace is None else (self.workspace,)
        return frozenset(r.buffer for r in (*(r for n, r in self.places if wanted(n)), *room))

    @property
    def room(self) -> int:
        """The bytes of workspace that it needs."""
        return engine().plan(self.description).workspace

    def prepare(self) -> None:
        """Build the plan; must not be called during a capture."""
        engine().plan(self.description)

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the plan."""
        self.issue(engine(), pointer, stream)

    def issue(self, on: Any, pointer: Pointers, stream: int) -> None:
        """Issue the plan with an engine."""
        at = {number: pointer(ref) for number, ref in self.places}
        room = 0 if self.workspace is None else pointer(self.workspace)
        on.plan(self.description).execute(at, room, stream)


def call(description: Any, places: Mapping[int, Ref], results: tuple[int, ...], plan: Any,
         note: str, built: BuiltPlan) -> None:
    """Add the call of a plan, with its workspace."""
    room = plan.scratch(built.workspace) if built.workspace else None
    plan.call(GraphCall(description, tuple(places.items()), results, room, note))
