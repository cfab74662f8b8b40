"""Where a gather or scatter reads and writes: dimension numbers, modes and fill values.

These are the static parameters of the operations in `primitives.gathers`, and their checks. A fill
value is kept as text, because fields of operations compare by value. This module may import only
the engine.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.source import here

Dims = tuple[int, ...]


class GatherDimensionNumbers(NamedTuple):
    """How the axes of the operand, the indices and the result of `lax.gather` correspond.

    A gather copies one window of the operand for each index vector. A window's axes are the
    operand's axes, in order, without the collapsed axes and the batching axes. In the result, the
    window's axes are at the positions `offset_dims`. The other axes of the result are the axes of
    the indices, in order, except the last axis, which contains the index vectors.

    Args:
        offset_dims: sorted axes of the result that correspond to a window's axes.
        collapsed_slice_dims: sorted axes of the operand along which a window has size 1 and which
            are left out of the result.
        start_index_map: for each component of an index vector, the axis of the operand that the
            component indexes.
        operand_batching_dims: sorted axes of the operand that are paired with axes of the indices:
            window i is read at position i of these axes. Windows do not have these axes.
        start_indices_batching_dims: axes of the indices that are paired with
            `operand_batching_dims`, in the same order.

    Read columns 2 and 0 of a matrix; each is a window of shape (2, 1) without its second axis:

    >>> numbers = lax.GatherDimensionNumbers(
    ...     offset_dims=(0,), collapsed_slice_dims=(1,), start_index_map=(1,))
    >>> x = jnp.array([[1, 2, 3], [4, 5, 6]])
    >>> lax.gather(x, jnp.array([[2], [0]]), numbers, slice_sizes=(2, 1))
    Array([[3, 1],
           [6, 4]], dtype=int32)

    Read one element of each row, each from a different column:

    >>> numbers = lax.GatherDimensionNumbers(
    ...     offset_dims=(), collapsed_slice_dims=(1,), start_index_map=(1,),
    ...     operand_batching_dims=(0,), start_indices_batching_dims=(0,))
    >>> lax.gather(x, jnp.array([[2], [0]]), numbers, slice_sizes=(1, 1))
    Array([3, 4], dtype=int32)
    """

    offset_dims: Dims
    collapsed_slice_dims: Dims
    start_index_map: Dims
    operand_batching_dims: Dims = ()
    start_indices_batching_dims: Dims = ()


class ScatterDimensionNumbers(NamedTuple):
    """How the axes of the operand, the indices and the updates of `lax.scatter` correspond.

    A scatter writes one window of the updates for each index vector. In the updates, the window's
    axes are at the positions `update_window_dims`. The other axes of the updates are the axes of
    the indices, in order, except the last axis, which contains the index vectors.

    Args:
        update_window_dims: sorted axes of the updates that correspond to a window's axes.
        inserted_window_dims: sorted axes of the operand along which a window has size 1 and which
            the updates do not have.
        scatter_dims_to_operand_dims: for each component of an index vector, the axis of the operand
            that the component indexes.
        operand_batching_dims: sorted axes of the operand that are paired with axes of the indices:
            window i is written at position i of these axes. Windows in the updates do not have
            these axes.
        scatter_indices_batching_dims: axes of the indices that are paired with
            `operand_batching_dims`, in the same order.

    Write columns 2 and 0 of a matrix:

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(0,), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(1,))
    >>> columns = jnp.array([[1, 2], [3, 4]])
    >>> lax.scatter(jnp.zeros((2, 3), jnp.int32), jnp.array([[2], [0]]), columns, numbers)
    Array([[2, 0, 1],
           [4, 0, 3]], dtype=int32)
    """

    update_window_dims: Dims
    inserted_window_dims: Dims
    scatter_dims_to_operand_dims: Dims
    operand_batching_dims: Dims = ()
    scatter_indices_batching_dims: Dims = ()


class GatherScatterMode(enum.Enum):
    """How gather and scatter handle windows that are not entirely inside the operand.

    Functions accept a mode or the mode's name as a string.

    - `CLIP` ("clip"): windows are shifted to lie entirely inside the operand.
    - `FILL_OR_DROP` ("fill" or "drop"): a gather returns a fill value for all elements of these
      windows, and a scatter ignores these windows.
    - `PROMISE_IN_BOUNDS` ("promise_in_bounds"): the caller promises that there are no such windows.
      If there are any, a gather currently shifts them and a scatter ignores them, but do not rely
      on this behavior.
    - `ONE_HOT` ("one_hot"): in toile, the same as `PROMISE_IN_BOUNDS`.
    """

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """Return the mode with the given name; None means `FILL_OR_DROP`."""
        if isinstance(s, GatherScatterMode):
            return s
        found = _MODES.get(s)
        if found is None:
            known = ", ".join(str(m) for m in _MODES if m)
            raise ValueError(f"Unknown gather mode {s!r}: needed one of {known}{here()}")
        return found


_MODES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def fill_text(value: Any) -> str | None:
    """A fill value as text; as numbers, 0.0 and -0.0 would be equal, and so would 1 and True."""
    return None if value is None else repr(np.asarray(value).item())


def fill_number(text: str | None, dtype: Any) -> Any:
    if text is None:
        return None
    kind = dtypes.kind(dtype)
    if kind == "c":
        return complex(text)
    number = text == "True" if text in ("True", "False") else float(text)
    if kind == "b":
        return bool(number)
    return number if kind == "f" else int(text) if text.lstrip("-").isdigit() else int(number)


def gather_problem(
    operand: Aval, indices: Aval, numbers: GatherDimensionNumbers, sizes: Dims
) -> str:
    """JAX's error message for the parameters of a gather; empty if they are valid."""
    return next(_gather_problems(operand, indices, numbers, sizes), "")


