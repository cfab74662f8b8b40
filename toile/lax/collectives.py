"""Collectives over named axes: psum, pmean, all_gather, ppermute, axis_index and their kin.

The names are those that vmap, pmap or shard_map bind. May import everything below the faces.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.conversion import from_numpy
from toile.engine.source import here
from toile.engine.tracing import axis_size as _bound_size
from toile.engine.trees import tree_map
from toile.lax._staging import leaf
from toile.parallel.varying import Varying, mode
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
from toile.primitives.elementwise import convert, div
from toile.primitives.families import add, full_like, move_axis, mul, reduce_sum, reshape, scalar

AxisName = Hashable


def _names(axis_name: Any) -> tuple[Any, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _groups(groups: Any, axis_name: Any) -> Any:
    if groups is None:
        return None
    made = tuple(tuple(int(i) for i in g) for g in groups)
    if len({len(g) for g in made}) != 1:
        raise ValueError(f"axis_index_groups must all be the same size, got {groups}{here()}")
    size = check_bound(_names(axis_name))
    if sorted(i for g in made for i in g) != list(range(size)):
        raise ValueError(
            f"axis_index_groups must cover all indices exactly once: needed 0 to {size - 1}, got "
            f"{groups}{here()}"
        )
    return made


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Sum of `x` over a named axis (or several)."""
    names = _names(axis_name)
    positional = tuple(n for n in names if isinstance(n, int))
    names = tuple(n for n in names if not isinstance(n, int))
    groups = _groups(axis_index_groups, names)

    def one(v: Any) -> Any:
        if is_number(v) and not positional:
            size = len(groups[0]) if groups else check_bound(names)
            return v * size if not isinstance(v, bool) else int(v) * size
        v = leaf(v)
        if v.dtype == np.bool_:
            v = convert(v, np.int32)
        if positional:
            v = reduce_sum(v, tuple(sorted(p % v.ndim for p in positional)))
        return AllReduce("sum", names, groups)(v) if names else v

    return tree_map(one, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Mean of `x` over a named axis (or several)."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    groups = _groups(axis_index_groups, axis_name)
    size = len(groups[0]) if groups else check_bound(_names(axis_name))

    def one(v: Any) -> Any:
        if is_number(v):
            return v / size
        v = leaf(v)
        if not dtypes.is_inexact(v.dtype):
            v = convert(v, dtypes.default_float_dtype())
        return div(v, convert(scalar(size, v.dtype), v.dtype, v.weak_type))

    return tree_map(one, total)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Maximum of `x` over a named axis (or several)."""
    op = AllReduce("max", _names(axis_name), _groups(axis_index_groups, axis_name))
    return tree_map(lambda v: op(leaf(v)), x)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """Minimum of `x` over a named axis (or several)."""
    op = AllReduce("min", _names(axis_name), _groups(axis_index_groups, axis_name))
    return tree_map(lambda v: op(leaf(v)), x)


def ppermute(x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Send values between examples by (source, destination) pairs; others receive zeros."""
    op = PPermute(_single(axis_name), tuple((int(a), int(b)) for a, b in perm))
    return tree_map(lambda v: op(leaf(v)), x)


def _single(axis_name: Any) -> Any:
    names = _names(axis_name)
    if len(names) != 1:
        raise NotImplementedError(f"needed one named axis, got {axis_name}{here()}")
    return names[0]


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Example i receives the value of example perm[i]."""
    order = [int(p) for p in perm]
    if sorted(order) != list(range(len(order))):
        raise ValueError(f"`perm` does not represent a permutation: {perm}{here()}")
    return ppermute(x, axis_name, [(p, i) for i, p in enumerate(order)])


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Swap a named axis with an array axis of the same size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def all_to_all(
    x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, *,
    axis_index_groups: Any = None, tiled: bool = False,
) -> Any:
    """Give part j of `split_axis` to example j; join what arrives along `concat_axis`."""
    name = _single(axis_name)
    groups = _groups(axis_index_groups, axis_name)
    size = len(groups[0]) if groups else _bound_size(name)

    def one(v: Any) -> Any:
        v = leaf(v)
        if tiled:
            return AllToAll(name, split_axis, concat_axis, groups)(v)
        if v.shape[split_axis] != size:
            raise ValueError(
                "all_to_all requires the size of the mapped axis axis_name to equal x.shape[split_"
                f"axis], but they are {size} and {v.shape[split_axis]} respectively.{here()}"
            )
        # The split axis leaves; a new axis of the same size appears at concat_axis.
        rest = move_axis(v, split_axis, 0)
        grown = reshape(rest, (size, 1, *rest.shape[1:]))
        out = AllToAll(name, 0, 1, groups)(grown)
        out = reshape(out, out.shape[1:])
        return move_axis(out, 0, concat_axis)

    return tree_map(one, x)


def all_gather(
    x: Any, axis_name: AxisName, *, axis_index_groups: Any = None, axis: int = 0,
    tiled: bool = False, to: str = "varying",
) -> Any:
    """Every example's value of `x`, along a new axis (or joined along `axis`, tiled)."""
    groups = _groups(axis_index_groups, axis_name)

    def one(v: Any) -> Any:
        v = leaf(v)
        if v.dtype == np.bool_:
            return convert(one(convert(v, np.int32)), np.bool_)
        rank = v.ndim + (not tiled)
        names = _names(axis_name)
        if len(names) > 1:
            for n in reversed(names[1:]):
                v = AllGather(n, 0, tiled, None)(v)
            v = AllGather(names[0], 0, tiled, None)(v)
            size = check_bound(names)
            v = v if tiled else reshape(v, (size, *v.shape[len(names):]))
            return move_axis(v, 0, axis % rank)
        return AllGather(names[0], axis % rank, tiled, groups)(v)

    return tree_map(one, x)


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Sum over a named axis, each example keeping its own part of `scatter_dimension`."""
    groups = _groups(axis_index_groups, axis_name)
    op = ReduceScatter(_single(axis_name), scatter_dimension, tiled, groups)
    return tree_map(lambda v: op(leaf(v)), x)


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """Every example gets the value of example `source`."""

    def one(v: Any) -> Any:
        v = leaf(v)
        mask = convert(axis_index(axis_name) == source, v.dtype)
        return AllReduce("sum", _names(axis_name))(mul(v, mask))

    return tree_map(one, x)


def axis_index(axis_name: Any) -> Any:
    """The position of this example along a named axis (row-major over several)."""
    index = None
    for n in _names(axis_name):
        own = AxisIndex(n)()
        if index is None:
            index = own
        else:
            index = add(mul(index, full_like(index, _bound_size(n))), own)
    return index if index is not None else from_numpy(np.asarray(0, np.int32))


def axis_size(axis_name: Any) -> int:
    """The size of a named axis (or the product of several)."""
    return check_bound(_names(axis_name))


def pcast(x: Any, axis_name: Any = None, *, to: Any = None) -> Any:
    """`x`, with `to="varying"` as one value per device inside of shard_map."""
    return pvary(x, axis_name) if to == "varying" and axis_name is not None else x


def pvary(x: Any, axis_name: Any) -> Any:
    """`x`, as one value per device inside of shard_map: gradients are not summed over devices."""
    names = _names(axis_name)
    check_bound(names)
    if not any(n in names for n, _ in mode.axes):
        return x
    return tree_map(lambda v: Varying(names)(leaf(v)), x)


