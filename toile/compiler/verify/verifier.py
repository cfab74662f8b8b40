"""The plan verifier: proves that each step reads the values that its equations mean.

It executes a plan as a device would, with symbolic contents instead of numbers: it records which
value, of which body and iteration, is in which bytes. It shares no code with the modules that
place buffers and order or join steps. `PlanError` says which step would go wrong, and how. The
verifier proves where values are, not what kernels compute from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toile.compiler.ir.operands import Scratch, Temporary
from toile.compiler.ir.steps import Constant, Part, Table, whole_buffer
from toile.compiler.verify.commands import (
    Access,
    Key,
    Loop,
    Place,
    Run,
    Switch,
    While,
    Work,
    refs_of,
)
from toile.compiler.verify.contents import Address, Content, Memory, PlanError
from toile.compiler.verify.frames import Frame, Meaning, Owner, matches, needed
from toile.compiler.verify.turns import ScanWalk, WhileWalk, walk_switch
from toile.engine.program import Atom, Equation, Literal, Var


class Verifier:
    """The check of one plan; `pointers` is the device's table when a call begins.

    A backend overrides `key_of`, which gives the key of a buffer in its table."""

    def __init__(self, pointers: dict[Key, Address], spaces: Mapping[Any, int]):
        self.pointers = pointers
        self.spaces = spaces  # their sizes in bytes
        self.memory = Memory()
        self.extents: dict[Any, int] = {}  # bytes behind moving pointers
        self.others: dict[Key, Address] = {}  # where pointers may be instead after a while loop

    def key_of(self, buffer: Any) -> Key:
        return buffer

    def run(self, plan: Any, commands: Sequence[Any]) -> None:
        """Verify a plan whose inputs are in the table."""
        given: dict[Any, list[Meaning]] = {}
        for i, v in enumerate(plan.program.inputs):
            content = Content(f"input {i} ({v.aval.short()})")
            self.write(self.pointers[self.key_of(v)], v.aval.nbytes, content)
            given[v] = [(content, 0)]
        self.body(Frame(plan, plan.program.name, given), commands)

    def body(self, frame: Frame, commands: Sequence[Any]) -> None:
        """Execute a body and check its results."""
        self.walk(frame, commands)
        for i, (o, ref) in enumerate(zip(frame.plan.program.outputs, frame.plan.outputs,
                                         strict=True)):
            if o.aval.nbytes:
                where = self.address(ref)
                self.expect(frame, frame.meanings(o), where, o.aval.nbytes, f"result {i}", True)
                self._check_parts(frame, o)

    def walk(self, frame: Frame, commands: Sequence[Any]) -> None:
        """Execute commands, and check that they complete the frame's plan."""
        for c in commands:
            match c:
                case Run():
                    self._run_units(frame, c)
                case Place():
                    for key, offset in c.places:
                        self.pointers[key] = self.pointers[c.base].at(offset)
                        self.others.pop(key, None)
                case Loop():
                    ScanWalk(self, frame, c).run()
                case While():
                    WhileWalk(self, frame, c).run()
                case Switch():
                    walk_switch(self, frame, c)
            if isinstance(c, (Loop, While, Switch)):
                self._note_loop(frame, c.step)
        self._check_number_of_kernels(frame)
        for owner in frame.owners.values():
            self._check_coverage(frame, owner)
        for o, meant in frame.finals:
            if o.aval.nbytes and not matches(frame.values[o], 0, meant, True):
                raise PlanError(f"{frame.where}: {frame.name(o)} should be a copy of "
                                f"{meant[0][0] if meant else 'its initial value'}")

    def _check_number_of_kernels(self, frame: Frame) -> None:
        """Check that all kernels that were lowered were executed."""
        for key, launches in frame.plan.staged.items():
            found = len(frame.owners[key].works) if key in frame.owners else 0
            if found != len(launches):
                names = ", ".join(m.equation.op.name for m in key.members) if key else "a result"
                raise PlanError(f"{frame.where}: {found} of {len(launches)} kernels of {names} "
                                "were executed")

    # ---- memory
    def address(self, ref: Any) -> Address:
        return self.pointers[self.key_of(ref.buffer)].at(ref.offset)

    def size_of(self, buffer: Any) -> int:
        if isinstance(buffer, Temporary):
            return buffer.nbytes
        if isinstance(buffer, Constant):
            return buffer.array.nbytes
        aval = getattr(buffer, "aval", None)
        if aval is None and buffer not in self.extents:
            raise PlanError("a pointer that moves is used outside its loop")
        return self.extents[buffer] if aval is None else aval.nbytes

    def write(self, where: Address, nbytes: int, content: Content) -> None:
        limit = self.spaces.get(where.space)
        if limit is not None and not 0 <= where.offset <= where.offset + nbytes <= limit:
            raise PlanError(f"{content} takes {nbytes} bytes from {where} on, which has {limit}")
        self.memory.write(where, nbytes, content)

    def expect(self, frame: Frame, meant: Sequence[Meaning], where: Address, nbytes: int, what: str,
               copies: bool = False) -> Content:
        """Raise unless a range of bytes holds, as a whole, one of the values that are meant.

        `copies`: a value computed from these alone is accepted, too."""
        content, offset = self.memory.content(where, nbytes)
        if content is not None and matches(content, offset, meant, copies):
            return content
        wanted = " or ".join(dict.fromkeys(str(c) for c, _ in meant)) or "something else"
        raise PlanError(f"{frame.where}: {what} should be {wanted}, but {where} and the {nbytes} "
                        f"bytes from there hold {self.memory.described(where, nbytes)}")

    # ---- kernels
    def owner(self, frame: Frame, work: Work) -> Owner:
        found = frame.owners.get(work.owner)
        if found is None:
            found = frame.owners[work.owner] = Owner(frame, work.equations)
        return found

    def _note_loop(self, frame: Frame, step: Any) -> None:
        lowered = frame.plan.staged.get(step.origin, [])
        equations = tuple(m.equation for m in step.origin.members)
        work = Work("a loop", step.origin, equations, {}, (), number=lowered.index(step))
        self.owner(frame, work).works.append(work)

    def check_complete(self, frame: Frame, content: Content, buffer: Any) -> None:
        """Check that all kernels of a value's owner that use its buffer have run.

        An input is complete: it has no owner, like the copies of inputs that are results."""
        if content.owner is None and not content.scratch:
            return
        lowered = frame.plan.staged.get(content.owner, ())
        owner = frame.owners.get(content.owner)
        if owner is None or len(owner.works) == len(lowered):
            return
        done = {w.number for w in owner.works}
        for i, x in enumerate(lowered):
            if i not in done and buffer in _touched(x):
                raise PlanError(f"{frame.where}: {content} is read before it is complete")

    def _run_units(self, frame: Frame, run: Run) -> None:
        """Units see the state before the step; none may write what another one uses."""
        fresh: set[Content] = set()
        seen = []
        for works in run.units:
            unit = _Unit(self, frame, run.step, fresh)
            for work in works:
                unit.take(work)
            seen.append(unit)
        for i, unit in enumerate(seen):
            unit.check_overlaps(unit)
            for other in seen[:i]:
                unit.check_overlaps(other)
                other.check_overlaps(unit)
        for unit in seen:
            for where, nbytes, content in unit.writes:
                self.write(where, nbytes, content)

    def _check_coverage(self, frame: Frame, owner: Owner) -> None:
        """Check that every operand of what was computed was read, or was in place."""
        if not owner.equations or any(e.op.programs() for e in owner.equations):
            return
        seen = {s for c in owner.read for s in (c.sources if c.scratch else (c,))} | owner.replaced
        for a in _operands(owner.equations, frame):
            meant = [c for c, _ in frame.meanings(a)]
            missing = meant and not any(c in seen or c.array is not None for c in meant)
            if missing and not self._is_in_place(frame, owner, a):
                names = ", ".join(e.op.name for e in owner.equations[:4])
                raise PlanError(f"{frame.where}: {names} is computed without reading its "
                                f"operand {meant[0]}")

    def _is_in_place(self, frame: Frame, owner: Owner, a: Atom) -> bool:
        """Whether an operand need not be read: it is already stored in a concatenation, inside
        the margins of a padded array, or in the block that an update replaces."""
        return all(
            (e.op.joined_axis is not None or e.op.margins is not None
             or e.op.placed_at(e.ins) is not None)
            and e.outs[0] in frame.values and a in frame.values[e.outs[0]].parts or _ignores(e, a)
            for e in owner.equations if a in e.ins)

    def _check_parts(self, frame: Frame, a: Atom) -> None:
        """Check that a concatenation that is read has all its parts, and that a part was stored."""
        if a.__class__ is Literal or a not in frame.values or not frame.values[a].parts:
            return
        parts, e = frame.values[a].parts, frame.made[a]
        if a in parts:
            return
        missing = [a] if e.op.joined_axis is None else [
            x for x in e.ins if x.aval.nbytes and (x.__class__ is Literal or x not in parts)]
        if missing:
            raise PlanError(f"{frame.where}: {frame.name(a)} is read before "
                            f"{missing[0].aval.short()} was stored into it")


