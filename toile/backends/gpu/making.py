"""Making plans for a GPU, and writing them to disk, where `recalling` finds them."""

from __future__ import annotations

import io
import pickle
from typing import Any

from toile.backends.gpu.planning import Plan
from toile.backends.gpu.recalling import nothing, restored
from toile.backends.gpu.steps import MadePlan
from toile.backends.object_cache import ObjectCache
from toile.compiler.groups import Group
from toile.compiler.pipeline import optimize
from toile.engine.program import Equation, Program


def planned(program: Program) -> Plan:
    """A plan made now, with all that it came from."""
    return Plan(optimize(program, choose=Plan.choose))


def keep(cache: ObjectCache, key: str, plan: MadePlan) -> None:
    """Write a plan, unless it has what cannot be."""
    written = io.BytesIO()
    try:
        _Writer(written, pickle.HIGHEST_PROTOCOL).dump(plan)
    except (pickle.PicklingError, TypeError, AttributeError):  # operations that hold functions
        return
    cache.put(key, written.getvalue())


class _Writer(pickle.Pickler):
    """Writes a plan without the groups and equations that it was made from."""

    def reducer_override(self, x: Any) -> Any:
        if isinstance(x, MadePlan):
            program = Program(x.program.inputs, (), x.program.outputs, x.program.name)
            given = Program(x.given.inputs, (), x.given.outputs, x.given.name)
            return restored, (program, given, x.steps, x.constants, x.outputs, x.outside,
                              x.in_place)
        if isinstance(x, Equation):  # of a step on the host
            return Equation, (x.op, x.ins, x.outs)
        return (nothing, ()) if isinstance(x, Group) else NotImplemented
