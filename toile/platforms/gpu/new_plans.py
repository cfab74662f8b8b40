"""Makes plans for a GPU and writes them to disk, where `plans_on_disk` finds them."""

from __future__ import annotations

from toile.compiler.compilation import compile_program
from toile.disk.object_cache import ObjectCache
from toile.disk.plan_schema import Unencodable
from toile.engine.program import Program
from toile.platforms.gpu import plan_records
from toile.platforms.gpu.planner import Plan
from toile.platforms.gpu.steps import MadePlan
from toile.platforms.gpu.target import TARGET


def planned(program: Program) -> Plan:
    """A new plan, with the equations it was made from."""
    return compile_program(program, TARGET)


def keep(cache: ObjectCache, key: str, plan: MadePlan) -> None:
    """Write a plan, unless it has parts that cannot be written."""
    try:
        data = plan_records.written(plan)
    except Unencodable:  # operations that hold Programs or functions
        return
    cache.put(key, data)
