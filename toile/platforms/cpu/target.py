"""The CPU as a target of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.compiler.index_tests import Tested
from toile.compiler.ir.groups import Limits
from toile.compiler.ir.loop_nests import Loops
from toile.compiler.ir.operands import Operand
from toile.compiler.passes.patches import patch_sums
from toile.compiler.passes.products import multiply_bytes, multiply_small_matrices
from toile.compiler.passes.quantized_products import (
    decode,
    gather_stored,
    multiply_stored,
)
from toile.compiler.plan import lower
from toile.engine.program import Equation, Program
from toile.kernels.copy import cpu as copies
from toile.kernels.families import lowering
from toile.kernels.nest import cpu as nests
from toile.kernels.nest.cpu_launches import plan_nest
from toile.kernels.quantized_product.cpu import most_rows
from toile.platforms.cpu import chains, plan_reader
from toile.platforms.cpu.assembly import PlannedExecutable
from toile.platforms.cpu.planner import Plan, Region


class Target(lower.Target):
    """The CPU, with a number of threads per call."""

    region = Region
    plan = Plan
    limits = Limits(costly=10, total_row=1 << 13)  # elements: rows of totals stay in the caches

    def __init__(self, threads: int, tests: Tested | None = None):
        self.threads, self.tests = threads, tests

    def last_pass(self, program: Program) -> Program:
        program = multiply_stored(gather_stored(program), most=most_rows())
        program = multiply_small_matrices(decode(program))
        return patch_sums(multiply_bytes(program), self.can_fuse)

    def can_fuse(self, e: Equation) -> bool:
        return nests.can_fuse(e)

    def lowering_of(self, e: Equation) -> Callable[..., bool] | None:
        return lowering(e.op.kernel_family, "cpu")

    def copy(self, target: Operand, source: Operand, plan: Any) -> None:
        copies.copy(target, source, plan)

    def loops(self, x: Loops, plan: Any) -> None:
        plan_nest(x, plan)

    def chain(self, plan: Any) -> None:
        plan.steps, plan.unchained = chains.chained(plan, Region)

    def assemble(
        self, program: Program, plan: Any, offsets: dict[Any, int], nbytes: int
    ) -> PlannedExecutable:
        return PlannedExecutable(program, plan, offsets, nbytes, self.tests)

    def verify(self, made: PlannedExecutable) -> None:
        plan_reader.verify(made)
