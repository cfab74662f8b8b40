"""Products with epilogues by cuBLASLt on a GPU: the CPU's values, and the same bits each time."""

import numpy as np
import pytest

import toile
from tests.gpu import test_epilogues as cases
from toile.engine.trees import flatten
from toile.kernels.contraction import gpu_epilogues as epilogues
from toile.targets.cuda import cublaslt

pytestmark = pytest.mark.gpu


def on_cpu(fun, args):
    with toile.default_device(toile.devices("cpu")[0]):
        return [np.asarray(x) for x in flatten(toile.jit(lambda *xs: fun(*xs))(*args))[0]]


def on_gpu(fun, args):
    with toile.default_device(toile.devices("gpu")[0]):
        jitted = toile.jit(lambda *xs: fun(*xs))
        runs = [[np.asarray(x) for x in flatten(jitted(*args))[0]] for _ in range(3)]
    for other in runs[1:]:  # step by step, and as a graph
        for a, b in zip(runs[0], other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return runs[0]


FUNCTIONS = {
    "bias": (cases.dense, (cases.X, cases.W, cases.B)),
    "relu": (lambda *xs: toile.nn.relu(cases.dense(*xs)), (cases.X, cases.W, cases.B)),
    "two blocks": (cases.two_blocks, (cases.X, *cases.WEIGHTS)),
    "gradients": (cases.loss(cases.block), (cases.X, *cases.WEIGHTS)),
    "step": (cases.step_of, (cases.P32, cases.FX, cases.FY)),
    "steps of tasks": (cases.steps_of_tasks, (cases.Q32, cases.TX, cases.TY)),
    "float8, scaled": (lambda x, y, s, t: cases.scaled(x.astype(cases.e4m3), y.astype(cases.e4m3),
                                                       s, t),
                       (cases.X, cases.W, cases.S, cases.T)),
    "float8, scaled after": (lambda x, y, s: cases.direct(x.astype(cases.e4m3),
                                                          y.astype(cases.e4m3), s),
                             (cases.X, cases.W, cases.S)),
    "float8, mixed": (lambda x, y: cases.mixed(x.astype(cases.e5m2), y.astype(cases.e4m3)),
                      (cases.X, cases.W)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, monkeypatch):
    fun, args = FUNCTIONS[name]
    issued = []
    issue = cublaslt.LtMatmul.issue
    monkeypatch.setattr(cublaslt.LtMatmul, "issue",
                        lambda self, *rest: (issued.append(self), issue(self, *rest)))
    monkeypatch.setattr(epilogues, "LEAST_BYTES", 0)
    monkeypatch.setattr(epilogues, "MOVE", 0)
    got = on_gpu(fun, args)
    assert issued
    for a, b in zip(got, on_cpu(fun, args), strict=True):
        a, b = a.astype("f4"), b.astype("f4")
        np.testing.assert_allclose(a, b, rtol=3e-2, atol=2e-2 * abs(b).max())
