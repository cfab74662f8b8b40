"""Segment reductions: sum, product, maximum and minimum of the slices with the same segment id.

The result for a segment without slices is the result of an empty reduction, such as 0 for a sum.
Ids outside [0, num_segments), including negative ones, are ignored.
"""

# Each function is one scatter into an array that is filled with the identity of the reduction.

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy.reductions import highest, lowest
from toile.primitives.bounds import bounded

if TYPE_CHECKING:
    import numpy as np

    from toile.engine.shardings import Sharding

_ANY_NEGATIVE = -(1 << 63)  # ids of slices to ignore

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


_DOC = """{first}

    Args:
        data: array whose slices along the first axis are reduced.
        segment_ids: array of integers that contains the segment id of each slice. Slices whose id
            is negative or at least `num_segments` are ignored. An id that is too large causes a
            warning, unless `mode` is given.
        num_segments: number of segments; None means the largest id plus 1. It is required under
            `jit`.
        indices_are_sorted: whether `segment_ids` is guaranteed to be in increasing order.
        unique_indices: whether it is guaranteed that no two slices belong to the same segment.
        bucket_size: number of slices in a bucket. The slices in each bucket are reduced first, and
            then the results of all buckets are combined.
            {buckets}
            If `bucket_size` is None, no buckets are used.
        mode: how to handle ids that are out of bounds; see `lax.GatherScatterMode`. If None,
            slices with such ids are ignored.
        out_sharding: sharding of the result; None means that no sharding is applied. It cannot be
            combined with `bucket_size`.

    Returns:
        An array with the dtype of `data` that contains one slice for each segment. The result for a
        segment without slices is {empty}.

    >>> toile.ops.{name}(jnp.array([5, 2, 3]), jnp.array([0, 0, 1]), num_segments=2)
    {example}
    """


def _segment(
    name: str, scatter: Callable[..., Array], reduce: Callable[..., Array],
    identity: Callable[[np.dtype], Any], first: str, empty: str, buckets: str, example: str,
) -> Callable[..., Array]:
    """A function that reduces the rows of each segment by a scatter into `identity(dtype)`."""

    def segment(
        data: ArrayLike, segment_ids: ArrayLike, num_segments: int | None = None,
        indices_are_sorted: bool = False, unique_indices: bool = False,
        bucket_size: int | None = None, mode: str | lax.GatherScatterMode | None = None,
        out_sharding: Sharding | None = None,
    ) -> Array:
        data, ids = jnp.asarray(data), jnp.asarray(segment_ids)
        count = operator.index(jnp.max(ids) + 1 if num_segments is None else num_segments)
        if count < 0:
            raise ValueError("num_segments must be non-negative." + here())
        if mode is None:
            mode = lax.GatherScatterMode.FILL_OR_DROP
            if num_segments is not None:
                ids = bounded(ids, _ANY_NEGATIVE, count - 1, name, lambda i: (
                    f"{name}: segment id {i} is out of bounds for num_segments={count}: its slice "
                    'was ignored (needed ids below num_segments; pass mode="drop", or use negative '
                    "ids, for slices to ignore)"))
        leading: tuple[int, ...] = (count,)
        indices = ids[..., None]
        if bucket_size is not None:  # reduce the rows of each bucket, then the buckets
            if out_sharding is not None:
                raise NotImplementedError(
                    f"{name}: out_sharding is not supported with bucket_size{here()}")
            leading = (-(-ids.size // bucket_size), count)
            # a dtype of few bits may hold the ids, but not the numbers of the buckets
            wide = ids.astype(jnp.promote_types(ids.dtype, np.int32))
            bucket = (jnp.arange(ids.shape[0]) // bucket_size).astype(wide.dtype)
            indices = jnp.stack([bucket, wide], axis=-1)
        start = jnp.full((*leading, *data.shape[1:]), np.asarray(identity(data.dtype), data.dtype))
        axes = tuple(range(len(leading)))
        windows = tuple(range(ids.ndim, ids.ndim + data.ndim - 1))
        out = scatter(
            start, indices, jnp.broadcast_to(data, ids.shape + data.shape[1:]),
            lax.ScatterDimensionNumbers(windows, axes, axes),
            indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode,
        )
        if bucket_size is not None:
            out = reduce(out, axis=0).astype(data.dtype)
        return out if out_sharding is None else jnp.asarray(out, device=out_sharding)

    segment.__name__ = segment.__qualname__ = name
    segment.__doc__ = _DOC.format(
        first=first, empty=empty, buckets=buckets, name=name, example=example)
    return segment


segment_sum = _segment(
    "segment_sum", lax.scatter_add, jnp.sum, lambda dtype: 0,
    "Sum the slices of an array that belong to the same segment.", "0",
    "For floats, this can make the sums more accurate.",
    "Array([7, 3], dtype=int32)",
)
segment_prod = _segment(
    "segment_prod", lax.scatter_mul, jnp.prod, lambda dtype: 1,
    "Multiply the slices of an array that belong to the same segment.", "1",
    "For floats, this can change the rounding of the products.",
    "Array([10,  3], dtype=int32)",
)
segment_max = _segment(
    "segment_max", lax.scatter_max, jnp.max, lowest,
    "Compute the maximum of the slices of an array that belong to the same segment.",
    "the lowest value of the dtype (-infinity for floats)",
    "This does not change the result.", "Array([5, 3], dtype=int32)",
)
segment_min = _segment(
    "segment_min", lax.scatter_min, jnp.min, highest,
    "Compute the minimum of the slices of an array that belong to the same segment.",
    "the highest value of the dtype (infinity for floats)",
    "This does not change the result.", "Array([2, 3], dtype=int32)",
)
