"""Reverse mode of while_loop: against scans of bounded length, finite differences and closed forms.

JAX has no reverse mode of while_loop, so it cannot serve as the oracle here.
"""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import toile
import toile.numpy as jnp
from toile import lax
from toile.control.loop_tape import Room, Visits
from toile.control.reverse_loop import ReverseLoop, _room
from toile.engine.avals import Aval

LONGEST = 12  # iterations of the loops in the table


def bounded(cond, body, init, length=LONGEST):
    """The same loop as a scan, whose steps change nothing once the condition is False."""
    def step(carry, _):
        going = cond(carry)
        new = body(carry)
        return toile.tree.map(lambda a, b: jnp.where(going, a, b), new, carry), None

    return lax.scan(step, init, None, length)[0]


def counted(step, limit=5):
    """(x, w) -> the value after `limit` steps."""
    def run(loop, x, w):
        start = 0, x
        return loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, step(c[1], w, c[0])), start)[1]

    return run


def until_large(loop, x, w):
    """The number of iterations depends on the values."""
    return loop(lambda c: (c < 20).all(), lambda c: c * (1 + w * w) + 0.3, x)


def several(loop, x, w):
    """Carries of several dtypes; some have no derivative."""
    def body(c):
        i, on, y, z = c
        return i + 1, ~on, jnp.where(on, jnp.sin(y) * w, y + z), z * y

    return loop(lambda c: c[0] < 7, body, (0, True, x, x * 0.5))[2:]


def unused(loop, x, w):
    """The derivative does not depend on all carries."""
    def body(c):
        i, y, z = c
        return i + 1, jnp.cos(y), z * w

    return loop(lambda c: c[0] < 4, body, (0, x, x))[2]


def indexed(loop, x, w):
    """Reads and writes elements of the carry."""
    def body(c):
        i, y = c
        return i + 1, y.at[i % 3].set(jnp.sin(y[(i + 1) % 3]) * w[i % 3])

    return loop(lambda c: c[0] < 6, body, (0, x))[1]


def started_late(loop, x, w):
    """A carry that has a tangent only because of a constant."""
    return loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, jnp.tanh(c[1] + w)), (0, jnp.ones(3)))[1]


def condition_on_constant(loop, x, w):
    """The condition reads a value that is differentiated."""
    return loop(lambda c: c[0].sum() < 3 + w.sum(), lambda c: (c[0] + x * x + 0.5,), (x,))[0]


@toile.custom_vjp
def sine(x):
    return jnp.sin(x)


sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))


@toile.custom_jvp
def cosine(x):
    return jnp.cos(x)


cosine.defjvp(lambda xs, ts: (cosine(*xs), -jnp.sin(xs[0]) * ts[0]))


def inner_loop(y, w, i):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1] * w)), (0, y))[1]


def keyed(loop, x, w):
    def body(c):
        i, y, key = c
        noise = toile.random.normal(toile.random.fold_in(key, i), (3,), y.dtype)
        return i + 1, jnp.sin(y * w) + 0.1 * noise, key

    return lax.while_loop(lambda c: c[0] < 5, body, (0, x, toile.random.key(3)))[1]


LOOPS = {
    "sine": counted(lambda y, w, i: jnp.sin(y * w) + 0.1 * y),
    "never": counted(lambda y, w, i: y * w, 0),
    "once": counted(lambda y, w, i: y * w, 1),
    "product": counted(lambda y, w, i: jnp.tanh(jnp.outer(w, y) @ y)),
    "branches": counted(lambda y, w, i: lax.cond(i % 2 == 0, jnp.sin, lambda y: y * w, y)),
    "scan inside": counted(
        lambda y, w, i: lax.scan(lambda c, _: (jnp.sin(c) * w, None), y, None, 3)[0]),
    "while inside": counted(inner_loop),
    "custom_vjp": counted(lambda y, w, i: sine(y) * w),
    "custom_jvp": counted(lambda y, w, i: cosine(y) * w),
    "checkpoint inside": counted(toile.checkpoint(lambda y, w, i: jnp.sin(y) * jnp.exp(-y * w))),
    "jit inside": counted(toile.jit(lambda y, w, i: jnp.sin(y) * w)),
    "until large": until_large,
    "several carries": several,
    "unused carry": unused,
    "indexed": indexed,
    "started late": started_late,
    "condition on constant": condition_on_constant,
    "keys": keyed,
}
X, W = np.array([0.4, 0.7, 1.1]), np.array([0.9, 1.2, 0.8])


