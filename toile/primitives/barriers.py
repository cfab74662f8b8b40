"""Identities with a meaning: `StopGradient` for derivatives, `Name` for checkpoint policies.

This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from typing import Any

from toile.engine import key_uses
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.records import dataclass
from toile.primitives import division, rules, simplification
from toile.primitives.families import Identity


class StopGradient(Operation):
    """Return the operand; differentiation treats it as a constant."""

    handles_zeros = True
    is_identity = True
    divide = division.by_element
    key_use = key_uses.keeps
    forwards_operand = True
    simplified = simplification.operand
    sparse = rules.frame_rule("linear")

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return x

    def lower(self, k: Any, x: Any) -> Any:
        return x

    jvp = rules.no_derivative
    vmap = rules.mapped_in_place
    physical = rules.itself


stop_gradient = StopGradient()


@dataclass(frozen=True)
class Name(Identity):
    """The operand, under a name that checkpoint policies can refer to."""

    label: str

    name = "name"
    forwards_operand = True
    simplified = simplification.operand

    @property
    def saved_name(self) -> str:
        return self.label
