"""Options, each with a process-wide value that can be overridden in a thread.

`flags` has the current value of every option under its short name (`flags.enable_x64`). The
process-wide value is a class attribute, and an instance attribute, which is private to each thread,
overrides it; reading an option is therefore one attribute access. `config` is the public object
with JAX's names. Every option that can be set for a block has a `State` in engine.scoped_options;
calling the `State` returns a context manager. Hooks in `on_change` are called as `hook(name)` after
each change, in the thread that made the change.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from toile.engine import absl_flags
from toile.engine.flag_table import TABLE as _TABLE
from toile.engine.flag_table import Parser, boolean, integer, real
from toile.engine.source import here
from toile.engine.suggestions import nearest

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

on_change: list[Callable[[str], None]] = []


class _Flags(threading.local):
    """Current flag values: class attributes are process-wide, instance attributes thread-local."""

    enable_x64: bool
    numpy_dtype_promotion: str
    numpy_rank_promotion: str
    default_matmul_precision: str | None
    default_device: Any
    default_prng_impl: str
    threefry_partitionable: bool
    softmax_custom_jvp: bool
    allow_excess_precision: bool
    checks: str
    debug_nans: bool
    debug_infs: bool
    disable_jit: bool
    log_compiles: bool
    check_tracer_leaks: bool
    explain_cache_misses: bool
    enable_checks: bool
    explicit_x64_dtypes: str
    context: tuple[object, tuple[Any, ...]] = (None, ())  # the latest result of trace_context
    contexts: tuple[Any, ...] = ()  # (context, value) pairs, see engine.contexts


flags = _Flags()


# These names have no prefix `jax_`: toile's own, two of JAX's, and Flax's.
_UNPREFIXED = {
    *("checks", "check_vma", "eager_constant_folding"),
    *(name for name in _TABLE if name.startswith("flax_")),
}
_ALIASES = {"x64_enabled": "enable_x64", "checking_leaks": "check_tracer_leaks"}
_GUARD_DIRECTIONS = ("host_to_device", "device_to_device", "device_to_host")

# The flags that a traced program may depend on; they are part of every jit cache key.
TRACE_FLAGS = (
    *("enable_x64", "explicit_x64_dtypes", "numpy_dtype_promotion", "numpy_rank_promotion"),
    *("default_matmul_precision", "default_device", "default_prng_impl"),
    *("threefry_partitionable", "random_seed_offset", "high_dynamic_range_gumbel"),
    *("softmax_custom_jvp", "enable_custom_prng", "allow_f16_reductions"),
    *("allow_excess_precision", "disable_jit", "debug_nans", "debug_infs"),
    *("checks", "debug_key_reuse", "check_static_indices"),
    *("error_checking_behavior_nan", "error_checking_behavior_divide"),
    *("error_checking_behavior_oob", "disable_most_optimizations", "contexts"),
    *("flax_fix_rng_separator", "flax_preserve_adopted_names", "flax_return_frozendict"),
)
_read_trace_flags = operator.attrgetter(*TRACE_FLAGS)


# A token replaced at every change on any thread; values derived under another token are stale.
_generation = object()


def trace_context() -> tuple[Any, ...]:
    """This thread's values of `TRACE_FLAGS`; hashable, for cache keys."""
    generation, values = flags.context
    if generation is not _generation:
        generation = _generation  # read before the flags: a change in between makes this stale
        values = _read_trace_flags(flags)
        flags.context = (generation, values)
    return values


def set_contexts(pairs: tuple[Any, ...] | None) -> None:
    """Replace this thread's (context, value) pairs; None restores those of the process."""
    if pairs is not None and pairs != _Flags.contexts:
        flags.contexts = pairs
    else:
        flags.__dict__.pop("contexts", None)
    _changed("contexts")


def process_contexts() -> tuple[Any, ...]:
    """The (context, value) pairs of threads that have set none of their own."""
    return _Flags.contexts


def set_process_contexts(pairs: tuple[Any, ...]) -> None:
    """Replace the (context, value) pairs of the process."""
    _Flags.contexts = pairs
    _changed("contexts")


def x64_enabled() -> bool:
    """Whether 64-bit types are enabled on this thread."""
    return flags.enable_x64


class NamedOption(Protocol):
    """An object that represents an option, such as `toile.debug_nans` or a FlagHolder."""

    name: str


class UnknownOption(AttributeError, LookupError):
    """No option has this name; this is both an AttributeError (as in JAX) and a LookupError."""


