"""`checks("keys")`: keys that are used twice, in the older form (uint32 words) too."""

from __future__ import annotations

import re

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests import test_key_reuse
from toile import lax, linen, random
from toile.errors import KeyReuseError


def on_pair(f):
    return lambda k: f(*random.split(k))


def stepped(k):
    def body(k, _):
        k, use = random.split(k)
        return k, random.normal(use)

    return lax.scan(body, k, None, length=3)[1]


FINE = {
    "once": random.normal,
    "pair": on_pair(lambda a, b: random.normal(a) + random.normal(b)),
    "items": lambda k: (lambda ks: random.normal(ks[0]) + random.normal(ks[1]))(random.split(k)),
    "folds": lambda k: [random.normal(random.fold_in(k, i)) for i in range(3)],
    "scan": stepped,
    "scan over keys": lambda k: lax.map(random.normal, random.split(k, 3)),
    "while": lambda k: lax.while_loop(
        lambda c: c[1] < 2, lambda c: (random.split(c[0])[0], c[1] + 1), (k, 0)),
    "cond": lambda k: lax.cond(True, random.normal, random.uniform, k),
    "vmap": lambda k: toile.vmap(random.normal)(random.split(k, 4)),
    "words as numbers": lambda k: random.normal(k) + k.sum(),
    "one of many": lambda k: random.normal(random.split(k, 3)[1:][0]),
    "selected": lambda k: random.normal(jnp.where(True, k, k + 1)),
    "grad": lambda k: toile.grad(lambda x: x * random.normal(k))(1.0),
}
TWICE = {
    "draws": lambda k: random.normal(k) + random.uniform(k),
    "split": lambda k: (random.split(k), random.normal(k)),
    "item": lambda k: (lambda ks: random.normal(ks[0]) + random.normal(ks[0]))(random.split(k)),
    "wrapped": lambda k: random.normal(k) + random.normal(random.wrap_key_data(k)),
    "closed over by scan": lambda k: lax.scan(
        lambda c, _: (c, random.normal(k)), 0.0, None, length=2),
    "carried by scan": lambda k: lax.scan(lambda c, _: (c, random.normal(c)), k, None, length=2),
    "carried by while": lambda k: lax.while_loop(
        lambda c: c[1] < 2, lambda c: (c[0], c[1] + random.uniform(c[0])), (k, 0.0)),
    "jit inside": lambda k: toile.jit(random.normal)(k) + toile.jit(random.uniform)(k),
    "part of an array": lambda k: (lambda ks: (
        toile.vmap(random.normal)(ks), random.normal(ks[1])))(random.split(k, 4)),
    "scan, then": lambda k: (stepped(k), random.normal(k)),
    "reshaped": lambda k: random.normal(k) + random.normal(k.reshape(1, 2)[0]),
}
KEYS = {"raw": random.PRNGKey, "typed": random.key}
HOW = {"eager": lambda f: f, "jit": toile.jit}


RAW_ONLY = "words as numbers", "selected", "wrapped", "reshaped"


def with_every_key(table):
    """Each function of a table, run in every way with every kind of key that it takes."""
    cases = [(name, how, kind) for name in table for how in HOW for kind in KEYS
             if kind == "raw" or name not in RAW_ONLY]
    return pytest.mark.parametrize("name, how, kind", cases)


@with_every_key(FINE)
def test_fine(name, how, kind):
    f, key = FINE[name], KEYS[kind]
    expected = toile.tree.map(_plain, f(key(0)))
    with toile.checks("keys"):
        found = HOW[how](f)(key(0))
    toile.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6),
                   toile.tree.map(_plain, found), expected)


def _plain(x):
    is_key = toile.dtypes.issubdtype(x.dtype, toile.dtypes.prng_key)
    return np.asarray(random.key_data(x) if is_key else x)


@with_every_key(TWICE)
def test_twice(name, how, kind):
    f, key = TWICE[name], KEYS[kind]
    HOW[how](f)(key(0))  # nobody looks
    with toile.checks("keys"), pytest.raises(KeyReuseError):
        HOW[how](f)(key(0))


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("how", HOW)
def test_both_lines_are_named(how, kind):
    def draw(key):
        first = random.normal(key)
        return first + random.normal(key)

    line = draw.__code__.co_firstlineno
    with toile.checks("keys"), pytest.raises(KeyReuseError) as caught:
        HOW[how](draw)(KEYS[kind](0))
    lines = {int(n) for n in re.findall(r"test_key_checks\.py:(\d+)", str(caught.value))}
    assert {line + 1, line + 2} <= lines
    assert "split" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 15


@pytest.mark.parametrize("kind", KEYS)
def test_calls_of_compiled_functions(kind):
    draw = toile.jit(random.normal)
    with toile.checks("keys"):
        key = KEYS[kind](0)
        for _ in range(5):
            key, use = random.split(key)
            draw(use)
        with pytest.raises(KeyReuseError, match="first used at .*test_key_checks"):
            draw(use)


def test_equal_keys_that_were_made_twice():
    with toile.checks("keys"):
        random.normal(random.PRNGKey(0)), random.normal(random.PRNGKey(0))


def test_memory_that_is_used_again():
    draw = toile.jit(lambda key: random.split(key)[0], donate_argnums=0)
    with toile.checks("keys"):
        key = random.PRNGKey(0)
        for _ in range(8):
            key = draw(key)


@pytest.mark.parametrize("name", sorted({*test_key_reuse.FINE} - {"raw_keys", "words"}))
def test_programs_that_the_flag_allows(name):
    with toile.checks("keys"):
        test_key_reuse.FINE[name](toile)


@pytest.mark.parametrize("name", list(test_key_reuse.USED_TWICE))
def test_programs_that_the_flag_refuses(name):
    row = test_key_reuse.USED_TWICE[name]
    for run in (lambda: row(toile), toile.jit(lambda: row(toile))):
        with toile.checks("keys"), pytest.raises(KeyReuseError):
            run()


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        for _ in range(2):
            x = linen.Dropout(0.5, deterministic=False)(linen.Dense(4)(x))
        return x


@pytest.mark.parametrize("kind", KEYS)
def test_modules_train(kind):
    x = jnp.ones((2, 4))
    loss = lambda p, key: (Net().apply(p, x, rngs={"dropout": key}) ** 2).sum()
    with toile.checks("keys"):
        key = KEYS[kind](0)
        key, first, second = random.split(key, 3)
        variables = Net().init({"params": first, "dropout": second}, x)
        step = toile.jit(toile.grad(loss))
        for _ in range(3):
            key, use = random.split(key)
            step(variables, use)
        toile.grad(loss)(variables, key)
