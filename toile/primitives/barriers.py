"""Identities that stop something: derivatives at `StopGradient`.

May import the engine only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval, Zero
from toile.engine.operation import Axis, Dim, Operation


class StopGradient(Operation):
    """The operand, as a constant to differentiation."""

    handles_zeros = True

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self(primals[0])
        return out, Zero(out)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(xs[0]), dims[0]

    def physical(self, *avals: Aval) -> Operation:
        return self


stop_gradient = StopGradient()
