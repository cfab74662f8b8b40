"""Samplers whose numbers are JAX's to the bit."""

import jax
import numpy as np
import pytest

import toile
from tests.random.oracle import check_equal, x64
from toile import numpy as jnp
from toile import random
from toile.random import _arguments

SHAPES = [(), (1,), (7,), (0,), (3, 5), (193,), (1001,), (2, 3, 4)]
N = 5001


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["bits", "uniform", "rademacher"])
def test_shapes(name, shape):
    check_equal(name, shape, seed=3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_uniform_dtypes(dtype):
    check_equal("uniform", (N,), dtype)


@pytest.mark.parametrize("on", [False, True])
def test_million(on):
    with x64(on):
        check_equal("uniform", (10**6,), seed=1)
        check_equal("randint", (10**6 + 1,), 0, 1000, seed=1)


BOUNDS = [(-1, 1), (0.1, 3.3), (-3, 7), (5.0, 5.0), (1e-3, 1e3), (2, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_uniform_bounds(bounds, dtype):
    check_equal("uniform", (N,), dtype, *bounds)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_uniform_bounds_float16(bounds, native, monkeypatch):
    """As XLA, toile rounds the product only where the processor has no float16 arithmetic."""
    monkeypatch.setattr(_arguments, "float16_is_native", lambda: native)
    low, high = np.float16(bounds)
    unit = np.asarray(random.uniform(random.key(0), (N,), "float16")).astype("float64")
    product = unit * np.float64(high - low)
    if not native:
        product = product.astype("float16").astype("float64")
    want = np.maximum((product + np.float64(low)).astype("float16"), low)
    found = random.uniform(random.key(0), (N,), "float16", *bounds)
    np.testing.assert_array_equal(np.asarray(found), want)
    arrays = random.uniform(random.key(0), (N,), "float16", jnp.asarray(low), jnp.asarray(high))
    np.testing.assert_array_equal(np.asarray(arrays), want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_uniform_between_traced_bounds(bounds, dtype):
    def draw(low, high):
        return random.uniform(random.key(0), (N,), dtype, low, high)

    bounds = [jnp.asarray(b, dtype) for b in bounds]
    np.testing.assert_array_equal(np.asarray(toile.jit(draw)(*bounds)), np.asarray(draw(*bounds)))


def test_uniform_array_bounds():
    low = np.arange(N, dtype=np.float32) * np.float32(0.1)
    high = low[:5, None] + np.float32(3.3)
    check_equal("uniform", (N,), minval=low, maxval=2000.0)
    check_equal("uniform", (5, N), minval=low, maxval=high)


def test_uniform_x64():
    with x64(True):
        check_equal("bits", (N,))
        check_equal("uniform", (N,))
        check_equal("uniform", (N,), minval=0.1, maxval=3.3)
        check_equal("uniform", (N,), "float32")
        check_equal("uniform", (N,), "bfloat16")


RANGES = [(0, 10, None), (-5, 2**31 - 1, None), (-(2**31), 2**31 - 1, None), (5, 5, None),
          (7, 2, None), (0, 256, "uint8"), (-128, 128, "int8"), (0, 65536, "uint16"),
          (0, 7, "uint32"), (0, 2**31 - 1, "uint32"), (0, 1024, None), (-300, 300, "int8"),
          (0, 1, None)]


@pytest.mark.parametrize("low, high, dtype", RANGES)
def test_randint(low, high, dtype):
    check_equal("randint", (N,), low, high, dtype)
    check_equal("randint", (N,), np.asarray(low), np.asarray(high), dtype)


def test_randint_arrays():
    low = np.arange(N, dtype=np.int32)
    check_equal("randint", (N,), low, 3 * low)
    check_equal("randint", (3, N), low, np.array([[5], [10**6], [0]]))
    check_equal("randint", (N,), np.uint32(3), np.uint32(2**32 - 1), "uint32")


def test_randint_x64():
    with x64(True):
        check_equal("randint", (N,), 0, 10)
        check_equal("randint", (N,), -(2**62), 2**63 - 1)
        check_equal("randint", (N,), 0, 2**32, "uint32")
        check_equal("randint", (N,), -5, 5, "int16")


@pytest.mark.parametrize("mode", ["low", "high"])
def test_bernoulli(mode):
    check_equal("bernoulli")
    check_equal("bernoulli", 0.3, (N,), mode)
    check_equal("bernoulli", np.linspace(0, 1, N, dtype=np.float32), mode=mode)
    check_equal("bernoulli", np.float32([0.1, 0.9]), (N, 2), mode)
    check_equal("bernoulli", np.float16(0.25), (N,), mode)


@pytest.mark.parametrize("n", [0, 1, 2, 10, 1000, 3000])
def test_permutation_of_range(n):
    check_equal("permutation", n)


def test_permutation_of_arrays():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis in (0, 1, -1):
        check_equal("permutation", x, axis)
        check_equal("permutation", x, axis, True)
    check_equal("permutation", np.arange(2000) * 2)


def test_choice():
    check_equal("choice", 100, (N,))
    check_equal("choice", 100)
    check_equal("choice", 100, (50,), False)
    check_equal("choice", np.arange(12.0, dtype=np.float32).reshape(3, 4), (2, 2), True, None, 1)
    check_equal("choice", np.arange(12).reshape(3, 4), (2,), False)
    p = np.float32([0.1, 0.2, 0.3, 0.2, 0.2])
    check_equal("choice", 5, (N,), True, p)
    check_equal("choice", 5, (3,), False, p)
    check_equal("choice", np.float32([9, 8, 7, 6, 5]), (4, 3), True, p)
    check_equal("choice", 5, (0,))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_categorical(axis):
    logits = np.linspace(-1, 1, 50, dtype=np.float32).reshape(5, 10)
    check_equal("categorical", logits, axis)
    rest = logits.shape[:axis] + logits.shape[axis:][1:]
    check_equal("categorical", logits, axis, (100, *rest))
    check_equal("categorical", logits, axis, (4, *rest), False)


def test_vmap_and_jit_agree_with_eager():
    keys = random.split(random.key(0), 4)

    def draw(k):
        return random.randint(k, (5,), 0, 99), random.permutation(k, 9), random.bernoulli(k, 0.3)

    mapped, staged = toile.vmap(draw)(keys), toile.jit(toile.vmap(draw))(keys)
    for i in range(4):
        for one, a, b in zip(draw(keys[i]), mapped, staged, strict=True):
            np.testing.assert_array_equal(one, a[i])
            np.testing.assert_array_equal(one, b[i])


def test_gradient_through_bounds():
    def mean(r, lo, hi, k):
        return r.uniform(k, (100,), minval=lo, maxval=hi).mean()

    found = toile.grad(lambda lo, hi: mean(random, lo, hi, random.key(0)), (0, 1))(0.5, 2.0)
    want = jax.grad(lambda lo, hi: mean(jax.random, lo, hi, jax.random.key(0)), (0, 1))(0.5, 2.0)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_errors():
    k = random.key(0)
    with pytest.raises(ValueError, match="float"):
        random.uniform(k, (2,), int)
    with pytest.raises(ValueError, match="unsigned"):
        random.bits(k, (2,), np.int32)
    with pytest.raises(TypeError, match="integer"):
        random.randint(k, (2,), 0, 5, np.float32)
    with pytest.raises(TypeError, match="floating"):
        random.bernoulli(k, 1)
    with pytest.raises(ValueError, match="mode"):
        random.bernoulli(k, 0.5, mode="none")
    with pytest.raises(TypeError, match="[Ss]hape"):
        random.uniform(k, 1.5)
    with pytest.raises(ValueError):
        random.uniform(k, (-1,))
    with pytest.raises(ValueError, match="larger sample"):
        random.choice(k, 3, (5,), replace=False)
    with pytest.raises(ValueError, match="greater than 0"):
        random.choice(k, 0, (5,))
    with pytest.raises(TypeError, match="sequence"):
        random.choice(k, 3, 5)
    with pytest.raises(ValueError, match="broadcast"):
        random.bernoulli(k, np.ones((3,), np.float32) / 2, (2,))
    with pytest.raises(TypeError):
        random.permutation(k, 2.5)