def loss_of(name, loop):
    def loss(x, w):
        outs = toile.tree.leaves(LOOPS[name](loop, jnp.asarray(x), jnp.asarray(w)))
        return sum((jnp.cos(o) * jnp.arange(1.0, 4.0)).sum() for o in outs)

    return loss


def batch():
    return jnp.stack([X, X * 0.5, X + 0.3]), jnp.stack([W, W + 0.1, W * 0.7])


FORMS = {
    "grad": lambda f, x, w: toile.grad(f, (0, 1))(x, w),
    "jit": lambda f, x, w: toile.jit(toile.grad(f, (0, 1)))(x, w),
    "grad of jit": lambda f, x, w: toile.value_and_grad(toile.jit(f), 1)(x, w),
    "vmap": lambda f, x, w: toile.vmap(toile.grad(f, (0, 1)))(*batch()),
    "jit vmap": lambda f, x, w: toile.jit(toile.vmap(toile.grad(f, (0, 1)), (0, None)))(
        batch()[0], w),
    "grad of vmap": lambda f, x, w: toile.grad(
        lambda x, w: toile.vmap(f, (0, None))(x, w).sum(), (0, 1))(batch()[0], w),
    "vmap of vmap": lambda f, x, w: toile.vmap(toile.vmap(toile.grad(f), (0, None)), (None, 0))(
        *batch()),
    "checkpoint": lambda f, x, w: toile.grad(toile.checkpoint(f), (0, 1))(x, w),
    "in scan": lambda f, x, w: toile.grad(lambda x: lax.scan(
        lambda c, x: (c + f(x * c, w) * 0.1, None), 1.0, x)[0])(batch()[0]),
    "linearize": lambda f, x, w: toile.linearize(f, x, w)[1](w, x),
    "jvp of grad": lambda f, x, w: toile.jvp(toile.grad(f, (0, 1)), (x, w), (w, x))[1],
    "has_aux": lambda f, x, w: toile.grad(lambda x: (f(x, w), {"n": 3}), has_aux=True)(x),
}


IN_ALL_FORMS = ["sine", "until large", "several carries"]
ROWS = [(name, form) for name in LOOPS for form in FORMS
        if name in IN_ALL_FORMS or form in ("jit", "vmap", "grad of vmap")]


@pytest.mark.parametrize("name, form", ROWS)
def test_against_scans(name, form):
    with toile.enable_x64(True):
        x, w = jnp.asarray(X), jnp.asarray(W)
        got = FORMS[form](loss_of(name, lax.while_loop), x, w)
        want = FORMS[form](loss_of(name, bounded), x, w)
        toile.tree.map(lambda g, e: np.testing.assert_allclose(g, e, 1e-9, 1e-11), got, want)
        assert all(np.isfinite(g).all() for g in toile.tree.leaves(got))


def test_second_derivative_in_reverse():
    def twice(loop):
        f = loss_of("until large", loop)
        return toile.grad(lambda x, w: (toile.grad(f)(x, w) * jnp.arange(3.0)).sum(), (0, 1))

    with toile.enable_x64(True):
        x, w = jnp.asarray(X), jnp.asarray(W)
        got, want = (toile.jit(twice(loop))(x, w) for loop in (lax.while_loop, bounded))
        toile.tree.map(lambda g, e: np.testing.assert_allclose(g, e, 1e-8, 1e-10), got, want)


# -------------------------------------------------------------------------------- closed forms


