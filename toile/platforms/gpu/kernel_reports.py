"""Information for `toile.inspection` on a GPU: kernels, precision, how calls are issued.

This module may import platforms.gpu, targets and the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toile.engine.program import Program
from toile.platforms.gpu import executables, memory, plans_on_disk, step_times
from toile.platforms.gpu.execution import overwritten
from toile.targets.cuda import cublas, modules, precision

__all__ = ["compile_seconds", "compiled_anew", "drafted", "free_memory", "issued", "kernels_of",
           "launches_of", "note_precision", "overwriting", "step_times", "workspace"]


def compiled_anew(program: Program, device: Any) -> tuple[Any, set[Any]]:
    """The executable of a Program, planned in this process, and which of its kernels were not
    loaded before."""
    before = modules.loaded(device)
    with device.current():
        executable = program.memo[device] = executables.compiled(program, device)
    return executable, {k for k in kernels_of(executable) if k not in before}


def kernels_of(executable: Any) -> list[Any]:
    """The different kernels that an executable launches, in order."""
    launches = (x for same in executable.issuer.launches.values() for x in same)
    return list(dict.fromkeys(x.kernel for x in launches))


def compile_seconds(kernel: Any, device: Any) -> float | None:
    """How long a kernel took to compile; None if it was read from disk."""
    return modules.compile_seconds(kernel, device.architecture)


def note_precision(kernels: Iterable[Any]) -> None:
    """Record in which precision each kernel computes its products."""
    for k in kernels:
        found = dict.fromkeys(filter(None, map(precision.of_call, k.calls)))
        own = None if k.bodies or found else precision.of_kernels(k.launches, k.equations)
        k.precision = "; ".join(found) or own or ""


def launches_of(executable: Any) -> int:
    """How many launches a call makes."""
    return sum(len(same) for same in executable.issuer.launches.values())


def issued(executable: Any) -> str:
    """How calls are issued, in words."""
    return executable.way


# ---- plans of Programs that need no GPU


def drafted(program: Program) -> Any:
    """The plan of a Program; its kernels are not compiled."""
    return plans_on_disk.planned(program)


def overwriting(plan: Any, donated: Sequence[int]) -> set[int]:
    """The numbers of the results that overwrite donated inputs."""
    return set(overwritten(plan.given, plan, donated))


def workspace(plan: Any) -> int:
    """The bytes that cuBLAS keeps on a device, if a plan calls it."""
    calls = any(isinstance(getattr(s, "call", None), cublas.Gemm) for s in plan.all_steps())
    return cublas.WORKSPACE if calls else 0


def free_memory(device: Any, held: int) -> int:
    """The bytes that a call may use, of which its arguments hold some already."""
    stats = device.memory_stats()
    return memory.room_beside(stats, memory.arena_of(device).nbytes + held)
