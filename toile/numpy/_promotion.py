"""From what a user passes to what `lax` takes: checking, dtype promotion and broadcasting.

Every function of this package goes through here, so the order of the tests matters: arrays that
already agree leave after two or three comparisons. `lax` takes equal shapes or operands of rank 0;
scalars therefore stay scalars and only arrays of different shapes are broadcast. Python numbers
become rank-0 operands of the promoted dtype. May import the engine and `lax`.
"""

from __future__ import annotations

import math
import operator
import warnings
from typing import Any

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import is_masked
from toile.engine.config import flags
from toile.engine.conversion import from_numpy
from toile.engine.errors import ShapeError, axis_error, shape_value_error
from toile.engine.gpu_arrays import GpuArray
from toile.engine.promotion import (
    COMPLEXES,
    FLOATS,
    NARROWED,
    SIGNED,
    UNSIGNED,
    narrowed,
    promote_many,
    promote_pair,
    user_stack_level,
)
from toile.engine.source import describe, here
from toile.engine.tracing import state

BOOL = np.dtype(bool)
INEXACT = frozenset((*FLOATS, *COMPLEXES))
FLOATING = frozenset(FLOATS)
COMPLEX = frozenset(COMPLEXES)
INTEGERS = frozenset((*SIGNED, *UNSIGNED))
UNSIGNED_INTEGERS = frozenset(UNSIGNED)
SIGNED_INTEGERS = frozenset(SIGNED)
HALVES = frozenset(d for d in FLOATS if d.itemsize <= 2)
_NUMBERS = (bool, int, float, complex)
_NUMBER_SET = frozenset(_NUMBERS)
_PLAIN_NUMBERS = frozenset((int, float))
_ALLOWED = frozenset((BOOL, *INEXACT, *INTEGERS))


# What an operand is.


def _refuse(name: str, x: Any, position: int) -> TypeError:
    return TypeError(
        f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position} "
        f"(needed an array or a number: convert it with jnp.array){here()}"
    )


def as_operand(name: str, x: Any, position: int = 0) -> Any:
    """`x` as an Array or a Python number; anything but arrays and numbers is refused."""
    if isinstance(x, Array) or type(x) in _NUMBER_SET:
        return x
    if isinstance(x, (np.ndarray, np.generic)):
        return _from_host(x)
    if hasattr(x, "__jax_array__"):
        return as_operand(name, x.__jax_array__(), position)
    for kind in _NUMBERS:
        if isinstance(x, kind):  # IntEnum members and other subclasses of numbers
            return kind(x)
    raise _refuse(name, x, position)


def _from_host(x: Any) -> Any:
    dtype = x.dtype
    if is_masked(x):
        raise ValueError("numpy masked arrays are not supported: needed a plain array (fill the "
                         f"masked elements with x.filled()){here()}")
    if dtype not in _ALLOWED:
        if dtype == dtypes.float0:
            return x
        raise TypeError(
            f"Value {describe(x)} with dtype {dtype} is not a valid array type: needed a numeric "
            "or boolean dtype (convert it with .astype)." + here()
        )
    return from_numpy(np.asarray(x, narrowed(dtype)))


def as_array(name: str, x: Any, position: int = 0) -> Any:
    """`x` as an Array; a Python number becomes a weakly typed one of rank 0."""
    if type(x) is DeviceArray:
        return x
    x = as_operand(name, x, position)
    return x if type(x) not in _NUMBER_SET else number_array(x)


def number_array(x: Any) -> Any:
    """A Python number as a rank-0 array of its default dtype, weak unless it is a bool."""
    dtype = dtypes.scalar_dtype(x)
    return from_numpy(np.asarray(x, dtype), weak_type=type(x) is not bool)


def check_arraylike(name: str, *args: Any) -> None:
    """Refuse arguments that are neither arrays nor numbers."""
    for position, x in enumerate(args):
        if type(x) is not DeviceArray and not is_arraylike(x):
            raise _refuse(name, x, position)


