"""Functional layers beside flax.core.nn: parameters, results, changed collections and gradients."""

import functools
import importlib
import inspect
import types

import flax.core.nn
import jax
import numpy as np
import pytest

import toile
import toile.core.nn
from tests.golden.recorded import Record
from tests.quick_jax import OPTIONS

RECORD = Record("core")


def library(engine, modules):
    load = importlib.import_module
    return types.SimpleNamespace(
        jax=load(engine), jnp=load(f"{engine}.numpy"), core=load(f"{modules}.core"),
        nn=load(f"{modules}.core.nn"), lift=load(f"{modules}.core.lift"),
    )  # fmt: skip


OURS, THEIRS = library("toile", "toile"), library("jax", "flax")


def x(*shape, seed=0):
    return np.random.RandomState(seed).normal(size=shape).astype(np.float32)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.float32)
SEGMENTS = np.array([[1, 1, 2, 2, 2], [1, 2, 2, 3, 3]])

# name: (function of a library that gives one of scopes and arrays, arrays...)
LAYERS = {
    "dense": (lambda lib: functools.partial(lib.nn.dense, features=4), x(2, 3)),
    "dense no bias": (lambda lib: functools.partial(lib.nn.dense, features=4, bias=False), x(3)),
    "dense bf16": (
        lambda lib: functools.partial(
            lib.nn.dense, features=4, dtype=lib.jnp.bfloat16,
            bias_init=lib.nn.initializers.normal(1.0),
        ), x(2, 5, 3),
    ),
    "dense_general": (
        lambda lib: functools.partial(lib.nn.dense_general, features=(4, 5)), x(2, 3)
    ),
    "dense_general axes": (
        lambda lib: functools.partial(
            lib.nn.dense_general, features=6, axis=(-2, -1), bias_init=lib.nn.initializers.normal()
        ), x(2, 3, 4),
    ),
    "dense_general batch": (
        lambda lib: functools.partial(
            lib.nn.dense_general, features=(2, 3), axis=-1, batch_dims=0,
            bias_init=lib.nn.initializers.normal(),
        ), x(3, 2, 4),
    ),
    "dense_general two batches": (
        lambda lib: functools.partial(
            lib.nn.dense_general, features=5, axis=(-1,), batch_dims=(0, 1), dtype=lib.jnp.float16
        ), x(2, 3, 4),
    ),
    "conv": (
        lambda lib: functools.partial(lib.nn.conv, features=4, kernel_size=(3, 3)), x(2, 5, 6, 3)
    ),
    "conv strides": (
        lambda lib: functools.partial(
            lib.nn.conv, features=4, kernel_size=(3,), strides=(2,), padding="VALID", bias=False
        ), x(2, 7, 3),
    ),
    "conv groups and dilations": (
        lambda lib: functools.partial(
            lib.nn.conv, features=6, kernel_size=(2, 3), padding=((1, 0), (2, 1)),
            feature_group_count=2, input_dilation=(1, 2), kernel_dilation=(2, 1),
            bias_init=lib.nn.initializers.ones,
        ), x(1, 5, 4, 4),
    ),
    "conv_transpose": (
        lambda lib: functools.partial(lib.nn.conv_transpose, features=4, kernel_size=(3, 2)),
        x(2, 3, 4, 3),
    ),
    "conv_transpose strides": (
        lambda lib: functools.partial(
            lib.nn.conv_transpose, features=4, kernel_size=(3,), strides=(2,), padding="VALID",
            kernel_dilation=(2,), bias_init=lib.nn.initializers.ones,
        ), x(2, 5, 3),
    ),
    "embedding lookup": (
        lambda lib: lambda scope, i: lib.nn.embedding(scope, 7, 4).lookup(i),
        np.array([[1, 2], [6, 0]], np.int32),
    ),
    "embedding attend": (
        lambda lib: lambda scope, q: lib.nn.embedding(
            scope, 7, 4, lib.nn.initializers.normal(2.0)
        ).attend(q), x(2, 4),
    ),
    "batch_norm": (lambda lib: lib.nn.batch_norm, x(4, 3)),
    "batch_norm axes": (
        lambda lib: functools.partial(
            lib.nn.batch_norm, axis=(1, -1), momentum=0.8, epsilon=1e-2, kind="stats",
            scale_init=lib.nn.initializers.normal(), bias_init=lib.nn.initializers.normal(),
        ), x(4, 2, 1, 3),
    ),
    "batch_norm averages": (
        lambda lib: functools.partial(
            lib.nn.batch_norm, use_running_average=True, scale=False, dtype=lib.jnp.bfloat16
        ), x(4, 3),
    ),
    "batch_norm over a mapped axis": (
        lambda lib: lib.lift.vmap(
            functools.partial(lib.nn.batch_norm, axis_name="i", bias=False),
            variable_axes={"params": None, "batch_stats": None}, split_rngs={"params": False},
            axis_name="i",
        ), x(4, 5, 3),
    ),
    "layer_norm": (lambda lib: lib.nn.layer_norm, x(2, 5, 6)),
    "layer_norm bf16": (
        lambda lib: lambda scope, v: lib.nn.layer_norm(
            scope, v.astype(lib.jnp.bfloat16), dtype=lib.jnp.bfloat16, epsilon=1e-3
        ), x(2, 6),
    ),
    "layer_norm scale only": (
        lambda lib: functools.partial(
            lib.nn.layer_norm, bias=False, scale_init=lib.nn.initializers.normal()
        ), x(6),
    ),
    "group_norm": (lambda lib: functools.partial(lib.nn.group_norm, num_groups=3), x(2, 4, 6)),
    "group_norm size": (
        lambda lib: functools.partial(
            lib.nn.group_norm, num_groups=None, group_size=2, dtype=lib.jnp.bfloat16, epsilon=1e-3
        ), x(2, 3, 4, 6),
    ),
    "group_norm bare": (
        lambda lib: functools.partial(lib.nn.group_norm, num_groups=2, bias=False, scale=False),
        x(2, 6),
    ),
    "dropout": (lambda lib: functools.partial(lib.nn.dropout, rate=0.3), x(5, 7)),
    "dropout off": (
        lambda lib: functools.partial(lib.nn.dropout, rate=0.3, deterministic=True), x(5)
    ),
    "dropout rate 0": (lambda lib: functools.partial(lib.nn.dropout, rate=0.0), x(5)),
    "dropout key": (
        lambda lib: lambda scope, v: lib.nn.dropout(scope, v, 0.5, rng=lib.jax.random.key(5)), x(9)
    ),
    "attention": (
        lambda lib: lib.nn.dot_product_attention, x(2, 3, 2, 4), x(2, 5, 2, 4), x(2, 5, 2, 3)
    ),
    "attention axis and bias": (
        lambda lib: lambda scope, q, k, v, b: lib.nn.dot_product_attention(
            scope, q, k, v, axis=2, bias=b, dtype=lib.jnp.float32
        ), x(2, 3, 4, 2, 5), x(2, 3, 4, 2, 5, seed=1), x(2, 3, 4, 2, 5), x(2, 3, 2, 4, 4),
    ),
    "attention over two axes": (
        lambda lib: lib.nn.dot_product_attention,
        x(2, 3, 4, 2, 5), x(2, 2, 3, 2, 5), x(2, 2, 3, 2, 6),
    ),
    "attention dropout": (
        lambda lib: functools.partial(lib.nn.dot_product_attention, dropout_rate=0.4),
        *(x(2, 5, 2, 4, seed=s) for s in range(3)),
    ),
    "attention dropout of all": (
        lambda lib: functools.partial(
            lib.nn.dot_product_attention, dropout_rate=0.4, broadcast_dropout=False
        ), *(x(2, 5, 2, 4, seed=s) for s in range(3)),
    ),
    "heads": (
        lambda lib: lambda scope, q: lib.nn.multi_head_dot_product_attention(
            scope, q, None, num_heads=2, causal_mask=True, dropout_rate=0.2
        ), x(2, 5, 6),
    ),
    "heads cross": (
        lambda lib: lambda scope, q, kv: lib.nn.multi_head_dot_product_attention(
            scope, q, kv, num_heads=4, qkv_features=8, out_features=3, bias=False,
            padding_mask=lib.jnp.asarray(MASK)[:, :3, None],
            key_padding_mask=lib.jnp.asarray(MASK)[..., None],
            attention_fn=functools.partial(lib.nn.dot_product_attention, broadcast_dropout=True),
        ), x(2, 3, 6), x(2, 5, 6),
    ),
    "heads segments": (
        lambda lib: lambda scope, q: lib.nn.multi_head_dot_product_attention(
            scope, q, None, num_heads=1, padding_mask=lib.jnp.asarray(MASK), causal_mask=True,
            segmentation=lib.jnp.asarray(SEGMENTS), deterministic=True, dropout_rate=0.5,
        ), x(2, 5, 6),
    ),
    "heads over an axis": (
        lambda lib: lambda scope, q: lib.nn.multi_head_dot_product_attention(
            scope, q, None, num_heads=2, attention_axis=(1, 2), dtype=lib.jnp.bfloat16,
            causal_mask=True,
        ), x(2, 3, 2, 4),
    ),
}  # fmt: skip


