"""Arrays of dtypes that CuPy does not have: float8 and narrow integers, on a GPU as on the CPU."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.platforms.gpu.byte_arrays import has_dtype

FLOATS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e3m4", "float8_e4m3"]
DTYPES = [*FLOATS, "int4", "uint4", "int2", "uint2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_lacks_it(dtype):
    assert not has_dtype(jnp.dtype(dtype))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "complex64"])
def test_cupy_has_it(dtype):
    assert has_dtype(jnp.dtype(dtype))


def elements(dtype):
    high = {"int4": 8, "uint4": 16, "int2": 2, "uint2": 4}.get(dtype, 4)
    low = 0 if dtype.startswith("u") else -min(high, 4)
    rows = np.random.default_rng(0).integers(low, high - 1, (60, 70))  # x + 1 fits
    return rows.astype(jnp.dtype(dtype))


def same(got, want):
    assert str(got.dtype) == str(want.dtype) and got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got).view("uint8"), np.asarray(want).view("uint8"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_on_a_gpu(dtype):
    host = elements(dtype)
    x = toile.device_put(host, toile.devices("gpu")[0])
    same(x, host)
    same(x[3:, ::2], host[3:, ::2])
    same(toile.jit(lambda x: x.T)(x), host.T)
    same(toile.jit(lambda x: (x.astype(jnp.float32) + 1).astype(x.dtype))(x),
         (host.astype("float32") + 1).astype(host.dtype))
    same(jnp.asarray(x.astype(jnp.float32), dtype), host)
    same(jnp.concatenate([x, x]), np.concatenate([host, host]))
    same(toile.jit(lambda i: jnp.asarray(host)[i])(jnp.arange(5)), host[:5])
    same(lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint8), x.dtype)
         if dtype.startswith("float8") else x, host)
    assert x.nbytes == host.nbytes and dtype in repr(x)
    same(toile.device_get(x), host)


@pytest.mark.gpu
def test_nan_is_found_in_float8():
    x = jnp.full((64, 64), 1.0).astype(jnp.float8_e5m2)
    with toile.checks("nan"):
        toile.jit(lambda x: x * 2)(x).block_until_ready()
        with pytest.raises(FloatingPointError):
            toile.jit(lambda x: x * jnp.float8_e5m2(jnp.nan))(x).block_until_ready()


@pytest.mark.gpu
def test_other_libraries_are_told():
    x = toile.jit(lambda x: x.astype(jnp.float8_e4m3fn))(jnp.ones((64, 64)))
    with pytest.raises(BufferError, match="bitcast_convert_type"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="float8_e4m3fn"):
        x.__cuda_array_interface__  # noqa: B018
