"""Attention: the output at each position is a weighted mean of the values at all positions.

`dot_product_attention` expects queries, keys and values that are already projected and split into
heads. `MultiHeadDotProductAttention` is the complete layer, including the four projections. With
`decode=True`, the layer keeps keys and values in the collection `cache` and processes one position
at a time. The functions for masks are in `attention_masks`, and those for attention weights are in
`attention_weights`. Both groups of functions are also exported from here.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.engine.source import here
from toile.linen.attention_masks import combine_masks, make_attention_mask, make_causal_mask
from toile.linen.attention_weights import dot_product_attention, dot_product_attention_weights
from toile.linen.dtypes import promote_dtype
from toile.linen.linear import DenseGeneral, default_kernel_init
from toile.linen.methods import compact
from toile.linen.module import Module, merge_param
from toile.linen.normalization import LayerNorm
from toile.nn import initializers
from toile.typing import Array, DotGeneralT, Dtype, Initializer, PrecisionLike, PRNGKey, Shape

__all__ = [
    "Array", "DenseGeneral", "DotGeneralT", "Dtype", "Initializer", "LayerNorm", "Module",
    "MultiHeadAttention", "MultiHeadDotProductAttention", "PRNGKey", "PrecisionLike",
    "SelfAttention", "Shape", "combine_masks", "compact", "default_kernel_init",
    "dot_product_attention", "dot_product_attention_weights", "initializers", "jnp", "lax",
    "make_attention_mask", "make_causal_mask", "merge_param", "promote_dtype", "random",
]  # fmt: skip


class MultiHeadDotProductAttention(Module):
    """Multi-head dot-product attention, including linear projections of the inputs and the result.

    The inputs have shape (*batch, length, features). Each head compares projected queries with
    projected keys and computes a weighted mean of projected values. The last projection combines
    the heads. The result has shape (*batch, queries, out_features), where `queries` is the length
    of `inputs_q`.

    The parameters are those of four linear layers. `query`, `key` and `value` each have a `kernel`
    of shape (features, num_heads, depth) and a `bias` of shape (num_heads, depth), where
    `depth = qkv_features / num_heads`. `out` has a `kernel` of shape (num_heads, depth,
    out_features) and a `bias` of shape (out_features,). If `normalize_qk` is True, there are also
    the parameters of the normalization layers `query_ln` and `key_ln`.

    With `decode=True`, call `init` with a sequence of the maximum length; this allocates the
    collection `cache`. After that, each call to `apply` with `mutable=["cache"]` processes one
    position, which attends to itself and all earlier positions.

    Args:
        num_heads: number of heads.
        dtype: dtype to compute in; None for the dtype that the inputs and the parameters promote
            to.
        param_dtype: dtype of the parameters when they are created.
        qkv_features: total number of query features in all heads, a multiple of `num_heads`. The
            keys and the values have the same number of features. If `qkv_features` is None, it is
            the number of features of `inputs_q`.
        out_features: number of features of the result; if None, the number of features of
            `inputs_q`.
        broadcast_dropout: whether dropout uses the same mask for all examples and heads.
        dropout_rate: probability that an attention weight is dropped.
        deterministic: whether to disable dropout. Pass this option either here or in the call. It
            is required only if `dropout_rate` is greater than 0.
        precision: precision of the matrix products (see `toile.lax.Precision`); if None, the
            default precision is used.
        kernel_init: initializer of the kernels; by default, LeCun normal.
        out_kernel_init: initializer of the kernel of `out`; if None, `kernel_init` is used.
        bias_init: initializer of the biases.
        out_bias_init: initializer of the bias of `out`; if None, `bias_init` is used.
        use_bias: whether the four projections have a bias.
        attention_fn: function `f(query, key, value, **options)` to use in place of
            `dot_product_attention`. The three arrays have shape (*batch, length, num_heads, depth).
            The layer passes only the options that the function accepts.
        decode: whether to process one position at a time and keep keys and values in the collection
            `cache`.
        normalize_qk: whether to apply a `LayerNorm` to queries and keys.
        force_fp32_for_softmax: whether to compute softmax in float32.
        qkv_dot_general: function that the projections to queries, keys and values use in place of
            `toile.lax.dot_general`.
        out_dot_general: function that the last projection uses in place of
            `toile.lax.dot_general`.
        qkv_dot_general_cls: class whose instances are used as `qkv_dot_general`.
        out_dot_general_cls: class whose instances are used as `out_dot_general`.
        qk_attn_weights_einsum_cls: class whose instances replace `jnp.einsum` for the product of
            queries and keys. If it is set, `attn_weights_value_einsum_cls` must be set too.
        attn_weights_value_einsum_cls: class whose instances replace `jnp.einsum` for the product
            of weights and values.

    Raises:
        AssertionError: `qkv_features` is not a multiple of `num_heads`.
        ValueError: `decode` is True, and the input of a call after `init` does not have exactly one
            position.

    >>> import toile.linen as nn
    >>> layer = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=16)
    >>> x = jnp.ones((4, 3, 5))
    >>> variables = layer.init(key(0), x)
    >>> toile.tree.map(jnp.shape, variables["params"]["query"])
    {'bias': (2, 8), 'kernel': (5, 2, 8)}
    >>> toile.tree.map(jnp.shape, variables["params"]["out"])
    {'bias': (5,), 'kernel': (2, 8, 5)}
    >>> layer.apply(variables, x, mask=nn.make_causal_mask(jnp.ones((4, 3)))).shape
    (4, 3, 5)
    """

    num_heads: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    qkv_features: int | None = None
    out_features: int | None = None
    broadcast_dropout: bool = True
    dropout_rate: float = 0.0
    deterministic: bool | None = None
    precision: PrecisionLike = None
    kernel_init: Initializer = default_kernel_init
    out_kernel_init: Initializer | None = None
    bias_init: Initializer = initializers.zeros
    out_bias_init: Initializer | None = None
    use_bias: bool = True
    attention_fn: Callable[..., Array] = dot_product_attention
    decode: bool = False
    normalize_qk: bool = False
    force_fp32_for_softmax: bool = False
    qkv_dot_general: DotGeneralT | None = None
    out_dot_general: DotGeneralT | None = None
    qkv_dot_general_cls: Callable[..., DotGeneralT] | None = None
    out_dot_general_cls: Callable[..., DotGeneralT] | None = None
    qk_attn_weights_einsum_cls: Callable[..., Callable[..., Array]] | None = None
    attn_weights_value_einsum_cls: Callable[..., Callable[..., Array]] | None = None

    @compact
    def __call__(
        self,
        inputs_q: Array,
        inputs_k: Array | None = None,
        inputs_v: Array | None = None,
        *,
        inputs_kv: Array | None = None,
        mask: Array | None = None,
        deterministic: bool | None = None,
        dropout_rng: PRNGKey | None = None,
        sow_weights: bool = False,
    ) -> Array:
        """Attend from each position of `inputs_q` to the positions of `inputs_k`.

        Args:
            inputs_q: array of shape (*batch, queries, features) from which the queries are
                computed.
            inputs_k: array of shape (*batch, keys, features) from which the keys are computed. If
                `inputs_k` is None, `inputs_q` is used (self-attention).
            inputs_v: array of shape (*batch, keys, features) from which the values are computed.
                If `inputs_v` is None, `inputs_k` is used.
            inputs_kv: deprecated; array from which both keys and values are computed.
            mask: array that broadcasts to (*batch, num_heads, queries, keys) and is false where a
                query must not attend to a key; None for no mask.
            deterministic: whether to disable dropout; if None, the layer's field is used.
            dropout_rng: key for dropout; if None, the next key of the stream `dropout` is used.
            sow_weights: whether to store the attention weights in the collection `intermediates`
                under the name `attention_weights`.

        Returns:
            An array of shape (*batch, queries, out_features).
        """
        inputs_k, inputs_v = _keys_and_values(inputs_q, inputs_k, inputs_v, inputs_kv)
        query, key, value = _project(self, inputs_q, inputs_k, inputs_v)
        if self.decode:
            key, value, mask = _through_cache(self, query, key, value, mask)
        if self.dropout_rate > 0.0:
            deterministic = merge_param("deterministic", self.deterministic, deterministic)
            if not deterministic and dropout_rng is None:
                dropout_rng = self.make_rng("dropout")
        else:
            deterministic = True
        scores, mix = self.qk_attn_weights_einsum_cls, self.attn_weights_value_einsum_cls
        options = {
            "mask": mask,
            "dropout_rng": dropout_rng,
            "dropout_rate": self.dropout_rate,
            "broadcast_dropout": self.broadcast_dropout,
            "deterministic": deterministic,
            "dtype": self.dtype,
            "precision": self.precision,
            "force_fp32_for_softmax": self.force_fp32_for_softmax,
            "qk_attn_weights_einsum": scores() if scores else None,
            "attn_weights_value_einsum": mix() if mix else None,
        }
        attend = self.attention_fn
        if attend is not dot_product_attention:  # a user's function
            taken = inspect.signature(attend).parameters
            options = {name: value for name, value in options.items() if name in taken}
        if sow_weights:
            options["module"] = self
        x = attend(query, key, value, **options)
        return DenseGeneral(
            features=self.out_features or inputs_q.shape[-1],
            axis=(-2, -1),
            kernel_init=self.out_kernel_init or self.kernel_init,
            bias_init=self.out_bias_init or self.bias_init,
            dot_general=self.out_dot_general,
            dot_general_cls=self.out_dot_general_cls,
            name="out",
            **_shared_options(self),
        )(x)


def _shared_options(layer: MultiHeadDotProductAttention) -> dict[str, Any]:
    """The options that the layer passes to all four projections."""
    names = ("use_bias", "dtype", "param_dtype", "precision")
    return {name: getattr(layer, name) for name in names}


def _keys_and_values(q: Array, k: Array | None, v: Array | None, kv: Array | None) -> tuple:
    """The inputs of the keys and values; `kv` is the deprecated name for both."""
    if kv is not None:
        if k is not None or v is not None:
            raise ValueError(
                "MultiHeadDotProductAttention: If either `inputs_k` or `inputs_v` is not None, "
                "`inputs_kv` must be None; write inputs_k=…, inputs_v=… (inputs_kv is the "
                f"deprecated spelling of both){here()}"
            )
        warnings.warn(
            "The inputs_kv arg will be deprecated soon. Use inputs_k and inputs_v instead.",
            DeprecationWarning,
            stacklevel=3,
        )
        return kv, kv
    if k is None:
        if v is not None:
            raise ValueError(
                "MultiHeadDotProductAttention: `inputs_k` cannot be None if `inputs_v` is not "
                f"None; to use one array for both, pass it as `inputs_k` alone{here()}"
            )
        k = q
    if v is None:
        v = k
    elif v.shape[-1] == v.shape[-2]:
        warnings.warn(
            f"You are passing an array of shape {v.shape} to the `inputs_v` arg, when you may "
            "have intended to pass it to the `mask` arg. With Flax 0.7.4 the function signature of "
            "MultiHeadDotProductAttention's `__call__` method has changed to `__call__(inputs_q, "
            "inputs_k=None, inputs_v=None, *, inputs_kv=None, mask=None, deterministic=None)`. "
            "Use the kwarg `mask` instead.",
            DeprecationWarning,
            stacklevel=3,
        )
    return k, v


def _project(module: MultiHeadDotProductAttention, *inputs: Array) -> list[Array]:
    """The queries, keys and values, of shape (*batch, length, heads, depth)."""
    features, heads = module.qkv_features or inputs[0].shape[-1], module.num_heads
    if features % heads:
        raise AssertionError(
            f"MultiHeadDotProductAttention: Memory dimension ({features}) must be divisible by "
            f"number of heads ({heads}); it is qkv_features, or the size of the queries' last "
            f"axis{here()}"
        )
    options = {
        "features": (heads, features // heads),
        "axis": -1,
        "kernel_init": module.kernel_init,
        "bias_init": module.bias_init,
        "dot_general": module.qkv_dot_general,
        "dot_general_cls": module.qkv_dot_general_cls,
        **_shared_options(module),
    }
    names = ("query", "key", "value")
    out = [DenseGeneral(name=n, **options)(x) for n, x in zip(names, inputs, strict=True)]
    if module.normalize_qk:  # keeps training stable at high learning rates, arXiv:2302.05442
        options = {"dtype": module.dtype, "param_dtype": module.param_dtype, "use_bias": False}
        for i in range(2):
            out[i] = LayerNorm(name=f"{names[i]}_ln", **options)(out[i])
    return out


def _through_cache(
    module: MultiHeadDotProductAttention, query: Array, key: Array, value: Array, mask: Any
) -> tuple[Array, Array, Array | None]:
    """Store one position in the cache, and return all keys and values and the new mask.

    The new mask also excludes later positions. The first call finds no cache. It creates a cache
    with the size of its inputs, and returns its arguments unchanged.
    """
    filled = module.has_variable("cache", "cached_key")
    keys = module.variable("cache", "cached_key", jnp.zeros, key.shape, key.dtype)
    values = module.variable("cache", "cached_value", jnp.zeros, value.shape, value.dtype)
    index = module.variable("cache", "cache_index", lambda: jnp.array(0, dtype=jnp.int32))
    if not filled:
        return key, value, mask
    *batch, length, heads, depth = keys.value.shape
    needed = (*batch, 1, heads, depth)
    if needed != query.shape:
        raise ValueError(
            "MultiHeadDotProductAttention: Autoregressive cache shape error, expected query shape "
            f"{needed} instead got {query.shape} (with decode=True, a call after init takes one "
            f"position){here()}"
        )
    now = index.value
    where = (*(0 for _ in batch), now, 0, 0)
    keys.value = key = lax.dynamic_update_slice(keys.value, key, where)
    values.value = value = lax.dynamic_update_slice(values.value, value, where)
    index.value = now + 1
    past = jnp.broadcast_to(jnp.arange(length) <= now, (*batch, 1, 1, length))
    return key, value, combine_masks(mask, past)


class MultiHeadAttention(MultiHeadDotProductAttention):
    """`MultiHeadDotProductAttention` under a shorter name.

    The two classes differ only in the names that submodules receive automatically: a submodule of
    this class is named `MultiHeadAttention_0`, for example.

    Args:
        num_heads, dtype, param_dtype, qkv_features, out_features: as in
            `MultiHeadDotProductAttention`.
        broadcast_dropout, dropout_rate, deterministic: as in `MultiHeadDotProductAttention`.
        precision, kernel_init, out_kernel_init, bias_init, out_bias_init, use_bias: as in
            `MultiHeadDotProductAttention`.
        attention_fn, decode, normalize_qk, force_fp32_for_softmax: as in
            `MultiHeadDotProductAttention`.
        qkv_dot_general, out_dot_general, qkv_dot_general_cls, out_dot_general_cls: as in
            `MultiHeadDotProductAttention`.
        qk_attn_weights_einsum_cls, attn_weights_value_einsum_cls: as in
            `MultiHeadDotProductAttention`.

    >>> import toile.linen as nn
    >>> layer = nn.MultiHeadAttention(num_heads=2, use_bias=False)
    >>> variables = layer.init(key(0), jnp.ones((3, 6)))
    >>> toile.tree.map(jnp.shape, variables["params"])["key"]
    {'kernel': (6, 2, 3)}
    >>> layer.apply(variables, jnp.ones((3, 6))).shape
    (3, 6)
    """


class SelfAttention(MultiHeadDotProductAttention):
    """Self-attention over one input; deprecated in favor of `MultiHeadDotProductAttention`.

    Args:
        num_heads, dtype, param_dtype, qkv_features, out_features: as in
            `MultiHeadDotProductAttention`.
        broadcast_dropout, dropout_rate, deterministic: as in `MultiHeadDotProductAttention`.
        precision, kernel_init, out_kernel_init, bias_init, out_bias_init, use_bias: as in
            `MultiHeadDotProductAttention`.
        attention_fn, decode, normalize_qk, force_fp32_for_softmax: as in
            `MultiHeadDotProductAttention`.
        qkv_dot_general, out_dot_general, qkv_dot_general_cls, out_dot_general_cls: as in
            `MultiHeadDotProductAttention`.
        qk_attn_weights_einsum_cls, attn_weights_value_einsum_cls: as in
            `MultiHeadDotProductAttention`.

    >>> import toile.linen as nn
    >>> layer = nn.MultiHeadDotProductAttention(num_heads=2, use_bias=False)  # recommended
    >>> variables = layer.init(key(0), jnp.ones((3, 6)))
    >>> toile.tree.map(jnp.shape, variables["params"])["out"]
    {'kernel': (2, 3, 6)}
    """

    @compact
    def __call__(
        self,
        inputs_q: Array,
        mask: Array | None = None,
        deterministic: bool | None = None,
        dropout_rng: PRNGKey | None = None,
        sow_weights: bool = False,
    ) -> Array:
        """Attend from each position of `inputs_q` to all positions of `inputs_q`.

        Args:
            inputs_q: array of shape (*batch, length, features).
            mask: array that broadcasts to (*batch, num_heads, length, length) and is false where a
                query must not attend to a key; None for no mask.
            deterministic: whether to disable dropout; if None, the layer's field is used.
            dropout_rng: key for dropout; if None, the next key of the stream `dropout` is used.
            sow_weights: whether to store the attention weights in the collection `intermediates`
                under the name `attention_weights`.

        Returns:
            An array of shape (*batch, length, out_features).
        """
        warnings.warn(
            "SelfAttention will be deprecated soon. Use "
            "`MultiHeadDotProductAttention.__call__(inputs_q)` instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return super().__call__(
            inputs_q, mask=mask, deterministic=deterministic, dropout_rng=dropout_rng,
            sow_weights=sow_weights,
        )  # fmt: skip
