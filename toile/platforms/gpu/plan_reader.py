"""The plan verifier for a GPU: launches and library calls as they are issued or captured.

Here the table of pointers is a dict keyed by buffer. There are two ways to run `while` loops: the
host swaps the buffers of carries, or a graph copies what an iteration wrote to where the next one
reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.steps import Constant, EagerStep, Region, ScanStep, SwitchStep, WhileStep
from toile.compiler.verify.commands import Access, Key, Loop, Place, Run, Switch, While, Work, Works
from toile.compiler.verify.contents import Address, Content, PlanError
from toile.compiler.verify.verifier import Verifier
from toile.platforms.gpu.steps import CallStep


def verify(
    plan: Any, offsets: Mapping[Any, int], arena_bytes: int,
    overwritten: Mapping[int, int] | None = None,
) -> None:
    """Raise `PlanError` unless a plan does what its Program says, with temporaries at `offsets`.

    `overwritten` maps the number of each result that overwrites a donated input to the number of
    that input."""
    _check_early_reads(plan)
    decides = any(isinstance(s, WhileStep) for s in plan.all_steps())
    for captured in (False, True) if decides else (False,):
        pointers: dict[Key, Address] = {b: Address("the arena", o) for b, o in offsets.items()}
        spaces: dict[Any, int] = {"the arena": arena_bytes}
        for i, ref in enumerate(plan.outputs):
            pointers[ref.buffer] = Address(f"result {i}", 0)
        for i, v in enumerate(plan.program.inputs):
            pointers[v] = Address(f"input {i}", 0)
        for i, j in (overwritten or {}).items():
            pointers[plan.outputs[i].buffer] = pointers[plan.program.inputs[j]]
        walk = Verifier(pointers, spaces)
        for n, constant in enumerate(_constants(plan)):
            pointers[constant] = Address(f"constant {n}", 0)
            walk.write(pointers[constant], constant.array.nbytes, Content.constant(constant.array))
        walk.run(plan, _listed(plan, captured))


def _check_early_reads(plan: Any) -> None:
    """Launches may read only arguments and constants before they wait for other kernels: whatever
    the Program computes may not be there yet."""
    for step in plan.all_steps():
        for x in step.launches if isinstance(step, Region) else ():
            buffer = None if x.early is None else x.early.buffer
            if not (buffer is None or isinstance(buffer, Constant)
                    or buffer in plan.program.inputs):
                raise PlanError(f"{x.note} reads a computed array before it is known to be ready")


def _constants(plan: Any) -> Iterator[Any]:
    yield from plan.constants.values()
    for step in plan.steps:
        for child in getattr(step, "children", ()):
            yield from _constants(child)


def _listed(plan: Any, captured: bool) -> list[Any]:
    """The commands of a plan's steps."""
    works = Works(plan)
    found: list[Any] = []
    for step in plan.steps:
        found += [Place(r.buffer, [(m, r.offset)]) for m, r in getattr(step, "starts", ())]
        match step:
            case Region():
                found.append(Run(step, [[_work(works, plan, x)] for x in step.launches]))
            case CallStep():
                found.append(Run(step, [[_call(works, step)]]))
            case EagerStep():
                accesses = [_access(x.ref) for x in (*step.ins, *step.outs) if x.size]
                found.append(Run(step, [[works.of_equation(
                    step.equation.op.name, step.equation, accesses,
                    [x.ref.buffer for x in step.outs])]]))
            case ScanStep():
                slices = [(m, r.buffer, r.offset, stride) for m, r, stride in step.slices]
                found.append(Loop(step, step.trips, _listed(step.body, captured), slices,
                                  step.swaps))
            case WhileStep():
                found.append(While(step, _listed(step.condition, captured), step.predicate.buffer,
                                   _listed(step.body, captured), step.swaps, captured))
            case SwitchStep():
                found.append(Switch(step, step.index,
                                    [_listed(child, captured) for child in step.children]))
    return found


def _access(ref: Ref) -> Access:
    return Access(ref.buffer, ref.buffer, ref.offset)


def _work(works: Works, plan: Any, x: Any) -> Work:
    refs = [a for a in x.args if isinstance(a, Ref)]
    if x.note == "addresses":  # it receives the addresses of matrices, and reads none of them
        reads = x.reads or frozenset()
        written = works.stored(x.origin)
        refs = [r for r in refs if r.buffer in reads or r is x.args[0] or r.buffer in written]
    pairs = frozenset((read, written) for launch, read, written in plan.in_place if launch == x)
    return works.of_group(x.note or "kernel", x.origin, x, [_access(r) for r in refs], pairs)


def _call(works: Works, step: CallStep) -> Work:
    """A library call: the addresses it refers to, and the buffers that it declares."""
    call = step.call
    refs = {r.buffer: r for r in _refs(call)}
    for buffer in (*call.reads, *call.writes):
        refs.setdefault(buffer, Ref(buffer))
    pairs = frozenset((read, written) for read in call.reads for written in call.writes
                      if call.may_overwrite(read, written))
    return works.of_group(call.note, step.origin, call, [_access(r) for r in refs.values()], pairs)


def _refs(x: Any) -> Iterator[Ref]:
    """All addresses that a library call refers to."""
    if isinstance(x, Ref):
        yield x
    elif isinstance(x, Operand):
        yield x.ref
    elif isinstance(x, (tuple, list)):
        for each in x:
            yield from _refs(each)
    elif dataclasses.is_dataclass(x):
        for field in dataclasses.fields(x):
            yield from _refs(getattr(x, field.name))
