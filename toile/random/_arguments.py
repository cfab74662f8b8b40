"""Argument handling shared by the samplers: keys, shapes, dtypes and parameters.

`placed` divides the results of samplers according to their argument `out_sharding`.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import math
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api.devices import device_put
from toile.engine import dtypes
from toile.engine import trace as tracing
from toile.engine.arrays import Array, DeviceArray, KeyArray
from toile.engine.check_switch import keys_checked
from toile.engine.config import flags
from toile.engine.conversion import wrap
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.source import here
from toile.numpy._axes import canonicalize_shape
from toile.numpy._operands import check_arraylike as check_arraylike
from toile.primitives.arrays import special
from toile.primitives.random import random_clone, random_wrap
from toile.primitives.special import fused_multiply_add
from toile.random.generators import GENERATOR, random_split
from toile.staging.jit import PjitFunction

convert: Callable[..., Array] = lax.convert_element_type
Shape = tuple[int, ...]
F = TypeVar("F", bound=Callable[..., Any])
Sampling = tuple[Array, Shape, np.dtype[Any]]  # key, shape and dtype of a sampler, checked


def wrapped_key(name: str, key: Any, batched: bool = False) -> tuple[Array, bool]:
    """`key` as typed keys, and whether it was given as raw uint32 words."""
    if isinstance(key, Array) and isinstance(key.dtype, dtypes.KeyDType):
        typed, raw = key, False
    else:
        typed, raw = random_wrap(_key_words(name, key)), True
        if flags.legacy_prng_key != "allow" or flags.enable_custom_prng:
            _report_raw_key(flags.legacy_prng_key)
    if typed.shape and not batched:
        raise ValueError(
            f"{name} accepts a single key, but was given a key array of shape {typed.shape} != () "
            "(use vmap for a batch of keys)" + here())
    return typed, raw


def one_key(name: str, key: Any) -> Array:
    """`key` as a single typed key."""
    return wrapped_key(name, key)[0]


def _key_words(name, key):
    """The words of a raw key, after a check of their dtype and shape."""
    if isinstance(key, (list, tuple, str)) or key is None or not hasattr(key, "dtype"):
        raise TypeError(f"{name}: needed a random key, got {type(key).__name__} (make one with "
                        f"toile.random.key, and pass it first){here()}")
    count = key_words(flags.default_prng_impl)
    if key.dtype != np.uint32 or key.ndim < 1 or key.shape[-1] != count:
        raise TypeError(
            f"JAX encountered invalid PRNG key data: {name} needed a key made by random.key or "
            f"uint32 words of shape (..., {count}), got "
            f"{key.dtype} of shape {tuple(key.shape)}{here()}")
    return key if isinstance(key, Array) else jnp.asarray(key)


def key_words(impl):
    """The number of words in a key of the named generator."""
    return dtypes.key_words(dtypes.key_dtype(impl))


def _report_raw_key(mode):
    """Raise or warn about a raw key, depending on the flags."""
    text = ("Legacy uint32 key array passed as key to jax.random function: needed a key made by "
            'random.key (or set jax_legacy_prng_key="allow")')
    if mode == "error":
        raise ValueError(text + here())
    if mode == "warn":
        warnings.warn(text, stacklevel=4)
    else:
        warnings.warn("Raw arrays as random keys to jax.random functions are deprecated: they are "
                      f"treated as {flags.default_prng_impl} keys", FutureWarning, stacklevel=4)


def split_key(key, num=2):
    """A list of `num` new keys from a typed key; for an array of keys, a list of arrays."""
    keys = random_split(key, (num,))
    if key.ndim:
        return [keys[..., i] for i in range(num)]
    return list(keys)


def reused(keys):
    """Typed keys that may be used again; under `debug_key_reuse`, they are clones."""
    return random_clone(keys) if keys_checked() else keys


def renewed_where(which, new, keys):
    """`keys`, replaced with the new keys split from them where a loop continues."""
    return reused(jnp.where(which, new, reused(keys)))


def canonical_shape(shape: Any) -> Shape:
    """`shape` as a tuple of Python integers."""
    if type(shape) is not tuple:
        shape = tuple(shape) if np.ndim(shape) else (shape,)
    if any(type(n) is int and n < 0 for n in shape):
        raise ValueError(f"shape: needed non-negative sizes, got {shape}{here()}")
    return canonicalize_shape(shape, "sample")


def check_shape(name, shape, *parameter_shapes):
    """Raise unless the parameters broadcast to exactly `shape`."""
    if not parameter_shapes:
        return
    joint = lax.broadcast_shapes(shape, *parameter_shapes)
    if shape != joint:
        raise ValueError(
            f"{name} parameter shapes must be broadcast-compatible with shape argument, and the "
            f"result of broadcasting the shapes must equal the shape argument, but got result "
            f"{joint} for shape argument {shape}.{here()}")


def joint_shape(name: str, shape: Any, *parameters: Any) -> Shape:
    """`shape`, checked against the parameters; if it is None, the shape that they broadcast to."""
    shapes = [np.shape(p) for p in parameters]
    if shape is None:
        return lax.broadcast_shapes(*shapes)
    shape = canonical_shape(shape)
    check_shape(name, shape, *shapes)
    return shape


_FLOATS = {np.float32: np.dtype("float32")}  # exact scalar types that need no further check


def float_dtype(name: str, dtype: Any, allow_complex: bool = False) -> np.dtype[Any]:
    """The requested floating-point dtype; if None, float32, or float64 under x64."""
    if dtype is None:
        return dtypes.default_float_dtype()
    if type(dtype) is type and dtype in _FLOATS:
        return _FLOATS[dtype]
    dtype = dtypes.check_user_dtype_supported(dtype, name)
    if not dtypes.issubdtype(dtype, np.inexact if allow_complex else np.floating):
        kind = "float or complex" if allow_complex else "float"
        raise ValueError(f"dtype argument to `{name}` must be a {kind} dtype, got {dtype}{here()}")
    return dtype


def any_dtype(name: str, dtype: Any, default: Any) -> np.dtype[Any]:
    """The requested dtype, or the default for Python type `default`."""
    return dtypes.check_user_dtype_supported(default if dtype is None else dtype, name)


def check_castable(name, dtype, *parameters):
    """Raise if promoting a parameter with `dtype` would result in another dtype."""
    for p in parameters:
        if not dtypes.safe_to_cast(p, dtype):
            raise dtypes.TypePromotionError(
                f"In arguments to {name}, cannot safely cast argument of type "
                f"{jnp.asarray(p).dtype} to {dtype}")


def inexact(*xs: Any) -> list[Array]:
    """The arguments as arrays, promoted together to a floating-point dtype."""
    dtype, weak = dtypes.lattice_result_type(*xs)
    dtype = dtypes.default_float_dtype() if weak else dtypes.to_inexact_dtype(dtype)
    return [jnp.asarray(x, dtype=dtype) for x in xs]


def to_rank(x: Array, rank: int) -> Array:
    """`x` with leading axes of size 1 added up to the given rank; scalars stay unchanged."""
    missing = rank - x.ndim
    return lax.expand_dims(x, tuple(range(missing))) if x.ndim and missing > 0 else x


def spread(x: Any, shape: Shape, dtype: Any) -> Array:
    """Parameter `x` in `dtype`, broadcast to `shape`."""
    return jnp.broadcast_to(convert(x, dtype), shape)


def sampling(name: str, key: Any, shape: Any, dtype: Any, *, default: Any = None,
             allow_complex: bool = False) -> Sampling:
    """The checked key, shape and dtype of a sampler without parameters.

    The dtype must be floating, unless a Python type is given as the `default`."""
    key = one_key(name, key)
    dtype = any_dtype(name, dtype, default) if default else float_dtype(name, dtype, allow_complex)
    shape = canonical_shape(shape)
    return key, shape, dtype


def sampling_with(name: str, key: Any, shape: Any, dtype: Any, *parameters: Any,
                  allow_complex: bool = False) -> Sampling:
    """The checked key, shape and float dtype of a sampler with parameters that broadcast."""
    key, dtype = one_key(name, key), float_dtype(name, dtype, allow_complex)
    shape = joint_shape(name, shape, *parameters)
    check_castable(name, dtype, *parameters)
    return key, shape, dtype


def placed(sampler: F) -> F:
    """A sampler whose result is divided according to `out_sharding`."""

    @functools.wraps(sampler)
    def sample(*args: Any, out_sharding: Any = None, **kwargs: Any) -> Any:
        if out_sharding is None:
            return sampler(*args, **kwargs)
        check_sharding(sampler.__name__, out_sharding)
        return device_put(sampler(*args, **kwargs), out_sharding)

    return cast(F, sample)


def check_sharding(name, out_sharding):
    """Accept None, a sharding or a partition spec."""
    if out_sharding is None or hasattr(out_sharding, "spec") or isinstance(out_sharding, tuple) \
            or hasattr(out_sharding, "device_set") or hasattr(out_sharding, "partitions"):
        return
    raise TypeError(f"{name}: needed a sharding or a partition spec as out_sharding, got "
                    f"{out_sharding!r}{here()}")


def fused(a, b, c):
    """a * b + c with a single rounding, as in XLA, so that results agree with it bit for bit.

    If the processor does not support a 16-bit float type, XLA computes in float32 and also rounds
    the product. `reduce_precision` does this rounding in compiled loops, which would round later.
    """
    if a.dtype == dtypes.bfloat16:
        return stepwise(stepwise(a * b) + c)
    if a.dtype == np.float16 and not float16_is_native():
        return lax.reduce_precision(lax.reduce_precision(a * b, 5, 10) + c, 5, 10)
    shape = jnp.broadcast_shapes(a.shape, b.shape, c.shape)
    return fused_multiply_add(
        *[x if x.shape in ((), shape) else jnp.broadcast_to(x, shape) for x in (a, b, c)]
    )


@functools.cache
def float16_is_native():
    """Whether this processor computes in float16 natively, not in float32 with conversions."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return _arm_has_float16()
    from llvmlite import binding

    return binding.get_host_cpu_features().get("avx512fp16", False)


