"""Shapes, conversions and filled arrays of `toile.lax` against `jax.lax`."""

import jax
import ml_dtypes
import numpy as np
import pytest

import toile
from tests.lax.expressions import check, check_error, raised
from toile import lax

TABLE = [
    "lax.reshape(m, (4, 3))", "lax.reshape(m, [12])", "lax.reshape(m, (12,), (1, 0))",
    "lax.reshape(2.0, (1, 1))", "lax.reshape(np.arange(3), (3, 1))", "lax.transpose(x, (2, 0, 1))",
    "lax.broadcast(f, (2,))", "lax.broadcast(1.0, (2,))", "lax.broadcast(m, ())",
    "lax.broadcast_in_dim(f, (2, 3), (1,))", "lax.broadcast_in_dim(2.0, (2, 3), ())",
    "lax.broadcast_in_dim(m, (4, 3), (1, 0))", "lax.broadcast_in_dim(f[:1], (4, 3), (1,))",
    "lax.broadcasted_iota(jnp.int32, (2, 3), 1)", "lax.broadcasted_iota(float, (2, 3), 0)",
    "lax.iota(jnp.float32, 4)", "lax.iota(int, 4)", "lax.expand_dims(f, (0,))",
    "lax.expand_dims(f, [0, 2])", "lax.expand_dims(f, (-1,))", "lax.squeeze(m[None], (-3,))",
    "lax.squeeze(m[None], (0,))", "lax.squeeze(m, ())", "lax.rev(m, (0, 1))", "lax.rev(f, (0,))",
    "lax.concatenate([f, g], 0)", "lax.concatenate([m, m[:, :1]], 1)", "lax.concatenate([f], 0)",
    "lax.concatenate(m, 0)", "lax.concatenate([np.arange(2, dtype=np.int32), i], 0)",
    "lax.stack([f, g])",
    "lax.stack([f, g], axis=-1)", "lax.stack([w, w])", "lax.unstack(m)", "lax.unstack(m, axis=1)",
    "lax.pad(f, 0., [(1, 1, 0)])", "lax.pad(f, 0., ((-1, 0, 1),))",
    "lax.pad(m, w, [(1, 0, 2), (0, -1, 0)])",
    "lax.slice(m, (0, 1), (2, 3))", "lax.slice(m, (0, 0), (3, 4), (2, 3))",
    "lax.slice(e, (0, 1), (0, 3))",
    "lax.slice_in_dim(m, 1, None, axis=1)", "lax.slice_in_dim(m, -2, -1, axis=-1)",
    "lax.slice_in_dim(m, 0, 3, 2)", "lax.index_in_dim(m, -1)", "lax.index_in_dim(m, 1, 1, False)",
    "lax.split(m, [1, 3], axis=1)", "lax.split(f, (1, 2))", "lax.split(m, (4, 0), axis=-1)",
    "lax.full((2,), 1)", "lax.full((2,), 1.0)", "lax.full((2,), 1, float)", "lax.full((2,), w)",
    "lax.full((2,), 1.0, jnp.int32)", "lax.full(2, 1)", "lax.full((), np.float64(1))",
    "lax.full((2,), True)", "lax.full_like(f, 1)", "lax.full_like(w, 1)", "lax.full_like(i, 1.5)",
    "lax.full_like(w, 1, dtype=jnp.float32)", "lax.full_like(f, 1, shape=(2,))",
    "lax.full_like(2.0, 1)", "lax.full_like(b, 1)", "lax.full_like(c, 2j)", "lax.full_like(h, 0.1)",
    "lax.full_like(jax.ShapeDtypeStruct((2,), jnp.int8), 1)", "lax.empty((2,), jnp.float32)",
    "lax.tile(f, (2,))", "lax.tile(m, (2, 3))", "lax.tile(m, (0, 1))", "lax.collapse(m, 0)",
    "lax.collapse(x, 1, 3)", "lax.collapse(x, 1, 1)", "lax.collapse(x, -2)",
    "lax.broadcast_to_rank(f, 3)", "lax.broadcast_to_rank(m, 1)", "lax.broadcast_like(1.0, m)",
    "lax.broadcast_like(m[:, :1], m)", "lax.broadcast_like(m[0], m)",
    "lax.convert_element_type(1, float)", "lax.convert_element_type(1.0, jnp.int32)",
    "lax.convert_element_type(w, jnp.float32)", "lax.convert_element_type(f, 'int8')",
    "lax.convert_element_type(2**40, jnp.float32)", "lax.convert_element_type(300, jnp.int8)",
    "lax.convert_element_type(-1, jnp.uint8)",
    "lax.convert_element_type(f * 1e20, jnp.int32)",
    "lax.convert_element_type(f > 0, jnp.float32)", "lax.convert_element_type(i, bool)",
    "lax.convert_element_type(np.float32(1.7), int)", "lax.convert_element_type(i, jnp.complex64)",
    "lax.convert_element_type(i, jnp.uint8)", "lax.convert_element_type(u, jnp.bfloat16)",
    "lax.convert_element_type(True, int)", "lax.convert_element_type(h, float)",
    "lax.bitcast_convert_type(i, jnp.uint32)", "lax.bitcast_convert_type(i, jnp.int8)",
    "lax.bitcast_convert_type(lax.full((2, 4), 7, jnp.uint8), jnp.uint32)",
    "lax.bitcast_convert_type(np.float32(1.0), jnp.uint32)", "lax.reduce_precision(f, 5, 3)",
    "lax.reduce_precision(1.3, 5, 3)", "lax.stop_gradient(f)",
    "lax.stop_gradient({'a': f, 'b': 1.0})",
    "lax.optimization_barrier((f, i))", "lax.optimization_barrier(1.0)", "lax.stage(1.0)",
    "lax.stage(np.arange(3))", "lax.composite(lambda x: x + 1, 'a.b')(f)",
    *((e, "m") for e in (
        "lax.reshape(m, (12,), (1, 0))", "lax.broadcast_in_dim(m, (2, 3, 4), (1, 2))",
        "lax.pad(m, 0., [(1, 0, 2), (0, -1, 0)])", "lax.slice(m, (0, 0), (3, 4), (2, 3))",
        "lax.concatenate([m, m * m], 0)", "lax.split(m, [1, 3], axis=1)", "lax.tile(m, (2, 3))",
        "lax.rev(m, (0,))", "lax.collapse(m, 0)", "lax.stack([m, m * m], 1)", "lax.unstack(m, 1)",
        "m * lax.stop_gradient(m)", "lax.optimization_barrier(m) * m",
        "lax.convert_element_type(m, jnp.complex64)", "lax.index_in_dim(m, 2, 1) * m",
    )),
]  # fmt: skip
ERRORS = [
    "lax.reshape(m, (4, -1))", "lax.reshape(m, (5,))", "lax.broadcast(f, (-2,))",
    "lax.broadcast_in_dim(f, (2, 3), (0,))", "lax.broadcast_in_dim(f, (2, 3), (-1,))",
    "lax.broadcasted_iota(float, (2, 3), -1)", "lax.broadcasted_iota(bool, (2, 3), 0)",
    "lax.expand_dims(f, (0, 0))", "lax.expand_dims(f, (5,))", "lax.squeeze(m[None], (1,))",
    "lax.transpose(m, (1, -2))", "lax.transpose(m, [0])", "lax.rev(m, (-1,))", "lax.rev(m, (1, 1))",
    "lax.concatenate([f, i], 0)", "lax.concatenate([f, f], -1)", "lax.concatenate([], 0)",
    "lax.concatenate([f, m], 0)", "lax.concatenate([1., 2.], 0)", "lax.pad(f, i[0], [(1, 1, 0)])",
    "lax.pad(f, 0., [(1, -6, 0)])", "lax.pad(f, 0., [(0, 0, -1)])", "lax.slice(m, [0, 1], [2, 30])",
    "lax.slice_in_dim(m, 0, 10, axis=0)", "lax.index_in_dim(m, 4, 1, False)",
    "lax.split(f, [1, 1])",
    "lax.full((2,), f)", "lax.full((-1,), 1)", "lax.tile(m, (2,))", "lax.stack([f, i])",
    "lax.unstack(w)", "lax.collapse(m, 1, 0)", "lax.broadcast_shapes((2,), (3,))",
    "lax.broadcast_like(f, m)", "lax.convert_element_type(f, None)",
    "lax.convert_element_type([1, 2], jnp.uint32)", "lax.convert_element_type('a', jnp.uint32)",
    "lax.convert_element_type(jax.random.key(0), jnp.uint32)",
    "lax.bitcast_convert_type(b, jnp.uint8)",
    "lax.with_sharding_constraint(f, None)",
]  # fmt: skip
STATIC = [
    "lax.broadcast_shapes((2, 1), (3,))", "lax.broadcast_shapes((4,))", "lax.dtype(1.0)",
    "lax.dtype(np.zeros(2))", "lax.dtype(f)", "lax.dce_sink(f)",
    "lax.shape_as_value((2, 3)).tolist()",
    "lax.padtype_to_pads((10, 11), (3, 4), (2, 1), 'SAME')",
    "lax.padtype_to_pads((10, 11), (3, 4), (2, 1), 'SAME_LOWER')",
    "lax.padtype_to_pads((10, 11), (3, 4), (2, 1), 'VALID')",
    "lax.reduce_window_shape_tuple((8, 9), (2, 3), (2, 1), [(0, 1), (1, 1)], (1, 2), (2, 1))",
    "lax.conv_shape_tuple((2, 3, 8, 9), (4, 3, 3, 3), (2, 1), 'SAME')",
    "lax.conv_general_shape_tuple((2, 8, 9, 3), (3, 3, 3, 4), (2, 1), 'VALID', ('NHWC', "
    "'HWIO', 'NHWC'))",
    "lax.conv_transpose_shape_tuple((2, 8, 9, 3), (3, 4, 3, 4), (2, 1), 'SAME', ('NHWC', "
    "'HWIO', 'NHWC'))",
    "tuple(lax.conv_dimension_numbers((1,) * 4, (1,) * 4, ('NWHC', 'HWIO', 'CNHW')))",
    "tuple(lax.conv_dimension_numbers((1,) * 4, (1,) * 4, None))",
    "[(p.name, p.value) for p in lax.DotAlgorithmPreset]", "repr(lax.Precision('fastest'))",
    "[lax.Precision(v) is lax.Precision.HIGH for v in ('high', 'tensorfloat32', 1, 'highest')]",
    "[(a.name, a.value) for a in (*lax.RandomAlgorithm, *lax.GatherScatterMode, "
    "*lax.RoundingMethod)]",
    "[np.dtype(p.accumulation_type or bool).name for p in lax.DotAlgorithmPreset]",
    "["
    "str(p.supported_lhs_types and np.dtype(p.supported_lhs_types[0])) "
    "for p in lax.DotAlgorithmPreset]",
]  # fmt: skip


