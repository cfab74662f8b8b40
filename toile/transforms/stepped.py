"""Traces that run one operation at a time and tell a stepper about each (`toile.debug.step`).

`state.stepper` is the stepper of a thread. A `StepTrace` is the outermost trace and runs operations
immediately; a `SteppedTrace` differentiates them. For each operation that it records on a tape, a
`SteppedTrace` also records two marks around its entries, so that the backward pass tells the
stepper when a cotangent arrives at the operation and when those of its operands are known. Marks
keep the local variables of the user's frame. This module may import the engine and the other
transforms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.arrays import Array
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.operation import Axis, Dim, Operation, run_eager
from toile.engine.source import Source, describe, is_internal
from toile.engine.trace import Trace, Tracer, state
from toile.engine.trees import flatten, tree_map, unflatten
from toile.transforms.jvp import JVPTrace, JVPTracer
from toile.transforms.linearize import LinearTrace, LinearTracer
from toile.transforms.masks import merge, pick
from toile.transforms.transpose import backward
from toile.transforms.vmap import BatchTracer

Names = dict[str, Any]


class Place:
    """Where an operation comes from: a line, its module, its loop iterations, its variables."""

    __slots__ = ("frame", "number", "source", "scope", "turns", "names", "after", "globals")

    def __init__(self, frame: FrameType | None, source: Source | None, turns: tuple[int, ...],
                 names: Names, outer: Names):
        self.frame, self.number, self.source = frame, id(frame), source
        self.scope, self.turns = state.scope, turns
        self.names: Names = names  # local variables before the operation
        self.after: Names = {}  # and those after it
        self.globals = outer

    @property
    def variables(self) -> Names:
        """The local variables before the operation, and those that its statement created."""
        names = self.names or (local_names(self.frame) if self.frame is not None else {})
        return {**self.after, **names}


def user_frame() -> FrameType | None:
    """The innermost frame outside toile; None in a backward pass that runs no user code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code):
        if frame.f_code is backward.__code__:
            return None
        frame = frame.f_back
    return frame


def local_names(frame: FrameType) -> Names:
    """A copy of the local variables; at the top level of a module, only arrays."""
    names = frame.f_locals
    if names is frame.f_globals:
        return {k: v for k, v in names.items() if isinstance(v, Array)}
    return dict(names)


