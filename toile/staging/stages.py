"""The stages of jit (traced, lowered and compiled), each of which is an object.

This module may import the engine, control, donation, flat_functions and options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from toile.control.call import Call, program_flops
from toile.engine.annotations import PyTree
from toile.engine.arrays import ConcreteArray, DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array, leaving, raw_operand
from toile.engine.dtypes import float0
from toile.engine.keypaths import keystr
from toile.engine.platform_registry import first_or_default, registry
from toile.engine.program import LABELS, ClosedProgram, Program, evaluate, wrap_outputs
from toile.engine.records import dataclass
from toile.engine.refs import Ref, RefUse, check_aliases, must_run_in_python, values_of
from toile.engine.sharded import device_of_call, placing, run_call
from toile.engine.shardings import Format, Layout, SingleDeviceSharding
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import Tracer, runs_at_once, state
from toile.engine.treeerrors import equality_errors
from toile.engine.trees import flatten, structure, tree_map, unflatten
from toile.staging.donation import delete_donated, used_arguments
from toile.staging.flat_functions import name_of
from toile.staging.options import check_compiler_options

if TYPE_CHECKING:
    import numpy as np

    from toile.engine.treedefs import PyTreeDef


class Owner(Protocol):
    """What a stage needs from its jitted function."""

    fun: Any

    def _laid_out(self, args: tuple[Any, ...]) -> tuple[Any, ...]: ...

    def _wanted(self, traced: Traced) -> Sequence[Any]: ...

    def _placed(self, out: Any) -> Any: ...


def _size(program: Program) -> int:
    """The number of equations, including those of nested Programs."""
    inner = (p for e in program.equations for p in e.op.programs())
    return len(program.equations) + sum(map(_size, inner))


class Traced:
    """One traced form of a jitted function."""

    __slots__ = (
        "program", "consts", "raw_consts", "out_tree", "in_avals", "equations", "calls", "exits",
        "given_up", "given_up_later", "has_float0", "refs",
    )

    def __init__(self, program: Program, consts: list[Any], out_tree: Any, in_avals: list[Aval],
                 refs: RefUse | None = None):
        self.program, self.consts, self.out_tree = program, consts, out_tree
        self.in_avals, self.refs = in_avals, refs
        self.equations = _size(program)
        self.calls = 0
        self.given_up: tuple[int, ...] = ()  # donated arguments that a call deletes
        self.given_up_later: tuple[int, ...] = ()  # those that are deleted after checks
        self.exits: dict[Any, Any] = {}  # made when calls repeat, by device
        self.has_float0 = any(a.dtype == float0 for a in program.out_avals)
        concrete = all(isinstance(c, ConcreteArray) for c in consts)
        self.raw_consts = [c._data for c in consts] if concrete else None

    @property
    def out_avals(self) -> list[Aval]:
        """The shapes and dtypes of the results, without the new values of Refs."""
        avals = self.program.out_avals
        return avals if self.refs is None else avals[: self.refs.count]

    def run_with_refs(self, leaves: Sequence[Any], name: str) -> Any:
        """Run the Program on the values of Refs, and store the new values."""
        assert self.refs is not None
        self.check_values()
        closed_over = [*self.consts, *self.refs.written]
        labels = self.program.memo.get(LABELS, ())
        check_aliases(leaves, labels, name, "jit", closed_over)
        if self.refs.inline:
            must_run_in_python()
        given = [*values_of(self.consts), *map(operand, values_of(leaves))]
        outs = Call(self.program, name)(*given) if state.trace else run_whole(self.program, given)
        return self.finished(leaves, self.refs.finished(leaves, outs))

    def check_values(self) -> None:
        """Raise if the function returned a shape and dtype, which has no value to run with."""
        for struct in self.consts:
            if isinstance(struct, ShapeDtypeStruct):
                raise TypeError(
                    "A ShapeDtypeStruct does not have a value and cannot be used as a constant in "
                    f"a JAX function: jit needed arrays or numbers as results, got {struct} "
                    f"(return an array, or call eval_shape instead){here()}"
                )

    def stale(self) -> bool:
        """Whether the function closed over a tracer whose trace has ended."""
        return self.raw_consts is None and any(
            isinstance(c, (Tracer, Ref)) and not (c._trace is None or c._trace.alive)
            for c in self.consts
        )

    def raws(self, leaves: Sequence[Any]) -> list[Any]:
        """The buffers of constants and arguments."""
        given = [x._data if x.__class__ is DeviceArray else raw_operand(x) for x in leaves]
        return [*(self.raw_consts or ()), *given]

    def let_go(self, raws: list[Any], leaves: Sequence[Any]) -> None:
        """Let only the arguments refer to their memory, so that results may overwrite it."""
        raws.clear()
        for x in leaves:
            getattr(x, "_pointer", None)  # reading this may replace `_memory`, so it comes first

    def finished(self, leaves: Sequence[Any], outs: Any) -> Any:
        """The tree of results of a call that has ended."""
        delete_donated(leaves, self.given_up)
        return unflatten(self.out_tree, [*map(leaving, outs)] if self.has_float0 else outs)


def run_whole(program: Program, given: Sequence[Any]) -> Sequence[Any]:
    """The results of a Program on arrays, where the arrays are."""
    outs = placing.divide(program, given)
    if outs is not None:
        return outs
    wrap = placing.place(program, given)
    raws = [x._data if x.__class__ is DeviceArray else raw_operand(x) for x in given]
    results = run_call(program, device_of_call(given, raws), raws)
    return wrap(results) if wrap else wrap_outputs(program, results)


def operand(x: Any) -> Any:
    """An argument in the form that operations accept."""
    return x if isinstance(x, (ConcreteArray, Tracer)) else as_array(x)


def run_in_python(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a jitted function without tracing it.

    Under `toile.debug.step`, its arguments and results are converted to arrays, as in tracing."""
    if state.stepper is None:
        return jitted.fun(*args, **kwargs)
    statics, args, kwargs = jitted._take_statics(args, kwargs)
    leaves, key = jitted._key(statics, args, kwargs)
    given, named = unflatten(key[0], [operand(x) for x in leaves])
    return tree_map(operand, jitted._restored(statics)(*given, **named))


