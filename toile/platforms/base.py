"""A platform: a kind of device, its buffers, and how operations and Programs run there.

To add one, subclass `Platform` (and `Device`, and `ArrayElsewhere`), and pass an instance to
`engine.platform_registry.registry.add`; the built-in platforms are in `platforms.__init__`. Only
the methods that raise here are required: the others have defaults that are correct everywhere, and
can be overridden for speed. docs/extending.md adds a small platform. This module may import the
engine.
"""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from toile.engine.arrays import FAST_OPERATORS, ConcreteArray, DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.buffers import Placement, signature
from toile.engine.conversion import as_array, placed, placed_by_default, wrap_aval
from toile.engine.devices import Device
from toile.engine.operation import Operation, infer_list
from toile.engine.out_of_bounds import Bounds
from toile.engine.platform_registry import FEW, default_device, device_of, platform_of
from toile.engine.program import Equation, Literal, Program, Var
from toile.engine.sharded import Sharded, filled, gathered, layout, own_places, through_operations
from toile.engine.shardings import Sharding
from toile.engine.source import here
from toile.engine.value_ranges import non_finite_host

MOST = 4096  # Programs of a single operation that are cached


class Platform:
    """One kind of device. The buffers of the CPU's platform are NumPy arrays."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    # The class of arrays whose buffer is on this platform, and the class of such arrays when
    # sharded. A platform that defines them late has None until it has a device, and then adds the
    # first to `engine.platform_registry.array_platforms` itself.
    array: Any = None
    sharded: Any = None
    # Whether new arrays are placed here by default, if there is a device.
    is_default: ClassVar[bool] = False
    # What an error says is needed when there is no device.
    needs: ClassVar[str] = "a device of this platform"

    # ---- devices
    def devices(self) -> tuple[Device, ...]:
        """The devices of this process; none if the platform cannot be used."""
        raise NotImplementedError(f"{type(self).__name__}.devices{here()}")

    def all_devices(self) -> tuple[Device, ...]:
        """The devices of all processes."""
        return self.devices()

    def require(self) -> tuple[Device, ...]:
        """The devices; raises an error if there are none."""
        found = self.devices()
        if not found:
            raise RuntimeError(
                f"Unknown backend: '{self.name}' requested, but no platforms that are instances of "
                f"{self.name} are present: needed {self.needs} (`python -m toile.doctor` checks "
                f"this machine){here()}"
            )
        return found

    def usable(self) -> int:
        """How many hardware devices this process could use."""
        return 0

    def use(self, numbers: Sequence[int]) -> None:
        """Use only the hardware with these numbers; call this before any is used."""

    def join(self, index: int, names: Sequence[Sequence[str]]) -> None:
        """Make this process number `index` of several; `names` are those of each one's hardware."""

    def leave(self) -> None:
        """Make this process the only one again."""

    # ---- buffers
    def owns(self, kind: type) -> bool:
        """Whether buffers of this class belong to this platform."""
        raise NotImplementedError(f"{type(self).__name__}.owns{here()}")

    def device_of(self, data: Any) -> Device:
        """The device that holds a buffer."""
        raise NotImplementedError(f"{type(self).__name__}.device_of{here()}")

    def get(self, data: Any) -> Any:
        """The values of a buffer as a NumPy array, once all work on it has finished."""
        raise NotImplementedError(f"{type(self).__name__}.get{here()}")

    def non_finite(self, arrays: Sequence[Any]) -> list[tuple[bool, bool]]:
        """Whether each array contains a NaN, and whether it contains an infinity."""
        return [non_finite_host(self.get(x._data)) for x in arrays]

    def all_finite(self, arrays: Sequence[Any]) -> bool:
        """Whether no array contains a NaN or an infinity."""
        return not any(map(any, self.non_finite(arrays)))

    def wrap(self, data: Any, weak_type: bool) -> Any:
        """An array that holds this buffer."""
        return self.array(data, weak_type)

    def converted(self, data: Any, dtype: Any, copy: bool) -> Any:
        """The buffer with another dtype; a copy if the dtype is the same and `copy` is true."""
        return self.device_of(data).put(self.get(data).astype(dtype, copy=copy))

    def address(self, data: Any) -> tuple[Any, int]:
        """The elements of a buffer in row-major order, and their address. Only compiled code that
        has an exit (see `exit_of`) needs this."""
        raise NotImplementedError(f"{type(self).__name__}.address{here()}")

    def block(self, data: Any) -> Any:
        """The memory of an array's buffer as a block (see `engine.buffers`), which a result may
        overwrite when the array is donated; None if something else may refer to the memory."""
        return None

    def joined(self, parts: Sequence[Any], aval: Aval, sharding: Sharding) -> Any:
        """All parts of an array in one buffer, on the primary device of the first part."""
        device = next(iter(own_places(sharding, aval.shape))).primary
        if sharding.is_fully_replicated:
            return device.put(parts[0])
        return device.put(filled([self.get(p) for p in parts], aval, sharding, np.empty))

    def placed_by_default(self, x: Any) -> Any:
        """A new array on the host, moved to the default device if it is large."""
        device = default_device()
        return x if device is None or x.size <= FEW else placed(x, device)

    def from_dlpack(self, x: Any) -> Any:
        """A buffer that shares memory with a DLPack object; None if it is not of this platform."""
        return None

    # ---- operations outside jit
    def run_eagerly(self, op: Operation, args: Sequence[Any]) -> Any:
        """The results of an operation, or NotImplemented if it should not run here."""
        arrays = [a if isinstance(a, ConcreteArray) else as_array(a) for a in args]
        device = self.device_for(op, arrays)
        if device is None:
            return NotImplemented
        fixed = [x.__class__ is DeviceArray and not x.shape for x in arrays]
        program = _program(op, arrays, fixed)
        raws = [placed(x, device)._data for x, f in zip(arrays, fixed, strict=True) if not f]
        results = self.run(program, raws, device)
        wrap = layout(op, arrays) or wrap_aval
        outs = [wrap(r, o.aval) for r, o in zip(results, program.outputs, strict=True)]
        if wrap is wrap_aval:
            self.has_run(op, args, program, device)
        return outs if op.multiple else outs[0]

    def device_for(self, op: Operation, arrays: Sequence[Any]) -> Any:
        """The device that an operation runs on; None if it should not run on this platform.

        An operation runs here if an operand is here, or if the default device is here and the
        operands or results are large; everything else runs on the host."""
        for x in arrays:
            if isinstance(x, ConcreteArray):
                owner = platform_of(x._data)
                if owner is not None:
                    return owner.device_of(x._data) if owner is self else None
        default = default_device()
        if default is None or default.platform != self.name or any(
            getattr(x, "committed", False) for x in arrays
        ):
            return None
        made = getattr(op, "shape", ())
        sizes = [math.prod(made) if isinstance(made, tuple) else 0, *(x.size for x in arrays)]
        return default if max(sizes) > FEW else None

    def has_run(self, op: Operation, args: Sequence[Any], program: Program, device: Any) -> None:
        """Called after an operation has run on these operands, to prepare for the next time."""

    def quickly(self, op: Operation, args: Sequence[Any]) -> Any:
        """Run an operation with code prepared for operands of these types and shapes; return
        NotImplemented if there is none."""
        return NotImplemented

    def unary(self, op: Operation, x: Any) -> Any:
        """Apply an operation to one array of this platform, whose dtype it accepts."""
        return op(x)

    def called(self, fun: Callable[..., Any], x: Any, *args: Any) -> Any:
        """`fun(x, *args)` for an array of this platform. `args` are hashable and equal ones are
        interchangeable, so that a platform may cache what such calls do."""
        return fun(x, *args)

    def check_indices(self, x: Any, bounds: Bounds) -> None:
        """Report indices (an array of this platform) that are out of bounds, possibly later."""
        bounds.check(self.get(x._data))

    # ---- Programs
    def compiled(self, program: Program, device: Any) -> Any:
        """The compiled form of a Program, cached for each device: a function of raw buffers."""
        raise NotImplementedError(f"{type(self).__name__}.compiled{here()}")

    def run(self, program: Program, raws: Sequence[Any], device: Any) -> Sequence[Any]:
        """Run a Program on raw buffers, of this platform or of the host."""
        return self.compiled(program, device)(raws)

    def exit_of(
        self, program: Program, consts: Sequence[Any], out_tree: Any, device: Any,
        hosted: Sequence[int], donated: Sequence[int], placements: Sequence[Placement],
    ) -> Any:
        """A fast exit of a Program, for repeated calls: see `platforms.call_exits`. `placements`
        are those of the results, if they are sharded arrays. If there is no exit (None), every call
        takes the general path."""
        return None

    def worth_writing(self, leaves: int, donates: bool) -> int:
        """How many calls of a function with this many leaves there must be before code that returns
        its results quickly is generated."""
        return 2 + leaves // 512

    writes_before_runs = False  # whether that call takes the exit; otherwise, the next one does

    def replicated(self) -> Any:
        """The module that runs one Program on several devices (see `parallel.on_gpus`); None if
        there is none, in which case a thread runs the Program on each device."""
        return None

    def inspection(self) -> Any:
        """The module that describes compiled Programs, such as `platforms.gpu.kernel_reports`."""
        raise NotImplementedError(
            f"{self.name}: needed a device whose kernels can be shown, got one of a platform that "
            f"does not describe them (explain and profile work on the CPU and on GPUs){here()}"
        )

    def release_code(self) -> None:
        """Drop compiled Programs; they are compiled again when they are called."""

    def release_memory(self) -> None:
        """Free memory that is kept for later calls."""


