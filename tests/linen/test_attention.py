"""Attention beyond its table: masks, functions of heads, errors and warnings, decoding."""

import inspect

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.linen import oracle
from tests.linen.oracle import normal
from tests.quick_jax import OPTIONS
from toile.linen import attention as toile_attention
from toile.linen.attention import MultiHeadDotProductAttention, SelfAttention

linen = pytest.importorskip("flax.linen")
jax = pytest.importorskip("jax")
LIBRARIES = (oracle.flax_library(), oracle.toile_library())


def attention(lib):
    """The library's module of attention."""
    return lib.nn.attention if lib.name == "jax" else toile_attention


def both(compute):
    """The results of both libraries, which must agree in dtype, shape and values."""
    flax, ours = LIBRARIES
    want = jax.jit(lambda: compute(flax, attention(flax)), compiler_options=OPTIONS)()
    got = compute(ours, attention(ours))
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(
        np.asarray(got).astype(float), np.asarray(want).astype(float), rtol=2e-5, atol=1e-6
    )


def both_raise(compute):
    """Both libraries raise the same type; toile's message."""
    raised = []
    for lib in LIBRARIES:
        with pytest.raises(Exception) as info:
            compute(lib, attention(lib))
        raised.append(info)
    assert type(raised[1].value) is type(raised[0].value)
    return str(raised[1].value)


# Masks.


@pytest.mark.parametrize("dtype", ["float32", "bool", "int32", "bfloat16"])
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_make_causal_mask(dtype, extra):
    x = normal(2, 5)
    both(lambda lib, nn: nn.make_causal_mask(lib.jnp.asarray(x), extra, lib.jnp.dtype(dtype)))


@pytest.mark.parametrize("extra", [0, 2])
def test_make_attention_mask(extra):
    q, k = np.array([[1, 1, 0], [1, 0, 0]]), np.array([[1, 0, 1, 1], [0, 0, 1, 1]])
    both(lambda lib, nn: nn.make_attention_mask(q, k, extra_batch_dims=extra))
    both(lambda lib, nn: nn.make_attention_mask(q, k, lib.jnp.equal, dtype=bool))
    both(lambda lib, nn: nn.make_attention_mask(q[0], k[0], lambda a, b: a - b, dtype="int32"))


def test_combine_masks():
    a, b = np.array([[1.0, 0.0, 1.0]]), np.array([[True, True, False]])
    both(lambda lib, nn: nn.combine_masks(lib.jnp.asarray(a), None, lib.jnp.asarray(b)))
    both(lambda lib, nn: nn.combine_masks(a, b, a, dtype=bool))
    both(lambda lib, nn: nn.combine_masks(lib.jnp.asarray(b)))
    assert toile_attention.combine_masks() is None
    assert toile_attention.combine_masks(None, None) is None
    text = both_raise(lambda lib, nn: nn.combine_masks(a, b[0]))
    assert "masks must have same rank: (2, 1)" in text


# Functions of heads.

Q, K, V = normal(2, 3, 2, 4), normal(2, 5, 2, 4, seed=1), normal(2, 5, 2, 6, seed=2)


def test_dot_product_attention():
    both(lambda lib, nn: nn.dot_product_attention(Q, K, V))
    both(lambda lib, nn: nn.dot_product_attention(Q[0], K[0], V[0]))
    both(lambda lib, nn: nn.dot_product_attention(Q, K, V, bias=normal(3, 5)))
    both(lambda lib, nn: nn.dot_product_attention(Q, K, V, mask=np.arange(5) < 3))
    both(lambda lib, nn: nn.dot_product_attention(Q, K, V, dtype=lib.jnp.float16).astype("float32")
         .round(2))  # fmt: skip


@pytest.mark.parametrize("broadcast", [True, False])
def test_attention_weights(broadcast):
    both(lambda lib, nn: nn.dot_product_attention_weights(
        Q, K, broadcast_dropout=broadcast, dropout_rng=lib.random.key(1),
        dropout_rate=0.3))  # fmt: skip
    both(lambda lib, nn: nn.dot_product_attention_weights(
        Q, K, dropout_rng=lib.random.key(1), dropout_rate=0.3, deterministic=True))  # fmt: skip
    both(lambda lib, nn: nn.dot_product_attention_weights(
        Q, K, bias=normal(2, 2, 3, 5), mask=normal(2, 1, 3, 5, seed=3) > 0))  # fmt: skip


def test_float32_softmax_keeps_float32():
    both(lambda lib, nn: nn.dot_product_attention_weights(
        lib.jnp.ones((3, 1, 2), "bfloat16"), lib.jnp.ones((4, 1, 2), "bfloat16"),
        force_fp32_for_softmax=True))  # fmt: skip


def test_replaced_einsum():
    def compute(lib, nn):
        def dot_general(*args, **kwargs):
            return 3 * lib.lax.dot_general(*args, **kwargs)

        return nn.dot_product_attention(Q, K, V, einsum_dot_general=dot_general)

    both(compute)
    both(lambda lib, nn: nn.dot_product_attention(
        Q, K, V, qk_attn_weights_einsum=lib.jnp.einsum,
        attn_weights_value_einsum=lambda *xs: -lib.jnp.einsum(*xs)))  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "fault"),
    [
        (((3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)), "q, k, v must have same rank"),
        (((1, 3, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4)), "q, k, v batch dims must match"),
        (((2, 3, 1, 4), (2, 5, 2, 4), (2, 5, 2, 4)), "q, k, v num_heads must match"),
        (((2, 3, 2, 4), (2, 5, 2, 4), (2, 6, 2, 4)), "k, v lengths must match"),
        (((2, 3, 2, 3), (2, 5, 2, 4), (2, 5, 2, 4)), "q, k depths must match"),
    ],
)
def test_shape_errors(shapes, fault):
    text = both_raise(lambda lib, nn: nn.dot_product_attention(*map(lib.jnp.ones, shapes)))
    assert fault in text and str(shapes[0]) in text and str(shapes[2]) in text


