"""jit: trace a function once per kind of arguments, then run its Program.

The cache key is the tree of the arguments, each leaf's shape, dtype and weak bit, the static values
and the configuration that tracing depends on. Values that the function closes over are hidden
arguments. Every miss is kept with its cause (`f.why()`). This module may import the engine,
control, platforms and other modules of `staging`.
"""

from __future__ import annotations

import inspect
import time
import types
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from toile.control.call import Call
from toile.engine import config
from toile.engine.annotations import PyTree
from toile.engine.arrays import DeviceArray, KeyArray
from toile.engine.avals import aval_of
from toile.engine.buffers import Placement
from toile.engine.equal_constants import without_equal_constants
from toile.engine.exchange import slot
from toile.engine.garbage import paused
from toile.engine.locks import shared_lock
from toile.engine.platform_registry import array_platforms, platform_of_device, registry
from toile.engine.program import trace_with_refs, wrap_outputs
from toile.engine.refs import is_ref, ref_function, use_of_refs, value_avals
from toile.engine.sharded import Sharded, device_of_call, placing, run_call
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import flatten
from toile.platforms.call_exits import MAX_LEAVES, MISS, hosted_leaves
from toile.staging.callpath import Entrance, Statics
from toile.staging.captured_values import Captured
from toile.staging.causes import (
    FIRST,
    REPEATED,
    STRUCTURE,
    differences,
    explain_miss,
    log_compile,
    reason_of,
    warn_of_retraces,
)
from toile.staging.donation import donated_leaves
from toile.staging.flat_functions import (
    FlatFunction,
    argument_labels,
    bad_argument,
    dress,
    name_of,
    reference_to,
)
from toile.staging.options import (
    check_compiler_options,
    check_disjoint,
    check_jittable,
    check_leaves,
    named_arguments,
)
from toile.staging.special_calls import (
    check_execution,
    give_up,
    repeated,
    run_checked,
    run_with_refs,
)
from toile.staging.stages import Lowered, Traced, TracedStage, operand, run_in_python
from toile.staging.static_arguments import Static

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

# Traced forms kept per function; the least recently used are evicted. An equation with its kernels'
# arguments, steps and source takes about 3 KB.
MAX_TRACES = 256
MIN_TRACES = 8
MAX_EQUATIONS = 30_000
_MAX_PATHS = 4
_MAX_HISTORY = 32  # number of earlier calls that a new call is compared with


class Cache:
    """The traced forms of one function under one set of jit options, and their fast paths."""

    __slots__ = (
        "entries", "lock", "history", "causes", "traces", "equations", "reasons", "warned",
        "entrances", "paths", "captured",
    )

    def __init__(self) -> None:
        self.entries: OrderedDict[Any, Traced] = OrderedDict()
        self.lock = shared_lock()
        self.history: deque[tuple[Any, Sequence[str]]] = deque(maxlen=_MAX_HISTORY)
        self.causes: deque[str] = deque(maxlen=1000)
        self.traces = self.equations = 0
        self.reasons: Counter[str] = Counter()
        self.warned = False
        self.entrances: dict[Any, Entrance] = {}
        self.paths: tuple[Callable[[Any, Any], Any], ...] = ()
        self.captured: Captured | None = None  # the variables that the function reads

    def watch(self, fun: Any) -> None:
        """After a trace: remember the values of the variables that the function reads."""
        if self.captured is None:
            self.captured = Captured(fun, name_of(fun))
        elif self.captured.traced_again():
            self.renew_paths()

    def renew_paths(self) -> None:
        """Let the next calls take the general path, and make new fast paths."""
        self.entrances = {}
        self.paths = ()

    def clear(self) -> None:
        """Drop all traced forms; their code is freed as soon as no call runs it."""
        for traced in list(self.entries.values()):
            for exit in list(traced.exits.values()):
                exit.close()
            traced.exits.clear()
        self.entries.clear()
        self.equations = 0
        self.renew_paths()

    def add(self, key: Any, traced: Traced) -> None:
        """Keep a traced form. When an old form is evicted, all fast paths are reset, so that the
        forms in use take the general path once and count as recently used."""
        self.entries[key] = traced
        self.equations += traced.equations
        count = len(self.entries)
        if count > MAX_TRACES or (count > MIN_TRACES and self.equations > MAX_EQUATIONS):
            _, old = self.entries.popitem(last=False)
            for exit in old.exits.values():
                exit.close()
            self.equations -= old.equations
            for entrance in self.entrances.values():
                entrance.forget()


