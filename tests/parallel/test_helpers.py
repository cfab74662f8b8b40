"""jax_utils and common_utils with eight devices: the loop that Flax's examples have."""

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
