"""Programs as users write them, planned for a GPU: nothing is left to the host.

One step in Python keeps a whole Program from being a graph: the host then issues every kernel."""

import pytest

import toile
from benchmarks import zoo
from benchmarks.operation_cells import library
from tests.compiler.test_python_steps import operations
from tests.gpu.fake_cudnn import FakeEngine
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import cudnn, cufft, cusolver

PROGRAMS = zoo.programs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_runs_on_the_host(name):
    program = PROGRAMS[name]
    made = program.make(library("toile"), **program.sizes["tiny"])
    traced = toile.make_jaxpr(made.step)(made.state, *made.batch).jaxpr
    with cudnn.use(FakeEngine()), cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
        plan = planned(optimize(traced), TARGET)
    assert [e.op.name for e in operations(plan)] == []
