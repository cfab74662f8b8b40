"""The smaller parts of a loop: loss scales, early stopping, schedules, prefetching, helpers."""

import threading

import numpy as np
import pytest

import toile
from tests.quick_jax import OPTIONS
from toile import numpy as jnp
from toile import random, tree
from toile.training import common_utils, dynamic_scale, lr_schedule
from toile.training.dynamic_scale import DynamicScale
from toile.training.early_stopping import EarlyStopping
from toile.training.prefetch_iterator import PrefetchIterator


def half_square(p):
    return jnp.asarray(p, jnp.float16) ** 2


def test_dynamic_scale_grows_and_shrinks():
    scale, p, seen = DynamicScale(growth_interval=2), jnp.float32(1.0), []
    step = toile.jit(lambda s, p: s.value_and_grad(half_square)(p))
    for _ in range(6):
        scale, finite, value, grad = step(scale, p)
        p = p + jnp.where(finite, 0.01 * grad, 0.0)
        seen.append(int(scale.scale))
        assert grad.dtype == jnp.float32
    assert seen == [32768, 16384, 16384, 16384, 32768, 16384]


def test_dynamic_scale_keeps_its_bounds():
    bad = DynamicScale(minimum_scale=1.0, scale=1.5)
    assert float(bad.value_and_grad(lambda p: p * jnp.inf)(1.0)[0].scale) == 1.0
    free = DynamicScale(minimum_scale=None, scale=1.5)
    assert float(free.value_and_grad(lambda p: p * jnp.inf)(1.0)[0].scale) == 0.75
    top = DynamicScale(scale=3e38, fin_steps=2000)
    grown, finite, value, grad = top.value_and_grad(lambda p: 1e-30 * p)(1.0)
    assert bool(finite) and float(grown.scale) == np.finfo(np.float32).max
    assert int(grown.fin_steps) == 0


def test_dynamic_scale_is_that_of_flax():
    import jax
    from flax.training import dynamic_scale as theirs

    def fun(p, q, factor):
        return p * q * factor, {"aux": q}

    def step(scale, *args):
        return scale.value_and_grad(fun, (0, 1), has_aux=True)(*args)

    def fields(s):
        return float(s.scale), int(s.fin_steps)

    ours, other = DynamicScale(growth_interval=1), theirs.DynamicScale(growth_interval=1)
    assert fields(ours) == fields(other)
    assert ours.minimum_scale == other.minimum_scale
    oracle = jax.jit(step, compiler_options=OPTIONS)
    for factor in (1.0, np.inf, 1.0, 1.0, 1.0, np.nan):
        ours, fine, value, grad = step(ours, 2.0, 3.0, factor)
        other, ok, answer, expected = oracle(other, 2.0, 3.0, factor)
        assert fields(ours) == fields(other) and bool(fine) == bool(ok)
        np.testing.assert_array_equal(value[0], answer[0])
        np.testing.assert_array_equal(grad, expected)
    assert dynamic_scale.DynamicScaleResult._fields == theirs.DynamicScaleResult._fields


def test_early_stopping():
    stop = EarlyStopping(min_delta=1e-3, patience=1)
    improved = []
    for metric in (0.01, 0.005, 0.0033, 0.0025, 0.002, 0.0017, 0.0014, 0.0012):
        stop = stop.update(metric)
        improved.append(stop.has_improved)
        if stop.should_stop:
            break
    assert (len(improved), sum(improved)) == (7, 4)
    assert not stop.reset().should_stop and stop.reset().best_metric == float("inf")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("constant", (0.1, 10)),
        ("constant", (0.1, 10, 2.0)),
        ("stepped", (0.1, 10, [[1, 0.5], [2.55, 0.1]], 0.5)),
        ("cosine", (0.1, 10, 4, 1.0)),
    ],
)
def test_schedules_are_those_of_flax(name, args):
    from flax.training import lr_schedule as theirs

    full = f"create_{name}_learning_rate_schedule"
    ours, other = getattr(lr_schedule, full)(*args), getattr(theirs, full)(*args)
    for step in (0, 3, 10, 11, 26, 40):
        np.testing.assert_allclose(ours(step), other(step), rtol=1e-6, atol=1e-8)
    if args[-1] != 10:
        np.testing.assert_allclose(toile.jit(ours)(7), ours(7), rtol=1e-6)


def prefetched(items, **options):
    with pytest.warns(DeprecationWarning, match="PrefetchIterator is deprecated"):
        return PrefetchIterator(items, **options)


def test_prefetch_iterator_keeps_order_and_ends():
    it = prefetched(iter(range(5)), buffer_size=2)
    assert list(it) == [0, 1, 2, 3, 4]
    with pytest.raises(StopIteration):
        next(it)


def test_prefetch_iterator_raises_errors_in_their_place():
    def items():
        yield 1
        raise OSError("disk")

    it = prefetched(items())
    assert next(it) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="disk"):
            next(it)


def test_prefetch_iterator_closes():
    made, more = [], threading.Event()

    def items():
        while True:
            made.append(1)
            yield len(made)
            more.wait(5)

    it = prefetched(items())
    assert next(it) == 1
    it.close()
    more.set()
    assert len(list(it)) <= 1
    assert len(made) < 10


def test_common_utils():
    xs = {"x": np.arange(12.0).reshape(6, 2)}
    assert common_utils.shard(xs)["x"].shape == (toile.local_device_count(), 6, 2)
    keys = common_utils.shard_prng_key(random.key(0))
    assert keys.shape == (toile.local_device_count(),)
    steps = [{"loss": jnp.full((1,), float(i))} for i in range(3)]
    assert common_utils.get_metrics(steps)["loss"].tolist() == [0.0, 1.0, 2.0]
    stacked = common_utils.stack_forest([(1, 2), (3, 4)])
    assert tree.map(lambda x: x.tolist(), stacked) == ([1, 3], [2, 4])
    hot = common_utils.onehot(jnp.array([[0, 2]]), 3, on_value=0.9, off_value=0.05)
    assert hot.shape == (1, 2, 3) and hot.dtype == jnp.float32
    np.testing.assert_allclose(hot[0, 1], [0.05, 0.05, 0.9], rtol=1e-6)