def root(a, tolerance=1e-12):
    """The solution of x**3 + x = a, by Newton's method."""
    f = lambda x: x**3 + x - a
    return lax.while_loop(lambda x: jnp.abs(f(x)) > tolerance,
                          lambda x: x - f(x) / (3 * x**2 + 1), jnp.ones_like(a))


A = np.array([0.5, 3.0, 10.0, 200.0])
SLOPES = {
    "grad": lambda f: lambda a: jnp.stack([toile.grad(f)(x) for x in a]),
    "jit": lambda f: lambda a: jnp.stack([toile.jit(toile.grad(f))(x) for x in a]),
    "vmap": lambda f: toile.vmap(toile.grad(f)),
    "jit vmap": lambda f: toile.jit(toile.vmap(toile.grad(f))),
    "grad of vmap": lambda f: toile.grad(lambda a: toile.vmap(f)(a).sum()),
}


@pytest.mark.parametrize("form", SLOPES)
def test_newton_has_the_implicit_derivative(form):
    """x(a)' = 1 / (3 x**2 + 1), and x'' = -6 x x'**3."""
    with toile.enable_x64(True):
        a = jnp.asarray(A)
        x = np.array([root(v) for v in a])
        slope = 1 / (3 * x**2 + 1)
        np.testing.assert_allclose(SLOPES[form](root)(a), slope, rtol=1e-6)
        if form == "jit vmap":
            second = toile.jit(toile.vmap(toile.hessian(root)))(a)
            np.testing.assert_allclose(second, -6 * x * slope**3, rtol=1e-6)


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 5e-2)])
def test_floating_dtypes(dtype, rtol):
    f = lambda x: lax.while_loop(lambda x: x < 50, lambda x: x * x + x, x)
    x = jnp.asarray(1.5, dtype)
    got = toile.jit(toile.grad(f))(x)
    assert got.dtype == x.dtype
    slope, y = 1.0, 1.5
    while y < 50:
        slope, y = slope * (2 * y + 1), y * y + y
    np.testing.assert_allclose(float(got), slope, rtol=rtol)


def test_complex_carries():
    """d/dz of z**(2**3), by reverse mode of a loop of three squarings."""
    with toile.enable_x64(True):
        f = lambda z: lax.fori_loop(0, jnp.asarray(3) + 0, lambda i, z: z * z, z)
        run = toile.jit(lambda z, n: lax.fori_loop(0, n, lambda i, z: z * z, z))
        z = 0.8 + 0.3j
        for g in (f, lambda z: run(z, 3)):
            np.testing.assert_allclose(toile.grad(g, holomorphic=True)(z), 8 * z**7, rtol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_fori_loop_with_traced_bounds(n):
    """Reverse mode with respect to a table, a start value and a factor."""
    def f(x, y, w, n):
        return lax.fori_loop(0, n, lambda i, c: c * w + jnp.sin(x[i]), y)

    x = jnp.linspace(0.1, 1.0, 8)
    got = toile.jit(toile.grad(f, (0, 1, 2)))(x, 2.0, 0.7, n)
    want = toile.grad(lambda *a: f(*a, n), (0, 1, 2))(x, 2.0, 0.7)
    toile.tree.map(lambda g, e: np.testing.assert_allclose(g, e, rtol=1e-5), got, want)


def test_integers_have_no_cotangents():
    """A loop's integer results take cotangents of dtype float0."""
    f = lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x))
    outs, back = toile.vjp(f, 3.0)
    assert outs == (5, 96.0)
    assert back((np.zeros((), toile.dtypes.float0), 1.0)) == (32.0,)
    only_integers = lambda x: lax.while_loop(lambda c: c < 5, lambda c: c + 1, 0) * x
    assert toile.grad(only_integers)(2.0) == 5.0


