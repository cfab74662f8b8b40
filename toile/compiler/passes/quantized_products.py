"""Quantized numbers that no kernel reads as they are stored are computed by loop nests."""

from __future__ import annotations

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine.program import Equation, Program, without_dead_code


def decode(program: Program) -> Program:
    """The Program without operations that dequantize."""
    if all(e.op.decoded is None for e in program.equations):
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if e.op.decoded is None:
            return None
        return [spliced(new, e, e.op.__class__.decoded, e.ins)]

    return without_dead_code(rewrite(program, rule))