def is_arraylike(x: Any) -> bool:
    """Whether `x` is an array or a number."""
    return isinstance(x, (Array, np.ndarray, np.generic, *_NUMBERS)) or hasattr(x, "__jax_array__")


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an operand; () for a Python number."""
    return () if type(x) in _NUMBER_SET else x.shape


def pair_of(x: Any) -> tuple[Any, bool]:
    """(dtype, weak) of an operand."""
    kind = type(x)
    if kind in _NUMBER_SET:
        return dtypes.scalar_dtype(x), kind is not bool
    try:
        return x.dtype, x.weak_type
    except AttributeError:  # the one NumPy array that is no operand
        raise TypeError(
            "Called with a float0 array. float0s do not support any operations by design, because "
            "they are not compatible with non-trivial vector spaces: needed numbers (the gradient "
            f"of an integer is float0; compare its dtype with toile.float0){here()}"
        ) from None


# Rank-0 operands made from numbers, by (type, value, dtype, weak). They are never results, so
# nobody can delete one; 0.0 and NaN stay out, which equal -0.0 and nothing.
_literals: dict[tuple[Any, ...], Any] = {}


def literal(value: Any, dtype: Any, weak_type: bool = False) -> Any:
    """The Python number `value` as a rank-0 operand of the given dtype."""
    key = (value.__class__, value, dtype, weak_type)
    found = _literals.get(key)
    if found is not None:
        return found
    made = value
    if dtype in INTEGERS:
        # Out of range wraps, as it does for arrays: -1 is 255 among uint8.
        made = np.array(value, dtypes.scalar_dtype(value)).astype(dtype)
    elif type(value) is complex and dtype not in COMPLEX:
        made = value.real
    with np.errstate(over="ignore"):  # a number too large for the dtype is infinite
        made = DeviceArray(np.array(made, dtype), weak_type)
    kind = type(value)
    if kind is int or kind is bool or (kind is float and value and value == value):
        if len(_literals) >= 4096:
            _literals.clear()
        _literals[key] = made
    return made


def convert(x: Any, dtype: Any, weak_type: bool = False) -> Any:
    """The array or Python number `x` with the given dtype and weak bit."""
    if type(x) in _NUMBER_SET:
        return literal(x, dtype, weak_type)
    if x.dtype == dtype and x.weak_type == weak_type:
        return x
    return lax._convert_element_type(x, dtype, weak_type)


def strengthen(x: Any) -> Any:
    """`x` without its weak bit."""
    return lax._convert_element_type(x, x.dtype, False) if x.weak_type else x


# The dtypes users name.


_known_dtypes: dict[Any, Any] = {}


def user_dtype(dtype: Any, name: str = "") -> Any:
    """A dtype the user named: canonical, with a warning where 64 bits are cut to 32."""
    try:
        return _known_dtypes[dtype]
    except KeyError:
        pass
    except TypeError:  # unhashable, but it may have an attribute dtype
        return dtypes.check_user_dtype_supported(dtype, name)
    found = dtypes.check_user_dtype_supported(dtype, name)
    # Remembered unless the answer depends on x64.
    if not (isinstance(dtype, type) and dtype in _NUMBER_SET):
        if dtypes.is_extended(found) or np.dtype(dtype) not in NARROWED:
            _known_dtypes[dtype] = found
    return found



default_float = dtypes.default_float_dtype
default_int = dtypes.default_int_dtype
_TO_INEXACT = {d: dtypes.to_inexact_dtype(d) for d in (BOOL, *SIGNED, *UNSIGNED)}
_INT32 = np.dtype("int32")


def to_inexact(dtype: Any) -> Any:
    """`dtype` if it is floating or complex; float64 for 64-bit integers, else float32."""
    return _TO_INEXACT.get(dtype, dtype)


def real_part(dtype: Any) -> Any:
    """The float dtype of a complex dtype's parts; other dtypes unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype in COMPLEX else dtype


# Promotion of dtypes.


def promote_dtypes(*args: Any) -> list[Any]:
    """The operands in the dtype they meet in; shapes are left alone."""
    args = _operands("promote_dtypes", args)
    dtype, weak = promote_many([pair_of(x) for x in args])
    return [_to(x, dtype, weak) for x in args]


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """Like `promote_dtypes`, and integers and booleans become floats."""
    args = _operands("promote_dtypes_inexact", args)
    dtype, weak = promote_many([pair_of(x) for x in args])
    dtype = to_inexact(dtype)
    return [_to(x, dtype, weak) for x in args]


def promote_dtypes_numeric(*args: Any) -> list[Any]:
    """Like `promote_dtypes`, and booleans become integers."""
    args = _operands("promote_dtypes_numeric", args)
    dtype, weak = promote_many([pair_of(x) for x in args])
    dtype = _INT32 if dtype == BOOL else dtype
    return [_to(x, dtype, weak) for x in args]


def promote_dtypes_complex(*args: Any) -> list[Any]:
    """Like `promote_dtypes`, and everything becomes complex."""
    args = _operands("promote_dtypes_complex", args)
    dtype, weak = promote_many([pair_of(x) for x in args])
    dtype = dtypes.to_complex_dtype(dtype)
    return [_to(x, dtype, weak) for x in args]


def _to(x: Any, dtype: Any, weak: bool) -> Any:
    """One operand in the common dtype; an operation is weak only if all its operands are."""
    if type(x) in _NUMBER_SET:
        return literal(x, dtype, weak)
    if x.dtype == dtype and (x.weak_type or not weak):
        return x
    return lax._convert_element_type(x, dtype, weak)


# Broadcasting.


