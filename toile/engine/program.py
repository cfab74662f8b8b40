"""The Program: typed equations over operations, in order, with no free variables.

Values that a traced function closes over become leading inputs (`trace_program` returns them),
never embedded constants; rank-0 constants are literals. Programs are compared by identity. Also
here: the staging trace, the evaluator that replays a Program under any trace, and dead code
removal.
This module may import the modules of the engine below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from toile.engine import key_uses
from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.check_switch import keys_checked
from toile.engine.config import flags
from toile.engine.conversion import as_array, raw_operand, wrap_aval
from toile.engine.operation import Operation, infer_list
from toile.engine.platform_registry import run_program
from toile.engine.program_names import ClosedNames, EquationNames, ProgramNames
from toile.engine.refs import Ref, RefState, Staged, refuse_changed, refuse_returned, values_of
from toile.engine.source import Source, describe, here, in_backward, variable_name
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import (
    Trace,
    Tracer,
    check_leaks,
    check_outside,
    opened,
    source_of,
    state,
)


class Var:
    """A variable of a program: one of its inputs or a result of one of its equations.

    Variables are compared by identity.

    Args:
        aval: shape and dtype of the value.
    """

    __slots__ = ("aval",)

    def __init__(self, aval: Aval):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval.short()})"


class Literal:
    """A number in a program: an operand that is known before the program runs.

    Args:
        val: the number, a NumPy array of shape ().
        aval: shape and dtype of the number.
    """

    __slots__ = ("val", "aval")

    def __init__(self, val: np.ndarray, aval: Aval):
        self.val, self.aval = val, aval

    def value(self) -> DeviceArray:
        """The number as an array."""
        return DeviceArray(self.val, self.aval.weak_type)

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.short()}"


Atom = Var | Literal


class Equation(EquationNames):
    """One step of a program: an operation, its operands and its results.

    Args:
        op: the operation, with its parameters.
        ins: the operands, which are variables or literals.
        outs: the variables that represent the results.
        source: line of the user's program that created the equation; None if the line is unknown.
        scope: names of the scopes (`toile.named_scope`, modules) in which the equation was created,
            outermost first.
    """

    __slots__ = ("op", "ins", "outs", "source", "scope")

    def __init__(
        self,
        op: Operation,
        ins: list[Atom],
        outs: list[Var],
        source: Source | None = None,
        scope: tuple[str, ...] = (),
    ):
        self.op, self.ins, self.outs = op, ins, outs
        self.source, self.scope = source, scope

    @property
    def effects(self) -> frozenset[str]:
        """The side effects of the operation."""
        return self.op.effects

    @staticmethod
    def _applied(primitive: Any, params: dict[str, Any], avals: Sequence[Aval]) -> Operation:
        """The operation that a primitive with these parameters records."""
        given = primitive.get_bind_params(dict(params))

        def bound(*xs: Any) -> list[Any]:
            found = primitive.bind(*xs, **given)
            return found if primitive.multiple_results else [found]

        return trace_program(bound, avals)[0].equations[-1].op

    def __repr__(self) -> str:
        return f"{self.outs} = {self.op!r} {self.ins}"


class Program(ProgramNames):
    """A traced function: a list of equations whose operands have known shapes and dtypes.

    `toile.make_jaxpr(f)(*args).jaxpr` is the program of a function; print it to see its equations.
    Programs are immutable and compared by identity.

    Args:
        inputs: variables that represent the arguments.
        equations: the equations, in the order in which they run.
        outputs: variables and literals that are returned.
        name: name of the function, which is used in error messages and profiles.

    >>> toile.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0).jaxpr
    { lambda ; a:f32[]. let
        b:f32[] = sin a
        c:f32[] = mul b 2.0:f32[]
      in (c,) }
    """

    __slots__ = (
        "inputs", "equations", "outputs", "name", "executable", "memo", "hidden", "__weakref__",
    )

    def __init__(
        self,
        inputs: Sequence[Var],
        equations: Sequence[Equation],
        outputs: Sequence[Atom],
        name: str = "program",
    ):
        self.inputs, self.equations = list(inputs), list(equations)
        self.outputs, self.name = list(outputs), name
        self.executable: Any = None  # made by the backend at the first run
        self.memo: dict[Any, Any] = {}  # derived Programs: its jvp, transpose, vmap ...
        self.hidden = 0  # how many leading inputs are values that the function closed over

    @property
    def in_avals(self) -> list[Aval]:
        """The shapes and dtypes of the inputs."""
        return [v.aval for v in self.inputs]

    @property
    def out_avals(self) -> list[Aval]:
        """The shapes and dtypes of the outputs."""
        return [v.aval for v in self.outputs]

    @property
    def effects(self) -> frozenset[str]:
        """The side effects of all equations."""
        found: frozenset[str] = frozenset()
        for e in self.equations:
            found |= e.effects
        return found

    @property
    def axis_names(self) -> tuple[Any, ...]:
        """The names of mapped axes that the equations use."""
        return tuple(n for e in self.equations for n in e.op.axis_names)

    def memoized(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return a derived Program, which is created only once for each key."""
        found = self.memo.get(key)
        if found is None:
            found = make()
            # (A reference to itself would keep a Program alive until the collector ran.)
            self.memo[key] = _ITSELF if found is self else found
        return self if found is _ITSELF else found

    def pretty_print(self, **options: Any) -> str:
        """Return the text that `print` shows.

        Args:
            **options: accepted for compatibility with JAX, and ignored.
        """
        return str(self)

    def __str__(self) -> str:
        return hooks.show(self)

    __repr__ = __str__


