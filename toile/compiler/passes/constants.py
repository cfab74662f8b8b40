"""Constant folding: scalars that depend on literals only are computed at compile time."""

from __future__ import annotations

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine import dtypes
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.program import Equation, Literal, Program


def fold_constants(program: Program) -> Program:
    """Replace rank-0 results whose operands are all literals by literals."""

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.ins or e.effects or e.op.multiple or e.outs[0].aval.shape or e.op.axis_names:
            return None  # over named axes each device has its own result
        aval = e.outs[0].aval
        known = [a.val for a in e.ins if isinstance(a, Literal)]
        if len(known) < len(e.ins) or dtypes.is_extended(aval.dtype):
            return None
        token = ignore_errors()
        try:
            value = np.asarray(e.op.eager(np, *known))
        finally:
            restore_errors(token)
        return [Literal(value, aval)] if value.dtype == aval.dtype else None

    return rewrite(program, rule)
