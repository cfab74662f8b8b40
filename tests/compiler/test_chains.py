"""Chains: what runs with a product or convolution block by block has the same bits as apart."""

import threading

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.closeness import nearly_equal
from tests.compiler.fake_plan import KERNEL, FakePlan
from toile import lax
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned as plan_of
from toile.compiler.plan.place import arena_layout
from toile.disk.object_cache import ObjectCache
from toile.kernels.contraction import cpu as contractions
from toile.kernels.contraction.cpu_instructions import SINGLE, grouping
from toile.platforms import cpu, recall
from toile.platforms.cpu import chains as chaining
from toile.platforms.cpu import execution
from toile.platforms.cpu.target import Target
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm import native, spans
from toile.targets.llvm.launches import Span
from toile.targets.llvm.product_types import element


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Chains where arrays are small, of many small blocks."""
    monkeypatch.setattr(chaining, "WORTH", 0)
    monkeypatch.setattr(chaining, "BLOCK", 1 << 12)
    monkeypatch.setattr(chaining, "MOST_BLOCK", 1 << 20)
    monkeypatch.setattr(chaining, "FAIR", 10)
    monkeypatch.setattr(contractions, "PACKED_ONCE", 64)
    monkeypatch.setattr(contractions, "LEAST_ROWS", 16)


def arrays(*shapes, dtype=np.float32):
    rng = np.random.default_rng(7)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def normed(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def conv(x, w, stride=1, groups=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers,
                                    feature_group_count=groups)


def gated(x, w, b):
    """An activation and what its derivative needs."""
    y = x @ w + b
    return toile.nn.gelu(y), y > 0


def in_scan(x, w, b):
    def step(h, row):
        h = jnp.tanh(h @ w + b + row)
        return h, h[:, 0]

    return lax.scan(step, x, jnp.arange(3, dtype=x.dtype))


def with_totals(x, w, b):
    """The gradient of a layer norm, which sums over its rows on the way."""
    y, back = toile.vjp(lambda x, b: normed(x) * b, x @ w, b)
    return back(y)


def padded_product(x, w):
    """A product whose rows are part of a larger array."""
    y = x @ w
    return jnp.concatenate([jnp.maximum(y, 0), y * 2], axis=1)


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


BF16 = ml_dtypes.bfloat16
DENSE = arrays((200, 24), (24, 40), (40,))
IMAGES = arrays((4, 24, 23, 8), (3, 3, 8, 16), (16,))
# Functions, arguments, and the notes of the links of each chain there must be.
# Processors that multiply bfloat16 round within the product.
_HALF = element(np.dtype(BF16))
ROUNDED = [["product", "round", "map"] if grouping(_HALF, _HALF, _HALF) == SINGLE else
           ["product", "map"]]
TILES = native.has("amx-bf16")  # convolutions with AMX run apart
CASES = {
    "bias, relu": (lambda x, w, b: jnp.maximum(x @ w + b, 0), DENSE, [["product", "map"]]),
    "gelu and mask": (gated, DENSE, [["product", "map"]]),
    "softmax": (lambda x, w, b: toile.nn.softmax(x @ w + b), DENSE, [["product", "row"]]),
    "result kept": (lambda x, w, b: (lambda y: (y, jnp.tanh(y + b)))(x @ w), DENSE,
                    [["product", "map"]]),
    "prologue": (lambda x, w: normed(x) @ w, arrays((131, 33), (33, 20)), [["row", "product"]]),
    "prologue kept": (lambda x, w: (lambda h: (h, h @ w))(normed(x)),
                      arrays((130, 32), (32, 20)), [["row", "product"]]),
    "both": (lambda x, w, b: toile.nn.softmax(normed(x) @ w + b), DENSE,
             [["row", "product", "row"]]),
    "two epilogues": (lambda x, w, b: (lambda y: (jnp.exp(y), y.sum(1)))(normed(x @ w) * b), DENSE,
                      [["product", "row"]]),
    "totals": (with_totals, arrays((300, 24), (24, 40), (40,)), [["product", "row"]]),
    "odd": (lambda x, w, b: jnp.maximum(x @ w + b, 0), arrays((151, 7), (7, 11), (11,)),
            [["product", "map"]]),
    "parts of rows": (lambda x, w, b: (x @ w + b)[:, 3:17] * 2, DENSE, [["product", "map"]]),
    "concatenated": (padded_product, DENSE[:2], [["product", "map"]]),
    "heads": (lambda q, k: toile.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)),
              arrays((2, 33, 3, 8), (2, 33, 3, 8)), [["product", "row"]]),
    "half precision": (lambda x, w, b: jnp.maximum(x @ w + b, 0),
                       arrays((1100, 24), (24, 20), (20,), dtype=BF16), [["product", "map"]]),
    "rounded": (lambda x, w, b: jnp.maximum(x @ w + b, 0),
                arrays((1100, 300), (300, 20), (20,), dtype=BF16), ROUNDED),
    "rounded from single": (lambda x, w, b: jnp.maximum(lax.dot_general(
        x, w, (((1,), (0,)), ((), ())), preferred_element_type=BF16) * 2, 0),
        arrays((200, 300), (300, 20), (20,)), [["product", "round", "map"]]),
    "convolution": (lambda x, w, b: jnp.maximum(conv(x, w) + b, 0), IMAGES,
                    [["convolution", "map"]]),
    "strided": (lambda x, w, b: jnp.maximum(conv(x, w, 2) + b, 0), IMAGES,
                [["convolution", "map"]]),
    "convolution, half": (lambda x, w, b: jnp.maximum(conv(x, w) + b, 0),
                          [x.astype(BF16) for x in IMAGES],
                          [] if TILES else [["convolution", "convert", "map"]]),
    "depthwise": (lambda x, w, b: jnp.maximum(conv(x, w, groups=8) + b, 0),
                  arrays((3, 10, 9, 8), (3, 3, 1, 8), (8,)), [["depthwise convolution", "map"]]),
    "pointwise": (lambda x, w, b: jnp.maximum(conv(jnp.maximum(x, 0), w) + b, 0),
                  arrays((4, 24, 23, 8), (1, 1, 8, 16), (16,)), [["map", "convolution", "map"]]),
    "pooling": (lambda x, w, b: toile.nn.relu(pooled(conv(x, w) + b)),
                arrays((4, 24, 22, 8), (3, 3, 8, 16), (16,)), [["convolution", "map", "windows",
                                                               "map"]]),
    "sums of rows": (lambda x, w, b: (lambda y: (y, y.sum(0), (y * y).sum(0)))(x @ w),
                     arrays((512, 24), (24, 40), (40,)), [["product", "column"]]),
    "scan": (in_scan, arrays((200, 40), (40, 40), (40,)), [["product", "map"]]),
}


def planned(f, args, threads):
    with toile.threads(threads):
        return plan_of(optimize(toile.make_jaxpr(f)(*args).jaxpr), Target(threads))


def chains_of(plan):
    return [x for step in plan.all_steps() for x in getattr(step, "launches", ())
            if isinstance(x, chaining.Chain)]


def traced(f, args):
    return toile.jit(lambda *args: f(*args)).trace(*args).traced


def results(f, args):
    found = traced(f, args)
    return cpu.compiled(found.program)([*found.raw_consts, *args])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_chained_is_apart(name, threads, monkeypatch):
    monkeypatch.setenv("TOILE_PLANS", "off")
    f, args, expected = CASES[name]
    found = chains_of(planned(f, args, threads))
    assert [[x.note for x in chain.links] for chain in found] == expected
    assert all(chain.extent > 1 for chain in found)
    with toile.threads(threads):
        chained = results(f, args)
        monkeypatch.setattr(chaining, "ENABLED", False)
        assert not chains_of(planned(f, args, threads))
        apart = results(f, args)
    for one, other in zip(chained, apart, strict=True):
        assert one.tobytes() == other.tobytes()
    eager = toile.tree.leaves(f(*map(jnp.asarray, args)))
    for one, want in zip(chained, eager, strict=True):
        nearly_equal(one, np.asarray(want), name, 64)


APART = {
    "another order": (lambda x, w, b: jnp.maximum((x @ w).T, 0) + b[:, None], DENSE),
    "column sums": (lambda x, w, b: (x @ w).sum(0) + b, DENSE),
    "a sum of everything": (lambda x, w, b: jnp.exp((x @ w) - (x @ w).sum()), DENSE),
    "other rows": (lambda x, w, b: (lambda y: y + y[::-1])(x @ w) * b, DENSE),
    "rows before": (lambda x, w, b: (lambda y: y[1:] + y[:-1])(x @ w) * b, DENSE),
    "some rows": (lambda x, w, b: jnp.maximum((x @ w)[:177] + b, 0), DENSE),
    "parts": (lambda x, w: jnp.tanh(x @ w / 1000), arrays((24, 60_000), (60_000, 24))),
    "columns": (lambda x, w: jnp.tanh(x @ w), arrays((16, 64), (64, 1024))),
    "all rows of A": (lambda x, w: jnp.maximum(x, 0).T @ w, arrays((99, 65), (99, 33))),
}
REASONS = {"parts": "its sum is cut into parts", "columns": "its units are blocks of columns",
           "some rows": "it has rows that the other does not"}


@pytest.mark.parametrize("name", APART)
def test_what_has_other_rows_stays_apart(name):
    f, args = APART[name]
    plan = planned(f, args, 2)
    assert chains_of(plan) == []
    if name in REASONS:
        assert REASONS[name] in plan.unchained.values()
    for one, want in zip(results(f, args), toile.tree.leaves(f(*args)), strict=True):
        nearly_equal(one, np.asarray(want), name, 256)


def test_small_arrays_stay_apart(monkeypatch):
    monkeypatch.setattr(chaining, "WORTH", 1 << 19)
    f, args, _ = CASES["bias, relu"]
    plan = planned(f, args, 2)
    assert not chains_of(plan) and [*plan.unchained.values()] == [
        "what passes between them is small"]


SPANS = [
    # offset, bytes of an element, outer axes, inner axes
    ((0, 4, [(5, 12)], [(3, 4)]), Span(0, 12, 12)),
    ((4, 4, [(5, 12)], [(2, 4)]), Span(4, 12, 12)),
    ((0, 4, [(2, 60), (5, 12)], [(3, 4)]), Span(0, 12, 12)),
    ((0, 4, [(2, 60), (1, 7), (5, 12)], [(3, 4), (1, -9)]), Span(0, 12, 12)),
    ((0, 4, [(2, 64), (5, 12)], [(3, 4)]), None),  # gaps
    ((0, 4, [(2, 12), (5, 24)], [(3, 4)]), None),  # another order
    ((0, 4, [(5, 12)], [(4, 4)]), None),  # overlapping
    ((0, 4, [(5, 0)], [(3, 4)]), None),  # all the same
    ((0, 4, [(2, 60), (5, 0)], [(3, 4)]), None),
    ((60, 4, [(5, -12)], [(3, 4)]), None),  # backwards
    ((8, 4, [(5, 12)], [(3, -4)]), None),
    ((0, 4, [(1, 12)], [(3, 4)]), None),  # one item
]


@pytest.mark.parametrize("given, expected", SPANS)
def test_spans(given, expected):
    assert spans.span(*given) == expected


def test_spans_of_a_buffer_that_is_touched_twice():
    a, b = Span(0, 4, 16), Span(8, 12, 16)
    assert spans.together([("x", a), ("x", b)]) == {"x": Span(0, 12, 16)}
    assert spans.together([("x", a), ("x", None)]) == {}
    assert spans.together([("x", a), ("x", Span(8, 12, 12))]) == {}
    assert spans.together([("x", a), ("x", Span(16, 20, 16))]) == {}


@pytest.mark.parametrize("shape", [(5, 64, 48, 32), (1, 600, 500, 300), (3, 37, 5, 9)])
def test_units_write_their_rows(shape):
    """What a unit of a product claims to write is what it writes."""
    b, m, n, k = shape
    x, y = arrays((b, m, k), (b, k, n))
    out = np.full((b, m, n), np.nan, np.float32)
    plan = FakePlan(3)
    operands = [plan.operand(v) for v in (x, y, out)]
    op = DotGeneral("bik", "bkj", "bij")
    assert contractions.lower(op, operands[:2], operands[2:], plan)
    (launch,) = plan.stages[-1]
    if launch.rows is None:
        assert launch.apart
        return
    span, each = launch.rows.spans[operands[2].ref.buffer], launch.rows.per_unit
    assert (span.low, span.step % (4 * n), span.high) == (0, 0, span.step)
    plan.run()
    out[...] = np.nan
    units = int(max(1, 1 / each))  # a whole number of items
    _, pointers, prepared = plan.held
    KERNEL(native.function(launch.text))(0, units, prepared[-1][1].ctypes.data,
                                         pointers.ctypes.data)
    done = int(units * each) * span.step // 4
    assert np.isfinite(out.reshape(-1)[:done]).all() and np.isnan(out.reshape(-1)[done:]).all()


@pytest.mark.parametrize("items, block, threads, expected", [
    (1024, 64, 2, (2, 512)), (1024, 64, 1, (4, 1024)), (2048, 192, 2, (1, 1088)),
    (49 * 64, 64, 2, (6, 1600)), (1000, 128, 8, (1, 128)),
])  # fmt: skip
def test_chunks_are_even(items, block, threads, expected):
    grain = chaining._grain(items, block, threads)
    assert (grain, chaining._longest(items, grain * block, threads)) == expected


def test_uneven_blocks_stay_apart(monkeypatch):
    monkeypatch.setattr(chaining, "FAIR", 0.5)  # how even they are depends on the vectors' length
    f, args, _ = CASES["bias, relu"]
    assert "its blocks do not divide evenly among the threads" in planned(
        f, args, 2).unchained.values()
    monkeypatch.setattr(chaining, "FAIR", 1.02)
    assert chains_of(planned(f, args, 1))


def test_recalled_chains_give_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.delenv("TOILE_PLANS", raising=False)
    monkeypatch.delenv("TOILE_DEBUG", raising=False)
    monkeypatch.setattr(recall, "WORTH", 0.0)
    monkeypatch.setattr(recall, "FEWEST", 1)
    monkeypatch.setattr(native.engine(), "cache", ObjectCache(tmp_path / "kernels"))
    for name in ("both", "scan", "half precision" if TILES else "convolution, half"):
        f, args, _ = CASES[name]
        found = traced(f, args)
        given = [*found.raw_consts, *args]
        made, again = (cpu.compiled(t.program) for t in (found, traced(f, args)))
        assert chains_of(made.plan) and type(again) is execution.Executable
        for one, other in zip(made(given), again(given), strict=True):
            assert one.tobytes() == other.tobytes()


def test_several_threads_at_once():
    """Each call has its own pointers, each chunk its own room."""
    f, args, _ = CASES["both"]
    jitted = toile.jit(f)
    expected = np.asarray(jitted(*args)).tobytes()
    wrong = []

    def call():
        for _ in range(30):
            if np.asarray(jitted(*args)).tobytes() != expected:
                wrong.append(1)

    workers = [threading.Thread(target=call) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_what_only_the_chain_reads_has_no_array():
    f, args, _ = CASES["bias, relu"]
    x, w, b = args
    nbytes = x.shape[0] * w.shape[1] * 4
    with toile.threads(2):
        plan = planned(f, args, 2)
        assert arena_layout(plan)[1] < nbytes
        (chain,) = chains_of(plan)
        (room,) = chain.rooms
        assert 0 < room.nbytes < nbytes / 4
        kept = planned(*CASES["result kept"][:2], 2)
    assert chains_of(kept)[0].rooms == ()


def test_a_step_in_between_may_stay_there():
    """The bias's gradient does not have to wait for the activation, nor that for the gradient."""
    def f(x, w, b):
        y = x @ w
        other = jnp.sort(b)
        return jnp.maximum(y + b, 0), other

    assert [[x.note for x in c.links] for c in chains_of(planned(f, DENSE, 2))] == [
        ["product", "map"]]


def test_a_new_batch_compiles_nothing(monkeypatch):
    monkeypatch.setattr(chaining, "WORTH", 1 << 15)
    f, (x, w, b), _ = CASES["gelu and mask"]
    first = toile.explain(f)(x[:100], w, b)
    assert not any(k.chain for k in first.kernels)
    second = toile.explain(f)(np.concatenate([x, x, x]), w, b)
    assert all(k.chain for k in second.kernels)
    assert second.compilation.compiled == second.compilation.read == 0


def test_explained_and_profiled():
    f, args, _ = CASES["both"]
    with toile.threads(2):
        explained = toile.explain(f)(*args)
        report = toile.profile(f, rounds=5)(*args)
    (chain,) = {k.chain for k in explained.kernels}
    assert chain.startswith("[1] → [2] → [3] in ") and chain.endswith(
        "; float32[200,24], float32[200,40] stays in the cache")
    assert chain in str(explained) and [k.chunks > 0 for k in explained.kernels] == [
        False, True, False]
    assert len(report.table(by="kernel").rows) == 4
    apart = toile.explain(APART["columns"][0])(*APART["columns"][1])
    assert any("its units are blocks of columns" in line for line in apart.kernels[0].borders)
