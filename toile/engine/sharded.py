"""Arrays with parts on several devices, and a sharding that says where the parts are.

A `ShardedArray` has a buffer for each device of its sharding, or one buffer for all, and makes
either form from the other when first needed. Programs over devices take and return parts; all other
code sees one array. Results are laid out over the operands' devices: like an operand of the same
shape if the operation works element by element, whole on every device otherwise. On another
platform, a part is a buffer of its device, and the one buffer for all devices is on a primary
device (or is a NumPy array). This module may import the modules of the engine below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from toile.engine import arrays, dtypes
from toile.engine.arrays import ConcreteArray, DeviceArray, KeyArray, Shard
from toile.engine.avals import Aval
from toile.engine.buffers import LATE, Placement, Signature, signature
from toile.engine.config import flags
from toile.engine.devices import Device, first_device, process_count, process_index
from toile.engine.platform_registry import (
    default_device,
    device_among,
    device_of,
    platform_at,
    platform_of,
    registry,
    run_program_on,
)
from toile.engine.shardings import Sharding, SingleDeviceSharding
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import Array, runs_at_once

# For mixins, whose attributes are slots of the classes that they are mixed into.
NO_SLOTS: tuple[str, ...] = ()


class Sharded(ConcreteArray):
    """Common base of sharded arrays of numbers and of keys."""

    __slots__ = NO_SLOTS
    _parts: list[Any]
    _sharding: Sharding
    _aval: Aval
    _is_committed: bool
    shape = property(lambda self: self._aval.shape)
    dtype = property(lambda self: self._aval.dtype)
    ndim = property(lambda self: len(self._aval.shape))
    size = property(lambda self: self._aval.size)

    def __init__(self, aval: Aval, sharding: Sharding, committed: bool = True):
        self._aval, self._sharding, self._is_committed = aval, sharding, committed
        self.weak_type = aval.weak_type

    def __getattr__(self, name: str) -> Any:
        if name == "_data":
            try:
                parts = object.__getattribute__(self, "_parts")
            except AttributeError:  # made by compiled code, on one device
                return ConcreteArray.__getattr__(self, name)
            self._data = data = _joined(parts, self._aval, self._sharding)
            return data
        if name == "_parts":
            parts = split(self._data, self._aval.shape, self._sharding)
            self._parts = parts
            return parts
        if name == "_signature":
            aval, sharding = self._aval, self._sharding
            kind = aval.shape, aval.dtype, aval.weak_type
            if sharding.num_devices == 1 and process_count() == 1:
                place = sharding, self._is_committed
                found = signature(*kind, device_of(self._data), place)
            else:  # not shared: the fast path into compiled code must not recognize it
                found = Signature(*kind)
            self._signature = found
            return found
        if name in _FROM_SIGNATURE:
            value = _FROM_SIGNATURE[name](object.__getattribute__(self, "_signature"))
            setattr(self, name, value)
            return value
        return ConcreteArray.__getattr__(self, name)

    @property
    def aval(self) -> Aval:
        return self._aval

    @property
    def sharding(self) -> Any:
        return self._sharding

    @property
    def device(self) -> Any:
        own = self._sharding.device_set
        return next(iter(own)) if len(own) == 1 else self._sharding

    def devices(self) -> set[Any]:
        return self._sharding.device_set

    @property
    def committed(self) -> bool:
        return self._is_committed

    _committed = committed

    @property
    def is_fully_replicated(self) -> bool:
        return self._sharding.is_fully_replicated

    @property
    def is_fully_addressable(self) -> bool:
        return self._sharding.is_fully_addressable

    @property
    def addressable_shards(self) -> list[Any]:
        found: list[Any] = []
        seen: dict[Any, int] = {}
        places = own_places(self._sharding, self._aval.shape)
        for (device, index), part in zip(places.items(), self._parts, strict=True):
            number = seen[_key(index)] = seen.get(_key(index), -1) + 1
            found.append(Shard(device, on_device(part, self._aval, device), index, number))
        return found

    @property
    def _arrays(self) -> list[Any] | None:
        """This process's parts as arrays, each on its device; None for a deleted array."""
        return None if self.is_deleted() else [shard.data for shard in self.addressable_shards]

    @property
    def nbytes(self) -> int:
        return self._aval.nbytes

    def delete(self) -> None:
        super().delete()
        self._parts = arrays._DELETED

    def block_until_ready(self) -> Any:
        if self.is_deleted():
            return self._data._refuse()  # raises, saying why
        for device in self._sharding.device_set if registry.active else ():
            if device.process_index == process_index():
                device.synchronize()
        return self

    def is_deleted(self) -> bool:
        try:
            return object.__getattribute__(self, "_memory") is arrays._DELETED
        except AttributeError:
            return False

    def __iter__(self) -> Iterator[Any]:
        if not self._aval.shape:
            raise TypeError(
                "iteration over a 0-d array (needed at least one axis, got shape (): read the "
                f"value with x.item(), or write x.reshape(1)){here()}"
            )
        return map(self.__getitem__, range(self._aval.shape[0]))