def _short_name(name: str) -> str:
    """The name in the table for a name with or without `jax_`/`toile_`; UnknownOption if none."""
    short = name.removeprefix("jax_").removeprefix("toile_")
    short = _ALIASES.get(short, short)
    if short in _TABLE:
        return short
    near = nearest(short, _TABLE)
    hint = f"did you mean {_public_name(near)!r}?" if near else "see toile.config.values"
    raise UnknownOption(f"Unrecognized config option: {name} ({hint}){here()}")


def _public_name(short: str) -> str:
    return short if short in _UNPREFIXED else f"jax_{short}"


def _changed(name: str) -> None:
    global _generation
    _generation = object()
    for hook in on_change:
        hook(name)


def _covered(name: str) -> tuple[str, ...]:
    """The flags that setting `name` sets: transfer_guard sets all three directions."""
    if name == "transfer_guard":
        return (name, *(f"transfer_guard_{d}" for d in _GUARD_DIRECTIONS))
    return (name,)


def _environment_value(short: str, environment: Mapping[str, str]) -> Any:
    """A flag's default: the value of TOILE_X if set, else of JAX_X or FLAX_X, else the table's."""
    default, parser = _TABLE[short]
    upper = short.upper()
    variables = [f"TOILE_{upper.removeprefix('FLAX_')}"]
    variables.append(upper if short.startswith("flax_") else f"JAX_{upper}")
    if short in ("num_cpu_devices", "num_gpu_devices"):
        variables.insert(0, f"TOILE_{upper.removeprefix('NUM_')}")
    for variable in variables:
        text = environment.get(variable)
        if text is None:
            continue
        try:
            value: Any = text
            if parser is integer:
                value = int(text)
            elif parser is real:
                value = float(text)
            elif text == "" and default is None:
                value = None
            return parser(short, value)
        except ValueError as error:
            raise ValueError(
                f"config: environment variable {variable}={text!r}: {error}{here()}"
            ) from None
    return default


for _name in _TABLE:
    setattr(_Flags, _name, _environment_value(_name, os.environ))


def define(name: str, default: Any) -> None:
    """Add a flag under exactly this name, without a prefix; RuntimeError if it exists."""
    if name in _TABLE or name in config._values:
        raise RuntimeError(f"Config option {name} already defined{here()}")
    config._values[name] = default


