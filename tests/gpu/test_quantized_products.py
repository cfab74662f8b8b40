"""Products of few rows with stored integers: the kernels run on the host, and on a GPU."""

import numpy as np
import pytest

import toile
from tests.gpu import fibers, nvrtc
from tests.gpu.fake_libraries import FakePlan
from toile.compiler.ir.operands import Scratch
from toile.compiler.ir.steps import Region
from toile.compiler.passes.quantized_products import QuantizedProduct
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.kernels.quantized_product import gpu
from toile.platforms.gpu.target import TARGET
from toile.quantization import quantize_array
from toile.targets.cuda.modules import Kernel

CASES = [
    (m, k, n, how, transposed)
    for m, k, n in ((1, 128, 64), (3, 96, 37), (8, 200, 40), (2, 64, 1), (2, 640, 16),
                    (1, 1056, 2048), (5, 36, 128))
    for how in ({"bits": 8}, {"bits": 8, "group": 32, "symmetric": False},
                {"bits": 4, "group": 32}, {"bits": 4, "group": 24, "symmetric": False},
                {"bits": 4, "group": 2}, {"bits": 8, "group": 5}, {"bits": 4},
                {"bits": 8, "symmetric": False})
    for transposed in (False, True)
]


def operands(m, k, n, how, transposed):
    """The operands of the operation, and the exact result."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(m, k)).astype("f4"), rng.normal(size=(k, n)).astype("f4")
    q = quantize_array(w.T if transposed else w, axis=-1 if transposed else -2, **how)
    numbers = np.asarray(q).astype("f8")
    exact = x.astype("f8") @ (numbers.T if transposed else numbers)
    if transposed and q.bits == 4:
        x = np.concatenate([x[:, ::2], x[:, 1::2]], 1)
    parts = [np.array(a) for a in (q.values, q.scales, q.zeros) if a is not None]
    return QuantizedProduct(q.bits, q.group, transposed, has_sums=False), [x, *parts], exact


@pytest.mark.skipif(not fibers.available(), reason="needs g++")
@pytest.mark.parametrize(("m", "k", "n", "how", "transposed"), CASES, ids=str)
def test_kernels_on_the_host(m, k, n, how, transposed):
    op, given, exact = operands(m, k, n, how, transposed)
    plan, out = FakePlan(), np.full((m, n), np.nan, "f4")
    assert gpu.lower(op, [plan.operand(a) for a in given], [plan.operand(out)], plan)
    plan.run(None)
    assert np.abs(out - exact).max() <= 2e-5 * np.abs(exact).max()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("how", [{"bits": 8}, {"bits": 4, "group": 32, "symmetric": False}])
def test_the_plan_of_a_program(how, transposed):
    """The product is one kernel that reads the stored numbers, and CUDA's compiler accepts it."""
    _, (x, *_), _ = operands(2, 128, 64, how, False)
    w = np.ones((64, 128) if transposed else (128, 64), np.float32)
    q = quantize_array(w, axis=1 if transposed else 0, **how)
    f = toile.make_jaxpr(lambda x, q: x @ (q.T if transposed else q))
    made = planned(optimize(f(x, q).program), TARGET)
    found = [launch for step in made.all_steps() if isinstance(step, Region)
             for launch in step.launches]
    assert [x.note for x in found].count(f"int{q.bits} product") == 1
    assert all(v.nbytes < w.size for step in made.all_steps() for v in step.writes
               if isinstance(v, Scratch))
    if nvrtc.library() is not None:
        for launch in found:
            assert nvrtc.problem(Kernel(launch.text).source) == "", launch.note


@pytest.mark.gpu
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_on_a_gpu(bits, transposed):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 512)).astype("f4"), rng.normal(size=(512, 768)).astype("f4")
    q = quantize_array(w.T if transposed else w, bits=bits, group=64, axis=1 if transposed else 0)
    product = toile.jit(lambda x, q: x @ (q.T if transposed else q))
    exact = x.astype("f8") @ (np.asarray(q).T if transposed else np.asarray(q))
    assert f"int{bits} product" in str(toile.explain(product)(x, q))
    assert np.abs(np.asarray(product(x, q)) - exact).max() <= 1e-4 * np.abs(exact).max()
