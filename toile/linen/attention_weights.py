"""Attention for projected inputs: weights of the keys for each query, and means of the values.

The projected queries, keys and values have shape (*batch, length, heads, depth). In half precision,
attention can be a single operation of the compiler (`control.attention`). Otherwise, it is a
softmax between two matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.control.attention import Form, attend, wanted
from toile.core.nn.stochastic import drop_weights
from toile.engine.source import here
from toile.linen.dtypes import promote_dtype
from toile.linen.module import Module
from toile.nn import logsumexp, softmax
from toile.typing import Array, Dtype, PrecisionLike, PRNGKey

__all__ = ["dot_product_attention", "dot_product_attention_weights"]


def _check_heads(**heads: Array) -> None:
    """Check that the shapes of the queries, keys and values match each other."""
    shapes = {name: x.shape for name, x in heads.items()}
    q, k, v = shapes["q"], shapes["k"], shapes.get("v", shapes["k"])
    names = ", ".join(heads)
    if not len(q) == len(k) == len(v):
        fault = f"{names} must have same rank"
    elif not q[:-3] == k[:-3] == v[:-3]:
        fault = f"{names} batch dims must match"
    elif not q[-2:-1] == k[-2:-1] == v[-2:-1]:
        fault = f"{names} num_heads must match"
    elif k[-3:-2] != v[-3:-2]:
        fault = "k, v lengths must match"
    elif q[-1:] != k[-1:]:
        fault = "q, k depths must match"
    else:
        return
    got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    raise AssertionError(
        f"dot_product_attention: {fault}, got {got} (each is (*batch, length, heads, depth))"
        f"{here()}"
    )


def _contract(
    equation: str, x: Array, y: Array, precision: Any, dot_general: Callable[..., Array] | None
) -> Array:
    return jnp.einsum(equation, x, y, precision=precision, _dot_general=dot_general)


def dot_product_attention_weights(
    query: Array,
    key: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: PRNGKey | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Dtype | None = None,
    precision: PrecisionLike = None,
    module: Module | None = None,
    force_fp32_for_softmax: bool = False,
    einsum_dot_general: Callable[..., Array] | None = None,
    einsum: Callable[..., Array] | None = None,
) -> Array:
    """Compute the attention weights, `softmax(query @ key / sqrt(depth) + bias)`.

    The weights of each query sum to 1. If the mask excludes all keys for a query, the weights of
    that query are all equal.

    Args:
        query: array of shape (*batch, queries, heads, depth).
        key: array of shape (*batch, keys, heads, depth).
        bias: array that broadcasts to (*batch, heads, queries, keys) and is added before softmax is
            applied; None for no bias.
        mask: array that broadcasts to (*batch, heads, queries, keys) and is false where a key gets
            no weight; None for no mask.
        broadcast_dropout: whether dropout uses the same mask for all examples and heads.
        dropout_rng: key for dropout; required unless `deterministic` is True or `dropout_rate` is
            0.
        dropout_rate: probability that a weight is dropped. The remaining weights are divided by
            `1 - dropout_rate`.
        deterministic: whether to disable dropout.
        dtype: dtype to compute in; None for the dtype that `query` and `key` promote to.
        precision: precision of the matrix product (see `toile.lax.Precision`); if None, the default
            precision is used.
        module: module in which to store the weights before dropout, in the collection
            `intermediates` under the name `attention_weights`; None to store nothing.
        force_fp32_for_softmax: whether to compute softmax in float32.
        einsum_dot_general: function to use in place of `toile.lax.dot_general`.
        einsum: function to use in place of `jnp.einsum`. It cannot be combined with `precision` or
            `einsum_dot_general`.

    Returns:
        An array of shape (*batch, heads, queries, keys).

    Raises:
        AssertionError: the shapes of `query` and `key` do not match.

    >>> import toile.linen as nn
    >>> q, k = jnp.ones((2, 4, 3, 8)), jnp.ones((2, 5, 3, 8))
    >>> weights = nn.dot_product_attention_weights(q, k)
    >>> weights.shape, weights[0, 0, 0]
    ((2, 3, 4, 5), Array([0.2, 0.2, 0.2, 0.2, 0.2], dtype=float32))
    """
    if (precision or einsum_dot_general) and einsum:
        raise ValueError(
            "dot_product_attention_weights: precision/einsum_dot_general and einsum are mutually "
            f"exclusive: a custom einsum replaces both{here()}"
        )
    query, key = promote_dtype(query, key, dtype=dtype)
    dtype = query.dtype
    _check_heads(q=query, k=key)
    equation = "...qhd,...khd->...hqk"
    query = query / _sqrt_depth(query)
    if einsum:
        weights = einsum(equation, query, key)
    else:
        weights = _contract(equation, query, key, precision, einsum_dot_general)
    weights = _masked_logits(weights, bias, mask, dtype)
    if force_fp32_for_softmax and dtype != jnp.float32:
        weights = softmax(weights.astype(jnp.float32))
    else:
        weights = softmax(weights).astype(dtype)
    if module is not None:
        module.sow("intermediates", "attention_weights", weights)
    if not deterministic and dropout_rate > 0.0:
        shared = weights.ndim - 2 if broadcast_dropout else 0  # examples and heads
        weights = drop_weights(dropout_rng, weights, dropout_rate, shared, dtype)
    return weights


def _sqrt_depth(query: Array) -> np.ndarray:
    """The square root of the depth, in the dtype of the queries."""
    dtype = query.dtype
    wide = np.float64 if dtype in (np.float64, np.complex128) else np.float32
    return np.sqrt(wide(query.shape[-1])).astype(dtype)


def _masked_logits(weights: Array, bias: Array | None, mask: Array | None, dtype: Dtype) -> Array:
    """The logits plus the bias, with the lowest finite number where the mask is false."""
    if bias is not None:
        weights = weights + bias
    if mask is not None:
        # With the lowest finite number, the weights are equal, not NaN, if all keys are masked.
        weights = jnp.where(mask, weights, jnp.finfo(dtype).min)
    return weights


def dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: PRNGKey | None = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    dtype: Dtype | None = None,
    precision: PrecisionLike = None,
    module: Module | None = None,
    force_fp32_for_softmax: bool = False,
    einsum_dot_general: Callable[..., Array] | None = None,
    qk_attn_weights_einsum: Callable[..., Array] | None = None,
    attn_weights_value_einsum: Callable[..., Array] | None = None,
) -> Array:
    """Compute attention: for each query, the mean of the values, weighted by the attention weights.

    Args:
        query: array of shape (*batch, queries, heads, depth), with any number of batch axes.
        key: array of shape (*batch, keys, heads, depth).
        value: array of shape (*batch, keys, heads, value depth).
        bias: array that broadcasts to (*batch, heads, queries, keys) and is added before softmax is
            applied; None for no bias.
        mask: array that broadcasts to (*batch, heads, queries, keys) and is false where a key gets
            no weight; None for no mask.
        broadcast_dropout: whether dropout uses the same mask for all examples and heads.
        dropout_rng: key for dropout; required unless `deterministic` is True or `dropout_rate` is
            0.
        dropout_rate: probability that a weight is dropped. The remaining weights are divided by
            `1 - dropout_rate`.
        deterministic: whether to disable dropout.
        dtype: dtype to compute in; None for the dtype that `query`, `key` and `value` promote to.
        precision: precision of the matrix products (see `toile.lax.Precision`); if None, the
            default precision is used.
        module: module in which to store the weights before dropout, in the collection
            `intermediates` under the name `attention_weights`; None to store nothing.
        force_fp32_for_softmax: whether to compute softmax in float32.
        einsum_dot_general: function to use in place of `toile.lax.dot_general`.
        qk_attn_weights_einsum: function to use in place of `jnp.einsum` for the product of queries
            and keys. If it is set, `attn_weights_value_einsum` must be set too. It cannot be
            combined with `precision` or `einsum_dot_general`.
        attn_weights_value_einsum: function to use in place of `jnp.einsum` for the product of
            weights and values.

    Returns:
        An array of shape (*batch, queries, heads, value depth).

    Raises:
        AssertionError: the shapes of `query`, `key` and `value` do not match.

    >>> import toile.linen as nn
    >>> q, k, v = jnp.ones((2, 4, 3, 8)), jnp.ones((2, 5, 3, 8)), jnp.ones((2, 5, 3, 6))
    >>> nn.dot_product_attention(q, k, v).shape
    (2, 4, 3, 6)
    """
    if bool(qk_attn_weights_einsum) != bool(attn_weights_value_einsum):
        raise ValueError(
            "dot_product_attention: qk_attn_weights_einsum and attn_weights_value_einsum must be "
            f"specified together{here()}"
        )
    if (precision or einsum_dot_general) and qk_attn_weights_einsum:
        raise ValueError(
            "dot_product_attention: precision/einsum_dot_general and qk_attn_weights_einsum/"
            "attn_weights_value_einsum are mutually exclusive: custom einsums replace "
            f"both{here()}"
        )
    query, key, value = promote_dtype(query, key, value, dtype=dtype)
    _check_heads(q=query, k=key, v=value)
    own = module or force_fp32_for_softmax or einsum_dot_general or qk_attn_weights_einsum
    if not own and (deterministic or not dropout_rate > 0.0):
        whole = _as_one_operation(query, key, value, bias, mask, precision)
        if whole is not None:
            return whole
    weights = dot_product_attention_weights(
        query, key, bias, mask, broadcast_dropout, dropout_rng, dropout_rate, deterministic,
        query.dtype, precision, module, force_fp32_for_softmax,
        einsum_dot_general=einsum_dot_general, einsum=qk_attn_weights_einsum,
    )  # fmt: skip
    equation = "...hqk,...khd->...qhd"
    if attn_weights_value_einsum:
        return attn_weights_value_einsum(equation, weights, value)
    return _contract(equation, weights, value, precision, einsum_dot_general)


def _as_one_operation(
    query: Array, key: Array, value: Array, bias: Array | None, mask: Array | None, precision: Any
) -> Array | None:
    """The attention as one operation, for which a backend may have a kernel; None if impossible."""
    if not wanted(query, key, value):
        return None
    rank = query.ndim
    full = (*query.shape[:-3], query.shape[-2], query.shape[-3], key.shape[-3])
    given = {}
    for name, x in (("bias", bias), ("mask", mask)):
        if x is None:
            continue
        x = jnp.asarray(x)
        x = jnp.expand_dims(x, tuple(range(rank - x.ndim)))
        if x.ndim > rank or any(n not in (1, m) for n, m in zip(x.shape, full, strict=True)):
            return None
        given[name] = x
    scale = 1.0 / float(_sqrt_depth(query))

    def plain(q: Array, k: Array, v: Array, *rest: Array) -> tuple[Array, Array]:
        some = dict(zip(given, rest, strict=True))
        logits = _contract("...qhd,...khd->...hqk", q / _sqrt_depth(q), k, precision, None)
        logits = _masked_logits(logits, some.get("bias"), some.get("mask"), q.dtype)
        weights = softmax(logits).astype(q.dtype)
        out = _contract("...hqk,...khd->...qhd", weights, v, precision, None)
        sums = logsumexp(logits.astype(jnp.float32), axis=-1)
        return out, lax.stop_gradient(sums)

    form = Form(scale, ("q", "k", "v", *given))
    return attend(plain, form, query, key, value, *given.values())