def broadcast_shapes(*shapes: tuple[int, ...], name: str = "") -> tuple[int, ...]:
    """The shape that NumPy's rules give arrays of these shapes together."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for sizes in zip(*padded):
        others = {n for n in sizes if n != 1}
        if len(others) > 1:
            raise _unbroadcastable(name, shapes)
        result.append(others.pop() if others else 1)
    return tuple(result)


def _unbroadcastable(name: str, shapes: Any) -> Exception:
    """The words of JAX, which has a TypeError for operands of one rank, else a ValueError."""
    fix = (
        "(sizes must be equal or 1, aligned from the last axis: insert an axis with x[:, None], "
        f"or transpose){here()}"
    )
    if name and len({len(s) for s in shapes}) == 1:
        listed = ", ".join(map(str, shapes))
        return ShapeError(f"{name} got incompatible shapes for broadcasting: {listed}. {fix}")
    of = f"{name}: " if name else ""
    return ShapeError(f"{of}Incompatible shapes for broadcasting: shapes={list(shapes)} {fix}")


def check_rank_promotion(name: str, shapes: list[tuple[int, ...]]) -> None:
    """Warn about or refuse operands of different non-zero ranks, as the configuration asks."""
    mode = flags.numpy_rank_promotion
    if mode == "allow" or len({len(s) for s in shapes if s}) < 2:
        return
    listed = " ".join(map(str, shapes))
    if mode == "warn":
        warnings.warn(
            f"Following NumPy automatic rank promotion for {name} on shapes {listed}. Set the "
            "jax_numpy_rank_promotion config option to 'allow' to disable this warning.",
            stacklevel=user_stack_level(),
        )
        return
    raise ValueError(
        f"Operands could not be broadcast together for {name} on shapes {listed} and with the "
        "config option jax_numpy_rank_promotion='raise'." + here()
    )


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """The array `x` broadcast to `shape`, which it must be able to reach."""
    have = x.shape
    if have == shape:
        return x
    if state.trace is None and type(x) is DeviceArray and type(x._data) is np.ndarray:
        return DeviceArray(np.broadcast_to(x._data, shape), x.weak_type)
    skip = len(shape) - len(have)
    kept = [i for i, n in enumerate(have) if n == shape[skip + i]]
    if len(kept) != len(have):  # sizes of one that grow are dropped first
        x = lax.squeeze(x, tuple(i for i in range(len(have)) if i not in kept))
    return lax.broadcast_in_dim(x, shape, tuple(skip + i for i in kept))


def promote_shapes(name: str, *args: Any) -> list[Any]:
    """The operands broadcast against each other; numbers and arrays of rank 0 stay as they are."""
    shapes = [shape_of(x) for x in args]
    full = [s for s in shapes if s]
    if not full or all(s == full[0] for s in full[1:]):
        return list(args)
    check_rank_promotion(name, full)
    shape = broadcast_shapes(*full, name=name)
    return [broadcast_to(x, shape) if s else x for x, s in zip(args, shapes)]


# Everything at once.


def promote_args(name: str, *args: Any) -> list[Any]:
    """Checked operands with one dtype and equal shapes (or rank 0)."""
    if len(args) == 2:
        return list(pair(name, *args))
    return promote_shapes(name, *promote_dtypes(*_operands(name, args)))


def promote_args_inexact(name: str, *args: Any) -> list[Any]:
    """`promote_args`, with integers and booleans turned into floats."""
    return promote_shapes(name, *promote_dtypes_inexact(*_operands(name, args)))


def promote_args_numeric(name: str, *args: Any) -> list[Any]:
    """`promote_args`, with booleans turned into integers."""
    return promote_shapes(name, *promote_dtypes_numeric(*_operands(name, args)))


def _operands(name: str, args: Any) -> list[Any]:
    return [
        x if type(x) is DeviceArray else as_operand(name, x, i) for i, x in enumerate(args)
    ]


def pair(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands ready for a binary `lax` function: the path of every eager binary ufunc."""
    if x.__class__ is DeviceArray:
        kind = y.__class__
        if kind is DeviceArray:
            if x.dtype is y.dtype:
                if x.shape == y.shape:
                    return x, y
                return tuple(promote_shapes(name, x, y))  # type: ignore[return-value]
        elif (kind is int or kind is float) and not x.weak_type:
            dtype = x.dtype
            if dtype in INEXACT or (kind is int and dtype in INTEGERS):
                return x, literal(y, dtype)
            y = as_operand(name, y, 1)
        else:
            y = as_operand(name, y, 1)
    elif y.__class__ is DeviceArray and x.__class__ in _PLAIN_NUMBERS and not y.weak_type:
        y, x = pair(name, y, x)
        return x, y
    else:
        x, y = as_operand(name, x), as_operand(name, y, 1)
    dtype, weak = promote_pair(*pair_of(x), *pair_of(y))
    x, y = _to(x, dtype, weak), _to(y, dtype, weak)
    return tuple(promote_shapes(name, x, y))  # type: ignore[return-value]


