"""Meshes: arrangements of devices along named axes, with or without the devices themselves.

A `Mesh` has devices; an `AbstractMesh` has only sizes. The current mesh (`set_mesh`) is part of the
context, so jitted functions are traced again when it changes. Equal meshes are the same object.
This module may import the engine.
"""

from __future__ import annotations

import enum
import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from toile.engine import devices as engine_devices
from toile.engine.contexts import Context
from toile.engine.locks import shared_lock
from toile.engine.platform_registry import default_devices
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.engine.trace import state

Args = ParamSpec("Args")
Result = TypeVar("Result")


class AxisType(enum.Enum):
    """The types of mesh axes, which determine how arrays are divided along an axis.

    - `Auto`: the compiler decides how arrays are divided.
    - `Explicit`: the division of an array is part of the array's type.
    - `Manual`: the user decides, inside `shard_map`.
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


AxisTypes: TypeAlias = AxisType | Sequence[AxisType]  # one for all axes, or one for each


@dataclass(frozen=True)
class AbstractDevice:
    """The description of a device that need not exist.

    Args:
        device_kind: model of the device, such as "cpu".
        num_cores: number of cores; None if unknown.
        platform: "cpu" or "gpu".

    >>> toile.sharding.AbstractDevice("cpu", None, "cpu").platform
    'cpu'
    """

    device_kind: str
    num_cores: int | None
    platform: str

    def __repr__(self) -> str:
        return (f"device_kind={self.device_kind}, num_cores={self.num_cores}, "
                f"platform={self.platform}")


@dataclass(frozen=True, kw_only=True)
class ManualAxisType:
    """A description of how a value inside `shard_map` depends on the mesh's manual axes.

    Args:
        varying: names of the axes along which the value differs between devices.
        unreduced: names of the axes along which the devices' values still have to be summed.
        reduced: names of the axes along which the cotangent still has to be summed.

    >>> toile.sharding.ManualAxisType(varying=frozenset({"x"})).empty
    False
    """

    varying: frozenset[Any] = frozenset()
    unreduced: frozenset[Any] = frozenset()
    reduced: frozenset[Any] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether the value depends on none of the axes."""
        return not (self.varying or self.unreduced or self.reduced)


def _types_of(axis_types: Any, names: Sequence[Any], default: AxisType) -> tuple[AxisType, ...]:
    """One type per axis."""
    if axis_types is None:
        return (default,) * len(names)
    found = (axis_types,) * len(names) if isinstance(axis_types, AxisType) else tuple(axis_types)
    if any(not isinstance(t, AxisType) for t in found):
        raise TypeError(f"mesh: needed axis_types of type AxisType, got {axis_types!r}{here()}")
    if len(found) != len(names):
        raise ValueError(
            "Number of axis names should match the number of axis_types. Got "
            f"axis_names={tuple(names)} and axis_types={found}{here()}"
        )
    return found


class _Named:
    """Common base of meshes with and without devices: sizes by axis name."""

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """The size of each axis, by name."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """The (name, size) pairs of the axes."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        """The number of devices; 0 for a mesh without axes."""
        return math.prod(self.axis_sizes) if self.axis_names else 0

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types, strict=True) if t is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        """The names of the axes of type `Auto`."""
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        """The names of the axes of type `Explicit`."""
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        """The names of the axes of type `Manual`."""
        return self._of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether all axes have type `Auto`."""
        return all(t is AxisType.Auto for t in self.axis_types)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether all axes have type `Explicit`."""
        return all(t is AxisType.Explicit for t in self.axis_types)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether all axes have type `Manual`."""
        return all(t is AxisType.Manual for t in self.axis_types)

    def _sizes_text(self) -> str:
        return ", ".join(f"{n!r}: {s}" for n, s in self.shape_tuple)


_meshes: dict[Any, Mesh] = {}
_lock = shared_lock()


