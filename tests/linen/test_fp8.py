"""Products in float8 against flax's: rounding bit by bit, training steps of layers."""

import functools
import importlib

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.linen.oracle import flat, flax_library, on_flax, toile_library
from tests.quick_jax import OPTIONS as QUICK
from toile import lax
from toile.linen import fp8_ops

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
OPTIONS = {**QUICK, "xla_allow_excess_precision": False}  # bfloat16 is bfloat16 between operations
STATE = fp8_ops.OVERWRITE_WITH_GRADIENT


def library(lib, modules):
    lib.fp8 = importlib.import_module(f"{modules}.linen.fp8_ops")
    return lib


@pytest.fixture(scope="module")
def both():
    return library(flax_library(), "flax"), library(toile_library(), "toile")


def quick(lib, f, *args):
    """f(*args); jax compiles it as one."""
    return lib.jax.jit(f, compiler_options=OPTIONS)(*args) if lib.name == "jax" else f(*args)


def observed(both, run):
    """What a function of a library gives: flax's by the record or asked, and toile's."""
    theirs, ours = both
    return on_flax(lambda: run(theirs)), run(ours)


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


def spread(*shape):
    """Numbers of many magnitudes, with zeros."""
    random = np.random.RandomState(0)
    x = random.normal(size=shape) * np.exp(4 * random.normal(size=shape))
    x.flat[::7] = 0
    return x.astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("q_dtype", FLOAT8)
