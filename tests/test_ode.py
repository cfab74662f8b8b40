"""odeint: solutions and gradients against JAX, its transformations, and what it refuses."""

import jax
import numpy as np
import pytest
from jax.experimental.ode import odeint as theirs

import toile
import toile.numpy as jnp
from tests.random.oracle import x64
from toile.experimental.ode import odeint as ours

pytestmark = pytest.mark.cpu  # the numbers of 64-bit integrations, which JAX makes on the CPU

LIBS = ((toile, ours), (jax, theirs))
TIMES = np.array([0.0, 0.4, 1.0, 1.1])


def pendulum(lib):
    return lambda y, t, damping, pull: lib.numpy.stack(
        [y[1], -damping * y[1] - pull * lib.numpy.sin(y[0])])


def lorenz(lib):
    def slope(s, t, p):
        x, (y, z) = s["x"], s["yz"]
        return {"x": p["a"] * (y - x), "yz": (x * (p["b"] - z) - y, x * y - p["c"] * z)}

    return slope


def turning(lib):
    return lambda y, t, w: 1j * w * y + lib.numpy.array([0.1j, 0.2]) * t


def forced(lib):
    return lambda y, t: y - lib.numpy.sin(t) * lib.numpy.cos(5 * t)


STATE = {"x": 1.0, "yz": (np.array([2.0]), np.array([3.0]))}
SOLVED = {
    "pendulum": (pendulum, np.array([3.0, 0.0]), (0.25, 9.8), {}),
    "complex": (turning, np.array([1 + 1j, 0.5]), (np.array([1.0, 2.0]),), {}),
    "few short steps": (forced, np.ones(2), (), {"hmax": 0.05, "mxstep": 5, "rtol": 1e-4}),
}


def plain(tree):
    """The leaves of a tree of either library, as NumPy arrays."""
    return [np.asarray(x) for x in jax.tree.leaves(toile.tree.map(np.asarray, tree))]


def check(tree, other, rtol):
    pairs = list(zip(plain(tree), plain(other), strict=True))
    for x, y in pairs:
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", SOLVED)
def test_solutions(name):
    make, y0, args, options = SOLVED[name]
    with x64(True):
        found = [odeint(make(lib), y0, TIMES, *args, **options) for lib, odeint in LIBS]
        check(*found, 1e-10)


def test_solutions_in_fewer_bits():
    with x64(True):
        exact = np.asarray(ours(pendulum(toile), np.array([3.0, 0.0]), TIMES, 0.25, 9.8))
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 1e-2)):
        y0, times = np.array([3.0, 0.0], dtype), TIMES.astype(np.float32)
        found = ours(pendulum(toile), y0, times, 0.25, 9.8, rtol=tolerance, atol=tolerance)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, exact, rtol=10 * tolerance, atol=10 * tolerance)


def all_gradients(lib, odeint):
    """Of a tree of states, the times and the arguments, and of a value closed over."""
    def loss(y0, times, args, hidden):
        slope = lorenz(lib)

        def inner(y, t, p):
            made = slope(y, t, p)
            return {"x": made["x"] - hidden * lib.numpy.sin(t), "yz": made["yz"]}

        out = odeint(inner, y0, times, args)
        return lib.numpy.sum(out["x"] ** 2) + lib.numpy.sum(out["yz"][1] * out["yz"][0])

    args = {"a": 2.0, "b": 3.0, "c": 1.5}
    return lib.value_and_grad(loss, (0, 1, 2, 3))(STATE, lib.numpy.asarray(TIMES), args, 0.5)


def complex_gradients(lib, odeint):
    def loss(y0, w):
        return lib.numpy.sum(abs(odeint(turning(lib), y0, lib.numpy.asarray(TIMES), w)) ** 3)

    return lib.grad(loss, (0, 1))(np.array([1 + 1j, 0.5]), np.array([1.0, 2.0]))


@pytest.mark.parametrize("gradients", [all_gradients, complex_gradients])
def test_gradients(gradients):
    with x64(True):
        check(*(gradients(lib, odeint) for lib, odeint in LIBS), 1e-9)


def decay(y, t, rate):
    return -rate * y


def test_jit_and_vmap_give_the_same():
    times, rates = jnp.linspace(0.0, 1.0, 4), jnp.array([0.5, 1.0, 2.0])
    solve = lambda rate: ours(decay, jnp.ones(2), times, rate, rtol=1e-5, atol=1e-5)
    slope = toile.grad(lambda rate: solve(rate).sum())
    each = [solve(r) for r in rates]
    np.testing.assert_allclose(toile.vmap(solve)(rates), np.stack(each), rtol=1e-5)
    np.testing.assert_allclose(toile.jit(solve)(rates[1]), each[1], rtol=1e-6)
    slopes = np.array([slope(r) for r in rates])
    np.testing.assert_allclose(toile.vmap(slope)(rates), slopes, rtol=1e-4)
    np.testing.assert_allclose(toile.jit(toile.vmap(slope))(rates), slopes, rtol=1e-4)
    exact = -2 * (np.asarray(times)[:, None] * np.exp(-np.outer(times, rates))).sum(0)
    np.testing.assert_allclose(slopes, exact, rtol=1e-3)


