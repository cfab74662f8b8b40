"""Window reductions: values and every rule against jax.lax."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import toile
from tests.primitives.rules import check, check_eager
from toile.engine.conversion import as_array
from toile.primitives import windows
from toile.transforms.linearize import linearize_flat
from toile.transforms.transpose import backward

# shape, window, strides, padding, base dilation, window dilation
GEOMETRIES = {
    "pool": ((2, 6, 5, 2), (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0),) * 4, None, None),
    "same": ((7,), (3,), (2,), ((1, 1),), None, None),
    "overlap": ((5, 6), (3, 2), (1, 2), ((1, 2), (0, 1)), None, None),
    "base": ((4, 3), (2, 3), (1, 2), ((1, 0), (2, 1)), (2, 3), None),
    "negative": ((7,), (2,), (1,), ((-1, -1),), None, None),
    "dilated": ((8,), (3,), (1,), ((0, 1),), None, (2,)),
}
KINDS = {
    "Sum": (lax.add, 0.0), "Max": (lax.max, -jnp.inf), "Min": (lax.min, jnp.inf),
    "Prod": (lax.mul, 1.0),
}  # fmt: skip


def geometry(name):
    shape, window, strides, padding, base, dilation = GEOMETRIES[name]
    ones = (1,) * len(shape)
    return shape, (window, strides, padding, base or ones, dilation or ones)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_reduce_window(name, kind):
    shape, fields = geometry(name)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    function, start = KINDS[kind]

    def reference(x):
        return lax.reduce_window(x, start, function, *fields)

    op = getattr(windows, f"ReduceWindow{kind}")(*fields)
    unsupported = name in ("dilated", "negative") and kind != "Sum"
    if kind == "Prod" or unsupported:  # JAX has no vjp for these
        check(op, reference, x, grad=False)
        return
    check(op, reference, x, second=kind == "Max" and name == "overlap")


@pytest.mark.parametrize("name", GEOMETRIES)
def test_product_gradient(name):
    shape, fields = geometry(name)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    results, tape = linearize_flat(lambda x: [windows.ReduceWindowProd(*fields)(x)], [as_array(x)])
    weights = np.random.default_rng(1).normal(size=results[0].shape).astype(np.float32)
    (got,) = backward(tape, [as_array(weights)])

    def total(x):
        return (lax.reduce_window(x, 1.0, lax.mul, *fields) * weights).sum()

    eps = 1e-2
    for index in [(0,) * x.ndim, tuple(n // 2 for n in shape)]:
        up, down = x.copy(), x.copy()
        up[index] += eps
        down[index] -= eps
        slope = (total(up) - total(down)) / (2 * eps)
        np.testing.assert_allclose(np.asarray(got)[index], slope, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_ties_choose_the_first(kind):
    x = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], np.float32)
    fields = ((3,), (1,), ((1, 1),), (1,), (1,))
    function, start = KINDS[kind]
    check(getattr(windows, f"ReduceWindow{kind}")(*fields),
          lambda x: lax.reduce_window(x, start, function, *fields), x)


@pytest.mark.parametrize("kind", ["And", "Or"])
def test_logical(kind):
    x = np.random.default_rng(0).integers(0, 2, (5, 4)).astype(bool)
    fields = ((2, 2), (1, 2), ((0, 1), (0, 0)), (1, 1), (1, 1))
    function = {"And": lax.bitwise_and, "Or": lax.bitwise_or}[kind]
    op = getattr(windows, f"ReduceWindow{kind}")(*fields)
    check(op, lambda x: lax.reduce_window(x, np.bool_(kind == "And"), function, *fields), x)


def test_integers():
    x = np.arange(10, dtype=np.int32)
    fields = ((3,), (2,), ((1, 1),), (1,), (1,))
    check_eager(windows.ReduceWindowMax(*fields),
                lambda x: lax.reduce_window(x, np.int32(-(2**31)), lax.max, *fields), [x], 0, 0)


def test_errors():
    with pytest.raises(TypeError, match="reduce_window_sum .*: needed a positive window"):
        windows.ReduceWindowSum((2,), (1,), ((0, 0),), (1,), (1,)).infer(
            as_array(np.ones((2, 2), np.float32)).aval
        )


@pytest.mark.parametrize("shape, window, spread", [
    ((3, 4, 6, 2), (1, 2, 3, 1), True),
    ((3, 5, 6, 2), (1, 2, 3, 1), False),  # a row that is in no window
    ((4,), (4,), True),
    ((4, 6), (1, 1), True),
])
def test_gradients_of_windows_side_by_side(shape, window, spread):
    op = windows.ReduceWindowSum(window, window, ((0, 0),) * len(shape), (1,) * len(shape),
                                 (1,) * len(shape))
    x = np.random.default_rng(0).normal(size=shape).astype("f4")
    y, back = toile.vjp(op, x)
    ct = np.arange(1, y.size + 1, dtype="f4").reshape(y.shape)
    expected = ct
    for axis, n in enumerate(window):
        expected = np.repeat(expected, n, axis)
    expected = np.pad(expected, [(0, n - m) for n, m in zip(shape, expected.shape, strict=True)])
    np.testing.assert_array_equal(np.asarray(back(ct)[0]), expected)
    names = [e.primitive.name for e in toile.make_jaxpr(lambda ct: back(ct))(ct).eqns]
    assert ("reduce_window_sum" not in names) == spread