class ArrayElsewhere(DeviceArray):
    """An array with a buffer of another platform; to use its values, they are copied to the host.

    It passes isinstance checks for DeviceArray, but not the fast paths, which check the exact
    type."""

    __slots__ = ()

    def __init__(self, data: Any, weak_type: bool = False):
        self._data, self.weak_type = data, weak_type
        self._signature = signature(data.shape, data.dtype, weak_type, device_of(data))

    # Not read from `_data`: most results of compiled code never need a buffer.
    shape = property(operator.attrgetter("_signature.shape"))
    dtype = property(operator.attrgetter("_signature.dtype"))
    ndim = property(lambda self: len(self._signature.shape))
    size = property(lambda self: math.prod(self._signature.shape))
    nbytes = property(lambda self: self.size * self.dtype.itemsize)

    @property
    def device(self) -> Any:
        return device_of(self._data)

    def block_until_ready(self) -> Any:
        self._data.dtype  # noqa: B018 - raises for a deleted array and says why
        self.device.synchronize()
        return self

    def host(self) -> Any:
        """The values as a NumPy array."""
        data = self._data
        self.device.synchronize()
        return platform_of(data).get(data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        found = self.host()
        return found if dtype is None else found.astype(dtype, copy=False)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        raise AttributeError("__array_interface__")  # NumPy then calls __array__

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.host())

    def _on_host(self) -> DeviceArray:
        return DeviceArray(self.host(), self.weak_type)

    def item(self, *args: Any) -> Any:
        return self._on_host().item(*args)

    def tolist(self) -> Any:
        return self.host().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self.host().tobytes(order)

    def _scalar(self, name: str) -> Any:
        if self.ndim:
            return super()._scalar(name)
        return self.host()

    def __bool__(self) -> bool:
        return bool(self._on_host()) if self.size == 1 else super().__bool__()

    def __format__(self, spec: str) -> str:
        return format(self._on_host(), spec)

    def __repr__(self) -> str:
        return repr(self._on_host())

    def __str__(self) -> str:
        return str(self.host())

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array" + here())
        return iter([self[i] for i in range(self.shape[0])])

    def __reduce__(self) -> Any:
        return _restored, (self.host(), self.weak_type)

    def __contains__(self, value: Any) -> bool:
        return value in self.host()


