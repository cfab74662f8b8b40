"""Turn functions into Programs: jit, eval_shape, make_jaxpr, closure_convert.

Functions are staged on avals; nothing is computed. This module may import all layers below `api`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, overload

from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.arrays import DeviceArray
from toile.engine.avals import aval_of
from toile.engine.devices import Device
from toile.engine.program import ClosedProgram, evaluate, trace_program, trace_with_refs
from toile.engine.refs import ref_function, value_avals, values_of
from toile.engine.source import describe, here
from toile.engine.structs import ShapeDtypeStruct
from toile.engine.trace import Array, Trace, Tracer, current, state
from toile.engine.trees import Partial, flatten, structure, unflatten
from toile.primitives.bounds import unchecked
from toile.staging.flat_functions import FlatFunction, argument_labels, dress, name_of
from toile.staging.jit import PjitFunction

P = ParamSpec("P")
R = TypeVar("R")


@overload
def jit(
    fun: Callable[P, R],
    /,
    *,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
    max_traces: int | None = None,
) -> PjitFunction[P, R]: ...
@overload
def jit(
    *,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
    max_traces: int | None = None,
) -> Callable[[Callable[P, R]], PjitFunction[P, R]]: ...
def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
    max_traces: int | None = None,
) -> Any:
    """Compile a function once for each combination of argument shapes and dtypes.

    The function is traced before it is compiled. Its Python code runs only during tracing, when the
    arguments are tracers, which have a shape and a dtype but no values. A call with different
    shapes, dtypes, tree structures or static values traces the function again; `f.why()` lists the
    reason for each trace.

    Args:
        fun: a pure function whose arguments are arrays, numbers, or trees of arrays and numbers. If
            it is omitted, `jit` returns a decorator: `@toile.jit(static_argnames="n")`.
        in_shardings: tree of shardings, with the structure of the arguments, that says how the
            arguments are divided among devices. Arguments whose entry is None keep their own
            shardings.
        out_shardings: tree of shardings that says how the results are divided among devices; if
            None, the compiler chooses.
        static_argnums: positions of arguments, such as sizes or flags, on whose values the Python
            code may depend. The values must be hashable. For each new value, the function is traced
            and compiled again.
        static_argnames: names of static arguments, in addition to `static_argnums`.
        donate_argnums: positions of arguments whose memory may be reused for results. The call
            deletes the arrays whose memory it reuses.
        donate_argnames: names of arguments whose memory may be reused, in addition to
            `donate_argnums`.
        keep_unused: whether the memory of donated arguments may be reused even if the function does
            not use these arguments.
        device: accepted for compatibility with JAX.
        backend: accepted for compatibility with JAX.
        inline: accepted for compatibility with JAX.
        compiler_options: accepted for compatibility with JAX; unknown names raise an error.
        max_traces: maximum number of traces. An additional trace raises an error that describes
            what changed. By default, there is no limit.

    Returns:
        The compiled function `f`. `f(*args)` calls it, `f.lower(*args)` returns an object that
        shows its Program (the list of its operations) and can compile it, `f.why()` lists the
        reason for each trace, and `f.clear_cache()` discards all traces.

    Raises:
        ValueError: both `device` and `backend` are given.

    Differences:
        `max_traces` and `why` do not exist in JAX.

    >>> @toile.jit
    ... def f(x):
    ...     return 2 * x + 1
    >>> f(jnp.arange(3))
    Array([1, 3, 5], dtype=int32)
    >>> len(f.why())
    1
    """
    options: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "max_traces": max_traces,
        "compiler_options": compiler_options,
    }
    if device is not None and backend is not None:
        raise ValueError(
            f"can't specify both a device and a backend for jit, got {device=} and {backend=}"
            f"{here()}"
        )
    if fun is None:
        return functools.partial(jit, in_shardings=in_shardings, out_shardings=out_shardings,
                                 **options)
    if in_shardings is not None or out_shardings is not None:
        sharded = importlib.import_module("toile.parallel.sharded_jit")  # imported only when needed
        return sharded.ShardedJit(fun, options, in_shardings, out_shardings)
    return PjitFunction(fun, options)


def eval_shape(fun: Callable[..., Any], *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Determine the shapes and dtypes of a function's results without computing the results.

    Args:
        fun: the function.
        *args: the arguments of `fun`: trees of arrays, numbers and `ShapeDtypeStruct` objects,
            which can replace arrays.
        **kwargs: the keyword arguments of `fun`.

    Returns:
        A tree that has the structure of the result and contains a `ShapeDtypeStruct` for each
        array.

    >>> toile.eval_shape(jnp.matmul, jnp.ones((2, 3)), jnp.ones((3, 4)))
    ShapeDtypeStruct(shape=(2, 4), dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"eval_shape: needed a callable, got {describe(fun)}{here()}")
    if isinstance(fun, PjitFunction):  # handles its own static arguments
        return fun.eval_shape(*args, **kwargs)
    leaves, in_tree = flatten((args, kwargs))
    flat = FlatFunction(fun, in_tree)
    given = ref_function(flat, leaves, (), name_of(fun), "eval_shape") or flat
    made = trace_with_refs(given, value_avals(leaves), name_of(fun), kind="eval_shape")
    avals = made.program.out_avals[: flat.out_tree.num_leaves]
    structs = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    return unflatten(flat.out_tree, structs)


def make_jaxpr(
    fun: Callable[P, Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: None = None,
) -> Callable[P, Any]:
    """Create a function that returns the Program of `fun`, the list of its operations.

    Args:
        fun: the function.
        static_argnums: positions of arguments that keep their Python values and are not traced.
        axis_env: named axes that `fun` may use, as pairs `(name, size)`.
        return_shape: whether to also return the shapes and dtypes of the results.
        abstracted_axes: must be None; accepted for compatibility with JAX.

    Returns:
        A function with the same arguments that returns a `ClosedProgram`, which prints as text. If
        `return_shape` is True, it returns a pair of the program and a tree of `ShapeDtypeStruct`
        objects.

    >>> print(toile.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0))
    { lambda ; a:f32[]. let
        b:f32[] = sin a
        c:f32[] = mul b 2.0:f32[]
      in (c,) }
    """
    if not callable(fun):
        raise TypeError(f"make_jaxpr: needed a callable, got {describe(fun)}{here()}")

    def jaxpr_of(*args: Any, **kwargs: Any) -> Any:
        nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        fixed = {n % len(args): args[n] for n in nums}
        given = tuple(None if i in fixed else a for i, a in enumerate(args))
        leaves, in_tree = flatten((given, kwargs))

        def called(*xs: Any, **kw: Any) -> Any:
            return fun(*[fixed.get(i, x) for i, x in enumerate(xs)], **kw)

        flat = FlatFunction(called, in_tree)
        labels = argument_labels(fun, args, kwargs)
        of_values = ref_function(flat, leaves, labels, name_of(fun), "make_jaxpr") or flat
        scalars = _scalars(fun, [], set())

        def traced(*values: Any) -> Any:
            trace: Any = state.trace
            for x in scalars:  # other numbers become literals
                trace.capture(x, x)
            return of_values(*values)

        with _axes(axis_env):
            program, consts, *_ = trace_with_refs(
                traced, value_avals(leaves), name_of(fun), kind="make_jaxpr"
            )
        made = ClosedProgram(unchecked(program), values_of(consts))
        if not return_shape:
            return made
        structs = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
                   for a in program.out_avals[: flat.out_tree.num_leaves]]
        return made, unflatten(flat.out_tree, structs)

    dress(jaxpr_of, fun)
    name = name_of(fun)
    jaxpr_of.__name__ = f"make_jaxpr({name})"
    jaxpr_of.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', name)})"
    jaxpr_of.__module__ = "toile"
    return jaxpr_of


def _scalars(fun: Any, found: list[Any], seen: set[int]) -> list[Any]:
    """The arrays of rank 0 that a function closes over, directly or in trees and functions."""
    seen.add(id(fun))
    held = [getattr(fun, name, None) for name in ("__self__", "__wrapped__", "func", "args")]
    held += list((getattr(fun, "keywords", None) or {}).values())
    for cell in getattr(fun, "__closure__", None) or ():
        with suppress(ValueError):  # it is empty
            held.append(cell.cell_contents)
    for x in flatten([fun, held])[0]:
        if id(x) not in seen:
            seen.add(id(x))
            if x.__class__ is DeviceArray and not x.shape:
                found.append(x)
            elif callable(x) and not isinstance(x, type):
                _scalars(x, found, seen)
    return found


class _axes:
    """Bind named axes in a block, from pairs `(name, size)`."""

    def __init__(self, pairs: Any):
        self.pairs = tuple((n, s) for n, s in (pairs or ()))

    def __enter__(self) -> None:
        self.previous = state.axes
        state.axes = (*self.previous, *self.pairs)

    def __exit__(self, *_: Any) -> None:
        state.axes = self.previous


def closure_convert(
    fun: Callable[..., R], *example_args: PyTree
) -> tuple[Callable[..., R], list[Array]]:
    """Turn the traced values that a function closes over into explicit arguments.

    Use `closure_convert` for functions that are passed to a function with a custom rule
    (`custom_vjp`). Such a rule can return cotangents for arguments, but not for values that an
    argument closes over.

    Args:
        fun: a function that may close over traced values.
        *example_args: example arguments, with which `fun` is traced.

    Returns:
        The pair `(converted, values)`. `converted(*args, *values)` returns the same result as
        `fun(*args)`.

    >>> def f(x):
    ...     converted, values = toile.closure_convert(lambda y: x * y, 1.0)
    ...     return converted(3.0, *values)
    >>> float(toile.grad(f)(2.0))
    3.0
    """
    leaves, in_tree = flatten(example_args)
    flat = FlatFunction(fun, structure((example_args, {})))
    program, consts = trace_program(flat, [aval_of(x) for x in leaves], name_of(fun))
    moving = [isinstance(c, Tracer) and dtypes.is_inexact(c.dtype) for c in consts]
    hoisted = [c for c, m in zip(consts, moving, strict=True) if m]

    def converted(*args: Any) -> Any:
        n = len(hoisted)
        given, extra = args[: len(args) - n], iter(args[len(args) - n :])
        xs, tree = flatten(given)
        if tree != in_tree:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the same Pytree "
                "structure as the example arguments passed when closure_convert was called. "
                f"Expected {in_tree}, but got {tree}{here()}"
            )
        full = [next(extra) if m else c for c, m in zip(consts, moving, strict=True)]
        return unflatten(flat.out_tree, evaluate(program, [*full, *xs]))

    return converted, hoisted


def closed_partial(fun: Callable[..., Any], *example_args: Any) -> Any:
    """`fun` as a pytree: a Partial over the values that it closes over."""
    leaves, in_tree = flatten(example_args)
    flat = FlatFunction(fun, structure((example_args, {})))
    program, consts = trace_program(flat, [aval_of(x) for x in leaves], name_of(fun))
    return Partial(_Replay(program, in_tree, flat.out_tree), consts)


class _Replay:
    """A Program as a function of its hidden inputs and arguments; compared by identity."""

    __slots__ = ("program", "in_tree", "out_tree")

    def __init__(self, program: Any, in_tree: Any, out_tree: Any):
        self.program, self.in_tree, self.out_tree = program, in_tree, out_tree

    def __call__(self, consts: Sequence[Any], *args: Any) -> Any:
        xs, tree = flatten(args)
        if tree != self.in_tree:
            raise TypeError(f"needed arguments of structure {self.in_tree}, got {tree}{here()}")
        return unflatten(self.out_tree, evaluate(self.program, [*consts, *xs]))


class _EvaluatingTrace(Trace):
    """Runs operations on known values immediately; the enclosing trace processes all others."""

    __slots__ = ()
    owns_refs = False

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        state.trace = self.parent if any(isinstance(a, Tracer) for a in args) else None
        try:
            return op(*args)
        finally:
            state.trace = self

    process_custom_jvp = process_custom_vjp = process


class ensure_compile_time_eval:
    """Execute operations on known values immediately, even while a function is traced.

    Inside `jit`, all operations are recorded instead of executed, even if their operands are known.
    Inside `ensure_compile_time_eval`, operations on known values are executed immediately, and
    Python code can use their results, as in `int(y)` or `if y > 0`. Operations on traced values are
    recorded as usual. Use `ensure_compile_time_eval` as a context manager, or as a decorator for a
    whole function.

    >>> @toile.jit
    ... def f(x):
    ...     with toile.ensure_compile_time_eval():
    ...         n = int(jnp.sum(jnp.arange(4)))
    ...     return x * n
    >>> float(f(2.0))
    12.0
    """

    def __enter__(self) -> None:
        trace = state.trace
        self._context = current(None if trace is None else _EvaluatingTrace(trace))
        self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fun)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with ensure_compile_time_eval():
                return fun(*args, **kwargs)

        return inner


