"""The reference backend: runs a Program operation by operation on the array library.

A thin layer over the operations' `eager` rules: it resolves literals, key buffers and the positions
of values once, and frees each buffer after its last use. This package may import only the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.program import Equation, Program, Var

Step = tuple[Callable[..., Any], list[int], list[int], bool, list[int]]


class Executable:
    """A Program prepared to run on raw buffers."""

    __slots__ = ("steps", "template", "outputs", "inputs")

    def __init__(self, program: Program):
        slots: dict[Any, int] = {v: i for i, v in enumerate(program.inputs)}
        self.inputs = len(slots)
        literals: list[tuple[int, Any]] = []
        count = self.inputs

        def slot(a: Any) -> int:
            nonlocal count
            if a.__class__ is Var:
                return slots[a]
            literals.append((count, a.val))
            count += 1
            return count - 1

        steps: list[Any] = []
        for e in program.equations:
            ins = [slot(a) for a in e.ins]
            outs = []
            for o in e.outs:
                slots[o] = count
                outs.append(count)
                count += 1
            steps.append((_runner(e), ins, outs, e.op.multiple, []))
        self.outputs = [slot(o) for o in program.outputs]
        self._mark_last_uses(steps, {i for i, _ in literals})
        self.steps: list[Step] = steps
        self.template: list[Any] = [None] * count
        for i, value in literals:
            self.template[i] = value

    def _mark_last_uses(self, steps: list[Any], literals: set[int]) -> None:
        kept = set(self.outputs) | literals
        for _, ins, outs, _, frees in reversed(steps):
            for i in {*ins, *outs}:
                if i not in kept:
                    kept.add(i)
                    frees.append(i)

    def __call__(self, raws: Sequence[Any]) -> list[Any]:
        env = self.template.copy()
        env[: self.inputs] = raws
        for run, ins, outs, multiple, frees in self.steps:
            result = run(np, *[env[i] for i in ins])
            if multiple:
                for i, value in zip(outs, result, strict=True):
                    env[i] = value
            else:
                env[outs[0]] = result if result.__class__ is np.ndarray else np.asarray(result)
            for i in frees:
                env[i] = None
        return [env[i] for i in self.outputs]


def _runner(e: Equation) -> Callable[..., Any]:
    """The eager rule of an equation, applied to the buffers of keys."""
    avals = [a.aval for a in e.ins]
    if any(dtypes.is_extended(a.dtype) for a in avals):
        return e.op.physical(*avals).eager
    return e.op.eager


Runnable = Callable[[Sequence[Any]], Sequence[Any]]  # raw buffers to raw buffers


def run(
    program: Program, raws: Sequence[Any], make: Callable[[Program], Runnable] = Executable
) -> Sequence[Any]:
    """Run a Program on raw buffers, preparing it in the first call."""
    executable = program.executable
    if executable is None:
        executable = program.executable = make(program)
    token = ignore_errors()
    try:
        return executable(raws)
    finally:
        restore_errors(token)
