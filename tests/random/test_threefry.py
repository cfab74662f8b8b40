"""The raw hash against JAX's, for single keys and batches, small and large."""

import warnings

import jax
import numpy as np
import pytest

from toile.primitives.arrays import threefry

SHAPES = [(), (1,), (3,), (0,), (3, 0), (4, 7), (192,), (193,), (1025,), (100, 333), (65537,)]
SEEDS = [0, 42, -1, 2**31 + 5]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def words(seed):
    return np.asarray(jax.random.PRNGKey(seed))


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_random_bits(width):
    for shape in SHAPES:
        with jax.enable_x64(width == 64):
            expected = np.asarray(jax.random.bits(words(7), shape, f"uint{width}"))
        found = threefry.random_bits(np, words(7), width, shape)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_split(seed):
    for shape in [(2,), (3, 5), (1000,), (0,), ()]:
        expected = np.asarray(jax.random.split(words(seed), shape))
        np.testing.assert_array_equal(threefry.split(np, words(seed), shape), expected)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (300,)])
def test_batches_of_keys(shape):
    keys = np.asarray(jax.random.split(words(3), (7, 3)))
    bits = jax.vmap(jax.vmap(lambda k: jax.random.bits(k, shape)))(keys)
    np.testing.assert_array_equal(threefry.random_bits(np, keys, 32, shape), bits)
    new = jax.vmap(jax.vmap(lambda k: jax.random.split(k, shape)))(keys)
    np.testing.assert_array_equal(threefry.split(np, keys, shape), new)


def test_fold_in():
    keys = np.asarray(jax.random.split(words(3), (7, 3)))
    data = np.arange(21, dtype=np.uint32).reshape(7, 3) * 77777777
    expected = jax.vmap(jax.vmap(jax.random.fold_in))(keys, data)
    np.testing.assert_array_equal(threefry.fold_in(np, keys, data), expected)
    one = threefry.fold_in(np, words(3), np.uint32(5))
    np.testing.assert_array_equal(one, jax.random.fold_in(words(3), 5))


@pytest.mark.parametrize("seed", [0, -1, 2**40 + 3, -(2**50) + 7, 2**63 - 1, -(2**63)])
def test_seed(seed):
    with jax.enable_x64(True):
        np.testing.assert_array_equal(threefry.seed(np, np.int64(seed)), words(seed))
    narrow = np.int64(seed).astype(np.int32)
    np.testing.assert_array_equal(threefry.seed(np, narrow), words(seed))


def test_narrow_seeds():
    for dtype in ("int8", "uint8", "int16", "uint16", "uint32"):
        seed = np.array(-1).astype(dtype)
        np.testing.assert_array_equal(threefry.seed(np, seed), words(seed))


def test_seeds_elementwise():
    seeds = np.arange(-3, 3).reshape(2, 3)
    assert threefry.seed(np, seeds).shape == (2, 3, 2)
    np.testing.assert_array_equal(threefry.seed(np, seeds)[0, 1], threefry.seed(np, seeds[0, 1]))


def test_big_counters():
    """Counts past 2**32 carry into the high word."""
    high, low = np.uint32([0, 1, 1]), np.uint32([2**32 - 1, 0, 1])
    y = threefry.threefry2x32(np, np.uint32(1), np.uint32(2), high, low)
    many = [np.broadcast_to(v, (500, 3)) for v in (high, low)]
    z = threefry.threefry2x32(np, np.uint32(1), np.uint32(2), *many)
    for few, lots in zip(y, z, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(few, (500, 3)), lots)


def test_known_answers():
    """Vectors published with the Random123 library."""
    for key, count, expected in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]:
        found = threefry.threefry2x32(np, *map(np.uint32, key + count))
        assert tuple(int(x) for x in found) == expected
