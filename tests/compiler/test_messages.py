"""Sums of messages: what the pass replaces, and the compiled sums against the plain ones."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import lowered
from tests.compiler.test_passes import names, program, same
from toile import lax
from toile.compiler import pipeline
from toile.compiler.passes.messages import EdgesByTarget, GatherScatter
from toile.kernels.messages.cpu import lower, lower_edges

EDGES, NODES = 300, 40


def graph(seed=0, low=0, dtype=np.int32):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.integers(low, NODES - low, EDGES).astype(dtype)) for _ in range(2)]


def messages(h, src, dst):
    return toile.ops.segment_sum(h[src], dst, NODES)


def test_gathered_rows_are_summed_without_an_array_of_them():
    src, dst = graph()
    h = jnp.asarray(np.random.default_rng(1).normal(size=(NODES, 33)).astype(np.float32))
    after = same(program(messages, h, src, dst), h, src, dst)
    assert names(after)[-2:] == ["edges_by_target", "gather_scatter"]
    assert "gather" not in names(after) and "scatter" not in names(after)


def test_layers_share_the_order_of_edges():
    src, dst = graph()
    h = jnp.ones((NODES, 32))

    def loss(h):
        for _ in range(3):
            h = jnp.tanh(messages(h, src, dst))
        return (h * h).sum()

    p = pipeline.optimize(program(toile.grad(loss), h))
    assert names(p).count("edges_by_target") == 2  # one by targets, one, going back, by sources
    assert names(p).count("gather_scatter") == 6
    np.testing.assert_allclose(toile.jit(toile.grad(loss))(h), toile.grad(loss)(h), rtol=1e-5,
                               atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("f", [
    lambda h, s, t: messages(h, s, t) + (h[s] * 2).sum(),
    lambda h, s, t: (lambda m: (toile.ops.segment_sum(m, t, NODES), m))(h[s]),
    lambda h, s, t: toile.ops.segment_sum(h.at[s].get(mode="fill", fill_value=1.0), t, NODES),
    lambda h, s, t: toile.ops.segment_sum(jnp.sin(h[s]), t, NODES),
], ids=["other use", "returned", "filled", "changed"])
def test_rows_from_elsewhere_are_summed(f):
    src, dst = graph()
    h = jnp.asarray(np.random.default_rng(1).normal(size=(NODES, 33)).astype(np.float32))
    after = same(program(f, h, src, dst), h, src, dst)
    assert "gather_scatter" in names(after)
    compiled_as_eager(f, h, src, dst)


@pytest.mark.parametrize("f", [
    lambda h, s, t: toile.ops.segment_max(h[s], t, NODES),
    lambda h, s, t: h.at[t].add(h[s]),
    lambda h, s, t: h.at[t[:20]].add(h[s[:20]]),
    lambda h, s, t: messages(h[:, 0], s, t),
    lambda h, s, t: h.at[t, 3].add(h[s, 2]),
], ids=["max", "in place", "few", "narrow", "elements"])
def test_other_scatters_stay(f):
    src, dst = graph()
    h = jnp.asarray(np.random.default_rng(1).normal(size=(NODES, 33)).astype(np.float32))
    after = same(program(f, h, src, dst), h, src, dst)
    assert "gather_scatter" not in names(after)
    compiled_as_eager(f, h, src, dst)


def compiled_as_eager(f, *args):
    compiled, eager = toile.tree.leaves(toile.jit(f)(*args)), toile.tree.leaves(f(*args))
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row, heads", [((37,), ()), ((4, 10), (4,)), ((3, 2, 5), (3, 2)),
                                        ((3, 2, 5), (3,)), ((15, 1), (15,))])
@pytest.mark.parametrize("low", [0, -5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_messages_may_have_weights(dtype, low, row, heads):
    src, dst = graph(low=low)
    rng = np.random.default_rng(1)
    h, w = (jnp.asarray((4 * rng.normal(size=s)).astype(dtype))
            for s in ((NODES, *row), (EDGES, *heads)))

    def f(h, w, src, dst):
        rows = h.at[src].get(mode="fill", fill_value=0)
        weights = w.reshape(*w.shape, *[1] * (h.ndim - w.ndim))
        return jnp.zeros((NODES, *row), h.dtype).at[dst].add(weights * rows, mode="drop")

    assert "gather_scatter" in names(same(program(f, h, w, src, dst), h, w, src, dst))
    got, want = (np.asarray(g(h, w, src, dst), float) for g in (toile.jit(f), f))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=0.2 if dtype == np.float16 else 1e-4)
    if dtype == np.float32:
        loss = lambda h, w: (f(h, w, src, dst) ** 2).sum() / 200
        compiled_as_eager(toile.grad(loss, (0, 1)), h, w)


def test_sums_may_start_from_an_array():
    src, dst = graph()
    h = jnp.asarray(np.random.default_rng(1).normal(size=(NODES, 33)).astype(np.float32))
    f = lambda h, s, t: jnp.sin(h).at[t].add(h[s])
    after = same(program(f, h, src, dst), h, src, dst)
    assert "gather_scatter" in names(after)
    np.testing.assert_allclose(toile.jit(f)(h, src, dst), f(h, src, dst), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("width", [(), (1,), (3,), (16,), (33,), (64,), (4, 25), (128,), (200,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8,
                                   np.int32, np.uint16, np.int64])
def test_sums_keep_the_order_of_edges(dtype, width):
    src, dst = (np.asarray(x)[:, None] for x in graph(seed=2))
    rng = np.random.default_rng(3)
    h = (rng.normal(size=(NODES, *width)) * 8).astype(dtype)
    edges = EdgesByTarget(NODES, NODES, True, False)
    ends, sources = edges.eager(np, src, dst)
    for start in ([], [(rng.normal(size=(NODES, *width)) * 8).astype(dtype)]):
        work = np.float32 if h.dtype.itemsize == 2 and h.dtype.kind not in "iu" else dtype
        want = (start[0] if start else np.zeros_like(h)).astype(work)
        np.add.at(want, dst[:, 0], h[src[:, 0]].astype(work))
        want = want.astype(dtype)
        got = lowered(lower, GatherScatter(), [h, ends, sources, *start],
                      [(want.shape, want.dtype)])  # fmt: skip
        assert got is not None and got[0].tobytes() == want.tobytes()
        eager = GatherScatter().eager(np, h, ends, sources, *start)
        assert eager.dtype == want.dtype
        np.testing.assert_allclose(eager.astype(float), want.astype(float), rtol=1e-2 if
                                   work != dtype else 1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("clips", [(a, b) for a in (0, 1) for b in (0, 1)])
def test_edges_outside_are_dropped_or_moved(dtype, clips):
    rng = np.random.default_rng(4)
    info = np.iinfo(dtype)
    ends_of = [max(info.min, -50), min(info.max, 90)]
    src, dst = (rng.integers(*ends_of, (EDGES, 1)).astype(dtype) for _ in range(2))
    src[:2, 0], dst[2:4, 0] = (info.min, info.max), (info.min, info.max)
    op = EdgesByTarget(NODES, NODES - 3, *map(bool, clips))
    want = op.eager(np, src, dst)
    got = lowered(lower_edges, op, [src, dst], [(x.shape, x.dtype) for x in want])
    for a, b in zip(got, want, strict=True):
        assert a.tobytes() == b.tobytes()


def test_indices_that_fill_by_zero_add_nothing():
    src, dst = graph(low=-5)
    h = jnp.asarray(np.random.default_rng(1).normal(size=(NODES, 20)).astype(np.float32))

    def f(h, src, dst):
        rows = h.at[src].get(mode="fill", fill_value=0.0)
        return jnp.zeros((NODES, 20)).at[dst].add(rows, mode="drop")

    after = same(program(f, h, src, dst), h, src, dst)
    assert "gather_scatter" in names(after)
    assert toile.jit(f)(h, src, dst).tobytes() == f(h, src, dst).tobytes()


def test_inside_a_scan():
    src, dst = graph()
    h = jnp.asarray(np.random.default_rng(1).normal(size=(NODES, 20)).astype(np.float32))

    def f(h):
        return lax.scan(lambda h, _: (jnp.tanh(messages(h, src, dst)), None), h, length=4)[0]

    np.testing.assert_allclose(toile.jit(f)(h), f(h), rtol=1e-5, atol=1e-6)
