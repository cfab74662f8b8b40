"""Making plans for a GPU, and writing them to disk, where `recalling` finds them."""

from __future__ import annotations

from toile.backends.gpu import plan_records
from toile.backends.gpu.planning import Plan
from toile.backends.gpu.steps import MadePlan
from toile.backends.object_cache import ObjectCache
from toile.backends.plan_schema import Unencodable
from toile.compiler.pipeline import optimize
from toile.engine.program import Program


def planned(program: Program) -> Plan:
    """A plan made now, with all that it came from."""
    return Plan(optimize(program, choose=Plan.choose))


def keep(cache: ObjectCache, key: str, plan: MadePlan) -> None:
    """Write a plan, unless it has what cannot be."""
    try:
        data = plan_records.written(plan)
    except Unencodable:  # operations that hold Programs or functions
        return
    cache.put(key, data)