def test_mapped_cotangents_of_one_loop():
    """jacrev: one loop, and a batch of cotangents."""
    with toile.enable_x64(True):
        x, w = jnp.asarray(X), jnp.asarray(W)
        f = lambda loop: lambda x: LOOPS["product"](loop, x, w)
        got, want = (toile.jacrev(f(loop))(x) for loop in (lax.while_loop, bounded))
        np.testing.assert_allclose(got, want, rtol=1e-10)
        np.testing.assert_allclose(toile.jacfwd(f(lax.while_loop))(x), want, rtol=1e-10)


def test_examples_that_have_ended_contribute_nothing():
    """Where an example has ended, the body has an infinite derivative (of sqrt at 0)."""
    def f(x):
        return lax.while_loop(lambda x: x > 0, lambda x: jnp.sqrt(x) * 0.5 - 0.25, x)

    x = jnp.array([0.25, 0.3, 4.0])
    want = [toile.grad(f)(v) for v in x]
    assert np.isfinite(want).all()
    np.testing.assert_allclose(toile.vmap(toile.grad(f))(x), want, rtol=1e-5)


# ----------------------------------------------------------------------- what is kept and repeated

COUNTS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 500, 1027]


@pytest.mark.parametrize("checkpoints", [2, 3, 4, 8, 16, 200, None])
def test_every_count_of_iterations(checkpoints):
    """With room for few values, the loop runs again from values that were kept."""
    def f(x, w, n):
        return lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1] * w) + 0.1 * c[1]), (0, x),
            checkpoints=checkpoints)[1].sum()

    def step(c, _):
        x, dx, dw, w = c
        y = jnp.cos(x * w)
        return (jnp.sin(x * w) + 0.1 * x, (y * w + 0.1) * dx, (y * w + 0.1) * dw + y * x, w), None

    with toile.enable_x64(True):
        x, w = jnp.asarray(X), jnp.asarray(W)
        g = toile.jit(toile.grad(f, (0, 1)))
        for n in COUNTS:
            want = lax.scan(step, (x, jnp.ones(3), jnp.zeros(3), w), None, n)[0][1:3]
            for a, b in zip(g(x, w, n), want, strict=True):
                np.testing.assert_allclose(a, b, 1e-10, 1e-14, err_msg=f"{n} iterations")


@pytest.mark.parametrize("n, runs", [(1, 2), (8, 2), (60, 3), (500, 4), (4000, 5)])
def test_the_loop_is_repeated_a_few_times(n, runs):
    """With 8 checkpoints: twice, and once more for each factor of 8 in the count of iterations."""
    calls = []

    def count(i):
        calls.append(int(i))
        return np.float32(1.01)

    def body(c):
        i, x = c
        one = toile.pure_callback(count, toile.ShapeDtypeStruct((), "float32"), i)
        return i + 1, jnp.sin(x) * lax.stop_gradient(one)

    f = lambda x: lax.while_loop(lambda c: c[0] < n, body, (0, x), checkpoints=8)[1]
    toile.grad(f)(0.5)
    assert set(calls) == set(range(n))
    assert len(calls) <= runs * n


SIZES = st.integers(1, 5_000_000)


@given(SIZES, SIZES)
def test_room_is_bounded(carry, saved):
    """Arrays for the backward pass do not depend on the number of iterations."""
    room = _room(None, [Aval((carry,), np.dtype("float32"))], [Aval((saved,), np.dtype("bool"))])
    assert 3 <= room.carries <= 8 and 3 <= room.tape <= 8 and room.levels in (2, 3)
    assert (4 * carry) << room.carries <= max(2**17, 8 * 4 * carry)
    assert saved << room.tape <= max(2**17, 8 * saved)


def test_arrays_of_the_backward_pass():
    """All of its arrays are small, whatever the count of iterations."""
    def f(x, n):
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]

    x = jnp.ones(100)
    program = toile.make_jaxpr(toile.grad(lambda x, n: f(x, n).sum()))(x, 10**6)
    ops = [e.op for e in program.jaxpr.eqns]
    (loop,) = [op for op in ops if isinstance(op, ReverseLoop)]
    assert isinstance(loop.visits, Visits) and loop.visits.room == Room(8, 8, 2)
    sizes = [math.prod(o.aval.shape) for e in loop.program.equations for o in e.outs]
    assert max(sizes) <= 257 * 100