_ITSELF = object()
LABELS = "labels"  # key in the memo of a jitted function's Program: the names of its arguments


class _Hooks:
    """Slots that other modules of the engine fill: printing and key checks have their own files,
    which import this one.

    `keys_used` returns the inputs of a Program that are random keys and are consumed."""

    show: Callable[[Program], str] = staticmethod(lambda p: f"<Program {p.name}>")
    keys_used: Callable[[Program], Iterable[Var]] = staticmethod(lambda p: ())


hooks = _Hooks()


class ClosedProgram(ClosedNames):
    """A program together with the values that the traced function closed over.

    `toile.make_jaxpr(f)(*args)` returns such an object.

    Args:
        program: the program, whose first inputs receive the values in `consts`.
        consts: the values that the function closed over.

    >>> table = jnp.arange(3)
    >>> closed = toile.make_jaxpr(lambda i: table[i])(0)
    >>> closed.consts
    [Array([0, 1, 2], dtype=int32)]
    """

    __slots__ = ("program", "consts")

    def __init__(self, program: Program, consts: Sequence[Any]):
        self.program, self.consts = program, list(consts)

    @property
    def in_avals(self) -> list[Aval]:
        """The shapes and dtypes of the arguments."""
        return self.program.in_avals[len(self.consts) :]

    @property
    def out_avals(self) -> list[Aval]:
        """The shapes and dtypes of the results."""
        return self.program.out_avals

    def pretty_print(self, **options: Any) -> str:
        """Return the text that `print` shows.

        Args:
            **options: accepted for compatibility with JAX, and ignored.
        """
        return str(self)

    @property
    def effects(self) -> frozenset[str]:
        """The side effects of all equations."""
        return self.program.effects

    def __str__(self) -> str:
        return str(self.program)

    __repr__ = __str__


# ------------------------------------------------------------------------------------- staging


