"""Python functions called from traced code: pure_callback, io_callback and debug callbacks.

May import everything below the faces.
"""

from __future__ import annotations

import functools
import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from toile.control.callbacks import (
    DebugCallback,
    IoCallback,
    OrderedDebugCallback,
    OrderedIoCallback,
    PureCallback,
)
from toile.engine import dtypes
from toile.engine.arrays import Array
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.engine.source import describe, here, user_source
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
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    vmap_method: str | None = None, vectorized: Any = None, operand_layouts: Any = None,
    result_layouts: Any = None, **kwargs: Any,
) -> Any:
    """Call a pure Python function on NumPy arrays from traced code."""
    if not callable(callback):
        raise TypeError(f"pure_callback: needed a callable, got {describe(callback)}{here()}")
    if vectorized is not None and vmap_method is None:
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method not in _VMAP_METHODS:
        raise ValueError(
            f"vmap_method must be on of the allowed methods {list(_VMAP_METHODS)}, but got: "
            f"{vmap_method}{here()}"
        )
    flat, avals, operands, tree = _prepared(callback, result_shape_dtypes, args, kwargs)
    op = PureCallback(flat, avals, vmap_method, name_of(callback))
    return unflatten(tree, op(*operands))


def io_callback(
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, sharding: Any = None,
    ordered: bool = False, **kwargs: Any,
) -> Any:
    """Call a Python function with side effects from traced code, exactly once."""
    if not callable(callback):
        raise TypeError(f"io_callback: needed a callable, got {describe(callback)}{here()}")
    flat, avals, operands, tree = _prepared(callback, result_shape_dtypes, args, kwargs)
    given = flat, avals, None, name_of(callback)
    op = OrderedIoCallback(*given) if ordered else IoCallback(*given)
    return unflatten(tree, op(*operands))


def debug_callback(
    callback: Callable[..., None] | None = None, *args: Any, ordered: bool = False,
    partitioned: bool = False, **kwargs: Any,
) -> Any:
    """Call a Python function to inspect values in traced code.

    Without a function it returns one that takes it: `debug.callback(ordered=True)(print, x)`."""
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
            raise ValueError(f"Unused positional arguments to `debug.print`: {unused_args}{here()}")
        if unused:
            raise ValueError(f"Unused keyword arguments to `debug.print`: {unused}. You may be "
                             "passing an f-string (i.e, `f\"{x}\"`) into `debug.print` and instead "
                             "should pass in a regular string." + here())


_formatter = _Checker()


def debug_print(
    fmt: str | None = None, *args: Any, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, **kwargs: Any,
) -> Any:
    """Print values of traced code: `debug.print("loss {x}", x=loss)`.

    Without a format it returns a function that takes it: `debug.print(ordered=True)("{}", x)`."""
    return _shown("debug.print", fmt, ordered, skip_format_check, args, kwargs)


def debug_log(
    fmt: str | None = None, *args: Any, ordered: bool = False, partitioned: bool = False,
    skip_format_check: bool = False, **kwargs: Any,
) -> Any:
    """Like `debug.print`, to the logger "toile.debug" at level INFO, with the user's line."""
    return _shown("debug.log", fmt, ordered, skip_format_check, args, kwargs)


def _shown(
    name: str, fmt: str | None, ordered: bool, skip_format_check: bool, args: Any, kwargs: Any
) -> Any:
    """Show values; without a format, return the function that does."""
    show = functools.partial(_show, name, ordered, skip_format_check)
    if fmt is not None:
        return show(fmt, *args, **kwargs)
    if args or kwargs:
        raise TypeError(f"{name}: needed a format string, got arguments {[*args, *kwargs]} without "
                        f"one{here()}")
    return show


def _show(
    name: str, ordered: bool, skip_format_check: bool, fmt: str, /, *args: Any, **kwargs: Any
) -> None:
    """Format and show when the traced code runs, with the print options of this call."""
    if not skip_format_check:
        _formatter.format(fmt, *args, **kwargs)
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
    """A function that logs a text as if from the user's line that is running now."""
    import logging  # would slow down `import toile`

    logger = logging.getLogger("toile.debug")
    source = user_source()
    file, line = (source.file, source.line) if source else ("(unknown file)", 0)

    def emit(text: str) -> None:
        logger.handle(logger.makeRecord(logger.name, logging.INFO, file, line, text, (), None))

    return emit


def debug_breakpoint(*, backend: Any = None, filter_frames: bool = True, num_frames: Any = None,
                     ordered: bool = False, token: Any = None, **kwargs: Any) -> Any:
    """Stop in Python's debugger when the traced code runs; locals of the caller are shown."""
    frame = sys._getframe(1)
    values = {k: v for k, v in frame.f_locals.items() if isinstance(v, Array)}

    def stop(**seen: Any) -> None:
        locals().update(seen)
        breakpoint()

    _call_back(ordered, stop, **values)
    return token


def effects_barrier() -> None:
    """Wait until all effects have happened (always true: calls return when they are done)."""