def through_operations(name: str) -> Any:
    """The general operator of arrays. (DeviceArray's fast operator calls NumPy, which knows neither
    shardings nor other platforms.)"""

    def method(self: Any, other: Any) -> Any:
        return getattr(Array, name)(self, other)

    method.__name__ = method.__qualname__ = name
    return method


_SLOTS = ("_parts", "_sharding", "_aval", "_is_committed")


class EqualsWhole(type):
    """The metaclass of arrays in parts: a class equals the class of arrays that are whole.

    In JAX, all arrays have the same class, and packages compare `type(x) == type(y)`. The classes
    are different keys in a dictionary, because their hashes differ."""

    whole: type

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.whole is getattr(other, "whole", other)

    __hash__ = type.__hash__


class ShardedArray(Sharded, DeviceArray, metaclass=EqualsWhole):
    """An array in parts, one for each device of its sharding."""

    __slots__ = _SLOTS
    whole = DeviceArray


for _name in arrays.FAST_OPERATORS:
    setattr(ShardedArray, _name, through_operations(_name))


class ShardedKeyArray(Sharded, KeyArray, metaclass=EqualsWhole):
    """An array of random keys in parts."""

    __slots__ = _SLOTS
    whole = KeyArray

    def __init__(self, aval: Aval, sharding: Sharding, committed: bool = True):
        self._aval, self._sharding, self._is_committed = aval, sharding, committed
        self._dtype = aval.dtype


LATE.setdefault("_parts", lambda x: [x._data])


def _placement(form: Signature) -> Placement:
    assert form.placement is not None
    return form.placement


# Attributes of arrays made by compiled code, which sets their signature only.
_FROM_SIGNATURE: Mapping[str, Callable[[Signature], Any]] = {
    "_aval": lambda form: Aval(form.shape, form.dtype, form.weak_type),
    "_sharding": lambda form: _placement(form)[0],
    "_is_committed": lambda form: _placement(form)[1],
}


def class_over(sharding: Sharding, dtype: Any) -> type[Any]:
    """The class of arrays under a sharding."""
    if dtypes.is_extended(dtype):
        return ShardedKeyArray
    owner = platform_over(sharding)
    return ShardedArray if owner is None else owner.sharded


def _new(aval: Aval, sharding: Sharding, committed: bool) -> Any:
    return class_over(sharding, aval.dtype)(aval, sharding, committed)


def platform_over(sharding: Sharding) -> Any:
    """The platform of the devices of a sharding; None: the host."""
    return platform_at(next(iter(sharding.device_set))) if registry.active else None


def from_parts(parts: list[Any], aval: Aval, sharding: Sharding) -> Any:
    """An array from buffers on the devices of a sharding, in its order."""
    made = _new(aval, sharding, True)
    made._parts = parts
    return made


def from_data(data: Any, aval: Aval, sharding: Sharding, committed: bool = True) -> Any:
    """An array from one buffer, laid out over the devices of a sharding."""
    made = _new(aval, sharding, committed)
    if data.__class__ is not np.ndarray:
        owner = platform_of(data)
        if owner is None:
            data = np.asarray(data)
        elif platform_over(sharding) is not owner:
            data = fetched(data)
    made._data = data
    return made


