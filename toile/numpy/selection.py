"""Selection of elements: where, select, choose, take, nonzero and functions built on them.

Results whose shape depends on values need concrete arguments or a static `size`; results shorter
than `size` are padded with `fill_value`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from toile import lax
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.broadcasts import note as note_broadcast
from toile.engine.source import describe, here
from toile.engine.trace import state
from toile.numpy import _helpers as h
from toile.numpy import index_read, index_update, manipulation, ufuncs, ufuncs_numeric
from toile.numpy._helpers import arr, as_array, canonical_axis, check, promote, raw_buffer
from toile.numpy._operands import no_out


def as_condition(x: Any) -> Array:
    """Convert `x` to booleans: nonzero elements are true."""
    x = arr(x)
    return x if x.dtype == np.bool_ else ufuncs.not_equal(x, 0)


def _raw_where(condition, x, y):
    """Compute the result with NumPy from concrete buffers of one dtype, or return None."""
    c = raw_buffer(condition)
    if c is None or c.dtype != np.bool_:
        return None
    a, b = raw_buffer(x), raw_buffer(y)
    if a is None or b is None:
        return _raw_where_number(c, x, y, a, b)
    if a.dtype != b.dtype:
        return None
    try:
        return h.conversion.wrap(np.where(c, a, b), x.weak_type and y.weak_type)
    except ValueError:
        return None


def _raw_where_number(c, x, y, a, b):
    """Compute the same for one buffer of floats and a Python float."""
    array, data, number = (x, a, y) if b is None else (y, b, x)
    if data is None or type(number) is not float or data.dtype.kind != "f":
        return None
    try:
        out = np.where(c, data, number) if b is None else np.where(c, number, data)
    except ValueError:
        return None
    return h.conversion.wrap(out, array.weak_type) if out.dtype == data.dtype else None


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...
@overload
def where(condition: ArrayLike, x: None = None, y: None = None, /, *, size: int | None = None,
          fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None) -> tuple[Array, ...]: ...
def where(condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None, /, *,
          size: int | None = None,
          fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
          ) -> Array | tuple[Array, ...]:
    """Choose elements from one array where a condition is true, and from another array elsewhere.

    Both `x` and `y` are computed in full, and gradients flow through both, so a NaN in the
    derivative of an element that is not chosen still reaches the total gradient. If `x` and `y` are
    None, the function returns `nonzero(condition)`.

    Args:
        condition: booleans; nonzero numbers count as true.
        x: elements to use where the condition is true.
        y: elements to use where the condition is false. The three arrays are broadcast against each
            other.
        size: if `x` and `y` are None, the number of indices to return; required under `jit`. If
            `size` is None, all indices are returned.
        fill_value: if `x` and `y` are None, the value used to pad the result to `size`:
            one number, or a tuple with one number for each axis. The default is 0.

    Returns:
        An array in the dtype that `x` and `y` promote to. If `x` and `y` are None, a tuple of index
        arrays, one for each axis.

    Raises:
        ValueError: only one of `x` and `y` is given, or both are given together with `size` or
            `fill_value`.

    >>> jnp.where(jnp.array([True, False]), jnp.array([1, 2]), 0)
    Array([1, 0], dtype=int32)
    """
    if x is None and y is None:
        check("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("Either both or neither of the x and y arguments should be provided to "
                         f"jax.numpy.where, got {describe(x)} and {describe(y)} (pass both, as "
                         f"in where(mask, x, 0)){here()}")
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where "
                         "function." + here())
    out = _raw_where(condition, x, y)
    if out is not None:
        return out
    check("where", condition, x, y)
    condition = as_condition(condition)
    x, y = promote(x, y)
    shape = manipulation.broadcast_shapes(condition.shape, x.shape, y.shape)
    if state.trace is not None:
        note_broadcast("where", (condition.shape, x.shape, y.shape), shape)
    if condition.shape:
        condition = h.broadcast_to(condition, shape)
    return lax.select(condition, h.broadcast_to(x, shape), h.broadcast_to(y, shape))


def select(condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike],
           default: ArrayLike = 0) -> Array:
    """Choose each element from the first array whose condition is true.

    Args:
        condlist: conditions; nonzero numbers count as true.
        choicelist: arrays to choose from, one for each condition.
        default: elements to use where no condition is true.

    Returns:
        An array with the broadcast shape of all arguments, in the dtype that the choices and the
        default promote to.

    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x > 2], [-x - 1, x * 10], default=5)
    Array([-1,  5,  5, 30], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError("condlist must have length equal to choicelist "
                         f"({len(condlist)} vs {len(choicelist)}){here()}")
    if len(condlist) == 0:
        raise ValueError("condlist must be non-empty" + here())
    *choices, result = promote(*choicelist, default)
    for condition, choice in zip(reversed(list(condlist)), reversed(choices)):
        result = where(condition, choice, result)
    return result


def choose(a: ArrayLike, choices: Array | np.ndarray | Sequence[ArrayLike], out: None = None,
           mode: Literal["raise", "wrap", "clip"] = "raise") -> Array:
    """Choose each element from one of several arrays, according to an array of indices.

    Args:
        a: integer array that contains, for each element of the result, the index of the array in
            `choices` from which to take the element.
        choices: arrays to choose from; they are broadcast against each other and against `a`.
        out: not supported; must be None.
        mode: how to handle out-of-bounds indices. "raise" raises an error and does not support
            traced values, "wrap" wraps indices around, and "clip" uses the nearest valid index.

    Returns:
        An array in the dtype that the choices promote to.

    >>> jnp.choose(jnp.array([0, 1]), [jnp.array([1, 2]), jnp.array([3, 4])])
    Array([1, 4], dtype=int32)
    """
    no_out("choose", out)
    choices = list(choices)
    check("choose", a, *choices)
    index, count = arr(a), len(choices)
    if not h.issubdtype(index.dtype, np.integer):
        raise ValueError("`a` array must be integer typed" + here())
    if mode == "raise":
        values = h.concrete(index, "the index of jnp.choose", _in_raise_mode("jnp.choose"))
        if values.size and (values.min() < 0 or values.max() >= count):
            raise ValueError(f"invalid entry in choice array. Must be in [0, {count}){here()}")
    elif mode == "wrap":
        index = ufuncs_numeric.remainder(h.fitting(index, count), count)
    elif mode == "clip":
        index = ufuncs_numeric.clip(index, 0, count - 1)
    else:
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or "
                         f"'clip'{here()}")
    choices = promote(*choices)
    result = choices[0]
    for i, choice in enumerate(choices[1:], 1):
        result = where(ufuncs.equal(index, i), choice, result)
    return h.broadcast_to(result, manipulation.broadcast_shapes(index.shape, result.shape))