class Mesh(_Named):
    """Devices arranged in an array with named axes.

    Shardings refer to the names: `NamedSharding(mesh, P("x"))` divides the first axis of an array
    along axis `"x"` of the mesh. Inside a `with mesh:` block, `shard_map` uses the mesh and
    specs refer to it. Equal meshes are the same object.

    Args:
        devices: the devices, such as `toile.devices()`, in an array or a nested sequence, which
            must have one axis for each name.
        axis_names: name of each axis, or one string for a single axis.
        axis_types: `AxisType` of each axis, or one type for all; None for `Auto`.

    >>> mesh = toile.sharding.Mesh(toile.devices()[:1], ("x",))
    >>> dict(mesh.shape)
    {'x': 1}
    """

    devices: np.ndarray

    def __new__(
        cls, devices: np.ndarray | Sequence[Any], axis_names: str | Sequence[Hashable],
        axis_types: AxisTypes | None = None
    ) -> Mesh:
        grid = devices if isinstance(devices, np.ndarray) else np.array(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if any(n is None for n in names):
            raise ValueError(f"Mesh axis names cannot be None. Got: {names}{here()}")
        if grid.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of "
                f"its second argument (`axis_names`), but got devices.ndim == {grid.ndim} and "
                f"len(axis_names) == {len(names)} (reshape the devices, or give one name for each "
                f"axis).{here()}"
            )
        types = _types_of(axis_types, names, AxisType.Auto)
        key = (tuple(grid.flat), grid.shape, names, types)
        with _lock:
            found = _meshes.get(key)
            if found is None:
                found = object.__new__(cls)
                found.devices = grid.copy()
                found.devices.flags.writeable = False
                found.axis_names, found.axis_sizes, found.axis_types = names, grid.shape, types
                _meshes[key] = found
        return found

    def __reduce__(self) -> Any:
        return Mesh, (self.devices, self.axis_names, self.axis_types)

    @property
    def size(self) -> int:
        """The number of devices; 0 for a mesh without axes."""
        return self.devices.size if self.axis_names else 0

    @property
    def empty(self) -> bool:
        """Whether the mesh has no devices."""
        return self.size == 0

    @property
    def is_scalar(self) -> bool:
        """Always False; this attribute exists for compatibility with JAX."""
        return False

    @property
    def is_multi_process(self) -> bool:
        """Whether the devices belong to more than one process."""
        return len({d.process_index for d in self.devices.flat}) > 1

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices, as an array with the shape of the mesh."""
        return np.vectorize(lambda d: d.id, otypes=[int])(self.devices)

    @property
    def local_devices(self) -> list[Any]:
        """The devices that belong to this process."""
        return [d for d in self.devices.flat
                if d.process_index == engine_devices.process_index()]

    @property
    def local_mesh(self) -> Mesh:
        """The mesh itself."""
        return self

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        first = self.devices.flat[0] if self.size else None
        device = None if first is None else AbstractDevice(first.device_kind, None, first.platform)
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types,
                            abstract_device=device)

    def update(
        self, devices: np.ndarray | Sequence[Any] | None = None,
        axis_names: str | Sequence[Hashable] | None = None, axis_types: AxisTypes | None = None
    ) -> Mesh:
        """Return a copy of the mesh with some attributes replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Mesh:
        _entered.set((*_entered.value, self))
        return self

    def __exit__(self, *_: Any) -> None:
        _entered.set(_entered.value[:-1])

    def __call__(self, fun: Callable[Args, Result]) -> Callable[Args, Result]:
        """Decorate a function, which then runs in a `with mesh:` block."""

        @functools.wraps(fun)
        def inside(*args: Args.args, **kwargs: Args.kwargs) -> Result:
            with self:
                return fun(*args, **kwargs)

        return inside

    def __str__(self) -> str:
        if not self.axis_names:
            return "Mesh()"
        return f"Mesh({self._sizes_text()}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        types = f", axis_types={self.axis_types}" if self.axis_names else ""
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}{types})"


