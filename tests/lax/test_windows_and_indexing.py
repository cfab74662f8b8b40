"""Windows, convolutions, gathers, scatters and random bits of `toile.lax` against `jax.lax`."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.lax.expressions import check, check_error
from toile import lax

NHWC = "('NHWC', 'HWIO', 'NHWC')"
WINDOWS = [
    "lax.reduce_window(m, 0., lax.add, (2, 2), (1, 1), 'SAME')",
    "lax.reduce_window(m, -jnp.inf, lax.max, (2, 2), (2, 1), 'VALID')",
    "lax.reduce_window(m, jnp.inf, lax.min, (2, 2), (1, 1), 'SAME_LOWER')",
    "lax.reduce_window(m, 1., lax.mul, (2, 2), (1, 1), 'SAME')",
    "lax.reduce_window(m, 0.25, lax.add, (2, 2), (1, 1), 'SAME')",
    "lax.reduce_window(m, 0.5, lax.max, (2, 3), (1, 1), [(1, 1), (0, 2)])",
    "lax.reduce_window(im, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), 'SAME')",
    "lax.reduce_window(im, 0., lax.add, (1, 2, 3, 1), (1, 2, 1, 1), 'SAME', "
    "window_dilation=(1, 2, 1, 1))",
    "lax.reduce_window(m, 0., lax.add, (2, 2), (1, 1), [(1, 0), (0, 1)], (2, 1), (1, 2))",
    "lax.reduce_window(a3, np.int32(0), lax.add, (2, 2), (1, 1), 'SAME')",
    "lax.reduce_window(m, 0., lambda a, b: a + b * b, (2, 2), (1, 1), 'VALID')",
    "lax.reduce_window(m, 0.5, lambda a, b: a * 0.5 + b, (2, 3), (1, 1), [(1, 0), (0, 2)], (1, 2))",
    "lax.reduce_window((m, a3), (0., np.int32(0)), lambda a, b: (a[0] + b[0], lax.max(a[1], "
    "b[1])), (2, 2), (1, 1), 'SAME')",
    "lax.reduce_window(m > 0, False, lax.bitwise_or, (2, 2), (1, 1), 'SAME')",
    *((e, "m") for e in (
        "lax.reduce_window(m, 0., lax.add, (2, 2), (1, 1), 'SAME')",
        "lax.reduce_window(m, -jnp.inf, lax.max, (2, 2), (2, 1), 'VALID')",
    )),
]  # fmt: skip
CONVOLUTIONS = [
    f"lax.conv_general_dilated(im, ke, (1, 1), 'SAME', dimension_numbers={NHWC})",
    f"lax.conv_general_dilated(im, ke, (2, 1), 'VALID', None, (2, 1), {NHWC})",
    f"lax.conv_general_dilated(im, ke, (2, 1), [(1, 2), (0, 1)], (1, 2), (2, 1), {NHWC})",
    f"lax.conv_general_dilated(im, k2, (1, 1), 'SAME_LOWER', dimension_numbers={NHWC}, "
    "feature_group_count=2)",
    "lax.conv_general_dilated(im, ke, (1, 1), 'SAME', dimension_numbers=('NWHC', 'HWIO', 'CNHW'))",
    f"lax.conv_general_dilated(im, ke, (1, 1), 'SAME', dimension_numbers={NHWC}, "
    "preferred_element_type=im.dtype)",
    f"lax.conv_general_dilated(im, ke, (1, 1), 'SAME', dimension_numbers={NHWC}, "
    "batch_group_count=2)",
    "lax.conv(im.transpose(0, 3, 1, 2), ke.transpose(3, 2, 0, 1), (2, 2), 'SAME')",
    "lax.conv_with_general_padding(im.transpose(0, 3, 1, 2), ke.transpose(3, 2, 0, 1), (1, "
    "1), [(1, 1), (0, 2)], (2, 1), None)",
    "lax.conv_transpose(im, ke, (2, 2), 'SAME')", "lax.conv_transpose(im, ke, (2, 1), 'VALID')",
    "lax.conv_transpose(im, ke, (2, 3), [(1, 2), (0, 1)])",
    "lax.conv_transpose(im, ke, (1, 2), 'SAME', (2, 1))",
    "lax.conv_transpose(im, ke.transpose(0, 1, 3, 2), (2, 2), 'SAME', transpose_kernel=True)",
    "lax.conv_transpose(im, ke, (2, 2), ((1, 0), (0, 1)), use_consistent_padding=True)",
    f"lax.conv_general_dilated_patches(im, (3, 2), (1, 2), 'SAME', dimension_numbers={NHWC})",
    "lax.conv_general_dilated_patches(im, (3, 2), (1, 2), 'VALID')",
    "lax.conv_general_dilated_local(x, jnp.ones((2, 6, 3)) * jnp.arange(3), (1,), 'VALID', "
    "(2,), dimension_numbers=('NCW', 'OIW', 'NCW'))",
    "lax.conv_general_dilated_local(im, jnp.ones((5, 5, 24, 3)) * jnp.arange(3), (1, 1), "
    f"'VALID', (3, 2), dimension_numbers={NHWC})",
    *((f"lax.conv_general_dilated(im, ke, (2, 1), 'SAME', None, (1, 2), {NHWC})", a)
      for a in ("im", "ke")),
    ("lax.conv_transpose(im, ke, (2, 2), 'SAME')", "ke"),
]  # fmt: skip
ROWS = "lax.GatherDimensionNumbers((1,), (0,), (0,))"
PUT = "lax.ScatterDimensionNumbers((1,), (0,), (0,))"
FAR = "jnp.array([[0], [5], [-1], [2]], jnp.int32)"
UPDATES = "jnp.concatenate([m, m[:1]]) * 2"
INDEXING = [
    f"lax.gather(m, idx, {ROWS}, (1, 4))", f"lax.gather(m, idx, {ROWS}, (1, 2), mode='clip')",
    f"lax.gather(m, {FAR}, {ROWS}, (1, 4))", f"lax.gather(m, {FAR}, {ROWS}, (1, 4), mode='clip')",
    *(f"lax.gather({a}, {FAR}, {ROWS}, (1, 4), mode='fill')" for a in ("m", "a3", "m > 0")),
    f"lax.gather(m, {FAR}, {ROWS}, (1, 4), mode='fill', fill_value=-1)",
    f"lax.gather(a3, {FAR}, {ROWS}, (1, 4))",
    f"lax.gather(m, idx, {ROWS}, (1, 4), mode='promise_in_bounds')",
    *(f"lax.scatter{c}(m, {i}, {UPDATES}, {PUT})" for c in ("_add", "_sub", "_mul", "_min", "_max")
      for i in ("idx", FAR)),
    f"lax.scatter(m, {FAR}, {UPDATES}, {PUT})",
    f"lax.scatter_add(m, {FAR}, {UPDATES}, {PUT}, mode='clip')",
    "lax.scatter_apply(f, jnp.array([[0], [2]]), jnp.sin, lax.ScatterDimensionNumbers((), "
    "(0,), (0,)), update_shape=(2,))",
    "lax.scatter_apply(f, jnp.array([[2], [2], [1]]), jnp.sin, "
    "lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(3,))",
    "lax.index_take(m, (jnp.array([0, 2, -1]), jnp.array([1, 5, -2])), (0, 1))",
    "lax.dynamic_slice(m, (1, 2), (2, 2))", "lax.dynamic_slice(m, (j, j), (1, 3))",
    "lax.dynamic_slice(m, (-1, 9), (2, 2))", "lax.dynamic_slice(m, (-j, -j), (1, 1))",
    "lax.dynamic_slice(m, jnp.array([1, -1]), (1, 2))",
    "lax.dynamic_slice(m, (-j, j), (2, 2), allow_negative_indices=False)",
    "lax.dynamic_update_slice(m, m[:1, :2], (1, 2))",
    "lax.dynamic_update_slice(m, m[:2, :2], (j + 1, -j))",
    "lax.dynamic_slice_in_dim(m, j, 2, axis=1)", "lax.dynamic_slice_in_dim(m, -1, 1)",
    "lax.dynamic_index_in_dim(m, j)", "lax.dynamic_index_in_dim(m, -1, 1, False)",
    "lax.dynamic_update_slice_in_dim(m, m[:1], j + 1, 0)",
    "lax.dynamic_update_index_in_dim(m, m[0], 1, 0)",
    "lax.dynamic_update_index_in_dim(m, m[:, 0], j, 1)",
    "lax.dynamic_update_index_in_dim(m, m[:, :1], 3, -1)",
    *((e, "m") for e in (
        f"lax.gather(m, {FAR}, {ROWS}, (1, 4), mode='fill', fill_value=0)",
        f"lax.scatter_add(m, {FAR}, {UPDATES}, {PUT})",
        f"lax.scatter(m, {FAR}, m[:1].repeat(4, 0) * 3, {PUT})",
        "lax.dynamic_slice(m * m, (j, j), (1, 3))",
        "lax.dynamic_update_slice(m, m[:1, :2] * 2, (1, 2))",
        "lax.dynamic_index_in_dim(m * m, -1, 1, False)",
    )),
]  # fmt: skip
BITS = [
    f"lax.rng_bit_generator(jnp.array([1, 2, {c}, 4], jnp.uint32), {shape}, {dtype}, {algorithm})"
    for c in (3, 2**32 - 1)
    for shape, dtype in (("(5,)", "jnp.uint32"), ("(3, 5)", "jnp.uint8"), ("(3, 4)", "jnp.uint16"))
    for algorithm in (0, 1, 2)
]
TABLE = WINDOWS + CONVOLUTIONS + INDEXING + BITS
ERRORS = [
    "lax.reduce_window(m, i[0], lax.add, (2, 2), (1, 1), 'SAME')",
    "lax.reduce_window(m, 0., lax.add, (2,), (1,), 'SAME')",
    "lax.reduce_window(m, 0., lax.add, (2, 2), (0, 1), 'VALID')",
    "lax.reduce_window((m, m), 0., lax.add, (2, 2), (1, 1), 'VALID')",
    f"lax.conv_general_dilated(im, k2, (1, 1), 'SAME', dimension_numbers={NHWC})",
    f"lax.conv_general_dilated(im, ke, (1, 1), 'SAME', (2, 1), None, {NHWC})",
    f"lax.conv_general_dilated(im, ke, (1, 1), [1, 1], dimension_numbers={NHWC})",
    "lax.conv_general_dilated(im, ke, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWI', 'NHWC'))",
    "lax.conv_general_dilated(im, ke, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NXWC'))",
    "lax.conv_general_dilated(im, m, (1, 1), 'SAME')",
    "lax.padtype_to_pads((3,), (2,), (1,), 'FOO')",
    f"lax.gather(m, f[:, None], {ROWS}, (1, 4))", f"lax.gather(m, idx, {ROWS}, (1, 9))",
    f"lax.gather(m, idx, {ROWS}, (1, 4), mode='foo')", f"lax.scatter_add(m, idx, a3, {PUT})",
    f"lax.scatter_add(m, idx, m, {PUT})", "lax.dynamic_slice(m, (1,), (2, 2))",
    "lax.dynamic_slice(m, (1, 1), (2, 9))", "lax.dynamic_slice(m, (f[0], f[0]), (1, 1))",
    "lax.dynamic_update_slice(m, a3[:1], (0, 0))", "lax.dynamic_update_slice(m, f, (0, 0))",
]  # fmt: skip


@pytest.mark.parametrize("x64", (False, True), ids=("x32", "x64"))
@pytest.mark.parametrize("expression", TABLE, ids=str)
def test_same_as_jax(expression, x64):
    check(TABLE, expression, x64)


@pytest.mark.parametrize("expression", ERRORS)
def test_same_errors(expression):
    check_error(expression)


def test_64_bits():
    key = np.array([1, 2], np.uint64)
    with toile.enable_x64(True), jax.enable_x64(True):
        for algorithm in (0, 1):
            got, want = (
                p.lax.rng_bit_generator(key, (5,), np.uint64, algorithm) for p in (toile, jax)
            )
            np.testing.assert_array_equal(got[0], want[0])
            np.testing.assert_array_equal(got[1], want[1])


def test_uniform_numbers():
    x = np.asarray(toile.lax.rng_uniform(-1.0, 3.0, (1000,)))
    assert x.dtype == np.float32 and -1 <= x.min() < -0.9 and 2.9 < x.max() < 3
    y = np.asarray(toile.lax.rng_uniform(np.int32(-3), np.int32(4), (1000,)))
    assert sorted(set(y.tolist())) == list(range(-3, 4))
    assert not np.array_equal(x, toile.lax.rng_uniform(-1.0, 3.0, (1000,)))


def test_indexing_under_transformations():
    lax = toile.lax
    x = toile.numpy.arange(12.0).reshape(3, 4)
    starts = toile.numpy.array([0, -1, 5], np.int32)
    rows = toile.vmap(lambda i: lax.dynamic_slice_in_dim(x, i, 2, 1))(starts)
    np.testing.assert_array_equal(rows[1], np.asarray(x)[:, 2:])
    np.testing.assert_array_equal(rows[2], np.asarray(x)[:, 2:])
    picked = toile.jit(lambda i: lax.dynamic_index_in_dim(x, i, 0, False))(-1)
    np.testing.assert_array_equal(picked, np.asarray(x)[-1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("size", [5, 120, 300])
def test_starts_of_narrow_dtypes(dtype, size):
    """Starts count from the end also where the size of the axis does not fit their dtype."""
    x = np.arange(size, dtype=np.float32)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    slice_at = lambda x, s: lax.dynamic_slice(x, (s,), (3,))
    update_at = lambda x, s: lax.dynamic_update_slice(x, -x[:1], (s,))
    for start in (0, 1, high, low, high // 2, -3 if low else 3):
        s = np.asarray(start).astype(dtype)
        first = start + size if start < 0 else start
        want = x[min(max(first, 0), size - 3):][:3]
        changed = x.copy()
        changed[min(max(first, 0), size - 1)] = 0
        for run in (lambda f: f, toile.jit):
            np.testing.assert_array_equal(run(slice_at)(jnp.asarray(x), jnp.asarray(s)), want)
            np.testing.assert_array_equal(run(update_at)(jnp.asarray(x), jnp.asarray(s)), changed)
