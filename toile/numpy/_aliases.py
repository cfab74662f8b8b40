"""Functions that have two names.

Both names are functions of their own, as in JAX: code that looks at `__name__` or builds a table of
functions by name finds each of them.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def renamed(name: str, function: F) -> F:
    """Copy a function under another name."""
    assert isinstance(function, types.FunctionType)
    code, variables = function.__code__, function.__globals__
    copy: Any = types.FunctionType(
        code, variables, name, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    copy.__annotations__, copy.__module__ = function.__annotations__, function.__module__
    copy.__qualname__ = name
    return copy
