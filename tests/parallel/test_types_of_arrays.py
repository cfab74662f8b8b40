"""Types of arrays: as in JAX, they are equal whether or not an array is divided among devices."""

import itertools

import pytest

import toile
import toile.numpy as jnp
from toile import random
from toile.sharding import NamedSharding, PartitionSpec


def _arrays(keys):
    """A whole array, one in parts, and one that a compiled function has divided."""
    whole = random.split(random.key(0), 4) if keys else jnp.arange(4.0)
    sharding = NamedSharding(toile.make_mesh((2,), ("x",)), PartitionSpec("x"))
    parts = toile.device_put(whole, sharding)
    return whole, parts, toile.jit(lambda x: x[::-1])(parts)


@pytest.mark.parametrize("keys", [False, True])
def test_types_are_equal(keys):
    for x, y in itertools.product(_arrays(keys), repeat=2):
        assert type(x) == type(y) and not type(x) != type(y)  # noqa: E721
        assert isinstance(x, toile.Array)


def test_types_of_other_things_differ():
    for x in _arrays(False):
        for y in (*_arrays(True), 1.0, toile.ShapeDtypeStruct((4,), "float32"), None):
            assert type(x) != type(y) and type(y) != type(x)  # noqa: E721


@pytest.mark.parametrize("keys", [False, True])
def test_classes_are_different_keys(keys):
    whole, parts, _ = _arrays(keys)
    assert {type(whole): 1, type(parts): 2}[type(whole)] == 1
    assert toile.tree.leaves({"a": parts, "b": [whole]})[0] is parts
