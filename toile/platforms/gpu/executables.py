"""Compiles Programs to CUDA kernels, once for each device, and runs them.

This module may import the compiler, control, primitives, platforms.gpu and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.compiler.index_tests import Form, Tested, tested, worst_index
from toile.engine.check_switch import enabled
from toile.engine.out_of_bounds import Bounds
from toile.engine.program import Program
from toile.platforms.gpu.devices import GpuDevice
from toile.platforms.gpu.execution import Executable
from toile.platforms.gpu.index_words import MOST_LATE, LateIndex
from toile.platforms.gpu.memory import allocated, shelf
from toile.platforms.gpu.plans_on_disk import ahead, plan_of, planned

__all__ = ["ahead", "check_indices", "compiled", "executable_of", "run"]


def plan_key(device: GpuDevice) -> tuple[str, str, str]:
    """The key of a device's plan: equal GPUs share it, since libraries choose by GPU."""
    return "GPU plan", device.architecture, device.device_kind


def compiled(program: Program, device: GpuDevice) -> Executable:
    """The kernels of a Program for a device, which must be current; planned in this process."""
    key = plan_key(device)
    plan, tests = program.memo.get(key), tests_of(program)
    if plan is None or plan.recalled:
        plan = program.memo[key] = planned(_compiled(program))
    return allocated(device, 0, lambda _: Executable(plan.given, plan, device, None, tests), None)


def _recalled(program: Program, device: GpuDevice) -> Executable:
    """The same with a plan that may come from disk."""
    plan = program.memoized(plan_key(device), lambda: plan_of(_compiled(program), device))
    if not plan.recalled:
        return compiled(program, device)
    tests = tests_of(program)
    return allocated(device, 0, lambda _: Executable(plan.given, plan, device, program, tests),
                     None)


# Whether indices are tested inside loops without `toile.checks("index")`. These tests are kernels
# in each iteration: they took 11% of a step of deep Q-learning and 5% of sampling on an H200.
tests_in_loops = False


def _in_loops() -> bool:
    return tests_in_loops or enabled("index")


def tests_of(program: Program) -> Tested | None:
    """The tests of a Program's indices; None if there are none."""
    key = "index tests", _in_loops()
    return program.memoized(key, lambda: (tested(program, _in_loops()),))[0]


def _compiled(program: Program) -> Program:
    """The Program that is compiled: if it tests indices, bad ones are kept until they are read."""
    tests = tests_of(program)
    if tests is None:
        return program
    return program.memoized(("kept tests", _in_loops()), tests.keeping)


def executable_of(program: Program, device: GpuDevice) -> Executable:
    """The compiled form of a Program, cached for each device."""
    with device.current():
        return program.memoized(device, lambda: _kept(program, device))


def _kept(program: Program, device: GpuDevice) -> Executable:
    """Compile a Program and keep the result; may evict older code (see `code_memory`)."""
    made = _recalled(program, device)
    shelf.add(program, made)
    return made


def check_indices(data: Any, bounds: Bounds, device: GpuDevice) -> None:
    """Check a buffer of indices; what is found is read when the host waits for the device."""
    form = Form(np.dtype(data.dtype), bounds.low, bounds.high)
    (worst,) = run(worst_index(tuple(data.shape), form), [data], device)
    device.tested.add(LateIndex(worst, form, bounds))
    if len(device.tested) > MOST_LATE:
        device.synchronize()


def run(program: Program, raws: Sequence[Any], device: GpuDevice) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it in the first call."""
    return executable_of(program, device)(raws)