_caches: weakref.WeakKeyDictionary[Any, dict[Any, Cache]] = weakref.WeakKeyDictionary()


def _cache_of(fun: Callable[..., Any], options: Any) -> Cache:
    """The cache shared by all `jit(fun)` with the same options, as long as `fun` lives."""
    try:
        return _caches.setdefault(fun, {}).setdefault(options, Cache())
    except TypeError:  # not hashable or not weakly referable: this jit has its own
        return Cache()


def clear_caches() -> None:
    """Discard all traces made by `jit`, and free unused memory and idle compiled code.

    The next call to each jitted function traces and compiles the function again. The traces of a
    function that cannot be hashed are kept; to discard them, call the `clear_cache` method of the
    jitted function.

    >>> f = toile.jit(lambda x: 2 * x)
    >>> float(f(3.0))
    6.0
    >>> toile.clear_caches()
    >>> float(f(3.0)), len(f.why())
    (6.0, 2)
    """
    for by_options in list(_caches.values()):
        for cache in by_options.values():
            cache.clear()
    for platform in registry.platforms():
        platform.release_code()
        platform.release_memory()


def _signature(leaf: Any) -> Any:
    """The part of the cache key that describes a leaf."""
    if leaf.__class__ is DeviceArray:
        data = leaf._data
        return data.shape, data.dtype, leaf.weak_type
    aval = aval_of(leaf)
    return aval.shape, aval.dtype, "ref" if is_ref(leaf) else aval.weak_type


class _Signature:
    """The signature of the wrapped function; None on the class, which has its own signature."""

    def __get__(self, instance: PjitFunction | None, owner: type) -> inspect.Signature | None:
        return None if instance is None else inspect.signature(instance.fun)


