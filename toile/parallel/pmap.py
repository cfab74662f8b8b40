"""pmap: one program per device, mapped over a leading axis.

The mapped axis has at most as many entries as there are devices; with one CPU device it has one.
The mapped function is a jitted vmap over the named axis, so that collectives mean what they mean
there. May import staging and below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toile.engine import devices as engine_devices
from toile.engine.arrays import as_array
from toile.engine.source import here, message
from toile.engine.tracing import Array
from toile.engine.trees import broadcast_prefix, flatten, structure, unflatten
from toile.primitives.families import bdim_at, move_axis, reshape
from toile.primitives.shapes import slice_axis
from toile.staging.flattening import name_of
from toile.staging.jit import PjitFunction
from toile.transforms.vmap import vmap_flat


def pmap(
    fun: Callable[..., Any],
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Any:
    """`fun` on every device at once, each with its own slice of the arguments."""
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}{here()}")
    if devices is not None and not len(devices):
        raise ValueError("'devices' argument to pmap must be non-empty, or None." + here())
    static = _numbers(static_broadcasted_argnums)
    donated = _numbers(donate_argnums)
    if set(static) & set(donated):
        raise ValueError(
            "static_broadcasted_argnums and donate_argnums cannot intersect, but they share "
            f"{sorted(set(static) & set(donated))}{here()}"
        )
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    mapping = _Mapping(fun, axis_name, axes, out_axes, static, devices, backend, axis_size)
    options = {"static_argnums": static or None, "donate_argnums": donated or None}
    return PmapFunction(mapping.wrapped(), options)


def _numbers(argnums: int | Iterable[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


class PmapFunction(PjitFunction):
    """A function over devices; traced once per kind of arguments, like a jitted one."""

    def __repr__(self) -> str:
        return f"<pmapped {getattr(self.fun, '__wrapped__', self.fun)!r}>"


class _Mapping:
    """What pmap was told; `wrapped()` is the function over the whole mapped axis."""

    def __init__(
        self, fun: Callable[..., Any], name: Any, in_axes: Any, out_axes: Any,
        static: tuple[int, ...], devices: Sequence[Any] | None, backend: str | None,
        axis_size: int | None,
    ):
        self.fun, self.in_axes, self.out_axes, self.static = fun, in_axes, out_axes, static
        self.name = _Anonymous(fun) if name is None else name
        self.devices, self.backend, self.axis_size = devices, backend, axis_size

    def wrapped(self) -> Callable[..., Any]:
        @functools.wraps(self.fun)
        def mapped(*args: Any, **kwargs: Any) -> Any:
            return self.run(args, kwargs)

        return mapped

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fixed = {n % len(args) for n in self.static if -len(args) <= n < len(args)}
        moving = tuple(a for i, a in enumerate(args) if i not in fixed)
        leaves, in_tree = flatten((moving, kwargs))
        dims = self._input_axes(args, fixed, moving, kwargs)
        leaves = [x if isinstance(x, Array) else as_array(x) for x in leaves]
        dims = [self._canonical(d, x) for d, x in zip(dims, leaves, strict=True)]
        size = self._size(leaves, dims)
        out_tree: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            given, named = unflatten(in_tree, xs)
            rest = iter(given)
            full = [a if i in fixed else next(rest) for i, a in enumerate(args)]
            outs, tree = flatten(self.fun(*full, **named))
            out_tree.append(tree)
            return [o if isinstance(o, Array) else as_array(o) for o in outs]

        outs, found = vmap_flat(flat, (self.name, size), leaves, dims)
        wanted = self._output_axes(out_tree[0], len(outs))
        placed = [_placed(o, d, w, size) for o, d, w in zip(outs, found, wanted, strict=True)]
        return unflatten(out_tree[0], placed)

    def _input_axes(
        self, args: tuple[Any, ...], fixed: set[int], moving: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> list[Any]:
        axes = self.in_axes
        if isinstance(axes, tuple):
            if len(axes) != len(args):
                raise ValueError(
                    "pmap in_axes must be an int, None, or a tuple with one entry per positional "
                    f"argument: got {len(axes)} entries for {len(args)} arguments{here()}"
                )
            axes = tuple(a for i, a in enumerate(axes) if i not in fixed)
        try:
            found = broadcast_prefix(axes, moving, is_leaf=lambda x: x is None)
        except ValueError as e:
            raise ValueError(
                f"pmap in_axes: needed a prefix of {structure(moving)}, got {axes!r}: "
                f"{message(e)}{here()}"
            ) from e
        for d in found:
            if d is not None and (not isinstance(d, int) or isinstance(d, bool)):
                raise TypeError(
                    "pmap in_axes must be an int, None, or a (nested) container with those types "
                    f"as leaves, but got {self.in_axes!r}{here()}"
                )
        return found + [0] * len(flatten(kwargs)[0])

    def _canonical(self, dim: int | None, x: Any) -> int | None:
        if dim is None:
            return None
        if not -x.ndim <= dim < x.ndim:
            raise ValueError(
                f"pmap was requested to map its argument along axis {dim}, which implies that its "
                f"rank should be at least {dim + 1 if dim >= 0 else -dim}, but is only {x.ndim} "
                f"(its shape is {x.shape}; in {name_of(self.fun)}){here()}"
            )
        return dim % x.ndim

    def _size(self, leaves: Sequence[Any], dims: Sequence[int | None]) -> int:
        sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError("pmap requires at least one argument with a mapped axis." + here())
        if len(set(sizes)) > 1:
            shapes = [x.shape for x, d in zip(leaves, dims, strict=True) if d is not None]
            raise ValueError(
                f"pmap got inconsistent sizes for array axes to be mapped: needed equal ones, got "
                f"{sizes} in arguments of shapes {shapes}{here()}"
            )
        if self.axis_size is not None and self.axis_size != sizes[0]:
            raise ValueError(
                f"Specified axis_size {self.axis_size} doesn't match received axis_size "
                f"{sizes[0]}.{here()}"
            )
        available = self.available()
        if sizes[0] > available:
            raise ValueError(
                f"compiling computation that requires {sizes[0]} logical devices, but only "
                f"{available} are available (pmap of {name_of(self.fun)} maps an axis of size "
                f"{sizes[0]}; use vmap, or start with TOILE_CPU_DEVICES={sizes[0]}){here()}"
            )
        return sizes[0]

    def available(self) -> int:
        """How many devices the function may use."""
        if self.devices is not None:
            return len(self.devices)
        if self.backend not in (None, "cpu"):
            raise RuntimeError(f"pmap: needed the backend 'cpu', got {self.backend!r}{here()}")
        return len(engine_devices.cpu_devices())

    def _output_axes(self, tree: Any, count: int) -> list[Any]:
        if self.out_axes is None or isinstance(self.out_axes, int):
            return [self.out_axes] * count
        dummy = unflatten(tree, [object()] * count)
        try:
            return broadcast_prefix(self.out_axes, dummy, is_leaf=lambda x: x is None)
        except ValueError as e:
            raise ValueError(
                f"pmap out_axes: needed a prefix of {tree}, got {self.out_axes!r}: "
                f"{message(e)}{here()}"
            ) from e


class _Anonymous:
    """The name of an axis that was given none; equal to itself only."""

    def __init__(self, fun: Callable[..., Any]):
        self.label = name_of(fun)

    def __repr__(self) -> str:
        return f"<axis {self.label}>"


def _placed(out: Any, dim: int | None, wanted: int | None, size: int) -> Any:
    """A result with its mapped axis at `wanted`; the first device's value if that is None."""
    if wanted is not None:
        rank = out.ndim + (dim is None)
        if not -rank <= wanted < rank:
            raise ValueError(f"pmap: needed out_axes within the {rank} axes of the result, got "
                             f"{wanted}{here()}")
        return bdim_at(out, dim, size, wanted % rank)
    if dim is None:
        return out
    first = slice_axis(move_axis(out, dim, 0), 0, 1, 0)
    return reshape(first, first.shape[1:])
