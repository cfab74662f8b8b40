"""The CPU backend: a Program goes through the compiler's passes and becomes native code.

May import the compiler, the reference backend, control, primitives and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.backends import reference
from toile.backends.cpu.execution import Executable
from toile.backends.cpu.planning import Plan
from toile.backends.cpu.threads import current
from toile.compiler.pipeline import optimize
from toile.engine.program import Program


def compiled(program: Program) -> Executable:
    """A Program as native code."""
    program = optimize(program)
    return Executable(program, Plan(program, current()))


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it at the first call."""
    return reference.run(program, raws, compiled)
