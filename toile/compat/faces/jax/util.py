"""`jax.util`, which JAX has removed: functions on sequences that check the lengths."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

__all__ = [
    "cache", "concatenate", "partial", "safe_map", "safe_zip", "split_list", "unzip2", "unzip3",
    "wraps",
]

cache = functools.cache


def safe_map(f: Callable[..., Any], *lists: Iterable[Any]) -> list[Any]:
    """Call a function on the elements of several sequences of the same length."""
    return [f(*row) for row in safe_zip(*lists)]


def safe_zip(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The tuples of elements at the same place of several sequences of the same length."""
    found = [list(each) for each in lists]
    lengths = [len(each) for each in found]
    assert len(set(lengths)) <= 1, f"length mismatch: {lengths}"
    return list(zip(*found, strict=True))


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first elements and the second elements of pairs."""
    found = list(pairs)
    return tuple([x for x, _ in found]), tuple([y for _, y in found])


def unzip3(triples: Iterable[tuple[Any, Any, Any]]) -> tuple[tuple[Any, ...], ...]:
    """The first, second and third elements of triples."""
    found = list(triples)
    return tuple(tuple([t[i] for t in found]) for i in range(3))


def split_list(values: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Parts of the given sizes, and what follows them."""
    rest, parts = list(values), []
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    return [*parts, rest]


def concatenate(parts: Iterable[Sequence[Any]]) -> list[Any]:
    """The elements of several sequences, one after the other."""
    return [x for part in parts for x in part]


def wraps(
    wrapped: Callable[..., Any], namestr: str | None = None, docstr: str | None = None, **_: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like `functools.wraps`; `namestr` and `docstr` may contain `{fun}` and `{doc}`."""

    def around(fun: Callable[..., Any]) -> Callable[..., Any]:
        name = getattr(wrapped, "__name__", "<unnamed function>")
        doc = getattr(wrapped, "__doc__", "") or ""
        fun = functools.wraps(wrapped)(fun)
        fun.__name__ = (namestr or "{fun}").format(fun=name)
        fun.__doc__ = (docstr or "{doc}").format(fun=name, doc=doc)
        return fun

    return around
