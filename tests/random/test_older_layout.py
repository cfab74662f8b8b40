"""Threefry's older layout of counters (`jax_threefry_partitionable=False`): the bits are JAX's.

Each comparison runs eagerly and compiled, for one key and for keys under vmap, which in either
layout gives what each key gives alone.
"""

import contextlib
import os
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import toile
from tests.quick_jax import OPTIONS as QUICK
from tests.random.oracle import RECORD, plain, x64
from tests.random.test_generators import PROGRAMS, close_to_jax
from toile import random
from toile.engine import config as config_module
from toile.primitives.arrays import threefry

SHAPES = [(), (3, 0), (1,), (2,), (3,), (7, 11), (193,), (1000,)]
KEY = 7


@contextlib.contextmanager
def older():
    """Both libraries with the older layout."""
    with jax.threefry_partitionable(False), toile.threefry_partitionable(False):
        yield


def equal(mine, theirs):
    mine, theirs = plain(mine), plain(theirs)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    np.testing.assert_array_equal(mine, theirs)


def results(f):
    """What f of a library and a key gives, from jax compiled, from toile eager and compiled."""
    mapped = lambda p, k: p.vmap(lambda k: f(p, k)[:6])(p.random.split(k, 3))
    every = lambda p: lambda k: [*f(p, k), *mapped(p, k)]
    want = RECORD.in_test(
        lambda: jax.jit(every(jax), compiler_options=QUICK)(jax.random.key(KEY)))
    key = random.key(KEY)
    return want, every(toile)(key), toile.jit(every(toile))(key)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_bits(width):
    with older(), x64(width == 64):
        want, *found = results(
            lambda p, k: [p.random.bits(k, s, f"uint{width}") for s in SHAPES])
        for mine in found:
            for a, b in zip(mine, want, strict=True):
                equal(a, b)


def test_split():
    data = lambda p, keys: p.random.key_data(keys)
    with older():
        want, *found = results(lambda p, k: [data(p, p.random.split(k, s)) for s in SHAPES])
        for mine in found:
            for a, b in zip(mine, want, strict=True):
                equal(a, b)


ROWS = [(name, "threefry2x32") for name in PROGRAMS]
ROWS += [(name, "rbg") for name in PROGRAMS if "split" in name or "fold" in name]


@pytest.mark.parametrize(("program", "impl"), ROWS)
def test_programs(program, impl):
    """Keys and samplers; `rbg` splits as Threefry does."""
    with older():
        close_to_jax(lambda p: PROGRAMS[program](p, p.random, p.random.key(7, impl=impl)))


EXACT = {
    "uniform": lambda r, k: r.uniform(k, (333,)),
    "uniform between": lambda r, k: r.uniform(k, (7, 11), minval=-3.0, maxval=5.5),
    "uniform float16": lambda r, k: r.uniform(k, (77,), "float16"),
    "uniform bfloat16": lambda r, k: r.uniform(k, (77,), "bfloat16"),
    "randint": lambda r, k: r.randint(k, (101,), -5, 1000),
    "randint int8": lambda r, k: r.randint(k, (101,), -128, 128, "int8"),
    "randint uint16": lambda r, k: r.randint(k, (33,), 3, 60000, "uint16"),
    "bernoulli": lambda r, k: r.bernoulli(k, 0.3, (63,)),
    "bernoulli high": lambda r, k: r.bernoulli(k, 0.3, (63,), mode="high"),
    "permutation": lambda r, k: r.permutation(k, 97),
    "permutation of rows": lambda r, k: r.permutation(k, np.arange(60).reshape(12, 5), 1),
    "choice": lambda r, k: r.choice(k, 30, (7,), replace=False),
    "categorical": lambda r, k: r.categorical(k, np.log(np.arange(1.0, 6)), shape=(50,)),
    "rademacher": lambda r, k: r.rademacher(k, (31,)),
    "normal": lambda r, k: r.normal(k, (193,)),
    "fold_in": lambda r, k: r.key_data(r.fold_in(k, 2**31 + 5)),
}


@pytest.mark.parametrize("name", EXACT)
def test_samplers(name):
    f = EXACT[name]
    with older():
        mine = plain(f(random, random.key(KEY)))
        want = RECORD.in_test(lambda: plain(f(jax.random, jax.random.key(KEY))), near=mine)
        equal(mine, want)
        equal(f(random, random.PRNGKey(KEY)), want)
        equal(toile.jit(lambda k: f(random, k))(random.key(KEY)), want)
        usual = f(random, random.key(KEY))
    with jax.threefry_partitionable(True):
        now = f(random, random.key(KEY))
        equal(now, RECORD.in_test(lambda: plain(f(jax.random, jax.random.key(KEY))),
                                  near=plain(now)))
    assert name == "fold_in" or plain(now).tobytes() != plain(usual).tobytes()