def test_contradictory_options():
    einsum = jnp.einsum
    text = both_raise(lambda lib, nn: nn.dot_product_attention(
        Q, K, V, qk_attn_weights_einsum=einsum))  # fmt: skip
    assert "must be specified together" in text
    text = both_raise(lambda lib, nn: nn.dot_product_attention(
        Q, K, V, precision="high", qk_attn_weights_einsum=einsum,
        attn_weights_value_einsum=einsum))  # fmt: skip
    assert "mutually exclusive" in text
    text = both_raise(lambda lib, nn: nn.dot_product_attention_weights(
        Q, K, einsum_dot_general=lib.lax.dot_general, einsum=einsum))  # fmt: skip
    assert "mutually exclusive" in text


# The layer.


def run(lib, nn, *args, options=None, **kwargs):
    """The layer with two heads, made and called, by shapes; `options` are its fields."""
    layer = nn.MultiHeadDotProductAttention(2, **(options or {}))
    init = lambda: layer.init(lib.random.key(0), args[0])
    return lib.jax.eval_shape(lambda: layer.apply(init(), *args, **kwargs))


X = np.ones((2, 3, 4), np.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_layer_errors():
    text = both_raise(lambda lib, nn: run(lib, nn, X, X, inputs_kv=X))
    assert "`inputs_kv` must be None" in text
    text = both_raise(lambda lib, nn: run(lib, nn, X, inputs_v=X))
    assert "`inputs_k` cannot be None" in text
    text = both_raise(lambda lib, nn: run(lib, nn, X, options={"qkv_features": 5}))
    assert "Memory dimension (5) must be divisible by number of heads (2)" in text
    fields = {"dropout_rate": 0.5}
    both_raise(lambda lib, nn: run(lib, nn, X, options=fields))
    fields = {"dropout_rate": 0.5, "deterministic": True}
    both_raise(lambda lib, nn: run(lib, nn, X, options=fields, deterministic=True))


def test_missing_dropout_stream():
    layer = MultiHeadDotProductAttention(2, dropout_rate=0.5)
    variables = layer.init(toile.random.key(0), X, deterministic=True)
    with pytest.raises(toile.errors.InvalidRngError, match="dropout"):
        layer.apply(variables, X, deterministic=False)


def test_warnings():
    key = toile.random.key(0)
    with pytest.warns(DeprecationWarning, match="inputs_kv arg will be deprecated"):
        MultiHeadDotProductAttention(2).init(key, X, inputs_kv=X)
    with pytest.warns(DeprecationWarning, match="Use the kwarg `mask`"):
        MultiHeadDotProductAttention(2).init(key, X, X, jnp.ones((2, 3, 3)))
    with pytest.warns(DeprecationWarning, match="SelfAttention will be deprecated"):
        SelfAttention(2).init(key, X)


def test_dropout_rng_goes_before_the_stream():
    layer = MultiHeadDotProductAttention(2, dropout_rate=0.5, deterministic=False)
    x, key = jnp.asarray(normal(2, 3, 4)), toile.random.key
    variables = layer.init({"params": key(0), "dropout": key(1)}, x)
    a, b = (layer.apply(variables, x, dropout_rng=key(5), rngs={"dropout": key(i)}) for i in (2, 3))
    np.testing.assert_array_equal(a, b)
    assert np.any(a != layer.apply(variables, x, rngs={"dropout": key(2)}))


def test_decoding_is_causal_attention():
    """One position at a time gives what the whole sequence gives under a causal mask."""
    x = jnp.asarray(normal(2, 6, 8))
    layer, decoder = (MultiHeadDotProductAttention(2, decode=d) for d in (False, True))
    variables = layer.init(toile.random.key(0), x)
    want = layer.apply(variables, x, mask=toile_attention.make_causal_mask(x[..., 0]))
    cache = decoder.init(toile.random.key(0), x)["cache"]

    @toile.jit
    def step(cache, x):
        y, changed = decoder.apply({**variables, "cache": cache}, x, mutable=["cache"])
        return changed["cache"], y

    for i in range(6):
        cache, y = step(cache, x[:, i : i + 1])
        np.testing.assert_allclose(y[:, 0], want[:, i], rtol=1e-5, atol=1e-6)
    assert cache["cache_index"] == 6


def test_decoding_takes_one_position():
    def compute(lib, nn):
        layer = nn.MultiHeadDotProductAttention(2, decode=True)
        variables = lib.jax.eval_shape(lambda: layer.init(lib.random.key(0), X))
        return lib.jax.eval_shape(lambda v: layer.apply(v, X, mutable=["cache"]), variables)

    text = both_raise(compute)
    assert "expected query shape (2, 1, 2, 2) instead got (2, 3, 2, 2)" in text


def test_names_and_signatures():
    for name in ("MultiHeadDotProductAttention", "MultiHeadAttention", "SelfAttention"):
        want, got = getattr(linen, name), getattr(toile_attention, name)
        assert list(inspect.signature(got).parameters) == list(inspect.signature(want).parameters)
        a, b = inspect.signature(got.__call__), inspect.signature(want.__call__)
        assert list(a.parameters) == list(b.parameters)
    for name in ("dot_product_attention", "dot_product_attention_weights", "make_attention_mask",
                 "make_causal_mask", "combine_masks"):  # fmt: skip
        want, got = getattr(linen, name), getattr(toile_attention, name)
        assert list(inspect.signature(got).parameters) == list(inspect.signature(want).parameters)
