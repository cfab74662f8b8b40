"""Attention as functions of a Scope: the core computation, and multi-head attention with a cache.

Queries, keys and values have shape (batch, *positions, heads, channels). Attention is computed over
some of the position axes, and the others are treated as batch axes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toile import lax
from toile import numpy as jnp
from toile.core.nn import initializers
from toile.core.nn.decoding import CacheEntry, advance_cache, decoded_mask, decoded_padding
from toile.core.nn.linear import default_kernel_init, dense_general
from toile.core.nn.masks import _make_causal_mask, check_attention_axes, make_padding_mask
from toile.core.nn.stochastic import drop_weights
from toile.core.scope import Scope
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.nn import logsumexp

if TYPE_CHECKING:
    from toile.lax.contractions import PrecisionLike

__all__ = [
    "CacheEntry", "dot_product_attention", "make_padding_mask", "multi_head_dot_product_attention",
]  # fmt: skip


def _need(holds: bool, where: str, needed: str, got: Any) -> None:
    if not holds:
        raise AssertionError(f"{where}: needed {needed}, got {got}{here()}")


def dot_product_attention(
    scope: Scope,
    query: Array,
    key: Array,
    value: Array,
    dtype: DTypeLike = jnp.float32,
    bias: ArrayLike | None = None,
    axis: int | Sequence[int] | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: Array | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    precision: PrecisionLike = None,
) -> Array:
    """Compute attention: `softmax(query @ key / sqrt(channels) + bias) @ value`.

    Args:
        scope: scope that provides the random stream `dropout`. The stream is used only if weights
            are dropped.
        query: array of shape (batch, *positions, heads, channels).
        key: array of shape (batch, *positions, heads, channels).
        value: array of shape (batch, *positions, heads, channels). Its number of channels may
            differ from that of `query` and `key`.
        dtype: dtype of the weights.
        bias: array that is added before softmax is applied; None for no bias.
        axis: position axis or axes to attend over; if None, all position axes.
        broadcast_dropout: whether dropout uses the same mask for all examples and heads.
        dropout_rng: key for dropout; if None, the next key of the stream `dropout` is used.
        dropout_rate: probability that a weight is dropped.
        deterministic: whether to disable dropout.
        precision: precision of the matrix products (see `toile.lax.Precision`); if None, the
            default precision is used.

    Returns:
        An array with the shape of `query`, but with the number of channels of `value`.

    >>> from toile.core import apply, nn
    >>> q, kv = jnp.ones((2, 3, 4, 8)), jnp.ones((2, 5, 4, 8))
    >>> apply(nn.dot_product_attention)({}, q, kv, kv).shape
    (2, 3, 4, 8)
    """
    shapes = (query.shape, key.shape, value.shape)
    agree = (
        len({len(s) for s in shapes}) == 1
        and shapes[1][:-1] == shapes[2][:-1]
        and shapes[0][:1] == shapes[1][:1]
        and shapes[0][-1] == shapes[1][-1]
    )
    _need(agree, "dot_product_attention", "one batch, keys and values of one length, queries and "
          "keys of one depth", shapes)  # fmt: skip
    n = key.ndim
    axes = _axes(axis, n)
    check_attention_axes(axes, n)
    batch = tuple(a for a in range(n) if a not in axes and a != n - 1)
    order = (*batch, *axes, n - 1)  # (batch, other positions, heads, attended, channels)
    batched = tuple(range(len(batch)))
    query = query.transpose(order) / jnp.sqrt(query.shape[-1]).astype(dtype)
    dims: Any = (((n - 1,), (n - 1,)), (batched, batched))
    weights = lax.dot_general(query, key.transpose(order), dims, precision=precision)
    if bias is not None:
        weights = weights + bias
    over = tuple(range(weights.ndim - len(axes), weights.ndim))
    weights = lax.exp(weights - logsumexp(weights, axis=over, keepdims=True)).astype(dtype)
    if not deterministic and dropout_rate > 0.0:
        rng = scope.make_rng("dropout") if dropout_rng is None else dropout_rng
        shared = len(batch) if broadcast_dropout else 0
        weights = drop_weights(rng, weights, dropout_rate, shared, dtype)
    positions = tuple(range(len(batch), n - 1))
    dims = ((over, positions), (batched, batched))
    y = lax.dot_general(weights, value.transpose(order), dims, precision=precision)
    return y.transpose(tuple(order.index(a) for a in range(n)))


def _axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The axes to attend over; all position axes if `axis` is None."""
    if axis is None:
        return tuple(range(1, ndim - 2))
    return tuple(axis) if isinstance(axis, Iterable) else (axis,)


