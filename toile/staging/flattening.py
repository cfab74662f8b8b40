"""Python functions of trees as flat functions of leaves, and back.

`FlatFunction` remembers the structure of what the function returned last, for whoever called it.
May import the engine only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.errors import call_error
from toile.engine.keypaths import keystr
from toile.engine.source import here
from toile.engine.trees import flatten, flatten_with_path, unflatten


class FlatFunction:
    """`fun(*args, **kwargs)` as a function of the leaves of (args, kwargs)."""

    __slots__ = ("fun", "in_tree", "out_tree")

    def __init__(self, fun: Callable[..., Any], in_tree: Any):
        self.fun, self.in_tree = fun, in_tree
        self.out_tree: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = unflatten(self.in_tree, leaves)
        try:
            out = self.fun(*args, **kwargs)
        except TypeError as error:
            raise call_error(error, self.fun) from error.__cause__
        flat, self.out_tree = flatten(out)
        return flat


def argnums_of(argnums: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Canonical argument numbers."""
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    found = []
    for n in nums:
        if not isinstance(n, int):
            raise TypeError(
                f"{what}: needed argnums as int or tuple of int, got {argnums!r}{here()}"
            )
        if not -count <= n < count:
            raise ValueError(
                f"{what}: needed argnums within the {count} positional arguments, got {argnums}"
                " (argnums count positional arguments only)" + here()
            )
        found.append(n % count)
    return tuple(found)


def name_of(fun: Callable[..., Any]) -> str:
    """A function's name for messages and Programs."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def argument_labels(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> list[str]:
    """A label for each leaf of (args, kwargs): `x`, `params['w']`, `batch[0]`."""
    names: list[str] = []
    try:
        names = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        pass
    labels = []
    for i, arg in enumerate(args):
        base = names[i] if i < len(names) else f"args[{i}]"
        labels += [base + keystr(path) for path, _ in flatten_with_path(arg)[0]]
    for key in sorted(kwargs):
        labels += [key + keystr(path) for path, _ in flatten_with_path(kwargs[key])[0]]
    return labels