def _arm_has_float16():
    """The same for an Arm processor. LLVM does not list this feature of the host; Linux does."""
    if sys.platform != "linux":
        return True  # all of Apple's, and all but the first that ran Windows
    hardware_capabilities, half_precision_vectors = 16, 1 << 10
    ask = ctypes.CDLL(None).getauxval
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(ask(hardware_capabilities) & half_precision_vectors)


def stepwise(x):
    """`x`, rounded at this step if it is bfloat16, as in XLA; compiled loops would round later."""
    return lax.reduce_precision(x, 8, 7) if x.dtype == dtypes.bfloat16 else x


# More numbers than these are drawn by a compiled function, fewer by NumPy: tracing takes longer.
MANY = 1 << 18


def compiled_if_many(fun, only=()):
    """Compile a function `fun(key, shape, ...)` if it draws many numbers outside `jit`.

    A single kernel then draws the numbers, on all cores or on a GPU, and the results are the
    same bit for bit. The arguments after `shape` must be dtypes or numbers; if one of them is an
    array, nothing is compiled here. `only` lists the dtypes for which NumPy's results equal the
    results of compiled code to the last bit; if `only` is empty, this is true for all dtypes."""
    count = len(inspect.signature(fun).parameters)
    jitted = PjitFunction(fun, {"static_argnums": tuple(range(1, count))})

    @functools.wraps(fun)
    def draw(key, shape, *rest):
        if math.prod(shape) > MANY and concrete_words(key) is not None:
            same = not only or rest[0].name in only
            if same and not keys_checked() and all(map(_is_fixed, rest)):
                return jitted(key, shape, *rest)
        return fun(key, shape, *rest)

    return draw


