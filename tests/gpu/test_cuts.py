"""Chains of stencils: where they are cut into kernels, and that the cuts change no number."""

import random

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import normal, program_of
from toile.compiler.pipeline import optimize
from toile.compiler.plan import cuts, lower
from toile.compiler.plan.fuse import fuse
from toile.platforms.gpu.target import TARGET

N = 256
ARRAY = N * N * 4


def spread(u):
    return sum(jnp.roll(u, k, axis) for k in (-1, 1) for axis in (0, 1)) - 4 * u


def reaction(rates, u, v, steps=6):
    """Two substances that react and spread."""
    for _ in range(steps):
        made = u * v * v
        u, v = (u + 0.1 * spread(u) - made + rates[0] * (1 - u),
                v + 0.1 * spread(v) + made - rates[1] * v)
    return (v**2).mean()


def waves(rates, u, v, steps=6):
    """A leapfrog: the speed follows the place, and the place follows the new speed."""
    for _ in range(steps):
        v = v + rates[0] * spread(u)
        u = u + rates[1] * v * v
    return (u * v).sum()


def grouped(fun, *args):
    """The groups of a function's gradient without better cuts, and with them."""
    program = TARGET.last_pass(optimize(
        toile.make_jaxpr(toile.value_and_grad(fun, (0, 1)))(*args).jaxpr))
    fused = fuse(program, TARGET.can_fuse, TARGET.limits)
    return fused, cuts.better_cuts(fused, TARGET.can_fuse)


def arguments(n=N):
    return np.float32([0.03, 0.09]), normal(n, n), normal(n, n, seed=1)


def test_each_step_stores_its_two_arrays():
    """Cut half a step later, each step of the gradient would store four arrays and load seven."""
    program = optimize(toile.make_jaxpr(toile.value_and_grad(reaction, (0, 1)))(*arguments()).jaxpr)
    fused = lower.fuse_groups(program, TARGET)
    for g in fused.groups:
        assert sum(v in fused.stored and v.aval.size == N * N for v in g.maps) <= 2
    assert cuts.moved_bytes(fused) < 60 * ARRAY


@pytest.mark.parametrize("fun", [reaction, waves])
def test_fewer_bytes_are_moved(fun):
    before, after = grouped(fun, *arguments())
    assert cuts.moved_bytes(after) <= cuts.moved_bytes(before)
    if fun is reaction:
        assert cuts.moved_bytes(after) < 0.6 * cuts.moved_bytes(before)


def test_only_chains_of_large_stencils_are_considered():
    def plain(rates, u, v, steps=6):
        for _ in range(steps):
            u, v = jnp.sin(u) + rates[0] * v, jnp.sort(v, 0) * u
        return (u * v).sum()

    for fun, n in ((plain, N), (reaction, 16)):
        before, after = grouped(fun, *arguments(n))
        assert after is before


OPERATIONS = {
    "mul": lambda a, b, rate, *turn: a * b * 0.5,
    "add": lambda a, b, rate, *turn: a + rate * b,
    "sub": lambda a, b, rate, *turn: a - 0.3 * b,
    "roll": lambda a, b, rate, *turn: a + 0.2 * jnp.roll(b, *turn),
    "both": lambda a, b, rate, *turn: b + jnp.roll(jnp.tanh(a), *turn) * b,
}


def drawn(seed):
    """A function of three arrays with random elementwise operations, rotations and sums."""
    rng = random.Random(seed)
    steps = [(rng.choice([*OPERATIONS, "sum"]), rng.randrange(3), rng.randrange(3),
              rng.choice([-2, -1, 1, 3]), rng.randrange(2)) for _ in range(24)]

    def fun(rates, u, v):
        values, total = [u, v, u - v], rates[0]
        for kind, i, j, *turn in steps:
            if kind == "sum":
                total = total + (values[i] * rates[1]).mean()
            else:
                values[i] = OPERATIONS[kind](values[i], values[j], rates[0], *turn)
        return total + sum(x.mean() for x in values)

    return fun


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("seed", range(8))
def test_random_chains(seed, monkeypatch):
    """Whatever the search moves, the plan is verified, runs, and does not move more."""
    monkeypatch.setattr(cuts, "LEAST_ELEMENTS", 1)
    monkeypatch.setattr(cuts, "KERNEL", 0)
    fun = reaction if seed == 0 else drawn(seed)
    before, after = grouped(fun, *arguments(24))
    assert cuts.moved_bytes(after) <= cuts.moved_bytes(before)
    args = arguments(24)
    program, leaves = program_of(toile.value_and_grad(fun, (0, 1)), args)
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        got = host_driver.run(executable, [x._data for x in leaves], device)
    value, (first, second) = toile.value_and_grad(fun, (0, 1))(*args)
    for x, y in zip(got, (value, first, second), strict=True):
        y = np.asarray(y)
        np.testing.assert_allclose(np.asarray(x), y, 1e-3, 1e-4 * max(1e-3, abs(y).max()))
