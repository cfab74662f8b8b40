"""CUDA's compiler accepts the text of every kernel: of each operation's row, in all its dtypes.

NVRTC needs no GPU. The host that runs kernels in other tests knows more names than it does.
"""

import numpy as np
import pytest

import toile
from tests.cases import dtype_of, noted
from tests.cases_control import ROWS
from tests.compiler.test_python_steps import program
from tests.gpu import nvrtc
from tests.gpu.fake_plan import FakePlan
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile.compiler.ir.steps import Region
from toile.compiler.plan.lower import planned
from toile.kernels.sort import gpu as sorting
from toile.platforms.gpu.target import TARGET
from toile.primitives.sorts import Sort, TopK
from toile.targets.cuda import cufft, cusolver
from toile.targets.cuda.modules import Kernel

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
seen: set[str] = set()


def texts(made):
    """The texts of a plan's kernels, with what they are."""
    for step in made.all_steps():
        for x in step.launches if isinstance(step, Region) else ():
            yield x.text, x.note


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_texts_compile(row):
    for dtype in row.dtypes:
        with noted(f"{row}, {dtype}"), toile.enable_x64(dtype_of(dtype).itemsize >= 8):
            with cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
                made = planned(program(row, dtype), TARGET)
            for text, note in texts(made):
                if text not in seen:
                    seen.add(text)
                    assert nvrtc.problem(Kernel(text).source) == "", note


# Rows of the operations above are short.
@pytest.mark.parametrize("dtype,n", [
    ("f4", 4096), ("f4", 1 << 21), ("f8", 2048), ("f8", 1 << 17)])
def test_sorts_of_long_rows_compile(dtype, n):
    x, places = np.zeros(n, dtype), np.zeros(n, np.int32)
    plan = FakePlan()
    ins = [plan.operand(x), plan.operand(places)]
    assert sorting.lower(Sort(0), ins[:1], ins[:1], plan)
    assert sorting.lower(Sort(0), ins, ins, plan)
    for k in (8, 64):
        outs = [plan.operand(x[:k]), plan.operand(places[:k])]
        assert sorting.lower_top_k(TopK(k, 0), ins[:1], outs, plan)
    for text in {x.text for stage in plan.stages for x in stage}:
        assert nvrtc.problem(Kernel(text).source) == ""


def test_errors_are_found():
    text = "#define THREADS 32\n__device__ void body(const Word* w, unsigned block) { %s }\n"
    assert nvrtc.problem(Kernel(text % "").source) == ""
    assert "nothing" in nvrtc.problem(Kernel(text % "nothing();").source)