# Taking by index.

def _raw_take(a, indices, axis):
    """Call NumPy's take if the buffers are concrete and the indices in bounds, else return None."""
    x, i = raw_buffer(a), raw_buffer(indices)
    if x is None or i is None or i.dtype.kind not in "iu" or not i.size or not x.ndim:
        return None
    try:
        return h.wrap_raw(np.asarray(x.take(i, axis)), a)      # NumPy raises when out of bounds
    except (IndexError, ValueError, TypeError):
        return None


def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None,
         mode: str | None = None, unique_indices: bool = False, indices_are_sorted: bool = False,
         fill_value: ArrayLike | None = None) -> Array:
    """Take elements or slices from an array at given positions.

    Args:
        a: array to take from.
        indices: integer positions; negative positions count from the end (except in mode "clip").
        axis: axis to take from; None for the flattened array.
        out: not supported; must be None.
        mode: how to handle out-of-bounds positions. None or "fill" returns `fill_value`, "wrap"
            wraps them around, and "clip" uses the nearest valid position. Pass "promise_in_bounds"
            to promise that all positions are in bounds.
        unique_indices: True to promise that no position occurs twice.
        indices_are_sorted: True to promise that positions are in increasing order.
        fill_value: result for out-of-bounds positions; by default, NaN for floating and complex
            dtypes, the lowest integer for signed dtypes, the highest integer for unsigned dtypes,
            and True for booleans.

    Returns:
        An array with the shape of `a`, except that the axes of `indices` replace `axis`.

    Raises:
        ValueError: the dtype of `indices` is not an integer dtype.

    Differences:
        NumPy raises an error if a position is out of bounds.

    >>> jnp.take(jnp.array([5.0, 6.0]), jnp.array([1, -2, 9]))
    Array([ 6.,  5., nan], dtype=float32)
    """
    no_out("take", out)
    if mode is None:
        taken = _raw_take(a, indices, axis)
        if taken is not None:
            return taken
    check("take", a, indices)
    index: Any = indices if isinstance(indices, np.ndarray) else arr(indices)
    a, axis = h.with_axis(arr(a), axis)
    if not h.issubdtype(index.dtype, np.integer):
        raise ValueError("indices must have an integer type: take needed integers, got "
                         f"{index.dtype} (convert them with .astype(int)){here()}")
    told = ("take", index_read.FILLED) if mode is None and fill_value is None else None
    index, mode, wrap = _in_mode(index, mode, a.shape[axis])
    if a.shape[axis] == 0 and index.size:
        raise IndexError("Cannot do a non-empty jnp.take() from an empty axis: needed indices of "
                         f"size 0, got {describe(index)}{here()}")
    if index.ndim == 0 and isinstance(index, np.ndarray):
        index = arr(index)
    return index_read.get(a, (slice(None),) * axis + (index,), mode=mode, fill_value=fill_value,
                        unique_indices=unique_indices, indices_are_sorted=indices_are_sorted,
                        wrap_negative_indices=wrap, check=told)


