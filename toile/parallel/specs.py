"""PartitionSpec and NamedSharding, which specify which mesh axes divide which axes of an array.

This code does not depend on the number of devices, which only limits which meshes can be created.
This module may import the engine and parallel.meshes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence, Set
from typing import Any, TypeAlias

from toile.engine.shardings import Index, Shape, Sharding, checked_memory_kind
from toile.engine.source import here
from toile.parallel.meshes import AbstractMesh, Mesh


class IndivisibleError(ValueError):
    """An axis of an array cannot be divided into as many equal parts as its sharding requires."""


class DuplicateSpecError(ValueError):
    """A PartitionSpec uses one mesh axis twice."""


class _Unconstrained:
    """The entry of a PartitionSpec that leaves an axis to the compiler."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> Any:
        return _unconstrained, ()


def _unconstrained() -> _Unconstrained:
    return UNCONSTRAINED


UNCONSTRAINED = _Unconstrained()


def _canonical(entry: Any) -> Any:
    """The canonical form of an entry: a tuple of one name becomes the name, and () becomes None."""
    if isinstance(entry, (tuple, list)):
        return None if not entry else entry[0] if len(entry) == 1 else tuple(entry)
    return entry


class PartitionSpec:
    """A description of how an array is divided: for each axis, the mesh axes that divide it.

    Args:
        partitions: one entry for each axis of the array. An entry is the name of the mesh axis that
            divides the array's axis, a tuple of several names, None for an axis that is not
            divided, or `P.UNCONSTRAINED` if the compiler may choose. Axes without an entry are not
            divided.
        unreduced: set of the mesh axes along which the devices' parts still have to be summed.
        reduced: set of the mesh axes along which the cotangent still has to be summed.

    >>> from toile.sharding import P
    >>> P("data", None, ("x", "y"))
    P('data', None, ('x', 'y'))
    """

    __slots__ = ("_partitions", "unreduced", "reduced")
    UNCONSTRAINED = UNCONSTRAINED

    def __init__(
        self, *partitions: Hashable | Sequence[Hashable], unreduced: Set[Hashable] = frozenset(),
        reduced: Set[Hashable] = frozenset()
    ):
        self._partitions = tuple(_canonical(p) for p in partitions)
        for name, given in (("unreduced", unreduced), ("reduced", reduced)):
            if not isinstance(given, (set, frozenset)):
                raise TypeError(f"PartitionSpec: needed `{name}` as a set, got {given!r}{here()}")
        self.unreduced, self.reduced = frozenset(unreduced), frozenset(reduced)

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entries as a tuple."""
        return self._partitions

    def update(self, partitions: Any = None, unreduced: Any = None, reduced: Any = None
               ) -> PartitionSpec:
        """Return a copy with some parts replaced."""
        return PartitionSpec(
            *(self._partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def to_tangent_spec(self) -> PartitionSpec:
        """Return the spec for tangents, which is this spec itself."""
        return self

    def to_ct_spec(self) -> PartitionSpec:
        """Return the spec for cotangents, in which unreduced and reduced axes are swapped."""
        return self.update(unreduced=self.reduced, reduced=self.unreduced)

    def index(self, value: Any) -> int:
        """Return the position of the first entry that is equal to `value`."""
        return self._partitions.index(_canonical(value))

    def count(self, value: Any) -> int:
        """Return the number of entries that are equal to `value`."""
        return self._partitions.count(_canonical(value))

    def __getitem__(self, i: Any) -> Any:
        return self._partitions[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            return PartitionSpec(*self, *other, unreduced=self.unreduced | other.unreduced,
                                 reduced=self.reduced | other.reduced)
        if isinstance(other, tuple):
            return self.update(partitions=(*self, *other))
        raise NotImplementedError(
            f"PartitionSpec: needed a spec or a tuple to add, got {other!r}{here()}"
        )

    def __radd__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, tuple):
            raise NotImplementedError(
                f"PartitionSpec: needed a tuple to add to, got {other!r}{here()}"
            )
        return self.update(partitions=(*other, *self))

    def _key(self) -> Any:
        return self._partitions, self.unreduced, self.reduced

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        inside = repr(self._partitions)[1:-1]
        for name in ("unreduced", "reduced"):
            axes = getattr(self, name)
            if axes:
                shown = "{" + ", ".join(repr(a) for a in sorted(axes)) + "}"
                inside = f"{inside.rstrip(',')}{', ' if inside else ''}{name}={shown}"
        return f"P({inside})"

    def __reduce__(self) -> Any:
        return _spec, (self._partitions, self.unreduced, self.reduced)


def _spec(partitions: Any, unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


P = PartitionSpec
ShardingLike: TypeAlias = Sharding | PartitionSpec  # specifies where an array is placed


def axes_of(entry: Any) -> tuple[Any, ...]:
    """The mesh axes of one entry of a spec."""
    if entry is None or entry is UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def check_spec(mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> None:
    """Raise an error for axes that are not in the mesh, and for axes that are used twice."""
    seen: set[Any] = set()
    for name in [*(n for e in spec for n in axes_of(e)), *spec.unreduced, *spec.reduced]:
        if name not in mesh.axis_names:
            raise ValueError(
                f"Resource axis: {name} of {spec} is not found in mesh: {mesh.axis_names} (use "
                f"a name of the mesh, or make one with this axis).{here()}"
            )
        if name in seen:
            raise DuplicateSpecError(
                "A single NamedSharding spec specification can map every mesh axis to at most one "
                f"positional dimension, but {spec} has duplicate entries for `{name}` (give each "
                f"axis of the mesh to one dimension){here()}"
            )
        seen.add(name)


class NamedSharding(Sharding):
    """A sharding that places an array on a mesh of devices according to a `PartitionSpec`.

    Args:
        mesh: mesh of devices. If the mesh is abstract, the sharding describes the parts, but it
            cannot be used to place arrays.
        spec: for each axis of the array, the mesh axes that divide it.
        memory_kind: the kind of memory on the devices; None for the default kind.

    Raises:
        ValueError: the spec names an axis that the mesh does not have, or names an axis twice.

    >>> from toile.sharding import NamedSharding, P
    >>> sharding = NamedSharding(toile.make_mesh((1,), ("x",)), P("x"))
    >>> x = toile.device_put(jnp.arange(4), sharding)
    >>> x.sharding.spec
    P('x',)
    """

    __slots__ = ("mesh", "spec", "_memory_kind")
    mesh: Any
    spec: PartitionSpec

    def __init__(self, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *,
                 memory_kind: str | None = None):
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise TypeError(
                f"NamedSharding: needed a Mesh or an AbstractMesh, got {mesh!r}{here()}"
            )
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"NamedSharding: needed a PartitionSpec, got {spec!r} (write P(*spec)){here()}"
            )
        check_spec(mesh, spec)
        self.mesh, self.spec = mesh, spec
        default = None if isinstance(mesh, AbstractMesh) else "device"
        self._memory_kind = default if memory_kind is None else checked_memory_kind(memory_kind)

    @property
    def memory_kind(self) -> str | None:
        return self._memory_kind

    def with_memory_kind(self, kind: str) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec, memory_kind=kind)

    def update(self, **kwargs: Any) -> NamedSharding:
        """Return a copy with a different `mesh`, `spec` or `memory_kind`."""
        given = {"mesh": self.mesh, "spec": self.spec, "memory_kind": self._memory_kind, **kwargs}
        spec = given["spec"]
        spec = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        return NamedSharding(given["mesh"], spec, memory_kind=given["memory_kind"])

    def everywhere(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(), memory_kind=self._memory_kind)

    def _needs_devices(self, what: str) -> None:
        if isinstance(self.mesh, AbstractMesh):
            raise ValueError(
                f"{what} is not implemented for `toile.sharding.AbstractMesh`.{here()}"
            )

    @property
    def device_set(self) -> set[Any]:
        self._needs_devices("device_set")
        return set(self.mesh.devices.flat)

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        self._needs_devices("_device_assignment")
        return tuple(self.mesh.devices.flat)

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    @property
    def is_fully_addressable(self) -> bool:
        self._needs_devices("is_fully_addressable")
        return not self.mesh.is_multi_process

    @property
    def is_fully_replicated(self) -> bool:
        sizes = self.mesh.shape
        return all(sizes[a] == 1 for e in self.spec for a in axes_of(e))

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The names of the mesh axes that do not divide the array."""
        used = {a for e in self.spec for a in axes_of(e)}
        return frozenset(self.mesh.axis_names) - used

    def _tiling(self, ndim: int) -> list[tuple[tuple[Any, ...], int]]:
        """For each axis of an array: the mesh axes that divide it, and the number of parts."""
        sizes = self.mesh.shape
        entries = [axes_of(e) for e in self.spec][:ndim]
        entries += [()] * (ndim - len(entries))
        return [(names, math.prod(sizes[n] for n in names)) for names in entries]

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise a ValueError if an array of this shape has fewer axes than the spec has entries."""
        if len(aval_shape) < len(self.spec):
            extra = " For scalars the PartitionSpec should be P()" if not aval_shape else ""
            raise ValueError(
                f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but "
                f"was applied to a value of rank {len(aval_shape)} (remove entries of the spec, "
                f"or add axes to the value).{extra}{here()}"
            )

    def shard_shape(self, global_shape: Shape) -> Shape:
        shape = tuple(global_shape)
        tiling = self._tiling(len(shape))
        for i, (size, (_, parts)) in enumerate(zip(shape, tiling, strict=True)):
            if size % parts:
                raise IndivisibleError(
                    f"{self} implies that array axis {i} is partitioned {parts} times, "
                    f"but the dimension size is {size} (full shape: {shape}, per-dimension tiling "
                    f"factors: {tuple(p for _, p in tiling)} should evenly divide the shape)"
                )
        return tuple(s // p for s, (_, p) in zip(shape, tiling, strict=True))

    def _positions(self, ndim: int) -> list[tuple[Any, tuple[int, ...]]]:
        """Each device with the index of its part along each axis of an array."""
        self._needs_devices("devices_indices_map")
        sizes, names = self.mesh.shape, self.mesh.axis_names
        tiling = self._tiling(ndim)
        found = []
        for place in _places(self.mesh.axis_sizes):
            at = dict(zip(names, place, strict=True))
            part = []
            for axes, _ in tiling:
                k = 0
                for a in axes:  # the first name varies slowest
                    k = k * sizes[a] + at[a]
                part.append(k)
            found.append((self.mesh.devices[place], tuple(part)))
        return found

    def devices_indices_map(self, global_shape: Shape) -> dict[Any, Index]:
        shape = tuple(global_shape)
        local = self.shard_shape(shape)
        tiling = self._tiling(len(shape))
        return {
            device: tuple(
                slice(None) if parts == 1 else slice(k * n, (k + 1) * n)
                for k, n, (_, parts) in zip(part, local, tiling, strict=True)
            )
            for device, part in self._positions(len(shape))
        }

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        if not isinstance(other, Sharding) or other.memory_kind != self.memory_kind:
            return False
        if isinstance(other, NamedSharding):
            if isinstance(self.mesh, AbstractMesh) or isinstance(other.mesh, AbstractMesh):
                return self.mesh == other.mesh and self._tiling(ndim) == other._tiling(ndim)
            counts = [[p for _, p in s._tiling(ndim)] for s in (self, other)]
            return counts[0] == counts[1] and self._positions(ndim) == other._positions(ndim)
        return self.num_devices == other.num_devices == 1 and self.device_set == other.device_set

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedSharding):
            return NotImplemented
        return (self.mesh == other.mesh and self.spec == other.spec
                and self._memory_kind == other._memory_kind)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec, self._memory_kind))

    def __repr__(self) -> str:
        kind = f", memory_kind={self._memory_kind}" if self._memory_kind else ""
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec}{kind})"

    def __reduce__(self) -> Any:
        return _named, (self.mesh, self.spec, self._memory_kind)


def _named(mesh: Any, spec: PartitionSpec, kind: str | None) -> NamedSharding:
    return NamedSharding(mesh, spec, memory_kind=kind)


def _places(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """All index tuples of a shape, the last axis fastest."""
    places: list[tuple[int, ...]] = [()]
    for n in sizes:
        places = [(*p, i) for p in places for i in range(n)]
    return places
