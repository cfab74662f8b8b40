"""Call Python functions from traced code: pure_callback, io_callback and debug callbacks.

This module may import all layers below `api`.
"""

from __future__ import annotations

import functools
import string
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from toile.control.callbacks import (
    DebugCallback,
    IoCallback,
    OrderedDebugCallback,
    OrderedIoCallback,
    PureCallback,
)
from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.arrays import Array
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.engine.promotion import user_stack_level
from toile.engine.shardings import Layout, Sharding
from toile.engine.source import describe, here, user_source
from toile.engine.trace import state
from toile.engine.tracebacks import expect_error
from toile.engine.trees import flatten, unflatten
from toile.staging.flat_functions import name_of


def _prepared(
    callback: Callable[..., Any], result: Any, args: Any, kwargs: Any
) -> tuple[Callable[..., Any], list[Aval], list[Any], Any]:
    """A flat callback, the avals of its results, its operands and the results' structure.

    The results' own structure is ignored; their number, shapes and dtypes are checked."""
    leaves, in_tree = flatten((args, kwargs))
    shapes, out_tree = flatten(result)
    avals = [_result_aval(s) for s in shapes]

    def flat(*xs: Any) -> list[Any]:
        given, named = unflatten(in_tree, xs)
        return flatten(callback(*given, **named))[0]

    operands = [as_array(x) for x in leaves]
    return flat, avals, operands, out_tree


def _result_aval(like: Any) -> Aval:
    dtype = dtypes.canonicalize_dtype(like.dtype, allow_extended_dtype=True)
    if dtype != like.dtype:
        raise ValueError(
            "result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled: "
            f"got {like.dtype}, needed {dtype}{here()}"
        )
    return Aval(tuple(like.shape), dtype)


_VMAP_METHODS = (
    "sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None,
)


