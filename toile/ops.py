"""Segment reductions: sum, product, maximum and minimum of the rows that share a segment id.

Each is one scatter into an array of the reduction's identity, so that a segment without rows
holds the identity. Ids outside [0, num_segments) are dropped, negative ones included.
"""

import operator

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.numpy.reductions import highest, lowest

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _segment(name, scatter, reduce, identity, summary):
    """A function that reduces the rows of each segment by a scatter into `identity(dtype)`."""

    def segment(
        data, segment_ids, num_segments=None, indices_are_sorted=False, unique_indices=False,
        bucket_size=None, mode=None, out_sharding=None,
    ):
        data, ids = jnp.asarray(data), jnp.asarray(segment_ids)
        if num_segments is None:
            num_segments = jnp.max(ids) + 1
        num_segments = operator.index(num_segments)
        if num_segments < 0:
            raise ValueError("num_segments must be non-negative." + here())
        mode = lax.GatherScatterMode.FILL_OR_DROP if mode is None else mode
        leading: tuple[int, ...] = (num_segments,)
        indices = ids[..., None]
        if bucket_size is not None:  # reduce the rows of each bucket, then the buckets
            if out_sharding is not None:
                raise NotImplementedError(f"{name}: out_sharding with bucket_size{here()}")
            leading = (-(-ids.size // bucket_size), num_segments)
            bucket = (jnp.arange(ids.shape[0]) // bucket_size).astype(ids.dtype)
            indices = jnp.stack([bucket, ids], axis=-1)
        start = jnp.full((*leading, *data.shape[1:]), identity(data.dtype), dtype=data.dtype)
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
    segment.__doc__ = summary
    return segment


segment_sum = _segment(
    "segment_sum", lax.scatter_add, jnp.sum, lambda dtype: 0,
    "Sum of the rows of `data` per segment; 0 where a segment is empty.",
)
segment_prod = _segment(
    "segment_prod", lax.scatter_mul, jnp.prod, lambda dtype: 1,
    "Product of the rows of `data` per segment; 1 where a segment is empty.",
)
segment_max = _segment(
    "segment_max", lax.scatter_max, jnp.max, lowest,
    "Maximum of the rows of `data` per segment; the least value where a segment is empty.",
)
segment_min = _segment(
    "segment_min", lax.scatter_min, jnp.min, highest,
    "Minimum of the rows of `data` per segment; the greatest value where a segment is empty.",
)
