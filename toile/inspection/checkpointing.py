"""What checkpointing a module would save and cost, found by planning the Program that results.

In that Program, the backward pass of the module computes the module's forward pass again from its
inputs, as with `nn.remat` and `toile.checkpoint`, instead of reading saved values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from toile.compiler.plan.phases import BACKWARD, FORWARD, Phases
from toile.engine.program import Equation, Program, Var
from toile.engine.source import in_backward
from toile.platforms.memory_plans import TEMPORARY, Live, PlannedMemory
from toile.primitives.shapes import OptimizationBarrier

MOST = 4  # number of groups of modules that are tried
WORTH_SHOWING = 0.005  # as a fraction of the peak
Path = tuple[str, ...]
NUMBER = re.compile(r"_\d+$")


@dataclass
class Checkpoint:
    """The effect of checkpointing a module, or each of several modules of the same name.

    Args:
        modules: path of the module; `_*` stands for all numbers, as in `Net/Block_*`.
        count: number of modules with such a path.
        saved: bytes by which the peak becomes lower.
        share: `saved` as a fraction of the peak.
        flops: additional floating-point operations of a call.
        more_work: `flops` as a fraction of the operations of a call without checkpointing.
    """

    modules: str
    count: int
    saved: int
    share: float
    flops: int
    more_work: float


def checkpoints(
    program: Program, memory: PlannedMemory, planned: Callable[[Program], tuple[Any, int]],
    plan: Any,
) -> list[Checkpoint]:
    """The modules whose checkpointing lowers the peak most.

    `planned` returns the plan of a Program and its peak; `program` has been through the passes, and
    `plan` and `memory` describe its plan."""
    found = []
    before = flops_of(plan)
    for pattern in candidates(memory.live):
        paths = matching(program, pattern)
        made = checkpointed(program, paths)
        if made is program:
            continue
        other, peak = planned(made)
        saved, more = memory.total - peak, max(flops_of(other) - before, 0)
        if saved > WORTH_SHOWING * memory.total:
            found.append(Checkpoint("/".join(pattern), len(paths), saved, saved / memory.total,
                                    more, more / before if before else 0.0))
    return sorted(found, key=lambda c: -c.saved)


def flops_of(plan: Any) -> int:
    """The floating-point operations of a call."""
    return sum(e.op.flops(*(a.aval for a in e.ins)) for e in plan.program.equations)


def candidates(live: Iterable[Live]) -> list[Path]:
    """The paths of modules whose forward pass made most of the memory at the peak."""
    held: Counter[Path] = Counter()
    for b in live:
        if b.kind == TEMPORARY and b.phase == FORWARD and b.module:
            parts = pattern_of(b.module.split("/"))
            for n in range(1, len(parts) + 1):
                held[parts[:n]] += b.nbytes
    models = [p for p in held if len(p) == 1]
    if len(models) == 1 and len(held) > 1:  # all of it is recomputed at the peak
        del held[models[0]]
    return [pattern for pattern, _ in held.most_common(MOST)]


def pattern_of(path: Sequence[str]) -> Path:
    """A module path with `_*` in place of the numbers of modules."""
    return tuple([NUMBER.sub("_*", part) for part in path])


def matching(program: Program, pattern: Path) -> list[Path]:
    """The paths of modules that fit a pattern, in the order in which they run."""
    n = len(pattern)
    return list(dict.fromkeys(
        e.scope[:n] for e in program.equations
        if len(e.scope) >= n and pattern_of(e.scope[:n]) == pattern
    ))


# ---- the Program with checkpointed modules


def checkpointed(program: Program, paths: Sequence[Path]) -> Program:
    """The Program whose backward pass recomputes what modules need of their forward pass."""
    phases = Phases(program)
    by_path: dict[Path, list[tuple[int, Equation, str]]] = {p: [] for p in paths}
    depth = len(paths[0]) if paths else 0
    for i, e in enumerate(program.equations):
        members = by_path.get(e.scope[:depth])
        if members is not None:
            members.append((i, e, phases.of(e)))
    before: dict[int, list[Equation]] = {}
    renamed: dict[int, dict[Any, Var]] = {}
    for members in by_path.values():
        _recompute(members, before, renamed)
    if not before:
        return program
    equations: list[Equation] = []
    for i, e in enumerate(program.equations):
        equations += before.get(i, ())
        names = renamed.get(i)
        if names:
            ins = [names.get(a, a) for a in e.ins]
            e = Equation(e.op, ins, e.outs, e.source, e.scope)
        equations.append(e)
    return Program(program.inputs, equations, program.outputs, program.name)


def _recompute(
    members: Sequence[tuple[int, Equation, str]], before: dict[int, list[Equation]],
    renamed: dict[int, dict[Any, Var]],
) -> None:
    """Add the equations that one module recomputes before its backward pass, and the names of
    their results there."""
    forward = [e for _, e, phase in members if phase == FORWARD]
    made = {o for e in forward for o in e.outs}
    readers = [(i, e) for i, e, phase in members
               if phase == BACKWARD and not made.isdisjoint(e.ins)]
    if not readers:
        return
    at, first = readers[0]
    again = _needed(forward, {a for _, e in readers for a in e.ins})
    added, names = _copied(again, first)
    before.setdefault(at, []).extend(added)
    renamed.update({i: names for i, _ in readers})


def _copied(equations: Sequence[Equation], at: Equation) -> tuple[list[Equation], dict[Any, Var]]:
    """Copies of equations, to run before the equation `at`; and the new names of their results."""
    results: dict[Any, Var] = {o: Var(o.aval) for e in equations for o in e.outs}
    read = (a for e in equations for a in e.ins)
    given = dict.fromkeys(a for a in read if a.__class__ is Var and a not in results)
    names = {**results, **{a: Var(a.aval) for a in given}}
    found = []
    if given:  # keeps common-subexpression elimination from merging the two forward passes
        outs = [names[a] for a in given]
        found.append(Equation(OptimizationBarrier(), list(given), outs, at.source, at.scope))
    for e in equations:
        ins, outs = [names.get(a, a) for a in e.ins], [names[o] for o in e.outs]
        found.append(Equation(e.op, ins, outs, in_backward(e.source), e.scope))
    return found, results


def _needed(equations: Sequence[Equation], wanted: set[Any]) -> list[Equation]:
    """The equations that compute some variables, in order."""
    found = []
    for e in reversed(equations):
        if not wanted.isdisjoint(e.outs):
            wanted.update(e.ins)
            found.append(e)
    return found[::-1]
