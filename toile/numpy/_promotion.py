"""Dtype promotion and broadcasting of operands.

Every function of this package uses this module, so the most common cases are tested first: for
arrays that already agree, two or three comparisons are enough. `lax` accepts operands of equal
shapes or of rank 0, so scalars stay scalars and only arrays of different shapes are broadcast.
Python numbers become rank-0 operands of the promoted dtype. This module may import the engine,
`lax`, `_dtypes` and `_operands`.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from toile import lax
from toile.engine import broadcasts, dtypes
from toile.engine.annotations import Array
from toile.engine.arrays import DeviceArray
from toile.engine.config import flags
from toile.engine.errors import ShapeError
from toile.engine.platform_registry import array_platforms
from toile.engine.promotion import promote_many, promote_pair, user_stack_level
from toile.engine.source import here
from toile.engine.trace import state
from toile.numpy._dtypes import BOOL, INEXACT, INT32, INTEGERS, TO_INEXACT, to_inexact
from toile.numpy._operands import (
    NUMBER_TYPES,
    as_array,
    as_operand,
    convert,
    literal,
    pair_of,
    shape_of,
)

_PLAIN_NUMBERS = frozenset((int, float))


# Promotion of dtypes.


def promote_dtypes(*args: Any, name: str = "promote_dtypes") -> list[Array]:
    """Convert the operands to their common dtype; shapes do not change. `name` is for errors."""
    xs = _operands(name, args)
    dtype, weak = promote_many([pair_of(x) for x in xs])
    return [_to(x, dtype, weak) for x in xs]


def promote_dtypes_inexact(*args: Any, name: str = "promote_dtypes_inexact") -> list[Array]:
    """Like `promote_dtypes`, but integers and booleans become floats."""
    xs = _operands(name, args)
    dtype, weak = promote_many([pair_of(x) for x in xs])
    return [_to(x, to_inexact(dtype), weak) for x in xs]


def _to(x: Any, dtype: Any, weak: bool) -> Array:
    """Convert one operand to the common dtype, which is weak only if all operands are."""
    if type(x) in NUMBER_TYPES:
        return literal(x, dtype, weak)
    if x.dtype == dtype and (x.weak_type or not weak):
        return x
    return lax._convert_element_type(x, dtype, weak)


# Broadcasting.


def broadcast_shapes(*shapes: tuple[int, ...], name: str = "") -> tuple[int, ...]:
    """The shape to which these shapes broadcast by NumPy's rules."""
    try:
        return lax.broadcast_shapes(*shapes) if shapes else ()
    except ValueError:
        raise _unbroadcastable(name, shapes) from None


def _unbroadcastable(name: str, shapes: Any) -> Exception:
    """Create the same error as JAX; it names the function if all operands have the same rank."""
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
    """If operands have different nonzero ranks, warn or raise an error, as configured."""
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
    raise ValueError(f"Operands could not be broadcast together for {name} on shapes {listed} and "
                     "with the config option jax_numpy_rank_promotion='raise'." + here())


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Array:
    """Broadcast the array `x` to `shape`, with which it must be compatible."""
    if x.shape == shape:
        return x
    if state.trace is None and type(x) is DeviceArray and type(x._data) is np.ndarray:
        return DeviceArray(np.broadcast_to(x._data, shape), x.weak_type)
    return spread(x, shape)


def spread(x: Any, shape: tuple[int, ...]) -> Array:
    """Broadcast `x` to `shape` by an operation, which allocates new memory."""
    have = x.shape
    skip = len(shape) - len(have)
    kept = [i for i, n in enumerate(have) if n == shape[skip + i]]
    if len(kept) != len(have):  # sizes of one that grow are dropped first
        x = lax.squeeze(x, tuple(i for i in range(len(have)) if i not in kept))
    return lax.broadcast_in_dim(x, shape, tuple(skip + i for i in kept))


