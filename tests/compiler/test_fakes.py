"""The plans that tests put in place of the compiler's have every method a lowering may call."""

import pytest

from tests.compiler import fake_plan as cpu
from tests.gpu import fake_libraries, fake_plan, test_libraries_gpu
from toile.compiler.plan.lower import Plan
from toile.platforms.gpu.planner import Plan as GpuPlan
from toile.targets.cuda.launches import Planner as OfGPUs
from toile.targets.llvm.launches import Planner as OfCPUs


@pytest.mark.parametrize("plan, asked", [
    (GpuPlan, OfGPUs), (Plan, OfCPUs), (cpu.FakePlan, OfCPUs), (fake_plan.FakePlan, OfGPUs),
    (fake_libraries.FakePlan, OfGPUs), (test_libraries_gpu.DevicePlan, OfGPUs),
])
def test_plans_have_what_lowerings_call(plan, asked):
    methods = {n for n, value in vars(asked).items() if callable(value) and n[0] != "_"}
    assert "scratch" in methods
    assert sorted(methods - {*dir(plan)}) == []
