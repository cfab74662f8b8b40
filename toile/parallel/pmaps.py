"""pmap, which maps a function over the first axis of arrays, with one device for each slice.

The mapped function is traced once, for the slice of one device, and its Program runs on every
device at the same time (`parallel.spmd`). The results are sharded arrays, which can be passed to
the next call without a copy. The size of the mapped axis is limited by the number of devices. This
module may import staging and the layers below it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from toile.engine import config, dtypes
from toile.engine import devices as engine_devices
from toile.engine.annotations import PyTree
from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.platform_registry import default_devices, registry
from toile.engine.program import trace_program
from toile.engine.source import here, message
from toile.engine.trace import Array, state
from toile.engine.trees import broadcast_prefix, flatten, structure, unflatten
from toile.parallel.meshes import Mesh
from toile.parallel.spmd import Form, Forms, Grid, Layout, Spmd, tracing, tracing_on
from toile.primitives.families import reshape
from toile.staging.donation import delete_donated, donated_leaves, given_up
from toile.staging.flat_functions import check_axes, dress, name_of
from toile.staging.jit import PjitFunction, Static

ANONYMOUS = "_internal_pmap_axis_name"  # the name of an axis that the user did not name


def pmap(
    fun: Callable[..., Any], axis_name: Hashable | None = None, *, in_axes: PyTree = 0,
    out_axes: PyTree = 0, static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Any] | None = None, backend: str | None = None,
    axis_size: int | None = None, donate_argnums: int | Iterable[int] = (),
) -> PmapFunction:
    """Run a function on several devices at once, each with one slice of the arguments.

    Like `vmap`, `pmap` maps over an axis. However, each slice is computed on a separate device, so
    the size of the axis cannot exceed the number of devices. New code should use `jit` with
    shardings, or `shard_map`.

    Args:
        fun: the function, which is called with one slice of each argument.
        axis_name: name of the mapped axis for collectives such as `lax.psum`; None for no name.
        in_axes: for each positional argument, the axis to map over, as for `vmap`. If the axis is
            None, the whole argument is passed to each device. Keyword arguments are mapped over
            their first axis.
        out_axes: position of the mapped axis in each result; None for a result that is the same on
            all devices.
        static_broadcasted_argnums: positions of arguments that are constants in the trace.
            These arguments must be hashable.
        devices: the devices, one for each slice; None for the default devices.
        backend: platform whose devices are used, such as "cpu"; None for the default platform.
        axis_size: number of slices; if None, it is the size of the arguments' mapped axis.
        donate_argnums: positions of arguments whose memory may be reused for results. Do not use
            these arguments after the call.

    Returns:
        A function with the arguments of `fun`, except that mapped arguments have an additional
        axis. The results are sharded across the devices.

    Raises:
        ValueError: there are more slices than devices; raised by the returned function.

    >>> normalize = toile.pmap(lambda x: x / lax.psum(x, "i"), axis_name="i")
    >>> normalize(jnp.array([[2.0, 4.0]]))  # one slice, for one device
    Array([[1., 1.]], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r} (pass the function without "
                        f"calling it: pmap(f), not pmap(f(x))){here()}")
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
    check_axes("pmap", "in_axes", axes)
    check_axes("pmap", "out_axes", out_axes)
    # Unlike in jit, only positional arguments, counted from the first, are donated.
    donated = tuple(n for n in donated if n >= 0)
    return PmapFunction(_Mapping(
        fun, axis_name, axes, out_axes, static, devices, backend, axis_size, donated))


