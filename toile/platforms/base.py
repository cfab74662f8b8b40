"""A platform: a kind of devices, its buffers, and how operations and Programs run there.

To add one, subclass `Platform` (and `Device`, and `ArrayElsewhere`), and give an instance to
`engine.platform_registry.registry.add`; those that come with toile are in `platforms.__init__`.
Only the methods that raise here are needed: the others have meanings that are right everywhere, and
are there to be made faster. docs/extending.md adds a small one. May import the engine.
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
from toile.engine.buffers import signature
from toile.engine.conversion import as_array, placed, placed_by_default, wrap_aval
from toile.engine.devices import Device
from toile.engine.operation import Operation, infer_list
from toile.engine.platform_registry import FEW, default_device, device_of, platform_of
from toile.engine.program import Equation, Literal, Program, Var
from toile.engine.sharded import Sharded, filled, gathered, layout, own_places, through_operations
from toile.engine.shardings import Sharding
from toile.engine.source import here

MOST = 4096  # Programs of one operation that are kept


class Platform:
    """One kind of devices. The CPU's platform is the one whose buffers are NumPy's arrays."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    # The class of arrays with a buffer of this platform, and of such arrays in parts. A platform
    # that makes them late has None until it has a device, and then adds the first to
    # `engine.platform_registry.array_platforms` itself.
    array: Any = None
    sharded: Any = None
    # Whether new arrays are here unless told otherwise, where there is a device.
    is_default: ClassVar[bool] = False
    # What is asked for in an error when there is no device.
    needs: ClassVar[str] = "a device of this platform"

    # ---- devices
    def devices(self) -> tuple[Device, ...]:
        """The devices of this process; none where the platform cannot be used."""
        raise NotImplementedError(f"{type(self).__name__}.devices{here()}")

    def all_devices(self) -> tuple[Device, ...]:
        """The devices of all processes."""
        return self.devices()

    def require(self) -> tuple[Device, ...]:
        """The devices; an error where there is none."""
        found = self.devices()
        if not found:
            raise RuntimeError(
                f"Unknown backend: '{self.name}' requested, but no platforms that are instances of "
                f"{self.name} are present: needed {self.needs} (`python -m toile.doctor` says what "
                f"is there){here()}"
            )
        return found

    def usable(self) -> int:
        """How many devices of the hardware this process could use."""
        return 0

    def use(self, numbers: Sequence[int]) -> None:
        """Use the hardware of these numbers only; to be called before any is used."""

    def join(self, index: int, names: Sequence[Sequence[str]]) -> None:
        """Make this process number `index` of processes whose devices' hardware has these names."""

    def leave(self) -> None:
        """Make this process the only one again."""

    # ---- buffers
    def owns(self, kind: type) -> bool:
        """Whether buffers of a class are this platform's."""
        raise NotImplementedError(f"{type(self).__name__}.owns{here()}")

    def device_of(self, data: Any) -> Device:
        """The device that a buffer lies on."""
        raise NotImplementedError(f"{type(self).__name__}.device_of{here()}")

    def get(self, data: Any) -> Any:
        """The values of a buffer as a NumPy array, when all work on it is done."""
        raise NotImplementedError(f"{type(self).__name__}.get{here()}")

    def wrap(self, data: Any, weak_type: bool) -> Any:
        """A buffer as an array."""
        return self.array(data, weak_type)

    def converted(self, data: Any, dtype: Any, copy: bool) -> Any:
        """A buffer of another dtype; a copy if the dtype is the same and `copy` is true."""
        return self.device_of(data).put(self.get(data).astype(dtype, copy=copy))

    def address(self, data: Any) -> tuple[Any, int]:
        """Row-major elements of a buffer, and where they begin; for compiled code that has a way
        out of its own (see `exit_of`)."""
        raise NotImplementedError(f"{type(self).__name__}.address{here()}")

    def joined(self, parts: Sequence[Any], aval: Aval, sharding: Sharding) -> Any:
        """The parts of an array in one buffer of the first part's primary device."""
        device = next(iter(own_places(sharding, aval.shape))).primary
        if sharding.is_fully_replicated:
            return device.put(parts[0])
        return device.put(filled([self.get(p) for p in parts], aval, sharding, np.empty))

    def placed_by_default(self, x: Any) -> Any:
        """A new array of the host where it belongs: a large one on the default device."""
        device = default_device()
        return x if device is None or x.size <= FEW else placed(x, device)

    def from_dlpack(self, x: Any) -> Any:
        """A buffer on the memory of a DLPack object, or None where it is not of this platform."""
        return None

    # ---- operations outside of jit
    def run_eagerly(self, op: Operation, args: Sequence[Any]) -> Any:
        """The results of an operation, or NotImplemented where it does not belong here."""
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
        """The device that an operation runs on; None: it is not of this platform.

        An operation runs here if an operand lies here, or if the default device is here and what
        it makes or reads is large; all else is the host's."""
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
        """An operation has run on these operands: a platform may prepare for the next time."""

    def quickly(self, op: Operation, args: Sequence[Any]) -> Any:
        """The results of an operation that was prepared for such operands, or NotImplemented."""
        return NotImplemented

    def unary(self, op: Operation, x: Any) -> Any:
        """An operation on one array of this platform, whose dtype it accepts."""
        return op(x)

    def called(self, fun: Callable[..., Any], x: Any, *args: Any) -> Any:
        """`fun(x, *args)` for an array of this platform; `args` can be hashed, and equal ones mean
        the same, so that what such calls do may be remembered."""
        return fun(x, *args)

    # ---- Programs
    def compiled(self, program: Program, device: Any) -> Any:
        """The compiled form of a Program, made once for each device: a function of raw buffers."""
        raise NotImplementedError(f"{type(self).__name__}.compiled{here()}")

    def run(self, program: Program, raws: Sequence[Any], device: Any) -> Sequence[Any]:
        """Run a Program on raw buffers, of this platform or the host's."""
        return self.compiled(program, device)(raws)

    def exit_of(
        self, program: Program, consts: Sequence[Any], out_tree: Any, device: Any,
        hosted: Sequence[int], donated: Sequence[int],
    ) -> Any:
        """A quick way out of a Program that has run, for calls that repeat: see
        `platforms.call_exits`. None: each call goes the general way."""
        return None

    def worth_writing(self, leaves: int) -> int:
        """The number of calls with so many leaves after which to ask for a quick way out."""
        return 2 + leaves // 512

    def replicated(self) -> Any:
        """The module that runs one Program on several devices (see `parallel.on_gpus`); None:
        there is none, and a thread runs it on each."""
        return None

    def inspection(self) -> Any:
        """What tells `toile.inspection` about compiled Programs: `platforms.gpu.kernel_reports`."""
        raise NotImplementedError(
            f"{self.name}: needed a device whose kernels can be shown, got one of a platform that "
            f"does not tell about them (explain and profile work on the CPU and on GPUs){here()}"
        )

    def release_code(self) -> None:
        """Give up compiled Programs: they are compiled again when they are called."""

    def release_memory(self) -> None:
        """Give back memory that is kept for later calls."""