class AbstractMesh(_Named):
    """A mesh without devices, for tracing functions that will run on another machine.

    Args:
        axis_sizes: size of each axis.
        axis_names: name of each axis.
        axis_types: `AxisType` of each axis, or one type for all; None for `Explicit`.
        abstract_device: `AbstractDevice` that describes the devices; None if unknown.

    >>> from toile.sharding import AbstractMesh, NamedSharding, P
    >>> mesh = AbstractMesh((4, 2), ("x", "y"))
    >>> NamedSharding(mesh, P("x", "y")).shard_shape((8, 6))
    (2, 3)
    """

    def __init__(
        self, axis_sizes: Sequence[int], axis_names: Sequence[Hashable],
        axis_types: AxisTypes | None = None, *, abstract_device: AbstractDevice | None = None,
    ):
        self.axis_sizes, self.axis_names = tuple(axis_sizes), tuple(axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ValueError(
                f"AbstractMesh: needed one size per axis name, got sizes {self.axis_sizes} and "
                f"names {self.axis_names}{here()}"
            )
        self.axis_types = _types_of(axis_types, self.axis_names, AxisType.Explicit)
        self.abstract_device = abstract_device

    @property
    def empty(self) -> bool:
        """Whether the mesh has no axes."""
        return self.size == 0

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh itself."""
        return self

    def _lacks(self, what: str) -> Any:
        raise ValueError(f"AbstractMesh does not implement {what}{here()}")

    devices = property(lambda self: self._lacks("devices"))
    device_ids = property(lambda self: self._lacks("device_ids"))
    is_multi_process = property(lambda self: self._lacks("is_multi_process"))
    local_devices = property(lambda self: self._lacks("local_devices"))
    local_mesh = property(lambda self: self._lacks("local_mesh"))

    def update(
        self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None,
        **kwargs: Any,
    ) -> AbstractMesh:
        """Return a copy of the mesh with some attributes replaced."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            abstract_device=kwargs.get("abstract_device", self.abstract_device),
        )

    def update_axis_types(self, name_to_type: dict[Any, AxisType]) -> AbstractMesh:
        """Return a copy of the mesh in which the axes named in `name_to_type` have new types."""
        types = [name_to_type.get(n, t)
                 for n, t in zip(self.axis_names, self.axis_types, strict=True)]
        return self.update(axis_types=tuple(types))

    def _key(self) -> Any:
        return self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        sizes = self._sizes_text() or "()"
        device = f", {self.abstract_device}" if self.abstract_device is not None else ""
        return f"AbstractMesh({sizes}, axis_types={self.axis_types}{device})"


EMPTY = Mesh(np.empty((), dtype=object), ())
EMPTY_ABSTRACT = AbstractMesh((), ())


# -------------------------------------------------------------------------- the current mesh


_entered = Context(())  # meshes of `with mesh:`, innermost last
_concrete = Context(EMPTY)
_abstract = Context(EMPTY_ABSTRACT)


def get_mesh() -> Mesh:
    """Return the mesh that `set_mesh` has set.

    Returns:
        The mesh, or a mesh without axes if no mesh is set.

    Raises:
        ValueError: the function is called inside a jitted function. Use `get_abstract_mesh`
            instead.

    >>> toile.sharding.get_mesh().empty
    True
    """
    if state.trace is not None and state.trace.staging:
        raise ValueError(
            "`get_mesh` can only be used outside `toile.jit`. Maybe you want "
            "`toile.sharding.get_abstract_mesh()`?" + here()
        )
    return _concrete.value


def mesh_set() -> Mesh:
    """Like `get_mesh`, but it also works in traced functions, whose cache keys include the mesh."""
    return _concrete.value


def get_abstract_mesh() -> AbstractMesh:
    """Return the current mesh without its devices, even inside jitted functions.

    Returns:
        The abstract mesh, or a mesh without axes if no mesh is set.

    >>> with toile.set_mesh(toile.make_mesh((1,), ("x",))):
    ...     print(toile.sharding.get_abstract_mesh().axis_names)
    ('x',)
    """
    return _abstract.value


