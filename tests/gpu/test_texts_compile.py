"""CUDA's compiler accepts the text of every kernel: of each operation's row, in all its dtypes.

NVRTC needs no GPU. The host that runs kernels in other tests knows more names than it does.
"""

import pytest

import toile
from tests.cases import dtype_of, noted
from tests.cases_control import ROWS
from tests.compiler.test_python_steps import program
from tests.gpu import nvrtc
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile.compiler.ir.steps import Region
from toile.compiler.plan.lower import planned
from toile.platforms.gpu.target import TARGET
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


def test_errors_are_found():
    text = "#define THREADS 32\n__device__ void body(const Word* w, unsigned block) { %s }\n"
    assert nvrtc.problem(Kernel(text % "").source) == ""
    assert "nothing" in nvrtc.problem(Kernel(text % "nothing();").source)
