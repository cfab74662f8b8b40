"""Configuration flags: one table, process-wide values, thread-local overrides.

`flags` holds the current value of every flag under its short name (`flags.enable_x64`): the class
carries the process-wide value and an instance attribute, private to each thread, overrides it, so
a read is one attribute access. `config` is the public object with JAX's names; every flag that can
be scoped also has a `State` here, whose call returns a context manager and decorator.
Hooks in `on_change` are called as `hook(name)` after each change, on the thread that made it.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from toile.engine import absl_flags
from toile.engine.source import here

F = TypeVar("F", bound=Callable[..., Any])
Parser = Callable[[str, Any], Any]

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


# Parsers: from what a user or the environment supplies to the stored value.

_TRUE = ("1", "true", "t", "yes", "y", "on")
_FALSE = ("0", "false", "f", "no", "n", "off", "")


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError(f"config: {name} needed a boolean, got {value!r}{here()}")


def _integer(name: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(
        f"config: {name} needed an int or None, got {value!r} of {type(value)}{here()}"
    )


def _real(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, (int, float)):
        return value
    raise ValueError(
        f"config: {name} needed a float or None, got {value!r} of {type(value)}{here()}"
    )


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(
        f"config: {name} needed a string or None, got {value!r} of {type(value)}{here()}"
    )


def _anything(name: str, value: Any) -> Any:
    return value


def _one_of(*allowed: str | None) -> Parser:
    def parse(name: str, value: Any) -> Any:
        # An Enum member whose value is one of our words counts as that word.
        word = getattr(value, "value", value)
        if any(word is option or (option is not None and word == option) for option in allowed):
            return word
        words = [option for option in allowed if option is not None]
        raise ValueError(
            f"new enum value must be {'None or ' if None in allowed else ''}in {words}, got {value}"
            f" of type {type(value)} for the option {name}{here()}"
        )

    return parse


_PLATFORMS = ("cpu", "gpu", "cuda", "rocm", "tpu")


def _device(name: str, value: Any) -> Any:
    if value is None or hasattr(value, "platform"):
        return value
    if isinstance(value, str) and value.partition(":")[0] in _PLATFORMS:
        return value
    raise ValueError(
        f"config: {name} must be a Device (such as devices('cpu')[0]), a platform name "
        f"like 'cpu' or 'gpu', or None, got {value!r}{here()}"
    )


_PRECISIONS = (
    *(None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32"),
    *("ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY"),
    *("ANY_F8_ANY_F8_ANY_FAST_ACCUM", "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16"),
    *("BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"),
    *("TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64"),
)
_PRNGS = ("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg", "philox2x32", "philox4x32")
_GUARDS = _one_of(None, "allow", "log", "disallow", "log_explicit", "disallow_explicit")
_CHECKS = _one_of("ignore", "raise")
_EFFORTS = ("UNKNOWN", "O0", "O1", "O2", "O3")
_FILTERING = ("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto")
_LEVELS = (None, "NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

# Every flag: short name -> (default, parser).
_TABLE: dict[str, tuple[Any, Parser]] = {
    # What programs compute.
    "enable_x64": (False, _boolean),
    "explicit_x64_dtypes": ("warn", _one_of("warn", "error", "allow")),
    "numpy_dtype_promotion": ("standard", _one_of("standard", "strict")),
    "numpy_rank_promotion": ("allow", _one_of("allow", "warn", "raise")),
    "default_matmul_precision": (None, _one_of(*_PRECISIONS)),
    "default_device": (None, _device),
    "default_prng_impl": ("threefry2x32", _one_of(*_PRNGS)),
    "threefry_partitionable": (True, _boolean),
    "random_seed_offset": (0, _integer),
    "high_dynamic_range_gumbel": (False, _boolean),
    "softmax_custom_jvp": (False, _boolean),
    "legacy_prng_key": ("allow", _one_of("allow", "warn", "error")),
    "enable_custom_prng": (False, _boolean),
    "allow_f16_reductions": (True, _boolean),
    "allow_excess_precision": (True, _boolean),  # bfloat16 as float32 inside of kernels
    # JAX removed the 32-bit choice before 0.10; older scripts still use the flag.
    "default_dtype_bits": ("64", _one_of("64")),
    # How they run.
    "disable_jit": (False, _boolean),
    "platforms": (None, _text),
    "platform_name": ("", _text),
    "num_cpu_devices": (-1, _integer),
    "num_gpu_devices": (-1, _integer),  # more than there are GPUs: several logical devices per GPU
    "cuda_visible_devices": ("all", _text),
    "cpu_enable_async_dispatch": (True, _boolean),
    "cpu_collectives_implementation": ("gloo", _one_of(None, "gloo", "mpi", "megascale")),
    "disable_most_optimizations": (False, _boolean),
    "optimization_level": ("UNKNOWN", _one_of(*_EFFORTS)),
    "memory_fitting_level": ("O2", _one_of(*_EFFORTS)),
    "exec_time_optimization_effort": (0.0, _real),
    "memory_fitting_effort": (0.0, _real),
    "use_shardy_partitioner": (True, _boolean),
    "use_direct_linearize": (True, _boolean),
    "use_magma": ("auto", _one_of("off", "on", "auto")),
    "threefry_gpu_kernel_lowering": (False, _boolean),
    "compiler_enable_remat_pass": (True, _boolean),
    "auto_pcast": (True, _boolean),
    "eager_constant_folding": (False, _boolean),
    "remove_size_one_mesh_axis_from_type": (False, _boolean),
    # Checks.
    "debug_nans": (False, _boolean),
    "debug_infs": (False, _boolean),
    "debug_key_reuse": (False, _boolean),
    "check_tracer_leaks": (False, _boolean),
    "check_static_indices": (False, _boolean),
    "check_vma": (False, _boolean),
    "enable_checks": (False, _boolean),
    "error_checking_behavior_nan": ("ignore", _CHECKS),
    "error_checking_behavior_divide": ("ignore", _CHECKS),
    "error_checking_behavior_oob": ("ignore", _CHECKS),
    "transfer_guard": (None, _GUARDS),
    "transfer_guard_host_to_device": (None, _GUARDS),
    "transfer_guard_device_to_device": (None, _GUARDS),
    "transfer_guard_device_to_host": (None, _GUARDS),
    "array_garbage_collection_guard": (None, _one_of(None, "allow", "log", "fatal")),
    "thread_guard": (False, _boolean),
    "no_tracing": (False, _boolean),
    "no_execution": (False, _boolean),
    "disable_bwd_checks": (False, _boolean),
    "mutable_array_checks": (True, _boolean),
    "disallow_mesh_context_manager": (False, _boolean),
    "captured_constants_warn_bytes": (2_000_000_000, _integer),
    "captured_constants_report_frames": (0, _integer),
    # Reports.
    "log_compiles": (False, _boolean),
    "log_checkpoint_residuals": (False, _boolean),
    "explain_cache_misses": (False, _boolean),
    "traceback_filtering": ("auto", _one_of(*_FILTERING)),
    "traceback_in_locations_limit": (100, _integer),
    "include_full_tracebacks_in_locations": (True, _boolean),
    "tracer_error_num_traceback_frames": (5, _integer),
    "logging_level": ("NOTSET", _one_of(*_LEVELS)),
    "debug_log_modules": ("", _text),
    "pprint_use_color": (True, _boolean),
    "distributed_debug": (False, _boolean),
    "dump_ir_to": ("", _text),
    "dump_ir_modes": ("stablehlo", _text),
    "include_debug_info_in_dumps": (True, _boolean),
    # The compilation cache.
    "enable_compilation_cache": (True, _boolean),
    "compilation_cache_dir": (None, _text),
    "compilation_cache_max_size": (-1, _integer),
    "compilation_cache_check_contents": (False, _boolean),
    "compilation_cache_include_metadata_in_key": (False, _boolean),
    "compilation_cache_expect_pgle": (False, _boolean),
    "persistent_cache_min_compile_time_secs": (1.0, _real),
    "persistent_cache_min_entry_size_bytes": (0, _integer),
    "persistent_cache_enable_xla_caches": ("xla_gpu_per_fusion_autotune_cache_dir", _text),
    "raise_persistent_cache_errors": (False, _boolean),
    # Modules, under Flax's names.
    "flax_filter_frames": (True, _boolean),
    "flax_profile": (True, _boolean),
    "flax_use_orbax_checkpointing": (True, _boolean),
    "flax_preserve_adopted_names": (False, _boolean),
    "flax_return_frozendict": (False, _boolean),
    "flax_fix_rng_separator": (False, _boolean),
}

# These names have no prefix `jax_`: two of JAX's, and Flax's.
_UNPREFIXED = {"check_vma", "eager_constant_folding", *(n for n in _TABLE if n[:5] == "flax_")}
_ALIASES = {"x64_enabled": "enable_x64", "checking_leaks": "check_tracer_leaks"}
_GUARD_DIRECTIONS = ("host_to_device", "device_to_device", "device_to_host")

# The flags that a traced program may depend on; they are part of every jit cache key.
TRACE_FLAGS = (
    *("enable_x64", "explicit_x64_dtypes", "numpy_dtype_promotion", "numpy_rank_promotion"),
    *("default_matmul_precision", "default_device", "default_prng_impl"),
    *("threefry_partitionable", "random_seed_offset", "high_dynamic_range_gumbel"),
    *("softmax_custom_jvp", "enable_custom_prng", "allow_f16_reductions"),
    *("allow_excess_precision", "disable_jit", "debug_nans", "debug_infs"),
    *("debug_key_reuse", "check_static_indices"),
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


class UnknownOption(AttributeError, LookupError):
    """There is no flag of that name; both an AttributeError (JAX) and a LookupError (Flax)."""


def _short_name(name: str) -> str:
    """The table's name of a flag given with or without `jax_`/`toile_`; UnknownOption if none."""
    short = name.removeprefix("jax_").removeprefix("toile_")
    short = _ALIASES.get(short, short)
    if short in _TABLE:
        return short
    import difflib  # for this message alone: it takes a while to load

    near = difflib.get_close_matches(short, _TABLE, n=1)
    hint = f"did you mean {_public_name(near[0])!r}?" if near else "see toile.config.values"
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
    """A flag's default after the variables TOILE_X and JAX_X or FLAX_X; the first one set wins."""
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
            if parser is _integer:
                value = int(text)
            elif parser is _real:
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
    """The public configuration object: JAX's flag names, with or without the `jax_` prefix."""

    _values: dict[str, Any]  # of the flags that programs define

    def __init__(self) -> None:
        self._values = {}

    def update(self, name: Any, value: Any) -> None:
        """Set the process-wide value of a flag, given by its name or its holder."""
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
        """The value of flag `name` on this thread."""
        if name in self._values:
            return self._values[name]
        return getattr(flags, _short_name(name))

    _read = read

    @contextlib.contextmanager
    def temp_flip_flag(self, var_name: str, var_value: bool) -> Iterator[None]:
        """Set the flag `flax_<var_name>` in every thread for the duration of a block."""
        before = self.read(f"flax_{var_name}")
        self.update(f"flax_{var_name}", var_value)
        try:
            yield
        finally:
            self.update(f"flax_{var_name}", before)

    @property
    def values(self) -> dict[str, Any]:
        """All flags under JAX's and Flax's names with their values on this thread."""
        return {_public_name(n): getattr(flags, n) for n in _TABLE} | self._values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_values":
            return object.__setattr__(self, name, value)
        raise AttributeError(f"config: cannot assign {name} (use config.update({name!r}, value))")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.values]

    def __repr__(self) -> str:
        now = ((n, default, getattr(flags, n)) for n, (default, _) in _TABLE.items())
        changed = {_public_name(n): value for n, default, value in now if value != default}
        return f"Config({', '.join(f'{k}={v!r}' for k, v in changed.items())})"

    def parse_flags_with_absl(self) -> None:
        """Apply the `--jax_...` arguments of the command line, if absl is installed."""
        absl_flags.parse(_kinds(), self)

    def config_with_absl(self) -> None:
        """Define every option as a flag of absl, which reads it at startup; for main programs."""
        absl_flags.register(_kinds(), self)


