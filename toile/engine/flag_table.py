"""The table of all options, with their defaults and the parsers of their values.

A parser is called with the name of the option and the value that the user or the environment
supplies, and returns the value to store. This module may import only engine.source and
engine.suggestions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine.source import here
from toile.engine.suggestions import did_you_mean

Parser = Callable[[str, Any], Any]

_TRUE = ("1", "true", "t", "yes", "y", "on")
_FALSE = ("0", "false", "f", "no", "n", "off", "")


def boolean(name: str, value: Any) -> bool:
    """A boolean; strings such as "1", "true" and "off" are understood."""
    if not isinstance(value, str):
        return bool(value)
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError(f"config: {name} needed a boolean, got {value!r}{here()}")


def integer(name: str, value: Any) -> int | None:
    """An integer or None."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(
        f"config: {name} needed an int or None, got {value!r} of {type(value)}{here()}"
    )


def real(name: str, value: Any) -> float | None:
    """A number or None."""
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
            f" of type {type(value)} for the option {name}{did_you_mean(str(value), words)}{here()}"
        )

    return parse


CHECKS = ("index", "nan", "keys", "shapes")  # the names that toile.checks accepts


def check_names(name: str, value: Any) -> str:
    """The checks in the order of `CHECKS`, such as "index,nan"; `value` is a string or a list."""
    given = value.replace(",", " ").split() if isinstance(value, str) else list(value or ())
    unknown = [each for each in given if each not in (*CHECKS, "all")]
    if unknown:
        raise ValueError(
            f"{name}: needed the names of checks, which are {', '.join(CHECKS)} and all, got "
            f"{unknown[0]!r}{here()}"
        )
    return ",".join(each for each in CHECKS if each in given or "all" in given)


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
TABLE: dict[str, tuple[Any, Parser]] = {
    # What programs compute.
    "enable_x64": (False, boolean),
    "explicit_x64_dtypes": ("warn", _one_of("warn", "error", "allow")),
    "numpy_dtype_promotion": ("standard", _one_of("standard", "strict")),
    "numpy_rank_promotion": ("allow", _one_of("allow", "warn", "raise")),
    "default_matmul_precision": (None, _one_of(*_PRECISIONS)),
    "default_device": (None, _device),
    "default_prng_impl": ("threefry2x32", _one_of(*_PRNGS)),
    "threefry_partitionable": (True, boolean),
    "random_seed_offset": (0, integer),
    "high_dynamic_range_gumbel": (False, boolean),
    "softmax_custom_jvp": (False, boolean),
    "legacy_prng_key": ("allow", _one_of("allow", "warn", "error")),
    "enable_custom_prng": (False, boolean),
    "allow_f16_reductions": (True, boolean),
    "allow_excess_precision": (True, boolean),  # bfloat16 as float32 inside kernels
    # JAX removed the 32-bit choice before 0.10; older scripts still use the flag.
    "default_dtype_bits": ("64", _one_of("64")),
    # How they run.
    "disable_jit": (False, boolean),
    "platforms": (None, _text),
    "platform_name": ("", _text),
    "num_cpu_devices": (-1, integer),
    "num_gpu_devices": (-1, integer),  # more than there are GPUs: several logical devices per GPU
    "cuda_visible_devices": ("all", _text),
    "cpu_enable_async_dispatch": (True, boolean),
    "cpu_collectives_implementation": ("gloo", _one_of(None, "gloo", "mpi", "megascale")),
    "disable_most_optimizations": (False, boolean),
    "optimization_level": ("UNKNOWN", _one_of(*_EFFORTS)),
    "memory_fitting_level": ("O2", _one_of(*_EFFORTS)),
    "exec_time_optimization_effort": (0.0, real),
    "memory_fitting_effort": (0.0, real),
    "use_shardy_partitioner": (True, boolean),
    "use_direct_linearize": (True, boolean),
    "use_magma": ("auto", _one_of("off", "on", "auto")),
    "threefry_gpu_kernel_lowering": (False, boolean),
    "compiler_enable_remat_pass": (True, boolean),
    "auto_pcast": (True, boolean),
    "eager_constant_folding": (False, boolean),
    "remove_size_one_mesh_axis_from_type": (False, boolean),
    # Checks.
    "checks": ("", check_names),
    "debug_nans": (False, boolean),
    "debug_infs": (False, boolean),
    "debug_key_reuse": (False, boolean),
    "check_tracer_leaks": (False, boolean),
    "check_static_indices": (False, boolean),
    "check_vma": (False, boolean),
    "enable_checks": (False, boolean),
    "error_checking_behavior_nan": ("ignore", _CHECKS),
    "error_checking_behavior_divide": ("ignore", _CHECKS),
    "error_checking_behavior_oob": ("ignore", _CHECKS),
    "transfer_guard": (None, _GUARDS),
    "transfer_guard_host_to_device": (None, _GUARDS),
    "transfer_guard_device_to_device": (None, _GUARDS),
    "transfer_guard_device_to_host": (None, _GUARDS),
    "array_garbage_collection_guard": (None, _one_of(None, "allow", "log", "fatal")),
    "thread_guard": (False, boolean),
    "no_tracing": (False, boolean),
    "no_execution": (False, boolean),
    "disable_bwd_checks": (False, boolean),
    "mutable_array_checks": (True, boolean),
    "disallow_mesh_context_manager": (False, boolean),
    "captured_constants_warn_bytes": (2_000_000_000, integer),
    "captured_constants_report_frames": (0, integer),
    # Reports.
    "log_compiles": (False, boolean),
    "log_checkpoint_residuals": (False, boolean),
    "explain_cache_misses": (False, boolean),
    "traceback_filtering": ("auto", _one_of(*_FILTERING)),
    "traceback_in_locations_limit": (100, integer),
    "include_full_tracebacks_in_locations": (True, boolean),
    "tracer_error_num_traceback_frames": (5, integer),
    "logging_level": ("NOTSET", _one_of(*_LEVELS)),
    "debug_log_modules": ("", _text),
    "pprint_use_color": (True, boolean),
    "distributed_debug": (False, boolean),
    "dump_ir_to": ("", _text),
    "dump_ir_modes": ("stablehlo", _text),
    "include_debug_info_in_dumps": (True, boolean),
    # The compilation cache.
    "enable_compilation_cache": (True, boolean),
    "compilation_cache_dir": (None, _text),
    "compilation_cache_max_size": (-1, integer),
    "compilation_cache_check_contents": (False, boolean),
    "compilation_cache_include_metadata_in_key": (False, boolean),
    "compilation_cache_expect_pgle": (False, boolean),
    "persistent_cache_min_compile_time_secs": (1.0, real),
    "persistent_cache_min_entry_size_bytes": (0, integer),
    "persistent_cache_enable_xla_caches": ("xla_gpu_per_fusion_autotune_cache_dir", _text),
    "raise_persistent_cache_errors": (False, boolean),
    # Modules, under Flax's names.
    "flax_filter_frames": (True, boolean),
    "flax_profile": (True, boolean),
    "flax_use_orbax_checkpointing": (True, boolean),
    "flax_preserve_adopted_names": (False, boolean),
    "flax_return_frozendict": (False, boolean),
    "flax_fix_rng_separator": (False, boolean),
}
