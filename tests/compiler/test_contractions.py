"""Contractions by kernels against their eager rule: labels, strides, dtypes, odd extents."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.fake_plan import FakePlan, lowered
from toile import lax
from toile.kernels.contraction import (
    cpu as contractions,
)
from toile.kernels.contraction import (
    cpu_blas as blas,
)
from toile.kernels.contraction import (
    cpu_cuts as contraction_cuts,
)
from toile.primitives.contractions import DotGeneral

bfloat16 = np.dtype(ml_dtypes.bfloat16)
SINGLE = {"float32", "complex64", "float16", "bfloat16"}


def sample(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.2)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(-7 if dtype.kind == "i" else 0, 8, shape)).astype(dtype)
    x = np.asarray(rng.standard_normal(shape))
    return (x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def check(lhs, rhs, out, x, y, dtype=None, threads=2):
    """Compare with the eager rule; a bound by the sums of magnitudes. False where declined."""
    op = DotGeneral(lhs, rhs, out, dtype and np.dtype(dtype))
    expected = op.eager(np, x, y)
    found = lowered(contractions.lower, op, [x, y], [(expected.shape, expected.dtype)], threads)
    if found is None:
        return False
    found = found[0]
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return True
    wide = "c16" if expected.dtype.kind == "c" else "f8"
    magnitude = np.einsum(f"{lhs},{rhs}->{out}", abs(x.astype(wide)), abs(y.astype(wide)))
    terms = np.prod([n for c, n in zip(lhs, x.shape, strict=True) if c not in out]) + 4
    sums = 1.2e-7 if expected.dtype.name in SINGLE else 2.3e-16
    last = float(ml_dtypes.finfo(expected.dtype).eps)
    bound = magnitude * sums * terms + 2 * last * abs(expected.astype(wide)) + 1e-7 * (last > 1e-4)
    assert (abs(found.astype(wide) - expected.astype(wide)) <= bound).all()
    return True


PATTERNS = [
    "ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ki,jk->ij", "ik,kj->ji", "ki,jk->ji",
    "bik,bkj->bij", "bki,bjk->bij", "bik,bkj->ijb", "bik,bkj->ibj", "ibk,kjb->bji",
    "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bqhd,hdo->bqo", "bhqd,hdo->bqo", "bqi,bqo->io",
    "k,kj->j", "ik,k->i", "ki,k->i", "k,jk->j", "bk,bk->b", "kb,kb->b", "k,k->", "ij,ij->",
    "i,j->ij", "i,j->ji", "bi,bj->bij", "b,b->b", ",i->i", ",->", "kib,kjb->ijb", "akb,bck->ca",
]  # fmt: skip
SIZES = [1, 3, 7, 17, 33]


@pytest.fixture(params=["default", "blas", "own"])
def engine(request, monkeypatch):
    if request.param == "blas":
        monkeypatch.setattr(contraction_cuts, "BLAS_FROM", 0)
        monkeypatch.setattr(contraction_cuts, "BLAS_FROM_FEW_ROWS", 0)
        monkeypatch.setattr(contractions, "BLAS_VECTORS", 0)
    elif request.param == "own":
        monkeypatch.setattr(blas, "symbol", lambda routine: None)
    return request.param


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern, engine):
    rng = np.random.default_rng(0)
    operands, out = pattern.split("->")
    lhs, rhs = operands.split(",")
    for turn in range(6):
        size = {c: SIZES[(ord(c) * (turn + 1) + turn) % 5] for c in lhs + rhs}
        x, y = (sample(rng, [size[c] for c in s], "f4") for s in (lhs, rhs))
        assert check(lhs, rhs, out, x, y, threads=1 + turn % 3)


@pytest.mark.parametrize("pattern", ["ik,kj->ij", "bik,bjk->bij", "ik,k->i", "k,k->", "i,j->ij"])
def test_strides(pattern, engine):
    rng = np.random.default_rng(1)
    operands, out = pattern.split("->")
    lhs, rhs = operands.split(",")
    size = {"b": 3, "i": 18, "j": 21, "k": 37}

    def views(labels):
        shape = [size[c] for c in labels]
        base = sample(rng, [2 * n for n in shape], "f4")
        yield base[tuple(slice(None, None, 2) for _ in shape)]
        yield base[tuple(slice(n - 1, None, -1) for n in shape)]
        yield base[tuple(slice(1, n + 1) for n in shape)]
        yield np.broadcast_to(sample(rng, [1] + shape[1:], "f4"), shape)
        yield np.broadcast_to(sample(rng, shape[:-1] + [1], "f4"), shape)
        yield np.asfortranarray(sample(rng, shape, "f4"))

    for x in views(lhs):
        for y in views(rhs):
            assert check(lhs, rhs, out, x, y)


@pytest.mark.parametrize(
    "dtype", ["f8", "c8", "c16", "f2", bfloat16, "i1", "u1", "i2", "i4", "u4", "i8", "u8", "?"]
)
@pytest.mark.parametrize("pattern", ["ik,kj->ij", "bki,bjk->bij", "ik,k->i", "k,k->", "i,j->ij"])
def test_dtypes(dtype, pattern):
    rng = np.random.default_rng(2)
    operands, out = pattern.split("->")
    lhs, rhs = operands.split(",")
    for size in ({"b": 3, "i": 9, "j": 13, "k": 11}, {"b": 2, "i": 20, "j": 17, "k": 300}):
        x, y = (sample(rng, [size[c] for c in s], dtype) for s in (lhs, rhs))
        done = check(lhs, rhs, out, x, y)
        assert done or np.dtype(dtype).kind == "c" or np.dtype(dtype).itemsize == 8


@pytest.mark.parametrize(
    "operand, result",
    [("i1", "i4"), ("u1", "i4"), ("i1", "f4"), (bfloat16, "f4"), ("f2", "f4"), ("f4", "f8"),
     ("f4", bfloat16), ("i4", "f4"), ("?", "i4"), ("i4", "i1")],
)  # fmt: skip
def test_result_dtypes(operand, result):
    rng = np.random.default_rng(3)
    for k in (5, 600):
        x, y = sample(rng, (19, k), operand), sample(rng, (k, 30), operand)
        assert check("ik", "kj", "ij", x, y, result)
    assert not check("ik", "kj", "ij", sample(rng, (3, 4), "f4"), sample(rng, (4, 5), "f4"), "i4")


def test_extreme_bytes():
    """Sums of bytes are formed in float32, a bounded number at a time."""
    for dtype, value in (("i1", -128), ("u1", 255)):
        x = np.full((9, 1000), value, dtype)
        assert check("ik", "kj", "ij", x, x.T.copy(), "i4")


def test_nothing_summed_over():
    for dtype in ("f4", "i4", "f2"):
        x, y = np.zeros((5, 0), dtype), np.zeros((0, 7), dtype)
        assert check("ik", "kj", "ij", x, y)


def test_non_finite_numbers():
    x, y = np.ones((5, 9), "f4"), np.ones((9, 7), "f4")
    x[1, 2], x[3, 4], y[0, 5] = np.inf, np.nan, -np.inf
    (found,) = lowered(contractions.lower, DotGeneral("ik", "kj", "ij"), [x, y],
                       [((5, 7), np.dtype("f4"))])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, x @ y)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_large_products(threads):
    rng = np.random.default_rng(4)
    for m, k, n in ((400, 300, 350), (32, 256, 1024), (1100, 40, 700)):
        x, y = sample(rng, (m, k), "f4"), sample(rng, (k, n), "f4")
        assert check("ik", "kj", "ij", x, y, threads=threads)
        assert check("ki", "jk", "ji", x.T, y.T, threads=threads)


def test_long_dot_is_cut():
    rng = np.random.default_rng(5)
    x, y = sample(rng, (200_003,), "f4"), sample(rng, (200_003,), "f4")
    assert check("k", "k", "", x, y)
    assert check("k", "k", "", x[::-1], y)


def test_blas_runs_on_one_thread():
    found = blas.library()
    if blas.symbol("sgemm") is None:
        pytest.skip("no BLAS with a setter of threads")
    if not found.shared:
        assert all(counter.get() == 1 for counter in found.counters) and blas.guard() is None
    begin, end = _guard_of_a_shared_library(found)
    before = [counter.get() for counter in found.counters]
    begin()
    begin()
    end()
    assert all(counter.get() == 1 for counter in found.counters)
    end()
    assert [counter.get() for counter in found.counters] == before


def _guard_of_a_shared_library(found):
    shared, found.shared = found.shared, True
    try:
        return blas.guard()
    finally:
        found.shared = shared


@pytest.mark.parametrize("dtypes", [("f4", "f4", "f4"), ("f8", "f8", "f8"), ("i1", "i1", "i4"),
                                    ("i4", "i4", "i4"), ("f2", "f2", "f2"), ("?", "?", "?")])
def test_long_sums_of_small_products_are_cut(dtypes):
    """Parts of the sum side by side; C may be the transpose of what the kernel writes."""
    rng = np.random.default_rng(8)
    x, y = (sample(rng, (1536, n), d) for n, d in zip((24, 40), dtypes[:2], strict=True))
    for out in ("ab", "ba"):
        plan = FakePlan(3)
        to = np.zeros((24, 40) if out == "ab" else (40, 24), dtypes[2])
        op = DotGeneral("ka", "kb", out)
        assert contractions.lower(op, [plan.operand(x), plan.operand(y)], [plan.operand(to)], plan)
        assert len(plan.stages) == 2 and plan.stages[0][0].extent >= 3
        plan.run()
        want = np.einsum(f"ka,kb->{out}", x.astype("f8"), y.astype("f8"))
        want = want != 0 if dtypes[2] == "?" else want
        np.testing.assert_allclose(to.astype("f8"), want, rtol=2e-3 if dtypes[2] == "f2" else 1e-5,
                                   atol=0.05 if dtypes[2] == "f2" else 1e-4)  # fmt: skip


def test_rows_that_lie_apart_are_copied_for_wide_products():
    rng = np.random.default_rng(9)
    x, y = sample(rng, (40, 6, 32), "f4"), sample(rng, (32, 512), "f4")
    plan = FakePlan(2)
    out = np.zeros((6, 40, 512), "f4")
    op = DotGeneral("tbk", "kc", "btc")
    assert contractions.lower(op, [plan.operand(x), plan.operand(y)], [plan.operand(out)], plan)
    assert len(plan.stages) == 2
    plan.run()
    np.testing.assert_allclose(out, np.einsum("tbk,kc->btc", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", bfloat16])
@pytest.mark.parametrize("m, k, n", [(32, 64, 100), (5, 300, 170), (3, 256, 16), (90, 512, 40)])
def test_operand_that_a_loop_does_not_change_is_packed(m, k, n, dtype):
    rng = np.random.default_rng(7)
    x, w = sample(rng, (m, k), dtype), sample(rng, (k, n), dtype)
    want = x.astype("f8") @ w.astype("f8")
    for weight in (w, np.asfortranarray(w)):
        plan, out = FakePlan(2), np.ones((m, n), dtype)
        operands = plan.operand(x), plan.operand(weight)
        plan.fixed.append(operands[1].ref.buffer)
        op = DotGeneral("ab", "bc", "ac")
        assert contractions.lower(op, operands, [plan.operand(out)], plan)
        notes = [launch.note for stage in plan.stages for launch in stage]
        assert notes == ["pack", "product"] or (k > 256 and x.itemsize == 2)
        plan.run()
        eps = float(ml_dtypes.finfo(dtype).eps)
        atol = 1e-12 if dtype == "f8" else 1e-4
        np.testing.assert_allclose(out.astype("f8"), want, rtol=2 * eps, atol=atol)


def scanned(x, w, length=5):
    """A loop in a loop; the weight is the same in both."""
    inner = lambda h, _: (jnp.tanh(h @ w) + (h @ w).sum() * 0.01, None)
    outer = lambda h, _: (lax.scan(inner, h, length=2)[0] @ w * 0.1, None)
    return lax.scan(outer, x, length=length)[0]


def waited(x, w):
    body = lambda c: (c[0] + 1, jnp.tanh(c[1] @ w))
    return lax.while_loop(lambda c: c[0] < 4, body, (0, x))[1]


def sliced(x, w):
    """The weight of the inner loop is another one in each turn of the outer loop."""
    inner = lambda w: lambda h, _: (jnp.tanh(h @ w), None)
    ws = jnp.stack([w, 2 * w, w.T])
    return lax.scan(lambda h, w: (lax.scan(inner(w), h, length=3)[0], h), x, ws)


@pytest.mark.parametrize("f", [scanned, waited, sliced])
def test_weights_of_loops_are_packed_before_them(f):
    rng = np.random.default_rng(8)
    x, w = (jnp.asarray(0.1 * sample(rng, s, "f4")) for s in ((6, 72), (72, 72)))
    for a, b in zip(toile.tree.leaves(toile.jit(f)(x, w)), toile.tree.leaves(f(x, w)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    loss = lambda x, w: sum(jnp.sum(y**2) for y in toile.tree.leaves(f(x, w)))
    if f is not waited:
        for a, b in zip(toile.jit(toile.grad(loss, (0, 1)))(x, w), toile.grad(loss, (0, 1))(x, w),
                        strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    steps = plan_of(f, x, w).steps
    notes = [launch.note for step in steps for launch in getattr(step, "launches", ())]
    assert notes.count("pack") == (f is not sliced)


def plan_of(f, *args):
    jitted = toile.jit(f)
    jitted(*args)
    (traced,) = jitted.cache.entries.values()
    return traced.program.executable.plan