@pytest.mark.parametrize("x64", (False, True), ids=("x32", "x64"))
@pytest.mark.parametrize("expression", TABLE, ids=str)
def test_same_as_jax(expression, x64):
    check(TABLE, expression, x64)


@pytest.mark.parametrize("expression", ERRORS)
def test_same_errors(expression):
    check_error(expression)


@pytest.mark.parametrize("expression", STATIC)
def test_same_static_values(expression):
    names = [
        {"lax": p.lax, "np": np, "f": p.numpy.ones(3)} for p in (toile, jax)
    ]
    got, want = (eval(expression, n) for n in names)
    assert got == want


def test_wide_dtypes_narrow_with_a_warning():
    with pytest.warns(UserWarning, match="float64 requested in convert_element_type"):
        assert lax.convert_element_type(toile.numpy.ones(2), np.float64).dtype == np.float32
    with pytest.warns(np.exceptions.ComplexWarning):
        lax.convert_element_type(1j * toile.numpy.ones(2), np.float32)


def test_float0_and_keys():
    zeros = lax.convert_element_type(np.zeros(3, toile.dtypes.float0), np.float32)
    assert zeros.dtype == np.float32 and zeros.shape == (3,)
    assert raised(toile, "lax.convert_element_type(f, jax.dtypes.float0)") is None
    key = toile.random.key(0)
    assert lax.convert_element_type(key, key.dtype) is key
    assert lax.reshape(key, (1,)).shape == (1,) and bool(lax.eq(key, key))
    assert lax.select(True, key, key).dtype == key.dtype


