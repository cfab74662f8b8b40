"""`jax.experimental.maps`: meshes, and `xmap` as a `vmap` over named axes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import toile
from toile import numpy as jnp
from toile import tree_util
from toile.engine.source import here
from toile.sharding import Mesh

__all__ = ["Mesh", "mesh", "xmap"]


@contextlib.contextmanager
def mesh(devices: Any, axis_names: Any) -> Iterator[Mesh]:
    """A mesh, which is the current one while the block runs."""
    made = Mesh(np.asarray(devices), axis_names)
    with made:
        yield made


def xmap(fun: Callable[..., Any], in_axes: Any, out_axes: Any, *,
         axis_sizes: Mapping[Any, int] | None = None, axis_resources: Any = None,
         donate_argnums: Any = (), backend: Any = None, **_: Any) -> Callable[..., Any]:
    """A function with named axes: each name is an axis that `vmap` maps over.

    An entry of `in_axes` and `out_axes` is a dict from positions to names, or a list of names in
    which None is an axis without a name and `...` all others."""
    if axis_resources:
        raise NotImplementedError(
            "xmap: needed axis_resources=None, because toile maps named axes on one device; got "
            f"{axis_resources!r} (use toile.shard_map, or toile.jit with shardings){here()}"
        )
    sizes = dict(axis_sizes or {})

    def mapped(*args: Any) -> Any:
        leaves, structure = tree_util.tree_flatten(args)
        maps = _entries(in_axes if isinstance(in_axes, tuple) else (in_axes,), args)
        found = _sizes(leaves, maps, sizes)
        names = list(found)
        front = [jnp.moveaxis(x, [m[n] for n in names if n in m], range(len(m)))
                 for x, m in zip(leaves, maps, strict=True)]

        def with_names(*xs: Any) -> Any:
            return fun(*tree_util.tree_unflatten(structure, xs))

        run = _nested(with_names, names, found, maps, out_axes)
        out = run(*front)
        given = _entries(out_axes, out)
        flat, out_structure = tree_util.tree_flatten(out)
        return tree_util.tree_unflatten(out_structure, [
            jnp.moveaxis(y, range(len(m)), [m[n] for n in names if n in m])
            for y, m in zip(flat, given, strict=True)])

    return mapped


def _nested(fun: Callable[..., Any], names: list[Any], sizes: dict[Any, int],
            maps: list[dict[Any, int]], out_axes: Any) -> Callable[..., Any]:
    """`fun` mapped over each name, the first one outermost."""
    for name in reversed(names):
        in_axes = tuple(0 if name in m else None for m in maps)
        out = tree_util.tree_map(lambda e, n=name: 0 if n in _positions(e) else None, out_axes,
                                 is_leaf=_is_entry)
        fun = toile.vmap(fun, in_axes=in_axes, out_axes=out, axis_name=name,
                         axis_size=sizes[name])
    return fun


def _is_entry(x: Any) -> bool:
    if isinstance(x, dict):
        return all(isinstance(k, int) for k in x)
    return isinstance(x, (list, tuple)) and all(
        n is None or n is Ellipsis or isinstance(n, str) for n in x)


def _positions(entry: Any) -> dict[Any, int]:
    """The position of each name."""
    if isinstance(entry, dict):
        return {name: place for place, name in entry.items()}
    return {name: place for place, name in enumerate(entry)
            if name is not None and name is not Ellipsis}


def _entries(axes: Any, values: Any) -> list[dict[Any, int]]:
    """The names and positions of each leaf of `values`."""
    if _is_entry(axes) and not (isinstance(axes, tuple) and isinstance(values, tuple) and not axes):
        return [_positions(axes)] * len(tree_util.tree_leaves(values))
    prefix, structure = tree_util.tree_flatten(axes, is_leaf=_is_entry)
    parts = structure.flatten_up_to(values)
    return [_positions(entry) for entry, part in zip(prefix, parts, strict=True)
            for _ in tree_util.tree_leaves(part)]


def _sizes(leaves: list[Any], maps: list[dict[Any, int]], sizes: dict[Any, int]) -> dict[Any, int]:
    """The size of each name, in order of first use."""
    found: dict[Any, int] = {}
    for x, m in zip(leaves, maps, strict=True):
        for name, place in m.items():
            size = jnp.shape(x)[place]
            if found.setdefault(name, size) != size:
                raise ValueError(
                    f"xmap: needed one size for the axis {name!r}, got {found[name]} and {size} "
                    f"(map other axes of the arguments){here()}"
                )
    return {**found, **{n: s for n, s in sizes.items() if n not in found}}