def pure_callback(
    callback: Callable[..., Any], result_shape_dtypes: PyTree, *args: PyTree,
    sharding: Sharding | None = None,
    vmap_method: Literal["sequential", "sequential_unrolled", "expand_dims", "broadcast_all",
                         "legacy_vectorized"] | None = None,
    vectorized: bool | None = None, operand_layouts: Sequence[Layout | None] | None = None,
    result_layouts: Sequence[Layout | None] | None = None, **kwargs: PyTree,
) -> PyTree:
    """Call a pure Python function from traced code.

    When the compiled code runs, the function is called with concrete arrays. It must be pure,
    because it may be skipped if its results are not needed. It has no derivative, but you can
    define one with `custom_jvp` or `custom_vjp`.

    Args:
        callback: function that receives arrays and returns toile arrays, NumPy arrays or numbers.
        result_shape_dtypes: a tree with the structure of the results of `callback`. Its leaves are
            `ShapeDtypeStruct` objects, or arrays that have the shapes and dtypes of the results.
        *args: arguments for `callback`, trees of arrays.
        sharding: accepted for compatibility with JAX.
        vmap_method: how `vmap` calls `callback`. "sequential" and "sequential_unrolled" call it
            once for each example. The other methods call it once for all examples, and the first
            axis of mapped arguments and results is the batch axis. "broadcast_all" repeats unmapped
            arguments along this axis, "expand_dims" adds an axis of size 1 to them, and
            "legacy_vectorized" leaves them unchanged. If both `vmap_method` and `vectorized` are
            None, applying `vmap` raises an error.
        vectorized: older alternative to `vmap_method`; it is used only if `vmap_method` is None.
            True means "legacy_vectorized", and False means "sequential".
        operand_layouts, result_layouts: accepted for compatibility with JAX.
        **kwargs: keyword arguments for `callback`.

    Returns:
        The results of `callback` as arrays, in the structure of `result_shape_dtypes`.

    Raises:
        JaxRuntimeError: at run time, `callback` raises an exception, or returns arrays whose
            number, shapes or dtypes do not match `result_shape_dtypes`. In the first case, the
            error is also an instance of the original exception's class.

    >>> import numpy as np
    >>> f = lambda x: toile.pure_callback(np.sort, toile.ShapeDtypeStruct((3,), jnp.int32), x)
    >>> toile.jit(f)(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    if not callable(callback):
        raise TypeError(f"pure_callback: needed a callable, got {describe(callback)}{here()}")
    if vectorized is not None and vmap_method is None:
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method not in _VMAP_METHODS:
        raise ValueError(
            f"vmap_method must be one of the allowed methods {list(_VMAP_METHODS)}, but got: "
            f"{vmap_method}{here()}"
        )
    flat, avals, operands, tree = _prepared(callback, result_shape_dtypes, args, kwargs)
    op = PureCallback(flat, avals, vmap_method, name_of(callback))
    return unflatten(tree, op(*operands))


def io_callback(
    callback: Callable[..., Any], result_shape_dtypes: PyTree, *args: PyTree,
    sharding: Sharding | None = None, ordered: bool = False, **kwargs: PyTree,
) -> PyTree:
    """Call a Python function with side effects from traced code.

    When the compiled code runs, the function is called with concrete arrays. It is called once
    for each execution, even if its results are not used. Under `vmap`, it is called once for each
    example. It has no derivative.

    Args:
        callback: function that receives arrays and returns toile arrays, NumPy arrays or numbers.
        result_shape_dtypes: a tree with the structure of the results of `callback`. Its leaves are
            `ShapeDtypeStruct` objects, or arrays that have the shapes and dtypes of the results.
            Pass None if `callback` returns nothing.
        *args: arguments for `callback`, trees of arrays.
        sharding: accepted for compatibility with JAX.
        ordered: if True, this callback and all other ordered callbacks run in program order.
            Applying `vmap` to an ordered callback raises an error.
        **kwargs: keyword arguments for `callback`.

    Returns:
        The results of `callback` as arrays, in the structure of `result_shape_dtypes`.

    Raises:
        JaxRuntimeError: at run time, `callback` raises an exception, or returns arrays whose
            number, shapes or dtypes do not match `result_shape_dtypes`. In the first case, the
            error is also an instance of the original exception's class.

    >>> from toile.experimental import io_callback
    >>> seen = []
    >>> toile.jit(lambda x: io_callback(lambda v: seen.append(int(v)), None, x))(3)
    >>> seen
    [3]
    """
    if not callable(callback):
        raise TypeError(f"io_callback: needed a callable, got {describe(callback)}{here()}")
    flat, avals, operands, tree = _prepared(callback, result_shape_dtypes, args, kwargs)
    given = flat, avals, None, name_of(callback)
    op = OrderedIoCallback(*given) if ordered else IoCallback(*given)
    return unflatten(tree, op(*operands))


def debug_callback(
    callback: Callable[..., None] | None = None, *args: PyTree, ordered: bool = False,
    partitioned: bool = False, **kwargs: PyTree,
) -> Any:
    """Call a Python function from traced code to inspect values.

    When the compiled code runs, the function is called with concrete arrays. It changes neither
    results nor derivatives. Under `vmap`, it is called once for each example.

    Args:
        callback: function to call; its result is ignored.
        *args: arguments for `callback`: trees of arrays and other values. Values that cannot be
            converted to arrays are passed unchanged.
        ordered: if True, this callback and all other ordered callbacks run in program order.
        partitioned: accepted for compatibility with JAX.
        **kwargs: keyword arguments for `callback`.

    Returns:
        None. If `callback` is None, the result is a function that takes the callback and the
        callback's arguments, as in `debug.callback(ordered=True)(print, x)`.

    >>> seen = []
    >>> @toile.jit
    ... def f(x):
    ...     toile.debug.callback(lambda v: seen.append(float(v)), x)
    ...     return 2 * x
    >>> float(f(3.0)), seen
    (6.0, [3.0])
    """
    if callback is None:
        if args or kwargs:
            raise TypeError(
                "debug.callback received unexpected arguments in the two-call form: needed a "
                f"callable before them, got {[*args, *kwargs]} without one{here()}"
            )
        return functools.partial(_call_back, ordered)
    _call_back(ordered, callback, *args, **kwargs)
    return None


def _call_back(ordered: bool, callback: Callable[..., None], /, *args: Any, **kwargs: Any) -> None:
    """Call `callback` when the traced code runs; non-array arguments are passed unchanged."""
    if not callable(callback):
        raise TypeError(
            "first argument to debug.callback must be callable, but got "
            f"{describe(callback)}{here()}"
        )
    leaves, in_tree = flatten((args, kwargs))
    fixed = [None if _is_value(x) else x for x in leaves]
    shown = [as_array(x) for x in leaves if _is_value(x)]

    def flat(*xs: Any) -> list[Any]:
        rest = iter(xs)
        full = [next(rest) if f is None else f for f in fixed]
        given, named = unflatten(in_tree, full)
        callback(*given, **named)
        return []

    label = name_of(callback)
    op = (OrderedDebugCallback(flat, [], None, label) if ordered else
          DebugCallback(flat, [], None, label))
    op(*shown)


def _is_value(x: Any) -> bool:
    try:
        as_array(x)
    except TypeError:
        return False
    return True


class _Checker(string.Formatter):
    """Checks that fields and arguments match; values are known only when the code runs."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used: Any, args: Any, kwargs: Any) -> None:
        unused_args = [a for i, a in enumerate(args) if i not in used]
        unused = [k for k in kwargs if k not in used]
        if unused_args:
            told = f"Unused positional arguments to `debug.print`: {describe(unused_args)} "
            told += "(write a field for each, as in 'x: {}')"
            raise ValueError(told)
        if unused:
            told = f"Unused keyword arguments to `debug.print`: {unused}. You may be passing an "
            told += ("f-string (i.e, `f\"{x}\"`) into `debug.print` and instead should pass in a "
                     "regular string.")
            raise ValueError(told)