def take_telling(a, indices, axis, name, tell):
    """`take` for an operation `name`, with `tell(i)` as the description of a bad index."""
    taken = _raw_take(a, indices, axis)
    if taken is not None:
        return taken
    return index_read.get(arr(a), (slice(None),) * axis + (arr(indices),), mode="fill",
                          check=(name, tell))


def take_along_axis_telling(a, indices, axis, name, tell):
    """`take_along_axis` for an operation `name`, with `tell(i)` as the description of a bad
    index."""
    taken = _raw_take_along(a, indices, axis)
    if taken is not None:
        return taken
    a = arr(a)
    told = index_read.told(a, axis, True, name, tell)
    return _gather_along(a, arr(indices), axis, lax.GatherScatterMode.FILL_OR_DROP, None, True,
                         told)


def _in_mode(indices, mode, n):
    """Return indices on an axis of length n, the gather mode, and whether negative indices wrap."""
    if mode is None or mode == "fill":
        return indices, lax.GatherScatterMode.FILL_OR_DROP, True
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported." + here())
    if mode == "wrap":
        return ufuncs_numeric.remainder(h.fitting(indices, n), n), "promise_in_bounds", True
    return indices, mode, mode != "clip"


def _raw_take_along(a, indices, axis):
    """Call NumPy's take_along_axis if the buffers are concrete and indices in bounds, else None."""
    x, i = raw_buffer(a), raw_buffer(indices)
    if x is None or i is None or i.dtype.kind != "i" or not i.size:
        return None
    n = x.shape[axis]
    if i.min() < -n or i.max() >= n:
        return None
    try:
        return h.wrap_raw(np.take_along_axis(x, i, axis), a)
    except (ValueError, IndexError):
        return None


