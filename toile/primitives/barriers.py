"""Identities that mean something to others: `StopGradient` to derivatives, `Name` to policies.

May import the engine and primitives.families.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.avals import Aval, Zero
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives import division
from toile.primitives.families import Identity


class StopGradient(Operation):
    """The operand, as a constant to differentiation."""

    handles_zeros = True
    divide = division.by_element

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return x

    def lower(self, k: Any, x: Any) -> Any:
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self(primals[0])
        return out, Zero(out)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(xs[0]), dims[0]

    def physical(self, *avals: Aval) -> Operation:
        return self


stop_gradient = StopGradient()


@dataclass(frozen=True)
class Name(Identity):
    """The operand, under a name that checkpoint policies can refer to."""

    label: str

    name = "name"