def test_second_derivatives():
    with x64(True):
        solve = lambda y: ours(lambda y, t: -y * y, y, jnp.array([0.0, 1.0]), rtol=1e-9, atol=1e-9)
        second = toile.grad(toile.grad(lambda y: solve(y)[1]))(0.5)
        assert float(second) == pytest.approx(-2 / 1.5**3, rel=1e-6)  # y(1) = y0 / (1 + y0)


def test_integers_have_no_gradient_but_may_be_there():
    times = jnp.array([0.0, 1.0])

    def loss(y, n):
        given = ours(decay, y, times, n, rtol=1e-5, atol=1e-5)
        hidden = ours(lambda y, t: -n * y, y, times, rtol=1e-5, atol=1e-5)
        return given[1] + hidden[1]

    one = toile.jit(toile.grad(loss))(1.0, 2)
    assert float(one) == pytest.approx(2 * np.exp(-2), rel=1e-3)
    mapped = toile.vmap(toile.grad(loss), (None, 0))(1.0, jnp.arange(1, 3))
    np.testing.assert_allclose(mapped, 2 * np.exp([-1.0, -2.0]), rtol=1e-3)


def test_states_without_arrays_and_single_times():
    assert ours(lambda y, t: y, (), jnp.array([0.0, 1.0])) == ()
    np.testing.assert_array_equal(ours(decay, 2.0, jnp.array([3.0]), 1.0), [2.0])


def test_times_that_cannot_be_reached_are_nan():
    assert np.isnan(ours(lambda y, t: y / 0.0, 1.0, jnp.array([0.0, 1.0]))[1])
    assert np.isnan(ours(decay, 1.0, jnp.array([1.0, 0.0]), 1.0)[1])  # backwards
    found = ours(decay, 1.0, jnp.array([0.0, 0.0, 1.0, 1.0]), 1.0)
    np.testing.assert_allclose(found, [1.0, np.nan, np.exp(-1), np.exp(-1)], rtol=1e-5)


def test_a_function_is_compiled_once():
    calls = []

    def slope(y, t):
        calls.append(1)
        return -y

    times = jnp.array([0.0, 1.0])
    ours(slope, 1.0, times)
    first = len(calls)
    ours(slope, 2.0, times)
    assert len(calls) == first + 1  # to see what it closes over


TWO = np.float32([0.0, 1.0])
REFUSED = {
    "an object": lambda odeint: odeint(decay, 1.0, TWO, object()),
    "a string": lambda odeint: odeint(decay, 1.0, TWO, "a"),
    "times that are integers": lambda odeint: odeint(decay, 1.0, np.arange(2), 1.0),
    "times in a list": lambda odeint: odeint(decay, 1.0, [0.0, 1.0], 1.0),
    "one time": lambda odeint: odeint(decay, 1.0, np.float32(1), 1.0),
    "no times": lambda odeint: odeint(decay, 1.0, TWO[:0], 1.0),
    "a state of integers": lambda odeint: odeint(decay, 1, TWO, 1),
    "another shape": lambda odeint: odeint(lambda y, t: np.ones(3), np.ones(2), TWO),
    "a complex slope": lambda odeint: odeint(lambda y, t: 1j * y, np.ones(2), TWO),
    "too many slopes": lambda odeint: odeint(lambda y, t: np.ones(2), 1.0, TWO),
    "times too narrow": lambda odeint: odeint(decay, 1.0, TWO.astype(np.float16), 1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors(name):
    with pytest.raises((TypeError, ValueError, AttributeError, IndexError)) as expected:
        REFUSED[name](theirs)
    with pytest.raises(expected.type):
        REFUSED[name](ours)


def test_forward_mode_is_refused():
    with pytest.raises(TypeError, match="forward-mode"):
        toile.jvp(lambda y: ours(decay, y, jnp.asarray(TWO), 1.0), (1.0,), (1.0,))


def test_what_the_errors_say():
    with pytest.raises(TypeError, match="must be arrays or scalars, but got a"):
        ours(decay, 1.0, TWO, "a")
    with pytest.raises(TypeError, match="t must be an array of floats"):
        ours(decay, 1.0, np.arange(2), 1.0)
