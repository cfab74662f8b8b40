"""Choices between cheap results, as selections, for GPUs."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers, host_driver
from tests.gpu.test_programs import program_of
from toile import lax
from toile.compiler.passes.selections import MOST_BYTES, select_results

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
CHEAP = {
    "one of two arguments": lambda p, x, y: lax.cond(p > 0, lambda: x, lambda: y),
    "computed": lambda p, x, y: lax.cond(p > 0, lambda: x * 2 + y, lambda: y),
    "several": lambda p, x, y: lax.cond(p > 0, lambda: (x, y, x + y), lambda: (y, y, x)),
    "numbers": lambda p, x, y: lax.cond(p > 0, lambda: 1.5, lambda: 2.5) + x,
    "zeros": lambda p, x, y: lax.cond(p > 0, lambda: jnp.zeros_like(x), lambda: x),
    "by index": lambda p, x, y: lax.switch(p, [lambda: x, lambda: y + 1]),
    "in a loop": lambda p, x, y: lax.fori_loop(
        0, 5, lambda i, z: lax.cond(i % 2 == p, lambda: z + x, lambda: z), y),
    "a gradient": lambda p, x, y: toile.grad(
        lambda x: lax.cond(p > 0, lambda: x * y, lambda: x + 1).sum())(x),
    "infinite where it is not chosen": lambda p, x, y: lax.cond(
        p > 0, lambda: x / (x - x), lambda: y),
}  # fmt: skip
OTHERS = {
    "costly": lambda p, x, y: lax.cond(p > 0, lambda: jnp.tanh(x), lambda: y),
    "a product": lambda p, x, y: lax.cond(p > 0, lambda: x @ x.T, lambda: y @ y.T),
    "a loop": lambda p, x, y: lax.cond(
        p > 0, lambda: lax.fori_loop(0, 3, lambda i, z: z * 2, x), lambda: y),
    "three": lambda p, x, y: lax.switch(p, [lambda: x, lambda: y, lambda: x + y]),
}


def choices(program):
    """Choices in a Program and in the loops inside it."""
    inner = [p for e in program.equations for p in e.op.programs()]
    return sum(e.op.name == "cond" for e in program.equations) + sum(map(choices, inner))


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_results_are_selected(name):
    program, _ = program_of(CHEAP[name], [np.int32(1), X, X + 1])
    bodies = [p for e in program.equations for p in e.op.programs() if e.op.name != "cond"]
    for body in bodies or [program]:  # the device's passes run on the body of a loop, too
        assert choices(body) and not choices(select_results(body))


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name):
    program, _ = program_of(OTHERS[name], [np.int32(1), X, X + 1])
    assert select_results(program) is program


def test_large_results_stay():
    x = np.zeros(MOST_BYTES // 4 + 1, np.float32)
    program, _ = program_of(CHEAP["one of two arguments"], [np.int32(1), x, x])
    assert select_results(program) is program


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize("index", [-3, 0, 1, 2])
@pytest.mark.parametrize("name", [*CHEAP, *OTHERS])
def test_values(name, index, monkeypatch):
    fun = {**CHEAP, **OTHERS}[name]
    args = [np.int32(index), X, X + 1]
    program, leaves = program_of(fun, args)
    wanted = toile.tree.leaves(fun(*map(jnp.asarray, args)))
    with host_driver.host_gpu(monkeypatch) as (_, device):
        executable = host_driver.compiled(program, device)
        for _ in range(2):
            found = host_driver.run(executable, [a._data for a in leaves], device)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
