"""Attention of a few queries to many keys: the kernel, run on the host, against a softmax."""

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import fibers, nvrtc
from tests.gpu.fake_libraries import FakePlan
from tests.gpu.test_libraries_gpu import on_device
from toile.kernels.attention import gpu as attending
from toile.kernels.attention import gpu_few_queries as few
from toile.kernels.attention.gpu_calls import Options
from toile.targets.cuda.modules import Kernel

BFLOAT16 = ml_dtypes.bfloat16
on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")

# batch, queries, keys, heads, heads of keys, depth, shape of the table or None
CASES = {
    "one head": (1, 1, 40, 1, 1, 64, None),
    "groups of heads": (2, 1, 256, 8, 2, 64, (2, 1)),
    "a table for each head": (1, 1, 100, 4, 4, 128, (1, 4)),
    "four queries": (2, 4, 70, 6, 3, 64, (1, 1)),
    "more rows than a block serves": (1, 3, 50, 12, 2, 64, (1, 12)),
    "parts": (1, 1, 1100, 4, 2, 64, (1, 1)),
    "parts of groups": (1, 2, 1100, 8, 2, 64, (1, 1)),
    "parts without a table": (1, 2, 1500, 2, 1, 128, None),
    "short rows": (3, 1, 5, 2, 2, 32, (3, 1)),
    "long vectors": (1, 1, 90, 8, 1, 256, None),
    "long vectors of few heads": (1, 1, 90, 3, 1, 256, (1, 1)),
}
DTYPES = [(BFLOAT16, BFLOAT16), ("f2", "f2"), (BFLOAT16, "f4")]


