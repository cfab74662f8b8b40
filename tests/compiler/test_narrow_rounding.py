"""Kernels round narrow floats to nearest, ties to even, whichever family stores them."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax

# Numbers whose sum with 1 lies exactly between two neighbours: the even one is below, then above.
TIES = {ml_dtypes.bfloat16: (256, 258, -256, -258), np.float16: (2048, 2050, -2048, -2050)}

FAMILIES = {
    "cumsum": lambda x, y: jnp.cumsum(jnp.stack([x, y], 1), 1)[:, 1],
    "cumsum of columns": lambda x, y: jnp.cumsum(jnp.stack([x, y]), 0)[1],
    "window": lambda x, y: lax.reduce_window(
        jnp.stack([x, y], 1), 0.0, lax.add, (1, 2), (1, 2), "VALID")[:, 0],
    "scatter": lambda x, y: x.at[jnp.arange(x.size)].add(y),
    "product": lambda x, y: (jnp.stack([x, y], 1) @ jnp.ones((2, 1), x.dtype))[:, 0],
    "nest": lambda x, y: x + y,
    "sum": lambda x, y: jnp.stack([x, y], 1).sum(1),
}


@pytest.mark.parametrize("dtype", TIES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("family", FAMILIES)
def test_ties_go_to_even(family, dtype):
    x = np.repeat(np.array(TIES[dtype], dtype), 9)  # longer than a vector, and a rest
    y = np.sign(x.astype(np.float32)).astype(dtype)
    wanted = (x.astype(np.float32) + y.astype(np.float32)).astype(dtype)
    found = toile.jit(FAMILIES[family])(jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_array_equal(np.asarray(found).astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", TIES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("family", FAMILIES)
def test_nan_and_infinity_stay(family, dtype):
    x = np.array([np.nan, np.inf, -np.inf, 1.0], dtype)
    found = toile.jit(FAMILIES[family])(jnp.asarray(x), jnp.zeros(4, dtype))
    np.testing.assert_array_equal(np.asarray(found).astype(np.float32), x.astype(np.float32))
