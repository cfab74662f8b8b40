"""Programs as users write them, and all functions of the map, planned for a GPU: nothing is left to
the host.

One step in Python keeps a whole Program from being a graph: the host then issues every kernel."""

import pytest

import toile
from benchmarks import operations as cells
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
    assert on_the_host(made.step, made.state, *made.batch) == []


def on_the_host(fun, *args):
    """The names of a function's operations that run in Python."""
    traced = toile.make_jaxpr(fun)(*args).jaxpr
    with cudnn.use(FakeEngine()), cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
        plan = planned(optimize(traced), TARGET)
    return [e.op.name for e in operations(plan)]


MAP = [m for m in cells.measurements() if m.size == "small"]


@pytest.mark.parametrize("group", sorted({m.group for m in MAP}))
def test_no_function_of_the_map_runs_on_the_host(group):
    """Each public function, its gradient, and its gradient for each example. LAPACK alone has
    eigenvalues of general matrices."""
    toile_, found = library("toile"), {}
    for m in MAP:
        if m.group == group:
            args = cells.arguments(m, "gpu")
            shapes = [toile.ShapeDtypeStruct(a.shape, a.dtype) for a in args]
            found[m.key] = on_the_host(cells.function(toile_, m, args), *shapes)
    expected = ["eig"] if group == "linalg" else []
    assert sorted({name for names in found.values() for name in names}) == expected, {
        key: names for key, names in found.items() if names}