class ProgramTracer(Tracer):
    """A variable of the Program being made."""

    __slots__ = ("_var",)  # `var` is a method of arrays

    def __init__(self, trace: ProgramTrace, var: Var):
        self._trace, self._var = trace, var

    @property
    def aval(self) -> Aval:
        return self._var.aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self._var.aval.shape

    @property
    def dtype(self) -> Any:
        return self._var.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self._var.aval.shape)

    def describe(self) -> str:
        trace = self._trace
        assert isinstance(trace, ProgramTrace)
        labels = {var: label for label, var in trace.labels}
        if self._var in labels:
            label = labels[self._var]
            return f"\n  it depends on the value of the argument {label} of {trace.name}"
        made = {o: e for e in trace.equations for o in e.outs}
        found, lines = _origins(self._var, made, labels)
        if found:
            s = "s" if len(found) > 1 else ""
            names = " and ".join(filter(None, [", ".join(found[:-1]), found[-1]]))
            return f"\n  it depends on the value{s} of the argument{s} {names} of {trace.name}" + (
                self.created(f"it is a result of {made[self._var].op.name} at")
            )
        if not lines:
            return ""
        more = "\n    Additional originating lines are not shown." if len(lines) > 3 else ""
        shown = "".join(f"\n    {line}" for line in lines[:3])
        return f"\n  it became a tracer by the operations on these lines:{shown}{more}"

    def __str__(self) -> str:
        """What `print` shows; it says how to print the values."""
        trace = self._trace
        assert isinstance(trace, ProgramTrace)
        name = variable_name(self) or "x"
        return (f'{self!r} (traced for {trace.kind or trace.name}, so it has no values yet: '
                f'toile.debug.print("{{}}", {name}) prints them)')

    def traced_for(self) -> str:
        trace = self._trace
        assert isinstance(trace, ProgramTrace)
        return f" ({trace.name}, traced for {trace.kind})" if trace.kind else ""

    def created(self, text: str = "it was created on line") -> str:
        trace = self._trace
        assert isinstance(trace, ProgramTrace)
        for e in trace.equations:
            if any(o is self._var for o in e.outs):
                return f"\n  {text} {e.source}" if e.source else ""
        return self.describe()


def _origins(
    start: Var, made: dict[Var, Equation], labels: dict[Var, str]
) -> tuple[list[str], list[str]]:
    """The arguments that a variable was computed from, and the operations and lines involved."""
    pending, seen, found, lines = [start], {start}, set(), []
    while pending:
        var = pending.pop(0)
        if var in labels:
            found.add(labels[var])
        e = made.get(var)
        if e is None:
            continue
        new = [a for a in e.ins if isinstance(a, Var) and a not in seen]
        seen.update(new)
        pending += new
        if e.source:
            lines.append(f"{e.op.name} at {e.source}")
    return [label for label in labels.values() if label in found], lines


class ProgramTrace(Trace):
    """Records operations as equations."""

    __slots__ = ("inputs", "equations", "consts", "by_id", "held", "name", "labels", "kind", "refs",
                 "inline")
    keeps_refs = True

    def __init__(self, name: str = "program", kind: str = ""):
        super().__init__(None)
        self.refs: dict[Ref, RefState] = {}  # Refs from outside that the function uses
        self.inline = False  # only the Python function can be differentiated
        self.kind = kind
        self.staging = self.locates = True
        self.inputs: list[Var] = []
        self.equations: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []
        self.by_id: dict[int, Var] = {}
        self.held: list[Any] = []
        self.name = name
        self.labels: list[tuple[str, Var]] = []

    def new_input(self, aval: Aval, label: str = "") -> ProgramTracer:
        var = Var(aval)
        self.inputs.append(var)
        if label:
            self.labels.append((label, var))
        return ProgramTracer(self, var)

    def atom(self, x: Any) -> Atom:
        """The variable or literal for any operand."""
        if x.__class__ is ProgramTracer and x._trace is self:
            return x._var
        found = self.by_id.get(id(x))
        if found is not None:
            return found
        if isinstance(x, Tracer):
            check_outside(x, self)
            return self.capture(x, x)
        a = as_array(x)
        if a.__class__ is DeviceArray and a._data.ndim == 0:
            return Literal(a._data, a.aval)
        return self.capture(a, x)

    def capture(self, value: Any, key: Any) -> Var:
        """Make a closed-over value a hidden input; `key` is the object the user holds."""
        var = Var(value.aval)
        self.consts.append((var, value))
        self.by_id[id(key)] = var
        self.held.append(key)  # keeps ids unique while the trace lives
        return var

    def state_of(self, ref: Ref) -> RefState:
        """The value of a Ref from outside, at first a hidden input."""
        found = self.refs.get(ref)
        if found is None:
            var = Var(ref._aval)
            self.consts.append((var, ref))
            found = self.refs[ref] = RefState(ProgramTracer(self, var))
        return found

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        atom = self.atom
        ins = [atom(x) for x in args]
        avals = infer_list(op, [a.aval for a in ins])
        outs = [Var(a) for a in avals]
        self.equations.append(Equation(op, ins, outs, source_of(op), state.scope))
        if op.multiple:
            return [ProgramTracer(self, v) for v in outs]
        return ProgramTracer(self, outs[0])

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return call.stage(self, args)

    process_custom_vjp = process_custom_jvp


