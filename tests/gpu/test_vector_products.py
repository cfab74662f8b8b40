"""Products of a few vectors with a matrix: kernels that read the matrix once, run on the host.

Numbers are small integers, which all dtypes hold and whose sums are exact."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.gpu import fibers
from tests.gpu.fake_libraries import FakePlan
from tests.gpu.test_libraries_gpu import on_device
from toile import lax
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import Region
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.kernels.contraction import gpu as contractions
from toile.kernels.contraction import gpu_narrow, gpu_tiles, gpu_vectors
from toile.platforms.gpu.target import TARGET
from toile.primitives.contractions import DotGeneral
from toile.targets.cuda import modules
from toile.targets.cuda.cublas import Gemm, Matrix

BFLOAT16 = ml_dtypes.bfloat16
on_host = pytest.mark.skipif(not fibers.available(), reason="needs g++")

# labels, shapes of both operands
DOTS = {
    "one vector": ("ab,bc->ac", (1, 512), (512, 320)),
    "without an axis of rows": ("b,bc->c", (300,), (300, 264)),
    "two vectors": ("ab,bc->ac", (2, 513), (513, 264)),
    "four vectors": ("ab,bc->ac", (4, 700), (700, 2056)),
    "a result by columns": ("ab,bc->ca", (3, 259), (259, 280)),
    "the second operand is the vector": ("bc,b->c", (1024, 136), (1024,)),
    "vectors along columns": ("ba,bc->ac", (260, 3), (260, 304)),
    "merged axes": ("abc,bcde->ade", (1, 20, 16), (20, 16, 40, 8)),
    "a long sum": ("ab,bc->ac", (1, 4100), (4100, 72)),
    "a wide strip": ("ab,bc->ac", (1, 130), (130, 8200)),
}
DTYPES = [("f4", "f4"), (BFLOAT16, BFLOAT16), ("f2", "f2"), (BFLOAT16, "f4")]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def dot(name, dtype, result):
    labels, left, right = DOTS[name]
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
def test_products(name, dtype, result, monkeypatch):
    monkeypatch.setattr(gpu_vectors, "FEWEST_BYTES", 0)
    monkeypatch.setattr(gpu_tiles, "lower_few", lambda *_: False)
    monkeypatch.setattr(gpu_narrow, "launch", lambda _: None)
    op, x, y, expected = dot(name, dtype, result)
    out = np.full(expected.shape, 77, result)
    plan = lowered(op, x, y, out)
    (step,) = plan.steps
    assert step.note.startswith("vector product") and not plan.copies
    assert step.threads == modules.threads_of(step.text)
    plan.run(None)
    np.testing.assert_array_equal(out, expected)
