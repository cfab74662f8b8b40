"""A jitted function that closes over equal arrays computes what depends on them once."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine import equal_constants

ANGLES = np.linspace(0, 1, 6, dtype=np.float32)


def layers(x, *, arrays):
    for a in arrays:
        x = x * jnp.cos(jnp.asarray(a.copy()))
    return x


def held(fun, *args):
    traced = toile.jit(fun).trace(*args).jaxpr
    return [np.asarray(c) for c in traced.consts]


CASES = {
    "equal": ([ANGLES] * 4, 1),
    "two kinds": ([ANGLES, -ANGLES, ANGLES, -ANGLES], 2),
    "signed zeros": ([ANGLES * 0, ANGLES * -0.0], 2),
    "dtypes": ([np.ones(6, np.float32), np.ones(6, np.int32)], 2),
    "NaN": ([ANGLES * np.nan] * 3, 1),
    "one": ([ANGLES], 1),
}


@pytest.mark.parametrize("name", CASES)
def test_one_of_equal_arrays_stays(name):
    arrays, count = CASES[name]
    fun = lambda x: layers(x, arrays=arrays)
    x = jnp.arange(6, dtype=jnp.float32)
    assert len(held(fun, x)) == count
    wanted = toile.make_jaxpr(fun)(x)
    assert len(wanted.consts) == len(arrays)  # as in jax
    np.testing.assert_allclose(toile.jit(fun)(x), fun(x), rtol=1e-6)
    given = np.asarray(toile.grad(lambda x: toile.jit(fun)(x).sum())(x))
    np.testing.assert_allclose(given, toile.grad(lambda x: fun(x).sum())(x), rtol=1e-6)


def test_an_array_may_be_returned_twice():
    fun = toile.jit(lambda x: (jnp.asarray(ANGLES.copy()), x, jnp.asarray(ANGLES.copy())))
    a, _, b = fun(1.0)
    np.testing.assert_array_equal(a, b)
    assert held(lambda x: fun(x), 1.0)


def test_large_arrays_are_not_compared(monkeypatch):
    fun = lambda x: layers(x, arrays=[ANGLES] * 2)
    monkeypatch.setattr(equal_constants, "MOST_BYTES", ANGLES.nbytes - 1)
    assert len(held(fun, jnp.ones(6))) == 2


def test_deleted_arrays_raise_their_own_error():
    a, b = jnp.asarray(ANGLES), jnp.asarray(ANGLES)
    a.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        toile.jit(lambda x: x * a * b)(1.0)


def test_keys_and_refs_stay_apart():
    keys = [toile.random.key(0), toile.random.key(0)]
    f = toile.jit(lambda x: [x + toile.random.uniform(k) for k in keys])
    a, b = f(0.0)
    assert a == b
    refs = [toile.new_ref(jnp.zeros(6)) for _ in range(2)]
    toile.jit(lambda: refs[0].addupdate(jnp.ones(6)))()
    g = toile.jit(lambda: refs[0][...] - refs[1][...])
    np.testing.assert_array_equal(g(), np.ones(6))


def test_equal_arrays_beside_refs_that_are_written():
    r, s = toile.new_ref(jnp.zeros(6)), toile.new_ref(jnp.ones(6))

    @toile.jit
    def f(x):
        a = jnp.asarray(ANGLES.copy())
        r[...] = r[...] + x * a
        b = jnp.asarray(ANGLES.copy())
        s[...] = s[...] * b + a
        return x + a + b + r[...]

    sums, products = np.zeros(6), np.ones(6)
    for _ in range(3):
        sums, products = sums + ANGLES, products * ANGLES + ANGLES
        np.testing.assert_allclose(f(1.0), 1 + 2 * ANGLES + sums, rtol=1e-6)
    np.testing.assert_allclose(r[...], sums, rtol=1e-6)
    np.testing.assert_allclose(s[...], products, rtol=1e-6)