class ArrayElsewhere(DeviceArray):
    """An array whose buffer is another platform's: what needs the numbers copies them to the host.

    It is a DeviceArray to whoever asks with isinstance, and not to the fast paths, which ask for
    the exact type."""

    __slots__ = ()

    def __init__(self, data: Any, weak_type: bool = False):
        self._data, self.weak_type = data, weak_type
        self._signature = signature(data.shape, data.dtype, weak_type, device_of(data))

    # Not of `_data`: most results of compiled code never need a buffer.
    shape = property(operator.attrgetter("_signature.shape"))
    dtype = property(operator.attrgetter("_signature.dtype"))
    ndim = property(lambda self: len(self._signature.shape))
    size = property(lambda self: math.prod(self._signature.shape))

    @property
    def device(self) -> Any:
        return device_of(self._data)

    def block_until_ready(self) -> Any:
        self._data.dtype  # noqa: B018 - raises for a deleted array, saying why
        self.device.synchronize()
        return self

    def host(self) -> Any:
        """The numbers as a NumPy array."""
        data = self._data
        self.device.synchronize()
        return platform_of(data).get(data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        found = self.host()
        return found if dtype is None else found.astype(dtype, copy=False)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        raise AttributeError("__array_interface__")  # NumPy then asks __array__

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
    """What arrays in parts on another platform's devices have; a mixin before their class."""

    __slots__ = ()

    def host(self) -> Any:
        self.block_until_ready()
        return gathered(self)


# ---- an operation as a Program of one equation, so that it means what it means inside of jit

_programs: OrderedDict[Any, Program] = OrderedDict()


def _program(op: Operation, arrays: Sequence[Any], fixed: Sequence[bool]) -> Program:
    """The Program of an operation on such operands; numbers of the host are its constants."""
    avals = [aval_of(x) for x in arrays]
    values = tuple(x._data.tobytes() if f else None for x, f in zip(arrays, fixed, strict=True))
    key: Any = (op, tuple((a.shape, a.dtype, a.weak_type) for a in avals), values)
    try:
        found = _programs.get(key)
    except TypeError:  # a parameter that cannot be hashed
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