def trace_program(
    fun: Callable[..., Sequence[Any]],
    avals: Sequence[Aval],
    name: str = "program",
    labels: Sequence[str] = (),
    kind: str = "",
) -> tuple[Program, list[Any]]:
    """Stage `fun`, which returns a flat list, on tracers of `avals`. In error messages, `kind`
    names the caller (`make_jaxpr`, a loop).

    Returns a Program whose leading inputs are the values that `fun` closed over, and those
    values. A function that changes Refs from outside is refused (`trace_with_refs`)."""
    made = trace_with_refs(fun, avals, name, labels, kind)
    if made.written:
        raise refuse_changed(made.written[0], name)
    return made.program, values_of(made.consts) if made.reads_refs else made.consts


def trace_with_refs(
    fun: Callable[..., Sequence[Any]],
    avals: Sequence[Aval],
    name: str = "program",
    labels: Sequence[str] = (),
    kind: str = "",
) -> Staged:
    """`trace_program` for a caller that can store the new values of Refs."""
    trace = ProgramTrace(name, kind)
    names = list(labels) or [""] * len(avals)
    tracers = [trace.new_input(a, n) for a, n in zip(avals, names, strict=True)]
    previous = state.scope, state.deriving
    state.scope, state.deriving = (), None  # scopes are relative to the Program's caller
    try:
        with opened(trace):
            outs = fun(*tracers)
            outputs = _output_atoms(trace, outs)
            changed = {r: s._value for r, s in trace.refs.items() if s._value is not s.first}
            outputs += [trace.atom(value) for value in changed.values()]
    finally:
        state.scope, state.deriving = previous
    if flags.check_tracer_leaks:
        del tracers, outs
        check_leaks(trace)
    return Staged(*finish(trace, outputs), list(changed), trace.inline)


def _output_atoms(trace: ProgramTrace, outs: Sequence[Any]) -> list[Atom]:
    try:
        return [_placeholder(trace, o) if o.__class__ is ShapeDtypeStruct else trace.atom(o)
                for o in outs]
    except TypeError as error:
        returned = next((o for o in outs if o.__class__ is Ref), None)
        if returned is not None:
            raise refuse_returned(returned, trace.name, trace.kind) from None
        wrong = [o for o in outs if not is_array_like(o)]
        if not wrong:
            raise
        told = f" traced for {trace.kind}" if trace.kind else ""
        raise TypeError(
            f"function {trace.name}{told} returned a value of type {type(wrong[0])}, which is not "
            f"a valid JAX type: needed arrays or numbers, got {describe(wrong[0])} (return "
            f"arrays in tuples, lists or dicts, or register its type as a pytree){here()}"
        ) from error


# Callers of a function whose results may be shapes and dtypes: only running it needs values.
_WITHOUT_VALUES = ("eval_shape", "jit", "make_jaxpr")


def _placeholder(trace: ProgramTrace, struct: ShapeDtypeStruct) -> Atom:
    """The variable of a result that is only a shape and a dtype; it has no value at run time."""
    if trace.kind not in _WITHOUT_VALUES:
        return trace.atom(struct)
    var = Var(aval_of(struct))
    trace.consts.append((var, struct))
    return var


def is_array_like(x: Any) -> bool:
    """Whether `x` can be an operand of an operation."""
    try:
        aval_of(x)
    except (TypeError, ValueError):
        return False
    return True


def finish(trace: ProgramTrace, outputs: Sequence[Atom]) -> tuple[Program, list[Any]]:
    """The Program of a trace that has ended, without dead code, and its closed-over values."""
    consts = [var for var, _ in trace.consts]
    program = Program([*consts, *trace.inputs], trace.equations, outputs, trace.name)
    # Key uses count in dead code too; the result is stored with the Program.
    spent = hooks.keys_used(program) if keys_checked() and trace.kind else ()
    if trace.labels:
        program.memo[LABELS] = [label for label, _ in trace.labels]
    memo, program = program.memo, without_dead_code(program)
    program.memo = memo
    used = used_vars(program).union(spent)
    kept = [(var, value) for var, value in trace.consts if var in used]
    program.inputs = [*(var for var, _ in kept), *trace.inputs]
    program.hidden = len(kept)
    return program, [value for _, value in kept]


