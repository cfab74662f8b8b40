"""A body of a loop or branch has memory of its own, also where bodies share variables.

A checkpointed loop and its recomputation are made of the same variables, and one function may be
the body of several loops. Which of two plans a mix-up would favor depends on where objects lie, so
each program is compiled several times.
"""

import numpy as np
import pytest

import toile
from toile import lax
from toile import numpy as jnp

COMPILATIONS = 8  # the mix-up that these programs once showed came in about half of them
X, W = np.array([0.3, -0.7], "f"), np.array([0.9, 0.4], "f")


def scanned(inner, length=1):
    """A scan whose step has a value of its own that is neither input nor result."""
    return lambda x, w: (
        lax.scan(lambda c, _: (c, inner(w * c + 1)), x, None, length=length)[1] ** 2
    ).sum()


def matrix(v):
    return jnp.outer(v, v) + 3 * jnp.eye(2, dtype=v.dtype)


def branched(inner):
    def step(c, flag):
        return c, lax.cond(flag, lambda v: inner(v * w_of(v)), lambda v: v - 1, c)

    def w_of(v):
        return jnp.sin(v) + 2

    flags = np.array([True, False, True])
    return lambda x, w: (lax.scan(step, x * w, flags)[1] ** 2).sum()


PROGRAMS = {
    "sort": scanned(jnp.sort),
    "sort, three steps": scanned(jnp.sort, 3),
    "solve": scanned(lambda v: jnp.linalg.solve(matrix(v), v)),
    "inverse": scanned(lambda v: jnp.linalg.inv(matrix(v)) @ v),
    "cumulative sum": scanned(lambda v: jnp.cumsum(jnp.sort(v))),
    "branch": branched(jnp.sort),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_checkpointed_loops(name):
    f = PROGRAMS[name]
    value, gradient = toile.value_and_grad(f, 1)(X, W)
    for _ in range(COMPILATIONS):
        again = toile.jit(toile.value_and_grad(toile.checkpoint(lambda x, w: f(x, w)), 1))(X, W)
        np.testing.assert_allclose(again[0], value, rtol=1e-5)
        np.testing.assert_allclose(again[1], gradient, rtol=1e-4, atol=1e-6)


def test_one_function_in_two_loops():
    def step(c, _):
        return jnp.sort(c * 2 - 1), jnp.flip(jnp.sort(c))

    def f(x, y):
        return lax.scan(step, x, None, length=3), lax.scan(step, y, None, length=2)

    expected = f(X, W)
    for _ in range(COMPILATIONS):
        found = toile.jit(lambda x, y: f(x, y))(X, W)
        toile.tree.map(np.testing.assert_array_equal, found, expected)