def multi_head_dot_product_attention(
    scope: Scope,
    inputs_q: Array,
    inputs_kv: Array | None,
    num_heads: int,
    dtype: DTypeLike = jnp.float32,
    qkv_features: int | None = None,
    out_features: int | None = None,
    attention_axis: tuple[int, ...] | None = None,
    causal_mask: bool = False,
    padding_mask: Array | None = None,
    key_padding_mask: Array | None = None,
    segmentation: Array | None = None,
    key_segmentation: Array | None = None,
    cache: bool = False,
    broadcast_dropout: bool = True,
    dropout_rng: Array | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    precision: PrecisionLike = None,
    kernel_init: Callable[..., Any] = default_kernel_init,
    bias_init: Callable[..., Any] = initializers.zeros,
    bias: bool = True,
    attention_fn: Callable[..., Array] = dot_product_attention,
) -> Array:
    """Apply multi-head attention, including the projections of the inputs and the result.

    If `cache` is True, each call decodes one position. The first call stores a function in the
    collection `cache`. The caller must call that function with the shape of the batch and position
    axes, and replace the function with the `CacheEntry` that it returns.

    Args:
        scope: scope that contains the projections `query`, `key`, `value` and `out`.
        inputs_q: array of shape (batch, *positions, features) from which the queries are computed.
        inputs_kv: array from which the keys and values are computed; if None, `inputs_q` is used.
        num_heads: number of heads.
        dtype: dtype to compute in.
        qkv_features: total number of features of all heads; if None, the number of features of
            `inputs_q`.
        out_features: number of features of the result; if None, the number of features of
            `inputs_q`.
        attention_axis: position axes to attend over; if None, all position axes.
        causal_mask: whether each query attends only to its own position and earlier positions.
        padding_mask: array that is 0 at the query positions to mask out; None for no mask.
        key_padding_mask: array that is 0 at the key positions to mask out; if None, `padding_mask`
            is used.
        segmentation: segment number of each query position; if None, there is a single segment.
            Queries attend only to keys in the same segment.
        key_segmentation: segment number of each key position; if None, `segmentation` is used.
        cache: whether to decode one position at a time and cache keys and values.
        broadcast_dropout: whether dropout uses the same mask for all examples and heads.
        dropout_rng: key for dropout; if None, the next key of the stream `dropout` is used.
        dropout_rate: probability that a weight is dropped.
        deterministic: whether to disable dropout.
        precision: precision of the matrix products (see `toile.lax.Precision`); if None, the
            default precision is used.
        kernel_init: initializer of the kernels.
        bias_init: initializer of the biases.
        bias: whether the projections have a bias.
        attention_fn: function to use in place of `dot_product_attention`.

    Returns:
        An array of shape (batch, *positions, out_features).

    >>> from toile.core import init, nn
    >>> attend = nn.multi_head_dot_product_attention
    >>> y, variables = init(attend)(key(0), jnp.ones((2, 5, 8)), None, num_heads=4)
    >>> toile.tree.map(jnp.shape, variables["params"]["query"]), y.shape
    ({'bias': (4, 2), 'kernel': (8, 4, 2)}, (2, 5, 8))
    """
    where = "multi_head_dot_product_attention"
    kv, axes = _first(inputs_kv, inputs_q), _axes(attention_axis, inputs_q.ndim + 1)
    depth = qkv_features or inputs_q.shape[-1]
    _need(causal_mask or not cache, where, "causal_mask=True with cache=True", f"{causal_mask}: "
          "Caching is only support for causal attention.")  # fmt: skip
    _need(depth % num_heads == 0, where, f"{num_heads} heads of one size", f"{depth} features: "
          "Memory dimension must be divisible by number of heads.")  # fmt: skip
    options: dict[str, Any] = {
        "kernel_init": kernel_init, "bias_init": bias_init, "bias": bias, "dtype": dtype,
        "precision": precision,
    }  # fmt: skip
    sizes = (num_heads, depth // num_heads)
    project = functools.partial(dense_general, features=sizes, axis=-1, **options)
    query = scope.child(project, "query")(inputs_q)
    key, value = scope.child(project, "key")(kv), scope.child(project, "value")(kv)
    entry = advance_cache(scope, inputs_q, key, value, axes) if cache else None
    masks = []
    if entry is not None:
        key, value, key_padding_mask = entry.key, entry.value, decoded_padding(entry)
        masks.append(decoded_mask(entry, axes))
    elif causal_mask:
        masks.append(_make_causal_mask(key, axes))
    pairs = functools.partial(
        make_padding_mask, query_shape=query.shape, key_shape=key.shape, attention_axis=axes
    )
    if padding_mask is not None:
        masks.append(pairs(padding_mask, _first(key_padding_mask, padding_mask)))
    if segmentation is not None:
        other = _first(key_segmentation, segmentation)
        masks.append(pairs(segmentation, other, segmentation_mask=True))
    y = scope.child(attention_fn)(
        query, key, value, dtype=dtype, axis=axes, bias=_as_bias(masks, dtype),
        precision=precision, dropout_rng=dropout_rng, dropout_rate=dropout_rate,
        broadcast_dropout=broadcast_dropout, deterministic=deterministic,
    )  # fmt: skip
    out = scope.child(dense_general, name="out")
    return out(y, features=out_features or inputs_q.shape[-1], axis=(-2, -1), **options)


def _first(given: Any, default: Any) -> Any:
    return default if given is None else given


def _as_bias(masks: list[Any], dtype: Any) -> Any:
    """A bias for the logits: 0 where all masks are nonzero, a large negative number elsewhere."""
    if not masks:
        return None
    mask = functools.reduce(jnp.logical_and, masks)
    return jnp.where(mask > 0, 0.0, -1e10).astype(dtype)
