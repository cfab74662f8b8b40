"""`absl.flags` for redirected code: a flag that two copies of a package define is one flag.

Flags belong to the process. The copy that comes first defines a flag so that the other may define
it again; the one that comes second gets the flag that is there.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

STANDS_FOR = "absl.flags"
_WITHOUT_NAME = ("DEFINE_alias", "DEFINE_flag")


def _shared(define: Callable[..., Any], flags: Any) -> Callable[..., Any]:
    """`define`, except that it returns the existing flag if there is one."""

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
