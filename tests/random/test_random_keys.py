"""Keys: seeds, trees of splits, chains of folds, both forms of key, and errors."""

import jax
import numpy as np
import pytest

import toile
from tests.random.oracle import RECORD, check_equal, plain, x64
from toile import random

SEEDS = [0, 1, -1, 42, 2**31 - 1, 2**31, 2**32 + 5, 2**40 + 3, -(2**45), 2**63 - 1, True]


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_seeds(seed, on):
    with x64(on):
        expected = np.asarray(jax.random.PRNGKey(seed))
        np.testing.assert_array_equal(plain(random.PRNGKey(seed)), expected)
        np.testing.assert_array_equal(plain(random.key(seed)), expected)


def test_seeds_of_array_types():
    for dtype in ("int8", "uint8", "int16", "int32", "uint32"):
        seed = np.array(-3).astype(dtype)
        expected = np.asarray(jax.random.PRNGKey(seed))
        np.testing.assert_array_equal(plain(random.PRNGKey(seed)), expected)


def test_split_trees():
    ours, theirs = random.key(5), jax.random.key(5)
    for depth in range(20):
        ours, theirs = random.split(ours)[depth % 2], jax.random.split(theirs)[depth % 2]
        np.testing.assert_array_equal(plain(ours), plain(theirs))


def test_fold_in_chains():
    ours, theirs = random.PRNGKey(5), jax.random.PRNGKey(5)
    for step in [0, 1, 2**31 - 1, 17, 123456]:
        ours, theirs = random.fold_in(ours, step), jax.random.fold_in(theirs, step)
        np.testing.assert_array_equal(plain(ours), plain(theirs))


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("num", [1, 2, 3, 193, (2, 3), [4]])
def test_split_shapes(num, raw):
    check_equal("split", num, raw=raw)
    keys = random.split(random.PRNGKey(0) if raw else random.key(0), num)
    assert ("key<" in str(keys.dtype)) is not raw


def test_forms_convert():
    typed, raw = random.key(3), random.PRNGKey(3)
    np.testing.assert_array_equal(random.key_data(typed), raw)
    np.testing.assert_array_equal(random.key_data(raw), raw)
    again = random.wrap_key_data(raw)
    assert again.dtype == typed.dtype == random.key_dtype()
    assert str(typed.dtype) == "key<fry>"
    np.testing.assert_array_equal(random.key_data(again), raw)
    assert random.wrap_key_data(random.key_data(random.split(typed, (2, 3)))).shape == (2, 3)
    assert random.key_impl(typed) == random.key_impl(raw) == "threefry2x32"
    np.testing.assert_array_equal(random.key_data(random.clone(typed)), raw)


def test_raw_numpy_keys():
    words = np.asarray(jax.random.PRNGKey(8))
    expected = np.asarray(jax.random.bits(words, (3,)))
    np.testing.assert_array_equal(np.asarray(random.bits(words, (3,))), expected)


def test_same_numbers_from_both_forms():
    for name in ("uniform", "normal"):
        a = getattr(random, name)(random.key(9), (5,))
        np.testing.assert_array_equal(a, getattr(random, name)(random.PRNGKey(9), (5,)))


def test_vmap_over_keys():
    keys, theirs = random.split(random.key(1), 5), jax.random.split(jax.random.key(1), 5)
    found = toile.vmap(lambda k: random.uniform(k, (3,)))(keys)
    expected = RECORD.in_test(lambda: jax.vmap(lambda k: jax.random.uniform(k, (3,)))(theirs))
    np.testing.assert_array_equal(found, expected)
    new = toile.vmap(random.split)(keys)
    np.testing.assert_array_equal(plain(new), plain(jax.vmap(jax.random.split)(theirs)))
    folded = toile.vmap(random.fold_in, (None, 0))(random.key(0), np.arange(4))
    expected = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), np.arange(4))
    np.testing.assert_array_equal(plain(folded), plain(expected))


def test_under_jit():
    def draw(key):
        a, b = random.split(key)
        return random.uniform(random.fold_in(a, 3), (4,)), random.key_data(b)

    for key in (random.key(0), random.PRNGKey(0)):
        for now, staged in zip(draw(key), toile.jit(draw)(key), strict=True):
            np.testing.assert_array_equal(now, staged)
    seeded = toile.jit(random.PRNGKey)(7)
    np.testing.assert_array_equal(seeded, random.PRNGKey(7))


def test_errors():
    with pytest.raises(TypeError, match="scalar seed"):
        random.key(np.arange(3))
    with pytest.raises(TypeError, match="integer"):
        random.key(1.5)
    with pytest.raises(TypeError, match="PRNG key"):
        random.key(random.key(0))
    with pytest.raises(OverflowError):
        random.key(2**64)
    with pytest.raises(ValueError, match="single key"):
        random.uniform(random.split(random.key(0)))
    with pytest.raises(ValueError, match="single key"):
        random.split(random.split(random.PRNGKey(0)))
    with pytest.raises(TypeError, match="key"):
        random.uniform(0)
    with pytest.raises(TypeError, match="key"):
        random.uniform([0, 1])
    with pytest.raises(TypeError, match="uint32"):
        random.uniform(np.zeros(2, np.int32))
    with pytest.raises(TypeError, match="scalar"):
        random.fold_in(random.key(0), np.arange(2))
    with pytest.raises(ValueError, match="unrecognized"):
        random.key(0, impl="nonsense")


def test_public_names():
    public = {n for n in dir(jax.random) if not n.startswith("_")}
    assert public <= set(dir(random))
