"""Products with few rows: kernels that divide sums among the warps of a block, run on the host.

Numbers are small integers, which all dtypes hold and whose sums are exact."""

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import fibers
from tests.gpu.fake_libraries import FakePlan
from tests.gpu.test_libraries_gpu import on_device
from toile.compiler.ir.operands import Ref
from toile.kernels.contraction import gpu as contractions
from toile.kernels.contraction import gpu_narrow
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import modules
from toile.targets.cuda.cublas import Gemm, Matrix

BFLOAT16 = ml_dtypes.bfloat16
on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")

# labels, shapes of both operands
DOTS = {
    "a layer": ("ab,bc->ac", (32, 512), (512, 96)),
    "weights along the sum": ("ab,cb->ac", (17, 136), (50, 136)),
    "wide, four rows": ("ab,bc->ac", (4, 192), (192, 260)),
    "a result by columns": ("ab,bc->ca", (20, 208), (208, 48)),
    "the second operand is narrow": ("ab,cb->ac", (200, 136), (50, 136)),
    "narrow, by columns": ("ab,cb->ca", (200, 136), (36, 136)),
    "a batch": ("nab,nbc->nac", (3, 20, 160), (3, 160, 48)),
    "merged axes": ("abc,bcde->ade", (18, 10, 16), (10, 16, 6, 8)),
    "64 rows": ("ab,bc->ac", (64, 256), (256, 130)),
    "one round and a bit": ("ab,bc->ac", (16, 1544), (1544, 40)),
}
DTYPES = [("f4", "f4"), (BFLOAT16, BFLOAT16), ("f2", "f2"), (BFLOAT16, "f4")]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def dot(name, dtype, result, dots=DOTS):
    labels, left, right = dots[name]
    operands, out = labels.split("->")
    x, y = numbers(left, dtype), numbers(right, dtype, 1)
    expected = np.einsum(labels, x.astype("f8"), y.astype("f8")).astype(result)
    return DotGeneral(*operands.split(","), out, np.dtype(result)), x, y, expected


def lowered(op, x, y, out):
    plan = FakePlan()
    assert contractions.by_library(op, [plan.operand(a) for a in (x, y)], [plan.operand(out)], plan)
    return plan


@on_host
@pytest.mark.parametrize(("dtype", "result"), DTYPES, ids=str)
@pytest.mark.parametrize("name", DOTS)
def test_products(name, dtype, result):
    op, x, y, expected = dot(name, dtype, result)
    out = np.full(expected.shape, 77, result)
    plan = lowered(op, x, y, out)
    (step,) = plan.steps
    assert step.note.startswith("narrow product") and not plan.copies
    assert step.threads == modules.threads_of(step.text)
    plan.run(None)
    np.testing.assert_array_equal(out, expected)


@on_host
def test_every_tile(monkeypatch):
    """Each tile gives the same result, and writes nothing else."""
    x, y = numbers((25, 264), "f4"), numbers((264, 52), "f4", 1)
    tiles = {gpu_narrow._tile(r, c, n, 4, 4) for r in (2, 16, 17, 33, 64)
             for c in (34, 512, 2048, 8192) for n in (1, 3, 40)}
    assert len(tiles) >= 4
    for tile in tiles:
        monkeypatch.setattr(gpu_narrow, "_tile", lambda *_, tile=tile: tile)
        whole = np.full((27, 56), 77, "f4")
        plan = lowered(DotGeneral("ab", "bc", "ac", np.dtype("f4")), x, y, whole[1:-1, 2:-2])
        plan.run(None)
        np.testing.assert_array_equal(whole[1:-1, 2:-2], x @ y)
        whole[1:-1, 2:-2] = 77
        assert (whole == 77).all()


@on_host
def test_views_are_read_in_place():
    whole = numbers((300, 400), "f4")
    for x, y in ((whole[:24, 8:208], whole[100:300, 4:52]), (whole[:24:2, :200], whole[:200, 1:40]),
                 (whole[:24, :200], whole[7:55, 200:].T)):
        out = np.zeros((x.shape[0], y.shape[1]), "f4")
        plan = lowered(DotGeneral("ab", "bc", "ac", np.dtype("f4")), x, y, out)
        assert [s.note for s in plan.steps] == ["narrow product float32 (tf32)"]
        plan.run(None)
        np.testing.assert_array_equal(out, x @ y)


def gemm(m=512, n=32, k=512, type="float32", result="float32", compute="tf32", **more):
    """C (m, n) = A (m, k) B (k, n), stored by columns."""
    place = Ref(object())
    return Gemm(m, n, k, Matrix(place, type, m), Matrix(place, type, k), Matrix(place, result, m),
                compute, **more)


@pytest.mark.parametrize(("call", "taken"), [
    (gemm(), True),
    (gemm(type="bfloat16", result="bfloat16", compute="float32"), True),
    (gemm(compute="float32"), False),  # all bits of float32 were asked for
    (gemm(type="complex64", result="complex64"), False),
    (gemm(n=65), False),  # many rows: cuBLAS has enough tiles
    (gemm(n=1), False),  # a vector
    (gemm(m=40), False),  # nearly square
    (gemm(k=64), False),  # short sums
    (gemm(k=510), False),  # rows that are not aligned
    (gemm(m=2048), True),
    (gemm(m=4096), False),  # many columns: cuBLAS has enough tiles
    (gemm(m=2048, k=2048), False),  # a large matrix takes long to read in any case
    (gemm(count=64), False),
    (gemm(beta=1.0), False),
    (gemm(loop=((0, 0, 0), (4, 4, 4))), False),
])
def test_which_products(call, taken):
    assert (gpu_narrow.launch(call, bool) is not None) == taken


def test_loads_fit_the_address():
    """An operand that begins in the middle of a vector is not read in vectors."""
    call = gemm()
    moved = Matrix(Ref(call.b.ref.buffer, 4), "float32", call.k)
    other = Gemm(call.m, call.n, call.k, call.a, moved, call.c, call.compute)
    assert gpu_narrow.launch(other, bool) is None


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "result"), DTYPES, ids=str)
@pytest.mark.parametrize("name", DOTS)
def test_products_on_a_gpu(name, dtype, result):
    op, x, y, expected = dot(name, dtype, result)
    found, plan = on_device(contractions.by_library, op, [x, y], np.zeros_like(expected))
    np.testing.assert_array_equal(found, expected)
    assert [s.note.split()[0] for s in plan.steps] == ["narrow"]
