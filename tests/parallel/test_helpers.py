"""jax_utils and common_utils with eight devices: the loop that Flax's examples have."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import jax_utils, linen, optim
from toile.training import common_utils
from toile.training.train_state import TrainState

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
Y = X @ np.ones((3, 2), np.float32)


def test_replicate_and_unreplicate():
    tree = {"w": jnp.ones((2, 3)), "n": 3, "key": toile.random.key(0)}
    many = jax_utils.replicate(tree)
    assert many["w"].shape == (8, 2, 3) and len(many["w"].devices()) == 8
    assert many["n"].shape == (8,) and many["key"].shape == (8,)
    back = jax_utils.unreplicate(many)
    np.testing.assert_array_equal(back["w"], tree["w"])
    some = jax_utils.replicate(tree, toile.devices()[2:4])
    assert some["w"].devices() == set(toile.devices()[2:4])


COPIES = {
    "replicate": lambda lib, utils, put: utils.replicate(X[0]),
    "numpy": lambda lib, utils, put: X,
    "one device": lambda lib, utils, put: lib.numpy.asarray(X),
    "pmap": lambda lib, utils, put: lib.pmap(lambda x: x + 1)(X[:8]),
    "pmap without the axis": lambda lib, utils, put: lib.pmap(
        lambda x: lib.lax.pmean(x, "i"), "i", out_axes=None)(X[:8]),
    "a scalar without it": lambda lib, utils, put: lib.pmap(
        lambda x: lib.lax.pmean(x.sum(), "i"), "i", out_axes=None)(X[:8]),
    "pmap of one": lambda lib, utils, put: lib.pmap(lambda x: x + 1)(X[:1]),
    "another axis": lambda lib, utils, put: lib.pmap(lambda x: x, out_axes=1)(X[:8]),
    "everywhere": lambda lib, utils, put: put(8),
    "a mesh of one": lambda lib, utils, put: put(1, "i"),
    "parts of two": lambda lib, utils, put: put(8, "i"),
}


def unreplicated(lib, utils):
    """What `unreplicate` gives for the table, or the error that it raises."""

    def put(count, *axes):
        mesh = lib.sharding.Mesh(np.array(lib.devices()[:count]), ("i",))
        spec = lib.sharding.PartitionSpec(*axes)
        return lib.device_put(X, lib.sharding.NamedSharding(mesh, spec))

    found = {}
    for name, build in COPIES.items():
        try:
            found[name] = np.asarray(utils.unreplicate(build(lib, utils, put))).tolist()
        except ValueError as e:
            found[name] = type(e).__name__
    found["traced"] = lib.jit(utils.unreplicate)(put(8)).tolist()
    return found


def test_unreplicate_agrees_with_flax():
    """Flax has eight devices in a process of its own."""
    code = ("import json, jax; from flax import jax_utils; from tests.parallel import test_helpers;"
            "print(json.dumps(test_helpers.unreplicated(jax, jax_utils)))")
    root = pathlib.Path(__file__).parents[2]
    more = {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=300,
                          env={**os.environ, **more}, stdout=subprocess.PIPE, text=True)
    wanted = json.loads(done.stdout.splitlines()[-1])
    found = unreplicated(toile, jax_utils)
    assert list(found) == list(wanted)
    for name in wanted:
        if isinstance(wanted[name], str):
            assert found[name] == wanted[name]
        else:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, err_msg=name)


def test_the_loop_of_flax():
    model = linen.Dense(2)
    params = model.init(toile.random.key(0), X)["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optim.sgd(0.05))

    def step(state, batch, lax):
        def loss_of(params):
            return ((state.apply_fn({"params": params}, batch["x"]) - batch["y"]) ** 2).mean()

        loss, grads = toile.value_and_grad(loss_of)(state.params)
        if lax is not None:
            grads, loss = lax.pmean(grads, "batch"), lax.pmean(loss, "batch")
        return state.apply_gradients(grads=grads), {"loss": loss}

    mapped = toile.pmap(lambda s, b: step(s, b, toile.lax), axis_name="batch")
    many = jax_utils.replicate(state)
    single = toile.jit(lambda s, b: step(s, b, None))
    batches = [common_utils.shard({"x": X, "y": Y}) for _ in range(5)]
    measured, wanted = [], []
    for batch in jax_utils.prefetch_to_device(iter(batches), 2):
        many, found = mapped(many, batch)
        measured.append(found)
        state, loss = single(state, {"x": X, "y": Y})
        wanted.append(float(loss["loss"]))
    series = common_utils.get_metrics(measured)
    np.testing.assert_allclose(series["loss"], wanted, rtol=1e-5)
    np.testing.assert_allclose(jax_utils.unreplicate(many).params["kernel"],
                               state.params["kernel"], rtol=1e-5)
    assert many.step.shape == (8,) and int(jax_utils.unreplicate(many).step) == 5


def test_keys_and_padding():
    keys = common_utils.shard_prng_key(toile.random.PRNGKey(0))
    assert keys.shape[0] == 8
    drawn = toile.pmap(lambda k: toile.random.normal(k))(keys)
    assert len(set(drawn.tolist())) == 8
    predict = jax_utils.pad_shard_unpad(toile.pmap(lambda w, x: x * w, in_axes=(None, 0)))
    for size in (16, 13, 1):
        np.testing.assert_allclose(predict(2.0, X[:size]), 2 * X[:size])


def test_synchronised_batch_norm():
    norm = linen.BatchNorm(use_running_average=False, axis_name="batch")
    variables = linen.BatchNorm(use_running_average=False).init(toile.random.key(0), X)

    def apply(norm, x):
        return norm.apply(variables, x, mutable=["batch_stats"])

    out, stats = toile.pmap(lambda x: apply(norm, x), axis_name="batch")(X.reshape(8, 2, 3))
    wanted, all_stats = apply(linen.BatchNorm(use_running_average=False), X)
    np.testing.assert_allclose(out.reshape(16, 3), wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(toile.tree.leaves(stats), toile.tree.leaves(all_stats), strict=True):
        np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=1e-4, atol=1e-6)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    grouped = linen.BatchNorm(use_running_average=False, axis_name="batch",
                              axis_index_groups=groups)
    out, _ = toile.pmap(lambda x: apply(grouped, x), axis_name="batch")(X.reshape(8, 2, 3))
    for half in range(2):
        part = slice(8 * half, 8 * half + 8)
        wanted, _ = apply(linen.BatchNorm(use_running_average=False), X[part])
        np.testing.assert_allclose(out.reshape(16, 3)[part], wanted, rtol=1e-4, atol=1e-5)


def test_static_arguments_devices_and_sizes():
    f = toile.pmap(lambda x, n, y: x * n + y, static_broadcasted_argnums=1, in_axes=(0, None, None))
    np.testing.assert_allclose(f(X[:8], 3, 1.0), X[:8] * 3 + 1)
    some = toile.pmap(lambda x: x, devices=toile.devices()[4:6])(X[:2])
    assert some.devices() == set(toile.devices()[4:6])
    assert toile.pmap(lambda x: x, axis_size=4)(X[:4]).shape == (4, 3)
    with pytest.raises(ValueError, match="axis_size 3"):
        toile.pmap(lambda x: x, axis_size=3)(X[:4])
    with pytest.raises(ValueError, match="requires 16 logical devices, but only 8"):
        toile.pmap(lambda x: x)(X)
