"""Loops and branches on the CPU: one kernel if all is tiny, else steps of the native runner.

Steps are those of `compiler.looping`; kernels of whole loops are in `tiny_loops`.
"""

from __future__ import annotations

from toile.backends.cpu import tiny_loops
from toile.compiler import looping
from toile.compiler.looping import lower_cond
from toile.compiler.operands import Operand
from toile.compiler.plans import Plan
from toile.control.scan import Scan
from toile.control.while_loop import While


def lower_scan(op: Scan, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """A scan: a kernel, or a loop of steps."""
    return tiny_loops.lower_scan(op, ins, outs, plan) or looping.lower_scan(op, ins, outs, plan)


def lower_while(op: While, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """A while loop: a kernel, or a loop of steps."""
    return tiny_loops.lower_while(op, ins, outs, plan) or looping.lower_while(op, ins, outs, plan)


__all__ = ["lower_cond", "lower_scan", "lower_while"]