def observe(lib, build, arrays, compile=lambda f: f):
    """Variables, result, changed collections and gradients, by path."""
    layer = build(lib)
    arrays = [lib.jnp.asarray(a) for a in arrays]
    rngs = lambda n: {"params": lib.jax.random.key(n), "dropout": lib.jax.random.key(n + 1)}
    y0, variables = compile(lambda *a: lib.core.init(layer)(rngs(0), *a))(*arrays)
    run = lib.core.apply(layer, mutable=lib.core.DenyList("params"))
    params = variables.pop("params", {})

    def loss(params, first):
        y, changed = run({**variables, "params": params}, first, *arrays[1:], rngs=rngs(3))
        weights = np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)
        return (y.astype(lib.jnp.float32) * weights).sum(), (y, changed)

    where = (0, 1) if arrays[0].dtype == np.float32 else 0
    grads, (y, changed) = compile(lib.jax.grad(loss, where, has_aux=True))(params, arrays[0])
    seen = {"params": params, "others": variables, "y0": y0, "y": y, "new": changed, "grads": grads}
    found = lib.jax.tree_util.tree_flatten_with_path(seen)[0]
    return {lib.jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found}


def assert_same(got, want):
    """Equal trees; what was computed in 16 bits, as its result tells, to their precision."""
    assert list(got) == list(want)
    tolerance = 2e-2 if want["['y']"].dtype.itemsize == 2 else 2e-5
    for path, expected in want.items():
        found = got[path]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), path
        expected = expected.astype(np.float64)
        scale = max(1.0, np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * scale, err_msg=path
        )


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    build, *arrays = LAYERS[name]
    compiled = lambda f: jax.jit(f, compiler_options=OPTIONS)
    want = RECORD.in_test(lambda: observe(THEIRS, build, arrays, compiled), flax.__version__)
    assert_same(observe(OURS, build, arrays), want)


