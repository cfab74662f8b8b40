"""Keys of generators other than Threefry-2x32: the same words, bits and numbers as JAX's."""

import jax
import numpy as np
import pytest

import toile
from tests.random.oracle import RECORD, plain, x64
from toile import random

IMPLS = ["rbg", "unsafe_rbg", "philox2x32", "philox4x32", "threefry4x32"]


def flagged(p, impl, f):
    with p.default_prng_impl(impl):
        return f()


# Functions of a library, its `random`, and a key.
PROGRAMS = {
    "the key": lambda p, r, k: k,
    "split": lambda p, r, k: r.split(k, 3),
    "split to a shape": lambda p, r, k: r.split(k, (2, 3)),
    "split to none": lambda p, r, k: r.split(k, 0),
    "fold_in": lambda p, r, k: r.fold_in(k, 9),
    "fold_in jitted": lambda p, r, k: p.jit(r.fold_in)(k, 9),
    "bits of 8": lambda p, r, k: r.bits(k, (5, 3), np.uint8),
    "bits of 16": lambda p, r, k: r.bits(k, (7,), np.uint16),
    "bits of 32": lambda p, r, k: r.bits(k, (2, 3, 5)),
    "one word": lambda p, r, k: r.bits(k),
    "no bits": lambda p, r, k: r.bits(k, (0, 3)),
    "bits jitted": lambda p, r, k: p.jit(lambda k: r.bits(k, (9,)))(k),
    "uniform": lambda p, r, k: r.uniform(k, (11,)),
    "uniform halves": lambda p, r, k: r.uniform(k, (11,), "bfloat16").astype("float32"),
    "normal": lambda p, r, k: r.normal(k, (3, 5)),
    "normal jitted": lambda p, r, k: p.jit(lambda k: r.normal(k, (3, 5)))(k),
    "randint": lambda p, r, k: r.randint(k, (40,), -3, 77),
    "bernoulli": lambda p, r, k: r.bernoulli(k, 0.3, (40,)),
    "permutation": lambda p, r, k: r.permutation(k, 50),
    "choice": lambda p, r, k: r.choice(k, 20, (6,), replace=False),
    "categorical": lambda p, r, k: r.categorical(k, p.numpy.ones((4, 5))),
    "truncated_normal": lambda p, r, k: r.truncated_normal(k, -1, 1, (9,)),
    "gamma": lambda p, r, k: r.gamma(k, 2.5, (7,)),
    "dirichlet": lambda p, r, k: r.dirichlet(k, p.numpy.ones(3), (2,)),
    "binomial": lambda p, r, k: r.binomial(k, 10, 0.4, (9,)),
    "mapped normal": lambda p, r, k: p.vmap(lambda k: r.normal(k, (3,)))(r.split(k, 4)),
    "mapped twice": lambda p, r, k: p.jit(p.vmap(p.vmap(lambda k: r.bits(k, (3,)))))(
        r.split(k, (2, 2))),
    "mapped split": lambda p, r, k: p.vmap(r.split)(r.split(k, 4)),
    "mapped fold_in": lambda p, r, k: p.vmap(lambda k: r.fold_in(k, 3))(r.split(k, 4)),
    "mapped data": lambda p, r, k: p.vmap(r.fold_in, (None, 0))(k, p.numpy.arange(3)),
    "mapped gradient": lambda p, r, k: p.vmap(p.grad(lambda x, k: (x * r.normal(k, (3,))).sum()))(
        p.numpy.arange(4.0), r.split(k, 4)),
    "a scan": lambda p, r, k: p.lax.scan(lambda k, _: (r.split(k)[0], r.normal(k)), k, None, 3)[1],
    "remat": lambda p, r, k: p.grad(p.checkpoint(lambda x: (x * r.uniform(k, (3,))).sum()))(2.0),
    "stacked and indexed": lambda p, r, k: p.numpy.stack([k, r.fold_in(k, 1)])[1],
    "wrapped": lambda p, r, k: r.wrap_key_data(r.key_data(k), impl=r.key_impl(k)),
    "raw, by flag": lambda p, r, k: flagged(
        p, r.key_impl(k), lambda: r.normal(r.split(r.PRNGKey(3))[0], (4,))),
    "jitted, by flag": lambda p, r, k: flagged(
        p, r.key_impl(k), lambda: p.jit(lambda: r.normal(r.key(3), (4,)))()),
}


def close(mine, theirs):
    mine, theirs = plain(mine), plain(theirs)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    if mine.dtype.kind == "f":
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(mine, theirs)


def close_to_jax(run):
    """A function of a library gives the same numbers in both."""
    mine = plain(run(toile))
    close(mine, RECORD.in_test(lambda: plain(run(jax)), near=mine))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_jax(program, impl):
    close_to_jax(lambda p: PROGRAMS[program](p, p.random, p.random.key(7, impl=impl)))


WIDE = {
    "a seed of 40 bits": lambda p, r, impl: r.key(2**40 + 3, impl=impl),
    "a negative seed": lambda p, r, impl: r.key(-5, impl=impl),
    "bits of 64": lambda p, r, impl: r.bits(r.key(7, impl=impl), (5,), np.uint64),
    "mapped bits of 64": lambda p, r, impl: p.vmap(lambda k: r.bits(k, (3,), np.uint64))(
        r.split(r.key(7, impl=impl), 3)),
    "doubles": lambda p, r, impl: r.uniform(r.key(7, impl=impl), (5,)),
    "long integers": lambda p, r, impl: r.randint(r.key(7, impl=impl), (5,), 0, 2**40),
}


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("program", WIDE)
def test_as_in_jax_with_64_bits(program, impl):
    with x64(True):
        close_to_jax(lambda p: WIDE[program](p, p.random, impl))


@pytest.mark.parametrize("impl", IMPLS)
def test_names_and_dtypes(impl):
    mine, theirs = random.key(0, impl=impl), jax.random.key(0, impl=impl)
    assert str(mine.dtype) == str(theirs.dtype) and random.key_impl(mine) == impl
    assert random.key(0, dtype=mine.dtype).dtype == mine.dtype == random.key_dtype(impl)
    assert random.PRNGKey(0, impl=impl).shape == jax.random.PRNGKey(0, impl=impl).shape
    with pytest.raises(TypeError, match="invalid PRNG key data"):
        random.wrap_key_data(np.zeros(3, np.uint32), impl=impl)


def test_words_are_keys_of_the_configured_generator():
    words = random.PRNGKey(0, impl="rbg")
    with pytest.raises(TypeError, match="invalid PRNG key data"):
        random.normal(words)
    with toile.default_prng_impl("rbg"):
        assert random.normal(words).shape == ()


@pytest.mark.parametrize("algorithm", [1, 2])
def test_a_vector_of_states_draws_from_its_first(algorithm):
    def run(p):
        states = p.numpy.arange(8, dtype=np.uint32).reshape(2, 4)
        return p.vmap(lambda s: p.lax.rng_bit_generator(s, (3,), algorithm=algorithm))(states)

    for mine, theirs in zip(run(toile), run(jax), strict=True):
        close(mine, theirs)


def test_dropout_takes_such_keys():
    import toile.linen as nn

    x = toile.numpy.ones((100,))
    drop = nn.Dropout(0.5, deterministic=False)
    out = toile.jit(lambda k: drop.apply({}, x, rngs={"dropout": k}))(random.key(0, impl="rbg"))
    assert 20 < int((out == 0).sum()) < 80