@dataclass(frozen=True)
class ArgInfo:
    """The shape and dtype of an array among the arguments, and whether the array is donated.

    The attribute `args_info` of a stage is a tree of these objects.

    Args:
        donated: whether the array's memory may be used for results.

    >>> f = toile.jit(lambda x: 2 * x, donate_argnums=0)
    >>> (info,), kwargs = f.lower(jnp.ones((2, 3))).args_info
    >>> info.shape, info.donated
    ((2, 3), True)
    """

    _aval: Aval
    donated: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._aval.shape

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the array."""
        return self._aval.dtype

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is weak, like the dtype of a Python number."""
        return self._aval.weak_type


@dataclass(frozen=True)
class CompiledMemoryStats:
    """The memory that a call to a compiled function needs, excluding constants."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int  # donated arguments that the call deletes
    temp_size_in_bytes: int  # the arena of the plan
    generated_code_size_in_bytes: int = 0  # kernels are shared by programs
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0
    host_generated_code_size_in_bytes: int = 0

    @property
    def peak_memory_in_bytes(self) -> int:
        """Peak memory; it includes donated arguments, because they are freed after the call."""
        both = self.argument_size_in_bytes + self.output_size_in_bytes
        return both + self.temp_size_in_bytes


class TracedStage:
    """A jitted function that was traced for given arguments: the first stage of `jit`.

    `toile.jit(f).trace(*args)` returns an instance; in `toile.stages`, the class is named `Traced`.
    A call `traced(*args)`, which omits the static arguments, runs the traced operations one by one.

    Args:
        owner: the jitted function.
        traced: traced form of the function.
        in_tree: structure of `(args, kwargs)`, with None in place of static arguments.
        fixed: positions of static arguments.
        labels: names of the arrays among the arguments, which are used in error messages.
        donated: positions of the donated arrays among the arrays in the arguments.
        shardings: for each array among the arguments, the sharding that it has or should have; None
            if the sharding is unspecified.

    >>> traced = toile.jit(lambda x: jnp.sin(x)).trace(1.0)
    >>> traced.jaxpr
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    >>> traced.out_info
    ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True)
    """

    def __init__(
        self, owner: Owner, traced: Traced, in_tree: Any, fixed: Sequence[int] = (),
        labels: Sequence[str] = (), donated: Sequence[int] = (), shardings: Sequence[Any] = (),
    ):
        self.owner, self.traced, self.full_tree = owner, traced, in_tree
        self.shardings = shardings
        self.fixed, self.labels, self.donated = sorted(fixed), labels, donated

    @property
    def jaxpr(self) -> ClosedProgram:
        """The Program: the operations that the function consists of, and their constants."""
        return ClosedProgram(self.traced.program, self.traced.consts)

    @property
    def fun_name(self) -> str:
        """Name of the function."""
        return name_of(self.owner.fun)

    def of_arguments(self, leaves: Sequence[Any]) -> PyTree:
        """Arrange values, one for each array among the arguments, as `(args, kwargs)`.

        Args:
            leaves: the values.

        Returns:
            The pair `(args, kwargs)`, without static arguments.
        """
        args, kwargs = unflatten(self.full_tree, leaves)
        return tuple([a for i, a in enumerate(args) if i not in self.fixed]), kwargs

    @property
    def in_tree(self) -> PyTreeDef:
        """Structure of `(args, kwargs)`, without static arguments."""
        return structure(self.of_arguments(self.traced.in_avals))

    @property
    def out_tree(self) -> PyTreeDef:
        """Structure of the result."""
        return self.traced.out_tree

    @property
    def in_avals(self) -> PyTree:
        """Shapes and dtypes of the arguments, as `(args, kwargs)` without static arguments."""
        return self.of_arguments(self.traced.in_avals)

    @property
    def out_avals(self) -> PyTree:
        """Shapes and dtypes of the results, in the structure of the result."""
        return unflatten(self.out_tree, self.traced.out_avals)

    @property
    def args_info(self) -> PyTree:
        """An `ArgInfo` for each array, as `(args, kwargs)` without static arguments."""
        infos = [ArgInfo(a, i in self.donated) for i, a in enumerate(self.traced.in_avals)]
        return self.of_arguments(infos)

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Positions of the donated arrays among all arrays in the arguments."""
        return tuple(self.donated)

    @property
    def out_info(self) -> PyTree:
        """A `ShapeDtypeStruct` for each array in the result, in the structure of the result."""
        return self.results(weak=True)

    def results(self, weak: bool) -> PyTree:
        """Describe the results.

        Args:
            weak: whether to record which results have a weak dtype.

        Returns:
            A `ShapeDtypeStruct` for each array, with the sharding that `out_shardings` specifies,
            in the structure of the result.
        """
        avals = self.traced.out_avals
        wanted = self.owner._wanted(self.traced) or [None] * len(avals)
        infos = [ShapeDtypeStruct(a.shape, a.dtype, sharding=s, weak_type=weak and a.weak_type)
                 for a, s in zip(avals, wanted, strict=True)]
        return unflatten(self.traced.out_tree, infos)

    def lower(self, *, lowering_platforms: Sequence[str] | None = None,
              _private_parameters: Any = None) -> Lowered:
        """Return the next stage, the Program.

        Args:
            lowering_platforms: accepted for compatibility with JAX, and ignored.

        Returns:
            The Program, ready to be compiled.
        """
        self.traced.check_values()
        return Lowered(self)

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Replay the Program, without static arguments; transformations apply to its operations."""
        leaves, tree = flatten((args, kwargs))
        if tree != self.in_tree:
            raise self.other_structure("traced", args, kwargs)
        if self.traced.refs is not None:
            return self.traced.run_with_refs(leaves, self.fun_name)
        given = [*self.traced.consts, *map(operand, leaves)]
        return unflatten(self.out_tree, [*map(leaving, evaluate(self.traced.program, given))])

    def other_structure(self, what: str, args: Any, kwargs: Any) -> TypeError:
        """Create the error for arguments whose structure differs from that of the traced arguments.

        Args:
            what: name of the stage in the error message.
            args, kwargs: the arguments.

        Returns:
            The error.
        """
        expected = self.of_arguments([0] * len(self.traced.in_avals))
        found = list(equality_errors(expected, (args, kwargs)))
        names = [("args" if p[0].idx == 0 else "kwargs") + keystr(p[1:]) for p, *_ in found]
        lines = [
            f"\n    * at {name}, seen {one} but now given {other}, so {why}"
            for name, (_, one, other, why) in zip(names, found[:5], strict=False)
        ]
        return TypeError(
            f"Function {what} with input pytree does not match the input pytree it was called "
            f"with: needed {self.in_tree} for {self.fun_name}, got "
            f"{structure((args, kwargs))}. There are {len(found)} mismatches, including:"
            f"{''.join(lines)}{here()}"
        )


class _FromTrace:
    """Base class of the later stages, with the attributes that come from the trace."""

    stage: TracedStage

    in_tree = property(lambda self: self.stage.in_tree, doc=TracedStage.in_tree.__doc__)
    out_tree = property(lambda self: self.stage.out_tree, doc=TracedStage.out_tree.__doc__)
    in_avals = property(lambda self: self.stage.in_avals, doc=TracedStage.in_avals.__doc__)
    args_info = property(lambda self: self.stage.args_info, doc=TracedStage.args_info.__doc__)
    donate_argnums = property(
        lambda self: self.stage.donate_argnums, doc=TracedStage.donate_argnums.__doc__)

    def cost_analysis(self) -> dict[str, float]:
        """Estimate the cost of a call from the operations in the Program before fusion.

        Returns:
            A dictionary with the number of floating-point operations, "flops", and the number of
            bytes that the operations read and write, "bytes accessed".
        """
        return cost_analysis(self.stage.traced.program)


class Lowered(_FromTrace):
    """A traced function as a Program, ready to be compiled: the second stage of `jit`.

    `toile.jit(f).lower(*args)` returns an instance.

    Args:
        stage: the traced function.

    >>> lowered = toile.jit(lambda x: jnp.sin(x)).lower(1.0)
    >>> print(lowered.as_text())
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    >>> float(lowered.compile()(0.0))
    0.0
    """

    out_info = property(
        lambda self: self.stage.results(weak=False), doc=TracedStage.out_info.__doc__)

    def __init__(self, stage: TracedStage):
        self.stage = stage

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """Return the text of the Program.

        Args:
            dialect: accepted for compatibility with JAX, and ignored.
            debug_info: accepted for compatibility with JAX, and ignored.

        Returns:
            The operations, formatted as by `toile.make_jaxpr`.

        Differences:
            JAX returns StableHLO.
        """
        return str(self.stage.traced.program)

    def compiler_ir(self, dialect: str | None = None) -> Program:
        """Return the Program itself.

        Args:
            dialect: accepted for compatibility with JAX, and ignored.

        Returns:
            The Program.

        Differences:
            JAX returns a StableHLO module.
        """
        return self.stage.traced.program

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Return the last stage, the compiled function.

        Code is generated by the first call to the compiled function or by `memory_analysis`.

        Args:
            compiler_options: accepted for compatibility with JAX, and ignored; unknown names raise
                an error.

        Returns:
            The compiled function.
        """
        check_compiler_options(compiler_options)
        return Compiled(self)