def _touched(x: Any) -> set[Any]:
    """The buffers that a launch or call is given."""
    return {r.buffer for r in refs_of(x)} or {*(x.reads or ()), *getattr(x, "writes", ())}


def _operands(equations: Sequence[Equation], frame: Frame) -> list[Atom]:
    """What is read by equations whose values are in memory, except literals and their results."""
    made: set[Atom] = {o for e in equations for o in e.outs}
    pairs = [(a, frame.base(a)) for a in needed(_live(equations, frame))]
    return [a for a, base in pairs if base.__class__ is Var and base not in made]


def _live(equations: Sequence[Equation], frame: Frame) -> list[Equation]:
    """The equations that values in memory depend on; a group may have computed others, too."""
    found: list[Equation] = []
    wanted: set[Atom] = {o for e in equations for o in e.outs if o in frame.values}
    for e in reversed(equations):
        if any(o in wanted for o in e.outs):
            found.append(e)
            wanted.update(e.ins)
    return found[::-1]


def _ignores(e: Equation, a: Atom) -> bool:
    """Whether an operand cannot change the result: the start of a slice of a whole axis, an array
    that an update covers entirely, or one that padding cuts away."""
    return a not in [e.ins[i] for i in e.op.used_operands(*[x.aval for x in e.ins])]


