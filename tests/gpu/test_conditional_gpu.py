"""On a real GPU: while loops and branches are part of the one graph that a call launches."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.gpu.branching import FUNCTIONS
from tests.gpu.test_programs import normal
from toile import lax, random
from toile.compiler.passes import selections
from toile.engine.trees import flatten, tree_map
from toile.platforms.gpu import conditional_nodes as conditional
from toile.platforms.gpu.devices import gpu_devices
from toile.targets.cuda import driver


@pytest.fixture(autouse=True)
def choices_stay(monkeypatch):
    """Cheap branches are not replaced by selections."""
    monkeypatch.setattr(selections, "MOST_EQUATIONS", -1)

pytestmark = [pytest.mark.gpu,
              pytest.mark.skipif(not gpu_devices(), reason="needs a GPU and CuPy")]

SETTLED = 6  # rounds after which results have found their places
WAYS = {"copied": (1 << 40, driver.SWITCH), "two turns": (-1, driver.SWITCH),
        "two turns, no switch": (-1, driver.WHILE)}


def on(device, args):
    return toile.device_put(tree_map(np.asarray, args), device)


@pytest.fixture
def counts(monkeypatch):
    """How many kernels and graphs are launched."""
    made, found = driver.driver(), {"launch": 0, "launch_graph": 0, "download": 0}
    if made.conditionals < 0:
        pytest.skip("needs a driver with conditional nodes")

    def counted(name, call):
        def counts(*given):
            found[name] += 1
            return call(*given)

        return counts

    for name in found:
        monkeypatch.setattr(made, name, counted(name, getattr(made, name)))
    return found


def check(fun, calls, counts, ulps=64):
    """Equal to the CPU's results, bits that repeat, and one launch a call."""
    cpu, gpu = toile.devices("cpu")[0], toile.devices("gpu")[0]
    with toile.default_matmul_precision("highest"):
        with toile.default_device(cpu):
            there = toile.jit(lambda *args: fun(*args))  # a function whose traces nobody else has
            wanted = [flatten(there(*on(cpu, args)))[0] for args in calls]
            wanted = [[np.asarray(x) for x in results] for results in wanted]
        compiled = toile.jit(lambda *args: fun(*args))
        given = [on(gpu, args) for args in calls]

        def called(args):
            """What a call launched, and its results in NumPy, so that later calls reuse their
            memory."""
            before = dict(counts)
            found = toile.block_until_ready(flatten(compiled(*args))[0])
            return {n: counts[n] - before[n] for n in counts}, [np.array(x) for x in found]

        first = called(given[0])[1]  # step by step
        for _ in range(SETTLED):
            kept = [called(args)[1] for args in given]
        again = [called(args) for args in given]
        one_graph = {"launch": 0, "launch_graph": 1, "download": 0}
        assert [launched for launched, _ in again] == [one_graph] * len(calls)
    for found, (_, others), right in zip(kept, again, wanted, strict=True):
        for a, b, c in zip(found, others, right, strict=True):
            assert a.tobytes() == b.tobytes()
            nearly_equal(a, c, ulps=ulps)
    for a, b in zip(first, again[0][1], strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph(name, way, counts, monkeypatch):
    large, has = WAYS[way]
    made = driver.driver()
    monkeypatch.setattr(conditional, "LARGE", large)
    monkeypatch.setattr(made, "conditionals", min(made.conditionals, has))
    check(*FUNCTIONS[name], counts)


def drawn(draw):
    return lambda key: draw(random.wrap_key_data(key))


KEYS = [(np.array([0, i], np.uint32),) for i in range(5)]
DRAWS = {
    "beta": lambda key: random.beta(key, 0.2, 0.2),
    "gamma": lambda key: random.gamma(key, 2.5, (7,)),
    "poisson": lambda key: random.poisson(key, 3.0, (40,)),
    "large poisson": lambda key: random.poisson(key, 30.0, (40,)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_rejection(name, counts):
    check(drawn(DRAWS[name]), KEYS, counts, ulps=1 << 12)


def test_large_carries(counts):
    x = normal(1 << 10, 3 << 10)
    assert x.nbytes > conditional.LARGE
    fun = FUNCTIONS["while"][0]
    check(fun, [(np.int32(n), x) for n in (3, 0, 1, 2, 8)], counts)


def test_donated_carries(counts):
    def step(state, n):
        i, x = lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + 1), (0, state[1]))
        return lax.cond(i > 2, lambda s: (s[0] + i, s[1] + x), lambda s: (s[0], x), state)

    cpu, gpu = toile.devices("cpu")[0], toile.devices("gpu")[0]
    found = []
    for device in (cpu, gpu):
        compiled = toile.jit(step, donate_argnums=0)
        state = on(device, (np.int32(0), normal(300, 7)))
        limits = [on(device, np.int32(n)) for n in (3, 1, 0, 4)]
        for i in range(40):
            before = dict(counts)
            state = compiled(state, limits[i % 4])
        if device is gpu:
            assert counts == before | {"launch_graph": before["launch_graph"] + 1}
        found.append([np.asarray(x) for x in state])
    for a, b in zip(*found, strict=True):
        nearly_equal(a, b, ulps=64)


def test_training_step(counts):
    """Products and their derivatives inside of a loop whose turns nobody knows before."""
    def loss(w, x):
        return (jnp.tanh(x @ w) ** 2).mean()

    def step(w, x):
        def body(c):
            i, w, _ = c
            value, g = toile.value_and_grad(loss)(w, x)
            return i + 1, w - 0.5 * g, value

        return lax.while_loop(lambda c: (c[0] < 9) & (c[2] > 0.05), body, (0, w, 1.0))

    check(step, [(s * normal(64, 96), normal(32, 64, seed=1)) for s in (1.0, 0.05, 0.001)], counts,
          ulps=1 << 14)


def test_explain_and_profile(counts):
    fun, calls = FUNCTIONS["a cond in a while"]
    args = on(toile.devices("gpu")[0], calls[0])
    assert "one graph of" in str(toile.explain(fun)(*args))
    rows = {r.name.split()[1]: r for r in toile.profile(fun)(*args).table().rows if "[" in r.name}
    assert rows["while"].seconds > 0 and rows["while"].inner
