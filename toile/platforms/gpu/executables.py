"""Compiles Programs to CUDA kernels, once for each device, and runs them.

May import the compiler, control, primitives and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.program import Program
from toile.platforms.gpu.devices import GpuDevice
from toile.platforms.gpu.execution import Executable
from toile.platforms.gpu.memory import allocated, shelf
from toile.platforms.gpu.plans_on_disk import ahead, plan_of, planned

__all__ = ["ahead", "compiled", "executable_of", "run"]


def plan_key(device: GpuDevice) -> tuple[str, str, str]:
    """The key of a device's plan: equal GPUs share it, since libraries choose by GPU."""
    return "GPU plan", device.architecture, device.device_kind


def compiled(program: Program, device: GpuDevice) -> Executable:
    """The kernels of a Program for a device, which must be current; planned in this process."""
    key = plan_key(device)
    plan = program.memo.get(key)
    if plan is None or plan.recalled:
        plan = program.memo[key] = planned(program)
    return allocated(device, 0, lambda _: Executable(plan.given, plan, device), None)


def _recalled(program: Program, device: GpuDevice) -> Executable:
    """The same with a plan that may come from disk."""
    plan = program.memoized(plan_key(device), lambda: plan_of(program, device))
    if not plan.recalled:
        return compiled(program, device)
    return allocated(device, 0, lambda _: Executable(plan.given, plan, device, program), None)


def executable_of(program: Program, device: GpuDevice) -> Executable:
    """The compiled form of a Program, cached for each device."""
    with device.current():
        return program.memoized(device, lambda: _kept(program, device))


def _kept(program: Program, device: GpuDevice) -> Executable:
    """Compile a Program and keep the result; may evict older code (see `code_memory`)."""
    made = _recalled(program, device)
    shelf.add(program, made)
    return made


def run(program: Program, raws: Sequence[Any], device: GpuDevice) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it in the first call."""
    return executable_of(program, device)(raws)
