"""Loops and branches on the CPU: one kernel if all is tiny, else steps of the native runner.

Steps are those of `compiler.plan.control_flow`; kernels of whole loops are in `kernels.tiny`.
"""

from __future__ import annotations

from toile.compiler.ir.operands import Operand
from toile.compiler.plan import control_flow as looping
from toile.compiler.plan.control_flow import lower_cond
from toile.compiler.plan.lower import Plan
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.kernels.tiny import cpu_loops as tiny_loops


def lower_scan(op: Scan, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a scan to a kernel or a loop of steps."""
    return tiny_loops.lower_scan(op, ins, outs, plan) or looping.lower_scan(op, ins, outs, plan)


def lower_while(op: While, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a while loop to a kernel or a loop of steps."""
    return tiny_loops.lower_while(op, ins, outs, plan) or looping.lower_while(op, ins, outs, plan)


__all__ = ["lower_cond", "lower_scan", "lower_while"]