def given(name, dtype, addends):
    """Random operands: about half of the keys are hidden, and whole rows of others exist."""
    b, t, s, n, m, d, table = CASES[name]
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=shape).astype(dtype)
               for shape in ((b, t, n, d), (b, s, m, d), (b, s, m, d)))
    if table is None:
        return q, k, v, None
    low = few.LOW[np.dtype(addends).name]
    full = random.normal(size=(*table, t, s))
    full = np.where(random.random(full.shape) < 0.5, low, full)
    full[..., s // 2] = 0.25
    return q, k, v, full.astype(addends)


def expected(q, k, v, table, scale):
    q, k, v = (x.astype("f8") for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    logits = np.einsum("bthd,bshd->bhts", q, k) * scale
    logits = logits if table is None else logits + table.astype("f8")
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", weights / total, v), (top + np.log(total))[..., 0]


def operation(table):
    return attending.FusedAttention(Options(0.125), () if table is None else ("bias",))


def close(found, wanted, dtype):
    np.testing.assert_allclose(found.astype("f8"), wanted, rtol=2 ** (-7 if dtype is BFLOAT16
                                                                       else -9), atol=4e-3)


@on_host
@pytest.mark.parametrize(("dtype", "addends"), DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_attention(name, dtype, addends):
    q, k, v, table = given(name, dtype, addends)
    out = np.full(q.shape, 77, dtype)
    stats = np.full((q.shape[0], q.shape[2], q.shape[1]), 77, "f4")
    plan = FakePlan()
    xs = [plan.operand(x) for x in (q, k, v, table) if x is not None]
    outs = [plan.operand(out), plan.operand(stats)]
    assert attending.lower(operation(table), xs, outs, plan)
    assert plan.copies == 0 and len(plan.steps) == (2 if name.startswith("parts") else 1)
    plan.run(None)
    wanted, sums = expected(q, k, v, table, 0.125)
    close(out, wanted, dtype)
    np.testing.assert_allclose(stats, sums, rtol=1e-4, atol=1e-4)


@on_host
def test_views_are_read_in_place():
    """Keys and values may be slices of a larger array; a depth that is not innermost is copied."""
    random = np.random.default_rng(0)
    joint = random.normal(size=(2, 60, 3, 4, 64)).astype("f2")
    q, k, v = joint[:, 7:8, 0], joint[:, :, 1], joint[:, :, 2]
    for keys, copies in ((k, 0), (np.ascontiguousarray(k.swapaxes(2, 3)).swapaxes(2, 3), 1)):
        out = np.zeros(q.shape, "f2")
        plan = FakePlan()
        xs = [plan.operand(x) for x in (q, keys, v)]
        op = attending.FusedAttention(Options(0.125), (), sums=False)
        assert attending.lower(op, xs, [plan.operand(out)], plan)
        assert plan.copies == copies
        plan.run(None)
        close(out, expected(q, k, v, None, 0.125)[0], "f2")


@on_host
@pytest.mark.parametrize("name", ["groups of heads", "parts"])
def test_hidden_keys_have_no_effect(name):
    """What is stored where no key is seen does not matter: not even NaN."""
    q, k, v, table = given(name, "f2", "f2")
    hidden = (table <= few.LOW["float16"])[:, 0, 0]
    wanted, _ = expected(q, k, v, table, 0.125)
    k[hidden], v[hidden] = np.nan, np.nan
    out = np.zeros(q.shape, "f2")
    plan = FakePlan()
    op = attending.FusedAttention(Options(0.125), ("bias",), sums=False)
    attending.lower(op, [plan.operand(x) for x in (q, k, v, table)], [plan.operand(out)], plan)
    plan.run(None)
    close(out, wanted, "f2")


@on_host
@pytest.mark.parametrize("count", [512, 700])
def test_nan_is_not_hidden(count):
    """If all logits of a chunk or of a part are NaN, so is the result."""
    b, t, s, n, m, d = 1, 1, 1100, 2, 1, 64
    q, k, v = (np.ones(shape, "f2") for shape in ((b, t, n, d), (b, s, m, d), (b, s, m, d)))
    k[:, :count] = np.nan
    out = np.zeros(q.shape, "f2")
    plan = FakePlan()
    op = attending.FusedAttention(Options(0.125), (), sums=False)
    attending.lower(op, [plan.operand(x) for x in (q, k, v)], [plan.operand(out)], plan)
    plan.run(None)
    assert np.isnan(out).all()


@on_host
def test_a_key_is_hidden_from_one_query_only():
    """What a query must not see has no effect on it, even if it is NaN and others see it."""
    q, k, v, table = given("a table for each head", "f2", "f2")
    q, k, v = (np.repeat(x[:, :, :1], n, 2) for x, n in ((q, 4), (k, 1), (v, 1)))
    table[0, 0, 0, 7], table[0, 1:, 0, 7] = 0, few.LOW["float16"]
    wanted, _ = expected(q, k, v, table, 0.125)
    k[0, 7] = np.nan
    out = np.zeros(q.shape, "f2")
    plan = FakePlan()
    op = attending.FusedAttention(Options(0.125), ("bias",), sums=False)
    attending.lower(op, [plan.operand(x) for x in (q, k, v, table)], [plan.operand(out)], plan)
    plan.run(None)
    assert np.isnan(out[0, 0, 0]).all()
    close(out[0, 0, 1:], wanted[0, 0, 1:], "f2")


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("depth", [32, 64, 128, 256])
def test_texts_compile(depth):
    """They fit into the shared memory of a block."""
    for each in (1, 2, 3, 4, 8):
        for table, parts in (("", False), ("float32", True)):
            form = few._Form("bfloat16", table, depth, few._rows(each, depth), True, parts, parts)
            for text in (few._text(form), few._sum_text(form)):
                assert nvrtc.problem(Kernel(text).source) == ""


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "addends"), DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_attention_on_a_gpu(name, dtype, addends):
    q, k, v, table = given(name, dtype, addends)
    op = attending.FusedAttention(Options(0.125), () if table is None else ("bias",), sums=False)
    xs = [x for x in (q, k, v, table) if x is not None]
    found, plan = on_device(attending.lower, op, xs, np.zeros(q.shape, dtype))
    close(found, expected(q, k, v, table, 0.125)[0], dtype)
    assert all(s.note.startswith("attention") for s in plan.steps)
