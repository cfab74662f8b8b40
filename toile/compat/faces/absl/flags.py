"""`absl.flags` for redirected code, in which two copies of a package can share a flag.

A process has only one set of flags. The first copy of a package defines a flag such that it may be
defined again, and the second copy gets the existing flag.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

STANDS_FOR = "absl.flags"
_WITHOUT_NAME = ("DEFINE_alias", "DEFINE_flag")


def _shared(define: Callable[..., Any], flags: Any) -> Callable[..., Any]:
    """A function like `define` that returns the existing flag if there is one."""

    @functools.wraps(define)
    def shared(name: str, *args: Any, **options: Any) -> Any:
        values = options.get("flag_values", flags.FLAGS)
        if name in values:
            return flags.FlagHolder(values, values[name])
        return define(name, *args, **{"allow_override": True, **options})

    return shared


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    flags = import_module(STANDS_FOR)
    value = getattr(flags, name)
    if name.startswith("DEFINE_") and name not in _WITHOUT_NAME:
        return _shared(value, flags)
    return value
