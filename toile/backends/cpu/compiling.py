"""A Program through the compiler's passes to native code, or recalled from disk, and its run.

May import the compiler, the reference backend, control, primitives and the engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from toile.backends import reference
from toile.backends.cpu import native, recalling
from toile.backends.cpu.execution import Executable, PlannedExecutable
from toile.backends.cpu.planning import Plan
from toile.backends.cpu.threads import current
from toile.compiler.pipeline import optimize
from toile.engine.collecting import paused
from toile.engine.program import Program


def compiled(program: Program) -> Executable:
    """A Program as native code, which may be on disk."""
    place = recalling.place(program)
    found = place.recalled() if place is not None else None
    if found is not None:
        return found
    started = time.perf_counter()
    with paused(), native.Work.beside():
        made = planned(program)
    if place is not None:
        place.keep(made, time.perf_counter() - started)
    return made


def planned(program: Program) -> PlannedExecutable:
    """A Program as native code, with the plan it was made of."""
    program = optimize(program)
    return PlannedExecutable(program, Plan(program, current()))


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it at the first call."""
    return reference.run(program, raws, compiled)
