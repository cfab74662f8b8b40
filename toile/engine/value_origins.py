"""Find the operation that produced the first NaN or infinity in the results of a Program.

A `Replay` runs a Program again, one operation at a time, including the Programs that operations
carry. Each value that contains a NaN has an `Origin`: the operation that produced it from operands
without NaN, or the argument that contained it. A result's origin is therefore the first operation
that led to its NaN; NaNs that a later operation masks do not count. The same holds for infinities.
This module may import the modules of the engine below it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toile.engine.operation import Operation
from toile.engine.program import LABELS, Literal, Program, Var
from toile.engine.source import Source
from toile.engine.trace import current, state
from toile.engine.value_ranges import (
    count,
    describe_values,
    first_at,
    is_huge,
    non_finite,
    values_of,
)

KINDS = ("nan", "inf")
FORWARD, BACKWARD, AFTER = "forward pass", "backward pass", "after the backward pass"
_LAST = 1 << 62  # the order of an origin that all others precede


class Value:
    """An array in a Replay, and where its first NaN and its first infinity come from.

    `origins` has one entry for each kind; None: the array contains none. `phase` says in which
    pass it was computed."""

    __slots__ = ("array", "origins", "phase")

    def __init__(self, array: Any, origins: Sequence[Origin | None] = (None, None),
                 phase: str = FORWARD):
        self.array, self.origins, self.phase = array, tuple(origins), phase


class Origin:
    """Where a NaN or an infinity was produced: an operation, its operands, and its line.

    `op` is None if an argument contained it; then `text` describes the argument. `turns` lists
    the loops around the operation, outermost first, each with the number of its iteration.
    `phase` is "" if it is not known."""

    __slots__ = ("order", "op", "text", "operands", "source", "scope", "turns", "phase")

    def __init__(
        self, order: int, op: Operation | None, text: str, operands: Sequence[str] = (),
        source: Source | None = None, scope: Sequence[str] = (), turns: Sequence[str] = (),
        phase: str = "",
    ):
        self.order, self.op, self.text, self.operands = order, op, text, list(operands)
        self.source, self.scope, self.turns = source, tuple(scope), tuple(turns)
        self.phase = phase

    def lines(self) -> list[str]:
        """The place of the origin, for an error message: line, module and iteration."""
        found = []
        if self.source is not None:
            found += _source_lines(self.source, self.phase)
        if self.scope:
            found.append(f"in module {'/'.join(self.scope)}")
        return [*found, *self.turns]

    def short(self) -> str:
        """The operation and its line, for a message about another operation."""
        if self.op is None:
            return self.text
        where = f" at {self.source.file}:{self.source.line}" if self.source else ""
        back = " in the backward pass" if self.source and self.source.of else ""
        return f"{self.op.name}{back}{where}"


def _source_lines(source: Source, phase: str) -> list[str]:
    of, text = source.of, source.text()
    found = [f"at {source.file}:{source.line} in {source.function}"]
    found += [f"  {text}"] if text else []
    if of is None:
        found[0] += f" ({phase})" if phase else ""
    elif (of.file, of.line) == (source.file, source.line):
        found[0] += " (backward pass of this line)"
    else:
        found.append(f"(backward pass of {of.file}:{of.line}: {of.text()})")
    return found


def describe_operands(ins: Sequence[Value]) -> list[str]:
    """A line for each operand: its range, and whether it was already suspicious."""
    found = []
    for i, v in enumerate(ins):
        name = f"operand {i} (a derivative)" if v.phase == BACKWARD else f"operand {i}"
        text = f"{name}: {describe_values(v.array)}"
        infinite = v.origins[1]
        if infinite is not None:
            text += f"; suspicious: inf from {infinite.short()}"
        elif is_huge(v.array):
            text += "; suspicious: huge"
        found.append(text)
    return found


def describe_result(op: Operation, ins: Sequence[Any], out: Any, kind: str) -> str:
    """How many values of a result are bad, and the operands of the first one if they are known."""
    name, bad = {"nan": "NaN", "inf": "inf"}[kind], count(out, kind)
    index = first_at(out, kind)
    text = f"its result is {name}"
    if out.shape:
        values = f"{bad} of the {out.size} values of its result {'is' if bad == 1 else 'are'}"
        text = f"{values} {name}, the first at {list(index)}"
    shapes = {getattr(x, "shape", None) for x in ins}
    if op.by_element and ins and shapes <= {(), out.shape}:
        numbers = [values_of(x)[index if x.shape else ()] for x in ins]
        text += f": {op.name}({', '.join(map(str, numbers))})"
    return text


class Replay:
    """Runs Programs one operation at a time and notes where NaNs and infinities come from.

    Operations that carry Programs call its methods (`Operation.checked`)."""

    def __init__(self, kind: str, source: Source | None, scope: tuple[str, ...]):
        self.kind, self.source, self.scope = kind, source, scope
        self.order = 0
        self.replays = True  # a whole Program, so that passes are known
        self.turns: list[str] = []

    # ---- values
    def argument(self, array: Any, text: str) -> Value:
        """An argument of the Program that is replayed; `text` describes it in errors."""
        nan, inf = non_finite(array)
        given = Origin(0, None, text, [describe_values(array)]) if nan or inf else None
        return Value(array, (given if nan else None,
                             infinities.find(array) or given if inf else None))

    def part(self, array: Any, whole: Value) -> Value:
        """A part of a value, which has the same origins."""
        bad = non_finite(array)
        return Value(array, [o if b else None for o, b in zip(whole.origins, bad, strict=True)],
                     whole.phase)

    def noted(self, op: Operation, ins: Sequence[Value], out: Any,
              inside: Sequence[Origin | None] = (None, None)) -> Value:
        """A result of an operation. `inside` are the origins that a Replay of its Programs
        found."""
        origins = []
        for k, bad in enumerate(non_finite(out)):
            found = inside[k] or _first(v.origins[k] for v in ins)
            origins.append(None if not bad else found or self._made(op, ins, out, KINDS[k]))
        return Value(out, origins, self._phase(op, ins))

    def _phase(self, op: Operation, ins: Sequence[Value]) -> str:
        """The pass that an operation on these operands belongs to."""
        if self.source is not None and self.source.of is not None and not op.is_barrier:
            return BACKWARD
        return FORWARD if all(v.phase == FORWARD for v in ins) else AFTER

    def _made(self, op: Operation, ins: Sequence[Value], out: Any, kind: str) -> Origin:
        self.order += 1
        text, operands = "", []
        if kind == self.kind:  # an infinity is often intended: reported only if it leads to a NaN
            text = describe_result(op, [v.array for v in ins], out, kind)
            operands = describe_operands(ins)
        # A collective may have received it from another device, whose own origin comes first.
        order = _LAST if op.axis_names else self.order
        phase = self._phase(op, ins) if self.replays else ""
        return Origin(order, op, text, operands, self.source, self.scope, self.turns, phase)

    # ---- Programs
    def program(self, program: Program, args: Sequence[Value]) -> list[Value]:
        """The results of a Program."""
        env: dict[Any, Value] = dict(zip(program.inputs, args, strict=True))
        source, scope = self.source, self.scope
        last = _last_uses(program)
        for i, e in enumerate(program.equations):
            if not e.outs:  # a debug callback, which must not run twice
                continue
            self.source, self.scope = e.source or source, scope + e.scope
            ins = [Value(a.value()) if isinstance(a, Literal) else env[a] for a in e.ins]
            outs = e.op.checked(self, ins) if e.op.carries_programs else self.run(e.op, ins)
            env.update(zip(e.outs, outs, strict=True))
            for var in last.get(i, ()):
                del env[var]
        self.source, self.scope = source, scope
        return [Value(a.value()) if isinstance(a, Literal) else env[a] for a in program.outputs]

    def run(self, op: Operation, ins: list[Value]) -> list[Value]:
        """The results of an operation."""
        outs = op(*(v.array for v in ins))
        return [self.noted(op, ins, o) for o in (outs if op.multiple else [outs])]

    # ---- the operations that carry Programs
    def call(self, op: Any, ins: list[Value]) -> list[Value]:
        return self.program(op.program, ins)

    custom_call = call

    def cond(self, op: Any, ins: list[Value]) -> list[Value]:
        return self.program(op.taken(int(ins[0].array)), ins[1:])

    def scan(self, op: Any, ins: list[Value]) -> list[Value]:
        """The loop runs compiled; if a result is bad, its iterations are replayed."""

        def replay() -> list[list[Value]]:
            consts, carry, xs = op._parts(ins)
            back = self.source is not None and self.source.of is not None
            order = range(op.length)
            ys: list[list[Value]] = []
            for i in reversed(order) if op.reverse else order:
                # In a backward pass, iterations have the numbers that they have in the forward one.
                turn = op.length - 1 - i if op.reverse != back else i
                rows = [self.part(x.array[i], x) for x in xs]
                outs = self._turn("scan", turn, op.program, [*consts, *carry, *rows])
                carry = outs[: op.carry]
                ys.append(outs[op.carry :])
            stacked = zip(*ys, strict=True) if ys else [()] * (len(op.program.outputs) - op.carry)
            return [*([c] for c in carry), *map(list, stacked)]

        return self._loop(op, ins, replay)

    def while_loop(self, op: Any, ins: list[Value]) -> list[Value]:
        """The loop runs compiled; if a result is bad, its iterations are replayed."""

        def replay() -> list[list[Value]]:
            cond_consts, body_consts, carry = op._parts(ins)
            turn = 0
            while bool(self.program(op.cond, [*cond_consts, *carry])[0].array):
                carry = self._turn("while_loop", turn, op.body, [*body_consts, *carry])
                turn += 1
            return [[c] for c in carry]

        return self._loop(op, ins, replay)

    def spmd(self, op: Any, ins: list[Value]) -> list[Value]:
        """A Program that runs on several devices: each of them replays it."""
        return self._loop(op, ins, lambda: list(zip(*op.replayed(self, ins), strict=True)))

    def on_device(self, number: int) -> Replay:
        """The Replay for one of several devices."""
        made = Replay(self.kind, self.source, self.scope)
        made.turns = [*self.turns, f"on device {number} of the mapped function"]
        return made

    def _loop(
        self, op: Any, ins: list[Value], replay: Callable[[], Sequence[Sequence[Value]]]
    ) -> list[Value]:
        """The results of an operation. If one contains a NaN or an infinity, `replay` returns, for
        each result, the values from which it was assembled."""
        outs = op(*(v.array for v in ins))
        if not any(any(non_finite(o)) for o in outs):
            return [self.noted(op, ins, o) for o in outs]
        found = replay() or [()] * len(outs)
        return [self.noted(op, ins, o, [_first(v.origins[k] for v in parts) for k in (0, 1)])
                for o, parts in zip(outs, found, strict=True)]

    def _turn(self, name: str, turn: int, program: Program, args: list[Value]) -> list[Value]:
        where = f" at {self.source.file}:{self.source.line}" if self.source else ""
        self.turns.append(f"in iteration {turn} (counting from 0) of the {name}{where}")
        try:
            return self.program(program, args)
        finally:
            self.turns.pop()


def _first(origins: Iterable[Origin | None]) -> Origin | None:
    return min((o for o in origins if o is not None), key=lambda o: o.order, default=None)


def _last_uses(program: Program) -> dict[int, list[Var]]:
    """For each equation, the variables that nothing reads after it."""
    found: dict[Var, int] = {}
    for i, e in enumerate(program.equations):
        if e.outs:
            found.update((a, i) for a in (*e.ins, *e.outs) if isinstance(a, Var))
    for a in program.outputs:
        if isinstance(a, Var):
            found.pop(a, None)
    last: dict[int, list[Var]] = {}
    for var, i in found.items():
        last.setdefault(i, []).append(var)
    return last


class Infinities:
    """Where infinities come from in arrays that operations or jitted functions returned recently.

    A training step may return infinite parameters, and NaNs appear only in the next step. To be
    able to report the operation in the first of these steps, the Program is replayed. A Program
    that often returns infinities is meant to do so, and is replayed a few times only."""

    MOST = 256
    REPLAYS = 3

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Origin]] = {}

    def find(self, x: Any) -> Origin | None:
        """The origin of the infinities in an array, if it is known."""
        ref, origin = self.known.get(id(x), (None, None))
        return origin if ref is not None and ref() is x else None

    def note(self, op: Operation, args: Sequence[Any], outs: Sequence[Any],
             source: Source | None) -> None:
        """Note the origin of infinities in the results of an operation."""
        origin = next((o for o in map(self.find, args) if o is not None), None)
        origin = origin or self._replayed(op, args, outs, source)
        origin = origin or Origin(0, op, "", (), source, state.scope)
        for x in outs:
            if non_finite(x)[1]:
                while len(self.known) >= self.MOST:
                    self.known.pop(next(iter(self.known)), None)
                self.known[id(x)] = weakref.ref(x), origin

    def _replayed(self, op: Operation, args: Sequence[Any], outs: Sequence[Any],
                  source: Source | None) -> Origin | None:
        called = op.called_program()
        times = self.REPLAYS if called is None else called.memo.get("infinities", 0)
        if called is None or times >= self.REPLAYS:
            return None
        called.memo["infinities"] = times + 1
        return origin_of(op, args, outs, "inf", source)


infinities = Infinities()


def origin_of(op: Operation, args: Sequence[Any], outs: Sequence[Any], kind: str,
              source: Source | None) -> Origin | None:
    """Find the origin of the first NaN or infinity in the results of an operation.

    The result is None if the operation carries Programs and no NaN or infinity occurs when their
    operations run one by one."""
    replay = Replay(kind, source, state.scope)
    k = KINDS.index(kind)
    if not op.carries_programs:
        replay.replays = False
        bad = next(o for o in outs if non_finite(o)[k])
        return replay._made(op, [Value(a, (None, infinities.find(a))) for a in args], bad, kind)
    with current(None):
        given = [replay.argument(a, n) for a, n in zip(args, argument_names(op, len(args)),
                                                       strict=True)]
        return _first(v.origins[k] for v in op.checked(replay, given))


def argument_names(op: Operation, number: int) -> Sequence[str]:
    """Descriptions of the arguments of a jitted function, or of other operands."""
    called = op.called_program()
    names = called.memo.get(LABELS, ()) if called is not None else ()
    hidden = number - len(names)
    if not names or hidden < 0:
        return [f"operand {i} of {op.title}" for i in range(number)]
    of = f"of {called.name}"
    closed = [f"a value that {called.name} closed over"] * hidden
    return [*closed, *(f"the argument {n} {of}" for n in names)]
