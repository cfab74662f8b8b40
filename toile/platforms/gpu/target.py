"""A GPU as a target of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.compiler.ir.groups import Limits
from toile.compiler.ir.loop_nests import Loops
from toile.compiler.ir.operands import Operand
from toile.compiler.passes.extended_arrays import read_extended
from toile.compiler.passes.joined_parts import read_parts
from toile.compiler.passes.patches import patch_sums
from toile.compiler.passes.products import multiply_vectors
from toile.compiler.passes.quantized_products import (
    decode,
    gather_stored,
    multiply_stored,
)
from toile.compiler.passes.selections import select_results
from toile.compiler.plan import lower
from toile.engine.program import Equation, Program
from toile.kernels.attention import gpu as attention
from toile.kernels.contraction import gpu_epilogues as epilogues
from toile.kernels.contraction.gpu_long_sums import divide_long_sums
from toile.kernels.copy import gpu as copies
from toile.kernels.families import lowering
from toile.kernels.fft import gpu as fft
from toile.kernels.nest import gpu as nests
from toile.platforms.gpu import plan_reader
from toile.platforms.gpu.planner import Plan


class Target(lower.Target):
    """A GPU."""

    plan = Plan
    # Copies with which updates begin stay behind the readers of what is copied: if that is donated,
    # its readers come before the first write, and nothing is copied. Kernels of other branches in a
    # region would also keep the kernels after it from starting early.
    joins_first = False
    joins_equal = True
    choose = staticmethod(attention.choose)
    # A row is the work of one thread block, unless there are too few rows to fill the device.
    limits = Limits(long_row=1 << 16, few_rows=128, total_row=1 << 13, more_moved=1 / 64,
                    innermost=True, strided_rows=((32, 1 << 10), (256, 1 << 15)))

    def last_pass(self, program: Program) -> Program:
        program = multiply_stored(gather_stored(program), has_sums=False)
        for step in (decode, select_results, multiply_vectors, divide_long_sums, fft.divide_later,
                     epilogues.fuse_epilogues):
            program = step(program)
        for join in (patch_sums, read_extended, read_parts):
            program = join(program, self.can_fuse)
        return program

    def can_fuse(self, e: Equation) -> bool:
        return nests.can_fuse(e)

    def lowering_of(self, e: Equation) -> Callable[..., bool] | None:
        return lowering(e.op.kernel_family, "gpu")

    def copy(self, target: Operand, source: Operand, plan: Any) -> None:
        copies.copy(target, source, plan)

    def loops(self, x: Loops, plan: Any) -> None:
        before = len(plan.steps)
        nests.plan_nest(x, plan.place, plan)
        for step in plan.steps[before:]:
            for launch in step.launches:
                plan.note_in_place(x, launch)

    def assemble(self, program: Program, plan: Plan, *layout: Any) -> Plan:
        plan.layout = layout
        return plan

    def verify(self, made: Plan) -> None:
        plan_reader.verify(made, *made.layout)


TARGET = Target()
