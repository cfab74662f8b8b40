"""Residuals of scans that the backward loop computes again from others."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile.compiler.passes import scan_residuals
from toile.compiler.pipeline import optimize

TURNS, ROWS = 20, 64


def network(w, x):
    def turn(h, _):
        h = jnp.tanh(jnp.tanh(h @ w) @ w)
        return h, h

    return (lax.scan(turn, x, None, length=TURNS)[1] ** 2).mean()


def gates(w, x):
    """The derivatives of sigmoid and tanh follow from their values."""
    def turn(c, _):
        g = c @ w
        return toile.nn.sigmoid(g) * c + jnp.tanh(g * 0.5), None

    return (lax.scan(turn, x, None, length=TURNS)[0] ** 2).mean()


def both_ways(w, x):
    """The residuals of a loop that runs from the end to the start."""
    def turn(h, s):
        h = jnp.tanh(h @ w + s)
        return h, h

    _, there = lax.scan(turn, x, jnp.zeros((TURNS, *x.shape)), reverse=True)
    return (lax.scan(turn, x, there)[1] ** 2).mean()


def costly(w, x):
    """An exponential is not computed again."""
    def turn(h, _):
        return jnp.exp(-((h @ w) ** 2)), None

    return lax.scan(turn, x, None, length=TURNS)[0].sum()


def arguments():
    rng = np.random.default_rng(0)
    return (jnp.asarray(rng.normal(size=(ROWS, ROWS)).astype("f4") / 8),
            jnp.asarray(rng.normal(size=(ROWS, ROWS)).astype("f4")))


def stacked(fun):
    """How many arrays the scans of a gradient stack."""
    program = optimize(toile.make_jaxpr(toile.grad(fun, (0, 1)))(*arguments()).jaxpr)
    return [sum(o.aval.shape[:1] == (TURNS,) and o.aval.ndim == 3 for o in e.outs)
            for e in program.equations if e.op.name == "scan"]


@pytest.mark.parametrize("fun, fewer", [(network, 2), (gates, 1), (both_ways, 2), (costly, 0)])
def test_what_is_stacked(fun, fewer, monkeypatch):
    """Of each pair of a value and its derivative, the value alone."""
    found = sum(stacked(fun))
    monkeypatch.setattr(scan_residuals, "MOST_EQUATIONS", 0)
    assert found == sum(stacked(fun)) - fewer


@pytest.mark.parametrize("fun", [network, gates, both_ways, costly])
def test_values(fun):
    args = arguments()
    got = toile.jit(toile.grad(fun, (0, 1)))(*args)
    with toile.disable_jit():
        wanted = toile.grad(fun, (0, 1))(*args)
    for x, y in zip(got, wanted, strict=True):
        y = np.asarray(y)
        np.testing.assert_allclose(np.asarray(x), y, 1e-3, 1e-5 * abs(y).max() + 1e-8)


def test_what_something_else_reads_stays():
    """A stacked result that the function returns is stored anyway."""
    def fun(x, w):
        def turn(h, _):
            t = jnp.tanh(h @ w)
            s = 1 - t * t
            return t, (t, s)

        def back(g, ts):
            t, s = ts
            return (g * s) @ w, (g * t).sum()

        _, (t, s) = lax.scan(turn, x, None, length=TURNS)
        return lax.scan(back, x, (t, s), reverse=True), s

    x, w = arguments()
    program = optimize(toile.make_jaxpr(fun)(x, w).jaxpr)
    first, second = (e for e in program.equations if e.op.name == "scan")
    assert len(first.outs) == 3
    assert sum(a.aval.shape == (TURNS, ROWS, ROWS) for a in second.ins) == 2
    fewer = optimize(toile.make_jaxpr(lambda x, w: fun(x, w)[0])(x, w).jaxpr)
    first, second = (e for e in fewer.equations if e.op.name == "scan")
    assert sum(o.aval.ndim == 3 for o in first.outs) == 1
    got, wanted = toile.jit(fun)(x, w), fun(x, w)
    for a, b in zip(toile.tree.leaves(got), toile.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)


def test_small_stacks_stay():
    def small(w, x):
        return network(w[:4, :4], x[:4, :4])

    program = optimize(toile.make_jaxpr(toile.grad(small))(*arguments()).jaxpr)
    scan = next(e for e in program.equations if e.op.name == "scan")
    assert len(scan.outs) > 3


def stacked_twice(x, w):
    """A body that returns one value twice, as after common subexpressions are merged."""
    def turn(h, _):
        t = jnp.tanh(h @ w)
        return t, (t, 1 - t * t, 1 - t * t)

    h, (t, a, b) = lax.scan(turn, x, None, length=TURNS)
    return lax.scan(lambda c, z: (c + z[0] * z[1] - z[2], None), h, (t, a, b))[0]


def same_twice(x, w):
    """The derivative reads 1 - t^2 in several places."""
    def turn(h, _):
        t = jnp.tanh(h @ w)
        s = t * t
        return t + s * (1 - s) * jnp.tanh(t * (1 - s)), None

    return (lax.scan(turn, x, None, length=TURNS)[0] ** 2).sum()


@pytest.mark.parametrize("fun", [stacked_twice, toile.grad(same_twice)])
def test_values_that_are_stacked_twice(fun):
    x, w = (a * 0.1 for a in arguments())
    with toile.disable_jit():
        wanted = fun(x, w)
    np.testing.assert_allclose(toile.jit(fun)(x, w), wanted, 1e-3, 1e-4)
