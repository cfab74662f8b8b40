"""The options that can be set for a block: `with toile.debug_nans(True):`.

Each option is a `State`, declared by a function without a body that provides its name, its
documentation and the type of its values. This module may import only engine.config, engine.devices
and engine.flag_table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from toile.engine.config import Override, State
from toile.engine.flag_table import boolean

if TYPE_CHECKING:
    from toile.engine.devices import Device


@State
def allow_excess_precision(new_val: bool = True) -> None:
    """Let kernels keep bfloat16 values in float32 between operations.

    Results may then be more accurate, and large matrix products on a GPU may be fused with the
    additions that follow them.

    Args:
        new_val: if True (the default), only the values that a kernel stores are rounded to
            bfloat16. If False, every operation rounds its result, as operations outside `jit` do.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def allow_f16_reductions(new_val: bool = True) -> None:
    """A JAX option that is accepted and has no effect: 16-bit accumulation of sums.

    The option exists for compatibility with JAX. It concerns sums of 16-bit floats.

    Args:
        new_val: value of the option, which is ignored; True by default.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def array_garbage_collection_guard(new_val: Literal["allow", "log", "fatal"] | None) -> None:
    """A JAX option that is accepted and has no effect: a guard against reference cycles.

    The option exists for compatibility with JAX. It concerns arrays that only the garbage collector
    can free.

    Args:
        new_val: how JAX treats such an array: "allow", "log" or "fatal"; None by default.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def auto_pcast(new_val: bool = True) -> None:
    """A JAX option that is accepted and has no effect: automatic casts of replicated values.

    The option exists for compatibility with JAX.

    Args:
        new_val: value of the option, which is ignored; True by default.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def check_tracer_leaks(new_val: bool = True) -> None:
    """Raise an error when a traced value outlives the function that was traced.

    A traced value represents an argument while `jit` or `vmap` runs a function. It must not be kept
    in a global variable, a list or an attribute. With this option, `jit` and `vmap` look for traced
    values that still exist after the function has returned; `grad` and `jvp` do not. The check
    takes time, so use the option only for debugging.

    Args:
        new_val: whether to check. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> kept = []
    >>> with toile.check_tracer_leaks():
    ...     toile.jit(lambda x: kept.append(x))(1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    Exception: Leaked trace ...
    """


@State
def debug_infs(new_val: bool = True) -> None:
    """Raise FloatingPointError when a result contains an infinity.

    Every result of an operation outside `jit`, and every result of a jitted function, is checked.
    If a jitted function returns an infinity, the function is run again operation by operation, and
    the error names the operation and the line that produced the infinity.

    Args:
        new_val: whether to check. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def debug_key_reuse(new_val: bool = True) -> None:
    """Raise KeyReuseError when a random key is used twice.

    Two samples drawn with the same key are not independent. Split the key before each use, or mark
    an intended second use with `toile.random.clone`. Only keys created by `toile.random.key` are
    checked, not keys created by `PRNGKey`.

    Args:
        new_val: whether to check keys. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> with toile.debug_key_reuse():
    ...     k = key(0)
    ...     x, y = toile.random.normal(k), toile.random.normal(k)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    toile.engine.errors.KeyReuseError: Previously-consumed key ...
    """


@State
def debug_nans(new_val: bool = True) -> None:
    """Raise FloatingPointError when a result contains a NaN.

    Every result of an operation outside `jit`, and every result of a jitted function, is checked.
    If a jitted function returns a NaN, the function is run again operation by operation, and the
    error names the operation and the line that produced the NaN. Creating an array of NaNs is not
    an error, but computing with such an array is an error.

    Args:
        new_val: whether to check. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> with toile.debug_nans():
    ...     jnp.log(-1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FloatingPointError: invalid value (nan) encountered in log: ...
    """


@State
def default_device(new_val: Device | str | None) -> None:
    """Choose the device on which new arrays are created and functions run.

    Arrays that were put on a device with `toile.device_put(x, device)` stay there, and functions
    that are called with such arrays run on that device.

    Args:
        new_val: a device, such as `toile.devices("cpu")[0]`, or the name of a platform ("cpu" or
            "gpu"), which selects the platform's first device. By default, the device is the first
            GPU if there is one, and otherwise the CPU.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def default_matmul_precision(new_val: str | None) -> None:
    """Set the default precision of matrix products and convolutions.

    The option affects float32 operands on a GPU. By default, the GPU rounds these operands to TF32,
    which has 11 significant bits; with "highest", it computes in float32. On a CPU, float32
    operands are always multiplied in float32. The option is read when a function is traced.

    Args:
        new_val: "default", "high" or "highest"; one of the alternative names "bfloat16",
            "tensorfloat32" and "float32"; or the name of an algorithm, such as "BF16_BF16_F32".
            None, the initial value, has the same effect as "default".

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def default_prng_impl(new_val: str) -> None:
    """Set the default random number generator.

    `toile.random.key(seed)` and `PRNGKey(seed)` create keys for this generator, and raw uint32 keys
    are also treated as keys for it.

    Args:
        new_val: name of the generator. The default, "threefry2x32", produces the same numbers on
            every device.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> with toile.default_prng_impl("rbg"):
    ...     print(key(0).dtype)
    key<rbg>
    """


@State
def enable_checks(new_val: bool = True) -> None:
    """A JAX option that is accepted and has no effect: internal consistency checks.

    The option exists for compatibility with JAX.

    Args:
        new_val: value of the option, which is ignored; initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def enable_custom_prng(new_val: bool = True) -> None:
    """Let `toile.random.PRNGKey` return typed keys, as `toile.random.key` does.

    Raw uint32 keys still work, but cause a FutureWarning.

    Args:
        new_val: whether keys are typed. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def enable_x64(new_val: bool = True) -> None:
    """Allow 64-bit integers, floats and complex numbers, and make them the default.

    Args:
        new_val: if False (the initial value), int64 and float64 are replaced by int32 and float32.
            If True, they are kept, and Python numbers become 64-bit arrays.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> jnp.arange(3).dtype
    dtype('int32')
    >>> with toile.enable_x64():
    ...     jnp.arange(3).dtype
    dtype('int64')
    """


@State
def error_checking_behavior_divide(new_val: Literal["ignore", "raise"]) -> None:
    """A JAX option that is accepted and has no effect: errors about divisions by zero.

    The option exists for compatibility with JAX. `toile.experimental.checkify` finds such errors.

    Args:
        new_val: value of the option: "ignore" (the default) or "raise".

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def error_checking_behavior_nan(new_val: Literal["ignore", "raise"]) -> None:
    """A JAX option that is accepted and has no effect: errors about NaNs.

    The option exists for compatibility with JAX. `toile.experimental.checkify` finds such errors.

    Args:
        new_val: value of the option: "ignore" (the default) or "raise".

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def error_checking_behavior_oob(new_val: Literal["ignore", "raise"]) -> None:
    """A JAX option that is accepted and has no effect: errors about indices that are out of bounds.

    The option exists for compatibility with JAX. `toile.experimental.checkify` finds such errors.

    Args:
        new_val: value of the option: "ignore" (the default) or "raise".

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def explain_cache_misses(new_val: bool = True) -> None:
    """Log why a jitted function is traced again.

    Each trace is logged as a warning by the logger "toile". The message says how the call differs
    from the most similar earlier call: in shapes, dtypes, static arguments or options.

    Args:
        new_val: whether to log. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def explicit_x64_dtypes(new_val: Literal["warn", "error", "allow"]) -> None:
    """Choose what happens when a 64-bit dtype is requested while `enable_x64` is off.

    Args:
        new_val: "warn", the default, creates a 32-bit array and issues a UserWarning; "error"
            raises a ValueError; "allow" creates a 64-bit array.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def legacy_prng_key(new_val: Literal["allow", "warn", "error"]) -> None:
    """Choose what happens when a raw uint32 array is used as a random key.

    `toile.random.PRNGKey` creates raw keys, and `toile.random.key` creates typed keys.

    Args:
        new_val: "allow", the default, accepts the key; "warn" issues a UserWarning; "error" raises
            a ValueError.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def log_compiles(new_val: bool = True) -> None:
    """Log a message each time a jitted function is traced and compiled.

    The message contains the name of the function, the time that tracing took, the reason for
    tracing, and the shapes and dtypes of the arguments. It is sent to the logger "toile" as a
    warning.

    Args:
        new_val: whether to log. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def no_execution(new_val: bool = True) -> None:
    """Raise RuntimeError instead of running a jitted function.

    Tracing, `lower` and `eval_shape` still work, and so do operations outside `jit`.

    Args:
        new_val: whether to raise. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def no_tracing(new_val: bool = True) -> None:
    """Raise RuntimeError instead of tracing a jitted function.

    Use this option to make sure that a program does not compile anything after, for example, its
    first step. A call still runs if the function was already traced for arguments with the same
    shapes and dtypes.

    Args:
        new_val: whether to raise. The option is initially False.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> f = toile.jit(lambda x: 2 * x)
    >>> print(f(jnp.arange(3)))
    [0 2 4]
    >>> with toile.no_tracing():
    ...     print(f(jnp.arange(3, 6)))
    [ 6  8 10]
    >>> with toile.no_tracing():
    ...     f(jnp.arange(4))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: re-tracing function <lambda> for `jit`, but 'no_tracing' is set...
    """


@State
def numpy_dtype_promotion(new_val: Literal["standard", "strict"]) -> None:
    """Choose whether operands of different dtypes are converted to a common dtype.

    Args:
        new_val: "standard", the default, converts the operands; "strict" raises TypePromotionError.
            With "strict", a Python number can still be combined with an array if this does not
            change the array's dtype.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> with toile.numpy_dtype_promotion("strict"):
    ...     jnp.ones(2) + 1
    Array([2., 2.], dtype=float32)
    >>> with toile.numpy_dtype_promotion("strict"):
    ...     jnp.ones(2) + jnp.arange(2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    toile.engine.promotion.TypePromotionError: Input dtypes ('float32', 'int32') have no ...
    """


@State
def numpy_rank_promotion(new_val: Literal["allow", "warn", "raise"]) -> None:
    """Choose what happens when operands with different numbers of axes are broadcast.

    Combining arrays of shapes (3,) and (2, 3) is often a mistake. Numbers and arrays without axes
    are always accepted.

    Args:
        new_val: "allow", the default, broadcasts the operands; "warn" issues a UserWarning; "raise"
            raises a ValueError.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def remove_size_one_mesh_axis_from_type(new_val: bool = True) -> None:
    """A JAX option that is accepted and has no effect: removal of mesh axes from types.

    The option exists for compatibility with JAX. It concerns mesh axes of size 1.

    Args:
        new_val: value of the option, which is ignored; initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def softmax_custom_jvp(new_val: bool = True) -> None:
    """A JAX option that is accepted and has no effect: a custom derivative rule for softmax.

    The option exists for compatibility with JAX.

    Args:
        new_val: value of the option, which is ignored; initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def thread_guard(new_val: bool = True) -> None:
    """A JAX option that is accepted and has no effect: a guard against arrays shared by threads.

    The option exists for compatibility with JAX.

    Args:
        new_val: value of the option, which is ignored; initially False.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def threefry_partitionable(new_val: bool = True) -> None:
    """Choose how the generator threefry2x32 assigns random bits to the elements of an array.

    Args:
        new_val: if True (the default), each element depends only on the key and on the element's
            position, so each device can generate its part of the array independently. If False,
            bits are assigned as in JAX before version 0.5, which produces different numbers for the
            same key.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def transfer_guard(new_val: str | None) -> None:
    """A JAX option that is accepted and has no effect: a guard against copies to other devices.

    The option exists for compatibility with JAX. It applies to copies between the host and devices
    in all directions: setting it also sets the three options for the individual directions.

    Args:
        new_val: how JAX treats a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; by default, the copy is allowed.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def transfer_guard_device_to_device(new_val: str | None) -> None:
    """A JAX option that is accepted and has no effect: a guard against copies between devices.

    The option exists for compatibility with JAX.

    Args:
        new_val: how JAX treats a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; by default, the copy is allowed.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def transfer_guard_device_to_host(new_val: str | None) -> None:
    """A JAX option that is accepted and has no effect: a guard against copies to the host.

    The option exists for compatibility with JAX.

    Args:
        new_val: how JAX treats a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; by default, the copy is allowed.

    Returns:
        A context manager, which can also be used as a decorator.
    """


@State
def transfer_guard_host_to_device(new_val: str | None) -> None:
    """A JAX option that is accepted and has no effect: a guard against copies from the host.

    The option exists for compatibility with JAX.

    Args:
        new_val: how JAX treats a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; by default, the copy is allowed.

    Returns:
        A context manager, which can also be used as a decorator.
    """


def disable_jit(disable: bool = True) -> Override:
    """Run jitted functions operation by operation, so that a debugger or `print` shows values.

    The loops and conditionals in `toile.lax` also run as Python loops and conditionals.

    Args:
        disable: True to run functions without `jit`; False to use `jit` inside a block in which
            `jit` is disabled.

    Returns:
        A context manager, which can also be used as a decorator.

    >>> @toile.jit
    ... def f(x):
    ...     return x if x > 0 else -x  # under jit, x has no value
    >>> with toile.disable_jit():
    ...     f(-1.0)
    1.0
    """
    return Override({"disable_jit": boolean("disable_jit", disable)})


def checking_leaks() -> Override:
    """Raise an error when a traced value outlives its function, as `check_tracer_leaks(True)` does.

    Returns:
        A context manager, which can also be used as a decorator.
    """
    return check_tracer_leaks(True)
