"""Descriptions of a plan's kernels: what each computes, its source lines, and the bytes it moves.

One `Kernel` represents one group of equations that were fused, and contains all launches and GPU
library calls of the group. A group can have several launches: for example, a matrix product has a
launch that packs its operands, and a long sum has one launch that computes partial sums and one
that adds them. A `Kernel` can also be a loop with the kernels of its bodies, or a step that runs in
Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from toile.compiler.ir.groups import Fused, Group
from toile.compiler.ir.operands import VariableBuffer
from toile.compiler.ir.steps import EagerStep, Region, ScanStep, SwitchStep, WhileStep
from toile.compiler.plan.control_flow import prepared
from toile.compiler.plan.lower import Plan
from toile.compiler.plan.phases import BACKWARD, FORWARD, Phases, is_backward
from toile.engine.program import Equation, Var
from toile.engine.source import in_backward
from toile.inspection.borders import borders, made_of

LOOPS: dict[type, str] = {ScanStep: "scan", WhileStep: "while", SwitchStep: "cond"}


@dataclass
class Kernel:
    """The compiled form of one group of a plan."""

    number: int
    kind: str  # map, row, column, partial; or the routine; or "Python"
    equations: list[Equation]
    steps: list[int]  # indices of its launches in the plan
    launches: list[Any]
    flops: int
    reads: list[str]  # operands, by type and shape
    writes: list[str]
    bytes_read: int
    bytes_written: int
    borders: list[str]  # why fusion stopped
    bodies: list[list[Kernel]] = field(default_factory=list)  # of a loop
    trips: int | None = None  # of a loop, if known
    python: bool = False
    calls: list[Any] = field(default_factory=list)  # calls of libraries, on a GPU
    precision: str = ""  # of products and convolutions, on a GPU
    scope: tuple[str, ...] = ()  # the module path of the loop that it is in
    chain: str = ""  # the kernels that it runs with, block by block
    linked: set[int] = field(default_factory=set)  # its launches in the chain, by id
    blocks: int = 0  # chunks of the chain that it leads
    phases: Phases | None = None  # the passes that equations of the plan belong to
    inner: str = ""  # of a whole loop: the pass that the loop belongs to

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def operations(self) -> list[str]:
        return [e.op.name for e in self.equations]

    @property
    def modules(self) -> list[str]:
        """The paths of the modules that the operations belong to, in order."""
        return list(dict.fromkeys(self.path_of(e) for e in self.equations))

    def path_of(self, e: Equation) -> str:
        """Return the module path of an equation of this kernel."""
        return "/".join((*self.scope, *e.scope))

    def phase_of(self, e: Equation) -> str:
        """Return the pass that an equation of this kernel belongs to."""
        if self.phases is None or is_backward(e):
            return BACKWARD if is_backward(e) else FORWARD
        return self.inner or self.phases.of(e)

    @property
    def sources(self) -> dict[tuple[str, int], list[Equation]]:
        """The equations, grouped by file and line of the user's code."""
        found: dict[tuple[str, int], list[Equation]] = {}
        for e in self.equations:
            if e.source is not None:
                found.setdefault((e.source.file, e.source.line), []).append(e)
        return found

    @property
    def chunks(self) -> int:
        """The number of chunks that threads execute, or of thread blocks on a GPU."""
        alone = [x for x in self.launches if id(x) not in self.linked]
        return sum(-(-x.extent // getattr(x, "grain", 1)) for x in alone) + self.blocks

    @property
    def label(self) -> str:
        """The kind, followed by the operation if there is only one and it adds information."""
        names = set(self.operations)
        if len(names) == 1 and self.kind not in names:
            return f"{self.kind} ({names.pop()})"
        return self.kind

    def shares(self) -> list[tuple[Equation, float]]:
        """Return the equations, each with a rough estimate of its fraction of the work."""
        weights = [weight(e) for e in self.equations]
        total = sum(weights) or 1.0
        return [(e, w / total) for e, w in zip(self.equations, weights, strict=True)]


def weight(e: Equation) -> float:
    """Estimate the work of an equation: its number of elements, times 15 for costly functions."""
    sizes = [a.aval.size for a in (*e.ins, *e.outs)]
    n = e.ins[0].aval.size if e.op.is_reduction else max(sizes, default=1)
    return float(max(n, 1)) * (15.0 if e.op.costly else 1.0)


class _Numbers:
    """A counter that numbers the kernels of a plan and of the bodies of its loops."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        self.last += 1
        return self.last


def kernels_of(
    plan: Plan, numbers: _Numbers | None = None, scope: tuple[str, ...] = (),
    around: str = FORWARD,
) -> list[Kernel]:
    """List the kernels of a plan in the order in which they start.

    For the body of a loop, `scope` is the module path of the loop and `around` its pass."""
    numbers = numbers or _Numbers()
    phases = Phases(plan.program, around)
    found: dict[Any, Kernel] = {}
    alone = {id(g.members[0].equation): g for g in plan.fused.groups if not g.fusible}

    def kernel(of: Any, group: Group | None, step: int) -> Kernel:
        """Find or make the kernel of a group, or of a launch that belongs to no group."""
        key = id(of if group is None else group)
        if key not in found:
            found[key] = _new_kernel(plan.fused, group, numbers.next())
        if step not in found[key].steps:
            found[key].steps.append(step)
        return found[key]

    for i, step in enumerate(plan.steps):
        if isinstance(step, Region):
            for x in step.kernels:
                kernel(x, x.origin, i).launches.append(x)
        elif isinstance(step, EagerStep):
            kernel(step, alone[id(step.equation)], i).python = True
        elif hasattr(step, "call"):
            kernel(step, step.origin, i).calls.append(step.call)
        else:
            _add_loop(kernel(step, step.origin, i), step, numbers, scope, phases)
    for k in found.values():
        k.scope, k.phases = scope, phases
    _describe(plan, found)
    return list(found.values())


def _describe(plan: Plan, found: dict[Any, Kernel]) -> None:
    """Set the kinds and chains of the kernels, and the reasons why fusion stopped."""
    _show_chains(plan, found)
    for k in found.values():
        _name(k)
        if not (k.python or k.bodies or len(k.equations) != 1):
            _show_loop(k)
    _number_borders(plan.fused, found)
    for origin, reason in getattr(plan, "unchained", {}).items():
        if origin in found:
            found[origin].borders.append(f"not chained with the kernels around it: {reason}")


def _show_chains(plan: Plan, found: dict[Any, Kernel]) -> None:
    """Record which kernels run together as a chain."""
    for step in plan.steps:
        for chain in getattr(step, "launches", ()):
            links = getattr(chain, "links", ())
            kernels = [found[id(x.origin)] for x in links]
            order = " → ".join(dict.fromkeys(f"[{k.number}]" for k in kernels))
            for k, x in zip(kernels, links, strict=True):
                held = [r.buffer.aval.str_short() for r in chain.rooms
                        if isinstance(r.buffer, VariableBuffer)]
                k.chain = f"{order} in {chain.extent} blocks of rows"
                k.chain += f"; {', '.join(held)} stays in the cache" if held else ""
                k.linked.add(id(x))
            if links:
                kernels[chain.lead].blocks += chain.chunks


def all_kernels(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Iterate over kernels, including those in the bodies of loops."""
    for k in kernels:
        yield k
        for body in k.bodies:
            yield from all_kernels(body)


def _new_kernel(fused: Fused, group: Group | None, number: int) -> Kernel:
    if group is None:
        return Kernel(number, "", [], [], [], 0, [], [], 0, 0, ["it copies a result"])
    equations = [m.equation for m in group.members]
    flops = sum(e.op.flops(*(a.aval for a in e.ins)) for e in equations)
    reads = _reads(fused, equations)
    outs = [o for e in equations for o in e.outs if not group.fusible or o in fused.stored]
    return Kernel(
        number, "", equations, [], [], flops,
        [base.aval.str_short() for base in reads], [o.aval.str_short() for o in outs],
        sum(reads.values()), sum(o.aval.nbytes for o in outs), [],
    )


def _reads(fused: Fused, equations: list[Equation]) -> dict[Var, int]:
    """Return the variables that the equations read from outside, with the bytes read."""
    inside = {o for e in equations for o in e.outs}
    seen: dict[Var, dict[Any, int]] = {}
    for e in equations:
        for i, a in enumerate(e.ins):
            base = made_of(fused, a)
            if base is None or base in inside:
                continue
            view = fused.view(a)
            n = base.aval.dtype.itemsize
            for extent, stride in zip(view.shape, view.strides, strict=True):
                n *= extent if stride else 1
            if i == 0 and e.op.by_blocks and not e.op.updates:
                n = min(n, e.outs[0].aval.nbytes)  # only the selected part
            seen.setdefault(base, {})[view.offset, view.shape, view.strides] = n
    return {base: min(sum(parts.values()), base.aval.nbytes) for base, parts in seen.items()}


def _add_loop(
    k: Kernel, step: Any, numbers: _Numbers, scope: tuple[str, ...], phases: Phases
) -> None:
    k.kind = LOOPS[type(step)]
    (e,) = k.equations
    inside, around = (*scope, *e.scope), phases.of(e)
    k.bodies = [kernels_of(child, numbers, inside, around) for child in step.children]
    k.trips = step.trips if isinstance(step, ScanStep) else None
    inner = [k for body in k.bodies for k in body]
    times = k.trips or 1
    k.bytes_read = times * sum(x.bytes_read for x in inner)
    k.bytes_written = times * sum(x.bytes_written for x in inner)


def _show_loop(k: Kernel) -> None:
    """If a kernel is a whole loop, replace its equation by the equations of the loop's bodies."""
    (e,) = k.equations
    if e.op.carries_programs:
        k.inner = k.phase_of(e)
        k.trips = getattr(e.op, "length", None)
        k.equations = list(_inside(e)) or k.equations


def _inside(e: Equation) -> Iterator[Equation]:
    """Iterate over the equations in a loop and its inner loops, with the loop's module path."""
    for program in e.op.programs():
        for x in prepared(program).equations:
            source = x.source or e.source
            if e.source is not None and e.source.backward:
                source = in_backward(source)
            inner = Equation(x.op, x.ins, x.outs, source, (*e.scope, *x.scope))
            if x.op.carries_programs:
                yield from _inside(inner)
            else:
                yield inner


def _name(k: Kernel) -> None:
    """Set the kind of a kernel, unless it is a loop, whose kind is already set."""
    if k.python:
        k.kind = "Python"
    elif not k.bodies:
        notes = dict.fromkeys(x.note or "kernel" for x in (*k.launches, *k.calls))
        k.kind = " + ".join(notes)


def _number_borders(fused: Fused, found: dict[Any, Kernel]) -> None:
    labels = {key: f"[{k.number}]" for key, k in found.items()}
    for group in fused.groups:
        k = found.get(id(group))
        if k is not None and k.python:
            dtypes = dict.fromkeys(str(a.aval.dtype) for a in k.equations[0].ins)
            of = ", ".join(dtypes) or "nothing"
            k.borders = [f"{k.operations[0]} of {of} has no native code"]
        elif k is not None:
            k.borders = borders(fused, group, labels)