def test_a_compiled_function_follows_the_flag():
    """One function in both layouts, in turn: each has its own compilation, and its own bits."""
    traces = []

    @toile.jit
    def f(k):
        traces.append(1)
        return random.bits(k, (5,)), random.key_data(random.split(k))

    usual, key = f(random.key(0)), random.key(0)
    with toile.threefry_partitionable(False):
        changed = f(key)
        equal(changed[0], random.bits(key, (5,)))
    for a, b, c in zip(usual, f(key), changed, strict=True):
        equal(a, b)
        assert (plain(a) != plain(c)).any()
    with toile.threefry_partitionable(False):
        for a, b in zip(f(key), changed, strict=True):
            equal(a, b)
    assert len(traces) == 2


def test_the_flag_and_the_variable():
    with older():
        want = np.asarray(jax.random.bits(jax.random.key(3), (3,)))
    toile.config.update("jax_threefry_partitionable", False)
    try:
        equal(random.bits(random.key(3), (3,)), want)
    finally:
        toile.config.update("jax_threefry_partitionable", True)
    code = "import toile; print(*toile.random.bits(toile.random.key(3), (3,)))"
    env = {**os.environ, "JAX_THREEFRY_PARTITIONABLE": "0"}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                         check=True, timeout=120).stdout
    assert out.split() == [str(x) for x in want]
    read = config_module._environment_value
    assert read("threefry_partitionable", {"JAX_THREEFRY_PARTITIONABLE": "false"}) is False
    assert read("threefry_partitionable", {}) is True


def test_gradients_and_loops():
    """Under scan, checkpoint and grad the layout is the one at the time of tracing."""
    def f(p, x, k):
        step = lambda c, k: (c * p.random.uniform(k, (3,)), p.random.normal(k))
        run = p.checkpoint(lambda x: p.lax.scan(step, x, p.random.split(k, 4)))
        c, ys = run(x)
        return (c.sum() + (x * ys[:3]).sum())

    with older():
        want = RECORD.in_test(
            lambda: jax.grad(lambda x: f(jax, x, jax.random.key(1)))(np.float32([1, 2, 3])))
        mine = lambda x: f(toile, x, random.key(1))
        for run in (toile.grad(mine), toile.jit(toile.grad(mine))):
            np.testing.assert_allclose(run(toile.numpy.float32([1, 2, 3])), want, rtol=1e-5)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_more_words_than_a_key_has(width, monkeypatch):
    """Past 2**32 - 1 words the key is split; both libraries are told a smaller limit.

    The shapes are of this test alone: what was compiled under another limit is not asked for."""
    longest = 7
    module = pytest.importorskip("jax._src.random.threefry2x32")
    fake = types.SimpleNamespace(iinfo=lambda _: types.SimpleNamespace(max=longest))
    monkeypatch.setattr(module, "dtypes", fake)
    monkeypatch.setattr(threefry, "LONGEST", longest)
    original = module._threefry_random_bits_original.__wrapped__
    words = np.asarray(jax.random.PRNGKey(5))
    with older(), x64(True):
        key = random.wrap_key_data(toile.numpy.asarray(words))
        keys = toile.numpy.stack([key, random.fold_in(key, 1)])
        for shape in ((1, 1, 5), (1, 1, 28), (1, 1, 53)):
            run = jax.jit(lambda k, s=shape: original(k, width, s), compiler_options=QUICK)
            want = RECORD.in_test(lambda run=run: run(jax.numpy.asarray(words))).value
            equal(threefry.older_bits(np, words, width, shape), want)
            draw = lambda k, s=shape: random.bits(k, s, f"uint{width}")
            equal(toile.jit(draw)(key), want)
            equal(toile.jit(toile.vmap(draw))(keys)[0], want)


def test_counters():
    """The numbers that words are hashed with: an odd count has one that is paired with 0."""
    assert threefry.LONGEST == 2**32 - 1
    key = np.asarray(jax.random.PRNGKey(1))
    for count in (1, 2, 5, 6, 193, 194, 401):
        half = -(-count // 2)
        second = np.append(np.arange(half, count), [0] * (count % 2)).astype(np.uint32)
        want = threefry.threefry2x32(np, key[0], key[1], np.arange(half, dtype=np.uint32), second)
        equal(threefry.older_words(np, key, count), np.concatenate(want)[:count])
