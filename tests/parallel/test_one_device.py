"""Sharded arrays on one device take the fast path into compiled code, and nothing else changes.

The first calls of a jitted function take the general path. Later ones must return arrays with the
same values, shardings, types and attributes.
"""

import gc
import pickle

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine.sharded import Sharded
from toile.sharding import NamedSharding, SingleDeviceSharding
from toile.sharding import PartitionSpec as P

pytestmark = pytest.mark.cpu


def mesh(devices, number=0):
    return toile.sharding.Mesh(np.array(devices[number:number + 1]).reshape(1, 1), ("x", "y"))


# How arguments are placed, from the devices.
PLACES = {
    "replicated": lambda d: NamedSharding(mesh(d), P()),
    "divided by one": lambda d: NamedSharding(mesh(d), P("x")),
    "two axes": lambda d: NamedSharding(mesh(d, 2), P("x", "y")),
    "a device": lambda d: SingleDeviceSharding(d[3]),
    "host memory": lambda d: NamedSharding(mesh(d), P(), memory_kind="pinned_host"),
}


def attributes(x):
    """Everything about an array that a caller can see."""
    return {
        "type": type(x), "aval": str(x.aval), "shape": x.shape, "dtype": x.dtype,
        "weak": getattr(x, "weak_type", None), "sharding": x.sharding, "committed": x.committed,
        "devices": x.devices(), "device": x.device, "nbytes": x.nbytes, "size": x.size,
        "replicated": x.is_fully_replicated, "shards": [
            (s.device, s.index, s.replica_id, s.data.shape) for s in x.addressable_shards],
        "text": repr(x), "bytes": np.asarray(
            toile.random.key_data(x) if toile.dtypes.issubdtype(
                x.dtype, toile.dtypes.prng_key) else x).tobytes(),
    }


def arguments(place):
    key = toile.random.split(toile.random.key(0), (4, 2))
    given = {"a": np.arange(12.0, dtype=np.float32).reshape(4, 3), "b": np.ones((4, 5), "int8"),
             "key": key}
    return toile.device_put(given, place)


def step(t):
    # Elementwise results, smaller and larger ones, one without an operand, a weak one, and keys.
    return {"a": t["a"] * 2, "sum": t["a"].sum(0), "product": t["a"].T @ t["b"].astype("float32"),
            "new": jnp.arange(6), "weak": jnp.asarray(2.0) * 3, "b": t["b"], "key": t["key"]}


@pytest.mark.parametrize("name", PLACES)
def test_later_calls_are_like_the_first(devices, name):
    args = arguments(PLACES[name](devices))
    f = toile.jit(step)
    first = toile.tree.map(attributes, f(args), is_leaf=lambda x: isinstance(x, toile.Array))
    for _ in range(5):
        got = f(args)
        assert toile.tree.map(attributes, got, is_leaf=lambda x: isinstance(x, toile.Array)) == (
            first)
    entry = f.cache.paths[0]((args,), {})  # the fast path itself
    assert entry["a"].sharding == first["a"]["sharding"]
    np.testing.assert_array_equal(entry["a"], 2 * np.asarray(args["a"]))


@pytest.mark.parametrize("name", PLACES)
def test_results_are_arguments_again(devices, name):
    """A training loop: the results of one call are the arguments of the next."""
    args = arguments(PLACES[name](devices))

    def turn(t):
        return {**t, "a": t["a"] + 1}

    f, places = toile.jit(turn), []
    for _ in range(6):
        args = f(args)
        assert all(isinstance(x, Sharded) for x in toile.tree.leaves(args))
        places.append([x.sharding for x in toile.tree.leaves(args)])
    assert all(p == places[0] for p in places)
    assert float(args["a"][0, 0]) == 6.0


def test_shardings_and_plain_arrays_are_kept_apart(devices):
    """One function, arguments of the same shapes on different devices, in turn."""
    f = toile.jit(lambda x: x + 1)
    x = jnp.ones((4, 3))
    shardings = [PLACES[name](devices) for name in PLACES]
    for _ in range(5):
        plain = f(x)
        assert not isinstance(plain, Sharded) and not plain.committed
        for s in shardings:
            got = f(toile.device_put(x, s))
            assert got.sharding == s or got.sharding.is_equivalent_to(s, 2)
            assert got.devices() == s.device_set and got.committed
        with toile.default_device(devices[5]):
            got = f(jnp.ones((4, 3)))
            assert got.devices() == {devices[5]} and not got.committed


def test_devices_that_do_not_fit_are_refused_after_calls_that_do(devices):
    f = toile.jit(lambda x, y: x + y)
    x = jnp.ones(3)
    one, two = (toile.device_put(x, d) for d in devices[1:3])
    for _ in range(4):
        assert f(one, one).devices() == {devices[1]} and f(one, x).devices() == {devices[1]}
        with pytest.raises(ValueError, match="incompatible devices"):
            f(one, two)


@pytest.mark.parametrize("name", PLACES)
def test_donated_arguments_are_deleted(devices, name):
    f = toile.jit(lambda x: x + 1, donate_argnums=0)
    x = toile.device_put(np.zeros((64, 64), np.float32), PLACES[name](devices))
    for i in range(6):
        old, x = x, f(x)
        assert old.is_deleted() and not x.is_deleted()
        assert x.sharding == PLACES[name](devices) and float(x[0, 0]) == i + 1
        with pytest.raises(RuntimeError, match="deleted"):
            f(old)


def test_attributes_are_read_in_any_order(devices):
    """Compiled code fills in a signature only; each attribute is made from it when it is read."""
    x = arguments(PLACES["two axes"](devices))["a"]
    f = toile.jit(lambda x: x * 2)
    want = attributes(f(x))
    for _ in range(4):
        f(x)
    read = {
        "parts": lambda y: np.testing.assert_array_equal(y._parts[0], 2 * np.asarray(x)),
        "shards": lambda y: y.addressable_shards[0].data.block_until_ready(),
        "aval": lambda y: y.aval, "sharding": lambda y: y.sharding, "weak": lambda y: y.weak_type,
        "item": lambda y: float(y[1, 1]), "pickle": lambda y: pickle.loads(pickle.dumps(y)),
        "wait": lambda y: y.block_until_ready(), "iterate": lambda y: list(y),
        "operator": lambda y: y + y, "move": lambda y: toile.device_put(y, devices[7]),
    }
    for name, look in read.items():
        y = f(x)
        look(y)
        gc.collect()
        assert attributes(y) == want, name


def test_named_shardings_in_a_program(devices):
    """A constraint inside the function, on a mesh of one device."""
    place = PLACES["divided by one"](devices)
    f = toile.jit(lambda x: toile.lax.with_sharding_constraint(x * 2, place))
    x = jnp.ones((4, 3))
    for _ in range(5):
        assert f(x).sharding == place and f(x).committed


def test_a_larger_mesh_is_not_forgotten(devices):
    """A function that ran on one device is divided when its arguments are."""
    f = toile.jit(lambda x: x * 2)
    one, every = (NamedSharding(toile.sharding.Mesh(np.array(d), "x"), P("x"))
                  for d in (devices[:1], devices))
    x = np.arange(16.0, dtype=np.float32)
    for _ in range(4):
        for s in (one, every):
            got = f(toile.device_put(x, s))
            assert got.sharding == s and len(got.addressable_shards) == s.num_devices
            np.testing.assert_array_equal(got, 2 * x)
