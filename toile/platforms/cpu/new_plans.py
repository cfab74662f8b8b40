"""Compiles Programs for the CPU that were not found on disk."""

from __future__ import annotations

from toile.compiler.compilation import compile_program, plan_program
from toile.compiler.index_tests import Tested
from toile.compiler.plan import lower
from toile.engine.program import Program
from toile.platforms.cpu.assembly import PlannedExecutable, shared_blocks
from toile.platforms.cpu.planner import Plan
from toile.platforms.cpu.target import Target
from toile.targets.llvm import thread_count
from toile.targets.llvm.launches import Launch


def planned(program: Program, tests: Tested | None = None) -> PlannedExecutable:
    """A Program as native code, with its plan; `tests`: the tests of its indices."""
    return compile_program(program, Target(thread_count.current(), tests))


class _Draft(Plan):
    """A plan whose kernels are not compiled."""

    def stage(self, *launches: Launch) -> None:
        lower.Plan.stage(self, *launches)


class _DraftTarget(Target):
    plan = _Draft


def drafted(program: Program) -> Plan:
    """The plan of a Program, without its native code: the same steps and buffers."""
    return plan_program(program, _DraftTarget(thread_count.current()))


def room_for_results(program: Program) -> int:
    """The bytes that a call allocates for results."""
    return sum(shared_blocks([o.aval.nbytes for o in program.outputs])[0])
