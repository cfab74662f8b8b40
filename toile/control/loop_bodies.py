"""Programs that while loops and their derivatives make from their conditions and bodies.

This module may import the engine, primitives and transforms.masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.check_switch import keys_checked
from toile.engine.program import Program, derive, evaluate
from toile.primitives.choices import select
from toile.primitives.families import broadcast_in_dim
from toile.primitives.random import random_clone
from toile.transforms.masks import pick


def again(x: Any) -> Any:
    """A carry that more than one step reads; keys are cloned if their uses are counted."""
    return random_clone(x) if keys_checked() and dtypes.is_extended(x.dtype) else x


def advanced(going: Any, new: Any, old: Any) -> Any:
    """The new value for examples that continue, the old one for the others."""
    where = broadcast_in_dim(going, new.shape, (0,))
    return again(select(where, new, again(old)))


def widened(program: Program, extra: Sequence[Aval]) -> Program:
    """The Program with more inputs at the end, which it ignores."""
    n = len(program.inputs)
    return derive(lambda *xs: evaluate(program, xs[:n]), [*program.in_avals, *extra], program.name)


def narrowed(program: Program, keep: Sequence[bool]) -> Program:
    """The Program without some inputs, which it must not read."""
    return Program(pick(program.inputs, keep), program.equations, program.outputs, program.name)