def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = -1,
                    mode: str | lax.GatherScatterMode | None = None,
                    fill_value: ArrayLike | None = None, *,
                    wrap_negative_indices: bool | None = None) -> Array:
    """Take the elements at given positions from each vector along an axis.

    Args:
        arr: array to take from.
        indices: integer positions, in an array with the same number of axes as `arr`; all axes
            except `axis` are broadcast.
        axis: axis to take from; None for the flattened array, which requires one-dimensional
            `indices`.
        mode: how to handle out-of-bounds positions. None or "fill" returns `fill_value`, and "clip"
            uses the nearest valid position. Pass "promise_in_bounds" to promise that all positions
            are in bounds.
        fill_value: result for out-of-bounds positions; by default, NaN for floating and complex
            dtypes, the lowest integer for signed dtypes, the highest integer for unsigned dtypes,
            and True for booleans.
        wrap_negative_indices: whether negative positions count from the end; if None, they do,
            unless `mode` is "promise_in_bounds".

    Returns:
        An array with the shape of `indices` after broadcasting.

    Differences:
        NumPy raises an error if a position is out of bounds.

    >>> x = jnp.array([[3, 1, 2], [4, 6, 5]])
    >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)
    Array([[1, 2, 3],
           [4, 5, 6]], dtype=int32)
    """
    a, index = h.as_arrays("take_along_axis", arr, indices)
    if not h.issubdtype(index.dtype, np.integer):
        raise TypeError("take_along_axis indices must be of integer type, got "
                        f"{index.dtype}{here()}")
    if axis is None:
        if index.ndim != 1:
            raise ValueError("take_along_axis indices must be 1D if axis=None, got shape "
                             f"{index.shape}{here()}")
        return take_along_axis(lax.reshape(a, (a.size,)), index, 0, mode, fill_value,
                               wrap_negative_indices=wrap_negative_indices)
    if a.ndim != index.ndim:
        raise ValueError("indices and arr must have the same number of dimensions; "
                         f"{index.ndim} vs. {a.ndim} (add axes with indices[..., None]){here()}")
    axis = canonical_axis(axis, a.ndim)
    if not a.shape[axis] and index.size:
        shape = h.broadcast_shapes((*a.shape[:axis], 1, *a.shape[axis + 1:]), index.shape)
        return lax.full(shape, 0, a.dtype)      # as in JAX, whatever the mode
    told = None
    if mode is None:
        raw = fill_value is None and wrap_negative_indices is not False
        out = _raw_take_along(a, index, axis) if raw else None
        if out is not None:
            return out
        if fill_value is None:
            told = index_read.told(a, axis, wrap_negative_indices is not False,
                                   "take_along_axis", index_read.FILLED)
        mode = "fill"
    mode = lax.GatherScatterMode.from_any(mode)
    wrap = wrap_negative_indices
    if wrap is None:
        wrap = mode != lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return _gather_along(a, index, axis, mode, fill_value, wrap, told)


def _gather_along(a, index, axis, mode, fill_value, wrap, told=None):
    """Gather along one axis; the other axes are broadcast.

    Along axes where the indices have size 1, whole windows are read."""
    others = [d for d in range(a.ndim) if d != axis]
    lead = manipulation.broadcast_shapes(tuple(a.shape[d] for d in others),
                                         tuple(index.shape[d] for d in others))
    full = dict(zip(others, lead))
    windows = tuple(d for d in others if index.shape[d] == 1 != a.shape[d])
    batch = tuple(d for d in others if d not in windows)
    index = h.broadcast_to(index, tuple(
        n if d in windows else full.get(d, n) for d, n in enumerate(index.shape)))
    a = h.broadcast_to(a, tuple(full.get(d, a.shape[d]) for d in range(a.ndim)))
    index = lax.squeeze(index_read.index_array(index, a.shape[axis], wrap, told), windows)
    places = tuple(sum(e not in windows for e in range(d)) for d in batch)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=windows, collapsed_slice_dims=(axis,), start_index_map=(axis,),
        operand_batching_dims=batch, start_indices_batching_dims=places)
    sizes = tuple(n if d in windows else min(1, n) for d, n in enumerate(a.shape))
    sizes = (*sizes[:axis], 1, *sizes[axis + 1:])
    return lax.gather(a, lax.expand_dims(index, (index.ndim,)), numbers, sizes, mode=mode,
                      fill_value=fill_value)


