"""training.replicated: the same losses on any number of devices, and the same bits on each."""

import jax
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


def test_donation_on_one_device():
    batch = next(images())
    for donate in (True, False):
        state = start(CNN(), batch)
        step = training.replicated(train_step, devices=toile.devices()[:1], donate=donate)
        step(state, batch)
        assert [x.is_deleted() for x in toile.tree.leaves(state.params)] == [donate] * 6


@pytest.mark.parametrize("model, data", [(CNN(), images), (Transformer(), tokens)])
def test_a_step_that_leaves_the_axis_alone_is_the_jitted_one(model, data):
    batches = list(data(steps=3))
    jitted = toile.jit(train_step)
    step = training.replicated(train_step, devices=toile.devices()[:1], donate=False)
    a = b = start(model, batches[0])
    assert str(jitted.trace(a, batches[0]).jaxpr) == str(step.single.trace(a, batches[0]).jaxpr)
    for batch in batches:
        (a, wanted), (b, found) = jitted(a, batch), step(b, batch)
    for x, y in zip(toile.tree.leaves((a, wanted)), toile.tree.leaves((b, found)), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def over_the_axis(lib, x):
    """Collectives at large, in derivatives and in loops."""
    lax = lib.lax
    index = lambda: lax.axis_index("batch")

    @lib.custom_vjp
    def scaled(v):
        return lax.psum(v, "batch") * (3 + index())

    scaled.defvjp(lambda v: (scaled(v), index()), lambda i, ct: (lax.pmean(ct, "batch") * (3 + i),))
    return {
        "psum": lax.psum(x, "batch"), "pmean": lax.pmean(x, "batch"), "pmax": lax.pmax(x, "batch"),
        "whole": lax.pmean(lax.psum(x.astype(int), "batch"), "batch"),
        "number": lib.numpy.float32(lax.psum(2.0, "batch")), "index": index(),
        "size": lib.numpy.int32(lax.axis_size("batch")),
        "groups": lax.psum(x, "batch", axis_index_groups=[[0]]),
        "gather": lax.all_gather(x, "batch"), "second": lax.all_gather(x, "batch", axis=1),
        "tiled": lax.all_gather(x, "batch", axis=1, tiled=True),
        "permute": lax.ppermute(x, "batch", [(0, 0)]),
        "scatter": lax.psum_scatter(x[None], "batch"),
        "exchange": lax.all_to_all(x[None], "batch", 0, 1),
        "grad": lib.grad(lambda v: (lax.pmean(v, "batch") ** 2).sum())(x),
        "scan": lax.scan(lambda c, _: (lax.psum(c, "batch") + index(), index()), x, None, length=3),
        "cond": lax.cond(x[0, 0] < 1, lambda v: lax.psum(v, "batch"), lambda v: v + index(), x),
        "jit": lib.jit(lambda v: lax.psum(v, "batch") + index())(x),
        "vmap": lib.vmap(lambda v: lax.psum(v, ("batch", "j")) + index(), axis_name="j")(x),
        "inner": lib.vmap(lambda v: lax.psum(v, "batch"), axis_name="batch")(x),
        "custom": lib.grad(lambda v: (scaled(v) ** 2).sum())(x),
    }


def test_the_axis_of_one_device():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    step = training.replicated(lambda s, b: (s, over_the_axis(toile, b)), donate=False,
                               devices=toile.devices()[:1])
    wanted = jax.pmap(lambda v: over_the_axis(jax, v), axis_name="batch")(x[None])
    _, found = step(jnp.float32(0), x)
    with toile.disable_jit():
        _, at_once = step(jnp.float32(0), jnp.asarray(x))
    for got in (found, at_once):
        assert sorted(got) == sorted(wanted)
        for name in wanted:
            for a, b in zip(toile.tree.leaves(got[name]), jax.tree.leaves(wanted[name]),
                            strict=True):
                assert (a.shape, a.dtype) == (b.shape[1:], b.dtype), name
                np.testing.assert_allclose(a, b[0], rtol=1e-6, err_msg=name)
    with pytest.raises(NameError, match="unbound axis name: other"):
        training.replicated(lambda s, b: (s, toile.lax.psum(b, "other")),
                            devices=toile.devices()[:1])(jnp.float32(0), x)


def test_the_axis_of_one_device_adds_none_to_the_program():
    def add(total, batch):
        lax = toile.lax
        return total + lax.pmean(batch, "batch") * (1 + lax.axis_index("batch")), None

    x = jnp.ones((4, 3))
    step = training.replicated(add, devices=toile.devices()[:1], donate=False)
    program = step.single.trace(x, x).jaxpr.jaxpr
    assert not program.axis_names
    shapes = {v.aval.shape for e in program.equations for v in e.outs}
    assert shapes == {(4, 3), (1,), ()}  # (1,) is the index before it loses its axis
    with pytest.raises(NameError, match="unbound axis name"):  # of plain jit there is none
        toile.jit(add)(x, x)


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
    same = training.replicated(step(model), devices=toile.devices()[:1], donate=False)
    many = training.replicated(step(model), devices=toile.devices()[:4], donate=False)
    wanted, found, alone = state, state, state
    for _ in range(3):
        wanted, a = one(wanted, {"x": x})
        alone, c = same(alone, {"x": x})
        found, b = many(found, {"x": x})
    training.check_replicas(found)
    both = [(s.params, s.collections, loss) for s, loss in ((wanted, a), (alone, c))]
    for u, v in zip(*map(toile.tree.leaves, both), strict=True):
        np.testing.assert_allclose(u, v, rtol=1e-6, atol=1e-7)
    stats = [toile.tree.leaves(s.collections) for s in (found, wanted)]
    if sync:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        for u, v in zip(*stats, strict=True):
            np.testing.assert_allclose(u, v, rtol=1e-4, atol=1e-5)
    else:  # means of parts of equal sizes; variances are of the parts
        np.testing.assert_allclose(stats[0][0], stats[1][0], rtol=1e-2, atol=1e-2)