def used_vars(program: Program) -> set[Var]:
    """Variables that some equation or output reads."""
    used = {a for e in program.equations for a in e.ins if a.__class__ is Var}
    used.update(o for o in program.outputs if o.__class__ is Var)
    return used


def without_dead_code(program: Program, keep: Sequence[bool] | None = None) -> Program:
    """Drop equations that nothing needs; `keep` says which outputs stay (all, by default).

    Operations that carry Programs drop the parts that their used results do not need."""
    outputs = program.outputs
    if keep is not None:
        outputs = [o for o, k in zip(outputs, keep, strict=True) if k]
    live: set[Any] = {o for o in outputs if o.__class__ is Var}
    kept: list[Equation] = []
    for e in reversed(program.equations):
        used = [o in live for o in e.outs]
        if not any(used) and not e.effects:
            continue
        if not all(used) and hasattr(e.op, "dce"):
            e = _without_dead_results(e, used)
        live.update(a for a in e.ins if a.__class__ is Var)
        kept.append(e)
    kept.reverse()
    return Program(program.inputs, kept, outputs, program.name)


def _without_dead_results(e: Equation, used: list[bool]) -> Equation:
    """Ask an operation that carries Programs to compute only some of its results."""
    reduced = e.op.dce(used)  # type: ignore[attr-defined]
    if reduced is None:
        return e
    op, kept_ins, kept_outs = reduced
    ins = [a for a, k in zip(e.ins, kept_ins, strict=True) if k]
    outs = [o for o, k in zip(e.outs, kept_outs, strict=True) if k]
    return Equation(op, ins, outs, e.source, e.scope)


class Captured(Operation):
    """A value that a derived Program closes over: a rule's own array, or an outer tracer.

    Calling it gives the value, so that the next staging trace captures it again."""

    name = "captured"
    interned = False
    key_use = key_uses.makes_keys  # uses of a captured value are not counted
    is_distinct = True

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __call__(self) -> Any:
        return self.value

    def infer(self) -> Aval:
        return aval_of(self.value)

    def eager(self, xp: Any) -> Any:
        return raw_operand(self.value)


def closed(program: Program, consts: Sequence[Any]) -> Program:
    """The Program with its leading inputs replaced by the values `consts`."""
    if not consts:
        return program
    n = len(consts)
    given = [
        Equation(Captured(c), [], [v]) for c, v in zip(consts, program.inputs[:n], strict=True)
    ]
    return Program(program.inputs[n:], given + program.equations, program.outputs, program.name)


def derive(fun: Callable[..., Sequence[Any]], avals: Sequence[Aval], name: str) -> Program:
    """Stage a function into a Program with no hidden inputs."""
    return closed(*trace_program(fun, avals, name))


def rearranged(program: Program, ins: Sequence[int], outs: Sequence[int]) -> Program:
    """The Program with its inputs and outputs in another order."""
    return Program(
        [program.inputs[i] for i in ins],
        program.equations,
        [program.outputs[i] for i in outs],
        program.name,
    )


# ----------------------------------------------------------------------------------- evaluation


def evaluate(program: Program, args: Sequence[Any]) -> list[Any]:
    """Replay a Program through the current trace, operation by operation."""
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    previous_source, previous_scope = state.source, state.scope
    backward = previous_source is not None and previous_source.backward
    try:
        for e in program.equations:
            state.source = in_backward(e.source) if backward else e.source
            state.scope = previous_scope + e.scope
            ins = [a.value() if a.__class__ is Literal else env[a] for a in e.ins]
            outs = e.op(*ins)
            if e.op.multiple:
                env.update(zip(e.outs, outs, strict=True))
            else:
                env[e.outs[0]] = outs
    finally:
        state.source, state.scope = previous_source, previous_scope
    return [a.value() if a.__class__ is Literal else env[a] for a in program.outputs]


def execute(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, on the device where they belong."""
    if state.stepper is not None:
        given = [wrap_aval(r, v.aval) for r, v in zip(raws, program.inputs, strict=True)]
        return [raw_operand(x) for x in evaluate(program, given)]
    return run_program(program, raws)


def wrap_outputs(program: Program, raws: Sequence[Any]) -> list[Any]:
    """Arrays around the raw results of a Program."""
    return [wrap_aval(r, o.aval) for r, o in zip(raws, program.outputs, strict=True)]
