"""Collectives over named axes: psum, pmean, all_gather, ppermute, axis_index and the like.

The axis names are bound by vmap, pmap or shard_map. This module may import all layers below `lax`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, PyTree
from toile.engine.conversion import from_numpy
from toile.engine.source import describe, here
from toile.engine.trace import axis_size as _bound_size
from toile.engine.trace import state
from toile.engine.trees import tree_map
from toile.lax import gathers
from toile.lax._traced_functions import leaf
from toile.parallel.varying_values import Varying, mode
from toile.primitives.bits import and_, ge, lt
from toile.primitives.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    AxisIndex,
    PPermute,
    ReduceScatter,
    check_bound,
    is_number,
)
from toile.primitives.elementwise import convert, div, like, select
from toile.primitives.families import (
    add,
    broadcast_in_dim,
    full_like,
    move_axis,
    mul,
    reduce_sum,
    reshape,
    scalar,
    sub,
)
from toile.primitives.reductions import ReduceMax, ReduceMin
from toile.primitives.shapes import iota

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pbroadcast", "pcast", "pmax", "pmean",
    "pmin", "ppermute", "pshuffle", "psum", "psum_scatter", "pswapaxes", "pvary",
    "ragged_all_to_all",
]

AxisNames: TypeAlias = Hashable | Sequence[Hashable]
Groups: TypeAlias = Sequence[Sequence[int]] | None


def _names(axis_name: Any) -> tuple[Any, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _groups(groups: Any, axis_name: Any, even: bool = True) -> Any:
    if groups is None:
        return None
    made = tuple(tuple(int(i) for i in g) for g in groups)
    size = check_bound(_names(axis_name))
    if sorted(i for g in made for i in g) != list(range(size)):
        raise ValueError("axis_index_groups must cover all indices exactly once: needed 0 to "
                         f"{size - 1}, got {groups}{here()}")
    if even and not _are_even(made):
        raise ValueError(f"axis_index_groups must all be the same size, got {groups}{here()}")
    return made


def _are_even(groups: Any) -> bool:
    return groups is None or len({len(g) for g in groups}) == 1


def _reduced(kind: str, v: Any, names: tuple[Any, ...], groups: Any) -> Any:
    """The sum, maximum or minimum over all of the axes, or over this example's group."""
    if _are_even(groups):
        return AllReduce(kind, names, groups)(v)
    size = check_bound(names)
    same = np.zeros((size, size), np.bool_)  # whether two examples share a group
    for g in groups:
        same[np.ix_(g, g)] = True
    everyone = all_gather(v, names)
    mine = broadcast_in_dim(_entry(same, names), everyone.shape, (0,))
    if kind == "sum":
        return reduce_sum(select(mine, everyone, like(everyone, 0)), (0,))
    own = broadcast_in_dim(v, everyone.shape, tuple(range(1, everyone.ndim)))
    return (ReduceMax if kind == "max" else ReduceMin)((0,))(select(mine, everyone, own))


def _entry(table: Any, names: tuple[Any, ...]) -> Any:
    """This example's row of a table."""
    return gathers.dynamic_index_in_dim(from_numpy(table), axis_index(names), 0, keepdims=False)


