"""The errors of tracing; each docstring shows a broken and a repaired program.

Messages say what was needed, what was given, where in the user's program it happened, and what to
do, in at most 15 lines. `toile.errors` is the public module. The programs assume `import toile`,
`import toile.numpy as jnp`, `import numpy as np`, `from toile import lax, random` and
`from functools import partial`; tests run them. This module may import only engine.source and
engine.tracebacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.source import describe, here
from toile.engine.tracebacks import expect_error


class ToileError(Exception):
    """Base class of the errors that exist in toile but not in JAX.

    Broken::

        lax.add(jnp.ones(3), jnp.ones(4))

    Repaired::

        lax.add(jnp.ones(3), jnp.ones(3))
    """


class UnreadableFileError(ToileError, ValueError):
    """A file or a bytes object cannot be read because it is damaged or has a different format.

    toile's file readers report invalid contents with this error, except that a checkpoint whose
    checksum is wrong causes a `CorruptedCheckpointError`. Errors from the operating system, for
    example for a missing file or a missing permission, are passed on unchanged.
    `UnreadableFileError` is also a ValueError.

    Broken::

        from toile import serialization

        data = serialization.to_bytes({"w": jnp.ones(3)})
        serialization.msgpack_restore(data[:-1])

    Repaired::

        from toile import serialization

        data = serialization.to_bytes({"w": jnp.ones(3)})
        serialization.msgpack_restore(data)
    """


class JAXTypeError(TypeError):
    """A TypeError that comes from tracing rather than from Python itself.

    Broken::

        toile.jit(lambda x: float(x) / 2)(1.0)

    Repaired::

        toile.jit(lambda x: x.astype(float) / 2)(1.0)
    """


class JAXIndexError(IndexError):
    """An IndexError that comes from tracing rather than from Python itself.

    Broken::

        toile.jit(lambda x: x[x > 0])(jnp.ones(3))

    Repaired::

        toile.jit(lambda x: jnp.where(x > 0, x, 0))(jnp.ones(3))
    """


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where a concrete value is needed.

    Broken::

        @toile.jit
        def zeros(n):
            return jnp.zeros(n)      # n has no value while tracing

        zeros(3)

    Repaired::

        @partial(toile.jit, static_argnums=0)
        def zeros(n):
            return jnp.zeros(n)      # n is a Python int

        zeros(3)
    """


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a condition in Python's `if`, `while`, `and`, `or` or `assert`.

    Broken::

        @toile.jit
        def relu(x):
            return x if x > 0 else 0.0

        relu(1.0)

    Repaired::

        @toile.jit
        def relu(x):
            return jnp.where(x > 0, x, 0.0)

        relu(1.0)
    """


class TracerArrayConversionError(JAXTypeError):
    """A traced value was passed to NumPy or another library, which needs a concrete value.

    Broken::

        toile.jit(lambda x: np.sin(x))(1.0)

    Repaired::

        toile.jit(lambda x: jnp.sin(x))(1.0)
    """


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used as a Python integer, such as a list index or a length.

    Broken::

        toile.jit(lambda i: [10, 20, 30][i])(1)

    Repaired::

        toile.jit(lambda i: jnp.array([10, 20, 30])[i])(1)
    """


class TracedArgumentError(ConcretizationTypeError, TracerIntegerConversionError):
    """A traced value was passed as an axis or another integer that must be known while tracing.

    JAX raises `ConcretizationTypeError` in some functions, and `TracerIntegerConversionError` in
    others; handlers of either class catch this error.

    Broken::

        toile.jit(lambda x, axis: x.sum(axis))(jnp.ones((2, 3)), 0)

    Repaired::

        toile.jit(lambda x, axis: x.sum(axis), static_argnums=1)(jnp.ones((2, 3)), 0)
    """


class NonConcreteBooleanIndexError(JAXIndexError):
    """An array was indexed by a traced boolean mask, so the shape of the result is unknown.

    Broken::

        toile.jit(lambda x: x[x > 0].sum())(jnp.ones(3))

    Repaired::

        toile.jit(lambda x: jnp.where(x > 0, x, 0).sum())(jnp.ones(3))
    """


class UnexpectedTracerError(JAXTypeError):
    """A tracer outlived its traced function, because it was stored in a global, a list or `self`.

    Broken::

        seen = []
        toile.jit(lambda x: seen.append(x * 2))(1.0)
        seen[0] + 1

    Repaired::

        doubled = toile.jit(lambda x: x * 2)(1.0)    # return what you want to keep
        doubled + 1
    """


