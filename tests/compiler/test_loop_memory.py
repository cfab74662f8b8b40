"""Memory of loops: initial values are changed where they were computed, and results that nothing
reads have none."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from toile import lax
from toile.platforms.gpu.target import Target

ARRAY = 300 * 40 * 4


def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=(300, 40)).astype("f4"))


def turned(x, turns, first):
    """A loop that needs both buffers of its carry: each turn reads all of it."""
    return lax.while_loop(lambda c: c[0] < turns, lambda c: (c[0] + 1, c[1][::-1] * 0.5 + x),
                          (jnp.asarray(0), first))[1]


def unread(x, n):
    """Only one of three arrays is read after the loop."""
    def body(c):
        i, a, b, d = c
        return i + 1, a[::-1] * 0.5 + b, jnp.flip(b, 1) * 0.9, jnp.flip(d) + a

    y = jnp.tanh(x) @ jnp.eye(40)
    return lax.while_loop(lambda c: c[0] < n, body, (jnp.asarray(0), y, y * 2, jnp.sort(y)))[1]


def read_later(x, n):
    y = jnp.sort(x)
    return turned(x, n, y) + y


def argument(x, n):
    return turned(x * 2, n, x), x


def returned(x, n):
    y = jnp.sort(x)
    return turned(x, n, y), y


def twice(x, n):
    """One value is the initial value of two carries, and a constant of the loop."""
    y = jnp.sort(x)
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[2][::-1] + y, c[1] * 0.5),
                          (jnp.asarray(0), y, y))[1:]


def viewed(x, n):
    y = jnp.sort(x)
    return turned(x.reshape(150, 80), n, y.reshape(150, 80)) + turned(x[:, :20], n, y[:, :20]).sum()


def updated(x, n):
    """The carry is updated in place."""
    y = jnp.sort(x)
    z = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1].at[c[0]].set(2.0)),
                       (jnp.asarray(0), y * 3))
    return z[1] + y


def nested(x, n):
    """The inner loop starts anew in each turn of the outer one."""
    def body(i, a):
        return turned(x, n, jnp.sort(a) * 0.3)

    return lax.fori_loop(0, 3, body, x)


def counted(x, n):
    """Loops whose number of turns is known."""
    y = jnp.sort(x)
    step = lambda i, a: a[::-1] * 0.5 + x
    return lax.fori_loop(0, 4, step, y) + lax.fori_loop(0, 3, step, y * 2)


def left(x, n):
    """A slice of the initial value is returned, too."""
    y = jnp.cumsum(x * 2, 0)
    return y[1:], turned(x, n, y)


def rows_set(x, n):
    """Carries that are updated in place, from initial values that the program computes."""
    first = [jnp.cumsum(x * i, 0) for i in range(1, 5)]
    turn = lambda c: (c[0] + 1, *(a.at[c[0]].set(1.0) for a in c[1:]))
    return lax.while_loop(lambda c: c[0] < n, turn, (jnp.asarray(0), *first))[1:]


LOOPS = [left, rows_set, unread, read_later, argument, returned, twice, viewed, updated, nested,
         counted]


@pytest.mark.parametrize("fun", LOOPS)
@pytest.mark.parametrize("turns", [0, 1, 4])
def test_values(fun, turns):
    args = x(), jnp.asarray(turns)
    with toile.disable_jit():
        wanted = toile.tree.leaves(fun(*args))
    f = toile.jit(fun)
    for _ in range(2):
        for a, b in zip(toile.tree.leaves(f(*args)), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-5)
    if fibers.available() and turns == 4:
        for a, b in zip(host_driver.results_of(fun, args), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-3, 1e-3)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_results_that_nothing_reads_have_no_memory(platform):
    """Two buffers for each of the three carries, of which one of each begins as the value that the
    program computes; the result itself is not a temporary."""
    p = toile.plan(unread, platform=platform)(x(), jnp.asarray(3))
    assert p.temporaries < 6.5 * ARRAY


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_initial_values_stay_where_they_are(platform):
    one = lambda x, n: turned(x, n, jnp.sort(x))
    p = toile.plan(one, platform=platform)(x(), jnp.asarray(3))
    later = toile.plan(read_later, platform=platform)(x(), jnp.asarray(3))
    assert p.temporaries < 2.5 * ARRAY < later.temporaries


def test_carries_that_are_updated_in_place_have_one_buffer(monkeypatch):
    """The four initial values, which are copied only to the results, and one more array for what
    the fourth of them is computed from, if they are computed one after the other."""
    monkeypatch.setattr(Target, "joins_equal", False)
    p = toile.plan(rows_set, platform="gpu")(x(), jnp.asarray(3))
    assert p.temporaries < 5.5 * ARRAY