def psum(x: PyTree, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> PyTree:
    """Add the values of all examples or devices along a named axis.

    Every example or device receives the sum. Axes are named by `toile.vmap`, `toile.pmap` or
    `toile.shard_map`. A function that is mapped by one of these transformations sees one example,
    or one device's part of the data, at a time. A collective such as `psum` combines the values of
    all examples or devices.

    Args:
        x: array or number, or a tree of arrays and numbers. Bools become integers. A Python number
            stays a Python number: it is multiplied by the size of the axis, so `lax.psum(1, "i")`
            is the size of axis "i".
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the values are
            summed over all of the named axes. An integer refers to an axis of `x` itself.
        axis_index_groups: groups of positions along the axis, such as `[[0, 1], [2, 3]]`; if given,
            the sum is computed only within each group. If `axis_index_groups` is None, all
            positions form one group.

    Returns:
        A tree like `x`, with the same values for all examples along the axis or in the group.

    >>> shares = toile.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")
    >>> shares(jnp.array([1.0, 2.0, 5.0]))
    Array([0.125, 0.25 , 0.625], dtype=float32)
    """
    names = _names(axis_name)
    positional = tuple(n for n in names if isinstance(n, int))
    names = tuple(n for n in names if not isinstance(n, int))
    groups = _groups(axis_index_groups, names, even=False)

    def one(v: Any) -> Any:
        if is_number(v) and not positional:
            size = len(groups[0]) if groups else check_bound(names)
            return v * size if not isinstance(v, bool) else int(v) * size
        v = leaf(v)
        if v.dtype == np.bool_:
            v = convert(v, np.int32)
        if positional:
            v = reduce_sum(v, tuple(sorted(p % v.ndim for p in positional)))
        return _reduced("sum", v, names, groups) if names else v

    return tree_map(one, x)


def pmean(x: PyTree, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> PyTree:
    """Average the values of all examples or devices along a named axis.

    Every example or device receives the mean. Use `pmean`, for example, to average gradients over
    devices that train on different parts of a batch.

    Args:
        x: array or number, or a tree of arrays and numbers. Integers become floats.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the values are
            averaged over all of the named axes.
        axis_index_groups: groups of positions along the axis, all of the same size; if given, the
            mean is computed only within each group. If `axis_index_groups` is None, all positions
            form one group.

    Returns:
        A tree like `x`, with the same values for all examples along the axis or in the group.

    >>> centered = toile.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")
    >>> centered(jnp.array([1.0, 2.0, 6.0]))
    Array([-2., -1.,  3.], dtype=float32)
    """
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    groups = _groups(axis_index_groups, axis_name, even=False)
    size = len(groups[0]) if groups else check_bound(_names(axis_name))

    def one(v: Any) -> Any:
        if is_number(v):
            return v / size
        v = leaf(v)
        if not dtypes.is_inexact(v.dtype):
            v = convert(v, dtypes.to_inexact_dtype(v.dtype))
        return div(v, convert(scalar(size, v.dtype), v.dtype, v.weak_type))

    return tree_map(one, total)


def pmax(x: PyTree, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> PyTree:
    """Compute the elementwise maximum over all examples or devices along a named axis.

    Every example or device receives the maximum.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the values are
            reduced over all of the named axes.
        axis_index_groups: groups of positions along the axis; each group is then reduced
            separately. If `axis_index_groups` is None, all positions form one group.

    Returns:
        A tree like `x`, with the same values for all examples along the axis or in the group.

    >>> toile.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([1, 7, 3]))
    Array([7, 7, 7], dtype=int32)
    """
    names, groups = _names(axis_name), _groups(axis_index_groups, axis_name, even=False)
    return tree_map(lambda v: _reduced("max", leaf(v), names, groups), x)


def pmin(x: PyTree, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> PyTree:
    """Compute the elementwise minimum over all examples or devices along a named axis.

    Every example or device receives the minimum.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the values are
            reduced over all of the named axes.
        axis_index_groups: groups of positions along the axis; each group is then reduced
            separately. If `axis_index_groups` is None, all positions form one group.

    Returns:
        A tree like `x`, with the same values for all examples along the axis or in the group.

    >>> toile.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.array([1, 7, 3]))
    Array([1, 1, 1], dtype=int32)
    """
    names, groups = _names(axis_name), _groups(axis_index_groups, axis_name, even=False)
    return tree_map(lambda v: _reduced("min", leaf(v), names, groups), x)


def ppermute(x: PyTree, axis_name: AxisNames, perm: Sequence[tuple[int, int]]) -> PyTree:
    """Send values from some positions along a named axis to other positions.

    Args:
        x: the values to send: an array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the named axes are
            treated as one axis.
        perm: pairs `(source, destination)` of positions. A position may occur at most once as a
            source and at most once as a destination.

    Returns:
        A tree like `x` with the received values. Positions to which nothing is sent receive zeros.

    >>> shift = lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)])
    >>> toile.vmap(shift, axis_name="i")(jnp.array([10, 20, 30]))
    Array([ 0, 10, 20], dtype=int32)
    """
    names, pairs = _names(axis_name), tuple((int(a), int(b)) for a, b in perm)
    if len(names) != 1:
        return tree_map(lambda v: _permuted(leaf(v), names, pairs), x)
    op = PPermute(names[0], pairs)
    return tree_map(lambda v: op(leaf(v)), x)


def _permuted(v: Any, names: tuple[Any, ...], perm: tuple[tuple[int, int], ...]) -> Any:
    """`ppermute` over several axes; examples are numbered in the order of the mesh's axes."""
    size, bound = check_bound(names), [n for n, _ in state.axes]
    names = tuple(sorted(names, key=bound.index))
    for ends in zip(*perm, strict=True):
        if len(set(ends)) != len(ends) or any(not 0 <= i < size for i in ends):
            raise ValueError(f"ppermute sources and destinations must be unique and in [0, {size})"
                             f", got {perm}{here()}")
    sources, receives = np.zeros(size, np.int32), np.zeros(size, np.bool_)
    for source, target in perm:
        sources[target], receives[target] = source, True
    sent = gathers.dynamic_index_in_dim(all_gather(v, names), _entry(sources, names), 0,
                                        keepdims=False)
    return select(_entry(receives, names), sent, like(sent, 0))


def pshuffle(x: PyTree, axis_name: AxisNames, perm: Sequence[int]) -> PyTree:
    """Reorder values along a named axis.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis.
        perm: a permutation of the positions: position `i` receives the value at position `perm[i]`.

    Returns:
        A tree like `x`.

    >>> turn = toile.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")
    >>> turn(jnp.array([10, 20, 30]))
    Array([30, 10, 20], dtype=int32)
    """
    order = [int(p) for p in perm]
    if sorted(order) != list(range(len(order))):
        raise ValueError(f"`perm` does not represent a permutation: {perm}{here()}")
    return ppermute(x, axis_name, [(p, i) for i, p in enumerate(order)])


def pswapaxes(x: PyTree, axis_name: AxisNames, axis: int, *,
              axis_index_groups: Groups = None) -> PyTree:
    """Swap a named axis with an axis of the arrays that has the same size.

    Args:
        x: array or tree of arrays.
        axis_name: the name of the axis.
        axis: the axis of the arrays to swap with the named axis.
        axis_index_groups: groups of positions along the named axis, all of the same size; if given,
            values are exchanged only within each group. If `axis_index_groups` is None, all
            positions form one group.

    Returns:
        A tree like `x`.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> toile.vmap(lambda row: lax.pswapaxes(row, "i", 0), axis_name="i")(x)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def all_to_all(x: PyTree, axis_name: AxisNames, split_axis: int, concat_axis: int, *,
               axis_index_groups: Groups = None, tiled: bool = False) -> PyTree:
    """Cut each value into parts, and send part `j` to position `j` along a named axis.

    If an array was divided among devices along `concat_axis`, it is divided along `split_axis`
    afterward.

    Args:
        x: array or tree of arrays.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the named axes are
            treated as one axis.
        split_axis: the axis along which the arrays are cut. Its size must be the size of the named
            axis or, if `tiled` is True, a multiple of that size.
        concat_axis: the axis along which the received parts are joined.
        axis_index_groups: groups of positions along the named axis, all of the same size; if given,
            parts are exchanged only within each group. If `axis_index_groups` is None, all
            positions form one group.
        tiled: if True, the parts keep `split_axis` and are joined along the existing axis
            `concat_axis`. If False, `split_axis` is removed, and the parts are stacked along a new
            axis at position `concat_axis`.

    Returns:
        A tree of arrays; part `i` along `concat_axis` comes from position `i`.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> toile.vmap(lambda row: lax.all_to_all(row, "i", 0, 0), axis_name="i")(x)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, axis_name)
    size = len(groups[0]) if groups else check_bound(names)

    def one(v: Any) -> Any:
        v = leaf(v)
        if tiled and len(names) == 1:
            return AllToAll(names[0], split_axis, concat_axis, groups)(v)
        if tiled:
            return _exchanged_tiles(v, names, size, split_axis % v.ndim, concat_axis % v.ndim)
        if v.shape[split_axis] != size:
            raise ValueError("all_to_all requires the size of the mapped axis axis_name to equal "
                             f"x.shape[split_axis], but they are {size} and {v.shape[split_axis]} "
                             f"respectively.{here()}")
        # The split axis leaves; a new axis of the same size appears at concat_axis.
        rest = move_axis(v, split_axis, 0)
        if len(names) != 1:
            return move_axis(_exchanged(rest, names), 0, concat_axis)
        grown = reshape(rest, (size, 1, *rest.shape[1:]))
        out = AllToAll(names[0], 0, 1, groups)(grown)
        out = reshape(out, out.shape[1:])
        return move_axis(out, 0, concat_axis)

    return tree_map(one, x)


def ragged_all_to_all(
    operand: ArrayLike, output: ArrayLike, input_offsets: ArrayLike, send_sizes: ArrayLike,
    output_offsets: ArrayLike, recv_sizes: ArrayLike, *, axis_name: AxisNames,
    axis_index_groups: Groups = None,
) -> Array:
    """Send slices of different sizes to the positions along a named axis.

    Every position sends `k` slices to every position. `input_offsets`, `send_sizes` and
    `output_offsets` therefore have `k` entries for each receiver: entries `j*k, ..., (j+1)*k - 1`
    describe the slices that are sent to position `j`. In the same way, `recv_sizes` has `k` entries
    for each sender.

    Args:
        operand: array of shape `(n, ...)` that contains the slices to send.
        output: array of shape `(m, ...)` into which the received slices are written.
        input_offsets: for each slice, its first row in `operand`.
        send_sizes: for each slice, its number of rows.
        output_offsets: for each slice, the row of the receiver's `output` where it is written.
        recv_sizes: for each slice that is received, its number of rows.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the named axes are
            treated as one axis.
        axis_index_groups: groups of positions along the named axis, all of the same size; if given,
            slices are exchanged only within each group. If `axis_index_groups` is None, all
            positions form one group.

    Returns:
        A copy of `output` with the received slices.

    Raises:
        ValueError: the four arrays are not one-dimensional arrays of integers of the same length,
            or this length is not a multiple of the size of the named axis.

    Differences:
        `recv_sizes` is ignored; the sizes come from the senders' `send_sizes`. JAX supports this
        function only on GPUs and TPUs. toile sends each position's whole operand to all positions,
        which then select their slices.

    >>> send = jnp.array([[1, 2], [1, 1]])  # position 0 sends 1 row to itself and 2 to position 1
    >>> exchange = lambda x, starts, sizes, places: lax.ragged_all_to_all(
    ...     x, jnp.zeros(4, "int32"), starts, sizes, places, sizes, axis_name="i")
    >>> toile.vmap(exchange, axis_name="i")(
    ...     jnp.array([[1, 2, 2], [3, 4, 0]]), jnp.array([[0, 1], [0, 1]]), send,
    ...     jnp.array([[0, 0], [1, 2]]))
    Array([[1, 3, 0, 0],
           [2, 2, 4, 0]], dtype=int32)
    """
    x, out = leaf(operand), leaf(output)
    given = {"input_offsets": input_offsets, "send_sizes": send_sizes,
             "output_offsets": output_offsets, "recv_sizes": recv_sizes}
    tables = [_slice_table(name, leaf(v)) for name, v in given.items()]
    size = len(axis_index_groups[0]) if axis_index_groups else check_bound(_names(axis_name))
    count = tables[0].shape[0]
    if any(t.shape != (count,) for t in tables) or count % size:
        raise ValueError(f"ragged_all_to_all: needed offsets and sizes of the same length, a "
                         f"multiple of the axis size {size}, got {describe(tables)}{here()}")
    starts, sizes, places = (
        all_to_all(t, axis_name, 0, 0, axis_index_groups=axis_index_groups, tiled=True)
        for t in tables[:3])
    rows = x.shape[0]
    sources = all_gather(x, axis_name, axis_index_groups=axis_index_groups)
    sources = broadcast_in_dim(sources, (size, count // size, *x.shape),
                               (0, *range(2, x.ndim + 2)))
    wide = lambda v: broadcast_in_dim(v, (count, rows), (0,))
    row = broadcast_in_dim(iota(tables[0].dtype, (rows,)), (count, rows), (1,))
    nth = sub(row, wide(starts))
    inside = and_(ge(nth, full_like(nth, 0)), lt(nth, wide(sizes)))
    places = select(inside, add(nth, wide(places)), full_like(nth, out.shape[0]))
    numbers = gathers.ScatterDimensionNumbers(tuple(range(1, x.ndim)), (0,), (0,))
    return gathers.scatter(out, reshape(places, (count * rows, 1)),
                           reshape(sources, (count * rows, *x.shape[1:])), numbers, mode="drop")


def _slice_table(name: str, v: Any) -> Any:
    """An array of offsets or sizes, as int32."""
    if dtypes.kind(v.dtype) not in "iu":
        raise ValueError(f"ragged_all_to_all {name} must be integer type: got "
                         f"{describe(v)}{here()}")
    if v.ndim != 1 or not v.shape[0]:
        raise ValueError(f"ragged_all_to_all {name} must be rank 1 with positive dimension size, "
                         f"but got shape {v.shape}{here()}")
    return convert(v, np.dtype(np.int32))


def _exchanged(v: Any, names: tuple[Any, ...]) -> Any:
    """Send row i of `v` to example i over several axes; row j of the result is from example j."""
    grid = reshape(v, (*map(_bound_size, names), *v.shape[1:]))
    for at, name in enumerate(names):
        grid = AllToAll(name, at, at, None)(grid)
    return reshape(grid, v.shape)


def _exchanged_tiles(v: Any, names: tuple[Any, ...], size: int, split: int, joined: int) -> Any:
    if v.shape[split] % size:
        raise ValueError(f"all_to_all: needed a size along axis {split} that is divisible by "
                         f"{size}, the size of {names}, got {v.aval.str_short()}{here()}")
    part = v.shape[split] // size
    rows = reshape(v, (*v.shape[:split], size, part, *v.shape[split + 1 :]))
    rows = move_axis(_exchanged(move_axis(rows, split, 0), names), 0, joined)
    whole = size * rows.shape[joined + 1]
    return reshape(rows, (*rows.shape[:joined], whole, *rows.shape[joined + 2 :]))


def all_gather(x: PyTree, axis_name: AxisNames, *, axis_index_groups: Groups = None,
               axis: int = 0, tiled: bool = False, to: str = "varying") -> PyTree:
    """Collect the values of all examples or devices along a named axis.

    Every example or device receives all of the values.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the named axes are
            treated as one axis.
        axis_index_groups: groups of positions along the named axis, all of the same size; if given,
            values are collected only within each group. If `axis_index_groups` is None, all
            positions form one group.
        axis: position of the new axis in the result; if `tiled` is True, the axis to join along.
        tiled: whether to join the values along an existing axis instead of a new axis.
        to: accepted for compatibility with JAX, and ignored.

    Returns:
        A tree of arrays, each with one more axis than the corresponding array in `x`. If `tiled` is
        True, there is no new axis; instead, the axis along which the values are joined is longer.

    >>> f = toile.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")
    >>> f(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [1, 2, 3],
           [1, 2, 3]], dtype=int32)
    """
    groups = _groups(axis_index_groups, axis_name)

    def one(v: Any) -> Any:
        v = leaf(v)
        if v.dtype == np.bool_:
            return convert(one(convert(v, np.int32)), np.bool_)
        rank = v.ndim + (not tiled)
        names = _names(axis_name)
        if len(names) > 1:
            for n in reversed(names):
                v = AllGather(n, axis % rank if tiled else 0, tiled, None)(v)
            if tiled:
                return v
            v = reshape(v, (check_bound(names), *v.shape[len(names):]))
            return move_axis(v, 0, axis % rank)
        return AllGather(names[0], axis % rank, tiled, groups)(v)

    return tree_map(one, x)


def psum_scatter(x: PyTree, axis_name: AxisNames, *, scatter_dimension: int = 0,
                 axis_index_groups: Groups = None, tiled: bool = False) -> PyTree:
    """Add the values along a named axis, and keep part `i` of the sum at position `i`.

    The sum is the one that `psum` computes, but each example or device receives only its part.
    `all_gather`, called with the same axes, joins the parts again.

    Args:
        x: array or tree of arrays.
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the named axes are
            treated as one axis.
        scatter_dimension: the axis along which the arrays are divided. Its size must be the size
            of the named axis or, if `tiled` is True, a multiple of that size.
        axis_index_groups: groups of positions along the named axis, all of the same size; each
            group then adds its own values and divides the sum among its positions. If
            `axis_index_groups` is None, all positions form one group.
        tiled: if True, the parts keep the divided axis; if False, the axis is removed.

    Returns:
        A tree of arrays, which are the parts of the sums.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> toile.vmap(lambda row: lax.psum_scatter(row, "i"), axis_name="i")(x)
    Array([4, 6], dtype=int32)
    """
    groups, names = _groups(axis_index_groups, axis_name), _names(axis_name)

    def one(v: Any) -> Any:
        v = leaf(v)
        if len(names) == 1:
            return ReduceScatter(names[0], scatter_dimension, tiled, groups)(v)
        d, size = scatter_dimension % v.ndim, check_bound(names)
        if not tiled and v.shape[d] != size:
            raise ValueError(f"psum_scatter: needed size {size}, the size of {names}, along axis "
                             f"{d}, got {v.aval.str_short()} (tiled=True divides it){here()}")
        for n in names:
            v = ReduceScatter(n, d, True, None)(v)
        return v if tiled else reshape(v, (*v.shape[:d], *v.shape[d + 1 :]))

    return tree_map(one, x)


def pbroadcast(x: PyTree, axis_name: AxisNames, source: int) -> PyTree:
    """Send the value at one position along a named axis to all positions.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis.
        source: the position whose value is sent.

    Returns:
        A tree like `x`, with the same values at all positions.

    >>> toile.vmap(lambda x: lax.pbroadcast(x, "i", 1), axis_name="i")(jnp.array([10, 20, 30]))
    Array([20, 20, 20], dtype=int32)
    """

    def one(v: Any) -> Any:
        v = leaf(v)
        mask = convert(axis_index(axis_name) == source, v.dtype)
        return AllReduce("sum", _names(axis_name))(mul(v, mask))

    return tree_map(one, x)


def axis_index(axis_name: AxisNames) -> Array:
    """Return the position of the current example (in `vmap`) or device along a named axis.

    Args:
        axis_name: the name of the axis, or a tuple of names. If it is a tuple, the named axes are
            treated as one axis, in which the position along the last named axis varies fastest.

    Returns:
        An int32 array of rank 0.

    >>> toile.vmap(lambda x: x + 100 * lax.axis_index("i"), axis_name="i")(jnp.array([1, 2, 3]))
    Array([  1, 102, 203], dtype=int32)
    """
    index = None
    for n in _names(axis_name):
        own = AxisIndex(n)()
        if index is None:
            index = own
        else:
            index = add(mul(index, full_like(index, _bound_size(n))), own)
    return index if index is not None else from_numpy(np.asarray(0, np.int32))


def axis_size(axis_name: AxisNames) -> int:
    """Return the size of a named axis.

    Args:
        axis_name: the name of the axis, or a tuple of names, in which case the result is the
            product of the axes' sizes.

    Returns:
        A Python integer.

    >>> toile.vmap(lambda x: x / lax.axis_size("i"), axis_name="i")(jnp.array([1.0, 2.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    return check_bound(_names(axis_name))


def pcast(x: PyTree, axis_name: AxisNames, *,
          to: Literal["varying", "unreduced", "reduced"]) -> PyTree:
    """Declare how a value varies along a named axis inside `toile.shard_map`.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis, or a tuple of names; None or () for no axis.
        to: "varying" declares that the value may differ between devices, as `pvary` does.
            "unreduced" and "reduced" have no effect.

    Returns:
        The same values.

    >>> toile.vmap(lambda x: lax.pcast(x, "i", to="varying"), axis_name="i")(jnp.array([1, 2]))
    Array([1, 2], dtype=int32)
    """
    if axis_name is None or axis_name == ():
        return x
    if to not in ("varying", "unreduced", "reduced"):
        raise ValueError("Got unexpected `to` value. Allowed `to` values are: 'varying', "
                         f"'unreduced' and 'reduced', got {to!r}{here()}")
    return pvary(x, axis_name) if to == "varying" else x


def pvary(x: PyTree, axis_name: AxisNames) -> PyTree:
    """Declare that a value may differ between the devices along a named axis.

    Inside `toile.shard_map`, the gradient with respect to a value that is equal on all devices is
    summed over the devices. If the value is declared to vary, each device keeps its own gradient.
    Outside `toile.shard_map`, the declaration has no effect.

    Args:
        x: array or number, or a tree of arrays and numbers.
        axis_name: the name of the axis, or a tuple of names.

    Returns:
        The same values.

    >>> toile.vmap(lambda x: lax.pvary(x, "i"), axis_name="i")(jnp.array([1, 2]))
    Array([1, 2], dtype=int32)
    """
    names = _names(axis_name)
    check_bound(names)
    if not any(n in names for n, _ in mode.axes):
        return x
    return tree_map(lambda v: Varying(names)(leaf(v)), x)


