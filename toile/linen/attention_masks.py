"""Attention masks, which determine the positions that each position may attend to.

A mask has shape (*batch, heads or 1, queries, keys). It is false or zero where a query must not
attend to a key.
"""

from collections.abc import Callable

from toile import numpy as jnp
from toile.engine.source import describe, here
from toile.typing import Array, Dtype

__all__ = ["combine_masks", "make_attention_mask", "make_causal_mask"]


def make_attention_mask(
    query_input: Array,
    key_input: Array,
    pairwise_fn: Callable[..., Array] = jnp.multiply,
    extra_batch_dims: int = 0,
    dtype: Dtype = jnp.float32,
) -> Array:
    """Compute an attention mask by applying a function to all pairs of query and key values.

    By default, the mask is nonzero where both the query and the key are nonzero. For example, if
    the inputs are 1 for words and 0 for padding, no position attends to padding.

    Args:
        query_input: array of shape (*batch, queries) with one value for each query.
        key_input: array of shape (*batch, keys) with one value for each key.
        pairwise_fn: function `f(query_input, key_input)`, such as `jnp.greater_equal`, that
            computes the mask. Its arguments have shapes (*batch, queries, 1) and (*batch, 1, keys).
        extra_batch_dims: number of axes of size 1 to add at the front.
        dtype: dtype of the mask.

    Returns:
        An array of shape (*batch, 1, queries, keys), preceded by `extra_batch_dims` axes of size 1.
        The axis before `queries` is for the heads.

    >>> import toile.linen as nn
    >>> valid = jnp.array([[1, 1, 0]])
    >>> nn.make_attention_mask(valid, valid, dtype=int)[0, 0]
    Array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 0]], dtype=int32)
    """
    mask = pairwise_fn(jnp.expand_dims(query_input, axis=-1), jnp.expand_dims(key_input, axis=-2))
    mask = jnp.expand_dims(mask, axis=-3)
    mask = jnp.expand_dims(mask, axis=tuple(range(extra_batch_dims)))
    return mask.astype(dtype)


def make_causal_mask(x: Array, extra_batch_dims: int = 0, dtype: Dtype = jnp.float32) -> Array:
    """Create an attention mask that prevents each position from attending to later positions.

    Args:
        x: array of shape (*batch, length); only its shape is used.
        extra_batch_dims: number of axes of size 1 to add at the front.
        dtype: dtype of the mask.

    Returns:
        An array of shape (*batch, 1, length, length), preceded by `extra_batch_dims` axes of size
        1. The mask is true on and below the diagonal.

    >>> import toile.linen as nn
    >>> nn.make_causal_mask(jnp.ones((1, 3)), dtype=bool)[0, 0]
    Array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]], dtype=bool)
    """
    if not hasattr(x, "shape"):
        raise AttributeError(
            f"{type(x).__name__!r} object has no attribute 'shape': make_causal_mask needed an "
            f"array of shape (*batch, length), got {describe(x)} (write jnp.ones((1, length)))"
            f"{here()}"
        )
    positions = jnp.broadcast_to(jnp.arange(x.shape[-1], dtype=jnp.int32), x.shape)
    return make_attention_mask(
        positions, positions, jnp.greater_equal, extra_batch_dims=extra_batch_dims, dtype=dtype
    )


def combine_masks(*masks: Array | None, dtype: Dtype = jnp.float32) -> Array | None:
    """Combine attention masks with a logical AND.

    Args:
        *masks: masks with the same number of axes, which are broadcast against each other.
            Arguments that are None are skipped.
        dtype: dtype of the result.

    Returns:
        The combined mask; None if no mask is given.

    Raises:
        AssertionError: the masks have different numbers of axes.

    >>> import toile.linen as nn
    >>> nn.combine_masks(jnp.array([1, 1, 0]), None, jnp.array([0, 1, 1]))
    Array([0., 1., 0.], dtype=float32)
    """
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    if any(mask.ndim != given[0].ndim for mask in given):
        raise AssertionError(
            f"combine_masks: masks must have same rank: {tuple(m.ndim for m in given)}{here()}"
        )
    combined, *others = given
    for mask in others:
        combined = jnp.logical_and(combined, mask)
    return combined.astype(dtype)
