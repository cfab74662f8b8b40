"""Metrics add up over batches, masks and devices to what NumPy says about all of the data."""

import numpy as np
import pytest

import toile
from toile import numpy as jnp
from toile import struct
from toile.training.metrics import (
    Accuracy,
    Average,
    CollectingMetric,
    Collection,
    LastValue,
    LossMetric,
    Metric,
    Perplexity,
    Std,
    Sum,
    TopKAccuracy,
)

R = np.random.RandomState(0)
VALUES = R.normal(size=17).astype(np.float32)
LOGITS, LABELS = R.normal(size=(17, 10)).astype(np.float32), R.randint(0, 10, 17)
MASK = R.uniform(size=17) < 0.7
PARTS = [slice(0, 5), slice(5, 16), slice(16, 17)]


def merged(kind, **outputs):
    """The metric over the data in three parts, starting from none."""
    total = kind.empty()
    for part in PARTS:
        total = total.merge(kind.from_model_output(**{k: v[part] for k, v in outputs.items()}))
    return total.compute()


TOP3 = np.array([label in np.argsort(-row)[:3] for row, label in zip(LOGITS, LABELS)])


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize(
    ("kind", "outputs", "values", "reduce"),
    [
        (Average, {"values": VALUES}, VALUES, np.mean),
        (Sum, {"values": VALUES}, VALUES, np.sum),
        (Std, {"values": VALUES}, VALUES, np.std),
        (LossMetric, {"loss": VALUES}, VALUES, np.mean),
        (Perplexity, {"loss": VALUES}, VALUES, lambda v: np.exp(v.mean())),
        (Accuracy, {"logits": LOGITS, "labels": LABELS}, LOGITS.argmax(-1) == LABELS, np.mean),
        (TopKAccuracy.of(3), {"logits": LOGITS, "labels": LABELS}, TOP3, np.mean),
        (Average.from_output("x"), {"x": VALUES, "y": VALUES}, VALUES, np.mean),
        (Std.from_fun(lambda x: x * x), {"x": VALUES, "y": VALUES}, VALUES**2, np.std),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else "",
)
def test_merged_parts_are_the_whole(kind, outputs, values, reduce, mask):
    kept = values if mask is None else values[mask]
    given = outputs if mask is None else {**outputs, "mask": mask}
    np.testing.assert_allclose(merged(kind, **given), reduce(kept), rtol=1e-5)


def test_reduce_over_a_stacked_axis():
    each = toile.vmap(lambda v: Average.from_model_output(v))(VALUES[:16].reshape(4, 4))
    np.testing.assert_allclose(each.reduce().compute(), VALUES[:16].mean(), rtol=1e-5)


def test_masks_of_fewer_axes():
    values = np.arange(6.0).reshape(3, 2)
    got = Average.from_model_output(values, mask=np.array([True, False, True]))
    assert (float(got.total), float(got.count)) == (10.0, 4.0)
    nan = Average.from_model_output(np.array([1.0, np.nan]), mask=np.array([1, 0]))
    assert float(nan.compute()) == 1.0
    with pytest.raises(ValueError, match=r"needed a mask whose shape is a prefix .*\(3, 2\)"):
        Average.from_model_output(values, mask=np.ones(2))


def test_last_value():
    one, two = (LastValue.from_model_output(v) for v in (0.1, 0.2))
    assert float(LastValue.empty().merge(one).merge(two).compute()) == pytest.approx(0.2)
    assert float(one.merge(LastValue.empty()).compute()) == pytest.approx(0.1)
    devices = toile.vmap(LastValue.from_model_output)(np.array([0.1, 0.3], np.float32))
    assert float(devices.reduce().value) == pytest.approx(0.2)


def test_masks_go_where_they_fit():
    mask = np.array([True, False])
    kind = Average.from_output("loss")
    assert float(kind.from_model_output(loss=jnp.float32(3), mask=mask).compute()) == 3.0
    assert float(LossMetric.from_model_output(loss=jnp.float32(3), mask=mask).compute()) == 3.0
    assert float(kind.from_model_output(loss=jnp.array([1.0, 9.0]), mask=mask).compute()) == 1.0
    hits = Accuracy.from_fun(lambda out, y: {"logits": out, "labels": y})
    got = hits.from_model_output(out=jnp.eye(2), y=jnp.array([0, 0]), mask=mask)
    assert float(got.compute()) == 1.0


def test_collecting():
    kind = CollectingMetric.from_outputs(("logits", "labels"))
    got = merged(kind, logits=LOGITS, labels=LABELS, loss=VALUES)
    assert sorted(got) == ["labels", "logits"]
    np.testing.assert_array_equal(got["logits"], LOGITS)
    both = kind(values={"x": (np.arange(6).reshape(2, 3),)}).reduce()
    assert both.compute()["x"].tolist() == [0, 1, 2, 3, 4, 5]
    one = kind.from_model_output(logits=LOGITS, labels=LABELS)
    with pytest.raises(RuntimeError, match="merged on the host"):
        toile.jit(lambda m: m.merge(one))(one)
    with pytest.raises(KeyError, match="needed outputs .'labels'."):
        kind.from_model_output(logits=LOGITS)


@struct.dataclass
class Metrics(Collection):
    accuracy: Accuracy
    loss: Average.from_output("loss")
    loss_std: Std.from_output("loss")


OUTPUTS = {"logits": LOGITS[:16], "labels": LABELS[:16], "loss": VALUES[:16]}
EXPECTED = {
    "accuracy": (LOGITS.argmax(-1) == LABELS)[:16].mean(),
    "loss": VALUES[:16].mean(),
    "loss_std": VALUES[:16].std(),
}


def check(values):
    assert list(values) == list(EXPECTED)
    for name, value in EXPECTED.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-5)


def test_collection_merges_in_a_jitted_loop():
    @toile.jit
    def update(metrics, **outputs):
        return metrics.merge(Metrics.single_from_model_output(**outputs))

    metrics = Metrics.empty()
    for part in (slice(0, 8), slice(8, 16)):
        metrics = update(metrics, **{k: v[part] for k, v in OUTPUTS.items()})
    check(metrics.compute())


def test_collection_over_devices():
    def one(outputs):
        return Metrics.gather_from_model_output(axis_name="batch", **outputs)

    shards = {k: v.reshape(4, 4, *v.shape[1:]) for k, v in OUTPUTS.items()}
    each = toile.vmap(one, axis_name="batch")(shards)
    check(each.unreplicate().compute())
    replicas = toile.pmap(one, axis_name="batch")({k: v[None] for k, v in OUTPUTS.items()})
    check(replicas.unreplicate().compute())


def test_collection_made_inline():
    kind = Collection.create(accuracy=Accuracy, loss=LossMetric)
    got = kind.single_from_model_output(**OUTPUTS).compute()
    np.testing.assert_allclose(got["loss"], EXPECTED["loss"], rtol=1e-5)
    empty = Collection.create_collection({"n": Sum.from_output("loss")})
    assert float(empty.compute()["n"]) == 0.0

    class More(Metrics):
        total: Sum.from_output("loss")

    assert list(More.single_from_model_output(**OUTPUTS).compute()) == [*EXPECTED, "total"]


def test_errors():
    with pytest.raises(ValueError, match="needed integer labels with one axis less"):
        Accuracy.from_model_output(logits=LOGITS, labels=LOGITS)
    with pytest.raises(KeyError, match="needed an output of this name"):
        Average.from_output("loss").from_model_output(logits=LOGITS)
    with pytest.raises(NotImplementedError, match="needed the method merge"):
        Metric().merge(Metric())
    assert jnp.isnan(Average.empty().compute())
