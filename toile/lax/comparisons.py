"""Elementwise comparisons and bitwise operations.

This module may import the engine, primitives, `_operands` and `_elementwise`.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.arrays import DeviceArray
from toile.engine.errors import shape_error
from toile.lax._elementwise import binary, two, unary
from toile.lax._operands import F, named, operand, stretched
from toile.primitives import bits

# The kinds of dtype that lax accepts where the operation itself accepts more.
_ORDERED = "biuf"


def _equality(op: Any) -> Callable[[F], F]:
    """The body of `eq` or `ne`, which also accept random keys."""
    compare = two(op)

    def with_body(declared: F) -> F:
        name = declared.__name__

        def fun(x: Any, y: Any) -> Any:
            if x.__class__ is not DeviceArray and dtypes.is_extended(getattr(x, "dtype", None)):
                return _compare_keys(name, x, y)
            return compare(x, y)

        return named(fun, declared)

    return with_body


@_equality(bits.eq)
def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Test, element by element, whether two arrays are equal.

    NaN is equal to nothing, not even to itself. Arrays of random keys are compared key by key.

    Args:
        x, y: arrays or numbers of the same dtype. Their shapes must be equal, except that axes of
            size 1 and operands of rank 0 are broadcast.

    Returns:
        A bool array with the operands' common shape.

    >>> lax.eq(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([ True, False], dtype=bool)
    """


@_equality(bits.ne)
def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Test, element by element, whether two arrays differ.

    NaN differs from everything, including itself. Arrays of random keys are compared key by key.

    Args:
        x, y: arrays or numbers of the same dtype. Their shapes must be equal, except that axes of
            size 1 and operands of rank 0 are broadcast.

    Returns:
        A bool array with the operands' common shape.

    >>> lax.ne(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([False,  True], dtype=bool)
    """


@binary(bits.lt, _ORDERED)
def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Test, element by element, whether `x` is less than `y`.

    The result is False where either element is NaN.

    Args:
        x, y: arrays or numbers of the same bool, integer or float dtype. Their shapes must be
            equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        A bool array with the operands' common shape.

    >>> lax.lt(jnp.array([1, 2, 3]), 2)
    Array([ True, False, False], dtype=bool)
    """


@binary(bits.le, _ORDERED)
def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Test, element by element, whether `x` is less than or equal to `y`.

    The result is False where either element is NaN.

    Args:
        x, y: arrays or numbers of the same bool, integer or float dtype. Their shapes must be
            equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        A bool array with the operands' common shape.

    >>> lax.le(jnp.array([1, 2, 3]), 2)
    Array([ True,  True, False], dtype=bool)
    """


@binary(bits.gt, _ORDERED)
def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Test, element by element, whether `x` is greater than `y`.

    The result is False where either element is NaN.

    Args:
        x, y: arrays or numbers of the same bool, integer or float dtype. Their shapes must be
            equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        A bool array with the operands' common shape.

    >>> lax.gt(jnp.array([1, 2, 3]), 2)
    Array([False, False,  True], dtype=bool)
    """


@binary(bits.ge, _ORDERED)
def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Test, element by element, whether `x` is greater than or equal to `y`.

    The result is False where either element is NaN.

    Args:
        x, y: arrays or numbers of the same bool, integer or float dtype. Their shapes must be
            equal, except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        A bool array with the operands' common shape.

    >>> lax.ge(jnp.array([1, 2, 3]), 2)
    Array([False,  True,  True], dtype=bool)
    """


@unary(bits.not_)
def bitwise_not(x: ArrayLike) -> Array:
    """Invert all bits of each element.

    For bool arrays, the result is the logical "not".

    Args:
        x: array or number of an integer or bool dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.bitwise_not(jnp.array([0, 5]))
    Array([-1, -6], dtype=int32)
    """


@binary(bits.and_)
def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the bitwise "and" of two arrays, element by element.

    For bool arrays, the result is the logical "and".

    Args:
        x, y: arrays or numbers of the same integer or bool dtype. Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.bitwise_and(jnp.array([0b1100]), jnp.array([0b1010]))
    Array([8], dtype=int32)
    """


@binary(bits.or_)
def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the bitwise "or" of two arrays, element by element.

    For bool arrays, the result is the logical "or".

    Args:
        x, y: arrays or numbers of the same integer or bool dtype. Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.bitwise_or(jnp.array([0b1100]), jnp.array([0b1010]))
    Array([14], dtype=int32)
    """


@binary(bits.xor)
def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the bitwise "exclusive or" of two arrays, element by element.

    For bool arrays, the result is True where the elements differ.

    Args:
        x, y: arrays or numbers of the same integer or bool dtype. Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.bitwise_xor(jnp.array([0b1100]), jnp.array([0b1010]))
    Array([6], dtype=int32)
    """


@binary(bits.shift_left)
def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of each element to the left.

    If the shift is negative, or greater than or equal to the width of the dtype, the result is 0.

    Args:
        x: integer array or number whose bits are shifted.
        y: number of bits to shift by, of the same dtype as `x`. The shapes must be equal, except
            that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.shift_left(jnp.array([1, 3]), jnp.array([4, 1]))
    Array([16,  6], dtype=int32)
    """


@binary(bits.shift_right_logical)
def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of each element to the right, filling with zeros.

    If the shift is negative, or greater than or equal to the width of the dtype, the result is 0.

    Args:
        x: integer array or number whose bits are shifted.
        y: number of bits to shift by, of the same dtype as `x`. The shapes must be equal, except
            that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.shift_right_logical(jnp.array([16, -1]), jnp.array([2, 28]))
    Array([ 4, 15], dtype=int32)
    """


@binary(bits.shift_right_arithmetic)
def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of each element to the right, filling with copies of the highest bit.

    For signed integers, the highest bit is the sign bit. For unsigned integers, the highest bit is
    copied too. If the shift is negative, or greater than or equal to the width of the dtype, every
    bit of the result is a copy of the highest bit.

    Args:
        x: integer array or number whose bits are shifted.
        y: number of bits to shift by, of the same dtype as `x`. The shapes must be equal, except
            that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.shift_right_arithmetic(jnp.array([16, -16]), jnp.array([2, 2]))
    Array([ 4, -4], dtype=int32)
    """


@unary(bits.population_count)
def population_count(x: ArrayLike) -> Array:
    """Count the bits that are 1 in each element.

    Args:
        x: array or number of an integer dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.population_count(jnp.array([7, 8, -1]))
    Array([ 3,  1, 32], dtype=int32)
    """


@unary(bits.clz)
def clz(x: ArrayLike) -> Array:
    """Count the leading zero bits of each element.

    For 0, the result is the width of the dtype.

    Args:
        x: array or number of an integer dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.clz(jnp.array([1, 0, -1]))
    Array([31, 32,  0], dtype=int32)
    """


def _compare_keys(name: str, x: Any, y: Any) -> Any:
    """Compare random keys, which are equal if all of their words are equal."""
    op = _KEY_COMPARISONS[name]
    if getattr(y, "dtype", None) != x.dtype:
        y = operand(name, y, 1)
        raise shape_error(name, "operands of equal dtypes", [x.aval, y.aval])
    x, y = stretched((x, y), scalars=True)
    return op(x, y)


_KEY_COMPARISONS = {"eq": bits.key_eq, "ne": bits.key_ne}
