"""training.replicated: the same losses on any number of devices, and the same bits on each."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.conftest import TEST_ALL
from toile import linen as nn
from toile import optim, training
from toile.sharding import PartitionSpec as P
from toile.training import metrics
from toile.training.train_state import ModelState, TrainState

STEPS = 200 if TEST_ALL else 20
COUNTS = (1, 2, 4, 8)


class CNN(nn.Module):
    """A small convolutional network."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(5)(nn.relu(nn.Dense(16)(x.reshape(x.shape[0], -1))))


class Transformer(nn.Module):
    """A small transformer."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 16)(tokens)
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        x = x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))
        return nn.Dense(5)(x.mean(1))


def images(batch=16, steps=STEPS):
    random = np.random.default_rng(0)
    for _ in range(steps):
        x = random.normal(size=(batch, 8, 8, 1)).astype(np.float32)
        yield {"x": x, "label": (x[:, :4].sum((1, 2, 3)) > 0).astype(np.int32)}


def tokens(batch=16, steps=STEPS):
    random = np.random.default_rng(0)
    for _ in range(steps):
        x = random.integers(0, 11, (batch, 6)).astype(np.int32)
        yield {"x": x, "label": x[:, 0] % 5}


def start(model, batch):
    params = model.init(toile.random.key(0), batch["x"][:1])["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optim.adam(1e-2))


def train_step(state, batch):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, batch["x"])
        losses = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        if "mask" not in batch:
            return losses.mean()
        return jnp.where(batch["mask"], losses, 0).sum() / batch["mask"].sum()

    loss, grads = toile.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss}


def losses(model, data, count, **options):
    batches = list(data)
    state = start(model, batches[0])
    step = training.replicated(train_step, devices=toile.devices()[:count], **options)
    found = []
    for batch in batches:
        state, measured = step(state, batch)
        found.append(float(measured["loss"]))
    return found, state


@pytest.mark.parametrize("model, data", [(CNN(), images), (Transformer(), tokens)])
def test_losses_do_not_depend_on_the_devices_and_replicas_are_equal(model, data):
    wanted, last = losses(model, data(), 1)
    assert np.mean(wanted[-5:]) < np.mean(wanted[:5])
    for count in COUNTS[1:]:
        found, state = losses(model, data(), count)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
        training.check_replicas(state)
        for x in toile.tree.leaves(state):
            assert len(x.devices()) == count and x.is_fully_replicated and x.sharding.spec == P()
        kernels = [toile.tree.leaves(s.params)[0] for s in (state, last)]
        np.testing.assert_allclose(*kernels, atol=5e-3)


def test_it_is_traced_once_for_a_kind():
    traces = []

    def step(state, batch):
        traces.append(1)
        return train_step(state, batch)

    batches = list(images(steps=5))
    state = start(CNN(), batches[0]).replace(step=jnp.asarray(0))
    mapped = training.replicated(step, devices=toile.devices()[:4])
    for batch in batches:
        state, _ = mapped(state, batch)
    assert len(traces) == 1


def test_a_batch_that_cannot_be_divided():
    batch = next(images(batch=13))
    state = start(CNN(), batch)
    step = training.replicated(train_step, devices=toile.devices()[:4], donate=False)
    with pytest.raises(ValueError, match=r"divisible by 4 devices, got 13.*'mask'"):
        step(state, batch)
    whole = training.replicated(train_step, devices=toile.devices()[:1], donate=False)
    masked = {**batch, "mask": np.ones(13, bool)}
    for size in (13, 1, 5):  # of the last, devices without an example
        part = {k: v[:size] for k, v in masked.items()}
        (a, loss), (b, wanted) = step(state, part), whole(state, part)
        np.testing.assert_allclose(loss["loss"], wanted["loss"], rtol=1e-5)
        for x, y in zip(toile.tree.leaves(a.params), toile.tree.leaves(b.params), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        training.check_replicas(a)
    with pytest.raises(ValueError, match="first axes of one size"):
        step(state, {**batch, "label": batch["label"][:3]})


def test_metrics_of_all_devices():
    @toile.struct.dataclass
    class Measured(metrics.Collection):
        loss: metrics.Average.from_output("loss")
        accuracy: metrics.Accuracy

    def step(state, batch):
        logits = state.apply_fn({"params": state.params}, batch["x"])
        each = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        new = Measured.single_from_model_output(loss=each, logits=logits, labels=batch["label"])
        return state, new, each.mean()

    batch = next(images())
    state = start(CNN(), batch)
    results = []
    for count in (1, 4):
        mapped = training.replicated(step, devices=toile.devices()[:count], donate=False)
        _, measured, mean = mapped(state, batch)
        results.append([float(v) for v in (*measured.compute().values(), mean)])
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_random_numbers_differ_between_devices():
    model = nn.Sequential([nn.Dense(4), nn.Dropout(0.5, deterministic=False)])
    state = ModelState.init(model, optim.sgd(0.1), toile.random.key(0), np.ones((1, 3)))

    def step(state, batch, key):
        out, _ = state.forward(state.params, batch["x"])
        drawn = toile.random.uniform(key)
        lax = toile.lax
        return state, [lax.all_gather(v, "batch") for v in (out[0] == 0, drawn)]

    for count in (2, 4):
        mapped = training.replicated(step, devices=toile.devices()[:count], donate=False)
        _, (zeros, drawn) = mapped(state, {"x": np.ones((8, 3), np.float32)}, toile.random.key(1))
        assert len(set(np.asarray(drawn).tolist())) == count
        assert len({row.tobytes() for row in np.asarray(zeros)}) > 1
        training.check_replicas([zeros, drawn])


def test_donation_and_replicate():
    batch = next(images())
    state = start(CNN(), batch)
    step = training.replicated(train_step, devices=toile.devices()[:2])
    state = step.replicate(state)
    leaves = toile.tree.leaves(state.params)
    assert all(x.is_fully_replicated and len(x.devices()) == 2 for x in leaves)
    step(state, batch)
    assert all(x.is_deleted() for x in leaves)


def test_check_replicas_says_what_differs():
    differs = toile.pmap(lambda v: v, out_axes=None)(np.arange(4.0, dtype=np.float32))
    with pytest.raises(ValueError, match=r"\['w'\]\['b'\] on CpuDevice\(id=1\)"):
        training.check_replicas({"w": {"a": jnp.ones(2), "b": differs}})


@pytest.mark.parametrize("sync", [False, True])
def test_batch_norm(sync):
    model = nn.Sequential([nn.Dense(4), nn.BatchNorm(
        use_running_average=False, axis_name="batch" if sync else None, axis_index_groups=None)])
    x = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    whole = nn.Sequential([nn.Dense(4), nn.BatchNorm(use_running_average=False)])
    state = ModelState.init(whole, optim.sgd(0.1), toile.random.key(0), x)

    def step(model):
        def run(state, batch):
            def loss_of(params):
                out, changed = model.apply(state.variables(params), batch["x"],
                                           mutable=["batch_stats"])
                return (out[:, :2] ** 3).mean(), changed

            (loss, changed), grads = toile.value_and_grad(loss_of, has_aux=True)(state.params)
            return state.apply_gradients(grads=grads, collections=changed), loss

        return run

    one = training.replicated(step(whole), devices=toile.devices()[:1], donate=False)
    many = training.replicated(step(model), devices=toile.devices()[:4], donate=False)
    wanted, found = state, state
    for _ in range(3):
        wanted, a = one(wanted, {"x": x})
        found, b = many(found, {"x": x})
    training.check_replicas(found)
    stats = [toile.tree.leaves(s.collections) for s in (found, wanted)]
    if sync:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        for u, v in zip(*stats, strict=True):
            np.testing.assert_allclose(u, v, rtol=1e-4, atol=1e-5)
    else:  # means of parts of equal sizes; variances are of the parts
        np.testing.assert_allclose(stats[0][0], stats[1][0], rtol=1e-2, atol=1e-2)