class StepInfo:
    """An operation at which `toile.debug.step` can stop.

    The function `when` receives it as its argument, and in the debugger it is the variable
    `__step__`. Under `vmap`, values are whole batches.

    Args:
        op: name of the operation.
        place: where it comes from.
        operands, results: its values; tracers are shown as the arrays they hold.
        backward: whether this is the backward pass of the operation.
        cotangent: the cotangent that arrived at its result; a list if there are several results.
        find: returns the cotangent that has arrived at a variable's value, or None.
    """

    __slots__ = ("op", "place", "backward", "_operands", "_results", "_cotangent", "_find")

    def __init__(self, op: str, place: Place, operands: Sequence[Any] = (),
                 results: Sequence[Any] = (), backward: bool = False, cotangent: Any = None,
                 find: Callable[[Any], Any] = lambda x: None):
        self.op, self.place, self.backward = op, place, backward
        self._operands, self._results = operands, results
        self._cotangent, self._find = cotangent, find

    @property
    def file(self) -> str:
        """The file of the user's line."""
        return self.place.source.file if self.place.source else ""

    @property
    def line(self) -> int:
        """The number of the user's line in its file."""
        return self.place.source.line if self.place.source else 0

    @property
    def function(self) -> str:
        """The name of the user's function."""
        return self.place.source.function if self.place.source else ""

    @property
    def module(self) -> str:
        """The path of the module, such as "Net/encoder/layer_0"; "" outside modules."""
        return "/".join(self.place.scope)

    @property
    def turns(self) -> tuple[int, ...]:
        """The iterations of the loops around the operation, the outermost loop first."""
        return self.place.turns

    @property
    def turn(self) -> int | None:
        """The iteration of the innermost loop, counted from 0; None outside loops."""
        return self.turns[-1] if self.turns else None

    @property
    def operands(self) -> list[Any]:
        """The values of the operands in the forward pass."""
        return [shown(x) for x in self._operands]

    @property
    def results(self) -> list[Any]:
        """The values of the results in the forward pass."""
        return [shown(x) for x in self._results]

    @property
    def cotangent(self) -> Any:
        """The cotangent of the result; None in the forward pass."""
        return shown_tree(self._cotangent)

    @property
    def variables(self) -> Names:
        """The local variables of the user's function, by name."""
        return {k: shown_tree(v) for k, v in self.place.variables.items()}

    @property
    def cotangents(self) -> Names:
        """The cotangents computed so far for these variables, by name."""
        found: Names = {}
        for name, value in self.place.variables.items():
            present: list[Any] = []

            def ct(x: Any, present: list[Any] = present) -> Any:
                got = self._find(x)
                present += [] if got is None else [got]
                return shown(got)

            tree = _mapped(ct, value)
            if present:
                found[name] = tree
        return found

    def scene(self) -> Names:
        """The variables of an artificial frame for the operation."""
        own: Names = {"module": self.module, "turn": self.turn}
        if self.op:
            own.update(op=self.op, operands=self.operands, results=self.results)
        if self.backward:
            own.update(cotangents=self.cotangents)
            own.update({"cotangent": self.cotangent} if self.op else {})
        return {**own, **self.variables, "__step__": self}

    def __str__(self) -> str:
        what = f"of {self.op}" if self.op else "at a breakpoint"
        text = f"{'backward' if self.backward else 'forward'} pass {what}"
        details = [f"module {self.module}"] if self.module else []
        details += [f"turn {', '.join(map(str, self.turns))}"] if self.turns else []
        values = [self._cotangent] if self.backward else self._results
        details += [f"{'cotangent' if self.backward else 'result'} {_ranged(v)}"
                    for v in values if v is not None]
        return f"toile: {text}" + (f" ({', '.join(details)})" if details else "")

    __repr__ = __str__


def _ranged(x: Any) -> str:
    """An array by its dtype, shape and range of values."""
    x = shown_tree(x)
    text = describe(x)
    try:
        data = np.asarray(x)
        if not data.size or data.dtype.kind not in "biuf":
            return text
        if data.size == 1:
            return f"{text} {data.item():.6g}"
        bad = int(np.isnan(data).sum()) if data.dtype.kind == "f" else 0
        known = data[~np.isnan(data)] if bad else data
        ends = f" in [{known.min():.6g}, {known.max():.6g}]" if known.size else ""
        return f"{text}{ends}" + (f", {bad} NaN" if bad else "")
    except Exception:  # a value of another kind
        return text


def shown(x: Any) -> Any:
    """The array that a tracer holds; under vmap, the whole batch."""
    while isinstance(x, Tracer):
        if x.__class__ is JVPTracer:
            x = x.primal
        elif x.__class__ is BatchTracer:
            x = x.value
        else:
            break
    return x


def shown_tree(tree: Any) -> Any:
    """A tree with arrays instead of tracers."""
    return _mapped(shown, tree)


def _mapped(fun: Callable[[Any], Any], tree: Any) -> Any:
    try:
        return tree_map(fun, tree)
    except Exception:  # a tree that cannot be flattened
        return tree


def has_nan(x: Any) -> bool:
    """Whether an array has a NaN."""
    x = shown(x)
    if isinstance(x, Tracer) or not isinstance(x, Array) or not dtypes.is_inexact(x.dtype):
        return False
    return bool(np.isnan(np.asarray(x)).any())


# -------------------------------------------------------------------------------------- traces


