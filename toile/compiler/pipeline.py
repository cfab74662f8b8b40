"""The passes, in order.

`TOILE_DEBUG=passes` prints the Program after each pass that changed it, and the fused groups.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from toile.compiler.debug_flags import asked_for
from toile.compiler.ir.groups import Fused
from toile.compiler.passes.algebra import simplify
from toile.compiler.passes.block_slices import slice_before_updates
from toile.compiler.passes.calls import Choice, inline_calls, plain, take_known_branches
from toile.compiler.passes.constants import fold_constants
from toile.compiler.passes.flat_indices import flatten_indices
from toile.compiler.passes.iotas import inline_iotas
from toile.compiler.passes.messages import sum_messages
from toile.compiler.passes.moves import cancel_moves
from toile.compiler.passes.pads import join_pads
from toile.compiler.passes.product_rows import select_before_products
from toile.compiler.passes.random_bits import physical_keys
from toile.compiler.passes.repeats import compute_once
from toile.compiler.passes.row_numbers import batch_by_row_numbers
from toile.compiler.passes.row_picks import pick_by_counting
from toile.compiler.passes.scans import hoist_from_scans
from toile.compiler.passes.slices import cut_elementwise, scale_after_joins
from toile.compiler.passes.sparse_updates import update_used_rows
from toile.compiler.passes.stacks import unstack
from toile.compiler.passes.subexpressions import merge_common, share_operands
from toile.engine.program import Program, without_dead_code

Pass = Callable[..., Program]


def _simplified(program: Program, choose: Choice) -> Program:
    """The body of a loop after the passes that simplify it."""
    program = take_known_branches(fold_constants(inline_calls(program, choose)), choose)
    for step in (simplify, join_pads, merge_common, share_operands, without_dead_code):
        program = step(program)
    return program


def hoist_from_loops(program: Program, choose: Choice = plain) -> Program:
    """Move work out of loops. Backends that choose attention, GPUs, also start each product apart:
    for them, products with one operand are joined. On CPUs, that does not pay."""
    return hoist_from_scans(program, partial(_simplified, choose=choose), choose is not plain)


PASSES: tuple[Pass, ...] = (
    inline_calls,
    physical_keys,
    fold_constants,
    take_known_branches,
    simplify,
    join_pads,
    merge_common,
    share_operands,
    hoist_from_loops,
    batch_by_row_numbers,
    select_before_products,
    pick_by_counting,
    update_used_rows,
    flatten_indices,
    cancel_moves,
    compute_once,
    without_dead_code,
    slice_before_updates,
    scale_after_joins,
    unstack,
    cut_elementwise,
    simplify,
    merge_common,
    inline_iotas,
    sum_messages,
    without_dead_code,
)


# Passes that ask the backend how to compute attention.
CHOOSING = (inline_calls, take_known_branches, hoist_from_loops)


def optimize(
    program: Program, check: Callable[[Program], None] | None = None, choose: Choice = plain
) -> Program:
    """Run all passes; `check` is called with the result of each.

    `choose`: how a backend replaces attention."""
    show = _shows_passes()
    for step in PASSES:
        after = step(program, choose) if step in CHOOSING else step(program)
        if check is not None:
            check(after)
        if show and after is not program:
            print(f"--- {program.name} after {step.__name__}\n{after}", file=sys.stderr)
        program = after
    return program


def _shows_passes() -> bool:
    return asked_for("passes")


def show_groups(fused: Fused) -> None:
    """Print the fused groups, one per line, if TOILE_DEBUG asks for the passes."""
    if not _shows_passes():
        return
    print(f"--- {fused.program.name} after fuse", file=sys.stderr)
    for g in fused.groups:
        names = " ".join(m.equation.op.name for m in g.members)
        over = "x".join(str(g.extents[a]) for a in g.order) or "1"
        stored = [v.aval.str_short() for m in g.members for v in m.equation.outs
                  if v in fused.stored]
        domain = f"over {over}: " if g.fusible else ""
        print(f"    {domain}{names} -> {' '.join(stored)}", file=sys.stderr)