def decode(lib):
    """One position at a time, through the cache; then all at once with a causal mask."""
    tokens = lib.jnp.asarray(x(2, 3, 6))
    attend = functools.partial(
        lib.nn.multi_head_dot_product_attention, inputs_kv=None, num_heads=2, causal_mask=True,
        padding_mask=lib.jnp.ones((2, 1, 1)), cache=True,
    )  # fmt: skip
    _, variables = lib.core.init(attend)(lib.jax.random.key(0), tokens[:, :1])
    variables = dict(variables)
    cache = lib.jax.tree.map(lambda make: make((2, 3)), variables.pop("cache"))
    outputs = []
    for i in range(3):
        y, changed = lib.core.apply(attend, mutable=["cache"])(
            {**variables, "cache": cache}, tokens[:, i : i + 1]
        )
        cache = changed["cache"]
        outputs.append(y[:, 0])
    whole = functools.partial(
        lib.nn.multi_head_dot_product_attention, inputs_kv=None, num_heads=2, causal_mask=True
    )
    full = lib.core.apply(whole)(variables, tokens)
    return [lib.jnp.stack(outputs, 1), full, *lib.jax.tree.leaves(cache)]


def test_decoding_with_a_cache():
    answers = RECORD.in_test(jax.jit(lambda: decode(THEIRS), compiler_options=OPTIONS),
                             flax.__version__)
    stepwise, full, *_ = results = decode(OURS)
    np.testing.assert_allclose(stepwise, full, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(results, answers, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def attend(lib, scope, shape, **options):
    q = lib.jnp.ones(shape)
    return lib.nn.multi_head_dot_product_attention(scope, q, None, **{"num_heads": 2, **options})


def stale_cache(lib):
    made = lib.core.bind({}, {"params": lib.jax.random.key(0)}, mutable=True)
    attend(lib, made, (2, 1, 4), causal_mask=True, cache=True)
    attend(lib, made.rewound(), (2, 1, 4), causal_mask=True, cache=True)


def wrong_cache_shape(lib):
    made = lib.core.bind({}, {"params": lib.jax.random.key(0)}, mutable=True)
    attend(lib, made, (2, 1, 4), causal_mask=True, cache=True)
    made.put_variable("cache", "entry", made.get_variable("cache", "entry")((2, 3)))
    attend(lib, made.rewound(), (2, 2, 4), causal_mask=True, cache=True)


def run(layer, *shape, **options):
    """Initialize a layer of a library on ones."""
    return lambda lib: lib.core.init(getattr(lib.nn, layer))(
        lib.jax.random.key(0), lib.jnp.ones(shape), **options
    )


def heads(shape, **options):
    return lambda lib: lib.core.init(lambda scope: attend(lib, scope, shape, **options))(
        lib.jax.random.key(0)
    )


MISTAKES = {
    "gap in batch_dims": (
        run("dense_general", 2, 3, 4, features=2, batch_dims=(1,)),
        "consecutive",
    ),
    "groups": (run("conv", 1, 4, 3, features=4, kernel_size=(2,), feature_group_count=2), None),
    "both groups": (run("group_norm", 2, 6, num_groups=3, group_size=2), "not both of them"),
    "no groups": (run("group_norm", 2, 6, num_groups=None), "not both of them"),
    "group size": (run("group_norm", 2, 6, num_groups=None, group_size=4), "is not multiple"),
    "axis": (heads((2, 3, 4), attention_axis=(2,)), "Attention axis must be between"),
    "odd heads": (heads((2, 3, 5)), "must be divisible by number of heads"),
    "cache without a causal mask": (heads((2, 1, 4), cache=True), "only support for causal"),
    "cache not made": (stale_cache, "Cache is not initialized"),
    "two positions": (wrong_cache_shape, "Invalid shape provided"),
    "float indices": (
        lambda lib: lib.core.init(lib.nn.embedding)(lib.jax.random.key(0), 3, 2)[0].lookup(
            lib.jnp.ones(2)
        ),
        "must be an integer",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name):
    program, text = MISTAKES[name]
    with pytest.raises(Exception, match=text) as theirs:
        jax.eval_shape(lambda: program(THEIRS) and None)
    with pytest.raises(type(theirs.value), match=text):
        program(OURS)


def test_a_bias_is_right_whatever_axis_is_summed_over():
    """flax.core.nn puts the axes of the bias elsewhere unless `axis` are the last ones."""
    layer = functools.partial(toile.core.nn.dense_general, features=4, axis=1)
    y, variables = toile.core.init(
        functools.partial(layer, bias_init=toile.nn.initializers.normal())
    )(toile.random.key(0), x(2, 3, 4))
    params = variables["params"]
    want = np.einsum("bic,io->bco", x(2, 3, 4), params["kernel"]) + np.asarray(params["bias"])
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def names(module):
    return [name for name in dir(module) if not name.startswith("_")]


@pytest.mark.parametrize("name", names(flax.core.nn))
def test_name_and_signature(name):
    theirs, ours = getattr(flax.core.nn, name), getattr(toile.core.nn, name)
    if callable(theirs):
        parameters = lambda f: [
            (p.name, p.kind, p.default is p.empty) for p in inspect.signature(f).parameters.values()
        ]
        assert parameters(ours) == parameters(theirs)
        if not isinstance(theirs, type):
            assert ours.__name__ == theirs.__name__


def test_causal_mask_without_the_diagonal():
    """`_make_causal_mask` is private, and used."""
    key = x(2, 3, 2, 4)
    for options in ({}, {"self_mask": True}, {"attention_axis": (1,)}):
        theirs = flax.core.nn.attention._make_causal_mask(key, **options)
        ours = toile.core.nn.attention._make_causal_mask(key, **options)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
