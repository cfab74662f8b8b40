"""Kernels of the user, launched between toile's own. C functions run on the host."""

from __future__ import annotations

from typing import Any

from toile.compiler.ir.operands import Operand
from toile.targets.cuda.launches import Planner
from toile.targets.cuda.user_kernels import UserKernel


def lower_cuda(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """A launch for each example."""
    count = 1 if op.batch is None else op.batch
    if not count:
        return False
    arrays = [*map(plan.contiguous, ins), *outs]
    mapped = (False,) * len(arrays) if op.batch is None else (*op.mapped, *(True for _ in outs))
    steps = tuple(x.size // count * x.dtype.itemsize if m else 0
                  for x, m in zip(arrays, mapped, strict=True))
    plan.call(UserKernel(op.source, op.label, op.grid, op.block, op.shared,
                         tuple(x.ref for x in arrays), steps, len(ins),
                         tuple(bits for _, bits in op.numbers), count, op.label))
    return True


def _on_host(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    return False


lower_prototype = lower_buffers = lower_elements = _on_host