def _kinds() -> dict[str, str]:
    """absl's name for the type of each option."""
    known: dict[Parser, str] = {_boolean: "bool", _integer: "integer", _real: "float"}
    return {_public_name(n): known.get(parser, "string") for n, (_, parser) in _TABLE.items()}


config = Config()


class Override:
    """Context manager and decorator that gives flags other values on the current thread."""

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


class State:
    """One flag as a callable: `state(value)` is a context manager, `state.value` reads it."""

    def __init__(self, name: str) -> None:
        self.name = _public_name(name)
        self.__name__ = name
        self.__doc__ = f"Context manager and decorator for the `{self.name}` option."

    @property
    def value(self) -> Any:
        """The value on this thread."""
        return getattr(flags, self.__name__)

    def get_global(self) -> Any:
        """The process-wide value, which a thread may override."""
        return getattr(_Flags, self.__name__)

    def __call__(self, new_val: Any = _REQUIRED) -> Override:
        name, parser = self.__name__, _TABLE[self.__name__][1]
        if new_val is _REQUIRED:
            if parser is not _boolean:
                raise TypeError(
                    f"{name}: needed the new value of the option, got no argument{here()}"
                )
            new_val = True
        value = parser(name, new_val)
        return Override(dict.fromkeys(_covered(name), value))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self.__name__}: a flag has no truth value (use .value){here()}")

    def __repr__(self) -> str:
        return f"<config option {self.name}={self.value!r}>"


