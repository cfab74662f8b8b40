"""Scatters and gathers whose kernels have constants: repeated updates, dense single elements."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp

RNG = np.random.default_rng(0)
DTYPES = ["float32", "float64", "int8", "int32", ml_dtypes.bfloat16, "complex64", "bool"]


def numbers(shape, dtype):
    x = RNG.integers(0, 2 if dtype == "bool" else 20, shape)
    return x.astype(dtype)


def same(f, *args, threads=(1, 2, 8)):
    with toile.enable_x64():
        want = np.asarray(f(*map(jnp.asarray, args)))
        for n in threads:
            with toile.threads(n):
                got = np.asarray(toile.jit(lambda *xs: f(*xs))(*args))
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got.astype("c16"), want.astype("c16"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("method", ["set", "add", "multiply", "min", "max"])
def test_one_number_for_whole_rows(method, dtype):
    if method in ("min", "max") and dtype == "complex64":
        pytest.skip("complex numbers have no order")
    x, i = numbers((37, 600), dtype), RNG.integers(-40, 40, 50)
    value = np.asarray(3 if dtype != "bool" else 1).astype(dtype)
    same(lambda x, i, v: getattr(x.at[i], method)(v), x, i, value)
    same(lambda x, i, v: getattr(x.at[:, i % 600], method)(v), x, i, value)
    one = numbers((50, 1), dtype)  # a number for each row
    same(lambda x, i, v: getattr(x.at[i], method)(v), x, i, one)


@pytest.mark.parametrize("mode", ["drop", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("index", ["int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, "int64"], ids=str)
def test_single_elements(dtype, index, mode):
    x = numbers((90,), dtype)
    low, high = (0, 90) if mode == "promise_in_bounds" else (-100, 120)
    i = np.clip(RNG.integers(low, high, 20_000), np.iinfo(index).min, None).astype(index)
    updates = numbers((20_000,), dtype)
    same(lambda x, i, u: x.at[i].add(u, mode=mode), x, i, updates)
    same(lambda x, i, u: x.at[i].set(u, mode=mode), x, i, updates)
    reads = {"drop": "fill"}.get(mode, mode)
    same(lambda x, i: x.at[i].get(mode=reads), x, i)
    same(lambda x, i: jnp.take(x.reshape(9, 10), i % 10, axis=1), x, i)


def test_views_of_elements():
    """Operands that are not dense, next to those that are."""
    x, i = numbers((64, 48), "float32"), RNG.integers(0, 64, 300).astype("int32")
    for view in (lambda x: x[:, 3], lambda x: x[::2, 1], lambda x: x.T[5], lambda x: x[::-1, 0]):
        same(lambda x, i, view=view: view(x)[i % 32], x, i)
        same(lambda x, i, view=view: view(x).at[i[::3] % 32].add(1.0), x, i)
