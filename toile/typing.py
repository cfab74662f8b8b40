"""Types for annotations: array-likes, dtypes, keys, initializers, axes.

`ArrayLike` is anything that the functions of `toile.numpy` accept for one array: arrays, NumPy
arrays and scalars, Python scalars; not lists. `DTypeLike` is anything that names a dtype. The other
names are used in annotations of modules, with the few small containers that go with them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar, cast

from toile import numpy as jnp
from toile.core.frozen_dict import FrozenDict
from toile.core.lift.axes import In, Out
from toile.core.meta import LogicalNames
from toile.core.spmd import AxisName, LogicalRules, Sharding
from toile.engine.annotations import ArrayLike, DTypeLike
from toile.engine.trace import Array as _Array
from toile.lax import Precision
from toile.nn import initializers
from toile.tree_util import SequenceKey, register_pytree_with_keys, tree_leaves

__all__ = [
    "MISSING", "Array", "ArrayLike", "ArrayPytree", "Axes", "Axis", "AxisName", "BaseConfigContext",
    "Collection", "ConvGeneralDilatedT", "DTypeLike", "DotGeneralT", "Dtype", "EinsumT",
    "FrozenVariableDict", "HashableMapping", "In", "InOutAxis", "InOutScanAxis", "Initializer",
    "Key", "LaxPadding", "Leaf", "LogicalNames", "LogicalPartitionSpec",
    "LogicalPartitionSpecPytree", "LogicalRules", "Missing", "MutableCollection",
    "MutableVariableDict", "Out", "PRNGFoldable", "PRNGKey", "PaddingLike", "PartitionSpecPytree",
    "Path", "PathParts", "PrecisionLike", "PromoteDtypeFn", "PytreeDeque", "RNGSequences",
    "ScanAxis", "Shape", "ShapeDtype", "Sharding", "SizeBytes", "TupleArg", "VariableDict",
    "has_shape_dtype", "is_key_like",
]

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])
HA = TypeVar("HA", bound=Hashable)
HB = TypeVar("HB")
K = TypeVar("K")
T = TypeVar("T")
TupleArg = TypeVar("TupleArg", bound=tuple)


# Arrays and keys.

Array = _Array | Any
PRNGKey = _Array
RNGSequences = dict[str, PRNGKey]
PRNGFoldable = int | str
Dtype = DTypeLike | Any
Shape = Sequence[int]
Initializer = initializers.Initializer | Callable[..., Any]


class ShapeDtype(Protocol):
    """Anything with a shape and a dtype."""

    shape: Shape
    dtype: Dtype


def has_shape_dtype(x: Any) -> TypeGuard[ShapeDtype]:
    """Whether `x` has a shape and a dtype."""
    return hasattr(x, "shape") and hasattr(x, "dtype")


# Linear layers.

PrecisionLike = str | Precision | tuple[str, str] | tuple[Precision, Precision] | None
DotGeneralT = Callable[..., Array]
ConvGeneralDilatedT = Callable[..., Array]
EinsumT = Callable[..., Array]
PaddingLike = str | int | Sequence[int | tuple[int, int]]
LaxPadding = str | Sequence[tuple[int, int]]


class PromoteDtypeFn(Protocol):
    """Converts arrays to one dtype, like `nn.dtypes.promote_dtype`."""

    def __call__(
        self, args: TupleArg, /, *, dtype: Any = None, inexact: bool = True
    ) -> TupleArg: ...


# Variables.


class Key(Hashable, Protocol):
    """The key of a child of a tree: hashable and ordered."""

    def __lt__(self: K, value: K, /) -> bool: ...


def is_key_like(x: Any) -> TypeGuard[Key]:
    """Whether `x` can be a key: hashable and ordered."""
    return hasattr(x, "__hash__") and hasattr(x, "__lt__")


Path = str
PathParts = tuple[Key, ...]
Leaf = Any
Collection = Mapping[str, Any]
MutableCollection = dict[str, Any]
VariableDict = Mapping[str, Collection]
FrozenVariableDict = FrozenDict[str, Collection]
MutableVariableDict = dict[str, MutableCollection]


class Missing:
    """The type of MISSING."""


MISSING = Missing()

# Axes.

Axis = int | None
InOutAxis = Axis | In[Axis] | Out[Axis]
ScanAxis = int
InOutScanAxis = ScanAxis | In[ScanAxis] | Out[ScanAxis]
Axes = int | Sequence[int]
ArrayPytree = Any
LogicalPartitionSpec = Any
LogicalPartitionSpecPytree = Any
PartitionSpecPytree = Any


# Containers.


class PytreeDeque(deque[A]):
    """A deque that is a tree node."""


register_pytree_with_keys(
    PytreeDeque,
    lambda xs: (tuple((SequenceKey(i), x) for i, x in enumerate(xs)), ()),
    lambda _, children: PytreeDeque(children),
    flatten_func=lambda xs: (tuple(xs), ()),
)


class HashableMapping(Mapping[HA, HB], Hashable):
    """An immutable mapping that hashes by its items; keys are ints and strings."""

    def __init__(self, mapping: Mapping[HA, HB], copy: bool = True):
        self._mapping: Mapping[HA, HB] = dict(mapping) if copy else mapping

    def __contains__(self, key: object) -> bool:
        return key in self._mapping

    def __getitem__(self, key: HA) -> HB:
        return self._mapping[key]

    def __iter__(self) -> Iterator[HA]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)

    def __hash__(self) -> int:
        def place(item: tuple[Any, Any]) -> tuple[bool, Any]:  # ints before strings
            if not isinstance(item[0], int | str):
                raise ValueError(f"Unsupported key type: {type(item[0])!r}")
            return isinstance(item[0], str), item[0]

        return hash(tuple(sorted(self._mapping.items(), key=place)))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, HashableMapping) and self._mapping == other._mapping

    def __repr__(self) -> str:
        return repr(self._mapping)

    def update(self, other: Mapping[HA, HB]) -> HashableMapping[HA, HB]:
        """A mapping with the items of both; `other` wins."""
        return HashableMapping({**self._mapping, **other}, copy=False)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeBytes:
    """The number of elements and bytes of arrays."""

    size: int
    bytes: int

    @classmethod
    def from_array(cls, x: ShapeDtype) -> SizeBytes:
        """The size of one array."""
        size = math.prod(x.shape)
        dtype: Any = jnp.dtype(x.dtype) if isinstance(x.dtype, str) else x.dtype
        return cls(size, size * dtype.itemsize)

    @classmethod
    def from_any(cls, x: Any) -> SizeBytes:
        """The size of all arrays in a tree."""
        return sum(map(cls.from_array, filter(has_shape_dtype, tree_leaves(x))), cls(0, 0))

    def __add__(self, other: SizeBytes) -> SizeBytes:
        return SizeBytes(self.size + other.size, self.bytes + other.bytes)

    def __bool__(self) -> bool:
        return bool(self.size)

    def __repr__(self) -> str:
        return f"{self.size:,} ({bytes_text(self.bytes)})"


def bytes_text(count: int) -> str:
    """A number of bytes with a unit: `160 B`, `1.2 KB`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count > unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,} B"


