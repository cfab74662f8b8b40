"""Transcendental functions: values and every rule against jax.lax."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import check
from toile.engine.conversion import as_array
from toile.primitives import transcendental

NAMES = (
    "exp exp2 expm1 log1p logistic sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh"
).split()
POSITIVE = {"sqrt", "rsqrt"}


def points(name, shape):
    rng = np.random.default_rng(0)
    if name == "acosh":
        return rng.uniform(1.2, 4, shape).astype(np.float32)
    low = 0.1 if name in POSITIVE else -0.9
    return rng.uniform(low, 0.9, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (3, 4)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_real(name, shape):
    x = points(name, shape)
    check(getattr(transcendental, name), getattr(lax, name), x, second=bool(shape),
          vmap=bool(shape), rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "cbrt"])
def test_complex(name):
    rng = np.random.default_rng(0)
    shape = (2, 3)
    x = rng.uniform(0.2, 0.9, shape) + 1j * rng.uniform(-0.9, 0.9, shape)
    check(getattr(transcendental, name), getattr(lax, name), x.astype(np.complex64), vmap=False,
          rtol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
@pytest.mark.parametrize("name", NAMES)
def test_narrow(name, dtype):
    x = points(name, (20,)).astype(dtype)
    eps = float(jnp.finfo(dtype).eps)
    check(getattr(transcendental, name), getattr(lax, name), x, vmap=False, rtol=3 * eps,
          atol=eps)


@pytest.mark.parametrize("shapes", [((), ()), ((3, 4), (3, 4))], ids=str)
def test_atan2(shapes):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in shapes)
    check(transcendental.atan2, lax.atan2, x, y, second=True)


@pytest.mark.parametrize("name", NAMES)
def test_edges(name):
    x = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 90.0, -90.0], np.float32)
    got = np.asarray(getattr(transcendental, name)(as_array(x)))
    np.testing.assert_allclose(got, np.asarray(getattr(lax, name)(x)), rtol=1e-5, atol=2e-6)


def test_scalars_and_arrays_mix():
    x = as_array(np.ones((2, 3), np.float32))
    out = transcendental.atan2(x, as_array(np.float32(1)))
    np.testing.assert_allclose(np.asarray(out), np.full((2, 3), np.pi / 4), rtol=1e-6)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="exp does not accept dtype int32: needed float or complex"):
        transcendental.Exp().infer(as_array(np.arange(3)).aval)
