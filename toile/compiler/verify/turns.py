"""Loops and branches in the plan verifier.

Only a few iterations ("turns") of a loop are followed. Pointers repeat every second iteration,
except those of slices; because of these, the last iteration of a scan is followed, too. These
iterations represent all others. It is not known after which iteration a while loop ends: at its
end, both buffers of a carry must hold its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.compiler.plan.control_flow import prepared
from toile.compiler.verify.commands import Key, Loop, Switch, While
from toile.compiler.verify.contents import Content, PlanError
from toile.compiler.verify.frames import Frame, Meaning, Owner, matches
from toile.engine.program import Atom, Equation

TURNS = 4  # iterations of a loop that are followed: each parity, after the other one


def equation_of(step: Any) -> Equation:
    """The equation that a loop or branch computes."""
    (member,) = step.origin.members
    return member.equation


def swap(pointers: dict[Key, Any], pairs: Any) -> None:
    """Swap pairs of pointers."""
    for a, b in pairs:
        pointers[a], pointers[b] = pointers[b], pointers[a]


class _Carries:
    """The carries that a loop changes: where its body reads and writes them."""

    def __init__(self, verifier: Any, frame: Frame, inits: list[Atom], inputs: list[Any],
                 body: Any):
        self.verifier, self.frame, self.inits, self.inputs = verifier, frame, inits, inputs
        self.reads = [body.refs[v] for v in inputs]
        self.writes = body.outputs[: len(inits)]
        self.now: list[Content] = []
        self.in_rows: set[int] = set()  # carries that move from row to row of a stack
        for ref, write, v in zip(self.reads, self.writes, inputs, strict=True):
            verifier.extents[ref.buffer] = verifier.extents[write.buffer] = v.aval.nbytes

    def begin(self) -> None:
        """Check that the first iteration reads copies of the initial values."""
        frame, verifier = self.frame, self.verifier
        self.now = []
        for i, (ref, a) in enumerate(zip(self.reads, self.inits, strict=True)):
            if a.aval.nbytes:
                verifier.expect(frame, frame.meanings(a), verifier.address(ref), a.aval.nbytes,
                                f"carry {i} at the start of a loop", True)
            self.now.append(self._label(i, 0, ref))

    def given(self) -> dict[Any, list[Meaning]]:
        """What the inputs of a body mean in this iteration."""
        return {v: [(c, 0)] for v, c in zip(self.inputs, self.now, strict=True)}

    def written(self, turn: int) -> None:
        """After the body: what it wrote becomes the carries of the next iteration."""
        self.now = [self._label(i, turn, ref) for i, ref in enumerate(self.writes)]

    def check(self, stacked: bool = False) -> None:
        """Check that the next iteration reads what this one wrote; `stacked`: whether to check the
        carries that move from row to row, once the pointers have moved, or the others."""
        for i, (ref, c, a) in enumerate(zip(self.reads, self.now, self.inits, strict=True)):
            if a.aval.nbytes and (i in self.in_rows) == stacked:
                self.verifier.expect(self.frame, [(c, 0)], self.verifier.address(ref),
                                     a.aval.nbytes, f"carry {i} at the next turn of a loop")

    def skip(self, turn: int) -> None:
        """Some iterations are not followed: the last of them wrote what this one reads."""
        for i in self.in_rows:
            self.now[i] = self._label(i, turn, self.reads[i])

    def _label(self, i: int, turn: int, ref: Any) -> Content:
        content = Content(f"carry {i} after {turn} turns in {self.frame.where}")
        self.verifier.write(self.verifier.address(ref), self.inits[i].aval.nbytes, content)
        return content


class _LoopWalk:
    """What the checks of all loops share: which carries the body changes.

    `start` is the position of the first carry among the operands, and `first` is its position among
    the inputs of the body, whose Program is `program`."""

    def __init__(self, verifier: Any, frame: Frame, command: Any, program: Any, start: int,
                 first: int, count: int):
        self.verifier, self.frame, self.command = verifier, frame, command
        self.e, self.plan = equation_of(command.step), command.step.body
        body = prepared(program, frame.plan.target.choose)
        self.fixed = [body.outputs[i] is body.inputs[first + i] for i in range(count)]
        self.moving = [i for i in range(count) if not self.fixed[i]]
        inputs = self.plan.program.inputs
        self.carries = _Carries(verifier, frame, [self.e.ins[start + i] for i in self.moving],
                                [inputs[first + i] for i in self.moving], self.plan)


class ScanWalk(_LoopWalk):
    """A scan."""

    def __init__(self, verifier: Any, frame: Frame, command: Loop):
        op: Any = equation_of(command.step).op
        self.op, self.first, self.count = op, op.consts, op.carry
        super().__init__(verifier, frame, command, op.program, op.consts, op.consts, op.carry)
        inputs = self.plan.program.inputs
        self.stacks = frame.plan.stacks.get(command.step, {})
        rows = {j for s in self.stacks.values() for j in (s.given, s.made)}
        self.ys = self.e.outs[self.count:]
        self.stacked = list(zip([y for j, y in enumerate(self.ys) if j not in rows],
                                self.plan.outputs[len(self.moving):], strict=True))
        self.carries.in_rows = {self.moving.index(i) for i in self.stacks}
        self._check_meanings(op, prepared(op.program, frame.plan.target.choose).outputs)
        for v in inputs[self.first + self.count:]:
            verifier.extents[self.plan.refs[v].buffer] = v.aval.nbytes
        for y, ref in self.stacked:
            verifier.extents[ref.buffer] = y.aval.nbytes // op.length

    def run(self) -> None:
        """Follow some iterations, including the last."""
        verifier, frame, op, trips = self.verifier, self.frame, self.op, self.command.trips
        if trips != op.length:
            raise PlanError(f"{frame.where}: a scan of {op.length} turns has {trips}")
        count = trips if trips <= TURNS else TURNS - (TURNS - trips) % 2
        turns = [*range(count - 1), trips - 1]
        slices: list[tuple[Any, int, Content]] = []
        for n, t in enumerate(turns):
            for key, base, offset, stride in self.command.slices:
                verifier.pointers[key] = verifier.pointers[base].at(offset + t * stride)
            if n == 0:
                self.carries.begin()
            elif t > turns[n - 1] + 1:
                self.carries.skip(t)
            self.carries.check(stacked=True)
            slices += self._rows_of(t, "given")
            inner = Frame(self.plan, f"turn {t} of a scan in {frame.where}", self._given(t))
            verifier.body(inner, self.command.body)
            for y, ref in self.stacked:
                slices.append((y, t, self._stack(y, ref, t)))
            self.carries.written(n + 1)
            slices += self._rows_of(t, "made")
            swap(verifier.pointers, self.command.swaps)
            self.carries.check()
        self._finish(slices)

    def _check_meanings(self, op: Any, outputs: Sequence[Atom]) -> None:
        """Check that the results that are said to be rows of carries are their values."""
        inputs = self.plan.program.inputs[self.first:]
        for i, s in self.stacks.items():
            ys = outputs[self.count:]
            if ys[s.given] is not inputs[i] or s.made is not None and ys[s.made] is not outputs[i]:
                raise PlanError(f"{self.frame.where}: carry {i} of a scan is not what it stacks")

    def _rows_of(self, t: int, which: str) -> list[tuple[Any, int, Content]]:
        """The results whose slices of an iteration are the carries: before it, or after it."""
        return [(self.ys[j], t, self.carries.now[self.moving.index(i)])
                for i, s in self.stacks.items() if (j := getattr(s, which)) is not None]

    def _row(self, t: int) -> int:
        """The number of the slice that an iteration reads and writes."""
        return self.op.length - 1 - t if self.op.reverse else t

    def _given(self, t: int) -> dict[Any, list[Meaning]]:
        frame, inputs, n = self.frame, self.plan.program.inputs, self.first + self.count
        given = {v: frame.meanings(a) for v, a in zip(inputs[:n], self.e.ins[:n], strict=True)}
        given.update(self.carries.given())
        for v, a in zip(inputs[n:], self.e.ins[n:], strict=True):
            at = self._row(t) * v.aval.nbytes
            # An array whose slices had gaps was copied before, in the same order.
            given[v] = [(c, None if o is None else o + at) for c, o in frame.meanings(a)]
        return given

    def _home(self, v: Any) -> Any:
        return self.frame.plan.refs[v]

    def _stack(self, y: Any, ref: Any, t: int) -> Content:
        """A slice of a result; it must be at its place in the result."""
        verifier, nbytes = self.verifier, y.aval.nbytes // self.op.length
        where = verifier.address(ref)
        wanted = verifier.address(self._home(y)).at(self._row(t) * nbytes)
        if nbytes and where != wanted:
            raise PlanError(f"{self.frame.where}: a scan's turn {t} stores its result at {where}, "
                            f"which belongs at {wanted}")
        content = Content(f"slice {self._row(t)} of {self.frame.name(y)}")
        verifier.write(where, nbytes, content)
        return content

    def _finish(self, slices: list[tuple[Any, int, Content]]) -> None:
        """Check that the last carries and all slices are where the results are."""
        verifier, frame = self.verifier, self.frame
        for y, t, content in slices:
            nbytes = y.aval.nbytes // self.op.length
            if nbytes:
                where = verifier.address(self._home(y)).at(self._row(t) * nbytes)
                verifier.expect(frame, [(content, 0)], where, nbytes, "a result of a scan")
        for n, i in enumerate(self.moving):
            o, stack = self.e.outs[i], self.stacks.get(i)
            last = self._home(o) if stack is None else stack.end(self.op.length)
            if o.aval.nbytes:
                verifier.expect(frame, [(self.carries.now[n], 0)], verifier.address(last),
                                o.aval.nbytes, f"last carry {i} of a scan")
        for i in range(self.count):
            if self.fixed[i]:
                frame.values[self.e.outs[i]] = self._copied(i)
        frame.loops.discard(self.command.step.origin)
        self._name_rows()
        later = {self.e.outs[i] for i, s in self.stacks.items() if not s.final}
        for o in [*(self.e.outs[i] for i in self.moving), *(y for y, _ in self.stacked)]:
            if o in frame.parts or o in later:
                continue
            content = frame.values[o] = Content(frame.name(o), self.command.step.origin)
            verifier.write(verifier.address(self._home(o)), o.aval.nbytes, content)

    def _name_rows(self) -> None:
        """Record the results that share the rows of a carry as parts of one value."""
        frame = self.frame
        for i, s in self.stacks.items():
            rows = Content(f"the rows of carry {i} in {frame.where}", self.command.step.origin)
            shared = [self.ys[j] for j in (s.given, s.made) if j is not None]
            shared += [self.e.outs[i]] if s.final else []
            low = self.verifier.address(s.rows)
            nbytes = (self.op.length + 1) * abs(s.stride)
            self.verifier.write(low, nbytes, rows)
            for o in shared:
                frame.values[o] = rows
                frame.parts[o] = self.verifier.address(self._home(o)).offset - low.offset
            if not s.final and frame.is_read(self.e.outs[i]):  # copied after the scan
                owner = frame.owners.setdefault(self.command.step.origin, Owner(frame, (self.e,)))
                owner.more.append((rows, 0))  # kernels name whole buffers
                frame.finals.append((self.e.outs[i], [(rows, None)]))

    def _copied(self, i: int) -> Content:
        """A result that is a copy of the initial value of a carry that no iteration changes."""
        frame, o, init = self.frame, self.e.outs[i], self.e.ins[self.first + i]
        found = frame.begun.get(o, Content("nothing"))
        if o.aval.nbytes and not matches(found, 0, frame.meanings(init), True):
            raise PlanError(f"{frame.where}: {frame.name(o)} should be a copy of carry {i}")
        return found


class WhileWalk(_LoopWalk):
    """A while loop."""

    def __init__(self, verifier: Any, frame: Frame, command: While):
        e = equation_of(command.step)
        op: Any = e.op
        self.condition = command.step.condition
        self.a, self.b = op.cond_consts, op.cond_consts + op.body_consts
        super().__init__(verifier, frame, command, op.body, self.b, op.body_consts, len(e.outs))

    def run(self) -> None:
        """Follow some iterations; the loop may end after any of them."""
        verifier, command = self.verifier, self.command
        self.carries.begin()
        for t in range(TURNS + 1):
            where = f"turn {t} of a while loop in {self.frame.where}"
            verifier.body(Frame(self.condition, f"the condition at {where}", self._given(
                self.condition, 0, self.a)), command.condition)
            if t and command.copies:
                self._copy_back()
            if t == TURNS:
                break
            verifier.body(Frame(self.plan, where, self._given(self.plan, self.a, self.b)),
                          command.body)
            self.carries.written(t + 1)
            swap(verifier.pointers, command.swaps)
            self.carries.check()
        self._finish()

    def _copy_back(self) -> None:
        """Copy what an iteration wrote to where the first iteration read."""
        verifier = self.verifier
        read = {verifier.key_of(r.buffer): n for n, r in enumerate(self.carries.reads)}
        for a, b in self.command.swaps:
            n = read[a]
            verifier.write(verifier.pointers[b], self.carries.inits[n].aval.nbytes,
                           self.carries.now[n])
        swap(verifier.pointers, self.command.swaps)
        self.carries.check()

    def _given(self, plan: Any, first: int, last: int) -> dict[Any, list[Meaning]]:
        """What the inputs of the condition or of the body mean: constants, then the carries."""
        frame, inputs = self.frame, plan.program.inputs
        operands = [*self.e.ins[first:last], *self.e.ins[self.b:]]
        given = {v: frame.meanings(a) for v, a in zip(inputs, operands, strict=True)}
        for n, i in enumerate(self.moving):
            given[inputs[last - first + i]] = [(self.carries.now[n], 0)]
        return given

    def _finish(self) -> None:
        """Record the last carries, in either buffer, as what the results must be copies of."""
        verifier, swaps = self.verifier, self.command.swaps
        other: dict[Key, Key] = {**dict(swaps), **{b: a for a, b in swaps}}
        last: list[Meaning] = []
        for n, i in enumerate(self.moving):
            ref, nbytes = self.carries.reads[n], self.e.outs[i].aval.nbytes
            content = Content(f"last carry {i} of a while loop in {self.frame.where}")
            key = verifier.key_of(ref.buffer)
            verifier.write(verifier.pointers[key], nbytes, content)
            if key in other and not self.command.copies:
                verifier.others[key] = verifier.pointers[other[key]]
                verifier.write(verifier.others[key], nbytes, content)
            last.append((content, 0))
        frame, origin = self.frame, self.command.step.origin
        owner = frame.owners.setdefault(origin, Owner(frame, (self.e,)))
        owner.more += last
        frame.loops.discard(origin)
        for i, o in enumerate(self.e.outs):
            if not frame.is_read(o):
                continue
            init = frame.meanings(self.e.ins[self.b + i])
            final = init if self.fixed[i] else [last[self.moving.index(i)]]
            frame.finals.append((o, final))


def walk_switch(verifier: Any, frame: Frame, command: Switch) -> None:
    """Follow each branch from the same state; what differs after the branches is unknown."""
    e = equation_of(command.step)
    index, *operands = e.ins
    verifier.expect(frame, frame.meanings(index), verifier.pointers[command.pointer],
                    index.aval.nbytes, "the index of a branch")
    before, pointers, others = verifier.memory, verifier.pointers, verifier.others
    results = [Content(frame.name(o), command.step.origin) for o in e.outs]
    after = []
    for n, (plan, body) in enumerate(zip(command.step.children, command.bodies, strict=True)):
        verifier.memory = before.copy()
        verifier.pointers, verifier.others = dict(pointers), dict(others)
        given = {v: frame.meanings(a) for v, a in zip(plan.program.inputs, operands, strict=True)}
        verifier.body(Frame(plan, f"branch {n} in {frame.where}", given), body)
        for o, result, ref in zip(e.outs, results, plan.outputs, strict=True):
            if ref != frame.plan.refs[o]:
                raise PlanError(f"{frame.where}: branch {n} stores a result elsewhere")
            verifier.write(verifier.address(ref), o.aval.nbytes, result)
        after.append(verifier.memory)
    verifier.pointers, verifier.others = pointers, others
    verifier.memory = after[0]
    for memory in after[1:]:
        verifier.memory = verifier.memory.joined(memory)
    frame.loops.discard(command.step.origin)
    frame.values.update(zip(e.outs, results, strict=True))