class Compiled(_FromTrace):
    """A function compiled for arguments of certain shapes and dtypes: the last stage of `jit`.

    `toile.jit(f).lower(*args).compile()` returns an instance. It is called like the function, but
    without the static arguments. Passing traced values, or arguments of other shapes or dtypes,
    raises an error.

    Args:
        lowered: the previous stage, a `toile.stages.Lowered`.

    >>> compiled = toile.jit(lambda x, n: x * n, static_argnums=1).lower(jnp.ones(3), 2).compile()
    >>> compiled(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    >>> compiled.memory_analysis().output_size_in_bytes
    12
    """

    def __init__(self, lowered: Lowered):
        self.lowered, self.stage = lowered, lowered.stage
        traced = self.stage.traced
        self._used = used_arguments(traced.program)

    def _in_shardings(self) -> list[Any]:
        """The arguments' shardings; None for arguments that nothing depends on."""
        given = self.stage.shardings or [None] * len(self.stage.traced.in_avals)
        on_mesh: Any = next((s for s in given if hasattr(s, "mesh")), None)
        if on_mesh is None:
            found = [s or SingleDeviceSharding(first_or_default()) for s in given]
        else:  # values off the mesh are replicated over it
            whole = type(on_mesh)(on_mesh.mesh, type(on_mesh.spec)())
            found = [s if hasattr(s, "mesh") else whole for s in given]
        return [s if i in self._used else None for i, s in enumerate(found)]

    def _out_shardings(self) -> list[Any]:
        traced = self.stage.traced
        wanted = self.stage.owner._wanted(traced) or [None] * len(traced.out_avals)
        return [s or SingleDeviceSharding(first_or_default()) for s in wanted]

    @property
    def input_shardings(self) -> PyTree:
        """Shardings of the arguments, as `(args, kwargs)`; None for arrays that are not used."""
        return self.stage.of_arguments(self._in_shardings())

    @property
    def output_shardings(self) -> PyTree:
        """Shardings of the results, in the structure of the result."""
        return unflatten(self.out_tree, self._out_shardings())

    @property
    def out_info(self) -> PyTree:
        """A `ShapeDtypeStruct` for each array in the result, with its sharding."""
        pairs = zip(self.stage.traced.out_avals, self._out_shardings(), strict=True)
        infos = [ShapeDtypeStruct(a.shape, a.dtype, sharding=s) for a, s in pairs]
        return unflatten(self.out_tree, infos)

    @property
    def input_formats(self) -> PyTree:
        """Layouts and shardings of the arguments, as `(args, kwargs)`; empty for unused arrays."""
        return self.stage.of_arguments(_formats(self.stage.traced.in_avals, self._in_shardings()))

    @property
    def output_formats(self) -> PyTree:
        """Layouts and shardings of the results, in the structure of the result."""
        avals = self.stage.traced.out_avals
        return unflatten(self.out_tree, _formats(avals, self._out_shardings()))

    def as_text(self) -> str:
        """Return the text of the Program.

        Returns:
            The operations, formatted as by `toile.make_jaxpr`.

        Differences:
            JAX returns optimized HLO.
        """
        return self.lowered.as_text()

    def memory_analysis(self) -> CompiledMemoryStats:
        """Report how much memory a call needs on one device, according to the memory plan.

        Returns:
            The sizes in bytes of the arguments, results, donated arguments and temporary values.
            `peak_memory_in_bytes` is the sum of the sizes of the arguments, results and temporary
            values.
        """
        traced, used = self.stage.traced, self._used
        given = [a for i, a in enumerate(traced.in_avals) if i in used]
        return CompiledMemoryStats(
            sum(a.nbytes for a in given), sum(a.nbytes for a in traced.program.out_avals),
            sum(traced.in_avals[i].nbytes for i in traced.given_up), _arena_bytes(traced.program),
        )

    def runtime_executable(self) -> Program:
        """Return the Program.

        Returns:
            The Program.

        Differences:
            JAX returns an object that belongs to its runtime.
        """
        return self.stage.traced.program

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Run the compiled code.

        Args:
            *args: the arguments that are not static, with the shapes and dtypes of the traced
                arguments.
            **kwargs: keyword arguments.

        Returns:
            The result of the function.

        Raises:
            TypeError: the arguments have a different structure, shape or dtype, or are traced.
        """
        stage = self.stage
        owner, traced = stage.owner, stage.traced
        full = list(args)
        for n in stage.fixed:  # static arguments are not passed again: None in their places
            full.insert(n, None)
        leaves, tree = flatten((owner._laid_out(tuple(full)), kwargs))
        if tree != stage.full_tree:
            raise stage.other_structure("compiled", args, kwargs)
        self._check_types(leaves)
        if traced.refs is not None:
            return owner._placed(traced.run_with_refs(leaves, stage.fun_name))
        operands = [*traced.consts, *map(operand, leaves)]
        outs = None
        if runs_at_once():
            outs = placing.divide(traced.program, operands, owner._wanted(traced))
        if outs is None:
            outs = Call(traced.program, stage.fun_name)(*operands)
        return owner._placed(traced.finished(leaves, outs))

    def _check_types(self, leaves: Sequence[Any]) -> None:
        """Raise an error for tracers, and for arguments of other shapes or dtypes."""
        stage = self.stage
        labels = stage.labels or [f"leaf {i}" for i in range(len(leaves))]
        wrong = []
        for label, x, aval in zip(labels, leaves, stage.traced.in_avals, strict=True):
            if isinstance(x, Tracer):
                raise TypeError(
                    "Cannot apply JAX transformations to a function lowered and compiled for a "
                    f"particular signature. Detected argument {label} of type {type(x).__name__} "
                    f"(call the jitted function instead){here()}"
                )
            got = aval_of(x)
            if got.shape != aval.shape or got.dtype != aval.dtype:
                wrong.append(f"\nArgument '{label}' compiled with {aval.str_short()} and called "
                             f"with {got.str_short()}")
        if wrong:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled "
                f"(needed those of {stage.fun_name}; lower and compile again for other shapes). "
                f"The mismatches are:{''.join(wrong[:6])}{here()}"
            )


def _formats(avals: Sequence[Aval], shardings: Sequence[Any]) -> list[Format]:
    """Row-major layouts, and the shardings; arrays on no device have an empty Format."""
    return [
        Format() if s is None else Format(Layout(tuple(range(a.ndim)), ()), s)
        for a, s in zip(avals, shardings, strict=True)
    ]


def _arena_bytes(program: Program) -> int:
    """The temporary memory of a Program, which is compiled if it has not run yet."""
    device = first_or_default()
    found = registry.names[device.platform].compiled(program, device)
    return int(found.arena_bytes)


def cost_analysis(program: Program) -> dict[str, float]:
    """FLOPs and bytes moved by a Program, computed from its equations."""
    moved = sum(
        a.aval.nbytes for e in program.equations for a in (*e.ins, *e.outs)
    )
    return {"flops": float(program_flops(program)), "bytes accessed": float(moved)}