class Config:
    """toile's options; `toile.config` is the only object of this class.

    `toile.config.update("jax_debug_nans", True)` sets an option in all threads,
    `toile.config.jax_debug_nans` reads it, and `with toile.debug_nans(True):` sets it for a block.
    The names are the same as in JAX and Flax, and the prefix `jax_` may be left out. The
    environment variable TOILE_DEBUG_NANS (or JAX_DEBUG_NANS) sets the initial value; it is read
    when toile is imported. `toile.config.values` lists the options.

    Most options are explained in the docstrings of their context managers in `toile`. The following
    options have no context manager:

    - `jax_num_cpu_devices`: number of CPU devices, each of which is a thread; -1 for the number in
      XLA_FLAGS, or 1 if XLA_FLAGS contains none. The environment variable TOILE_CPU_DEVICES also
      sets this number.
    - `jax_num_gpu_devices`: number of GPU devices; -1 for the number of GPUs. A larger number
      divides each GPU into several devices. The environment variable TOILE_GPU_DEVICES also sets
      this number.
    - `jax_random_seed_offset`: integer that is added to the seed of every random key.
    - `jax_traceback_filtering`: how tracebacks hide toile's frames: "auto", "off", "tracebackhide",
      "remove_frames" or "quiet_remove_frames".
    - `flax_filter_frames`, `flax_profile`, `flax_preserve_adopted_names`, `flax_return_frozendict`,
      `flax_fix_rng_separator`: see `toile.configurations`.

    JAX's other options are accepted for compatibility and have no effect.

    >>> toile.config.update("jax_enable_x64", True)
    >>> toile.config.jax_enable_x64, jnp.arange(2).dtype
    (True, dtype('int64'))
    >>> toile.config.update("jax_enable_x64", False)
    """

    _values: dict[str, Any]  # of the flags that programs define

    def __init__(self) -> None:
        self._values = {}

    def update(self, name: str | NamedOption, value: Any) -> None:
        """Set an option in all threads that do not override it.

        Args:
            name: name of the option, with or without the prefix `jax_`, or the option's context
                manager or `FlagHolder`.
            value: new value. Boolean options also accept strings such as "true" and "0".

        Raises:
            UnknownOption: there is no option with this name.
            ValueError: the option cannot have this value.
        """
        name = name if isinstance(name, str) else name.name
        if name in self._values:
            self._values[name] = value
            return _changed(name)
        short = _short_name(name)
        value = _TABLE[short][1](short, value)
        for each in _covered(short):
            setattr(_Flags, each, value)
        _changed(short)

    def read(self, name: str) -> Any:
        """Return the value of an option in this thread.

        Args:
            name: name of the option, with or without the prefix `jax_`.

        Returns:
            The value that a context manager has set in this thread, or otherwise the process-wide
            value.
        """
        if name in self._values:
            return self._values[name]
        return getattr(flags, _short_name(name))

    _read = read

    @contextlib.contextmanager
    def temp_flip_flag(self, var_name: str, var_value: bool) -> Iterator[None]:
        """Set one of Flax's options in every thread for the duration of a block.

        Args:
            var_name: name of the option without the prefix `flax_`.
            var_value: value of the option inside the block.

        Yields:
            None; the old value is restored at the end of the block.
        """
        before = self.read(f"flax_{var_name}")
        self.update(f"flax_{var_name}", var_value)
        try:
            yield
        finally:
            self.update(f"flax_{var_name}", before)

    @property
    def values(self) -> dict[str, Any]:
        """All options with their values in this thread, under their JAX and Flax names."""
        return {_public_name(n): getattr(flags, n) for n in _TABLE} | self._values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_values":
            return object.__setattr__(self, name, value)
        raise AttributeError(f"config: cannot assign {name}, got {value!r} (use config.update("
                             f"{name!r}, value)){here()}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.values]

    def __repr__(self) -> str:
        now = ((n, default, getattr(flags, n)) for n, (default, _) in _TABLE.items())
        changed = {_public_name(n): value for n, default, value in now if value != default}
        return f"Config({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def parse_flags_with_absl(self) -> None:
        """Apply the `--jax_...` arguments on the command line if absl is installed."""
        absl_flags.parse(_kinds(), self)

    def config_with_absl(self) -> None:
        """Define every option as an absl flag; absl reads the flags when its app starts."""
        absl_flags.register(_kinds(), self)


def _kinds() -> dict[str, str]:
    """absl's name for the type of each option."""
    known: dict[Parser, str] = {boolean: "bool", integer: "integer", real: "float"}
    return {_public_name(n): known.get(parser, "string") for n, (_, parser) in _TABLE.items()}


config = Config()


class Override:
    """A context manager and decorator that sets options in the current thread.

    Args:
        values: dict that maps short names of options, such as "enable_x64", to values.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._saved: list[dict[str, Any]] = []  # a stack: one manager may be entered again

    def __enter__(self) -> None:
        local = flags.__dict__
        self._saved.append({name: local[name] for name in self._values if name in local})
        local.update(self._values)
        self._notify()

    def __exit__(self, *exc_info: object) -> None:
        local, saved = flags.__dict__, self._saved.pop()
        for name in self._values:
            if name in saved:
                local[name] = saved[name]
            else:
                local.pop(name, None)
        self._notify()

    def _notify(self) -> None:
        for name in self._values:
            _changed(name)

    def __call__(self, fun: F) -> F:
        @functools.wraps(fun)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with Override(self._values):
                return fun(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


_REQUIRED: Any = object()


class State(Generic[T]):
    """An option that can be set for a block: `state(value)` is a context manager.

    It decorates the declaration of the option, a function that provides the name, the documentation
    and the type of the values.

    Args:
        declaration: function without a body whose name is the name of an option in the table.
    """

    def __init__(self, declaration: Callable[[T], None]) -> None:
        declaration.__annotations__["return"] = "Override"  # a function without a body returns None
        functools.update_wrapper(self, declaration)
        self.__name__ = declaration.__name__
        self.name = _public_name(self.__name__)

    @property
    def value(self) -> T:
        """The value in this thread."""
        return getattr(flags, self.__name__)

    def get_global(self) -> T:
        """The process-wide value, which a thread may override."""
        return getattr(_Flags, self.__name__)

    def __call__(self, new_val: T = _REQUIRED) -> Override:
        name, parser = self.__name__, _TABLE[self.__name__][1]
        if new_val is _REQUIRED:
            if parser is not boolean:
                raise TypeError(
                    f"{name}: needed the new value of the option, got no argument{here()}"
                )
            value = True
        else:
            value = parser(name, new_val)
        return Override(dict.fromkeys(_covered(name), value))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.__name__}: a flag has no truth value (use .value){here()}")

    def __repr__(self) -> str:
        return f"<config option {self.name}={self.value!r}>"