class BaseConfigContext(abc.ABC):
    """A setting with a stack of values: set by a call, for a block (`with`) or a function."""

    @classmethod
    @abc.abstractmethod
    def get_default(cls) -> Any:
        """The value while nothing is set."""

    @classmethod
    @abc.abstractmethod
    def get_stack(cls) -> list[Any]:
        """The stack of values; usually one list per thread."""

    def __init__(self, value: Any, /) -> None:
        stack = self.get_stack()
        self.prev_value = stack[-1] if stack else None
        self.new_value = value
        stack[-1:] = [value]  # takes effect at once; `with` and decorators restore the old one

    @classmethod
    def current_value(cls) -> Any:
        """The current value."""
        stack = cls.get_stack()
        return stack[-1] if stack else cls.get_default()

    def __enter__(self) -> None:
        if self.prev_value is not None:
            self.get_stack().insert(-1, self.prev_value)

    def __exit__(self, *error: Any) -> None:
        self.get_stack().pop()

    def __call__(self, f: F) -> F:
        stack = self.get_stack()
        stack.pop()
        if self.prev_value is not None:
            stack.append(self.prev_value)

        @functools.wraps(f)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.get_stack().append(self.new_value)
            try:
                return f(*args, **kwargs)
            finally:
                self.get_stack().pop()

        return cast(F, wrapper)
