"""Indices of a dtype that does not hold the size of the axis: nothing wraps around.

Each function with an index of int8 and uint8 in axes that fit and that do not, eagerly and
compiled, against NumPy with the same indices as int64.
"""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax

SIZES = (100, 300)


def _put(xp, x, n, mode):
    if xp is jnp:
        return jnp.put(x, n, 7.0, mode=mode, inplace=False)
    y = x.copy()
    np.put(y, n, 7.0, mode=mode)
    return y


def _dim(xp, x, n):
    return lax.dynamic_index_in_dim(x, n[3], keepdims=False) if xp is jnp else x[n[3]]


def _ravel(xp, x, n):
    return xp.ravel_multi_index((n % 5, n % 7), (5, x.size), mode="wrap").astype("int32")


def _hot(xp, x, n):
    if xp is jnp:
        return toile.nn.one_hot(n, x.size)
    return (np.arange(x.size) == n[:, None]).astype(np.float32)


FUNCTIONS = {
    "getitem": lambda xp, x, n: x[n],
    "scalar": lambda xp, x, n: x[n[3]],
    "take_wrap": lambda xp, x, n: xp.take(x, n, mode="wrap"),
    "take_clip": lambda xp, x, n: xp.take(x, n, mode="clip"),
    "take_along_axis": lambda xp, x, n: xp.take_along_axis(x, n, axis=0),
    "roll": lambda xp, x, n: xp.roll(x, n[3]),
    "put_wrap": lambda xp, x, n: _put(xp, x, n, "wrap"),
    "put_clip": lambda xp, x, n: _put(xp, x, n, "clip"),
    "unravel_index": lambda xp, x, n: xp.stack(
        [c.astype("int32") for c in xp.unravel_index(abs(n // 2), (x.size // 2, 2))]),
    "ravel_multi_index": _ravel,
    "one_hot": _hot,
    "dynamic_index_in_dim": _dim,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_narrow_indices(name, dtype, size):
    f = FUNCTIONS[name]
    x = np.arange(size, dtype=np.float32)
    n = np.array([0, 5, 99, -3 if dtype == "int8" else 97, 44])
    if size == 300:
        n = np.array([0, 5, 127, -100 if dtype == "int8" else 250, 44])
    want = f(np, x, n)
    for run in (lambda g: g, toile.jit):
        got = run(lambda x, n: f(jnp, x, n))(jnp.asarray(x), jnp.asarray(n.astype(dtype)))
        np.testing.assert_array_equal(np.asarray(got), want)
