"""The work of a first call grows in proportion to the size of a Program.

Work is counted rather than timed: calls of Python functions while a function is traced and planned,
and the bytes of the kernels' texts, which LLVM compiles."""

import sys

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import optim
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.cpu.target import Target

pytest.importorskip("llvmlite")
MORE = 4


def numbers(*shape):
    return toile.ShapeDtypeStruct(shape, jnp.float32)


def layers(n):
    """The gradient of a network with n layers."""
    def loss(params, x):
        for w, b in params:
            x = jnp.tanh(x @ w + b)
        return (x**2).sum()

    return toile.value_and_grad(loss), [(numbers(16, 16), numbers(16))] * n, numbers(8, 16)


def parameters(n):
    """A step of Adam for n parameters of many shapes."""
    params = {f"p{i}": numbers(4 + i % 7, 3 + i % 5) for i in range(n)}
    tx = optim.adam(1e-3)

    def step(params, state):
        loss = lambda params: sum((p**2).sum() for p in params.values())
        updates, state = tx.update(toile.grad(loss)(params), state, params)
        return optim.apply_updates(params, updates), state

    return step, params, toile.eval_shape(tx.init, params)


def chain(n):
    """n functions of each element, one after the other."""
    def f(x):
        for i in range(n):
            x = jnp.sin(x) * 0.9 + i
        return x

    return f, numbers(100, 10)


def recurrence(n):
    """The gradient of n steps of a recurrent network, which are unrolled."""
    def loss(w, u, xs):
        h, total = jnp.zeros((4, 8)), 0.0
        for i in range(n):
            h = jnp.tanh(h @ w + xs[i] @ u)
            total = total + (h**2).sum()
        return total

    return toile.value_and_grad(loss, (0, 1)), numbers(8, 8), numbers(5, 8), numbers(n, 4, 5)


def loops(n):
    """n loops, each over the results of the one before."""
    def f(x):
        for _ in range(n):
            x = toile.lax.scan(lambda c, y: (jnp.tanh(c + y), c), x[0], x)[1]
        return x

    return f, numbers(20, 30)


def branches(n):
    """n independent computations of different kinds, whose results are stacked."""
    def f(x):
        found = []
        for i in range(n):
            y = x[i:i + 40] * (i + 1.0)
            found.append(jnp.concatenate([y[:20], jnp.sort(y[20:])]).reshape(8, 5).sum(0))
        return jnp.stack(found)

    return f, numbers(n + 40)


def texts_of(plan):
    """The different texts of a plan's kernels, with those of loops."""
    found = {}

    def visit(steps):
        for step in steps:
            for launch in getattr(step, "launches", ()):
                found[launch.text] = None
            for inner in ("body", "condition"):
                if hasattr(step, inner):
                    visit(getattr(step, inner).steps)

    visit(plan.steps)
    return list(found)


def work(made):
    """(calls of Python functions, bytes of texts) of a first call."""
    function, *args = made
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        program = optimize(toile.make_jaxpr(function)(*args).jaxpr)
        plan = planned(program, Target(threads=2))
    finally:
        sys.setprofile(None)
    return calls, sum(map(len, texts_of(plan)))


@pytest.mark.cpu
@pytest.mark.parametrize(("make", "n"), [(layers, 8), (parameters, 40), (chain, 60),
                                         (recurrence, 10), (loops, 5), (branches, 12)])
def test_growth(make, n, monkeypatch):
    monkeypatch.delenv("TOILE_DEBUG", raising=False)  # the verifier compares all pairs of buffers
    work(make(n))  # texts and tables that are made once
    calls, size = work(make(n))
    more_calls, more_size = work(make(MORE * n))
    assert calls > 1_000 and size > 1_000
    assert more_calls < 1.15 * MORE * calls
    assert more_size < 1.05 * MORE * size


def test_functions_of_one_kernel():
    """Long chains of functions become several kernels of the same text, which compile once."""
    function, x = chain(400)
    plan = planned(optimize(toile.make_jaxpr(function)(x).jaxpr), Target(threads=2))
    assert len(plan.steps) > 10
    assert max(map(len, texts_of(plan))) < 90_000 and len(texts_of(plan)) <= 4


def test_functions_of_several_kernels():
    def f(x, library):
        for i in range(60):
            x = library.sin(x) * 0.9 + i
        return x

    x = np.linspace(-3, 3, 1000, dtype=np.float32).reshape(100, 10)
    got = toile.jit(lambda x: f(x, jnp))(x)
    np.testing.assert_allclose(got, f(x.astype(np.float64), np), rtol=2e-5)