def _numbers(argnums: int | Iterable[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


class PmapFunction(PjitFunction):
    """A function that runs on several devices, as returned by `pmap`.

    Like a jitted function, it is traced whenever its arguments have new shapes or dtypes."""

    def __init__(self, mapping: _Mapping):
        super().__init__(mapping.wrapped(), {"static_argnums": mapping.static or None})
        self.mapping, self.donate_argnums = mapping, mapping.donated
        self.donates = bool(self.donate_argnums)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.mapping.run(args, kwargs)

    def clear_cache(self) -> None:
        super().clear_cache()
        self.mapping.forms.forms.clear()
        self.mapping.last = None

    def __repr__(self) -> str:
        return f"<pmapped {getattr(self.fun, '__wrapped__', self.fun)!r}>"


class _Mapping:
    """The options of a pmap, and its traced forms."""

    def __init__(
        self, fun: Callable[..., Any], name: Any, in_axes: Any, out_axes: Any,
        static: tuple[int, ...], devices: Sequence[Any] | None, backend: str | None,
        axis_size: int | None, donated: tuple[int, ...],
    ):
        self.donated = donated
        self.fun, self.in_axes, self.out_axes, self.static = fun, in_axes, out_axes, static
        self.name = ANONYMOUS if name is None else name
        self.devices, self.backend, self.axis_size = devices, backend, axis_size
        self.forms = Forms()
        self.last: tuple[list[Any], Any, Form] | None = None

    def wrapped(self) -> Callable[..., Any]:
        def mapped(*args: Any, **kwargs: Any) -> Any:
            return self.run(args, kwargs)

        return dress(mapped, self.fun)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        static = self._static_numbers(len(args))
        moving = tuple([None if i in static else a for i, a in enumerate(args)])
        leaves, in_tree = flatten((moving, kwargs))
        leaves = [x if isinstance(x, Array) else _argument(x) for x in leaves]
        devices = self.available()
        statics = tuple([Static(args[i], f"argument {i}", name_of(self.fun))
                         for i in sorted(static)])
        avals = [aval_of(x) for x in leaves]
        kind = (in_tree, statics, config.trace_context(), state.axes, devices)
        last = self.last
        if last is not None and last[0] == avals and last[1] == kind and not last[2].stale():
            form = last[2]
        else:
            form = self.forms.find((kind, tuple(avals)), lambda: self._traced(
                args, static, kwargs, leaves, in_tree, devices))
        # In a loop, most of the next call's avals are the same objects.
        self.last = None if config.flags.disable_jit else (avals, kind, form)
        out = form(leaves)
        delete_donated(leaves, form.given_up)
        return out

    def _static_numbers(self, count: int) -> set[int]:
        """The indices of the static arguments among `count` positional ones."""
        if self.static and max(self.static) >= count:
            raise ValueError(
                f"pmapped function has static_broadcasted_argnums={self.static} but was called "
                f"with only {count} positional argument{'s' * (count != 1)}. All static "
                f"broadcasted arguments must be passed positionally.{here()}"
            )
        return {n % count for n in self.static if -count <= n < count}

    def _traced(
        self, args: Any, static: set[int], kwargs: Any, leaves: Sequence[Any], in_tree: Any,
        devices: Sequence[Any],
    ) -> Form:
        dims = self._input_axes(args, static, kwargs)
        dims = [self._canonical(d, x) for d, x in zip(dims, leaves, strict=True)]
        grid = self._grid(leaves, dims, devices)
        ins = [_layout(x.ndim, d, self.name) for x, d in zip(leaves, dims, strict=True)]
        found: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            local = [x if d is None else reshape(x, _without(x.shape, d))
                     for x, d in zip(xs, dims, strict=True)]
            given, named = unflatten(in_tree, local)
            full = [args[i] if i in static else a for i, a in enumerate(given)]
            outs, tree = flatten(self.fun(*full, **named))
            placed, layouts = self._results(outs, self._output_axes(tree, len(outs)))
            found[:] = [tree, layouts]
            return placed

        avals = [_slice_aval(aval_of(x), d) for x, d in zip(leaves, dims, strict=True)]
        with tracing_on(grid, devices):
            program, consts = trace_program(flat, avals, name_of(self.fun))
        whole: list[Layout] = [((),) * c.ndim for c in consts]
        op = Spmd(program, grid, tuple(whole + ins), tuple(found[1]), name_of(self.fun))
        donated = donated_leaves(args, kwargs, self.donated, static=static)
        return Form(op, consts, found[0], given_up(donated, program))

    def _grid(self, leaves: Sequence[Any], dims: Sequence[int | None],
              devices: Sequence[Any]) -> Grid:
        """The devices of this process that take part, and the processes of all devices."""
        owners = _owners(devices)
        own = devices if owners is None else [d for d in devices if _is_own(d)]
        size = self._size(leaves, dims, len(own), owners, own[0].platform if own else "cpu")
        mesh = Mesh(np.array(own[:size], object), (self.name,))
        return Grid(((self.name, size),), mesh, owners, owners and tuple(devices))

    def _results(
        self, outs: Sequence[Any], wanted: Sequence[int | None]
    ) -> tuple[list[Any], list[Layout]]:
        """A device's results with their mapped axes, and how all devices' results form arrays."""
        arrays = [as_array(o) for o in outs]
        placed = [_placed(o, w) for o, w in zip(arrays, wanted, strict=True)]
        return placed, [_layout(o.ndim, None if w is None else w % o.ndim, self.name)
                        for o, w in zip(placed, wanted, strict=True)]

    def _input_axes(
        self, args: tuple[Any, ...], static: set[int], kwargs: dict[str, Any]
    ) -> list[Any]:
        """The mapped axis of each leaf; keyword arguments are mapped over their first axis."""
        axes = self.in_axes
        moving = [i for i in range(len(args)) if i not in static]
        if isinstance(axes, tuple):
            self._check_length(axes, moving)
            axes = tuple([axes[i] for i in moving])
        given = tuple([args[i] for i in moving])
        try:
            found = broadcast_prefix(axes, given, is_leaf=lambda x: x is None)
        except ValueError as e:
            told = message(e).replace("broadcast_prefix prefix_tree", "pmap in_axes[0]")
            raise ValueError(
                f"pmap in_axes: needed a prefix of {structure(given)}, got {axes!r}: {told}{here()}"
            ) from e
        return found + [0] * len(flatten(kwargs)[0])

    def _check_length(self, axes: tuple[Any, ...], moving: Sequence[int]) -> None:
        """Raise an error if a mapped argument has no entry in `in_axes`; static arguments need
        none.

        If there are static arguments, surplus entries are ignored."""
        if self.static and moving and len(axes) <= moving[-1]:
            raise IndexError(
                "tuple index out of range: pmap in_axes needed an entry for argument "
                f"{next(i for i in moving if i >= len(axes))}, which is not static, got {axes!r}"
                f"{here()}"
            )
        if not self.static and len(axes) != len(moving):
            raise ValueError(
                "pmap in_axes must be an int, None, or a tuple with one entry per positional "
                f"argument: got {len(axes)} entries for {len(moving)} arguments (each argument "
                f"passed by keyword is mapped over its leading axis){here()}"
            )

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

    def _size(
        self, leaves: Sequence[Any], dims: Sequence[int | None], available: int,
        owners: tuple[int, ...] | None = None, platform: str = "cpu",
    ) -> int:
        sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
        if not sizes:
            raise ValueError("pmap requires at least one argument with a mapped axis." + here())
        if len(set(sizes)) > 1:
            shapes = [x.shape for x, d in zip(leaves, dims, strict=True) if d is not None]
            raise ValueError(
                f"pmap got inconsistent sizes for array axes to be mapped: needed equal ones, got "
                f"{sizes} in arguments of shapes {shapes}{here()}"
            )
        given = sizes[0] if owners is None else len(owners)
        if self.axis_size is not None and self.axis_size != given:
            raise ValueError(
                f"Specified axis_size {self.axis_size} doesn't match received axis_size "
                f"{given}.{here()}"
            )
        if owners is not None and sizes[0] != available:
            raise ValueError(
                f"pmap: needed a mapped axis of size {available}, the devices of this process "
                f"among {len(owners)} of all processes, got {sizes[0]}{here()}"
            )
        if sizes[0] > available:
            raise ValueError(
                f"compiling computation that requires {sizes[0]} logical devices, but only "
                f"{available} are available (pmap of {name_of(self.fun)} maps an axis of size "
                f"{sizes[0]}; use vmap, or start with TOILE_{platform.upper()}_DEVICES={sizes[0]})"
                f"{here()}"
            )
        return sizes[0]

    def available(self) -> tuple[Any, ...]:
        """The devices that the function may use; inside another mapping, one device's share."""
        if self.devices is not None:
            found = tuple(self.devices)
        elif tracing.devices is not None and state.trace is not None:
            found = tracing.devices
        elif self.backend is None:
            found = tuple(default_devices())
        elif self.backend in registry.names:
            found = tuple(registry.named(self.backend).all_devices())
        else:
            known = " or ".join(repr(p.name) for p in registry.platforms())
            raise RuntimeError(f"pmap: needed the backend {known}, got {self.backend!r}{here()}")
        if tracing.devices is not None and state.trace is not None:
            own = tuple([d for d in found if _is_own(d)])
            found = own[: len(tracing.devices) // tracing.size]
        return found

    def _output_axes(self, tree: Any, count: int) -> list[Any]:
        if self.out_axes is None or isinstance(self.out_axes, int):
            return [self.out_axes] * count
        dummy = unflatten(tree, [object()] * count)
        try:
            return broadcast_prefix(self.out_axes, dummy, is_leaf=lambda x: x is None)
        except ValueError as e:
            told = message(e).replace("broadcast_prefix prefix_tree", "pmap out_axes")
            raise ValueError(
                f"pmap out_axes: needed a prefix of {tree}, got {self.out_axes!r}: {told}{here()}"
            ) from e


def _is_own(device: Any) -> bool:
    return device.process_index == engine_devices.process_index()


def _owners(devices: Sequence[Any]) -> tuple[int, ...] | None:
    """The process of each device, if other processes take part; None inside another mapping."""
    if engine_devices.process_count() == 1 or all(map(_is_own, devices)) or (
        tracing.devices is not None and state.trace is not None
    ):
        return None
    return tuple([d.process_index for d in devices])


def _argument(x: Any) -> Any:
    """An array for any argument; NumPy memory is read during the call only."""
    if x.__class__ is np.ndarray and state.trace is None and x.dtype.isnative:
        if dtypes.canonicalize_dtype(x.dtype) == x.dtype:
            return DeviceArray(x)
    return as_array(x)


def _layout(rank: int, dim: int | None, name: Any) -> Layout:
    return tuple((name,) if i == dim else () for i in range(rank))


def _slice_aval(aval: Aval, dim: int | None) -> Aval:
    """One device's part of an array that is mapped over an axis."""
    if dim is None:
        return aval
    return aval.with_shape((*aval.shape[:dim], 1, *aval.shape[dim + 1 :]))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _placed(out: Any, wanted: int | None) -> Any:
    """A device's result with the mapped axis, of size 1, at `wanted`."""
    if wanted is None:
        return out
    rank = out.ndim + 1
    if not -rank <= wanted < rank:
        raise ValueError(f"pmap: needed out_axes within the {rank} axes of the result, got "
                         f"{wanted}{here()}")
    at = wanted % rank
    return reshape(out, (*out.shape[:at], 1, *out.shape[at:]))