def scatter_problem(
    operand: Aval, indices: Aval, updates: Aval, numbers: ScatterDimensionNumbers
) -> str:
    """JAX's error message for the parameters of a scatter; empty if they are valid."""
    return next(_scatter_problems(operand, indices, updates, numbers), "")


def whole_rows(op: Any, operand: Aval, indices: Aval, *updates: Aval) -> bool:
    """A `by_rows` rule: windows cover all axes but the first, which the indices address."""
    windows, dropped, mapped, batching, _ = op.dimension_numbers
    batch, row = indices.ndim - 1, operand.shape[1:]
    if updates:
        whole = op.combine == "add" and updates[0].shape[batch:] == row
    else:
        whole = op.slice_sizes == (1, *row)
    return (whole and dropped == mapped == (0,) and not batching
            and windows == tuple(range(batch, batch + len(row))))


PICKED = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128",
))  # fmt: skip


SHORT_ROW = 16  # bytes: less of a row is not worth the memory sector that it is in


def is_picked(x: Aval, out: Aval, innermost: bool = False) -> bool:
    """Whether a loop nest may read elements of x at computed places.

    This is allowed if adjacent elements are read together (unless the device reads elements of the
    `innermost` axis one by one) and kernels support the dtype."""
    together = innermost or x.ndim > 1 and out.shape[-1] >= 8
    return (together and x.ndim > 0 and x.size > 0
            and not dtypes.is_extended(x.dtype) and np.dtype(x.dtype).name in PICKED)


def picked_rows(op: Any, ins: Sequence[Aval], out: Aval, innermost: bool = False,
                short: bool = False) -> bool:
    """A `picks` rule: loop nests read whole rows in place, elements of arrays of one axis if
    `innermost` holds, and short rows if `short` does."""
    x, indices = ins
    few = innermost if x.ndim == 1 else (
        short and out.shape[-1] * x.dtype.itemsize >= SHORT_ROW)
    return (is_picked(x, out, few) and whole_rows(op, x, indices)
            and dtypes.kind(indices.dtype) in "iu" and indices.dtype != np.uint64)


def maps_of_picked_rows(op: Any, out: Any) -> list[Any]:
    """The `picked_maps` rule for `picked_rows`: maps of the operand (without rows) and indices."""
    batch = len(out) - len(op.dimension_numbers.offset_dims)
    return [((), *out[batch:]), (*out[:batch], ())]


def one_per_row(op: Any, operand: Aval, indices: Aval, *updates: Aval) -> bool:
    """A `within_rows` rule: each row (last axis) has one index, which selects one element."""
    windows, dropped, mapped, batching, index_batching = op.dimension_numbers
    shape, last = operand.shape, operand.ndim - 1
    return (last > 0 and not windows and dropped == mapped == (last,)
            and batching == index_batching == tuple(range(last))
            and indices.shape in ((*shape[:-1], 1), (*shape[:-1], 1, 1))
            and (not updates or op.combine == "add"))


# Later checks rely on earlier ones, so problems are found one by one.


def _gather_problems(
    operand: Aval, indices: Aval, numbers: GatherDimensionNumbers, sizes: Dims
) -> Iterator[str]:
    yield from _index_problems("gather", indices)
    offset, collapsed, _, batching, _ = numbers
    yield from _axes_problems("gather", "offset_dims", offset)
    rank = len(offset) + indices.ndim - 1
    for i, d in enumerate(offset):
        if not 0 <= d < rank:
            yield f"Offset dimension {i} in gather op is out of bounds, got {d} of rank {rank}"
    yield from _operand_problems("gather", operand, indices, numbers)
    if len(sizes) != operand.ndim:
        yield ("Gather op must have one slice size for every input dimension, got "
               f"{len(sizes)} for {operand.ndim}")
    if len(sizes) != len(offset) + len(collapsed) + len(batching):
        yield ("All components of the offset index in a gather op must either be a offset "
               f"dimension or explicitly collapsed/batching, got {numbers}")
    for i, (n, m) in enumerate(zip(sizes, operand.shape, strict=True)):
        if not 0 <= n <= m and 0 not in indices.shape:
            yield (f"Slice size at index {i} in gather op is out of range, must be within "
                   f"[0, {m} + 1), got {n}")
    for i, d in enumerate(collapsed):
        if sizes[d] != 1:
            yield ("Gather op can only collapse slice dims with bound 1, but bound is "
                   f"{sizes[d]} for index {d} at position {i}.")
    for i, d in enumerate(batching):
        if sizes[d] > 1:
            yield ("Gather op can only have operand batching dims with bound 0/1, but bound is "
                   f"{sizes[d]} for index {d} at position {i}.")


