"""Functions of `jax.util` on functions and sequences that JAX has removed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

__all__ = [
    "canonicalize_axis", "ceil_of_ratio", "curry", "memoize", "partial", "prod", "split_dict",
    "subvals", "tuple_delete", "tuple_insert", "wrap_name",
]

memoize = functools.cache


def curry(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose first call gives some of the arguments: `curry(f)(x)(y)` is `f(x, y)`."""
    return functools.wraps(f)(partial(partial, f))


def prod(xs: Iterable[Any]) -> Any:
    """The product of numbers."""
    return math.prod(xs)


def split_dict(values: dict[Any, Any], names: Sequence[Any]) -> list[Any]:
    """The values of some keys, which are all keys."""
    rest = dict(values)
    found = [rest.pop(name) for name in names]
    assert not rest, f"needed only the keys {list(names)}, got {list(values)}"
    return found


def subvals(lst: Sequence[Any], replace: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """A tuple with some elements replaced."""
    found = list(lst)
    for i, value in replace:
        found[i] = value
    return tuple(found)


def tuple_insert(t: tuple[Any, ...], idx: int, val: Any) -> tuple[Any, ...]:
    """A tuple with one more element."""
    return (*t[:idx], val, *t[idx:])


def tuple_delete(t: tuple[Any, ...], idx: int) -> tuple[Any, ...]:
    """A tuple without one of its elements."""
    return t[:idx] + t[idx + 1 :]


def canonicalize_axis(axis: int, num_dims: int) -> int:
    """An axis counted from the first one."""
    if not -num_dims <= axis < num_dims:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {num_dims}: needed "
                         f"{-num_dims} to {num_dims - 1} (count axes from 0)")
    return axis % num_dims


def ceil_of_ratio(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def wrap_name(name: str, transform_name: str) -> str:
    """The name of a transformed function."""
    return f"{transform_name}({name})"