def inexact_pair(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """`pair`, with integers and booleans turned into floats."""
    if x.__class__ is DeviceArray:
        dtype, kind = x.dtype, y.__class__
        if kind is DeviceArray:
            if dtype is y.dtype and x.shape == y.shape and dtype in INEXACT:
                return x, y
        elif (kind is int or kind is float) and dtype in INEXACT and not x.weak_type:
            return x, literal(y, dtype)
        else:
            y = as_operand(name, y, 1)
    else:
        x, y = as_operand(name, x), as_operand(name, y, 1)
    dtype, weak = promote_pair(*pair_of(x), *pair_of(y))
    dtype = to_inexact(dtype)
    x, y = _to(x, dtype, weak), _to(y, dtype, weak)
    return tuple(promote_shapes(name, x, y))  # type: ignore[return-value]


def numeric_pair(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """`pair`, with booleans turned into integers."""
    x, y = pair(name, x, y)
    if x.dtype == BOOL:
        x, y = convert(x, _INT32), convert(y, _INT32)
    return x, y


def same_shape(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands of a binary function with the scalar among them grown to the other's shape."""
    shape = x.shape or y.shape
    return broadcast_to(x, shape), broadcast_to(y, shape)


def full_pair(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """`inexact_pair` with equal shapes."""
    return same_shape(*inexact_pair(name, x, y))


def inexact(name: str, x: Any) -> Any:
    """One operand of a function of floats: the path of every eager unary ufunc."""
    kind = type(x)
    if kind is DeviceArray and x.dtype in INEXACT:
        return x
    if kind is GpuArray and x._signature.dtype in INEXACT:
        return x
    x = as_array(name, x)
    dtype = x.dtype
    if dtype in INEXACT:
        return x
    if dtype not in _TO_INEXACT:
        raise TypeError(
            f"{name}: needed numbers, got {x.aval.str_short()} (random keys have no arithmetic; "
            f"see toile.random.key_data){here()}"
        )
    return convert(x, _TO_INEXACT[dtype], x.weak_type)


# Axes and sizes.


def canonicalize_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A non-negative axis number of an array of rank `ndim`."""
    if type(axis) is not int:
        axis = axis_number(axis, name)
    if -ndim <= axis < ndim:
        return axis + ndim if axis < 0 else axis
    raise axis_error(axis, ndim, name)


def axis_number(axis: Any, name: str = "axis") -> int:
    """An axis as a Python int."""
    try:
        return operator.index(axis)
    except TypeError as error:
        if isinstance(axis, Array):
            raise
        raise TypeError(f"{name}: needed an integer, got {axis!r}: {error}{here()}") from None


_ALL_AXES = tuple(tuple(range(n)) for n in range(9))


def canonicalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes from None (all of them), a number or a sequence of numbers."""
    if axis is None:
        return _ALL_AXES[ndim] if ndim < 9 else tuple(range(ndim))
    if type(axis) is int or hasattr(axis, "__index__"):
        return (canonicalize_axis(axis, ndim),)
    axes = tuple(canonicalize_axis(a, ndim) for a in axis)
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axis': {tuple(axis)}{here()}")
    return tuple(sorted(axes))


def canonicalize_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """A shape as a tuple of Python ints, from an int, a sequence or a concrete array."""
    if type(shape) is int:
        shape = (shape,)
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape
    several = isinstance(shape, (tuple, list)) or np.iterable(shape) and np.ndim(shape) == 1
    items = shape if several else (shape,)
    try:
        sizes = tuple(operator.index(n) for n in items)
    except TypeError:
        raise shape_value_error(name, tuple(items)) from None
    if sizes and min(sizes) < 0:
        raise TypeError(
            f"{name}: needed a shape of non-negative sizes, got {sizes} (-1 is for reshape "
            f"only).{here()}"
        )
    return sizes


def size_along(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """How many elements a reduction over `axes` combines."""
    return math.prod([shape[a] for a in axes])


# Selection between an array and a number.


def filled(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """An array of one repeated value."""
    return lax.full(shape, value, dtype)


def select(mask: Any, x: Any, y: Any) -> Any:
    """Where `mask` (of the result's shape or rank 0) holds `x`, elsewhere `y`.

    `x` and `y` are arrays of one dtype, or one of them a Python number.
    """
    if type(x) in _NUMBER_SET:
        x = literal(x, y.dtype, y.weak_type)
    elif type(y) in _NUMBER_SET:
        y = literal(y, x.dtype, x.weak_type)
    shape = mask.shape or x.shape or y.shape
    mask = broadcast_to(mask, shape) if mask.shape else mask
    return lax.select(mask, broadcast_to(x, shape), broadcast_to(y, shape))