def test_same_array_when_nothing_changes():
    x = toile.numpy.ones((2, 3))
    assert lax.reshape(x, (2, 3)) is x and lax.transpose(x, (0, 1)) is x
    assert lax.convert_element_type(x, x.dtype) is x
    assert lax.broadcast_in_dim(x, (2, 3), (0, 1)) is x


def test_tokens():
    token = lax.after_all(lax.create_token(), lax.create_token())
    assert isinstance(token, lax.Token)
    with pytest.raises(TypeError):
        lax.after_all(1)


def test_numbers_out_of_range_saturate():
    # What jax gives for a number (not an array) depends on the machine.
    info = np.iinfo(np.int32)
    for value, want in ((1e20, info.max), (-1e20, info.min), (float("nan"), 0)):
        assert int(lax.convert_element_type(value, np.int32)) == want


def test_every_name_of_jax():
    names = [n for n in dir(jax.lax) if not n.startswith("_") and not n.endswith("_p")]
    missing = [n for n in names if not hasattr(lax, n)]
    assert len(missing) <= 0.05 * len(names), missing


@pytest.mark.parametrize("bits", [(8, 7), (5, 10), (8, 23), (11, 52), (8, 5), (5, 2), (3, 0),
                                  (8, 0), (1, 1), (11, 20)])  # fmt: skip
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_reduce_precision_of_any_bits(dtype, bits):
    """Subnormal numbers stay unless there are fewer exponent bits."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    rng, info = np.random.default_rng(0), ml_dtypes.finfo(dtype)
    size = 1 + np.iinfo(unsigned).max
    subnormal = rng.integers(0, 2**info.nmant, 500) + rng.choice([0, size // 2], 500)
    ties = np.array([1.5, 3, 2.5, 6, 0.75, 1.25, np.inf, -np.inf, np.nan, 0, -0.0, info.max], dtype)
    random = np.concatenate([rng.integers(0, size, 1500), subnormal]).astype(unsigned)
    x = np.concatenate([random.view(dtype), ties])
    wanted = np.asarray(jax.lax.reduce_precision(x, *bits))
    infinity = np.array(np.inf, dtype).view(unsigned)
    is_nan = lambda a: a.view(unsigned) % (size // 2) > infinity
    nan = is_nan(x)
    for f in (lax.reduce_precision, toile.jit(lax.reduce_precision, static_argnums=(1, 2))):
        found = np.asarray(f(x, *bits))
        np.testing.assert_array_equal(found.view(unsigned)[~nan], wanted.view(unsigned)[~nan])
        assert is_nan(found[nan]).all()
