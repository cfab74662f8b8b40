"""Arrays of several devices: parts, and the sharding that says where they are.

A `ShardedArray` has a buffer for each device of its sharding, or one buffer for all, and makes each
form from the other when it is first asked for. Programs over devices take and give parts; all else
sees one array. What an operation gives is laid out over its operands' devices: as an operand of its
shape, if it works element by element, whole on every device otherwise. May import engine.arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from toile.engine import arrays, dtypes
from toile.engine.arrays import ConcreteArray, DeviceArray, KeyArray, Shard
from toile.engine.avals import Aval
from toile.engine.buffers import LATE, Signature
from toile.engine.config import flags
from toile.engine.devices import Device, first_device
from toile.engine.shardings import Sharding, SingleDeviceSharding
from toile.engine.source import here
from toile.engine.tracing import Array


class Sharded(ConcreteArray):
    """What arrays of numbers and of keys share when they have a sharding."""

    __slots__ = ()
    _parts: list[Any]
    _sharding: Sharding
    _aval: Aval
    _is_committed: bool

    def __getattr__(self, name: str) -> Any:
        if name == "_data":
            self._data = data = _joined(self._parts, self._aval, self._sharding)
            return data
        if name == "_parts":
            parts = split(self._data, self._aval.shape, self._sharding)
            self._parts = parts  # type: ignore[misc]
            return parts
        if name == "_signature":  # one of its own: the quick way into compiled code is not for it
            aval = self._aval
            self._signature = found = Signature(aval.shape, aval.dtype, aval.weak_type)
            return found
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
        places = self._sharding.devices_indices_map(self._aval.shape)
        for (device, index), part in zip(places.items(), self._parts, strict=True):
            number = seen[_key(index)] = seen.get(_key(index), -1) + 1
            found.append(Shard(device, on_device(part, self._aval, device), index, number))
        return found

    @property
    def nbytes(self) -> int:
        return self._aval.nbytes

    def delete(self) -> None:
        super().delete()
        self._parts = arrays._DELETED  # type: ignore[misc]

    def block_until_ready(self) -> Any:
        if self.is_deleted():
            return self._data.shape  # raises, saying why
        return self

    def is_deleted(self) -> bool:
        try:
            return object.__getattribute__(self, "_memory") is arrays._DELETED
        except AttributeError:
            return False

    def __iter__(self) -> Iterator[Any]:
        if not self._aval.shape:
            raise TypeError("iteration over a 0-d array" + here())
        return iter([self[i] for i in range(self._aval.shape[0])])


def _through_operations(name: str) -> Any:
    """An operator that does not go straight to NumPy, so that its result has a sharding."""

    def method(self: Any, other: Any) -> Any:
        return getattr(Array, name)(self, other)

    method.__name__ = method.__qualname__ = name
    return method


_SLOTS = ("_parts", "_sharding", "_aval", "_is_committed")


class ShardedArray(Sharded, DeviceArray):
    """An array in parts, one for each device of its sharding."""

    __slots__ = _SLOTS
    shape = property(lambda self: self._aval.shape)
    dtype = property(lambda self: self._aval.dtype)
    ndim = property(lambda self: len(self._aval.shape))
    size = property(lambda self: self._aval.size)

    def __init__(self, aval: Aval, sharding: Sharding, committed: bool = True):
        self._aval, self._sharding, self._is_committed = aval, sharding, committed
        self.weak_type = aval.weak_type


for _name in arrays.FAST_OPERATORS:
    setattr(ShardedArray, _name, _through_operations(_name))


class ShardedKeyArray(Sharded, KeyArray):
    """An array of random keys in parts."""

    __slots__ = _SLOTS
    shape = property(lambda self: self._aval.shape)
    dtype = property(lambda self: self._aval.dtype)

    def __init__(self, aval: Aval, sharding: Sharding, committed: bool = True):
        self._aval, self._sharding, self._is_committed = aval, sharding, committed
        self._dtype = aval.dtype


LATE.setdefault("_parts", lambda x: [x._data])


def _new(aval: Aval, sharding: Sharding, committed: bool) -> Any:
    kind = ShardedKeyArray if dtypes.is_extended(aval.dtype) else ShardedArray
    return kind(aval, sharding, committed)


def from_parts(parts: list[Any], aval: Aval, sharding: Sharding) -> Any:
    """An array of buffers that lie on the devices of a sharding, in its order."""
    made = _new(aval, sharding, True)
    made._parts = parts
    return made


def from_data(data: Any, aval: Aval, sharding: Sharding, committed: bool = True) -> Any:
    """An array of one buffer, laid out over the devices of a sharding."""
    made = _new(aval, sharding, committed)
    made._data = data if data.__class__ is np.ndarray else np.asarray(data)
    return made


def on_device(part: Any, aval: Aval, device: Any) -> Any:
    """One buffer as an array on one device."""
    rank = len(aval.shape)
    local = Aval(tuple(part.shape[:rank]), aval.dtype, aval.weak_type)
    return from_data(part, local, SingleDeviceSharding(device))


def _key(index: Sequence[slice]) -> Any:
    return tuple((i.start, i.stop) for i in index)


def split(data: Any, shape: tuple[int, ...], sharding: Sharding) -> list[Any]:
    """The part of each device; replicas share memory."""
    places = sharding.devices_indices_map(shape)
    made: dict[Any, Any] = {}
    found = []
    for index in places.values():
        key = _key(index)
        part = made.get(key)
        if part is None:
            part = made[key] = _contiguous(data[index] if index else data)
        found.append(part)
    return found


def _contiguous(x: Any) -> Any:
    return x if x.flags.c_contiguous else np.array(x, order="C")


def _joined(parts: Sequence[Any], aval: Aval, sharding: Sharding) -> Any:
    """All parts in one buffer."""
    if parts is arrays._DELETED:
        return parts
    if sharding.is_fully_replicated:
        return parts[0]
    extra = parts[0].shape[len(aval.shape):]  # the words of keys
    out = np.empty((*aval.shape, *extra), parts[0].dtype)
    seen = set()
    places = sharding.devices_indices_map(aval.shape)
    for index, part in zip(places.values(), parts, strict=True):
        if _key(index) not in seen:
            seen.add(_key(index))
            out[index] = part
    return out


# ------------------------------------------------------------------------- computing with them


def describe_devices(x: Any) -> str:
    """Shape and device ids of an array, as errors about devices say it."""
    ids = sorted(d.id for d in x.sharding.device_set)
    platform = next(iter(x.sharding.device_set)).platform.upper()
    return (f"shape {x.aval.str_short()} and with device ids {ids} on platform {platform}")


def common_sharding(what: str, args: Sequence[Any], labels: Sequence[str] = ()) -> Any:
    """A sharding over the devices of the operands; None if none of them has one.

    Operands that were put on devices must be on the same ones; the others go along."""
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
                f"{describe_devices(a)} (use toile.device_put to bring them together){here()}"
            )
    return first


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
        return from_data(data, aval, first._sharding.everywhere(), first._is_committed)

    return wrap


class _Placing:
    """How the results of a compiled Program lie over devices; filled by `toile.parallel`.

    `divide` gives the results of a Program that runs on all devices of its operands, and None for
    one that does not; `place` says how to wrap what one device has computed."""

    divide: Any = staticmethod(lambda program, args, wanted=(): None)
    place: Any = staticmethod(lambda program, args: None)


placing = _Placing()
