"""Types for annotations: array-likes, dtypes, keys, initializers, axes.

`ArrayLike` is any value that the functions of `toile.numpy` accept as an array: a toile or NumPy
array, a NumPy scalar or a Python scalar, but not a list. `DTypeLike` is any value that names a
dtype. Apart from a few small containers, the other names are for annotations in modules:

- `Array`, `PRNGKey`, `Dtype`, `Shape`: an array, a random key, a dtype and a shape.
- `Initializer`: a function `f(key, shape, dtype)` that returns an array.
- `RNGSequences`: a dict that maps stream names to random keys.
- `PRNGFoldable`: a value that can be folded into a key.
- `PrecisionLike`, `PaddingLike`, `LaxPadding`, `DotGeneralT`, `ConvGeneralDilatedT`, `EinsumT`:
  arguments of linear layers.
- `VariableDict`, `FrozenVariableDict`, `MutableVariableDict`: all variables, by collection and
  name.
- `Collection`, `MutableCollection`: the variables of one collection, by name.
- `Path`, `PathParts`, `Leaf`: the location of a variable in these dicts, and its value.
- `Axis`, `Axes`, `ScanAxis`, `InOutAxis`, `InOutScanAxis`: the axes that transforms map over.
- `LogicalNames`, `LogicalRules`, `LogicalPartitionSpec`, `Sharding` and related names: how
  variables are divided among devices.
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
from toile.engine.annotations import ArrayLike, DTypeLike, PyTree
from toile.engine.trace import Array as _Array
from toile.lax.contractions import PrecisionLike
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
    """Protocol for objects with a shape and a dtype, for use only in annotations.

    Args:
        *args, **kwargs: not used; a protocol has no instances.
    """

    shape: Shape
    dtype: Dtype


def has_shape_dtype(x: object) -> TypeGuard[ShapeDtype]:
    """Test whether an object has a shape and a dtype.

    Args:
        x: any object.

    Returns:
        True if `x` has the attributes `shape` and `dtype`.
    """
    return hasattr(x, "shape") and hasattr(x, "dtype")


# Linear layers.

DotGeneralT = Callable[..., Array]
ConvGeneralDilatedT = Callable[..., Array]
EinsumT = Callable[..., Array]
PaddingLike = str | int | Sequence[int | tuple[int, int]]
LaxPadding = str | Sequence[tuple[int, int]]


class PromoteDtypeFn(Protocol):
    """Protocol for functions that convert arrays to one dtype, like `linen.dtypes.promote_dtype`.

    Args:
        *args, **kwargs: not used; a protocol has no instances.
    """

    def __call__(
        self, args: TupleArg, /, *, dtype: DTypeLike | None = None, inexact: bool = True
    ) -> TupleArg: ...


# Variables.


class Key(Hashable, Protocol):
    """Protocol for hashable, ordered keys of a tree's children, for use only in annotations.

    Args:
        *args, **kwargs: not used; a protocol has no instances.
    """

    def __lt__(self: K, value: K, /) -> bool: ...


def is_key_like(x: object) -> TypeGuard[Key]:
    """Test whether an object has the methods of a key, which identifies a child in a tree.

    Args:
        x: any object.

    Returns:
        True if `x` has the attributes `__hash__` and `__lt__`. Lists and dictionaries have these
        attributes, although they are not hashable.
    """
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
    """The type of `MISSING`, which stands for an omitted argument."""


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
    """A deque that is a tree node with its elements as children, like a list."""


register_pytree_with_keys(
    PytreeDeque,
    lambda xs: (tuple((SequenceKey(i), x) for i, x in enumerate(xs)), ()),
    lambda _, children: PytreeDeque(children),
    flatten_func=lambda xs: (tuple(xs), ()),
)


class HashableMapping(Mapping[HA, HB], Hashable):
    """An immutable, hashable mapping.

    Args:
        mapping: the items. The keys must be integers or strings.
        copy: whether the items are copied. Pass False only if `mapping` is never changed.

    >>> from toile.typing import HashableMapping
    >>> hash(HashableMapping({"a": 1, "b": 2})) == hash(HashableMapping({"b": 2, "a": 1}))
    True
    """

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
        """Return a mapping that contains the items of this mapping and of another mapping.

        Args:
            other: items to add. An item whose key is already present replaces the old item.

        Returns:
            A new mapping.
        """
        return HashableMapping({**self._mapping, **other}, copy=False)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeBytes:
    """The number of elements and the size in bytes of one or more arrays.

    Two `SizeBytes` objects can be added.

    Args:
        size: number of elements.
        bytes: size in bytes.

    >>> from toile.typing import SizeBytes
    >>> SizeBytes.from_any({"kernel": jnp.ones((20, 30)), "bias": jnp.ones(30)})
    630 (2.5 KB)
    """

    size: int
    bytes: int

    @classmethod
    def from_array(cls, x: ShapeDtype) -> SizeBytes:
        """Return the size of one array.

        Args:
            x: array, or another object with a shape and a dtype.

        Returns:
            The size of the array.
        """
        size = math.prod(x.shape)
        dtype: Any = jnp.dtype(x.dtype) if isinstance(x.dtype, str) else x.dtype
        return cls(size, size * dtype.itemsize)

    @classmethod
    def from_any(cls, x: PyTree) -> SizeBytes:
        """Return the size of all arrays in a tree.

        Args:
            x: tree of arrays. Leaves without a shape and a dtype are skipped.

        Returns:
            The sum of the sizes.
        """
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
    """A setting that can be changed for a block of code, for one function or permanently.

    A subclass defines `get_default` and `get_stack`. If `Setting` is such a subclass,
    `Setting(value)` changes the value permanently, `with Setting(value):` changes it within the
    block, and the decorator `@Setting(value)` changes it while the decorated function runs.

    Args:
        value: new value.
    """

    @classmethod
    @abc.abstractmethod
    def get_default(cls) -> Any:
        """Return the default value."""

    @classmethod
    @abc.abstractmethod
    def get_stack(cls) -> list[Any]:
        """Return the stack of values, usually a separate list for each thread."""

    def __init__(self, value: Any, /) -> None:
        stack = self.get_stack()
        self.prev_value = stack[-1] if stack else None
        self.new_value = value
        stack[-1:] = [value]  # takes effect at once; `with` and decorators restore the old value

    @classmethod
    def current_value(cls) -> Any:
        """Return the current value."""
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
