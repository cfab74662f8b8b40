"""How arrays are laid out over the devices of a mesh, as far as this is known during tracing.

A layout is an `Own`; None means that an array is not divided, and UNKNOWN means that its layout is
not known. To find the layout of a value, tracers of derivatives and of vmap are unwrapped. In a
Program, layouts are propagated from equation to equation where the result is certain. This module
may import control and the layers below it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from toile.engine.program import Captured, Equation, Program, ProgramTracer, Var
from toile.engine.records import dataclass
from toile.engine.sharded import Sharded as ShardedBase
from toile.engine.trace import Tracer
from toile.parallel.meshes import AbstractMesh
from toile.parallel.specs import UNCONSTRAINED, NamedSharding, axes_of
from toile.parallel.spmd import Layout
from toile.primitives.families import Identity
from toile.transforms.jvp import JVPTracer
from toile.transforms.vmap import BatchTracer


@dataclass(frozen=True)
class Own:
    """The mesh axes that divide each axis of an array, and those that divide axes mapped by
    vmap."""

    mesh: Any
    layout: Layout
    mapped: frozenset[Any] = frozenset()


UNKNOWN = object()  # used in place of an Own; None means that an array is not divided


def sharding_of(x: Any) -> Any:
    """The layout of an argument over devices, as far as it is known now."""
    if isinstance(x, JVPTracer):
        return sharding_of(x.primal)
    if isinstance(x, BatchTracer):
        own, d = sharding_of(x.value), x.dim
        if not isinstance(own, Own):
            return own
        rest = own.layout[:d] + own.layout[d + 1 :]
        return _divided(own.mesh, rest, own.mapped.union(own.layout[d]))
    if isinstance(x, ProgramTracer):
        return _known.setdefault(x._trace, _Known()).of(x)
    if isinstance(x, Tracer):
        return UNKNOWN
    return laid(x._sharding, x.ndim) if isinstance(x, ShardedBase) else None


def laid(sharding: Any, rank: int) -> Any:
    """The layout of an array under a sharding."""
    if not isinstance(sharding, NamedSharding):
        return None if sharding.is_fully_replicated else UNKNOWN
    if UNCONSTRAINED in sharding.spec:
        return UNKNOWN
    entries = [axes_of(e) for e in sharding.spec]
    return _divided(sharding.mesh, tuple(entries + [()] * (rank - len(entries))))


def _divided(mesh: Any, layout: Layout, mapped: frozenset[Any] = frozenset()) -> Own | None:
    return Own(mesh, layout, mapped) if mapped or any(layout) else None


def along(own: Any, mesh: Any, names: set[Any]) -> Any:
    """The part of a layout that concerns the axes `names` of a mesh."""
    if not isinstance(own, Own):
        return own
    if not alike(own.mesh, mesh):
        return UNKNOWN
    layout = tuple([tuple([n for n in entry if n in names]) for entry in own.layout])
    return _divided(own.mesh, layout, own.mapped & names)


def alike(a: Any, b: Any) -> bool:
    """Whether a spec has the same meaning on two meshes."""
    if a is b or a.shape_tuple != b.shape_tuple:
        return a is b
    abstract = isinstance(a, AbstractMesh) or isinstance(b, AbstractMesh)
    return abstract or list(a.devices.flat) == list(b.devices.flat)


class _Known:
    """The layouts of the values of a trace, for the equations traced so far."""

    __slots__ = ("env", "done")

    def __init__(self) -> None:
        self.env: dict[Var, Any] = {}
        self.done = 0

    def of(self, x: ProgramTracer) -> Any:
        trace: Any = x._trace
        for v, value in trace.consts:
            if v not in self.env:
                self.env[v] = sharding_of(value)
        for e in trace.equations[self.done :]:
            _propagate(e, self.env)
        self.done = len(trace.equations)
        return self.env.get(x._var, UNKNOWN)


_known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()


def remember(inputs: Sequence[Any], owns: Sequence[Any]) -> None:
    """Record the layouts of the inputs of a trace that has begun."""
    for x, own in zip(inputs, owns, strict=True):
        _known.setdefault(x._trace, _Known()).env[x._var] = own


def _propagate(e: Equation, env: dict[Var, Any]) -> None:
    ins = [env.get(a, UNKNOWN) if isinstance(a, Var) else None for a in e.ins]
    env.update(zip(e.outs, _results(e, ins), strict=True))


def _results(e: Equation, ins: Sequence[Any]) -> Sequence[Any]:
    """The layouts of the results of an equation, only where they are certain."""
    op, ranks = e.op, [len(o.aval.shape) for o in e.outs]
    own = getattr(op, "result_shardings", None)
    if own is not None:
        return [laid(s, n) for s, n in zip(own(), ranks, strict=True)]
    if isinstance(op, Captured):
        return [sharding_of(op.value)]
    called = op.called_program()
    if called is not None:
        return _program_results(called, ins)
    found: Any = None
    if any(x is not None for x in ins):  # elementwise: laid out like the operands that are divided
        divided = {x for x in ins if x is not None}
        same = len(divided) == 1 and (op.keeps_layout or isinstance(op, Identity))
        found = divided.pop() if same else UNKNOWN
    elif op.carries_programs:
        found = UNKNOWN
    return [found] * len(e.outs)


def _program_results(program: Program, ins: Sequence[Any]) -> list[Any]:
    """The layouts of the results of a Program."""
    env: dict[Var, Any] = dict(zip(program.inputs, ins, strict=True))
    for e in program.equations:
        _propagate(e, env)
    return [env[o] if isinstance(o, Var) else None for o in program.outputs]
