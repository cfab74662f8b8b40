"""The generator with a state, against that of jax: the numbers that it draws, and its errors."""

import jax
import jax.experimental.random
import numpy as np
import pytest

import toile
import toile.experimental.random

TYPED = {"dtype": "float16"}


def _state(lib, rng):
    return np.asarray(lib.random.key_data(rng._base_key)), np.asarray(rng._counter[...])


def _keys(lib, rng):
    keys = rng.key(), rng.key(3), rng.key((2, 2)), lib.jit(rng.key)()
    return [np.asarray(lib.random.key_data(k)) for k in keys]


def _many(lib, rng):
    mapped = lib.vmap(lambda r, x: x + r.uniform(size=2))(rng.split(3), np.ones(3, np.float32))
    nested = lib.vmap(lib.vmap(lambda r: r.normal()))(rng.split((2, 3)))
    return mapped, nested, [child.integers(0, 100, 4) for child in rng.spawn(3)]


def _in_loops(lib, rng):
    scanned = lib.lax.scan(lambda c, _: (c, rng.uniform()), None, length=4)[1]
    inside = lambda seed: type(rng)(lib.random.key(seed), lib.new_ref(0)).normal(size=3)
    return scanned, lib.jit(inside)(7), lib.jit(lambda r, x: r.normal(x))(rng, 2.0)


def _trees(lib, rng):
    paths = [lib.tree_util.keystr(p) for p, _ in lib.tree_util.tree_leaves_with_path({"r": rng})]
    again = lib.tree.unflatten(lib.tree.structure(rng), lib.tree.leaves(rng))
    return paths, again.uniform(), rng.uniform()


DRAWS = {
    "random": lambda lib, rng: (rng.random(), rng.random(3), rng.random((2, 2), "bfloat16")),
    "uniform": lambda lib, rng: (rng.uniform(), rng.uniform(-1, np.float32([2, 3])),
                                 rng.uniform(size=(2, 3), **TYPED)),
    "normal": lambda lib, rng: (rng.normal(), rng.normal([1.0, 5.0], 2), rng.normal(3, **TYPED)),
    "integers": lambda lib, rng: (rng.integers(10), rng.integers(np.array([0, 5]), 9),
                                  rng.integers(-3, 3, (2, 3), dtype="int8")),
    "keys": _keys, "many": _many, "loops": _in_loops, "trees": _trees,
}


@pytest.mark.parametrize("impl", [None, "rbg"])
@pytest.mark.parametrize("name", DRAWS)
def test_draws(name, impl):
    found = []
    for lib in (toile, jax):
        rng = lib.experimental.random.stateful_rng(42, impl=impl)
        drawn = lib.tree.leaves(DRAWS[name](lib, rng))
        found.append([*drawn, *_state(lib, rng)])
    for ours, theirs in zip(*found, strict=True):
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_allclose(np.asarray(ours, np.float64),
                                       np.asarray(theirs, np.float64), 1e-6, 1e-6)


WRONG = {
    "a typed PRNG key": (ValueError, lambda lib, make: make.StatefulPRNG(
        np.zeros(2, np.uint32), lib.new_ref(0))),
    "a scalar integer ref": (ValueError, lambda lib, make: make.StatefulPRNG(
        lib.random.key(0), 0)),
    "split stateful generator": (ValueError, lambda lib, make: make.stateful_rng(0).split(2).key()),
    "When used within transformed code": (TypeError, lambda lib, make: lib.jit(
        lambda: make.stateful_rng().uniform())()),
    "used within transformed code": (TypeError, lambda lib, make: lib.grad(
        lambda x: x + make.stateful_rng().uniform())(1.0)),
    "within transformed code": (TypeError, lambda lib, make: lib.vmap(
        lambda x: x + make.stateful_rng().uniform())(np.ones(2))),
}


@pytest.mark.parametrize("words", WRONG)
@pytest.mark.parametrize("lib", [toile, jax])
def test_errors(words, lib):
    kind, run = WRONG[words]
    with pytest.raises(kind, match=words):
        run(lib, lib.experimental.random)


def test_seeds_of_the_system_differ():
    first, second = [toile.experimental.random.stateful_rng() for _ in range(2)]
    assert first.uniform() != second.uniform()


def test_gradients_of_functions_that_draw():
    """(In jax, the generator must not be a variable of a differentiated function.)"""
    make = toile.experimental.random.stateful_rng
    rng, again = make(3), make(3)
    slope = toile.grad(lambda x: (x * rng.normal(size=3)).sum())(2.0)
    np.testing.assert_allclose(slope, again.normal(size=3).sum(), rtol=1e-6)
    assert rng._counter[...] == 1