class StepTrace(Trace):
    """Runs operations immediately, and tells the stepper about them."""

    __slots__ = ()
    at_once = True

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        op.infer(*[aval_of(a) for a in args])  # public functions leave checking operands to traces
        stepper, mark = state.stepper, state.mark
        silent = stepper is None or stepper.silent or op.carries_programs
        if silent or (mark is not None and not mark.shows_inside):
            return run_eager(op, args)
        info = StepInfo(op.name, stepper.place(), args, backward=mark is not None)
        stepper.before(info)
        result = run_eager(op, args)
        info._results = result if op.multiple else [result]
        stepper.after(info)
        return result

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return call.run(*args)

    process_custom_vjp = process_custom_jvp


class SteppedTrace(JVPTrace):
    """Forward mode that records on a tape, with marks for the stepper."""

    __slots__ = ()
    parent: LinearTrace

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        return self._marked(op.name, args, op.carries_programs,
                            lambda: JVPTrace.process(self, op, args))

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return self._marked(call.label, args, True,
                            lambda: JVPTrace.process_custom_jvp(self, call, args))

    def process_custom_vjp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return self._marked(call.label, args, True,
                            lambda: JVPTrace.process_custom_vjp(self, call, args), True)

    def _marked(self, name: str, args: Sequence[Any], shows_inside: bool, run: Callable[[], Any],
                calls_user: bool = False) -> Any:
        """The result of `run`; the entries that it adds to the tape are put between marks.

        `calls_user` says whether the backward pass calls a function that the user wrote."""
        stepper, tape = state.stepper, self.parent
        if stepper is None or stepper.busy:
            return run()
        start, silent = len(tape.entries), stepper.silent
        place = stepper.place(keep=True)
        info = StepInfo(name, place, args, backward=state.mark is not None)
        if not silent:
            stepper.before(info)
        stepper.silent = silent or not shows_inside
        try:
            result = run()
        finally:
            stepper.silent = silent
        info._results = result if isinstance(result, list) else [result]
        if len(tape.entries) > start:
            mark = Arrival(info, tape, shows_inside, calls_user)
            tape.entries.insert(start, Departure(mark))
            tape.entries.append(mark)
        if not silent:
            stepper.after(info)
        return result


class Breakpoint(Operation):
    """A breakpoint in code that has to be traced; it stops when the code runs.

    Operands are the arrays among the local variables of the user's function: `rebuild` makes the
    variables from them."""

    name = "breakpoint"
    multiple = True
    interned = False
    handles_zeros = True
    effects = frozenset({"debug"})
    key_use = key_uses.reads

    def __init__(self, rebuild: Callable[[Sequence[Any]], Names], source: Source, outer: Names):
        self.rebuild, self.source, self.globals = rebuild, source, outer

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, *args: Any) -> list[Any]:
        trace, stepper = state.trace, state.stepper
        if trace is not None and trace.staging:
            return trace.process(self, args)
        if stepper is not None:
            place = Place(None, self.source, tuple(stepper.turns), self.rebuild(args), self.globals)
            stepper.pause(StepInfo("", place, backward=state.mark is not None))
        return []

    def infer(self, *avals: Aval) -> list[Aval]:
        return []

    def eager(self, xp: Any, *xs: Any) -> list[Any]:
        return []

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self(*primals), []

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(*xs), []

    def transpose(self, ct: Any, *xs: Any) -> Any:
        return (None,) * len(xs)

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        return [], None, None


def _flat(names: Names) -> tuple[list[Any], Callable[[list[Any]], Names]]:
    """The leaves of variables, and a function that makes the variables from leaves."""
    leaves: list[Any] = []
    trees: Names = {}
    for name, value in names.items():
        try:
            found, trees[name] = flatten(value)
        except Exception:  # not a tree
            found, trees[name] = [value], None
        leaves += found

    def unflat(values: list[Any]) -> Names:
        rest = iter(values)
        return {name: next(rest) if tree is None else
                unflatten(tree, [next(rest) for _ in range(tree.num_leaves)])
                for name, tree in trees.items()}

    return leaves, unflat


