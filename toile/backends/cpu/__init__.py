"""The CPU backend: a Program goes through the compiler's passes, then runs on NumPy.

May import the compiler, the reference backend and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.backends import reference
from toile.compiler.pipeline import optimize
from toile.engine.program import Program


def _compiled(program: Program) -> reference.Executable:
    return reference.Executable(optimize(program))


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it at the first call."""
    return reference.run(program, raws, _compiled)