class _Unit:
    """The reads and writes of one unit, which runs at the same time as the others in its step."""

    def __init__(self, verifier: Verifier, frame: Frame, step: Any, fresh: set[Content]):
        self.verifier, self.frame, self.step, self.fresh = verifier, frame, step, fresh
        self.reads: list[tuple[Address, int, Content]] = []
        self.writes: list[tuple[Address, int, Content]] = []
        self.local: dict[Any, Content] = {}  # written by earlier works of the unit
        self.in_place: set[tuple[Content, Content]] = set()
        self.known = {whole_buffer(b) for b in step.reads | step.writes}
        self.written = {whole_buffer(b) for b in step.writes}

    def take(self, work: Work) -> None:
        """Check what a work reads, and record what it writes."""
        frame = self.frame
        owner = self.verifier.owner(frame, work)
        self._check_order(work, owner)
        read: dict[Any, Content] = {}
        targets = []
        for x in work.accesses:
            size = self.verifier.size_of(x.buffer)
            if not size:
                continue
            if not 0 <= x.offset <= size:
                raise PlanError(f"{frame.where}: {work.name} begins at byte {x.offset} of a buffer "
                                f"of {size}")
            if x.key is not None and x.buffer not in self.known:
                raise PlanError(f"{frame.where}: {work.name} uses a buffer that its step does not "
                                "name")
            if self._is_result(x.buffer, work) or self._is_own(x, work):
                targets.append(x)
            else:
                read[x.buffer] = self._read(work, owner, x, size)
        owner.read |= set(read.values())
        for x in targets:
            self._write(work, owner, x, read)

    def _check_order(self, work: Work, owner: Owner) -> None:
        """Check that works of one owner that share a written buffer run in the order lowered."""
        mine = {x.buffer for x in work.accesses}
        for other in owner.works:
            shared = mine & {x.buffer for x in other.accesses} & (self.written | {*work.stored})
            if other.number >= work.number and shared:
                raise PlanError(f"{self.frame.where}: {work.name} comes after {other.name}, "
                                "which needs it")
        owner.works.append(work)

    def _is_result(self, buffer: Any, work: Work) -> bool:
        """Whether a work's results go to a buffer. A copy of a result may read that of another, as
        at the end of a loop."""
        if buffer not in work.stored or buffer in self.written:
            return buffer in work.stored
        loops = any(e.op.programs() for e in work.equations)
        others = {x.buffer for x in work.accesses if x.buffer in work.stored}
        return bool(work.equations) and not (loops and others & self.written)

    def _is_own(self, x: Access, work: Work) -> bool:
        """Whether a work writes to scratch memory of its own equations."""
        frame = self.frame
        named = x.key is None or x.buffer in self.written
        if not isinstance(x.buffer, Scratch) or x.buffer in frame.plan.outside or not named:
            return False
        made = frame.rooms.get(x.buffer)
        return made is None or made.owner is work.owner

    def _read(self, work: Work, owner: Owner, x: Access, size: int) -> Content:
        verifier, frame = self.verifier, self.frame
        meant = self._meant(work, owner, x)
        what = f"an operand of {work.name}"
        local = self.local.get(x.buffer)
        if local is not None and matches(local, 0, meant, False):
            return local
        if local is not None or x.key is None:
            raise PlanError(f"{frame.where}: {what} is {local or 'nothing'}, which its chain holds")
        content = verifier.expect(frame, meant, verifier.pointers[x.key], size, what)
        if x.key in verifier.others:
            verifier.expect(frame, meant, verifier.others[x.key], size, what)
        if content.owner is not work.owner:
            verifier.check_complete(frame, content, x.buffer)
        for a in owner.atoms:
            if a.__class__ is not Literal and frame.values.get(a) is content:
                verifier._check_parts(frame, a)
        self.reads.append((verifier.pointers[x.key], size, content))
        return content

    def _meant(self, work: Work, owner: Owner, x: Access) -> list[Meaning]:
        """What a work may read from a buffer."""
        frame = self.frame
        if isinstance(x.buffer, Table):
            return [(Content.constant(x.buffer.array), 0)]
        meant = [m for a in owner.atoms for m in frame.meanings(a)] + owner.more
        # A kernel names the whole buffer of what is a part of a value.
        meant += [(frame.values[a], 0) for a in owner.atoms
                  if a.__class__ is not Literal and a in frame.parts]
        room = frame.rooms.get(x.buffer)
        if room is not None and room.owner is work.owner:
            meant.append((room, 0))
        return meant

    def _write(self, work: Work, owner: Owner, x: Any, read: Mapping[Any, Content]) -> None:
        verifier, frame = self.verifier, self.frame
        if x.key is not None and x.buffer not in self.written:
            raise PlanError(f"{frame.where}: {work.name} writes a buffer that its step does not "
                            "say it writes")
        content = self._content(work, x)
        content.add(read.values())
        self.local[x.buffer] = content
        if x.key is None:
            return
        where, size = verifier.pointers[x.key], verifier.size_of(x.buffer)
        before, offset = verifier.memory.content(where, size)
        if content not in self.fresh:
            if before is not content or offset:
                raise PlanError(
                    f"{frame.where}: {work.name} continues {content}, but {where} holds "
                    f"{verifier.memory.described(where, size)}")
        elif before is not None and any(e.op.updates for e in work.equations):
            owner.replaced.add(before)
            self.in_place.add((before, content))
        self.in_place |= {(read[r], content) for r, w in work.in_place
                          if w is x.buffer and r in read}
        self.writes.append((where, size, content))

    def _content(self, work: Work, x: Any) -> Content:
        """The content that a work writes to; works of one owner continue the same content."""
        frame = self.frame
        if x.buffer not in work.stored:
            found = frame.rooms.get(x.buffer)
            if found is None:
                found = frame.rooms[x.buffer] = Content(f"room of {work.name} in {frame.where}",
                                                        work.owner, scratch=True)
                self.fresh.add(found)
            return found
        content: Content | None = None
        for v in work.stored[x.buffer]:
            known: dict[Any, Content] = frame.values
            if isinstance(v, int):
                known = frame.copied
            elif work.owner in frame.loops:
                known = frame.begun
            base, var = (v.buffer, v.var) if isinstance(v, Part) else (v, v)
            content = content or known.get(base)
            if content is None:
                name = f"result {v} of {frame.where}" if isinstance(v, int) else frame.name(base)
                content = Content(name, work.owner)
                self.fresh.add(content)
            known[base] = known[var] = content
            if base is not var or content.parts or self._has_parts(base):
                content.parts.add(var)
        assert content is not None
        return content

    def _has_parts(self, base: Any) -> bool:
        e = self.frame.made.get(base) if isinstance(base, Var) else None
        return e is not None and e.op.joined_axis is not None

    def check_overlaps(self, other: _Unit) -> None:
        """Raise if this unit writes what the other unit, or another of its own kernels, uses."""
        for where, size, content in self.writes:
            for at, n, touched in (*other.reads, *other.writes):
                apart = (at.space != where.space or at.offset >= where.offset + size
                         or where.offset >= at.offset + n)
                if apart or touched is content or (touched, content) in self.in_place:
                    continue
                raise PlanError(f"{self.frame.where}: one step writes {content} over {touched}, "
                                "which it also uses")