def mesh_in_force() -> Any:
    """The mesh set by `set_mesh`, `use_abstract_mesh` or `with mesh:`, or else an empty mesh."""
    if not _concrete.value.empty:
        return _concrete.value
    if not _abstract.value.empty:
        return _abstract.value
    return _entered.value[-1] if _entered.value else EMPTY


class set_mesh:
    """Set the current mesh permanently or, if used as a context manager, until the block ends.

    While there is a current mesh, `P("x")` can be used instead of a sharding, and `shard_map` can
    be called without a mesh.

    Args:
        mesh: the mesh to set; None for no current mesh.

    >>> with toile.set_mesh(toile.make_mesh((1,), ("x",))):
    ...     print(toile.sharding.get_mesh().axis_names)
    ('x',)
    """

    def __init__(self, mesh: Mesh | None):
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(
                f"Expected mesh of type `toile.sharding.Mesh`. Got {type(mesh)}{here()}"
            )
        if state.trace is not None and state.trace.staging:
            raise ValueError("`set_mesh` can only be used outside `toile.jit`." + here())
        if mesh is not None and mesh.manual_axes:
            raise ValueError(f"set_mesh: {mesh} contains manual axes (needed a mesh of Auto and "
                             f"Explicit axes; axes are Manual only in shard_map){here()}")
        self.prev_mesh, self.prev_abstract_mesh = _concrete.value, _abstract.value
        _concrete.set(EMPTY if mesh is None else mesh)
        _abstract.set(EMPTY_ABSTRACT if mesh is None else mesh.abstract_mesh)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        _concrete.set(self.prev_mesh)
        _abstract.set(self.prev_abstract_mesh)


class use_abstract_mesh:
    """Set the mesh that `get_abstract_mesh` returns inside a `with` block.

    Args:
        mesh: the mesh, an `AbstractMesh`.

    >>> with toile.sharding.use_abstract_mesh(toile.sharding.AbstractMesh((4,), ("x",))):
    ...     print(toile.sharding.get_abstract_mesh().axis_sizes)
    (4,)
    """

    def __init__(self, mesh: AbstractMesh):
        if not isinstance(mesh, AbstractMesh):
            raise ValueError(
                f"Expected mesh of type `toile.sharding.AbstractMesh`. Got {type(mesh)}{here()}"
            )
        self.mesh = mesh
        self.prev: list[AbstractMesh] = []

    def __enter__(self) -> None:
        self.prev.append(_abstract.value)
        _abstract.set(self.mesh)

    def __exit__(self, *_: Any) -> None:
        _abstract.set(self.prev.pop())


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: AxisTypes | None = None, *,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """Create a mesh of devices with axes of the given sizes.

    Args:
        axis_shapes: size of each axis.
        axis_names: name of each axis.
        axis_types: `AxisType` of each axis, or one type for all; None for `Explicit`.
        devices: list of devices; the mesh uses as many as it needs, starting with the first. If
            `devices` is None, the list is `toile.devices()`.

    Returns:
        The mesh.

    Raises:
        ValueError: there are fewer devices than the mesh needs. The environment variable
            `TOILE_CPU_DEVICES` sets the number of CPU devices.

    >>> dict(toile.make_mesh((1, 1), ("data", "model")).shape)
    {'data': 1, 'model': 1}
    """
    shape, names = tuple(axis_shapes), tuple(axis_names)
    available = default_devices() if devices is None else list(devices)
    needed = math.prod(shape)
    if needed > len(available):
        platform = available[0].platform if available else "cpu"
        variable = f"TOILE_{platform.upper()}_DEVICES"
        raise ValueError(
            f"make_mesh: Number of devices {len(available)} must be >= the product of mesh_shape "
            f"{shape} (start with {variable}={needed} for more){here()}"
        )
    grid = np.array(available[:needed], dtype=object).reshape(shape)
    types = _types_of(axis_types, names, AxisType.Explicit) if len(names) == grid.ndim else None
    return Mesh(grid, names, types)