def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None, *,
             size: int | None = None, fill_value: ArrayLike = 0, out: None = None) -> Array:
    """Keep only those slices of an array for which a condition is true.

    Args:
        condition: one-dimensional array with one element for each slice; missing elements count as
            false, and nonzero numbers count as true.
        a: array whose slices are kept or left out.
        axis: axis to select along; None for the elements of the flattened array.
        size: number of slices in the result; required under `jit`. If `size` is None, every slice
            whose condition is true is kept.
        fill_value: value used to pad the result to `size`.
        out: not supported; must be None.

    Returns:
        An array with the selected slices along `axis`.

    Raises:
        ValueError: an element of `condition` beyond the end of the axis is true.

    >>> jnp.compress(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    no_out("compress", out)
    condition = as_array("compress", condition)
    if condition.ndim != 1:
        raise ValueError("condition must be a 1D array" + here())
    a, axis = h.with_axis(as_array("compress", a), axis)
    n = min(condition.shape[0], a.shape[axis])
    keep = as_condition(condition)
    extra = keep[n:]
    if extra.size and h.is_concrete(extra) and h.concrete(extra, "condition").any():
        raise ValueError("condition contains entries that are out of bounds" + here())
    rows = nonzero(keep[:n], size=size, fill_value=n)[0]
    return index_read.get(a, (slice(None),) * axis + (rows,), mode="fill", fill_value=fill_value)


def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None,
            fill_value: ArrayLike = 0) -> Array:
    """Extract the elements of an array where a condition is true.

    Args:
        condition: array with the same number of elements as `arr`; nonzero numbers count as true.
        arr: array whose elements are extracted.
        size: number of elements in the result; required under `jit`. If `size` is None, every
            element whose condition is true is kept.
        fill_value: value used to pad the result to `size`.

    Returns:
        A one-dimensional array.

    >>> x = jnp.arange(4)
    >>> jnp.extract(x % 2 == 1, x)
    Array([1, 3], dtype=int32)
    """
    return compress(manipulation.ravel(condition), manipulation.ravel(arr), size=size,
                    fill_value=fill_value)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """Replace elements with given values, in order, where a mask is true.

    Args:
        arr: array whose elements are replaced.
        mask: array with the same number of elements as `arr`; nonzero numbers count as true.
        vals: new elements, which are flattened, repeated as needed and converted to the dtype of
            `arr`.
        inplace: must be False, because arrays are immutable.

    Returns:
        A new array with the shape and dtype of `arr`.

    Raises:
        ValueError: `inplace` is True, which is the default; or `arr` and `mask` have different
            sizes.

    >>> mask = jnp.array([True, False, True, True])
    >>> jnp.place(jnp.arange(4), mask, jnp.array([8, 9]), inplace=False)
    Array([8, 1, 9, 8], dtype=int32)
    """
    check("place", arr, mask, vals)
    if inplace:
        raise ValueError("place: arrays are immutable, needed inplace=False, got inplace=True "
                         "(the result is a new array)" + here())
    a, mask, vals = h.arr(arr), as_condition(mask), manipulation.ravel(vals)
    if a.size != mask.size:
        raise ValueError(f"place: needed arr and mask of one size, got {a.size} and "
                         f"{mask.size}{here()}")
    if not vals.size:
        if mask.size and bool(h.concrete(mask, "mask").any()):
            raise ValueError("place: needed values to insert, got none" + here())
        return a
    if not a.size:
        return a
    mask, _ = h.with_axis(mask, None)
    turn = lax.sub(lax.cumsum(lax.convert_element_type(mask, np.int32), axis=0),
                   lax.full((mask.size,), 1, np.int32))
    turn = ufuncs_numeric.remainder(turn, vals.size)
    new = lax.convert_element_type(index_read.get(vals, (turn,)), a.dtype)
    return lax.reshape(lax.select(mask, new, lax.reshape(a, (a.size,))), a.shape)


# Indices of nonzeros.

def _fill_values(fill_value, rank):
    values = fill_value if isinstance(fill_value, tuple) else (fill_value or 0,) * rank
    if len(values) != rank:
        raise ValueError(f"nonzero: needed {rank} fill values, got {len(values)}{here()}")
    return values


def nonzero(a: ArrayLike, *, size: int | None = None,
            fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None) -> tuple[Array, ...]:
    """Find the indices of the elements that are not zero.

    The number of indices depends on the values of the array, so `size` is required under `jit`: the
    first `size` indices are returned, padded with `fill_value` if there are fewer.

    Args:
        a: array with at least one axis.
        size: number of indices to return; None to return all of them.
        fill_value: value used to pad the result to `size`: one number, or a tuple with one
            number for each axis; 0 by default.

    Returns:
        A tuple of index arrays, one for each axis. The indices are in row-major order.

    >>> jnp.nonzero(jnp.array([0, 7, 0, 2]))
    (Array([1, 3], dtype=int32),)
    >>> jnp.nonzero(jnp.array([0, 7, 0, 2]), size=3, fill_value=-1)
    (Array([ 1,  3, -1], dtype=int32),)
    """
    a = as_array("nonzero", a)
    if a.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use "
                         "jnp.atleast_1d(scalar).nonzero() instead." + here())
    dtype = h.index_dtype()
    if size is None:
        found = np.nonzero(h.concrete(
            a, "the argument of jnp.nonzero (pass a static size to use it under jit)"))
        return tuple(arr(i.astype(dtype)) for i in found)
    size = h.static_int(size, "the size argument of jnp.nonzero")
    if fill_value is not None and not isinstance(fill_value, tuple):
        fill_value = (fill_value,) * a.ndim
    fills = _fill_values(fill_value, a.ndim)
    if a.size == 0 or size == 0:
        return tuple(lax.convert_element_type(h.broadcast_to(arr(f), (size,)), dtype)
                     for f in fills)
    mask = lax.reshape(as_condition(a), (a.size,))
    rank = lax.cumsum(lax.convert_element_type(mask, np.int32), axis=0)
    count = lax.index_in_dim(rank, a.size - 1, keepdims=False)
    # the k-th true element writes its position to place k; the others write out of bounds
    target = lax.select(mask, lax.sub(rank, lax.full_like(rank, 1)), lax.full_like(rank, size))
    flat = index_update.update(lax.full((size,), 0, np.int32), target,
                               lax.iota(np.int32, a.size), "set", unique_indices=True, mode="drop")
    valid = lax.lt(lax.iota(np.int32, size), h.broadcast_to(count, (size,)))
    out, stride = [], a.size
    for n, fill in zip(a.shape, fills):
        stride //= n
        i = lax.rem(lax.div(flat, lax.full_like(flat, stride)), lax.full_like(flat, n))
        i = lax.convert_element_type(i, dtype)
        out.append(where(valid, i, lax.convert_element_type(arr(fill), dtype)))
    return tuple(out)


def flatnonzero(a: ArrayLike, *, size: int | None = None,
                fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None) -> Array:
    """Find the indices of the nonzero elements in the flattened array.

    Args:
        a: array or number.
        size: number of indices to return; required under `jit`. If `size` is None, all indices are
            returned.
        fill_value: value used to pad the result to `size`; 0 by default.

    Returns:
        A one-dimensional array.
    """
    return nonzero(manipulation.ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None,
             fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None) -> Array:
    """Find the indices of the nonzero elements, as a matrix with one row for each element.

    Args:
        a: array or number.
        size: number of rows to return; required under `jit`. If `size` is None, all rows are
            returned.
        fill_value: value used to pad the result to `size`: one number, or a tuple with one
            number for each axis; 0 by default.

    Returns:
        A matrix with one row for each nonzero element and one column for each axis of `a`.

    >>> jnp.argwhere(jnp.array([[0, 7], [3, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    a = as_array("argwhere", a)
    if a.ndim == 0:
        found = nonzero(lax.reshape(a, (1,)), size=size, fill_value=fill_value)[0]
        return lax.full((found.shape[0], 0), 0, found.dtype)
    columns = nonzero(a, size=size, fill_value=fill_value)
    return lax.concatenate([lax.expand_dims(c, (1,)) for c in columns], 1)


def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Array, ...]:
    """Turn positions in a flattened array into indices along the axes of the original array.

    Args:
        indices: integer positions; negative positions count from the end, and out-of-bounds
            positions are replaced with the nearest valid one.
        shape: shape of the original array.

    Returns:
        A tuple of arrays, one for each axis.

    Differences:
        NumPy raises an error if an index is negative or out of bounds.

    >>> jnp.unravel_index(jnp.array([1, 5]), (2, 3))
    (Array([0, 1], dtype=int32), Array([1, 2], dtype=int32))
    """
    indices = as_array("unravel_index", indices)
    if not h.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"unravel_index: needed integer indices, got {indices.dtype}{here()}")
    given = tuple(shape) if np.iterable(shape) else (shape,)
    if any(isinstance(n, h.Tracer) for n in given):
        return _unravel_traced(indices, given)
    dims = tuple(map(operator.index, given))
    total = math.prod(dims)
    indices = h.fitting(indices, total)
    flat = where(ufuncs.less(indices, 0), ufuncs.add(indices, total), indices)
    flat = ufuncs_numeric.clip(flat, 0, max(total - 1, 0))
    out, stride = [], total
    for n in dims:
        stride //= max(n, 1)
        out.append(ufuncs_numeric.remainder(ufuncs_numeric.floor_divide(flat, max(stride, 1)),
                                            max(n, 1)))
    return tuple(out)


def _unravel_traced(indices, dims):
    """`unravel_index` for an array whose sizes are not known yet."""
    dims = [lax.convert_element_type(arr(n), indices.dtype) for n in dims]
    strides = [lax.full((), 1, indices.dtype)]  # of the last axis first
    for n in reversed(dims):
        strides.append(lax.mul(strides[-1], n))
    total = strides.pop()
    flat = where(ufuncs.less(indices, 0), ufuncs.add(indices, total), indices)
    flat = ufuncs_numeric.clip(flat, 0, ufuncs.subtract(total, 1))
    return tuple(ufuncs_numeric.remainder(ufuncs_numeric.floor_divide(flat, stride), n)
                 for stride, n in zip(reversed(strides), dims))


def ravel_multi_index(multi_index: Sequence[ArrayLike], dims: Sequence[int],
                      mode: Literal["raise", "wrap", "clip", "ignore"] = "raise",
                      order: Literal["C", "F"] = "C", *, dtype: DTypeLike | None = None) -> Array:
    """Turn indices along the axes of an array into positions in the flattened array.

    Args:
        multi_index: integer arrays, one for each axis; they are broadcast against each other.
        dims: shape of the array.
        mode: how to handle out-of-bounds indices. "raise" raises an error and does not support
            traced values, "wrap" wraps indices around, "clip" uses the nearest valid index, and
            "ignore" computes with the indices unchanged.
        order: "C" to count elements row by row, "F" to count them column by column.
        dtype: dtype of the result; None for the dtype of the indices.

    Returns:
        An array of positions.

    Differences:
        NumPy also accepts a tuple with one mode for each axis.

    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([1, 2])), (2, 3))
    Array([1, 5], dtype=int32)
    """
    dims = tuple(operator.index(n) for n in dims)
    if len(multi_index) != len(dims):
        raise ValueError(f"len(multi_index)={len(multi_index)} != len(dims)={len(dims)}{here()}")
    columns = h.as_arrays("ravel_multi_index", *multi_index)
    if any(not h.issubdtype(c.dtype, np.integer) for c in columns):
        raise TypeError("only int indices permitted" + here())
    if mode not in _INTO_RANGE:
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', or 'clip'{here()}")
    size = math.prod(dims)
    columns = [_INTO_RANGE[mode](h.fitting(c, size), n) for c, n in zip(columns, dims)]
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'{here()}")
    pairs = list(zip(columns, dims))
    stride = 1
    total: int | h.Array = 0
    for c, n in reversed(pairs) if order == "C" else pairs:
        total = ufuncs.add(total, ufuncs.multiply(c, stride))
        stride *= n
    found = arr(total)
    return lax.convert_element_type(found, found.dtype if dtype is None else dtype)


def _in_raise_mode(name):
    """Why the values of indices are needed."""
    return (f"The error occurred because {name} was jit-compiled with mode='raise'. Use "
            "mode='wrap' or mode='clip' instead")


def _checked_coordinates(c, n):
    values = h.concrete(c, "the multi_index of jnp.ravel_multi_index",
                        _in_raise_mode("ravel_multi_index"))
    if ((values < 0) | (values >= n)).any():
        raise ValueError("invalid entry in coordinates array" + here())
    return c


# By the mode of ravel_multi_index: what is done with coordinates along an axis of length n.
_INTO_RANGE = {
    "raise": _checked_coordinates, "clip": lambda c, n: ufuncs_numeric.clip(c, 0, n - 1),
    "wrap": ufuncs_numeric.remainder, "ignore": lambda c, n: c,
}