class ClosedOverDerivativeError(ToileError, TypeError):
    """A function with a derivative rule uses a value that is differentiated, but not an argument.

    The rule says only how to differentiate the function with respect to its arguments.

    Broken::

        def scaled(a, x):
            f = toile.custom_jvp(lambda x: a * x)
            f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 2.0))
            return f(x)
        toile.grad(toile.jit(scaled))(2.0, 3.0)

    Repaired::

        def scaled(a, x):
            f = toile.custom_jvp(lambda a, x: a * x)
            f.defjvp(lambda primals, tangents: (f(*primals), primals[1] * tangents[0]))
            return f(a, x)
        toile.grad(toile.jit(scaled))(2.0, 3.0)
    """


class NonHashableStaticArgumentError(ToileError, ValueError):
    """A static argument of `jit` is not hashable, so it cannot be part of the cache key.

    Broken::

        tile = toile.jit(jnp.tile, static_argnums=1)
        tile(jnp.ones(3), [2, 2])

    Repaired::

        tile = toile.jit(jnp.tile, static_argnums=1)
        tile(jnp.ones(3), (2, 2))
    """


class TreeStructureError(ToileError, TypeError):
    """Two pytrees, such as the results of two branches, must have the same structure but do not.

    Broken::

        lax.scan(lambda c, x: ((c, c), x), 0.0, jnp.ones(3))

    Repaired::

        lax.scan(lambda c, x: (c + x, x), 0.0, jnp.ones(3))
    """


class ShapeError(ToileError, TypeError, ValueError):
    """The shapes or dtypes of the operands do not fit the operation.

    The error is both a TypeError and a ValueError, because JAX raises one or the other.

    Broken::

        jnp.ones((3, 4)) @ jnp.ones((3, 4))

    Repaired::

        jnp.ones((3, 4)) @ jnp.ones((3, 4)).T
    """


class KeyReuseError(JAXTypeError):
    """A random key was used twice, so the same random numbers would be drawn twice.

    Keys are checked only while `toile.checks("keys")` or the option `debug_key_reuse` is on.

    Broken::

        with toile.debug_key_reuse(True):
            key = random.key(0)
            a, b = random.normal(key), random.normal(key)

    Repaired::

        with toile.debug_key_reuse(True):
            k1, k2 = random.split(random.key(0))
            a, b = random.normal(k1), random.normal(k2)
    """


class RetraceWarning(UserWarning):
    """A jitted function is traced repeatedly, because shapes, dtypes or static values change.

    Broken::

        total = toile.jit(lambda x: x.sum())
        for n in range(1, 5):
            total(jnp.ones(n))

    Repaired::

        total = toile.jit(lambda x: x.sum())
        for n in range(1, 5):
            total(jnp.where(jnp.arange(4) < n, 1.0, 0.0))
    """


class BroadcastWarning(UserWarning):
    """Operands of different ranks, such as predictions and targets, were both broadcast in a loss.

    Broken::

        predictions, targets = jnp.ones((4, 1)), jnp.ones(4)
        toile.grad(lambda p: jnp.mean((p - targets) ** 2))(predictions)

    Repaired::

        predictions, targets = jnp.ones((4, 1)), jnp.ones(4)
        toile.grad(lambda p: jnp.mean((p.squeeze(-1) - targets) ** 2))(predictions)
    """


class StaleValueWarning(UserWarning):
    """A variable that a jitted function reads has changed since the function was traced.

    Broken::

        scale = 1.0
        scaled = toile.jit(lambda x: scale * x)
        scaled(2.0)
        scale = 3.0
        scaled(2.0)

    Repaired::

        scaled = toile.jit(lambda x, scale: scale * x)
        scaled(2.0, 1.0)
        scaled(2.0, 3.0)
    """


class OutOfBoundsWarning(UserWarning):
    """An index was out of bounds, and the program did not say what to do with such indices.

    The result is the one that JAX defines: reading `x[i]` returns the nearest element, `jnp.take`
    and layers return NaN, and an update is ignored. The warning shows the index, the size of the
    axis, and the line and module that used the index. It is issued once for each operation on a
    line. If you choose a behavior by passing a `mode`, no warning is issued. With
    `toile.checks("index")`, an IndexError is raised instead. On a GPU, the warning is issued when
    the program waits for a result.

    Broken::

        toile.jit(lambda x, i: x[i])(jnp.arange(3), jnp.array([1, 7])).block_until_ready()

    Repaired::

        toile.jit(lambda x, i: x.at[i].get(mode="clip"))(jnp.arange(3), jnp.array([1, 7]))
    """