def _is_fixed(x):
    """Whether `x` is a dtype, or a number other than -0.0, which compares equal to 0.0."""
    if isinstance(x, (int, float, np.integer, np.floating)):
        return bool(x != 0 or not np.signbit(x))
    return isinstance(x, np.dtype)


def concrete_words(key):
    """The NumPy words of Threefry keys if nothing is being traced, else None.

    The result is also None with the older counter layout, which the functions on words do not
    support."""
    if type(key) is KeyArray and tracing.state.trace is None and type(key._data) is np.ndarray:
        usual = key.dtype.impl.name == GENERATOR and flags.threefry_partitionable
        return key._data if usual else None
    return None


def _on_concrete(dtype, kernel, otherwise):
    """A function: `kernel(np, data)` for concrete arrays of `dtype`, `otherwise(x)` for others."""

    def apply(x):
        if type(x) is DeviceArray and tracing.state.trace is None and x.dtype == dtype \
                and type(x._data) is np.ndarray:
            token = ignore_errors()
            try:
                return wrap(kernel(np, x._data))
            finally:
                restore_errors(token)
        return otherwise(x)

    return apply


# The natural logarithm for samplers. For float32 it takes the same steps as XLA's; NumPy's differs
# in the last bit, which -log(-log(u)) magnifies near zero. Only concrete arrays take this path,
# because compiled programs have their own logarithm. The exponential function of float32 is rounded
# once, because NumPy's is off by up to three units in the last place on some processors. The bounds
# of a truncated normal need XLA's float64 erf to the bit, since their difference may cancel.
log = _on_concrete(np.float32, special.log, lax.log)
exp = _on_concrete(np.float32, special.exp, lax.exp)
erf = _on_concrete(np.float64, special.erf_by_element, lax.erf)

