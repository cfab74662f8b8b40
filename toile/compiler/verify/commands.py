"""The input of the plan verifier: the commands that a device carries out, with their meaning.

A backend describes the commands of a compiled plan with these classes. Its table of pointers is
indexed by keys; a `Work` lists the memory that a kernel or library call is given, and the equations
that it computes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import Part
from toile.compiler.verify.contents import PlanError
from toile.engine.program import Equation

Key = Hashable


class Access(NamedTuple):
    """Memory that a kernel is given: which buffer is meant, and how the device finds it.

    If the key is missing, the buffer is on the stack of the unit."""

    buffer: Any
    key: Key | None
    offset: int


class Work(NamedTuple):
    """One kernel or library call; without equations, it copies a result to where it is returned.

    Works of one `owner` compute the same equations, in stages."""

    name: str
    owner: Any
    equations: tuple[Equation, ...]
    stored: Mapping[Any, Sequence[Any]]  # by buffer: the variables that are stored in it
    accesses: Sequence[Access]
    in_place: frozenset[tuple[Any, Any]] = frozenset()  # (read, written) element by element
    number: int = 0  # position among the works of its owner, as lowered


class Run(NamedTuple):
    """Units that run at the same time; the works of one unit run in order, block by block."""

    step: Any
    units: Sequence[Sequence[Work]]


class Place(NamedTuple):
    """Set pointers to offsets from another pointer."""

    base: Key
    places: Sequence[tuple[Key, int]]


class Loop(NamedTuple):
    """A scan; in each iteration, the pointers of `slices` (key, base, offset, stride) are set."""

    step: Any
    trips: int
    body: Sequence[Any]
    slices: Sequence[tuple[Key, Key, int, int]]
    swaps: Sequence[tuple[Key, Key]]


class While(NamedTuple):
    """A loop that runs while its condition holds.

    Pointers are swapped after each iteration; if the device `copies`, the value at the first of a
    pair is then copied to the second, and the pointers are swapped back."""

    step: Any
    condition: Sequence[Any]
    predicate: Key
    body: Sequence[Any]
    swaps: Sequence[tuple[Key, Key]]
    copies: bool = False


class Switch(NamedTuple):
    """One of several bodies, selected by the integer that a pointer points at."""

    step: Any
    pointer: Key
    bodies: Sequence[Sequence[Any]]


def refs_of(x: Any) -> list[Any]:
    """The addresses that a launch is given, in order."""
    return [a for a in getattr(x, "args", ()) if isinstance(a, Ref)]


class Works:
    """Creates the works of one plan's steps."""

    def __init__(self, plan: Any):
        self.plan = plan
        self.known: dict[int, Mapping[Any, Sequence[Any]]] = {}
        self.numbers: dict[int, set[int]] = {}

    def of_group(self, name: str, group: Any, launch: Any, accesses: Sequence[Access],
                 in_place: frozenset[tuple[Any, Any]] = frozenset()) -> Work:
        """A launch for a group's equations; without a group, a copy of a result."""
        equations = () if group is None else tuple(m.equation for m in group.members)
        return Work(name, group, equations, self.stored(group), accesses, in_place,
                    self._number(group, launch))

    def _number(self, group: Any, launch: Any) -> int:
        """The position of a launch in its group; a chain may have divided the launch otherwise."""
        staged = self.plan.staged.get(group, ())
        taken = self.numbers.setdefault(id(group), set())
        exact = [i for i, x in enumerate(staged) if x is launch]
        alike = [i for i, x in enumerate(staged) if i not in taken
                 and getattr(x, "note", None) == launch.note and refs_of(x) == refs_of(launch)]
        if not exact and not alike:
            raise PlanError(f"{launch.note}: the buffers that it is given are not those that it "
                            "was lowered with")
        number = (exact or alike)[0]
        taken.add(number)
        return number

    def of_equation(self, name: str, e: Equation, accesses: Sequence[Access],
                    outs: Sequence[Any]) -> Work:
        """A work that computes one equation, whose results are in the buffers `outs`."""
        stored: dict[Any, list[Any]] = {}
        for buffer, o in zip(outs, e.outs, strict=True):
            stored.setdefault(buffer, []).append(o)
        return Work(name, e, (e,), stored, accesses)

    def stored(self, group: Any) -> Mapping[Any, Sequence[Any]]:
        """The variables that a group stores, by buffer; without a group, the numbers of results."""
        found = self.known.get(id(group))
        if found is None:
            found = self.known[id(group)] = self._find(group)
        return found

    def _find(self, group: Any) -> Mapping[Any, Sequence[Any]]:
        plan = self.plan
        found: dict[Any, list[Any]] = {}
        if group is None:
            for i, ref in enumerate(plan.outputs):
                found[ref.buffer] = [i]
            return found
        for v in (o for m in group.members for o in m.equation.outs):
            base = plan.fused.view(v).base
            home = plan.refs.get(base)
            for ref in (*((home,) if home is not None else ()), *plan.again.get(v, ())):
                found.setdefault(ref.buffer, []).append(v if base is v else Part(base, v))
        return found
