"""Helpers for batch axes of size 1 or n, and for shapes and indices.

An index that is out of bounds marks padding: reads at this index return zero, and writes are
ignored. Negative indices do not count from the end, so they are out of bounds too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import toile.lax as lax
import toile.numpy as jnp
from toile.api import vmap
from toile.engine.annotations import Array
from toile.engine.source import here
from toile.engine.trees import flatten, unflatten
from toile.errors import ConcretizationTypeError


def nfold_vmap(
    fun: Callable[..., Any], n: int, *, broadcasted: bool = True, in_axes: Any = 0
) -> Callable[..., Any]:
    """`fun`, mapped over `n` leading axes, which are broadcast against each other."""
    for _ in range(n):
        fun = _broadcasting_vmap(fun, in_axes) if broadcasted else vmap(fun, in_axes=in_axes)
    return fun


def _broadcasting_vmap(fun: Callable[..., Any], in_axes: Any) -> Callable[..., Any]:
    """`fun`, mapped over the first axis of arguments, whose sizes are 1 or equal."""

    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        leaves, tree = flatten(args)
        size = max(x.shape[d] for x, d in zip(leaves, axes, strict=True) if d is not None)
        dims = list(axes)
        for i, (x, d) in enumerate(zip(leaves, axes, strict=True)):
            if d is not None and x.shape[d] == 1 < size:
                leaves[i], dims[i] = lax.squeeze(x, (d,)), None
        return vmap(fun, in_axes=tuple(dims))(*unflatten(tree, leaves))

    return mapped


def read(x: Any, index: tuple[Any, ...]) -> Array:
    """The elements at an index; zero where it is out of bounds."""
    if not index:
        return x
    return x.at[index].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def add_at(x: Any, index: tuple[Any, ...], y: Any, indices_sorted: bool = False) -> Array:
    """`x` with `y` added at an index; elements whose index is out of bounds are dropped."""
    return x.at[index].add(
        y, mode="drop", wrap_negative_indices=False, indices_are_sorted=indices_sorted)


def columns(indices: Any) -> tuple[Any, ...]:
    """The index vectors by axis."""
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


def batch_grid(sizes: Sequence[int], trailing: int = 1) -> tuple[np.ndarray, ...]:
    """The positions along each batch axis, for use beside indices with `trailing` more axes."""
    n = len(sizes)
    return tuple(np.arange(size, dtype=np.int32).reshape((size,) + (1,) * (n - i - 1 + trailing))
                 for i, size in enumerate(sizes))


def split(xs: Iterable[Any], *sizes: int) -> list[Any]:
    """The parts of a sequence that have the given sizes, and the rest."""
    found, at, xs = [], 0, tuple(xs)
    for n in sizes:
        found.append(xs[at : at + n])
        at += n
    return [*found, xs[at:]]


def remaining(xs: Iterable[int], *without: Sequence[int]) -> list[int]:
    """The numbers in `xs` that are in none of the other sequences."""
    return [x for x in xs if not any(x in part for part in without)]


def replaced(xs: Sequence[int], at: int, value: int) -> tuple[int, ...]:
    """`xs` with the entry at a position replaced."""
    return (*xs[:at], value, *xs[at + 1 :])


def index_row(sizes: Sequence[int], like: Any) -> Array:
    """Sizes as one row that is broadcast against the index vectors `like`."""
    row = np.asarray(sizes, like.dtype).reshape((1,) * (like.ndim - 1) + (len(sizes),))
    return jnp.asarray(row)


def known_number(value: Any, what: str) -> int:
    """A number of stored elements as an integer; an error if its value is not known."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise ConcretizationTypeError(
            f"{what}: needed a number that is known while the function is traced, got {value!r} "
            f"(pass the argument nse){here()}"
        ) from error


def count_stored(mat: Any, n_batch: int = 0, n_dense: int = 0) -> Array:
    """The largest number of nonzero elements in a batch; one element has all dense axes."""
    mask = mat != 0
    if n_dense:
        mask = mask.any(tuple(range(mat.ndim - n_dense, mat.ndim)))
    return mask.sum(tuple(range(n_batch, mask.ndim))).max(initial=0)
