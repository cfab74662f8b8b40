"""Names for parts of a program: named_scope and named_call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from toile.engine.source import here
from toile.engine.trace import state
from toile.staging.flat_functions import name_of


class named_scope:
    """Give the operations in a block a name that `toile.explain` and `toile.profile` show.

    Use `named_scope` as a context manager, or as a decorator for a whole function. The names of
    nested scopes are joined into a path. Names do not affect results.

    Args:
        name: the name.

    Raises:
        TypeError: `name` is not a string.

    >>> @toile.jit
    ... def f(x):
    ...     with toile.named_scope("layer"):
    ...         return jnp.sin(x)
    >>> f.trace(1.0).jaxpr.eqns[0].scope
    ('layer',)
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope name argument must be a string, got {name!r}.{here()}")
        self.name = name
        self._previous: list[tuple[str, ...]] = []

    def __enter__(self) -> None:
        self._previous.append(state.scope)
        state.scope = (*state.scope, self.name)

    def __exit__(self, *_: Any) -> None:
        state.scope = self._previous.pop()

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fun)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with named_scope(self.name):
                return fun(*args, **kwargs)

        return inner


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Give a name to the operations of a function, as `named_scope` does for a block.

    Args:
        fun: the function.
        name: the name; None for the name of `fun`.

    Returns:
        A function with the same arguments and results.

    Raises:
        ValueError: `name` is not a string.

    >>> f = toile.named_call(lambda x: jnp.sin(x), name="layer")
    >>> toile.make_jaxpr(f)(1.0).eqns[0].scope
    ('layer',)
    """
    label = name_of(fun) if name is None else name
    if not isinstance(label, str):
        raise ValueError(f"Expected name to be a string, got {label!r}{here()}")
    return named_scope(label)(fun)
