"""The options that can be set for a block: `with toile.debug_nans(True):`.

Each is a `State`, declared by a function without a body, which has its name, its documentation and
the type of its values. May import engine.config only.
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

    Results may have more digits with it, and large products on a GPU may be joined with the
    additions that follow them.

    Args:
        new_val: True, the default: a kernel rounds to bfloat16 only what it stores. False: every
            operation rounds its result, as it does when it runs alone.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def allow_f16_reductions(new_val: bool = True) -> None:
    """Accept JAX's option for sums of 16-bit floats that accumulate in 16 bits.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: True by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def array_garbage_collection_guard(new_val: Literal["allow", "log", "fatal"] | None) -> None:
    """Accept JAX's option for arrays that only the garbage collector can free.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: what JAX does about such an array: "allow", "log" or "fatal"; None by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def auto_pcast(new_val: bool = True) -> None:
    """Accept JAX's option for automatic casts between replicated and varying values.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: True by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def check_tracer_leaks(new_val: bool = True) -> None:
    """Raise an error when a traced value outlives the function that was traced.

    A traced value stands for an argument while `jit` or `vmap` runs a function. It must not be kept
    in a global, a list or an attribute. With the option on, `jit` and `vmap` look for such values
    when the function has returned. `grad` and `jvp` do not. The check takes time: the option is for
    debugging.

    Args:
        new_val: whether to check; False by default.

    Returns:
        A context manager, which can also decorate a function.

    >>> kept = []
    >>> with toile.check_tracer_leaks():
    ...     toile.jit(lambda x: kept.append(x))(1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    Exception: Leaked trace ...
    """