def _restored(data: Any, weak: bool) -> Any:
    """An unpickled array, on the default device of the process that reads it."""
    return placed_by_default(DeviceArray(data, weak))


for _name in (*FAST_OPERATORS, "__matmul__", "__rmatmul__"):
    setattr(ArrayElsewhere, _name, through_operations(_name))


class ShardedElsewhere(Sharded):
    """The attributes of sharded arrays on another platform; a mixin that precedes their class."""

    __slots__ = ()

    def host(self) -> Any:
        self.block_until_ready()
        return gathered(self)


# ---- an operation as a Program of one equation, so that it means the same as inside jit

_programs: OrderedDict[Any, Program] = OrderedDict()


def _program(op: Operation, arrays: Sequence[Any], fixed: Sequence[bool]) -> Program:
    """The Program of an operation on such operands; host numbers become constants."""
    avals = [aval_of(x) for x in arrays]
    values = tuple(x._data.tobytes() if f else None for x, f in zip(arrays, fixed, strict=True))
    key: Any = (op, tuple((a.shape, a.dtype, a.weak_type) for a in avals), values)
    try:
        found = _programs.get(key)
    except TypeError:  # a parameter that is not hashable
        key = found = None
    if found is None:
        ins: list[Any] = [
            Literal(x._data, a) if f else Var(a)
            for x, a, f in zip(arrays, avals, fixed, strict=True)
        ]
        outs = [Var(a) for a in infer_list(op, avals)]
        inputs = [v for v in ins if v.__class__ is Var]
        found = Program(inputs, [Equation(op, ins, outs)], outs, op.name)
        if key is not None:
            _programs[key] = found
            if len(_programs) > MOST:
                _programs.popitem(last=False)
    return found