class PjitFunction(Generic[P, R]):
    """A jitted function, which is traced whenever its arguments have new shapes or dtypes.

    `toile.jit` returns an instance; `toile.stages.Wrapped` is another name for the class. The class
    itself is named `PjitFunction`, as in JAX, because packages recognize jitted functions by this
    name.

    Args:
        fun: the function.
        options: dictionary that maps the names of `jit`'s arguments, such as "static_argnums", to
            values; missing arguments have their default values.

    >>> f = toile.jit(lambda x: 2 * x)
    >>> isinstance(f, toile.stages.Wrapped)
    True
    >>> float(f(3.0))
    6.0
    >>> f.lower(jnp.ones(2)).out_info
    ShapeDtypeStruct(shape=(2,), dtype=float32)
    """

    __signature__ = _Signature()
    __wrapped__: Callable[P, R]

    def __init__(self, fun: Callable[P, R], options: dict[str, Any]):
        check_jittable(fun)
        self.fun, self.options = fun, options
        nums, names = named_arguments(fun, options, "static")
        self.static_argnums, self.static_argnames = nums, names
        self.donate_argnums, self.donate_argnames = named_arguments(fun, options, "donate")
        check_disjoint((nums, names), (self.donate_argnums, self.donate_argnames))
        self.max_traces: int | None = options.get("max_traces")
        self.compiler_options: dict[str, Any] = options.get("compiler_options") or {}
        self.keep_unused = bool(options.get("keep_unused"))
        key = (nums, names, self.donate_argnums, self.donate_argnames, self.keep_unused,
               tuple([(k, str(v)) for k, v in self.compiler_options.items()]))
        self.cache = _cache_of(fun, key)
        self.plain = not nums and not names
        self.donates = bool(self.donate_argnums or self.donate_argnames)
        dress(self, fun)

    # ---- calling
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        for enter in self.cache.paths:
            out = enter(args, kwargs)
            if out is not MISS:
                return out
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The general path: any arguments, under any trace."""
        if config.flags.disable_jit or (state.inlines and state.trace is not None):
            return run_in_python(self, args, kwargs)
        if (out := repeated(self, args, kwargs)) is not MISS:
            return out
        statics, args_in, kwargs_in = self._take_statics(args, kwargs)
        leaves, key = self._key(statics, args_in, kwargs_in)
        traced = self.cache.entries.get(key)
        if traced is None or (traced.raw_consts is None and traced.stale()):
            traced = self._trace(key, args_in, kwargs_in, leaves)
        else:
            self._used_again(key)
        if traced.refs is not None:
            return run_with_refs(self, traced, leaves, args, kwargs)
        if state.trace is None:
            check_execution(self.fun)
            return self._run(traced, key, leaves, args, kwargs)
        if state.trace.checks_calls:
            return run_checked(self, traced, leaves, args, kwargs)
        return traced.finished(leaves, self._as_operation(traced, leaves))

    def _key(
        self, statics: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], Any]:
        """The leaves of the arguments that are not static, and the key of their traced form."""
        leaves, in_tree = flatten((args, kwargs))
        try:
            signatures = tuple([_signature(x) for x in leaves])
        except (TypeError, OverflowError) as e:
            raise bad_argument(self.fun, args, kwargs) from e
        return leaves, (in_tree, signatures, statics, config.trace_context(), state.axes)

    def _as_operation(self, traced: Traced, leaves: Sequence[Any]) -> Any:
        traced.check_values()
        op = Call(traced.program, name_of(self.fun))
        return op(*traced.consts, *[operand(x) for x in leaves])

    def _run(
        self, traced: Traced, key: Any, leaves: list[Any], args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The tree of results of a traced form on arrays; repeated calls get a fast path."""
        if traced.raw_consts is None:
            outs = self._as_operation(traced, leaves)
        else:
            outs = placing.divide(traced.program, traced.consts + leaves, self._wanted(traced))
            if outs is None:
                return self._run_whole(traced, key, leaves, args, kwargs)
        return traced.finished(leaves, outs)

    def _run_whole(
        self, traced: Traced, key: Any, leaves: list[Any], args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`_run` for a Program that is not divided among devices."""
        program, given = traced.program, traced.consts + leaves
        raws = traced.raws(leaves)
        device = device_of_call(given, raws)
        platform, wrap = platform_of_device(device), placing.place(program, given)
        traced.calls += 1
        worth = traced.calls >= platform.worth_writing(len(leaves), bool(traced.given_up))
        if worth and platform.writes_before_runs:
            traced.let_go(raws, leaves)
            platform.compiled(program, device)  # not while `_learn` holds the lock
            enter = self._learn(traced, key, leaves, device, wrap)
            out = MISS if enter is None else enter(args, kwargs)
            if out is not MISS:
                return out
            raws = traced.raws(leaves)
        results = run_call(program, device, raws)
        if worth and not platform.writes_before_runs:
            self._learn(traced, key, leaves, device, wrap)
        return traced.finished(
            leaves, wrap(results) if wrap else wrap_outputs(program, results))

    # For a function without shardings: arguments and results stay where they are.
    def _laid_out(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args

    def _wanted(self, traced: Traced) -> Sequence[Any]:
        return ()

    def _wanted_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        return ()

    def _placed(self, out: Any) -> Any:
        return out

    def _used_again(self, key: Any) -> None:
        """Called when a call has found a traced form."""
        if self.cache.captured is not None and self.cache.captured.check():
            self.cache.renew_paths()
        if len(self.cache.entries) < MIN_TRACES:
            return
        with self.cache.lock:
            if key in self.cache.entries:
                self.cache.entries.move_to_end(key)

    def _learn(
        self, traced: Traced, key: Any, leaves: Any, device: Any, wrap: Any
    ) -> Callable[..., Any] | None:
        """The fast path for calls like this one, which takes the general path; None if there is
        none."""
        cache, in_tree, statics = self.cache, key[0], key[2]
        placements = () if wrap is None else wrap.placements
        # A function that runs on one of several devices now may run on all of them at other times.
        if len(leaves) > MAX_LEAVES or state.axes or traced.has_float0 or placements is None or (
            placements and slot.exchange is not None
        ):
            return None
        with cache.lock:
            try:
                exit = self._exit(traced, leaves, device, placements)
                if exit is None:
                    return None
                found = self._entrance(statics, traced, leaves, in_tree)
                found.add(leaves, [static.value for _, static in statics or ()], exit)
            except TypeError:
                return None  # an argument of a type that only the general path takes
            rest = [p for p in cache.paths if p is not found.enter]
            cache.paths = (found.enter, *rest[: _MAX_PATHS - 1])
        return found.enter

    def _exit(
        self, traced: Traced, leaves: Any, device: Any, placements: Sequence[Placement]
    ) -> Any:
        """The Exit for such leaves, made on first use; None if there is none."""
        hosted: tuple[int, ...] = ()
        if registry.active:
            hosted = hosted_leaves(leaves)
            if device is None:
                if len(hosted) < len(leaves):
                    return None  # such a call copies arguments from another device to the host
                hosted = ()
        key = device, hosted, tuple(placements)
        found = traced.exits.get(key)
        if found is None or found.executable is None:  # or it was closed
            program, consts, out_tree = traced.program, traced.raw_consts or [], traced.out_tree
            found = platform_of_device(device).exit_of(
                program, consts, out_tree, device, hosted, traced.given_up, placements)
            if found is not None:
                traced.exits[key] = found
        return found

    def _entrance(self, statics: Any, traced: Traced, leaves: Any, in_tree: Any) -> Entrance:
        """The Entrance for a structure. An Entrance that was made for arrays only is replaced when
        a number or a NumPy array is passed."""
        cache = self.cache
        where = tuple([where for where, _ in statics or ()])
        key = in_tree, where, traced.given_up, traced.given_up_later
        found = cache.entrances.get(key)
        plain = (DeviceArray, KeyArray, *array_platforms)
        others = {i for i, x in enumerate(leaves)
                  if x.__class__ not in plain and not isinstance(x, Sharded)}
        if found is not None and others <= found.others:
            return found
        fixed = Statics(tuple([w for w in where if isinstance(w, int)]),
                        tuple([w for w in where if isinstance(w, str)]))
        wider = others | found.others if found else others
        captured = cache.captured
        conditions = () if captured is None else captured.conditions()
        made = Entrance(in_tree, fixed, frozenset(wider), traced.given_up, conditions)
        made.deleted_later = traced.given_up_later
        if found is not None:
            made.tables = found.tables
            cache.paths = tuple([p for p in cache.paths if p is not found.enter])
        elif len(cache.entrances) >= MAX_TRACES:
            cache.entrances.clear()
        cache.entrances[key] = made
        return made

    def _donated_leaves(self, args: Any, kwargs: Any, statics: Any) -> list[int]:
        """The positions, among all leaves, of those that are donated."""
        static = {where for where, _ in statics or ()}
        return donated_leaves(args, kwargs, self.donate_argnums, self.donate_argnames, static)

    def _take_statics(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Split off static arguments for the key; None takes their place among the others."""
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

    def _trace(self, key: Any, args: Any, kwargs: Any, leaves: Sequence[Any]) -> Traced:
        in_tree, statics = key[0], key[2]
        donated = self._donated_leaves(args, kwargs, statics) if self.donates else []
        with self.cache.lock:
            found = self.cache.entries.get(key)
            if found is not None and not found.stale():
                return found
            check_compiler_options(self.compiler_options)
            check_leaves(leaves)
            labels = argument_labels(self.fun, args, kwargs)
            cause, closest = self._cause(key, labels)
            self._check_traceable(cause)
            name = name_of(self.fun)
            flat = FlatFunction(self._restored(statics), in_tree)
            avals, with_refs = value_avals(leaves), ref_function(flat, leaves, labels, name)
            started = time.perf_counter()
            named = labels if len(labels) == len(avals) else ()
            with paused():
                made = trace_with_refs(with_refs or flat, avals, name, named, "jit")
            program, consts = without_equal_constants(made.program, made.consts)
            if config.flags.log_compiles:
                log_compile(name_of(self.fun), time.perf_counter() - started, cause, avals)
            if config.flags.explain_cache_misses:
                explain_miss(self.fun, closest, key, labels)
            traced = Traced(program, consts, flat.out_tree, avals, use_of_refs(made, with_refs))
            give_up(traced, donated, self.keep_unused)
            self.cache.add(key, traced)
            self.cache.history.append((key, labels))
            self.cache.causes.append(cause)
            self.cache.traces += 1
            self.cache.watch(self.fun)
            warn = self.max_traces is None and self._is_retraced_repeatedly(cause)
        if warn:
            warn_of_retraces(name_of(self.fun), cause)
        return traced

    def _check_traceable(self, cause: str) -> None:
        """Raise if another trace is not allowed."""
        name = name_of(self.fun)
        if config.flags.no_tracing:
            raise RuntimeError(
                f"re-tracing function {name} for `jit`, but 'no_tracing' is set{here()}")
        if self.max_traces is not None and self.cache.traces >= self.max_traces:
            raise RuntimeError(
                f"jit: needed at most {self.max_traces} traces of {name}, got one more ({cause})"
                f"{here()}"
            )

    def _is_retraced_repeatedly(self, cause: str) -> bool:
        """Whether a user's function, called outside a trace, is retraced for the same reason for
        the third time (for the ninth time, if the reason is the structure of the arguments).

        Retraces for different models that are passed to one function do not count: the same
        argument, or the same static value, must differ each time. toile's own functions are
        excluded, because users cannot change them."""
        cache = self.cache
        ours = (getattr(self.fun, "__module__", None) or "").startswith("toile.")
        if ours or state.trace is not None or cache.traces == 1 or cache.warned:
            return False
        reason = reason_of(cause)
        cache.reasons[reason] += 1
        cache.warned = cache.reasons[reason] == REPEATED * (3 if reason == STRUCTURE else 1)
        return cache.warned

    def _cause(self, key: Any, labels: Sequence[str]) -> tuple[str, Any]:
        """Why this call is traced: the differences from the nearest earlier trace, and its key."""
        if not self.cache.history:
            return FIRST, None
        best: tuple[tuple[bool, int], list[str], Any] | None = None
        for old, old_labels in self.cache.history:
            found = differences(old, key, old_labels, labels)
            distance = (old[0] != key[0], len(found))  # a different structure counts as furthest
            if best is None or distance < best[0]:
                best = distance, found, old
        assert best is not None
        return "; ".join(best[1] or ["a value that it closed over is no longer valid"]), best[2]

    # ---- looking inside
    def why(self) -> list[str]:
        """List the reason for each trace of the function.

        Returns:
            The reasons, oldest first. Each describes how a call differed from the most similar
            earlier call. Only the last 1000 reasons are kept.
        """
        return list(self.cache.causes)

    def _cache_size(self) -> int:
        return len(self.cache.entries)

    def clear_cache(self) -> None:
        """Discard all traces: the next call traces and compiles the function again."""
        self.cache.clear()

    def trace(self, *args: PyTree, **kwargs: PyTree) -> TracedStage:
        """Trace the function without running it.

        Args:
            *args: arguments; a `ShapeDtypeStruct` may be passed in place of an array.
            **kwargs: keyword arguments.

        Returns:
            The traced function, a `toile.stages.Traced`.
        """
        statics, args_in, kwargs_in = self._take_statics(args, kwargs)
        leaves, key = self._key(statics, args_in, kwargs_in)
        traced = self._trace(key, args_in, kwargs_in, leaves)
        fixed = [where for where, _ in statics or () if isinstance(where, int)]
        labels = argument_labels(self.fun, args_in, kwargs_in)
        donated = self._donated_leaves(args, kwargs, statics)
        moving = tuple([a for i, a in enumerate(args_in) if i not in fixed])
        wanted = self._wanted_in(moving, kwargs_in)
        given = [getattr(x, "sharding", None) for x in leaves]
        shardings = [w or g for w, g in zip(wanted, given, strict=True)] if wanted else given
        return TracedStage(self, traced, key[0], fixed, labels, donated, shardings)

    def lower(self, *args: PyTree, **kwargs: PyTree) -> Lowered:
        """Create the Program for the given arguments without running it, to inspect or compile it.

        Args:
            *args: arguments; a `ShapeDtypeStruct` may be passed in place of an array.
            **kwargs: keyword arguments.

        Returns:
            The Program, a `toile.stages.Lowered`.
        """
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Find the shapes and dtypes of the results without computing them.

        Args:
            *args: arguments; a `ShapeDtypeStruct` may be passed in place of an array.
            **kwargs: keyword arguments.

        Returns:
            The tree of results, with a `ShapeDtypeStruct` in place of each array.
        """
        return self.trace(*args, **kwargs).out_info

    @overload
    def __get__(self, instance: None, owner: Any = None) -> PjitFunction[P, R]: ...
    @overload
    def __get__(self: PjitFunction[Concatenate[T, Q], S], instance: T, owner: Any = None
                ) -> PjitFunction[Q, S]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Pickle a reference if there is one; otherwise the function, without what was compiled."""
        return reference_to(self, self.fun) or (type(self), (self.fun, self.options))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "function_name": name_of(self.fun)}

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self.__wrapped__!r}>"
        except Exception:  # the function has no usable repr
            return "<PjitFunction>"
