"""Arrays over several devices: they index, print, add, pickle, go back in without a copy."""

import copy
import pickle

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.engine.sharded import ShardedArray
from toile.sharding import Mesh, NamedSharding, SingleDeviceSharding
from toile.sharding import PartitionSpec as P

X = np.arange(24.0, dtype=np.float32).reshape(8, 3)


def mesh(*shape, names="ab"):
    count = int(np.prod(shape))
    return Mesh(np.array(toile.devices()[:count]).reshape(shape), tuple(names[: len(shape)]))


@pytest.fixture
def sharded(devices):
    return toile.pmap(lambda v: v + 1)(X)


def test_devices(devices):
    assert toile.device_count() == toile.local_device_count() == len(devices) == 8
    assert [d.id for d in toile.local_devices()] == list(range(8))
    assert toile.process_index() == 0 and toile.process_count() == 1
    assert pickle.loads(pickle.dumps(devices[5])) is devices[5]


def test_it_is_an_array(sharded):
    assert isinstance(sharded, toile.Array) and isinstance(sharded, ShardedArray)
    assert sharded.shape == (8, 3) and sharded.dtype == np.float32 and sharded.ndim == 2
    assert sharded.size == 24 and sharded.nbytes == 96 and len(sharded) == 8
    np.testing.assert_array_equal(np.asarray(sharded), X + 1)
    np.testing.assert_array_equal(toile.device_get(sharded), X + 1)
    assert repr(sharded) == repr(jnp.asarray(X + 1)) and str(sharded) == str(X + 1)
    assert sharded.tolist() == (X + 1).tolist() and sharded[0, 0].item() == 1.0
    assert float(sharded[1, 2]) == 6.0 and bool((sharded > 0).all())
    assert sharded.block_until_ready() is sharded and sharded.is_ready()
    assert copy.deepcopy(sharded) is sharded
    back = pickle.loads(pickle.dumps(sharded))
    np.testing.assert_array_equal(back, X + 1)
    assert [r.tolist() for r in sharded] == (X + 1).tolist()
    assert toile.tree.map(lambda v: v * 2, {"a": sharded})["a"].shape == (8, 3)
    assert toile.tree.leaves({"a": sharded}) == [sharded]


def test_where_it_is(sharded, devices):
    assert sharded.devices() == set(devices) and sharded.committed
    assert not sharded.is_fully_replicated and sharded.is_fully_addressable
    assert sharded.sharding.spec == P("_internal_pmap_axis_name")
    shards = sharded.addressable_shards
    assert [s.device for s in shards] == devices and [s.replica_id for s in shards] == [0] * 8
    assert shards[3].index == (slice(3, 4), slice(None))
    np.testing.assert_array_equal(shards[3].data, X[3:4] + 1)
    assert shards[3].data.devices() == {devices[3]} and shards[3].data.committed
    np.testing.assert_array_equal(sharded.addressable_data(2), X[2:3] + 1)
    assert "index=(slice(3, 4" in repr(shards[3])


@pytest.mark.parametrize("f, keeps", [
    (lambda x: x + 1, True), (lambda x: 1 - x, True), (lambda x: x * x, True),
    (lambda x: jnp.sin(x), True), (lambda x: -x, True), (lambda x: x > 3, True),
    (lambda x: x / jnp.float32(3), True), (lambda x: jnp.where(x > 3, x, 0), True),
    (lambda x: x[0], False), (lambda x: x.sum(), False), (lambda x: x[2:4], False),
    (lambda x: x.T, None), (lambda x: x @ x.T, True), (lambda x: x.reshape(-1), True),
    (lambda x: x.astype(jnp.int32), True), (lambda x: jnp.concatenate([x, x]), False),
    (lambda x: x.at[0].set(0), None), (lambda x: jnp.sort(x, axis=0), None),
    (lambda x: toile.jit(lambda v: jnp.tanh(v) * 2)(x), True),
    (lambda x: toile.jit(lambda v: v.sum())(x), False),
])
def test_operations_on_it(sharded, f, keeps):
    found = f(sharded)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(f(jnp.asarray(X + 1))))
    assert found.devices() == sharded.devices()
    if keeps is not None:
        assert (found.sharding == sharded.sharding) == keeps
        assert found.is_fully_replicated != keeps


def test_it_goes_back_in_without_a_copy(sharded):
    seen = []

    def look(v):
        toile.debug.callback(lambda a: seen.append(a), v)
        return v * 1

    parts = sharded._parts
    toile.pmap(look)(sharded)
    assert sharded._parts is parts and len(seen) == 8
    assert not hasattr(type(sharded), "__dict__") or "_data" not in vars(type(sharded))
    with pytest.raises(AttributeError):  # never put together
        type(sharded)._data.__get__(sharded)
    again = toile.pmap(lambda v: v, out_axes=None)(sharded)
    assert again.is_fully_replicated and again.shape == (3,)


