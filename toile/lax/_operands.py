"""Conversion of user arguments to operands: arrays, axes, dtypes, and checked operations.

An eager operation does not check shapes first, because NumPy detects most errors; this module
checks for the errors that NumPy does not detect. `prepared` creates an operation for given
parameters and operand types, checks the types with the operation's `infer` rule, and caches the
operation, so that a second call with the same types costs one lookup. This module may import the
engine, primitives and parallel.specs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.config import flags
from toile.engine.conversion import as_array
from toile.engine.errors import TracedArgumentError, axis_error, shape_value_error
from toile.engine.platform_registry import registry
from toile.engine.promotion import KIND_LETTERS, NARROW_INTEGERS, NARROWED
from toile.engine.source import describe, here, message
from toile.engine.trace import Tracer, state
from toile.primitives.families import broadcast_in_dim

if TYPE_CHECKING:
    from toile.engine.shardings import Sharding
    from toile.parallel.specs import PartitionSpec

    ShardingLike: TypeAlias = Sharding | PartitionSpec

F = TypeVar("F", bound=Callable[..., Any])
# The kinds of dtype that a Python number can adopt from an array operand.
_FITS = {bool: "b", int: "iufc", float: "fc", complex: "c"}


def named(fun: Any, declared: F) -> F:
    """`fun` with the name, docstring and types of a declaration."""
    fun.__name__ = fun.__qualname__ = declared.__name__
    fun.__doc__, fun.__annotations__ = declared.__doc__, declared.__annotations__
    fun.__module__ = declared.__module__
    return fun


def operand(name: str, x: Any, position: int = 0) -> Array:
    """`x` as an `Array`; raise a TypeError if it is neither an array nor a number."""
    if x.__class__ is DeviceArray or isinstance(x, Array):
        return x
    try:
        return as_array(x)
    except TypeError:
        raise TypeError(f"Error interpreting argument to {name} as a JAX value. The problematic "
                        f"value is of type {type(x)} and was passed to {name} at position "
                        f"{position}: needed an array or a number, got {x!r}{here()}") from None


def operands(name: str, xs: Sequence[Any]) -> list[Array]:
    """The operands as arrays; Python numbers adopt the dtype of the first array if possible."""
    arrays = [x for x in xs if x.__class__ not in _FITS]
    if len(arrays) == len(xs):
        return [x if isinstance(x, Array) else operand(name, x, i) for i, x in enumerate(xs)]
    if not arrays:
        return [as_array(x) for x in xs]
    like = operand(name, arrays[0])
    kind, out = dtypes.kind(like.dtype), list[Array]()
    for i, x in enumerate(xs):
        if kind in _FITS.get(type(x), ""):
            out.append(DeviceArray(np.asarray(x, like.dtype), like.weak_type))
        else:
            out.append(operand(name, x, i))
    return out


def stretched(xs: Sequence[Any], scalars: bool = False) -> list[Array]:
    """The operands with axes of size 1 broadcast; with `scalars`, also operands of rank 0."""
    rank = max(x.ndim for x in xs)
    shapes = [x.shape for x in xs if x.ndim == rank]
    shape = tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*shapes, strict=True))
    out = []
    for x in xs:
        if x.shape == shape or (not x.ndim and not scalars):
            out.append(x)
        elif not x.ndim:
            out.append(broadcast_in_dim(x, shape, ()))
        elif x.ndim == rank and all(n in (1, m) for n, m in zip(x.shape, shape, strict=True)):
            out.append(broadcast_in_dim(x, shape, tuple(range(rank))))
        else:
            out.append(x)  # the operation says what is wrong
    return out


def checked(op: Any, args: Sequence[Any]) -> Any:
    """Call an operation whose operands have not been checked yet."""
    if state.trace is None:
        if registry.active:
            found = registry.quickly(op, args)
            if found is not NotImplemented:
                return found
        op.infer(*[aval_of(a) for a in args])
    return op(*args)


def dtypes_of(kinds: str) -> frozenset[Any]:
    """All dtypes of the kinds with the given letters, except integers of fewer than 8 bits."""
    return frozenset(d for d, letter in KIND_LETTERS.items() if letter in kinds) - NARROW_INTEGERS


@lru_cache(maxsize=8192)
def prepared(kind: Any, fields: tuple[Any, ...], *types: Any) -> Any:
    """The operation `kind(*fields)`, checked for operands of the shapes and dtypes in `types`."""
    op = kind(*fields)
    op.infer(*[Aval(types[i], types[i + 1]) for i in range(0, len(types), 2)])
    return op


# Axes, sizes and dtypes.


def sizes(name: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of nonnegative ints."""
    if type(shape) is not tuple:
        shape = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    for n in shape:
        if type(n) is not int:
            try:
                shape = tuple(map(operator.index, shape))
            except TypeError:
                raise shape_value_error(name, shape) from None
            break
    if shape and min(shape) < 0:
        told = "reshape new_sizes must all be positive" if name == "reshape" else (
            f"{name} shape must have every element be nonnegative")
        raise TypeError(f"{told}, got {shape}: {name} needed a shape of sizes >= 0{here()}")
    return shape


