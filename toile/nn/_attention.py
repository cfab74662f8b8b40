"""Scaled dot-product attention with grouped heads, bias, masks, sequence lengths and local windows.

Queries have shape (B, T, N, H), and keys and values have shape (B, S, K, H). N is a multiple of K:
in grouped-query attention, N / K query heads share each key head. Logits and softmax are computed
in float32.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.control.attention import Form, attend, wanted
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._softmax import logsumexp, softmax

# A fraction of the largest finite value: a masked logit stays finite, so that a fully masked row
# gives a uniform softmax instead of NaN.
_MASKED = 0.7


@overload
def dot_product_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
    mask: ArrayLike | None = None, *, scale: ArrayLike | None = None, is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None, return_residual: Literal[False] = False
) -> Array: ...


@overload
def dot_product_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
    mask: ArrayLike | None = None, *, scale: ArrayLike | None = None, is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None, return_residual: Literal[True]
) -> tuple[Array, Array]: ...


def dot_product_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
    mask: ArrayLike | None = None, *, scale: ArrayLike | None = None, is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None, key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None, return_residual: bool = False
) -> Array | tuple[Array, Array]:
    """Compute scaled dot-product attention.

    For each head, the result is `softmax(scale * query @ key.T + bias) @ value`. Logits are
    computed in float32. A query attends to a key only if `mask`, `is_causal`, the sequence lengths
    and the local window all allow it. If all keys are masked for a query, the result for that query
    is the mean of the values.

    In the shapes below, B is the batch size, T the number of queries, S the number of keys, N the
    number of query heads, K the number of key and value heads, and H the size of a head. N is a
    multiple of K, and each key and value head is shared by N / K query heads. The batch axis B may
    be left out.

    Args:
        query: array of shape (B, T, N, H).
        key: array of shape (B, S, K, H).
        value: array of shape (B, S, K, H).
        bias: array that is added to the logits; it must broadcast to (B, N, T, S).
        mask: boolean array that broadcasts to (B, N, T, S); a query attends to a key only where the
            mask is True.
        scale: factor by which the inner products of queries and keys are multiplied; None for
            `1 / sqrt(H)`.
        is_causal: if True, query `i` attends only to keys 0 to `i`.
        query_seq_lengths: int32 array of shape (B,) with the number of queries in each sequence,
            not counting the padding at its end. The results for the padding are 0.
        key_value_seq_lengths: int32 array of shape (B,) with the number of keys in each sequence,
            not counting the padding at its end. The padding is ignored.
        local_window_size: a pair `(left, right)`: a query attends only to the key at its own
            position, the `left` keys before it and the `right` keys after it. A single number
            applies to both sides. If `local_window_size` is None, there is no such limit.
        implementation: accepted for compatibility with JAX. It does not select a kernel. With
            "cudnn", however, a local window whose `right` is not 0 is accepted only if `is_causal`
            is True and no sequence lengths are given; otherwise, an error is raised.
        return_residual: whether to also return, for each query and head, the logarithm of the sum
            of the exponentials of the logits.

    Returns:
        An array with the shape of `query`. If `return_residual` is True, a pair: this array, and
        an array of the logarithms, of shape (B, T, N). No gradient flows through the logarithms.

    Raises:
        ValueError: shapes or dtypes do not match.

    >>> query = toile.random.normal(key(0), (2, 5, 4, 8))  # 4 heads of queries
    >>> keys = toile.random.normal(key(1), (2, 7, 2, 8))  # share 2 heads of keys
    >>> toile.nn.dot_product_attention(query, keys, keys, is_causal=True).shape
    (2, 5, 4, 8)
    """
    if implementation not in (None, "xla", "cudnn"):
        raise ValueError(f"Unsupported implementation option: {implementation}{here()}")
    shape = jnp.shape(query)
    query, key, value = _to_4d(query), _to_4d(key), _to_4d(value)
    bias = None if bias is None else _to_4d(bias)
    mask = None if mask is None else _to_4d(mask)
    lengths = [
        None if n is None else jnp.asarray(n) for n in (query_seq_lengths, key_value_seq_lengths)
    ]
    batch, _, heads, width = key.shape
    _check(value, (*key.shape[:3], width), key.dtype, "value")
    _check(query, (batch, -1, -1, width), key.dtype, "query")
    _check(mask, (-1,) * 4, np.dtype(bool), "mask")
    _check(bias, (-1,) * 4, None, "bias")
    _check(lengths[0], (batch,), np.dtype("int32"), "query_seq_lengths")
    _check(lengths[1], (batch,), np.dtype("int32"), "key_value_seq_lengths")
    if query.shape[2] % heads:
        raise ValueError("The number of query heads must be a multiple of key/value heads, but got "
                         f"{query.shape[2]} vs {heads}{here()}")
    if isinstance(local_window_size, int):
        local_window_size = (local_window_size, local_window_size)
    if implementation == "cudnn" and local_window_size is not None:
        _check_right_window(local_window_size[1], is_causal and lengths == [None, None])
    scale = 1.0 / np.sqrt(width) if scale is None else scale
    extras = (bias, mask, *lengths)
    if not return_residual and _is_whole(query, key, value, scale, local_window_size):
        out = _whole(query, key, value, extras, scale, is_causal, local_window_size)
        return jnp.reshape(out, shape)
    out, sums = _attend(query, key, value, extras, scale, is_causal, local_window_size)
    out = jnp.reshape(out, shape)
    if not return_residual:
        return out
    residual = jnp.transpose(sums().astype(key.dtype), (0, 3, 1, 2))  # from (B, K, G, T)
    return out, jnp.reshape(residual, shape[:-1])


def _check_right_window(size, causal_only):
    if size != 0 and not causal_only:
        raise ValueError(f"cuDNN doesn't support right window: {size} when causal mask is not "
                         f"used.{here()}")


def _is_whole(query, key, value, scale, window):
    """Whether to compute the attention as one operation, for which a backend may have a kernel."""
    known = isinstance(scale, (int, float, np.number)) and 0 < scale < np.inf
    fixed = window is None or all(isinstance(n, (int, np.integer)) for n in window)
    return known and fixed and wanted(query, key, value)


def _whole(query, key, value, extras, scale, is_causal, window):
    """The attention as one operation."""
    named = zip(("bias", "mask", "query_lengths", "key_lengths"), extras)
    given = {name: x for name, x in named if x is not None}
    window = None if window is None else tuple(int(n) for n in window)

    def plain(q, k, v, *xs):
        some = dict(zip(given, xs))
        rest = [some.get(name) for name in ("bias", "mask", "query_lengths", "key_lengths")]
        out, sums = _attend(q, k, v, rest, scale, is_causal, window)
        return out, jnp.reshape(sums(), (q.shape[0], q.shape[2], q.shape[1]))

    form = Form(float(scale), ("q", "k", "v", *given), bool(is_causal), window)
    return attend(plain, form, query, key, value, *given.values())


def _to_4d(x: ArrayLike) -> Array:
    array = jnp.asarray(x)
    return jnp.expand_dims(array, tuple(range(4 - array.ndim))) if array.ndim < 4 else array


def _check(x, shape, dtype, name):
    if x is None:
        return
    if x.ndim != len(shape):
        raise ValueError(f"{name} ndim should be {len(shape)}, but got {x.ndim}{here()}")
    if dtype is not None and x.dtype != dtype:
        raise ValueError(f"{name} dtype should be {dtype}, but got {x.dtype}{here()}")
    if any(want not in (-1, got) for want, got in zip(shape, x.shape)):
        raise ValueError(f"{name} shape should be {list(shape)}: but got {x.shape}{here()}")


def _attend(query, key, value, extras, scale, is_causal, window):
    """The attention of grouped heads, and a function that returns the log-sum-exp of its logits."""
    bias, mask, q_lengths, kv_lengths = extras
    batch, rows, n, width = query.shape
    cols, heads = key.shape[1:3]
    group = n // heads
    query = jnp.reshape(query, (batch, rows, heads, group, width))
    logits = jnp.einsum("btkgh,bskh->bkgts", query, key,
                        preferred_element_type=jnp.promote_types(query.dtype, np.float32))
    logits = logits * jnp.array(scale, dtype=logits.dtype)
    if bias is not None:
        logits = (logits + _grouped(bias, heads, group)).astype(logits.dtype)
    keep = _keep(rows, cols, is_causal, q_lengths, kv_lengths, window)
    if mask is not None:
        keep.append(_grouped(mask, heads, group))
    if keep:
        allowed = keep[0]
        for other in keep[1:]:
            allowed = jnp.logical_and(allowed, other)
        logits = jnp.where(allowed, logits, _large_negative(logits.dtype))
    logits = logits.astype(np.float32)
    weights = softmax(logits, axis=-1).astype(key.dtype)
    out = jnp.reshape(jnp.einsum("bkgts,bskh->btkgh", weights, value), (batch, rows, n, width))
    if q_lengths is not None:
        out = out * _within(rows, q_lengths)[:, :, None, None].astype(out.dtype)

    return out, lambda: lax.stop_gradient(logsumexp(logits, axis=-1))


def _grouped(x, heads, group):
    b, n, t, s = x.shape
    if n == 1:
        return x[:, :, None]
    if n != heads * group:
        raise AssertionError(f"dot_product_attention: needed 1 or {heads * group} heads in bias or "
                             f"mask, got {n}")
    return jnp.reshape(x, (b, heads, group, t, s))


def _within(size, lengths):
    return jnp.arange(size)[None, :] < lengths[:, None]


def _keep(rows, cols, is_causal, q_lengths, kv_lengths, window):
    """The masks other than the user's, each broadcastable to (B, K, G, T, S)."""
    i, j = jnp.arange(rows)[:, None], jnp.arange(cols)[None, :]
    keep = []
    if is_causal:
        keep.append((i >= j)[None, None, None])
    if window is not None:
        left, right = window
        keep.append(((i <= j + left) & (i >= j - right))[None, None, None])
    if q_lengths is not None:
        keep.append(_within(rows, q_lengths)[:, None, None, :, None])
    if kv_lengths is not None:
        keep.append(_within(cols, kv_lengths)[:, None, None, None, :])
    return keep


def _large_negative(dtype):
    largest = min(float(jnp.finfo(dtype).max), float(jnp.finfo(np.float32).max))
    return jnp.asarray(-_MASKED * largest, dtype=dtype)