allow_excess_precision = State("allow_excess_precision")
allow_f16_reductions = State("allow_f16_reductions")
array_garbage_collection_guard = State("array_garbage_collection_guard")
auto_pcast = State("auto_pcast")
check_tracer_leaks = State("check_tracer_leaks")
debug_infs = State("debug_infs")
debug_key_reuse = State("debug_key_reuse")
debug_nans = State("debug_nans")
default_device = State("default_device")
default_matmul_precision = State("default_matmul_precision")
default_prng_impl = State("default_prng_impl")
enable_checks = State("enable_checks")
enable_custom_prng = State("enable_custom_prng")
enable_x64 = State("enable_x64")
error_checking_behavior_divide = State("error_checking_behavior_divide")
error_checking_behavior_nan = State("error_checking_behavior_nan")
error_checking_behavior_oob = State("error_checking_behavior_oob")
explain_cache_misses = State("explain_cache_misses")
explicit_x64_dtypes = State("explicit_x64_dtypes")
legacy_prng_key = State("legacy_prng_key")
log_compiles = State("log_compiles")
no_execution = State("no_execution")
no_tracing = State("no_tracing")
numpy_dtype_promotion = State("numpy_dtype_promotion")
numpy_rank_promotion = State("numpy_rank_promotion")
remove_size_one_mesh_axis_from_type = State("remove_size_one_mesh_axis_from_type")
softmax_custom_jvp = State("softmax_custom_jvp")
thread_guard = State("thread_guard")
threefry_partitionable = State("threefry_partitionable")
transfer_guard = State("transfer_guard")
transfer_guard_device_to_device = State("transfer_guard_device_to_device")
transfer_guard_device_to_host = State("transfer_guard_device_to_host")
transfer_guard_host_to_device = State("transfer_guard_host_to_device")


def disable_jit(disable: bool = True) -> Override:
    """Context manager under which jit-compiled functions run operation by operation."""
    return Override({"disable_jit": _boolean("disable_jit", disable)})


def checking_leaks() -> Override:
    """Context manager that reports tracers which outlive their transformation."""
    return check_tracer_leaks(True)