def on_device(part: Any, aval: Aval, device: Any) -> Any:
    """One buffer as an array on one device."""
    rank = len(aval.shape)
    local = Aval(tuple(part.shape[:rank]), aval.dtype, aval.weak_type)
    if platform_of(part) is not None:
        return from_parts([part], local, SingleDeviceSharding(device))
    return from_data(part, local, SingleDeviceSharding(device))


def own_places(sharding: Sharding, shape: tuple[int, ...]) -> Mapping[Any, Any]:
    """The devices of this process that have a part, and the indices of that part."""
    if process_count() == 1:
        return sharding.devices_indices_map(shape)
    return sharding.addressable_devices_indices_map(shape)


def _key(index: Sequence[slice]) -> Any:
    return tuple((i.start, i.stop) for i in index)


def split(data: Any, shape: tuple[int, ...], sharding: Sharding) -> list[Any]:
    """The part of each device of this process; replicas share memory on the host."""
    places = own_places(sharding, shape)
    if platform_over(sharding) is not None:
        return [device.put(data[index] if index else data) for device, index in places.items()]
    made: dict[Any, Any] = {}
    found = []
    for index in places.values():
        key = _key(index)
        part = made.get(key)
        if part is None:
            part = made[key] = _contiguous(data[index] if index else data)
        found.append(part)
    return found


def replicas(data: Any, devices: Sequence[Any]) -> list[Any]:
    """A buffer on each of the devices."""
    return [d.put(data) for d in devices]


def _contiguous(x: Any) -> Any:
    return x if x.flags.c_contiguous else np.array(x, order="C")


def _joined(parts: Sequence[Any], aval: Aval, sharding: Sharding) -> Any:
    """All parts in one buffer."""
    if parts is arrays._DELETED:
        return parts
    if process_count() > 1 and not (sharding.is_fully_addressable or sharding.is_fully_replicated):
        raise RuntimeError(
            "Fetching value for an array that spans non-addressable (non process local) devices is "
            f"not possible: needed all parts in this process, got {aval.str_short()} under "
            f"{sharding} (compute with it inside jit, whose out_shardings can replicate it; "
            f"addressable_shards are the parts in this process){here()}"
        )
    owner = platform_of(parts[0])
    if owner is not None:
        return owner.joined(parts, aval, sharding)
    if sharding.is_fully_replicated:
        return parts[0]
    return filled(parts, aval, sharding, np.empty)


def gathered(x: Any) -> Any:
    """The numbers of a sharded array as one NumPy array."""
    try:
        data = object.__getattribute__(x, "_data")
    except AttributeError:
        if x._sharding.is_fully_replicated and x._parts is not arrays._DELETED:
            return fetched(x._parts[0])
        return _joined([fetched(p) for p in x._parts], x._aval, x._sharding)
    return fetched(data)


def held(x: Any) -> list[Any]:
    """The buffers that a sharded array has now, in either form; makes none."""
    found = []
    for name in ("_data", "_parts"):
        try:
            value = object.__getattribute__(x, name)
        except AttributeError:
            continue
        found += value if value.__class__ is list else [value]
    return found


def fetched(data: Any) -> Any:
    """A buffer as a NumPy array, after all work on its device is done."""
    owner = platform_of(data)
    return data if owner is None else owner.get(data)


def filled(parts: Sequence[Any], aval: Aval, sharding: Sharding, empty: Any) -> Any:
    """A new array, made by `empty`, with the parts at their places in the sharding."""
    extra = parts[0].shape[len(aval.shape):]  # the words of keys
    out = empty((*aval.shape, *extra), parts[0].dtype)
    seen = set()
    places = own_places(sharding, aval.shape)
    for index, part in zip(places.values(), parts, strict=True):
        if _key(index) not in seen:
            seen.add(_key(index))
            out[index] = part
    return out


# ------------------------------------------------------------------------- computing with them