def test_rounding_is_bit_equal(both, dtype, q_dtype):
    def rounded(lib):
        x = lib.jnp.asarray(spread(16, 33)).astype(dtype)
        scale = lib.jnp.asarray(np.array([0.37], np.float32))
        history = lib.jnp.arange(5.0)
        q, f = lib.jnp.dtype(q_dtype), lib.fp8
        return [
            f.get_fp8_max(q, dtype), f.quantize(x, q, scale, dtype), f.qdq(x, q, scale, dtype),
            *f.update_fp8_meta(x, q, scale, history),
            *f.quantize_dequantize_update(x, q, scale, history, dtype),
            f.dequantize(f.quantize(x, q, scale, dtype), dtype, scale),
        ]  # fmt: skip

    for a, b in zip(*observed(both, rounded), strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("amax", [0.0, 3.0, np.inf, np.nan, 1e-30])
def test_compute_scale(both, amax):
    args = np.float32(amax), np.array([0.25], np.float32), np.float32(448)
    for margin in (0, 2):
        a, b = (lib.fp8.compute_scale(*map(lib.jnp.asarray, args), margin) for lib in both)
        same_bits(a, b)


def test_history_moves(both):
    a, b = (
        lib.fp8.compute_amax_history(lib.jnp.array([1.0, -9.0]), lib.jnp.arange(4.0))
        for lib in both
    )
    same_bits(a, b)
    assert np.asarray(b).tolist() == [9.0, 2.0, 3.0, 0.0]


# Layers.


def train(lib, build, x, steps):
    """Some steps: what the layer gives, gradients, and the state that they overwrite."""
    layer = build(lib)
    variables = quick(lib, layer.init, lib.random.key(0), lib.jnp.asarray(x))
    seen = [variables]

    def loss(v, x):
        y = layer.apply(v, x)
        weights = np.cos(np.arange(y.shape[-1], dtype=np.float32))
        return ((y.astype("float32") * weights) ** 2).sum(), y

    step = lib.jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    for i in range(steps):
        args = variables, lib.jnp.asarray(x * (i + 1))
        out, (grads, dx) = quick(lib, step, *args)
        seen += [out, grads, dx]
        moved = lib.jax.tree.map(lambda p, d: p - 0.01 * d, variables["params"], grads["params"])
        variables = {"params": moved, STATE: grads[STATE]}
    return flat(lib, seen)


LAYERS = {
    "round trip": lambda lib: lib.nn.Dense(7, dot_general_cls=lib.fp8.Fp8DotGeneralOp),
    "direct": lambda lib: lib.nn.Dense(7, dot_general_cls=lib.nn.Fp8DirectDotGeneralOp),
    "fnuz": lambda lib: lib.nn.Dense(7, dot_general_cls=lib.nn.NANOOFp8DotGeneralOp),
    "general": lambda lib: lib.nn.DenseGeneral(
        (2, 3), axis=(-2, -1), dot_general_cls=lib.nn.Fp8DotGeneral
    ),
    "short history": lambda lib: lib.nn.Dense(
        3, dot_general_cls=functools.partial(lib.nn.Fp8DirectDotGeneralOp, amax_history_length=2)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:The Fp8DotGeneralOp is deprecated")
def test_training_is_that_of_flax(both, name):
    x = np.random.RandomState(1).normal(size=(5, 4, 6)).astype(np.float32)
    a, b = observed(both, lambda lib: train(lib, LAYERS[name], x, 3))
    assert a.keys() == b.keys()
    for k in a:
        assert a[k].dtype == b[k].dtype and a[k].shape == b[k].shape
        np.testing.assert_allclose(b[k], a[k], rtol=2e-6, atol=3e-6 * abs(a[k]).max(), err_msg=k)


@pytest.mark.parametrize("op", ["Fp8DirectDotGeneralOp", "NANOOFp8DotGeneralOp"])
def test_training_in_bfloat16(both, op):
    build = lambda lib: lib.nn.Dense(
        7, use_bias=False, dtype=lib.jnp.bfloat16, dot_general_cls=getattr(lib.nn, op)
    )
    x = np.random.RandomState(1).normal(size=(5, 6)).astype(np.float32)
    a, b = observed(both, lambda lib: train(lib, build, x, 2))
    for k in a:
        left, right = a[k].astype(np.float32), b[k].astype(np.float32)
        assert a[k].dtype == b[k].dtype
        np.testing.assert_allclose(right, left, rtol=4e-3, atol=1e-3 * abs(left).max(), err_msg=k)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "abc,cde->adbe"])
def test_einsum(both, equation):
    shapes = {"ij,jk->ik": ((3, 4), (4, 5)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
              "abc,cde->adbe": ((2, 3, 4), (4, 3, 2))}[equation]  # fmt: skip
    random = np.random.RandomState(2)
    x, w = (random.normal(size=s).astype(np.float32) for s in shapes)

    def trained(lib):
        module = lib.nn.Fp8Einsum(amax_history_length=3)
        args = lib.jnp.asarray(x), lib.jnp.asarray(w)
        options = {"preferred_element_type": lib.jnp.float32}
        run = lambda v, x, w, m=module, o=options: m.apply(v, equation, x, w, **o)
        variables = module.init(lib.random.key(0), equation, *args, **options)
        loss = lambda v, x, w, run=run: (run(v, x, w) ** 2).sum()
        for _ in range(2):
            grads = quick(lib, lib.jax.grad(loss, argnums=(0, 1, 2)), variables, *args)
            variables = grads[0]
        return flat(lib, [grads, quick(lib, run, variables, *args)])

    theirs, ours = observed(both, trained)
    for k in theirs:
        np.testing.assert_allclose(ours[k], theirs[k], rtol=2e-6, atol=2e-5, err_msg=k)


@pytest.mark.parametrize(
    ("x", "y", "dims"),
    [
        ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
        ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
        ((4, 3, 6), (6, 2, 4), (((2, 0), (0, 2)), ((), ()))),
        ((2, 3, 4, 6), (6, 5, 2, 4), (((3, 2), (0, 3)), ((0,), (2,)))),
    ],
)
def test_transposes_are_those_of_the_product(x, y, dims):
    random = np.random.RandomState(3)
    x, y = (jnp.asarray(random.normal(size=s).astype(np.float32)) for s in (x, y))
    out, pull = toile.vjp(lambda x, y: lax.dot_general(x, y, dims), x, y)
    g = jnp.asarray(random.normal(size=out.shape).astype(np.float32))
    options = {"dimension_numbers": dims, "precision": None, "preferred_element_type": None}
    left = fp8_ops.dot_general_transpose_lhs(g, x, y, **options)
    right = fp8_ops.dot_general_transpose_rhs(g, x, y, **options)
    for mine, theirs in zip((left, right), pull(g), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("around", ["jit", "checkpoint", "vmap", "scan"])
def test_state_is_renewed_under_every_transformation(around):
    layer = nn.Dense(3, use_bias=False, dot_general_cls=nn.Fp8DirectDotGeneralOp)
    x = jnp.arange(6.0).reshape(2, 3)
    variables = layer.init(toile.random.key(0), x)
    call = {
        "jit": lambda v, x: toile.jit(layer.apply)(v, x),
        "checkpoint": lambda v, x: toile.checkpoint(layer.apply)(v, x),
        "vmap": lambda v, x: toile.vmap(layer.apply, in_axes=(None, 0))(v, x),
        "scan": lambda v, x: lax.scan(lambda c, _: (layer.apply(v, c), None), x, None, 1)[0],
    }[around]
    grads = toile.grad(lambda v: call(v, x).sum())(variables)[STATE]["Fp8DirectDotGeneralOp_0"]
    assert grads["input_amax_history"][0] == 5.0 or around == "vmap"
    assert grads["input_amax_history"][0] > 0
    assert grads["kernel_amax_history"][0] > 0
    assert grads["input_scale"][0] > 0


def test_warnings_and_errors():
    with pytest.warns(DeprecationWarning, match="The Fp8DotGeneralOp is deprecated"):
        fp8_ops.Fp8DotGeneralOp()
    one = jnp.ones((1, 1))
    dims = (((1,), (0,)), ((), ()))
    with pytest.warns(UserWarning, match="dot_general_with_precision will set"):
        fp8_ops.dot_general_with_precision(one, one, dims, lax.Precision.HIGH)
    state = {f"{k}_scale": jnp.ones(1) for k in ("lhs", "rhs", "grad")}
    state |= {f"{k}_amax_history": jnp.ones(2) for k in ("lhs", "rhs", "grad")}
    with pytest.warns(UserWarning, match="fp8_scaled_dot_general will set"):
        fp8_ops.fp8_scaled_dot_general(one, one, dims, "high", jnp.float32, **state)
    with pytest.raises(AssertionError):
        fp8_ops.get_fp8_max(jnp.float16, jnp.float32)
    with pytest.raises(AssertionError, match="needed"):
        nn.Fp8DotGeneral().init(toile.random.key(0), one, one)


def test_products_of_unequal_float8(both):
    x, y = spread(4, 6), spread(6, 5)
    dims = (((1,), (0,)), ((), ()))
    for preferred in ("float32", "bfloat16", None):
        a, b = (
            lib.lax.dot_general(
                lib.jnp.asarray(x).astype(lib.jnp.float8_e5m2),
                lib.jnp.asarray(y).astype(lib.jnp.float8_e4m3fn),
                dims, preferred_element_type=preferred,
            )
            for lib in both
        )  # fmt: skip
        assert a.dtype == b.dtype
        left, right = np.asarray(a).astype(np.float32), np.asarray(b).astype(np.float32)
        np.testing.assert_allclose(right, left, rtol=1e-6, equal_nan=True)


def test_every_public_name_is_there(both):
    imported = {"jax", "lax", "jnp", "np", "core", "dtypes", "random", "earray", "pxla", "Any"}
    imported |= {"module", "dataclasses", "itertools", "partial", "CAN_USE_EARRAY"}
    # The dtype for state that is used several times is missing: cotangents that join by maximum.
    missing = {"fm32", "fp32_max_grad", "fp8_meta_dtype", "fp8_meta_dtype_wrapper"}
    missing |= {"Fp8MetaTyRules"}
    names = {k for k in vars(both[0].fp8) if not k.startswith("_")} - imported - missing
    assert names <= set(vars(fp8_ops))
