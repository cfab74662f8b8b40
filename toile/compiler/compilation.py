"""The compiler: turns a Program into what a device runs.

    passes -> fuse -> lower -> place -> verify

Each stage takes the result of the one before; a `Target` holds what differs between devices.
"""

from __future__ import annotations

from typing import Any

from toile.compiler.debug_flags import asked_for
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import Target, fuse_groups, lower
from toile.compiler.plan.place import arena_layout
from toile.engine.program import Program


def plan_program(program: Program, target: Target) -> Any:
    """The steps and buffers of a Program on a device."""
    optimized = optimize(program, choose=target.choose)
    return lower(fuse_groups(optimized, target), target, optimized)


def compile_program(program: Program, target: Target) -> Any:
    """Compile a Program for a device."""
    plan = plan_program(program, target)
    made = target.assemble(plan.given, plan, *arena_layout(plan))
    if asked_for("verify"):
        target.verify(made)
    return made