def test_donation(sharded):
    toile.pmap(lambda v: v + 1, donate_argnums=0)(sharded)
    assert sharded.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        sharded + 1
    with pytest.raises(RuntimeError, match="deleted"):
        toile.pmap(lambda v: v)(sharded)
    with pytest.raises(RuntimeError, match="deleted"):
        sharded.block_until_ready()


def test_keys_in_parts():
    keys = toile.random.split(toile.random.key(0), 8)
    found = toile.pmap(lambda k: toile.random.split(k, 2))(keys)
    wanted = toile.vmap(lambda k: toile.random.split(k, 2))(keys)
    assert found.shape == (8, 2) and found.dtype == wanted.dtype
    data = toile.random.key_data
    np.testing.assert_array_equal(data(found), data(wanted))
    np.testing.assert_array_equal(data(found[3]), data(wanted[3]))
    drawn = toile.pmap(lambda k: toile.random.normal(k[0]))(found)
    np.testing.assert_array_equal(drawn, [toile.random.normal(k) for k in wanted[:, 0]])


# ------------------------------------------------------------------------------------- placement


def test_device_put_to_a_device(devices):
    x = toile.device_put(X, devices[3])
    assert x.devices() == {devices[3]} and x.device is devices[3] and x.committed
    assert x.sharding == SingleDeviceSharding(devices[3])
    assert (x + 1).devices() == {devices[3]} and (x + jnp.ones(3)).committed
    assert toile.jit(lambda v: v @ v.T)(x).devices() == {devices[3]}
    assert not jnp.ones(3).committed and jnp.ones(3).devices() == {devices[0]}
    assert toile.device_put(x, devices[3]) is x
    tree = toile.device_put({"a": X, "b": 1.0}, devices[2])
    assert {v.device for v in tree.values()} == {devices[2]}
    several = toile.device_put((X, X), (devices[1], devices[2]))
    assert [v.device for v in several] == devices[1:3]
    y = toile.device_put(x, devices[4], donate=True)
    assert x.is_deleted() and y.device is devices[4]


def test_mixing_devices_is_an_error(devices):
    x, y = toile.device_put(X, devices[1]), toile.device_put(X, devices[2])
    text = r"incompatible devices for jitted computation.*ids \[1\] on platform CPU.*ids \[2\]"
    for f in (lambda: x + y, lambda: jnp.dot(x, y.T), lambda: toile.jit(jnp.add)(x, y),
              lambda: jnp.concatenate([x, y])):
        with pytest.raises(ValueError, match=text):
            f()
    np.testing.assert_array_equal(x + toile.device_put(y, devices[1]), 2 * X)


def test_default_device(devices):
    with toile.default_device(devices[5]):
        x = jnp.ones(3)
        assert x.devices() == {devices[5]} and not x.committed
        assert toile.device_put(X).devices() == {devices[5]}
    assert jnp.ones(3).devices() == {devices[0]}
    assert (x + toile.device_put(jnp.ones(3), devices[2])).devices() == {devices[2]}


@pytest.mark.parametrize("spec", [
    P("a"), P("a", "b"), P(None, "a"), P(("a", "b")), P(), P("b", None), P(None, ("b", "a")),
])
def test_device_put_to_a_sharding(spec):
    x = np.arange(8 * 16.0, dtype=np.float32).reshape(8, 16)
    sharding = NamedSharding(mesh(4, 2), spec)
    put = toile.device_put(x, sharding)
    assert put.sharding == sharding
    np.testing.assert_array_equal(put, x)
    for shard in put.addressable_shards:
        np.testing.assert_array_equal(shard.data, x[shard.index])
        assert shard.data.shape == sharding.shard_shape(x.shape)
    parts = [s.data for s in put.addressable_shards]
    made = toile.make_array_from_single_device_arrays(x.shape, sharding, parts)
    np.testing.assert_array_equal(made, x)
    called = toile.make_array_from_callback(x.shape, sharding, lambda index: x[index])
    np.testing.assert_array_equal(called, x)
    assert made.sharding == called.sharding == sharding
    moved = toile.reshard(put, NamedSharding(mesh(4, 2), P("b")))
    np.testing.assert_array_equal(moved, x)
    assert moved.sharding.spec == P("b")


def test_jit_with_shardings():
    grid = mesh(4, 2)
    rows, columns = NamedSharding(grid, P("a")), NamedSharding(grid, P(None, "b"))
    x = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    f = toile.jit(lambda x, y: (x + y, x.sum()), in_shardings=(rows, None),
                  out_shardings=(columns, None))
    for _ in range(3):
        a, b = f(x, x)
        np.testing.assert_array_equal(a, 2 * x)
        assert a.sharding == columns and b.devices() == set(grid.devices.flat)
    g = toile.jit(lambda x: toile.lax.with_sharding_constraint(jnp.sin(x), columns))
    for _ in range(3):
        assert g(x).sharding == columns
    assert toile.grad(lambda x: g(x).sum())(x).shape == x.shape
    put = toile.device_put(x, rows)
    w = toile.device_put(np.ones((4, 6), np.float32), NamedSharding(grid, P(None, "b")))
    assert toile.jit(jnp.dot)(put, w).sharding.spec == P("a", "b")
    assert toile.jit(lambda x: x.T * 2)(put).sharding.spec == P(None, "a")
    with pytest.raises(ValueError, match="incompatible"):
        toile.jit(jnp.sin, in_shardings=columns)(put)
    with pytest.raises(ValueError, match="partitioned 4 times|divisible|evenly"):
        toile.jit(jnp.sin, out_shardings=rows)(x[:6])


