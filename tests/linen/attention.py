"""Rows of attention layers: projections, masks, dropout, caches, replaced contractions."""

import numpy as np

from tests.linen.oracle import layer, normal

# float32 gradients of a bfloat16 computation: the results agree to the bit, but each library rounds
# the gradient of softmax and long sums in places of its own, both as far from float32.
NARROW = {"rtol": 1.6e-2, "atol": 2e-2}
VALID = np.arange(5)[None, :] < np.array([[5], [3]])

# The layer.
layer("mha", lambda lib: lib.nn.MultiHeadDotProductAttention(2), normal(2, 5, 6))
layer("mha cross", lambda lib: lib.nn.MultiHeadDotProductAttention(
    3, qkv_features=12, out_features=7), normal(2, 5, 6), normal(2, 4, 8, seed=1),
    normal(2, 4, 3, seed=2))  # fmt: skip
layer("mha keys only", lambda lib: lib.nn.MultiHeadAttention(2), normal(3, 4), normal(5, 4, seed=1))
layer("mha bf16", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, dtype=lib.jnp.bfloat16, use_bias=False), normal(2, 5, 6), **NARROW)  # fmt: skip
layer("mha bf16 params", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, param_dtype=lib.jnp.bfloat16), normal(2, 5, 6).astype("bfloat16"))  # fmt: skip
layer("mha bf16 softmax in f32", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, dtype=lib.jnp.bfloat16, force_fp32_for_softmax=True), normal(2, 5, 6), **NARROW)  # fmt: skip
layer("mha inits", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, kernel_init=lib.jax.nn.initializers.normal(0.5),
    bias_init=lib.jax.nn.initializers.normal(0.1),
    out_kernel_init=lib.jax.nn.initializers.orthogonal(),
    out_bias_init=lib.jax.nn.initializers.ones), normal(3, 4))  # fmt: skip
layer("mha normalize_qk", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, normalize_qk=True, param_dtype=lib.jnp.float32), normal(2, 5, 8))  # fmt: skip
layer("mha normalize_qk bf16", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, normalize_qk=True, dtype=lib.jnp.bfloat16), normal(2, 5, 8), **NARROW)  # fmt: skip
layer("mha four axes", lambda lib: lib.nn.MultiHeadDotProductAttention(2), normal(2, 3, 4, 6))
layer("mha integers", lambda lib: lib.nn.MultiHeadDotProductAttention(1),
      np.arange(12, dtype=np.int32).reshape(3, 4))  # fmt: skip
layer("mha x64", lambda lib: lib.nn.MultiHeadDotProductAttention(2, param_dtype=lib.jnp.float64),
      normal(2, 3, 4, dtype=np.float64), x64=True, rtol=1e-9, atol=1e-10)  # fmt: skip
layer("mha precision", lambda lib: lib.nn.MultiHeadDotProductAttention(2, precision="highest"),
      normal(2, 3, 4))  # fmt: skip
layer("mha kv", lambda lib: lib.nn.MultiHeadDotProductAttention(2), normal(2, 3, 4),
      kwargs={"inputs_kv": normal(2, 5, 4, seed=1)})  # fmt: skip
layer("self attention", lambda lib: lib.nn.SelfAttention(2), normal(2, 5, 6))
layer("self attention mask", lambda lib: lib.nn.SelfAttention(2, qkv_features=4), normal(2, 5, 6),
      np.tril(np.ones((2, 1, 5, 5), bool)))  # fmt: skip

# Masks.
layer("mha causal", lambda lib: lib.nn.MultiHeadDotProductAttention(2), normal(2, 5, 6),
      kwargs={"mask": np.tril(np.ones((2, 1, 5, 5), np.float32))})  # fmt: skip
layer("mha padding bf16",
      lambda lib: lib.nn.MultiHeadDotProductAttention(2, dtype=lib.jnp.bfloat16),
      normal(2, 5, 6), kwargs={"mask": VALID[:, None, None, :]}, **NARROW)  # fmt: skip
layer("mha nothing visible", lambda lib: lib.nn.MultiHeadDotProductAttention(2), normal(2, 5, 6),
      kwargs={"mask": np.zeros((2, 1, 1, 5), bool)})  # fmt: skip


def masked(lib):
    """A module that makes its own mask from lengths."""

    class Masked(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x, valid):
            nn = lib.nn
            mask = nn.combine_masks(
                nn.make_attention_mask(valid, valid), None, nn.make_causal_mask(valid)
            )
            x = x + nn.MultiHeadAttention(2)(x, mask=mask)
            return x + nn.MultiHeadDotProductAttention(3, name="second")(x, mask=mask)

    return Masked()


layer("mha made masks", masked, normal(2, 5, 6), VALID.astype(np.float32))

