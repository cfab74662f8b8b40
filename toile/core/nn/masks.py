"""Masks of attention weights, of shape (batch, heads, *query positions, *key positions)."""

from __future__ import annotations

import math
from typing import Any

from toile import numpy as jnp
from toile.engine.source import here

__all__ = ["make_padding_mask"]


def check_attention_axes(axes: tuple[int, ...], ndim: int) -> None:
    """Raise an error unless the axes are between the batch axis and the head axis."""
    if not all(1 <= a < ndim - 2 for a in axes):
        raise ValueError(
            "Attention axis must be between the batch axis and the last-two axes, got "
            f"{axes} for {ndim} axes{here()}"
        )


def make_padding_mask(
    padding_mask_query: Any,
    padding_mask_key: Any,
    query_shape: tuple[int, ...],
    key_shape: tuple[int, ...],
    attention_axis: tuple[int, ...] | None = None,
    segmentation_mask: bool = False,
) -> Any:
    """A mask that is 1 where a query may attend to a key, and 0 elsewhere.

    If `segmentation_mask` is True, the query and the key must be in the same segment. Otherwise,
    neither of them may be padding.

    >>> import toile.numpy as jnp
    >>> from toile.core.nn.attention import make_padding_mask
    >>> make_padding_mask(jnp.array([[1, 1, 0]]), jnp.array([[1, 0]]), (1, 3, 2, 4), (1, 2, 2, 4))
    Array([[[[1., 0.],
             [1., 0.],
             [0., 0.]]]], dtype=float32)
    """
    ndim = len(key_shape)
    if query_shape[0] != key_shape[0] or len(query_shape) != ndim:
        raise AssertionError(
            "make_padding_mask: needed queries and keys of one batch and one rank, got "
            f"{query_shape} and {key_shape}{here()}"
        )
    axes = tuple(range(1, ndim - 2)) if attention_axis is None else attention_axis
    check_attention_axes(axes, ndim)
    queries, keys = padding_mask_query[..., None], padding_mask_key[..., None]
    keys = keys.transpose((0, *range(keys.ndim - 1, 0, -1)))  # one column for each key
    together = jnp.equal if segmentation_mask else jnp.multiply
    shape = (query_shape[0], 1, *(query_shape[a] for a in axes), *(key_shape[a] for a in axes))
    return together(queries, keys).reshape(shape).astype(jnp.float32)


def _make_causal_mask(
    key: Any, attention_axis: tuple[int, ...] | None = None, self_mask: bool = False
) -> Any:
    """A mask: True for keys up to the query or, with `self_mask`, for keys before the query."""
    axes = tuple(range(1, key.ndim - 2)) if attention_axis is None else attention_axis
    check_attention_axes(axes, key.ndim)
    sizes = tuple(key.shape[a] for a in axes)
    count = math.prod(sizes)
    mask = jnp.tri(count, count, -1 if self_mask else 0, dtype=bool)
    return mask.reshape((1,) * (key.ndim - len(axes) - 1) + sizes + sizes)
