"""Compiles Programs for the CPU that were not found on disk."""

from __future__ import annotations

from toile.compiler.compilation import compile_program
from toile.engine.program import Program
from toile.platforms.cpu.assembly import PlannedExecutable
from toile.platforms.cpu.target import Target
from toile.targets.llvm import thread_count


def planned(program: Program) -> PlannedExecutable:
    """A Program as native code, with the plan it was made from."""
    return compile_program(program, Target(thread_count.current()))