def test_specs_of_the_mesh_that_was_set(devices):
    x = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    with toile.set_mesh(mesh(4, 2)) as _:
        there = NamedSharding(toile.sharding.get_mesh(), P("a", "b"))
        for y in (toile.device_put(x, P("a", "b")), toile.jit(
                lambda v: toile.device_put(v, P("a", "b")))(x), toile.device_put(
                {"y": x}, {"y": P("a", "b")})["y"]):
            assert y.sharding == there and len(y.devices()) == 8
            np.testing.assert_array_equal(y, x)
    with pytest.raises(ValueError, match="set a mesh"):
        toile.device_put(x, P("a"))


def test_a_mesh_that_is_entered_is_part_of_the_key(devices):
    traced = []

    @toile.jit
    def double(x):
        traced.append(x.shape)
        return toile.lax.with_sharding_constraint(x * 2, P("a"))

    first, second = mesh(2), mesh(4)
    for each in (first, second, first):
        with each:
            assert double(X).sharding == NamedSharding(each, P("a"))
    assert len(traced) == 2


@pytest.mark.parametrize("kind", ["pmax", "pmin"])
@pytest.mark.parametrize("count", [3, 1 << 14])
def test_complex_numbers_are_compared(kind, count, devices):
    """Part by part where arrays are large: each thread writes one."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (4, count)) + 1j * rng.integers(-3, 4, (4, count))
    x = x.astype(np.complex64)
    found = toile.pmap(lambda v: getattr(toile.lax, kind)(v, "i"), "i")(x)
    right = (np.max if kind == "pmax" else np.min)(x, axis=0)
    np.testing.assert_array_equal(found, np.broadcast_to(right, x.shape))


def test_states_of_optimizers_lie_where_the_parameters_do(devices):
    from toile import optim

    s = NamedSharding(mesh(4, 2), P("a", "b"))
    params = {"w": toile.device_put(np.ones((8, 4), np.float32), s)}
    state = optim.adam(0.1).init(params)
    for moment in (state[0].mu["w"], state[0].nu["w"]):
        assert moment.sharding == s and [p.data.shape for p in moment.addressable_shards] == 8 * [
            (2, 2)]
    assert optim.sgd(0.1, momentum=0.9).init(params)[0].trace["w"].sharding == s


# What jax 0.10 and 0.12 say for operations outside of jit on an array of P("a").
LAYOUTS = {
    "x + 1": ("a",), "x.sum(0)": (), "x.sum(1)": ("a",), "x.max(1)": ("a",), "x.T": (None, "a"),
    "x.argmax(1)": ("a",), "x.reshape(8, 2, 2)": ("a",), "x.reshape(32)": None,
    "x[None]": (None, "a"), "x[:, :2]": ("a",), "x @ x.T": ("a",),
    "jnp.concatenate([x, x], 1)": ("a",),
    "jnp.stack([x, x])": (None, "a"), "jnp.cumsum(x, 1)": ("a",), "x.at[0].set(1.0)": ("a",),
    "jnp.einsum('ij,kj->ik', x, x)": ("a",), "jnp.squeeze(x[:, None])": ("a",),
    "jnp.broadcast_to(x, (2, 8, 4))": (None, "a"), "jnp.where(x > 3, x, 0)": ("a",),
    "jnp.split(x, 2, 1)[0]": ("a",), "jnp.linalg.norm(x)": (), "x.astype(jnp.bfloat16)": ("a",),
}


@pytest.mark.parametrize("text", LAYOUTS)
def test_results_outside_of_jit_lie_where_operands_do(text, devices):
    given = np.arange(32, dtype=np.float32).reshape(8, 4)
    s = NamedSharding(mesh(4), P("a"))
    x = toile.device_put(given, s)
    made = eval(text, {"x": x, "jnp": jnp})
    if LAYOUTS[text] is not None:
        assert tuple(made.sharding.spec) == LAYOUTS[text]
    assert made.sharding.device_set == s.device_set and made.committed
    whole = eval(text, {"x": jnp.asarray(given), "jnp": jnp})
    assert made.dtype == whole.dtype
    np.testing.assert_array_equal(np.asarray(made, np.float32), np.asarray(whole, np.float32))
    parts = [np.asarray(p.data, np.float32) for p in made.addressable_shards]
    for part, shard in zip(parts, made.addressable_shards, strict=True):
        np.testing.assert_array_equal(part, np.asarray(whole, np.float32)[shard.index])
