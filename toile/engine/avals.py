"""Abstract values: the shape and dtype of an array before it exists, and the symbolic zero.

An `Aval` is a shape, a dtype and the weak bit; it is immutable and compared by value. `Zero` stands
for a tangent or cotangent that is known to be zero. It refers to the value or aval whose tangent it
is, and makes its own aval only when needed. This module may import engine.dtypes,
engine.foreign_names and engine.source.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from toile.engine import dtypes
from toile.engine.foreign_names import conversion_of
from toile.engine.source import describe, here

Shape = tuple[int, ...]
Leaf: TypeAlias = Any  # an array, a number, or another object with a shape and a dtype


class Aval:
    """The shape and dtype of an array, without its values: the type of a traced value.

    `toile.typeof(x)` returns the aval of an array. Avals are immutable and compared by value.

    Args:
        shape: sizes of the axes.
        dtype: type of the elements.
        weak_type: whether the dtype adapts to the dtypes of other operands, as the dtype of a
            Python number does.
    """

    __slots__ = ("shape", "dtype", "weak_type")

    def __init__(self, shape: Shape, dtype: Any, weak_type: bool = False):
        self.shape = shape
        self.dtype = dtype
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Shape) -> Aval:
        """Return a copy with a different shape."""
        return Aval(shape, self.dtype, self.weak_type)

    def update(self, **changes: Any) -> Aval:
        """Return a copy with a different `shape`, `dtype` or `weak_type`."""
        fields = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type}
        return Aval(**{**fields, **changes})

    def strip_weak_type(self) -> Aval:
        """Return a copy that is not weakly typed."""
        return Aval(self.shape, self.dtype, False) if self.weak_type else self

    def update_weak_type(self, weak_type: bool) -> Aval:
        """Return a copy with or without a weak type."""
        return self.update(weak_type=weak_type)

    def to_tangent_aval(self) -> Aval:
        """Return the aval of tangents, whose dtype is float0 for integers and booleans."""
        return Aval(self.shape, tangent_dtype(self.dtype), self.weak_type)

    to_ct_aval = at_least_vspace = to_tangent_aval  # JAX's other names

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Aval)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.weak_type == other.weak_type
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.weak_type))

    def short(self) -> str:
        """Return a short text such as `f32[2,3]`."""
        return f"{short_dtype(self.dtype)}[{','.join(map(str, self.shape))}]"

    def str_short(self, short_dtypes: bool = False) -> str:
        """Return a text such as `float32[2,3]`, or `f32[2,3]` with `short_dtypes`."""
        name = short_dtype(self.dtype) if short_dtypes else dtypes.name_of(self.dtype)
        return f"{name}[{','.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return ("~" if self.weak_type else "") + self.str_short()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"

    def __reduce__(self) -> Any:
        return Aval, (self.shape, self.dtype, self.weak_type)

    @property
    def sharding(self) -> Any:
        """An empty sharding, because an aval does not say where the array is stored."""
        return NO_SHARDING


class _NoSharding:
    """The sharding of values on one device: an empty mesh and an empty specification."""

    class _Mesh:
        empty = True
        axis_names: tuple[str, ...] = ()
        axis_types: tuple[Any, ...] = ()
        shape: dict[str, int] = {}
        size = 0
        are_all_axes_explicit = are_all_axes_auto = are_all_axes_manual = False

    mesh = _Mesh()
    spec: tuple[Any, ...] = ()
    memory_kind = None
    is_fully_replicated = True

    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def __repr__(self) -> str:
        return "NoSharding()"


NO_SHARDING = _NoSharding()

_SHORT = {
    "float": "f",
    "uint": "u",
    "int": "i",
    "complex": "c",
}


def short_dtype(dtype: Any) -> str:
    """`f32` for float32, `bf16`, `i8`, `c64`, `bool`, `key<fry>`."""
    name = dtypes.name_of(dtype)
    if name == "bfloat16":
        return "bf16"
    for long, short in _SHORT.items():
        if name.startswith(long):
            return short + name[len(long) :]
    return name


def tangent_dtype(dtype: Any) -> Any:
    """The dtype of tangents: float0 for integers, booleans and keys."""
    return dtype if dtypes.is_inexact(dtype) else dtypes.float0


class Zero:
    """The symbolic zero tangent (or cotangent) of the value or aval `like`."""

    __slots__ = ("like",)

    def __init__(self, like: Any):
        self.like = like

    @property
    def aval(self) -> Aval:
        like = self.like
        aval = like if type(like) is Aval else aval_of(like)
        return Aval(aval.shape, tangent_dtype(aval.dtype), False)

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.aval.shape))

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short()})"


_SCALARS = (bool, int, float, complex)


def aval_of(x: Leaf) -> Aval:
    """Return the shape and dtype of a value as an `AbstractValue`.

    Args:
        x: array, traced array, NumPy array or scalar, Python number, or another object with `shape`
            and `dtype`.

    Returns:
        The `AbstractValue`. 64-bit dtypes are narrowed to 32 bits unless `enable_x64` is on. Python
        numbers other than booleans are weakly typed.

    Raises:
        TypeError: `x` is neither an array nor a number, or its elements are not numbers.

    >>> toile.core.get_aval(1.0)
    ShapedArray(float32[], weak_type=True)
    """
    try:
        return x.aval
    except AttributeError:
        pass
    kind = type(x)
    if kind in _SCALARS:
        return Aval((), dtypes.scalar_dtype(x), kind is not bool)
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype == dtypes.float0:
            return Aval(x.shape, dtypes.float0)
        if kind is not np.ndarray or x.dtype.kind in "OUSMm":
            check_numeric(x)
        return Aval(x.shape, dtypes.canonicalize_dtype(x.dtype))
    if getattr(x, "__jax_array__", None) is not None:
        return aval_of(x.__jax_array__())
    if isinstance(x, _SCALARS):
        base: Any = next(t for t in _SCALARS if isinstance(x, t))
        return Aval((), dtypes.scalar_dtype(base(x)), base is not bool)
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return Aval(tuple(x.shape), dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True),
                    bool(getattr(x, "weak_type", False)))
    raise TypeError(
        f"Argument {describe(x)} of type {type(x)} is not a valid JAX type: needed an array, a "
        f"NumPy array or a number ({conversion_of(x) or 'wrap it in a pytree, or mark it static'})"
        + here()
    )


def is_masked(x: Any) -> bool:
    """Whether `x` is a masked array; `numpy.ma` is loaded only for subclasses of arrays."""
    of_subclass = isinstance(x, np.ndarray) and type(x) is not np.ndarray
    return of_subclass and isinstance(x, np.ma.MaskedArray)


def check_numeric(x: Any) -> None:
    """Refuse NumPy arrays that no operation accepts: masked arrays and arrays of non-numbers."""
    if is_masked(x):
        raise ValueError(
            "numpy masked arrays are not supported as direct inputs to JAX functions: needed a "
            f"plain array, got {type(x)} (use arr.filled()){here()}"
        )
    if x.dtype.kind in "OUSMm":
        raise TypeError(
            f"Argument {x!r} of type {type(x)} is not a valid JAX type. Value with dtype "
            f"{x.dtype} is not a valid JAX array type: needed numbers or booleans{here()}"
        )
