"""What reads the result of a loop runs after it, however small it is."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax

RANDOM = np.random.default_rng(0)
W, XS, START = (RANDOM.normal(size=s).astype(np.float32) for s in ((4, 4), (6, 2, 4), (2, 4)))


def body(c, v, w):
    return jnp.sort(c @ w + v, axis=0)  # a sort is a step of its own: the loop is one of steps


def by_scan(n, w, xs, c):
    return lax.scan(lambda c, v: (body(c, v, w), c.sum()), c, xs[:n])[0]


def by_while(n, w, xs, c):
    return lax.fori_loop(0, n, lambda i, c: body(c, xs[i], w), c)


def in_place(n, w, xs, c):
    def step(i, total):
        return total.at[i % 2].set(jnp.sort(xs[i, 0] * 2))

    return lax.fori_loop(0, n, step, c)


@pytest.mark.parametrize("trips", [1, 2, 5, 6])
@pytest.mark.parametrize("loop", [by_scan, by_while, in_place])
def test_results_of_loops_are_read_after_them(loop, trips):
    def f(w, xs, c):
        before = jnp.sin(xs)  # a region in front of the loop, which later ones may not join
        d = loop(trips, w, xs, c)
        return jnp.cos(d), before, d

    found = toile.jit(f)(W, XS, START)
    with toile.disable_jit():
        wanted = f(*map(jnp.asarray, (W, XS, START)))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