def ints(values: Any) -> tuple[int, ...]:
    """A sequence of integers as a tuple of ints."""
    return tuple(map(operator.index, values))


def one_or_more(values: Any) -> tuple[Any, ...]:
    """The elements of a sequence or of a 1D array of integers, or a tuple of the value itself."""
    if isinstance(values, (np.ndarray, Array)):
        several = values.ndim == 1 and (not values.size or dtypes.kind(values.dtype) in "iu")
    else:
        several = np.iterable(values)
    return tuple(values) if several else (values,)


def axis_of(axis: Any, ndim: int, name: str = "axis") -> int:
    """A nonnegative axis number of an array of rank `ndim`."""
    if type(axis) is not int:
        axis = integer(axis, name)
    if -ndim <= axis < ndim:
        return axis + ndim if axis < 0 else axis
    raise axis_error(axis, ndim, name)


def integer(value: Any, name: str) -> int:
    """An argument as a Python int; `name` is what errors call it."""
    try:
        return operator.index(value)
    except TypeError as error:
        if isinstance(value, Tracer):
            raise TracedArgumentError(*error.args) from None
        raise integer_error(error, value, name) from None


def integer_error(error: TypeError, value: Any, name: str) -> TypeError:
    """The error for an argument that is no integer, from Python's error."""
    advice = "pass one number"
    if isinstance(value, (float, np.floating)):
        advice = "convert it with int, or divide with // instead of /"
    elif getattr(value, "ndim", 0):
        advice = "pass several arrays as one list, or use a function of two, such as maximum"
    elif isinstance(value, Array):
        advice = "convert it with int(x)"
    told = message(error).partition(": got ")[0]  # without what arrays say about themselves
    return TypeError(f"{told}: needed an integer for {name}, got {describe(value)} "
                     f"({advice}){here()}")


def axes_of(name: str, axes: Any, x: Any) -> tuple[int, ...]:
    """The axes of a reduction as a sorted tuple; raise unless they are in range and distinct."""
    axes = ints(axes)
    if any(not 0 <= a < x.ndim for a in axes):
        raise ValueError(f"reduction axes {axes} contains out-of-bounds indices for "
                         f"{x.aval.str_short()}: {name} needed axes in [0, {x.ndim}){here()}")
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axes' of reduction: {axes} ({name} needed distinct "
                         f"axes){here()}")
    return axes if len(axes) < 2 else tuple(sorted(axes))


# Results of `user_dtype` that caused no warning, with x64 off and with x64 on.
_known: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})


def user_dtype(dtype: Any, name: str = "") -> Any:
    """The dtype that a user's `dtype` argument refers to."""
    known = _known[flags.enable_x64]
    try:
        return known[dtype]
    except KeyError:
        pass
    except TypeError:  # unhashable, but it may have an attribute dtype
        return dtypes.check_user_dtype_supported(dtype, name)
    found = dtypes.check_user_dtype_supported(dtype, name)
    silent = not isinstance(found, np.dtype) or (
        found not in NARROWED if isinstance(dtype, type) and dtype in _FITS
        else np.dtype(dtype) not in NARROWED
    )
    if flags.enable_x64 or silent:
        known[dtype] = found
    return found