def _scatter_problems(
    operand: Aval, indices: Aval, updates: Aval, numbers: ScatterDimensionNumbers
) -> Iterator[str]:
    yield from _index_problems("scatter", indices)
    windows, inserted, _, batching, _ = numbers
    rank = len(windows) + indices.ndim - 1
    if updates.ndim != rank:
        yield f"Updates tensor must be of rank {rank}; got {updates.ndim}."
    yield from _axes_problems("scatter", "update_window_dims", windows, rank)
    yield from _operand_problems("scatter", operand, indices, numbers)
    size = len(windows) + len(inserted) + len(batching)
    if size != operand.ndim:
        yield (f"Scatter op has window of size {size}; doesn't match operand of rank "
               f"{operand.ndim}.")
    kept = [n for i, n in enumerate(operand.shape) if i not in (*inserted, *batching)]
    found = [updates.shape[d] for d in windows]
    if any(n > m for n, m in zip(found, kept, strict=True)):
        yield ("Bounds of the window dimensions of updates must not exceed the bounds of the "
               f"operand's, got {found} for {kept}")
    rest = tuple(n for i, n in enumerate(updates.shape) if i not in windows)
    if rest != indices.shape[:-1]:
        yield ("Bounds of the scatter dimensions of updates must be the same as those of the "
               f"indices, got {rest} for {indices.shape[:-1]}")


def _index_problems(op: str, indices: Aval) -> Iterator[str]:
    if dtypes.kind(indices.dtype) not in "iu" or indices.ndim < 1:
        yield f"{op.capitalize()} indices must be vectors of integers along the last axis"


def _axes_problems(
    op: str, name: str, dims: Dims, rank: int | None = None, ordered: bool = True
) -> Iterator[str]:
    if ordered and list(dims) != sorted(dims):
        yield f"{name} in {op} op must be sorted, got {dims}"
    if len(set(dims)) != len(dims):
        yield f"{name} in {op} op must not repeat, got {dims}"
    if rank is not None and any(not 0 <= d < rank for d in dims):
        yield f"Invalid {name} set in {op} op; valid range is [0, {rank}), got {dims}"


def _operand_problems(
    op: str, operand: Aval, indices: Aval, numbers: GatherDimensionNumbers | ScatterDimensionNumbers
) -> Iterator[str]:
    """Problems with the operand axes that are collapsed, batched with the indices, or addressed."""
    (_, dropped, mapped, batching, index_batching), names = numbers, numbers._fields
    yield from _axes_problems(op, names[1], dropped, operand.ndim)
    yield from _axes_problems(op, names[3], batching, operand.ndim)
    for name, dims in (names[1], dropped), (names[2], mapped):
        if not set(dims).isdisjoint(batching):
            yield f"{name} and {names[3]} in {op} op must be disjoint, got {dims} and {batching}"
    yield from _axes_problems(op, names[4], index_batching, indices.ndim, ordered=False)
    last, title = indices.ndim - 1, op.capitalize()
    if last in index_batching:
        yield (f"{title} op cannot have the index vector dimension as a batching dimension, got "
               f"{index_batching}")
    if len(batching) != len(index_batching):
        yield (f"{title} op requires equal numbers of {names[3]} and {names[4]}, got {batching} "
               f"and {index_batching}")
    ours = tuple(operand.shape[d] for d in batching)
    theirs = tuple(indices.shape[d] for d in index_batching)
    if ours != theirs:
        yield (f"{title} op requires operand batching dimensions and indices batching dimensions "
               f"to have the same shape, got {ours} and {theirs}")
    if len(mapped) != indices.shape[-1]:
        yield (f"{title} op has {len(mapped)} elements in {names[2]} and the bound of dimension "
               f"index_vector_dim={last} of indices is {indices.shape[-1]}. These two numbers "
               "must be equal.")
    if any(not 0 <= d < operand.ndim for d in mapped):
        yield f"Invalid {names[2]} mapping; domain is [0, {operand.ndim}), got {mapped}"
    yield from _axes_problems(op, names[2], mapped, ordered=False)
