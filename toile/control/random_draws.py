"""Calls that draw random bits from a generator's state.

This module may import the same modules as control.call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.control.call import Call
from toile.engine.avals import Zero
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives.families import move_axis


@dataclass(frozen=True)
class Draw(Call):
    """The next state, and bits of shape `shape`, drawn from a state, which is the last operand.

    If the operand is a vector of states, all bits are drawn from the first state, and only that
    state advances, as in JAX. Therefore, a mapped function receives distinct numbers."""

    draw: Callable[..., tuple[Any, Any]] | None = None
    shape: tuple[int, ...] = ()
    rest: tuple[Any, ...] = ()

    name = "rng_bit_generator"

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        assert self.draw is not None
        states = move_axis(xs[-1], dims[-1], 0)
        after, bits = self.draw(states[0], (axis[1], *self.shape), *self.rest)
        return [states.at[0].set(after), bits], [0, 0]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs = self(*primals)
        return outs, [Zero(o) for o in outs]

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        return self, [True] * len(self.program.inputs), [True, True]