def breakpoint_of(frame: FrameType) -> tuple[Breakpoint, list[Any]]:
    """The operation for a breakpoint in a frame, and its operands."""
    leaves, tree = _flat(local_names(frame))
    given = [isinstance(x, Array) for x in leaves]
    others = pick(leaves, given, False)

    def rebuild(values: Sequence[Any]) -> Names:
        return tree(merge(given, values, others))

    source = Source(frame.f_code, frame.f_lasti)
    return Breakpoint(rebuild, source, frame.f_globals), pick(leaves, given)


# --------------------------------------------------------------------------- marks on a tape


class Mark:
    """An entry of a tape that only the stepper reads."""

    __slots__ = ("info", "tape")
    args: tuple[()] = ()
    outs: tuple[()] = ()

    def __init__(self, info: StepInfo, tape: LinearTrace):
        self.info, self.tape = info, tape

    def arrived(self, env: list[Any], x: Any) -> Any:
        """The cotangent that has been accumulated at a value; None if there is none."""
        while isinstance(x, Tracer):
            if x.__class__ is JVPTracer:
                t = x.tangent
                if t.__class__ is LinearTracer and t._trace is self.tape:
                    return env[t.slot] if t.slot < len(env) else None
                x = x.primal
            elif x.__class__ is BatchTracer:
                x = x.value
            else:
                return None
        return None

    def in_backward(self, env: list[Any], cotangent: Any = None) -> StepInfo:
        """The information about the backward pass."""
        info = self.info
        return StepInfo(info.op, info.place, info._operands, info._results, True, cotangent,
                        lambda x: self.arrived(env, x))

    def send(self, env: list[Any]) -> None:
        """Inform the stepper; the backward pass calls this method."""
        raise NotImplementedError


class Pause(Mark):
    """A breakpoint that the forward pass has passed."""

    __slots__ = ()

    def send(self, env: list[Any]) -> None:
        stepper = state.stepper
        if stepper is not None and not stepper.busy:
            stepper.settle()
            stepper.paused(self.in_backward(env))


class Arrival(Mark):
    """The end of an operation's entries; the backward pass reaches it before them."""

    __slots__ = ("shows_inside", "calls_user", "previous", "cotangents", "nans")

    def __init__(self, info: StepInfo, tape: LinearTrace, shows_inside: bool, calls_user: bool):
        super().__init__(info, tape)
        self.shows_inside, self.calls_user = shows_inside, calls_user
        self.previous: Any = None
        self.cotangents: list[Any] = []
        self.nans: list[bool] = []

    def send(self, env: list[Any]) -> None:
        stepper = state.stepper
        if stepper is None:
            return
        stepper.settle()
        place = self.info.place
        self.previous, state.mark = state.mark, self
        state.source, state.scope = None if self.calls_user else place.source, place.scope
        self.cotangents = [self.arrived(env, r) for r in self.info._results]
        if all(ct is None or ct.__class__ is Zero for ct in self.cotangents):
            return
        if stepper.wanted.nan:
            self.nans = [has_nan(self.arrived(env, a)) for a in self.info._operands]
        info = self.reached(env)
        stepper.before(info)
        stepper.met(info)

    def reached(self, env: list[Any]) -> StepInfo:
        cts = self.cotangents
        return self.in_backward(env, cts[0] if len(cts) == 1 else cts)


class Departure:
    """The start of an operation's entries; the backward pass reaches it after them."""

    __slots__ = ("mark",)
    args: tuple[()] = ()
    outs: tuple[()] = ()

    def __init__(self, mark: Arrival):
        self.mark = mark

    def send(self, env: list[Any]) -> None:
        mark, stepper = self.mark, state.stepper
        if stepper is None:
            return
        state.mark, mark.previous = mark.previous, None
        state.source = None if state.mark is None else state.mark.info.place.source
        if mark.nans and not any(map(has_nan, mark.cotangents)):
            now = [has_nan(mark.arrived(env, a)) for a in mark.info._operands]
            if any(n and not had for n, had in zip(now, mark.nans, strict=True)):
                stepper.made_nan(mark.reached(env))
        mark.cotangents, mark.nans = [], []