# log(1 + r) = r + r² P(r) / Q(r) for sqrt(1/2) < 1 + r <= sqrt(2), leading coefficients first: what
# XLA's CPU compiler computes where it leaves a logarithm and the reduction after it to YNNPACK. The
# float32 coefficients are those of jax 0.12; before, the last bit differed in one of 16 cases.
_LOG_RATIO = {
    4: ((-5.4032374173e-03, -3.3338883519e-01, -4.9999994040e-01),
        (3.9975959063e-01, 1.3334366083e00, 1.0)),
    8: ((-2.956046447212538203e-03, -6.691314126082094360e-02, -4.289980732181625789e-01,
         -1.110965361416291097e00, -1.242991301338429500e00, -4.999999999999990008e-01),
        (3.009181610003072455e-03, 7.942469932969810353e-02, 6.369060590899747742e-01,
         2.230802780023532605e00, 3.823696902394678077e00, 3.152649269343555716e00, 1.0)),
}


def log_by_ratio(x):
    """The logarithm of float32 or float64 by a quotient of polynomials."""
    number = x.dtype.type
    m, e = jnp.frexp(x)  # x = m 2**e with m in [1/2, 1)
    high = m > number(np.sqrt(2)) * number(0.5)
    r = jnp.where(high, m, m + m) - number(1)
    e = convert(jnp.where(high, e, e - 1), x.dtype)
    r2 = r * r
    above, below = (_even_odd(table, r, r2) for table in _LOG_RATIO[x.dtype.itemsize])
    y = fused(e, number(np.log(2)), fused(r2, above / below, r))
    return jnp.where((x > 0) & (x < np.inf), y, lax.log(x))


def _even_odd(table, x, x2):
    """A polynomial by Horner's rule in x², separately for the even and the odd coefficients."""
    table = [x.dtype.type(c) for c in table]
    parts = [table[0], table[1]]
    for i, c in enumerate(table[2:]):
        parts[i % 2] = fused(x2, parts[i % 2], c)
    even, odd = parts if len(table) % 2 else parts[::-1]
    return fused(x, odd, even)


# XLA's float32 1/sqrt(x) on x86-64 refines the processor's estimate by Newton's method.
_NEWTON = platform.machine().lower() in ("x86_64", "amd64")


def rsqrt(x, newton=_NEWTON):
    """1 / sqrt(x) with the rounding of XLA on this kind of processor.

    Where 1 + x / sqrt(9 d) is near zero, its last bit is magnified. The last step of Newton's
    method determines that bit, almost independently of the starting estimate."""
    y = lax.rsqrt(x)
    if not newton or x.dtype != np.float32:
        return y
    half, one = np.float32(0.5), np.float32(1)
    residual = fused(x * y, y, jnp.full_like(x, -one))
    return fused(y * -half, residual, y)


def divide(x, y):
    """x / y as XLA computes it: with the reciprocal of y if y is broadcast."""
    if y.size < x.size:
        return x * (y.dtype.type(1) / y)
    return x / y


def concrete(name: str, kind: Any, x: Any) -> Any:
    """`x` as a Python number; if it is traced, raise an error that names the argument."""
    try:
        return kind(x)
    except TypeError as error:
        raise type(error)(f"{name}: {error}") from None