_formatter = _Checker()


def debug_print(
    fmt: str | None = None, *args: PyTree, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, **kwargs: PyTree,
) -> Any:
    """Print values from traced code, where Python's `print` would show tracers without values.

    The text is printed when the compiled code runs, using the NumPy print options that were in
    effect when `debug.print` was called. Under `vmap`, it is printed once for each example.

    Args:
        fmt: text with fields, as for `str.format`. Do not use an f-string, because Python evaluates
            it while the function is being traced.
        *args: values for the fields `{}`.
        ordered: if True, this call and all other ordered callbacks run in program order.
        partitioned: accepted for compatibility with JAX.
        skip_format_check: whether to allow values without a field. If `fmt` has no fields at all,
            these values are printed after the text.
        **kwargs: values for the named fields.

    Returns:
        None. If `fmt` is None, the result is a function that takes `fmt` and the values, as in
        `debug.print(ordered=True)("{}", x)`.

    Raises:
        ValueError: a value has no field in `fmt`, and `skip_format_check` is False.

    >>> @toile.jit
    ... def f(x):
    ...     toile.debug.print("x = {x:.2f}", x=x)
    ...     return 2 * x
    >>> float(f(3.0))
    x = 3.00
    6.0
    """
    return _shown("debug.print", fmt, ordered, skip_format_check, args, kwargs)


def debug_log(
    fmt: str | None = None, *args: PyTree, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, **kwargs: PyTree,
) -> Any:
    """Log values from traced code to the logger "toile.debug" at level INFO.

    This function is like `debug.print`, but it writes a log record with the file and line of the
    call to `debug.log`. All handlers of the logger receive the record, regardless of the logger's
    level. Without a handler, nothing is shown.

    Args:
        fmt: text with fields, as for `str.format`. Do not use an f-string, because Python evaluates
            it while the function is being traced.
        *args: values for the fields `{}`.
        ordered: if True, this call and all other ordered callbacks run in program order.
        partitioned: accepted for compatibility with JAX.
        skip_format_check: whether to allow values without a field. If `fmt` has no fields at all,
            these values are logged after the text.
        **kwargs: values for the named fields.

    Returns:
        None. If `fmt` is None, the result is a function that takes `fmt` and the values, as in
        `debug.log(ordered=True)("{}", x)`.

    Raises:
        ValueError: a value has no field in `fmt`, and `skip_format_check` is False.

    >>> import logging, sys
    >>> handler = logging.StreamHandler(sys.stdout)
    >>> logging.getLogger("toile.debug").addHandler(handler)
    >>> toile.jit(lambda x: toile.debug.log("x = {}", x))(3)
    x = 3
    >>> logging.getLogger("toile.debug").removeHandler(handler)
    """
    return _shown("debug.log", fmt, ordered, skip_format_check, args, kwargs)


