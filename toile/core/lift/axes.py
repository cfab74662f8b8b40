"""Code shared by vmap and scan: axes of collections, axis sizes and splitting of random streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from toile import dtypes, random
from toile.core.filters import CollectionFilter
from toile.engine import trees
from toile.engine.records import dataclass
from toile.engine.source import describe, here

T = TypeVar("T")


@dataclass(frozen=True)
class In(Generic[T]):
    """Marks a collection that is only read, in slices along an axis.

    Use this class as a value in the `variable_axes` argument of `nn.vmap` and `nn.scan`.

    Args:
        axis: the axis. For `nn.vmap`, the axis may be None: all indices then use the whole
            collection.

    >>> from toile.core.lift import In
    >>> In(0)
    In(axis=0)
    """

    axis: T


@dataclass(frozen=True)
class Out(Generic[T]):
    """Marks a collection that is only written; its values are stacked along an axis.

    Use this class as a value in the `variable_axes` argument of `nn.vmap` and `nn.scan`.

    Args:
        axis: the axis.

    >>> from toile.core.lift import Out
    >>> Out(0)
    Out(axis=0)
    """

    axis: T


Axis = int | None
InOutAxis = Axis | In[Axis] | Out[Axis]
ScanAxis = int
InOutScanAxis = ScanAxis | In[ScanAxis] | Out[ScanAxis]
Axes = tuple[tuple[Any, ...], tuple[Any, ...]]  # filters and, in the same order, axes


def in_and_out(variable_axes: Mapping[CollectionFilter, Any]) -> tuple[Axes, Axes]:
    """The filters and axes of the inputs, and those of the outputs."""
    if not isinstance(variable_axes, Mapping):
        raise AttributeError(
            f"{type(variable_axes).__name__!r} object has no attribute 'items': needed a dict of "
            f"axes for variable_axes, got {describe(variable_axes)} (write variable_axes="
            f"{{'params': 0}}){here()}"
        )
    ins = [(k, _axis(v)) for k, v in variable_axes.items() if not isinstance(v, Out)]
    outs = [(k, _axis(v)) for k, v in variable_axes.items() if not isinstance(v, In)]
    return unzipped(ins), unzipped(outs)


def _axis(v: Any) -> Any:
    return v.axis if isinstance(v, In | Out) else v


def streams(split_rngs: Any) -> Any:
    """The pairs of `split_rngs`: for each stream of keys, whether it is split."""
    if not isinstance(split_rngs, Mapping):
        raise AttributeError(
            f"{type(split_rngs).__name__!r} object has no attribute 'items': needed a dict for "
            f"split_rngs, got {describe(split_rngs)} (write split_rngs={{'params': "
            f"{bool(split_rngs)}}}){here()}"
        )
    return split_rngs.items()


def unzipped(pairs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A list of pairs as two tuples."""
    pairs = list(pairs)
    return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)


def with_axes(
    change: Callable[..., Any], groups: Any, axes: tuple[Any, ...], params: Mapping[Any, Any]
) -> tuple[Any, ...]:
    """Add or remove an axis in the boxes around variables, with the function `change`."""
    return tuple(
        g if axis is None else change(g, axis, params) for g, axis in zip(groups, axes, strict=True)
    )


def sizes(axes: Any, xs: Any, shared: Any) -> set[int]:
    """The sizes of the given axes of `xs`; an axis equal to `shared` is skipped."""
    found: set[int] = set()

    def look(axis: Any, x: Any) -> None:
        if axis is not shared and (leaves := trees.leaves(x)):
            found.add(leaves[0].shape[axis])

    trees.tree_map(look, axes, xs, is_leaf=lambda x: x is None)
    return found


def one_size(found: set[int], given: int | None, what: str, option: str) -> int:
    """The size of the mapped axis, which must be the same in all arrays."""
    if len(found) > 1:
        raise ValueError(f"Inconsistent {what}: {found}{here()}")
    if given is not None:
        return given
    if not found:
        raise ValueError(
            f"{option} should be specified manually. Needed one array with that axis, got none: "
            f"pass {option}={here()}"
        )
    return found.pop()


def tree_map_rngs(fn: Callable[..., Any], tree: Any) -> Any:
    """Apply a function to each key in a tree."""
    return trees.tree_map(fn, tree, is_leaf=_is_key)


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and dtypes.issubdtype(x.dtype, dtypes.prng_key)


def split_streams(groups: Any, splits: tuple[bool, ...], size: int) -> tuple[Any, ...]:
    """The streams, with one key for each step in the groups that are split."""
    return tuple(
        tree_map_rngs(lambda key: random.split(key, size), group) if split else group
        for group, split in zip(groups, splits, strict=True)
    )