# Dropout of weights.
layer("mha dropout", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, dropout_rate=0.4, deterministic=False), normal(2, 5, 6), rngs=("dropout",))  # fmt: skip
layer("mha dropout each", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, dropout_rate=0.4, broadcast_dropout=False), normal(2, 5, 6), rngs=("dropout",),
    kwargs={"deterministic": False})  # fmt: skip
layer("mha dropout bf16", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, dropout_rate=0.4, deterministic=False, dtype=lib.jnp.bfloat16), normal(2, 5, 6),
    rngs=("dropout",), **NARROW)  # fmt: skip
layer("mha dropout off", lambda lib: lib.nn.MultiHeadDotProductAttention(2, dropout_rate=0.4),
      normal(2, 5, 6), kwargs={"deterministic": True})  # fmt: skip

# Weights that are kept.
layer("mha sow", lambda lib: lib.nn.MultiHeadDotProductAttention(2), normal(2, 5, 6),
      kwargs={"sow_weights": True}, mutable=["intermediates"])  # fmt: skip
layer("mha sow bf16", lambda lib: lib.nn.MultiHeadAttention(
    2, dropout_rate=0.5, deterministic=False, dtype=lib.jnp.bfloat16, force_fp32_for_softmax=True),
    normal(2, 5, 6), rngs=("dropout",), kwargs={"sow_weights": True},
    mutable=["intermediates"], **NARROW)  # fmt: skip


# The cache: a module that is made for sequences and called with one position at a time.
def decoder(lib, dtype=None, **options):
    class Decoder(lib.nn.Module):
        @lib.nn.compact
        def __call__(self, x):
            filled = self.has_variable("cache", "position")
            position = self.variable("cache", "position", lambda: lib.jnp.zeros((), "int32"))
            i = position.value
            if filled:  # one element of the sequence
                x = lib.lax.dynamic_slice_in_dim(x, i, 1, axis=-2)
                position.value = i + 1
            attend = lib.nn.MultiHeadDotProductAttention(2, decode=True, dtype=dtype, **options)
            return attend(x)

    return Decoder()


layer("mha decode", decoder, normal(2, 4, 6), mutable=["cache"], steps=4)
layer("mha decode bf16", lambda lib: decoder(lib, dtype=lib.jnp.bfloat16), normal(2, 4, 6),
      mutable=["cache"], steps=3, rtol=1.6e-2, atol=4e-2)  # fmt: skip
layer("mha decode flat", lambda lib: decoder(lib, normalize_qk=True), normal(3, 6),
      mutable=["cache"], steps=3)  # fmt: skip
layer("mha decode x64", lambda lib: decoder(lib, qkv_features=4), normal(2, 3, 6),
      mutable=["cache"], steps=2, x64=True)  # fmt: skip
layer("mha decode past the end", decoder, normal(1, 2, 4), mutable=["cache"], steps=4)


# Contractions of the user's.
def doubled(lib):
    def dot_general(*args, **kwargs):
        return 2 * lib.lax.dot_general(*args, **kwargs)

    return dot_general


def halved(lib):
    return lambda: lambda *args: lib.jnp.einsum(*args) / 2


# Softmax does not see the bias of the keys: its gradient is roundoff, of products that are doubled.
layer("mha dot_general", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, qkv_dot_general=doubled(lib), out_dot_general=doubled(lib)), normal(2, 3, 4),
    atol=1e-5)  # fmt: skip
layer("mha dot_general_cls", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, qkv_dot_general_cls=lambda: doubled(lib), out_dot_general_cls=lambda: doubled(lib)),
    normal(2, 3, 4), atol=1e-5)  # fmt: skip
layer("mha einsum_cls", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, qk_attn_weights_einsum_cls=halved(lib), attn_weights_value_einsum_cls=halved(lib)),
    normal(2, 3, 4))  # fmt: skip
layer("mha attention_fn", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, attention_fn=lambda q, k, v, mask=None: (q + k + v) * 0.5), normal(2, 3, 4))  # fmt: skip
layer("mha attention_fn weights", lambda lib: lib.nn.MultiHeadDotProductAttention(
    2, attention_fn=lambda q, k, v, dtype=None, module=None, precision=None:
    lib.nn.dot_product_attention(q, k, v, lib.jnp.cos(lib.jnp.arange(3.0)), module=module,
                                 einsum_dot_general=doubled(lib))),
    normal(2, 3, 4), kwargs={"sow_weights": True}, mutable=["intermediates"])  # fmt: skip
layer("self_attention bf16 no bias", lambda lib: lib.nn.SelfAttention(
    2, dtype=lib.jnp.bfloat16, use_bias=False, deterministic=True), normal(2, 3, 4),
    rtol=1.6e-2, atol=1e-2)  # fmt: skip
layer("multi_head_attention qkv_features", lambda lib: lib.nn.MultiHeadAttention(
    3, qkv_features=6, out_features=5), normal(2, 3, 4), normal(2, 5, 4, seed=1))  # fmt: skip