@State
def debug_infs(new_val: bool = True) -> None:
    """Raise FloatingPointError when a result has an infinity.

    Every result of an operation outside `jit`, and every result of a jitted function, is
    checked. If a jitted function has a bad result, it is run again operation by operation, and the
    error names the operation and the line.

    Args:
        new_val: whether to check; False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def debug_key_reuse(new_val: bool = True) -> None:
    """Raise KeyReuseError when a random key is used twice.

    Two samples drawn with the same key are not independent. Split the key before each use, or mark
    an intended second use with `toile.random.clone`. Keys made by `toile.random.key` are watched,
    keys made by `PRNGKey` are not.

    Args:
        new_val: whether to watch keys; False by default.

    Returns:
        A context manager, which can also decorate a function.

    >>> with toile.debug_key_reuse():
    ...     k = key(0)
    ...     x, y = toile.random.normal(k), toile.random.normal(k)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    toile.engine.errors.KeyReuseError: Previously-consumed key ...
    """


@State
def debug_nans(new_val: bool = True) -> None:
    """Raise FloatingPointError when a result has a NaN.

    Every result of an operation outside `jit`, and every result of a jitted function, is
    checked. If a jitted function has a bad result, it is run again operation by operation, and the
    error names the operation and the line. Making an array of NaNs is not an error; computing with
    it is.

    Args:
        new_val: whether to check; False by default.

    Returns:
        A context manager, which can also decorate a function.

    >>> with toile.debug_nans():
    ...     jnp.log(-1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FloatingPointError: invalid value (nan) encountered in log: ...
    """


@State
def default_device(new_val: Device | str | None) -> None:
    """Choose the device on which new arrays are made and functions run.

    Arrays that were put on a device (`toile.device_put(x, device)`) stay there, and functions run
    where such arguments are.

    Args:
        new_val: a device (`toile.devices("cpu")[0]`) or the name of a platform ("cpu", "gpu"),
            whose first device is used. None, the default: the first GPU if there is one, otherwise
            the CPU.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def default_matmul_precision(new_val: str | None) -> None:
    """Set the default precision of matrix products and convolutions.

    It matters for float32 operands on a GPU, where products by default round their operands to
    TF32, which has 11 bits. "highest" computes in float32. On a CPU, float32 products are always
    computed in float32. The option is read when a function is traced.

    Args:
        new_val: "default", "high" or "highest"; "bfloat16", "tensorfloat32" and "float32" are other
            names of the three. The name of an algorithm, such as "BF16_BF16_F32", also works. None,
            the default, is the same as "default".

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def default_prng_impl(new_val: str) -> None:
    """Set the default generator of random keys.

    `toile.random.key(seed)` and `PRNGKey(seed)` make keys of this generator, and raw uint32 keys
    are treated as keys of this generator.

    Args:
        new_val: name of the generator. "threefry2x32", the default, gives the same numbers on every
            device.

    Returns:
        A context manager, which can also decorate a function.

    >>> with toile.default_prng_impl("rbg"):
    ...     print(key(0).dtype)
    key<rbg>
    """


@State
def enable_checks(new_val: bool = True) -> None:
    """Accept JAX's option for internal consistency checks.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def enable_custom_prng(new_val: bool = True) -> None:
    """Let `toile.random.PRNGKey` return typed keys, as `toile.random.key` does.

    Raw uint32 keys still work under it, with a FutureWarning.

    Args:
        new_val: whether keys are typed; False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def enable_x64(new_val: bool = True) -> None:
    """Allow 64-bit integers, floats and complex numbers, and make them the default.

    Args:
        new_val: False, the default: int64 and float64 are replaced by int32 and float32. True: they
            are kept, and Python numbers become 64-bit arrays.

    Returns:
        A context manager, which can also decorate a function.

    >>> jnp.arange(3).dtype
    dtype('int32')
    >>> with toile.enable_x64():
    ...     jnp.arange(3).dtype
    dtype('int64')
    """


@State
def error_checking_behavior_divide(new_val: Literal["ignore", "raise"]) -> None:
    """Accept JAX's option for errors about divisions by zero.

    It is accepted so that programs written for JAX run, and has no effect in toile.
    `toile.experimental.checkify` finds such errors.

    Args:
        new_val: "ignore", the default, or "raise".

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def error_checking_behavior_nan(new_val: Literal["ignore", "raise"]) -> None:
    """Accept JAX's option for errors about NaNs.

    It is accepted so that programs written for JAX run, and has no effect in toile.
    `toile.experimental.checkify` finds such errors.

    Args:
        new_val: "ignore", the default, or "raise".

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def error_checking_behavior_oob(new_val: Literal["ignore", "raise"]) -> None:
    """Accept JAX's option for errors about indices that are out of bounds.

    It is accepted so that programs written for JAX run, and has no effect in toile.
    `toile.experimental.checkify` finds such errors.

    Args:
        new_val: "ignore", the default, or "raise".

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def explain_cache_misses(new_val: bool = True) -> None:
    """Log why a jitted function is traced again.

    Each trace is logged to the logger "toile" as a warning, with what differs from the most similar
    earlier call: shapes, dtypes, static arguments, options.

    Args:
        new_val: whether to log; False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def explicit_x64_dtypes(new_val: Literal["warn", "error", "allow"]) -> None:
    """Choose what happens when a 64-bit dtype is requested while `enable_x64` is off.

    Args:
        new_val: "warn", the default: a 32-bit array is made, with a UserWarning. "error": a
            ValueError is raised. "allow": the 64-bit array is made.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def legacy_prng_key(new_val: Literal["allow", "warn", "error"]) -> None:
    """Choose what happens when a raw uint32 array is used as a random key.

    Raw keys are made by `toile.random.PRNGKey`, typed keys by `toile.random.key`.

    Args:
        new_val: "allow", the default; "warn": a UserWarning is given; "error": a ValueError is
            raised.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def log_compiles(new_val: bool = True) -> None:
    """Log each time a jitted function is traced and compiled.

    The name of the function, the time of tracing, the cause, and the shapes and dtypes of the
    arguments are logged to the logger "toile" as warnings.

    Args:
        new_val: whether to log; False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def no_execution(new_val: bool = True) -> None:
    """Raise RuntimeError when a jitted function would run.

    Tracing, `lower` and `eval_shape` still work, and so do operations outside `jit`.

    Args:
        new_val: whether to raise; False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def no_tracing(new_val: bool = True) -> None:
    """Raise RuntimeError when a jitted function would be traced.

    It makes sure that a program no longer compiles anything, for example after its first step.
    Calls with arguments of shapes and dtypes that were seen before still run.

    Args:
        new_val: whether to raise; False by default.

    Returns:
        A context manager, which can also decorate a function.

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
    """Choose whether operands of different dtypes are converted to a common one.

    Args:
        new_val: "standard", the default: they are. "strict": they raise TypePromotionError. Python
            numbers still combine with arrays where that does not change the dtype of the array.

    Returns:
        A context manager, which can also decorate a function.

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
        new_val: "allow", the default; "warn": a UserWarning is given; "raise": a ValueError is
            raised.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def remove_size_one_mesh_axis_from_type(new_val: bool = True) -> None:
    """Accept JAX's option for mesh axes of size 1 in the types of arrays.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def softmax_custom_jvp(new_val: bool = True) -> None:
    """Accept JAX's option for the derivative rule of softmax.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def thread_guard(new_val: bool = True) -> None:
    """Accept JAX's option for arrays that several threads use.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: False by default.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def threefry_partitionable(new_val: bool = True) -> None:
    """Choose how random bits are laid out in an array by the threefry2x32 generator.

    Args:
        new_val: True, the default: each element depends only on the key and its position, so that
            each device can make its part independently. False: the layout of JAX before 0.5, which
            gives other numbers for the same key.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def transfer_guard(new_val: str | None) -> None:
    """Accept JAX's option for copies of arrays between host and devices.

    It is accepted so that programs written for JAX run, and has no effect in toile. It also sets
    the options of the three directions.

    Args:
        new_val: what JAX does about a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; None, the default, allows it.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def transfer_guard_device_to_device(new_val: str | None) -> None:
    """Accept JAX's option for copies of arrays from one device to another.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: what JAX does about a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; None, the default, allows it.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def transfer_guard_device_to_host(new_val: str | None) -> None:
    """Accept JAX's option for copies of arrays from a device to the host.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: what JAX does about a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; None, the default, allows it.

    Returns:
        A context manager, which can also decorate a function.
    """


@State
def transfer_guard_host_to_device(new_val: str | None) -> None:
    """Accept JAX's option for copies of arrays from the host to a device.

    It is accepted so that programs written for JAX run, and has no effect in toile.

    Args:
        new_val: what JAX does about a copy: "allow", "log", "disallow", "log_explicit" or
            "disallow_explicit"; None, the default, allows it.

    Returns:
        A context manager, which can also decorate a function.
    """


def disable_jit(disable: bool = True) -> Override:
    """Run jitted functions operation by operation, so that a debugger or print shows their values.

    Loops and conditionals of `toile.lax` then run as Python loops and conditionals, too.

    Args:
        disable: True to run without `jit`; False to compile inside a block that disables it.

    Returns:
        A context manager, which can also decorate a function.

    >>> @toile.jit
    ... def f(x):
    ...     return x if x > 0 else -x  # jit cannot decide this: x has no value
    >>> with toile.disable_jit():
    ...     f(-1.0)
    1.0
    """
    return Override({"disable_jit": boolean("disable_jit", disable)})


def checking_leaks() -> Override:
    """Raise an error when a traced value outlives its function: `check_tracer_leaks(True)`.

    Returns:
        A context manager, which can also decorate a function.
    """
    return check_tracer_leaks(True)