@pytest.mark.parametrize("given", [1, 0, -3, True, 2.5, "8"])
def test_checkpoints_must_be_an_integer(given):
    with pytest.raises(ValueError, match="checkpoints as an integer >= 2"):
        lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0, checkpoints=given)
    with pytest.raises(ValueError, match="checkpoints as an integer >= 2"):
        toile.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + 1, 0, checkpoints=given))(3)


def test_debug_callbacks_run_once():
    """The backward pass does not repeat them."""
    seen = []

    def body(c):
        toile.debug.callback(lambda v: seen.append(float(v)), c)
        return c * 2

    f = lambda x: lax.while_loop(lambda c: c < 10, body, x)
    assert toile.grad(f)(1.0) == 16.0
    toile.effects_barrier()
    assert seen == [1.0, 2.0, 4.0, 8.0]


def test_the_derivative_is_compiled():
    """No step of the backward pass of a small loop runs in Python."""
    f = lambda x, n: lax.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]
    text = str(toile.explain(toile.grad(f))(1.0, 10))
    assert "in registers" in text or "one graph" in text  # on a CPU, on a GPU
    assert "host" not in text.replace("0 steps on the host", "") and "numpy" not in text.lower()


# ------------------------------------------------------------------------------- random bodies

TERMS = [
    lambda y, w: jnp.sin(y * w),
    lambda y, w: y * jnp.roll(w, 1),
    lambda y, w: jnp.tanh(y) * jnp.cos(w),
    lambda y, w: jnp.where(y > w, y, w * 0.5),
    lambda y, w: jnp.exp(-y * y) + w.sum(),
    lambda y, w: jnp.flip(y) * 0.7,
    lambda y, w: jnp.outer(w, y) @ y * 0.1,
]


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(0, len(TERMS) - 1), min_size=1, max_size=3), st.integers(0, LONGEST),
       st.floats(0.3, 6.0), st.sampled_from([None, 2, 4]), st.sampled_from(["grad", "vmap"]))
def test_random_bodies(terms, most, limit, checkpoints, form):
    """Loops that end at a count or at a value, whichever is first."""
    def f(loop):
        def run(x, w):
            body = lambda c: (c[0] + 1, sum(TERMS[t](c[1], w) for t in terms))
            cond = lambda c: (c[0] < most) & (jnp.abs(c[1]).sum() < limit)
            return jnp.sin(loop(cond, body, (0, x))[1]).sum()
        return run

    repeated = lambda *a: lax.while_loop(*a, checkpoints=checkpoints)
    with toile.enable_x64(True):
        x, w = jnp.asarray(X), jnp.asarray(W)
        got, want = (FORMS[form](f(loop), x, w) for loop in (repeated, bounded))
        toile.tree.map(lambda g, e: np.testing.assert_allclose(g, e, 1e-8, 1e-8), got, want)


@pytest.mark.parametrize("name", ["until large", "several carries", "product", "indexed", "keys"])
def test_finite_differences(name):
    with toile.enable_x64(True):
        x, w = jnp.asarray(X), jnp.asarray(W)
        toile.test_util.check_grads(loss_of(name, lax.while_loop), (x, w), 1, ["rev"], rtol=1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_examples_stop_on_their_own(size):
    """A batch of one example needs no selection between the old and the new values."""
    def f(n, x):
        return toile.lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, c[1].at[c[0]].set(2 * c[1][c[0]])), (0, x))

    counts, xs = jnp.arange(2, 2 + size), jnp.ones((size, 6))
    steps, found = toile.jit(toile.vmap(f))(counts, xs)
    assert steps.tolist() == counts.tolist()
    assert found.tolist() == [[2.0] * n + [1.0] * (6 - n) for n in range(2, 2 + size)]
    grads = toile.vmap(toile.grad(lambda x, n: f(n, x)[1].sum()))(xs, counts)
    assert grads.tolist() == found.tolist()
