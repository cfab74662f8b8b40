"""Plans of Programs that are not going to run: for the CPU, or for a GPU that need not exist.

This module may import platforms and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from toile.engine.devices import Device
from toile.engine.platform_registry import registry
from toile.engine.program import Program
from toile.platforms import cpu
from toile.platforms.memory_plans import PlannedMemory, planned_memory


@dataclass
class Draft:
    """A plan, and the memory that it needs."""

    plan: Any
    memory: PlannedMemory

    def described(self) -> Any:
        """The attributes of an executable that `platforms.largest_batch` reads."""
        return SimpleNamespace(
            program=self.plan.given, plan=self.plan, arena_bytes=self.memory.temporaries,
            constant_bytes=self.memory.constants)


class OnCpu:
    """Plans for the CPU of this machine."""

    def draft(self, program: Program, labels: Sequence[str], donated: Sequence[int]) -> Draft:
        """Plan a Program. Results never overwrite donated arguments (later calls reuse these)."""
        plan = cpu.drafted(program)
        return Draft(plan, planned_memory(plan, cpu.room_for_results(program), labels))


class OnGpu:
    """Plans for a GPU."""

    def __init__(self) -> None:
        self.reports = registry.names["gpu"].inspection()

    def draft(self, program: Program, labels: Sequence[str], donated: Sequence[int]) -> Draft:
        """Plan a Program; results overwrite donated arguments where they can."""
        plan = self.reports.drafted(program)
        results = sum(o.aval.nbytes for o in program.outputs)
        overwriting = self.reports.overwriting(plan, donated)
        workspace = self.reports.workspace(plan)
        return Draft(plan, planned_memory(plan, results, labels, overwriting, workspace))


def drafts_for(platform: str) -> OnCpu | OnGpu:
    """The planner of a platform."""
    return OnCpu() if platform == "cpu" else OnGpu()


def free_memory(platform: str, device: Device | None, held: int) -> int:
    """The bytes that a call may use, including those of its existing arguments; 0 if unknown."""
    if platform == "cpu":
        found = cpu.available()
        return found + held if found else 0
    if device is None or device.platform == "cpu":
        return 0
    return registry.names["gpu"].inspection().free_memory(device, held)
