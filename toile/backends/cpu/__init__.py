"""The CPU backend: a Program goes through the compiler's passes, then runs on NumPy.

May import the compiler, the reference backend and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.backends.reference import Executable
from toile.compiler.pipeline import optimize
from toile.engine.floating import ignore_errors, restore_errors
from toile.engine.program import Program


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it at the first call."""
    executable = program.executable
    if executable is None:
        executable = program.executable = Executable(optimize(program))
    token = ignore_errors()
    try:
        return executable(raws)
    finally:
        restore_errors(token)
