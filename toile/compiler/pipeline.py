"""The passes, in order.

`TOILE_DEBUG=passes` prints the Program after each pass that changed it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from toile.compiler.algebra import simplify
from toile.compiler.folding import fold_constants
from toile.compiler.inlining import inline_calls
from toile.compiler.subexpressions import merge_common
from toile.engine.program import Program, without_dead_code

Pass = Callable[[Program], Program]

PASSES: tuple[Pass, ...] = (
    inline_calls,
    fold_constants,
    simplify,
    merge_common,
    without_dead_code,
)


def optimize(program: Program, check: Callable[[Program], None] | None = None) -> Program:
    """Run all passes; `check` is called on what each of them gives."""
    show = "passes" in os.environ.get("TOILE_DEBUG", "").split(",")
    for step in PASSES:
        after = step(program)
        if check is not None:
            check(after)
        if show and after is not program:
            print(f"--- {program.name} after {step.__name__}\n{after}", file=sys.stderr)
        program = after
    return program