def promote_shapes(name: str, *args: Any) -> list[Array]:
    """Broadcast the operands against each other; numbers and arrays of rank 0 stay unchanged."""
    shapes = [shape_of(x) for x in args]
    full = [s for s in shapes if s]
    if not full or all(s == full[0] for s in full[1:]):
        return list(args)
    check_rank_promotion(name, full)
    shape = broadcast_shapes(*full, name=name)
    if state.trace is not None:
        broadcasts.note(name, full, shape)
    return [broadcast_to(x, shape) if s else x for x, s in zip(args, shapes)]


def _shaped_pair(name: str, x: Any, y: Any) -> tuple[Array, Array]:
    x, y = promote_shapes(name, x, y)
    return x, y


# Everything at once.


def promote_args(name: str, *args: Any) -> list[Array]:
    """Check the operands, and convert them to one dtype and to equal shapes (or rank 0)."""
    if len(args) == 2:
        return list(pair(name, *args))
    return promote_shapes(name, *promote_dtypes(*_operands(name, args)))


def _operands(name: str, args: Any) -> list[Any]:
    return [
        x if type(x) is DeviceArray else as_operand(name, x, i) for i, x in enumerate(args)
    ]


def pair(name: str, x: Any, y: Any) -> tuple[Array, Array]:
    """Prepare two operands for a binary `lax` function; every eager binary ufunc calls this."""
    if x.__class__ is DeviceArray:
        kind = y.__class__
        if kind is DeviceArray:
            if x.dtype is y.dtype:
                if x.shape == y.shape:
                    return x, y
                return _shaped_pair(name, x, y)
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
    return _shaped_pair(name, x, y)


def inexact_pair(name: str, x: Any, y: Any) -> tuple[Array, Array]:
    """Like `pair`, but integers and booleans become floats."""
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
    return _shaped_pair(name, x, y)


def numeric_pair(name: str, x: Any, y: Any) -> tuple[Array, Array]:
    """Like `pair`, but booleans become integers."""
    x, y = pair(name, x, y)
    if x.dtype == BOOL:
        x, y = convert(x, INT32), convert(y, INT32)
    return x, y


def same_shape(x: Any, y: Any) -> tuple[Array, Array]:
    """Broadcast a scalar operand of a binary function to the shape of the other operand."""
    shape = x.shape or y.shape
    return broadcast_to(x, shape), broadcast_to(y, shape)


def full_pair(name: str, x: Any, y: Any) -> tuple[Array, Array]:
    """Like `inexact_pair`, but both operands have the same shape."""
    return same_shape(*inexact_pair(name, x, y))


def inexact(name: str, x: Any) -> Array:
    """Prepare the operand of a function of floats; every eager unary ufunc calls this."""
    kind = type(x)
    if kind is DeviceArray and x.dtype in INEXACT:
        return x
    if kind in array_platforms and x._signature.dtype in INEXACT:
        return x
    x = as_array(name, x)
    dtype = x.dtype
    if dtype in INEXACT:
        return x
    if dtype not in TO_INEXACT:
        raise TypeError(f"{name}: needed numbers, got {x.aval.str_short()} (random keys have no "
                        f"arithmetic; see toile.random.key_data){here()}")
    return convert(x, TO_INEXACT[dtype], x.weak_type)


# Selection between an array and a number.


def select(mask: Any, x: Any, y: Any) -> Array:
    """Return `x` where `mask` is true and `y` elsewhere.

    `mask` has the shape of the result or rank 0. `x` and `y` are arrays of one dtype, or one of
    them is a Python number.
    """
    if type(x) in NUMBER_TYPES:
        x = literal(x, y.dtype, y.weak_type)
    elif type(y) in NUMBER_TYPES:
        y = literal(y, x.dtype, x.weak_type)
    shape = mask.shape or x.shape or y.shape
    mask = broadcast_to(mask, shape) if mask.shape else mask
    return lax.select(mask, broadcast_to(x, shape), broadcast_to(y, shape))


def filler(name: str, value: Any, dtype: Any) -> Array:
    """Convert a fill value to an array; `dtype` may hold integers that the default dtype cannot."""
    if type(value) is int and dtype is not None and not dtypes.is_extended(dtype):
        return lax._convert_element_type(value, dtype)
    return as_array(name, value, 1)