def _shown(
    name: str, fmt: str | None, ordered: bool, skip_format_check: bool, args: Any, kwargs: Any
) -> Any:
    """Show values, or return a function that does so if there is no format."""
    show = functools.partial(_show, name, ordered, skip_format_check)
    if fmt is not None:
        return show(fmt, *args, **kwargs)
    if args or kwargs:
        raise TypeError(f"{name}: needed a format string, got arguments {[*args, *kwargs]} without "
                        f"one{here()}")
    return show


def _check_format(name: str, fmt: str, args: Any, kwargs: Any) -> None:
    """Raise unless fields and arguments match."""
    if "Tracer<" in fmt and not args and not kwargs:
        warnings.warn(f"{name}: needed a format string, got {fmt!r}, which was formatted while the "
                      f"function was traced (write {name}('x: {{}}', x), without f)\n"
                      f"  at {user_source()}", stacklevel=user_stack_level())
    try:
        _formatter.format(fmt, *args, **kwargs)
    except LookupError as error:
        expect_error()
        told = f"{name}: needed a value for each field of {fmt!r}, got none for {error}"
        raise type(error)(f"{told} (pass the values after the text)") from None
    except ValueError as error:
        raise ValueError(f"{error}{here()}") from None


def _show(
    name: str, ordered: bool, skip_format_check: bool, fmt: str, /, *args: Any, **kwargs: Any
) -> None:
    """Format and show values when the traced code runs, with the current print options."""
    if not isinstance(fmt, str):
        raise TypeError(f"{name}: expected str, got {type(fmt).__name__}: needed a format string, "
                        f"got {describe(fmt)} (write {name}('{{}}', x)){here()}")
    if not skip_format_check:
        _check_format(name, fmt, args, kwargs)
    options = np.get_printoptions()
    fields = any(field is not None for _, field, _, _ in string.Formatter().parse(fmt))
    emit = _logger() if name == "debug.log" else print

    def show(*xs: Any, **named: Any) -> None:
        if not fields:
            emit(" ".join([fmt, *map(str, xs)]))
            return
        with np.printoptions(**options):
            emit(fmt.format(*xs, **named))

    show.__name__ = name
    _call_back(ordered, show, *args, **kwargs)


def _logger() -> Callable[[str], None]:
    """A function that logs text as if the user's current line had logged it."""
    import logging  # would slow down `import toile`

    logger = logging.getLogger("toile.debug")
    source = user_source()
    file, line = (source.file, source.line) if source else ("(unknown file)", 0)

    def emit(text: str) -> None:
        logger.handle(logger.makeRecord(logger.name, logging.INFO, file, line, text, (), None))

    return emit


def debug_breakpoint(
    *, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
    ordered: bool = False, token: PyTree = None, **kwargs: object,
) -> PyTree:
    """Enter Python's debugger when the traced code runs.

    In the debugger, the dictionary `seen` contains the caller's local variables that hold arrays:
    it maps the name of each variable to its array. Arrays inside lists and other trees are not
    included.

    Args:
        backend: accepted for compatibility with JAX.
        filter_frames, num_frames: accepted for compatibility with JAX.
        ordered: if True, this breakpoint and all ordered callbacks run in program order.
        token: any value, which is returned.
        **kwargs: accepted for compatibility with JAX.

    Returns:
        `token`.

    >>> import sys
    >>> hook, sys.breakpointhook = sys.breakpointhook, lambda: print("stopped")
    >>> @toile.jit
    ... def f(x):
    ...     toile.debug.breakpoint()
    ...     return 2 * x
    >>> float(f(3.0))
    stopped
    6.0
    >>> sys.breakpointhook = hook
    """
    frame = sys._getframe(1)
    if state.stepper is not None:
        state.stepper.pause_in(frame)
        return token
    values = {k: v for k, v in frame.f_locals.items() if isinstance(v, Array)}

    def stop(**seen: Any) -> None:
        locals().update(seen)
        breakpoint()

    _call_back(ordered, stop, **values)
    return token


def effects_barrier() -> None:
    """Wait until the callbacks of all earlier calls have run.

    In toile, a call runs its callbacks before it returns, so there is nothing to wait for. The
    function exists for compatibility with JAX, where callbacks may run later.

    >>> toile.jit(lambda x: toile.debug.print("{}", x))(3)
    3
    >>> toile.effects_barrier()
    """