class CacheWarning(RuntimeWarning):
    """The folder of compiled kernels, or a file in it, could not be used; the message says why.

    Results do not depend on this folder. The environment variable TOILE_CACHE_DIR sets its path.

    Broken::

        import pathlib, tempfile
        from toile.disk.object_cache import ObjectCache

        folder = pathlib.Path(tempfile.mkdtemp())
        folder.chmod(0o777)
        ObjectCache(folder).get("ab")

    Repaired::

        import pathlib, tempfile
        from toile.disk.object_cache import ObjectCache

        folder = pathlib.Path(tempfile.mkdtemp())
        folder.chmod(0o700)
        ObjectCache(folder).get("ab")
    """


class JaxRuntimeError(RuntimeError):
    """An error occurred while a compiled program ran; for example, a check failed.

    Broken::

        from toile.experimental import checkify

        def log(x):
            checkify.check(x > 0, "needed a positive number")
            return jnp.log(x)

        error, _ = checkify.checkify(log)(-1.0)
        error.throw()

    Repaired::

        from toile.experimental import checkify

        def log(x):
            checkify.check(x > 0, "needed a positive number")
            return jnp.log(x)

        error, _ = checkify.checkify(log)(1.0)
        error.throw()
    """


_CONVERSIONS = {
    "bool": (
        TracerBoolConversionError,
        "Attempted boolean conversion of",
        "use `toile.numpy.where` or `toile.lax.cond`, for a loop `toile.lax.while_loop`, or mark "
        "the argument with static_argnums",
    ),
    "array": (
        TracerArrayConversionError,
        "The numpy.ndarray conversion method __array__() was called on",
        "needed a NumPy array: call the function of `toile.numpy` with the same name, or "
        "`toile.pure_callback`",
    ),
    "index": (
        TracerIntegerConversionError,
        "The __index__() method was called on",
        "needed a Python integer: index a toile array instead of a list, loop with "
        "`toile.lax.fori_loop` instead of range, or mark the argument with static_argnums",
    ),
}
_CASTS = ("int", "float", "complex")
_METHODS = ("tobytes", "tolist")


def conversion_error(tracer: Any, wanted: str, because: str = "") -> Exception:
    """The error for a tracer that was asked for its value as `wanted`, and why it was."""
    fix = ("compute it outside the traced function, or mark the argument with static_argnums; to "
           "print it, use toile.debug.print, or return it")
    used, arose = f" needed one for `{wanted}`, got", ""
    if wanted in _METHODS:
        used = f" needed a known value. The {wanted}() method was called on"
    if wanted in _CASTS:
        fix = f"to convert its dtype, try using `x.astype({wanted})`; else {fix}"
        used, arose = "", f". The problem arose with the `{wanted}` function"
    kind, text, fix = _CONVERSIONS.get(
        wanted,
        (
            ConcretizationTypeError,
            f"Abstract tracer value encountered where concrete value is expected:{used}",
            fix,
        ),
    )
    if because:
        arose = f". {because}"
    return kind(
        f"{text} traced array with shape {tracer.aval.str_short()}. It has no value while its "
        f"function is traced{arose} ({fix}){tracer.describe()}{here()}"
    )


def leaked_tracer(tracer: Any) -> UnexpectedTracerError:
    """The error for a tracer that is used after its trace has ended."""
    return UnexpectedTracerError(
        f"Encountered an unexpected tracer: a traced array {tracer.aval.str_short()} was used "
        f"after the function that was being traced{tracer.traced_for()} has returned. Needed: an "
        "array that is a result of that function; got: a tracer that leaked through a side effect "
        "on global state (a global, a list, an attribute or a generator). Return the value from "
        f"the function instead.{tracer.created()}{here()}"
    )