def describe_devices(x: Any) -> str:
    """Shape and device ids of an array, for errors about devices."""
    ids = sorted(d.id for d in x.sharding.device_set)
    platform = next(iter(x.sharding.device_set)).platform.upper()
    return (f"shape {x.aval.str_short()} and with device ids {ids} on platform {platform}")


def common_sharding(what: str, args: Sequence[Any], labels: Sequence[str] = ()) -> Any:
    """A sharding over the devices of the operands; None if none of them has one.

    Operands that are committed to devices must all be on the same devices; the others follow."""
    first: Any = None
    where = 0
    for i, a in enumerate(args):
        if not isinstance(a, Sharded):
            continue
        if first is None or (a._is_committed and not first._is_committed):
            first, where = a, i
        elif a._is_committed and a._sharding.device_set != first._sharding.device_set:
            names = [labels[k] if k < len(labels) else f"{k}" for k in (where, i)]
            raise ValueError(
                f"Received incompatible devices for jitted computation. Got argument {names[0]} of "
                f"{what} with {describe_devices(first)} and argument {names[1]} of {what} with "
                f"{describe_devices(a)} (use toile.device_put to move one of them){here()}"
            )
    return first


def device_of_call(args: Sequence[Any], raws: Sequence[Any]) -> Device | None:
    """The device that a Program runs on for these arguments, whose buffers are `raws`; None: the
    host.

    The device is that of the first argument that was explicitly put on a device. If there is none,
    it is that of the first argument on another platform's device, or else the default device."""
    if not registry.active:
        return None
    for a in args:
        if isinstance(a, Sharded) and a._is_committed:
            own = next(iter(a._sharding.device_set))
            return None if own.platform == "cpu" else own.primary
    return device_among(raws) or default_device()


def run_call(program: Any, device: Device | None, raws: Sequence[Any]) -> Sequence[Any]:
    """The raw results of a Program on a device (see `device_of_call`)."""
    if device is None and registry.active:
        raws = [fetched(x) for x in raws]
    return run_program_on(device, program, raws)


def sharding_like(x: Any, shape: tuple[int, ...]) -> Any:
    """The sharding of a new array like `x`, if `x` has an explicit one; or None."""
    if isinstance(x, Sharded):
        found = x._sharding if x._is_committed else None
    else:
        found = x.sharding if isinstance(x, ShapeDtypeStruct) else None
    if found is None or not isinstance(found, Sharding) or not runs_at_once():
        return None
    return found if shape == tuple(x.shape) or found.is_fully_replicated else None


def layout(op: Any, args: Sequence[Any]) -> Any:
    """How results of an eager operation are laid out: a function of (buffer, aval), or None."""
    first = common_sharding(op.name, args)
    if first is None:
        default = flags.default_device
        if not isinstance(default, Device) or default.platform != "cpu" or (
            default is first_device()
        ):
            return None
        alone = SingleDeviceSharding(default)
        return lambda data, aval: from_data(data, aval, alone, committed=False)
    keeps = [a for a in args if isinstance(a, Sharded)] if op.keeps_layout else []

    def wrap(data: Any, aval: Aval) -> Any:
        for a in keeps:
            if a._aval.shape == aval.shape and a._is_committed == first._is_committed:
                return from_data(data, aval, a._sharding, a._is_committed)
        found = placing.result(op, args, aval) or first._sharding.everywhere()
        return from_data(data, aval, found, first._is_committed)

    return wrap


class _Placing:
    """The shardings of the results of compiled Programs; filled by `toile.parallel`.

    `divide` gives the results of a Program that runs on all devices of its operands, or None;
    `place` says how to wrap results that one device has computed; `result` is the sharding of the
    result of one operation, None if it has no rule."""

    result: Any = staticmethod(lambda op, args, aval: None)
    divide: Any = staticmethod(lambda program, args, wanted=(): None)
    place: Any = staticmethod(lambda program, args: None)

    def fill(self, result: Any, place: Any, divide: Any) -> None:
        """Set the functions of `toile.parallel`."""
        self.result, self.place, self.divide = result, place, divide


placing = _Placing()
