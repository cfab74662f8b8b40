"""jit: trace a function once per kind of arguments, then run its Program.

The cache key is the tree of the arguments, each leaf's shape, dtype and weak bit, the static values
and the configuration that tracing depends on. Values that the function closes over are hidden
arguments. Every miss is kept with its cause (`f.why()`). May import the engine, control, backends.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from toile.control.call import Call, program_flops
from toile.engine import config, errors
from toile.engine.arrays import ConcreteArray, DeviceArray, as_array, raw_operand
from toile.engine.avals import Aval, aval_of
from toile.engine.program import Program, execute, trace_program, wrap_outputs
from toile.engine.source import describe, here
from toile.engine.tracing import Tracer, state
from toile.engine.trees import flatten, unflatten
from toile.staging.flattening import FlatFunction, argument_labels, name_of


class Traced:
    """One traced form of a jitted function."""

    __slots__ = ("program", "consts", "raw_consts", "out_tree", "in_avals", "weak")

    def __init__(self, program: Program, consts: list[Any], out_tree: Any, in_avals: list[Aval]):
        self.program, self.consts, self.out_tree = program, consts, out_tree
        self.in_avals = in_avals
        concrete = all(isinstance(c, ConcreteArray) for c in consts)
        self.raw_consts = [c._data for c in consts] if concrete else None

    def stale(self) -> bool:
        """Whether it closed over a tracer that has ended since."""
        return self.raw_consts is None and any(
            isinstance(c, Tracer) and not c._trace.alive for c in self.consts
        )


class Cache:
    """The traced forms of one function under one set of jit options."""

    __slots__ = ("entries", "lock", "history")

    def __init__(self) -> None:
        self.entries: dict[Any, Traced] = {}
        self.lock = threading.RLock()
        self.history: list[tuple[Any, Sequence[str], str]] = []


_caches: weakref.WeakKeyDictionary[Any, dict[Any, Cache]] = weakref.WeakKeyDictionary()


def _cache_of(fun: Callable[..., Any], options: Any) -> Cache:
    """Shared between all `jit(fun)` with the same options, as long as `fun` lives."""
    try:
        return _caches.setdefault(fun, {}).setdefault(options, Cache())
    except TypeError:  # not hashable or not weakly referable: this jit has its own
        return Cache()


def clear_caches() -> None:
    """Forget all traced forms."""
    for by_options in list(_caches.values()):
        for cache in by_options.values():
            cache.entries.clear()


def _signature(leaf: Any) -> Any:
    """What the cache key holds of a leaf."""
    if leaf.__class__ is DeviceArray:
        data = leaf._data
        return data.shape, data.dtype, leaf.weak_type
    aval = aval_of(leaf)
    return aval.shape, aval.dtype, aval.weak_type


class Static:
    """A static argument in a cache key: equal only if type and value are."""

    __slots__ = ("value", "hash")

    def __init__(self, value: Any, where: str, fun: str):
        self.value = value
        try:
            self.hash = hash(value)
        except TypeError as e:
            raise errors.NonHashableStaticArgumentError(
                f"jit: needed a hashable static argument, got {where} = {describe(value)} of type "
                f"{type(value).__name__} for {fun} (pass a tuple instead of a list, or give the "
                f"class __hash__ and __eq__; or do not mark it static){here()}"
            ) from e

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Static)
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )


class _Signature:
    """The signature of the function behind a jitted one; None on the class, which has its own."""

    def __get__(self, instance: PjitFunction | None, owner: type) -> inspect.Signature | None:
        return None if instance is None else inspect.signature(instance.fun)


class PjitFunction:
    """A function that is traced on its first call with arguments of a kind.

    The name is JAX's: packages tell jitted functions by it."""

    __signature__ = _Signature()

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any]):
        if not callable(fun):
            raise TypeError(
                f"jit: needed a callable, got {fun!r} of type {type(fun).__name__}{here()}"
            )
        functools.update_wrapper(self, fun, updated=())
        self.fun = fun
        nums, names = _static_arguments(fun, options)
        self.static_argnums, self.static_argnames = nums, names
        self.donate_argnums, self.donate_argnames = _donated_arguments(fun, options)
        self.max_traces: int | None = options.get("max_traces")
        key = (nums, names, self.donate_argnums, self.donate_argnames)
        self.cache = _cache_of(fun, key)
        self.plain = not nums and not names
        self.donates = bool(self.donate_argnums or self.donate_argnames)
        for name, value in getattr(fun, "__dict__", {}).items():  # what the user hung on it
            if not name.startswith("__"):
                self.__dict__.setdefault(name, value)

    # ---- calling
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.flags.disable_jit:
            return self.fun(*args, **kwargs)
        statics, args_in, kwargs_in = self._take_statics(args, kwargs)
        leaves, in_tree = flatten((args_in, kwargs_in))
        try:
            key = (in_tree, tuple([_signature(x) for x in leaves]), statics,
                   config.trace_context(), state.axes)
        except TypeError as e:
            raise self._bad_argument(args_in, kwargs_in) from e
        traced = self.cache.entries.get(key)
        if traced is None or (traced.raw_consts is None and traced.stale()):
            traced = self._trace(key, statics, args_in, kwargs_in, leaves, in_tree)
        if state.trace is None and traced.raw_consts is not None:
            raws = [x._data if x.__class__ is DeviceArray else raw_operand(x) for x in leaves]
            results = execute(traced.program, traced.raw_consts + raws)
            outs = wrap_outputs(traced.program, results)
        else:
            op = Call(traced.program, name_of(self.fun))
            outs = op(*traced.consts, *[_operand(x) for x in leaves])
        if self.donates and state.trace is None:
            self._delete_donated(args, kwargs)
        return unflatten(traced.out_tree, outs)

    def _take_statics(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Static arguments as part of the key; the others stay (None in a static's place)."""
        if self.plain:
            return None, args, kwargs
        name = name_of(self.fun)
        found: list[Any] = []
        left: list[Any] = list(args)
        for n in self.static_argnums:
            if -len(args) <= n < len(args):
                found.append((n % len(args), Static(args[n], f"argument {n}", name)))
                left[n] = None
        rest = dict(kwargs)
        for k in self.static_argnames:
            if k in rest:
                found.append((k, Static(rest.pop(k), k, name)))
        return tuple(found), tuple(left), rest

    def _restored(self, statics: Any) -> Callable[..., Any]:
        """The function of the non-static arguments."""
        if not statics:
            return self.fun

        def fun(*args: Any, **kwargs: Any) -> Any:
            full = list(args)
            for where, static in statics:
                if isinstance(where, int):
                    full[where] = static.value
                else:
                    kwargs[where] = static.value
            return self.fun(*full, **kwargs)

        return fun

    def _trace(
        self, key: Any, statics: Any, args: Any, kwargs: Any, leaves: Sequence[Any], in_tree: Any
    ) -> Traced:
        with self.cache.lock:
            found = self.cache.entries.get(key)
            if found is not None and not found.stale():
                return found
            labels = argument_labels(self.fun, args, kwargs)
            cause = self._cause(key, labels)
            if self.max_traces is not None and len(self.cache.history) >= self.max_traces:
                raise RuntimeError(
                    f"jit: needed at most {self.max_traces} traces of {name_of(self.fun)}, got one "
                    f"more ({cause}){here()}"
                )
            flat = FlatFunction(self._restored(statics), in_tree)
            avals = [aval_of(x) for x in leaves]
            started = time.perf_counter()
            named = labels if len(labels) == len(avals) else ()
            program, consts = trace_program(flat, avals, name_of(self.fun), named)
            if config.flags.log_compiles:
                took = time.perf_counter() - started
                _log_compile(f"traced {name_of(self.fun)} in {took:.3f} s ({cause})")
            traced = Traced(program, consts, flat.out_tree, avals)
            self.cache.entries[key] = traced
            self.cache.history.append((key, labels, cause))
            return traced

    def _cause(self, key: Any, labels: Sequence[str]) -> str:
        """Why this call is traced: what differs from the nearest earlier trace."""
        if not self.cache.history:
            return "first call"
        best: tuple[tuple[bool, int], list[str]] | None = None
        for old, old_labels, _ in self.cache.history:
            found = _differences(old, key, old_labels, labels)
            distance = (old[0] != key[0], len(found))  # another structure is the furthest
            if best is None or distance < best[0]:
                best = distance, found
        assert best is not None
        return "; ".join(best[1] or ["a value it closed over is gone"])

    def _delete_donated(self, args: Any, kwargs: Any) -> None:
        donated = [args[n] for n in self.donate_argnums if -len(args) <= n < len(args)]
        donated += [kwargs[k] for k in self.donate_argnames if k in kwargs]
        for x in flatten(donated)[0]:
            if isinstance(x, ConcreteArray):
                x.delete()

    def _bad_argument(self, args: Any, kwargs: Any) -> Exception:
        labels = argument_labels(self.fun, args, kwargs)
        for label, leaf in zip(labels, flatten((args, kwargs))[0], strict=False):
            try:
                aval_of(leaf)
            except TypeError:
                return TypeError(
                    f"jit: needed arrays or numbers, got {label} = {describe(leaf)} of type "
                    f"{type(leaf).__name__} for {name_of(self.fun)} (mark it with static_argnums "
                    f"or static_argnames, or register its type as a pytree){here()}"
                )
        return TypeError(f"jit: an argument of {name_of(self.fun)} is not an array{here()}")

    # ---- looking inside
    def why(self) -> list[str]:
        """The cause of each trace so far, oldest first."""
        return [cause for _, _, cause in self.cache.history]

    def _cache_size(self) -> int:
        return len(self.cache.entries)

    def clear_cache(self) -> None:
        self.cache.entries.clear()

    def trace(self, *args: Any, **kwargs: Any) -> TracedStage:
        """Trace for arguments (or ShapeDtypeStructs) without running."""
        statics, args_in, kwargs_in = self._take_statics(args, kwargs)
        leaves, in_tree = flatten((args_in, kwargs_in))
        signatures = tuple([(a.shape, a.dtype, a.weak_type) for a in map(aval_of, leaves)])
        key = (in_tree, signatures, statics, config.trace_context(), state.axes)
        traced = self._trace(key, statics, args_in, kwargs_in, leaves, in_tree)
        return TracedStage(self, traced, in_tree)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The Program for arguments (or ShapeDtypeStructs), to print, cost or compile."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the results."""
        traced = self.trace(*args, **kwargs)
        return traced.out_info

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jitted {self.fun!r}>"


def _operand(x: Any) -> Any:
    return x if isinstance(x, (ConcreteArray, Tracer)) else as_array(x)


def _log_compile(text: str) -> None:
    logging.getLogger("toile").warning(text)


def _differences(
    old: Any, new: Any, old_labels: Sequence[str], labels: Sequence[str]
) -> list[str]:
    """What changed between two cache keys, in words."""
    found = []
    if old[0] != new[0]:
        return [f"the arguments' structure changed from {old[0]} to {new[0]}"]
    for i, (a, b) in enumerate(zip(old[1], new[1], strict=True)):
        label = labels[i] if i < len(labels) else f"leaf {i}"
        if a[0] != b[0]:
            found.append(f"{label}: shape {a[0]} -> {b[0]}")
        if a[1] != b[1]:
            found.append(f"{label}: dtype {a[1]} -> {b[1]}")
        if a[2] != b[2]:
            found.append(f"{label}: weak type {a[2]} -> {b[2]}")
    for (where, a), (_, b) in zip(old[2] or (), new[2] or (), strict=False):
        if a != b:
            found += _static_changes(where, a.value, b.value)
    if old[3] != new[3]:
        changed = [n for n, a, b in zip(config.TRACE_FLAGS, old[3], new[3], strict=True) if a != b]
        found.append(f"configuration changed: {', '.join(changed)}")
    if old[4] != new[4]:
        found.append(f"named axes {old[4]} -> {new[4]}")
    return found


def _static_changes(where: Any, old: Any, new: Any) -> list[str]:
    """How a static argument changed; its type may know (`__changes_since__`), also in a tuple."""
    if type(old) is type(new) and hasattr(type(new), "__changes_since__"):
        return new.__changes_since__(old)
    if type(old) is type(new) is tuple and len(old) == len(new):
        if any(hasattr(type(x), "__changes_since__") for x in new):
            pairs = zip(old, new, strict=True)
            return [text for a, b in pairs if a != b for text in _static_changes(where, a, b)]
    return [f"static argument {where}: {old!r} -> {new!r}"]


def _static_arguments(
    fun: Callable[..., Any], options: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Static argument numbers and names, each inferred from the other."""
    return _numbers_and_names(fun, options.get("static_argnums"), options.get("static_argnames"),
                              "static")


def _donated_arguments(
    fun: Callable[..., Any], options: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return _numbers_and_names(fun, options.get("donate_argnums"), options.get("donate_argnames"),
                              "donate")


def _numbers_and_names(
    fun: Callable[..., Any], nums: Any, names: Any, what: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if nums is None and names is None:
        return (), ()
    numbers = (nums,) if isinstance(nums, int) else tuple(nums or ())
    given = (names,) if isinstance(names, str) else tuple(names or ())
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return numbers, given
    positional = [p.name for p in parameters
                  if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters}
    for n in numbers:
        if not variadic and not -len(positional) <= n < len(positional):
            raise ValueError(
                f"jit: needed {what}_argnums within the {len(positional)} positional parameters of "
                f"{name_of(fun)}, got {n}{here()}"
            )
    for k in given:
        if k not in known and not anything:
            raise ValueError(
                f"jit: needed {what}_argnames among the parameters of {name_of(fun)} "
                f"({', '.join(sorted(known))}), got {k!r}{here()}"
            )
    if nums is None:
        numbers = tuple(positional.index(k) for k in given if k in positional)
    if names is None:
        keyword = {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}
        given = tuple(positional[n] for n in numbers
                      if -len(positional) <= n < len(positional) and positional[n] in keyword)
    return numbers, given


# ------------------------------------------------------------------------------------- stages


class ArgInfo:
    """Shape and dtype of one argument or result."""

    __slots__ = ("shape", "dtype", "weak_type", "donated")

    def __init__(self, aval: Aval, donated: bool = False):
        self.shape, self.dtype, self.weak_type = aval.shape, aval.dtype, aval.weak_type
        self.donated = donated

    def __repr__(self) -> str:
        return f"ArgInfo(shape={self.shape}, dtype={self.dtype})"


class TracedStage:
    """A function traced for certain arguments."""

    def __init__(self, owner: PjitFunction, traced: Traced, in_tree: Any):
        self.owner, self.traced, self.in_tree = owner, traced, in_tree

    @property
    def jaxpr(self) -> Program:
        return self.traced.program

    @property
    def fun_name(self) -> str:
        return name_of(self.owner.fun)

    @property
    def out_info(self) -> Any:
        infos = [ArgInfo(a) for a in self.traced.program.out_avals]
        return unflatten(self.traced.out_tree, infos)

    def lower(self, **_: Any) -> Lowered:
        return Lowered(self)


class Lowered:
    """A traced Program, ready to be compiled."""

    def __init__(self, stage: TracedStage):
        self.stage = stage

    @property
    def in_tree(self) -> Any:
        return self.stage.in_tree

    @property
    def out_tree(self) -> Any:
        return self.stage.traced.out_tree

    @property
    def out_info(self) -> Any:
        return self.stage.out_info

    @property
    def args_info(self) -> Any:
        return unflatten(self.in_tree, [ArgInfo(a) for a in self.stage.traced.in_avals])

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        return str(self.stage.traced.program)

    def compiler_ir(self, dialect: str | None = None) -> Program:
        return self.stage.traced.program

    def cost_analysis(self) -> dict[str, float]:
        return cost_analysis(self.stage.traced.program)

    def compile(self, compiler_options: Any = None) -> Compiled:
        return Compiled(self)


class Compiled:
    """A Program ready to run on arguments of the shapes it was lowered for."""

    def __init__(self, lowered: Lowered):
        self.lowered = lowered

    @property
    def in_tree(self) -> Any:
        return self.lowered.in_tree

    @property
    def out_tree(self) -> Any:
        return self.lowered.out_tree

    @property
    def args_info(self) -> Any:
        return self.lowered.args_info

    @property
    def out_info(self) -> Any:
        return self.lowered.out_info

    def as_text(self) -> str:
        return self.lowered.as_text()

    def cost_analysis(self) -> dict[str, float]:
        return self.lowered.cost_analysis()

    def memory_analysis(self) -> Any:
        return None

    def runtime_executable(self) -> Any:
        return self.lowered.stage.traced.program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stage = self.lowered.stage
        _, args, kwargs = stage.owner._take_statics(args, kwargs)
        leaves, tree = flatten((args, kwargs))
        if tree != stage.in_tree:
            raise TypeError(
                f"compiled {stage.fun_name}: needed arguments of structure {stage.in_tree}, got "
                f"{tree}{here()}"
            )
        for i, (x, aval) in enumerate(zip(leaves, stage.traced.in_avals, strict=True)):
            got = aval_of(x)
            if got.shape != aval.shape or got.dtype != aval.dtype:
                raise TypeError(
                    f"compiled {stage.fun_name}: needed {aval.str_short()} for argument leaf {i}, "
                    f"got {got.str_short()} (lower and compile again for other shapes){here()}"
                )
        op = Call(stage.traced.program, stage.fun_name)
        outs = op(*stage.traced.consts, *[_operand(x) for x in leaves])
        return unflatten(stage.traced.out_tree, outs)


def cost_analysis(program: Program) -> dict[str, float]:
    """FLOPs and bytes that a Program moves, from its equations."""
    moved = sum(
        a.aval.nbytes for e in program.equations for a in (*e.ins, *e.outs)
    )
    return {"flops": float(program_flops(program)), "bytes accessed": float(moved)}