def inner_tracer(tracer: Any) -> UnexpectedTracerError:
    """The error for a tracer that is used where its own transformation does not apply."""
    return UnexpectedTracerError(
        f"Encountered an unexpected tracer: a traced array {tracer.aval.str_short()} was used "
        f"outside the transformation that made it{tracer.traced_for()}. Needed: arguments of "
        "the function; got: a value that a custom_jvp or custom_vjp function or its rule closes "
        f"over (pass it as an argument).{tracer.created()}{here()}"
    )


def closed_over(label: str, kind: str) -> ClosedOverDerivativeError:
    """The error for a closed-over value that is differentiated, of a function with a rule."""
    return ClosedOverDerivativeError(
        f"Detected differentiation of a {kind} function with respect to a closed-over value: "
        f"needed values that {label} receives as arguments, which its rule differentiates, got a "
        "value of an outer function (pass it as an argument, and return its derivative from the "
        f"rule){here()}"
    )


def leaked_trace(what: str, tracers: Any) -> Exception:
    """The error of `checking_leaks` about tracers that are still held after their trace ended."""
    shown = "".join(f"\n  {t!r}{t.created()}" for t in tracers[:4])
    more = f"\n  and {len(tracers) - 4} more" if len(tracers) > 4 else ""
    return Exception(
        f"Leaked trace {what}. Leaked tracer(s): needed none that outlives the function, got "
        f"{len(tracers)} (kept in a global, a list or an attribute; return the value "
        f"instead){shown}{more}{here()}"
    )


def shape_error(
    op: str, needed: str, avals: Any, hint: str = "", said: str = ""
) -> ShapeError:
    """The error for operands that do not fit, with the operation, every operand and the line.

    `said` is an opening sentence in JAX's words, which users may search for."""
    got = ", ".join(a.str_short() for a in avals)
    tail = f" ({hint})" if hint else ""
    return ShapeError(f"{said or op}: needed {needed}, got {got}{tail}{here()}")


def call_error(
    error: Exception, fun: Any, args: Sequence[Any] = (), fix: str = ""
) -> Exception:  # fmt: skip
    """The error for a call with unsuitable arguments; other errors are returned unchanged."""
    trace = error.__traceback__
    said = str(error)
    if trace is None or trace.tb_next is not None or "\n  at " in said:
        return error  # raised inside the function
    if not isinstance(error, TypeError) or "argument" not in said:
        return error  # of a function that is not written in Python
    name = getattr(fun, "__name__", type(fun).__name__)
    given = ", ".join([describe(x) for x in args])
    if not fix and len(args) == 1 and isinstance(args[0], (list, tuple)) and " missing " in said:
        fix = f"give {name} one parameter, and unpack it inside, as in a, b = x"
    return TypeError(
        f"{said} (needed: {name} to take the arguments it is called with, got {len(args)}: "
        f"({given}); {fix or f'add or remove parameters of {name}'}){here()}"
    )


def called(fun: Callable[..., Any], args: Sequence[Any], fix: str = "") -> Any:
    """The result of a user's function; an error that it cannot be called like this says why."""
    try:
        return fun(*args)
    except Exception as error:
        expect_error()
        told = call_error(error, fun, args, fix)
        if told is error:
            raise
        raise told from None


def recursion_text(name: str) -> str:
    """The text of the error about a traced function that does not stop calling itself."""
    return (
        f"maximum recursion depth exceeded while {name or 'a function'} was traced: needed a "
        "function that stops calling itself, got one that does not (a traced value cannot stop it: "
        "use `toile.lax.while_loop` or `toile.lax.fori_loop`, or mark the argument with "
        "static_argnums)"
    )


def axis_error(axis: int, ndim: int, name: str = "axis") -> ValueError:
    """The error for an axis that an array of rank `ndim` does not have."""
    fix = f"needed {-ndim} ... {ndim - 1}" if ndim else "an array of rank 0 has no axes"
    return ValueError(f"{name} {axis} is out of bounds for array of dimension {ndim} "
                      f"({fix}){here()}")


def shape_value_error(op: str, shape: Any) -> TypeError:
    """The error for a shape with a size that is not an integer: usually a traced value."""
    traced = any(getattr(n, "aval", None) is not None for n in shape)
    kind = ConcretizationTypeError if traced else TypeError
    fix = (
        "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions. "
        "Shapes are known when a function is traced: the size may come from x.shape"
        if traced
        else " (convert the sizes with int)"
    )
    return kind(
        "Shapes must be 1D sequences of concrete values of integer type, got "
        f"{describe(shape)} for the {op}.{fix}{here()}"
    )
