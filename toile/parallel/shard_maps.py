"""shard_map, which calls a function on each device of a mesh with that device's arguments.

Arguments are divided along mesh axes by `in_specs`, and results are joined by `out_specs`. Inside
the function, collectives can use the names of the mesh axes. If the mesh has devices, one Program
runs on each of them (`parallel.spmd`). For an abstract mesh, the function is vmapped over each
axis, so the meaning does not depend on the number of devices. Without `in_specs`, arguments are
divided according to their layout, which must be known (`sharding_of`). This module may import
staging and the layers below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence, Set
from contextlib import nullcontext
from typing import Any

import numpy as np

from toile.engine import config
from toile.engine.annotations import PyTree
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array
from toile.engine.devices import Device
from toile.engine.program import (
    evaluate,
    trace_program,
)
from toile.engine.sharded import Sharded
from toile.engine.source import here, message
from toile.engine.trace import Tracer, state
from toile.engine.trees import broadcast_prefix, flatten, structure, unflatten
from toile.parallel.array_layouts import UNKNOWN, alike, along, remember, sharding_of
from toile.parallel.meshes import AbstractMesh, Mesh, get_abstract_mesh, mesh_in_force
from toile.parallel.specs import DuplicateSpecError, NamedSharding, P, axes_of
from toile.parallel.spmd import Form, Forms, Grid, Layout, Spmd, tracing, tracing_on
from toile.parallel.varying_values import checked, nested_maps
from toile.primitives.families import bdim_at, move_axis, reshape
from toile.primitives.shapes import slice_axis
from toile.staging.flat_functions import dress, name_of


class _Infer:
    """Used in place of in_specs or in_axes to choose the arguments' own shardings."""

    def __repr__(self) -> str:
        return "toile.sharding.Infer"


Infer = _Infer()


def shard_map(
    f: Callable[..., Any] | None = None, /, *, out_specs: PyTree, in_specs: PyTree = Infer,
    mesh: Mesh | AbstractMesh | None = None, axis_names: Set[Hashable] = frozenset(),
    check_vma: bool = True,
) -> Callable[..., Any]:
    """Run a function on each device of a mesh, with that device's parts of the arguments.

    The arguments are divided among the devices, and the results are joined. Inside the function,
    collectives such as `lax.psum` communicate along the axes of the mesh. With an abstract mesh,
    the same results are computed without the devices. If `f` is omitted, `shard_map` returns a
    decorator.

    Args:
        f: the function, which is called on each device with that device's parts of the arguments.
        out_specs: a tree of `PartitionSpec` objects whose structure is a prefix of the results'
            structure. Each spec names the mesh axes along which the parts of a result are joined.
            Along the other mesh axes, the result must be the same on all devices.
        in_specs: a tuple, or a tree with the structure of the arguments, that contains a
            `PartitionSpec` for each argument. The spec names the mesh axes along which the argument
            is divided. If the spec is None, the argument is neither divided nor traced: the
            function receives the value itself. By default, arguments are divided according to their
            current shardings.
        mesh: mesh to map over; None for the current mesh.
        axis_names: names of the mesh axes to map over; an empty set means all axes.
        check_vma: whether to check that results are the same on all devices wherever `out_specs`
            requires this.

    Returns:
        A function whose arguments and results are whole arrays.

    Raises:
        ValueError: there is no mesh. The returned function also raises this error if the size of an
            axis is not a multiple of the number of parts, or if `check_vma` is True and a result
            may differ between devices where `out_specs` does not allow this.

    >>> from toile.sharding import AbstractMesh, P
    >>> mesh = AbstractMesh((4,), ("x",))
    >>> def centered(part): return part - lax.pmean(part.mean(), "x")
    >>> f = toile.shard_map(centered, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    >>> f(jnp.arange(8.0))
    Array([-3.5, -2.5, -1.5, -0.5,  0.5,  1.5,  2.5,  3.5], dtype=float32)
    """
    if f is None:
        return lambda g: shard_map(g, out_specs=out_specs, in_specs=in_specs, mesh=mesh,
                                   axis_names=axis_names, check_vma=check_vma)
    if not callable(f):
        raise TypeError(f"shard_map: needed a callable, got {f!r}{here()}")
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(
            "shard_map requires a `jax.sharding.Mesh` or a `jax.sharding.AbstractMesh` instance "
            f"for its second argument, but got {mesh!r} of type {type(mesh)}{here()}"
        )
    if not isinstance(axis_names, (set, frozenset)):
        raise TypeError(
            "`axis_names` argument of shard_map should be of type `frozenset` or `set`. Got type: "
            f"{type(axis_names)}{here()}"
        )

    forms = Forms()

    def mapped(*args: Any) -> Any:
        used = _mesh_for(mesh, args)
        sharded = _Sharded(f, used, axis_names, in_specs, out_specs, check_vma)
        if isinstance(used, Mesh) and all(isinstance(d, Device) for d in used.devices.flat):
            return sharded.on_devices(args, forms)
        return sharded.run(args)

    return dress(mapped, f)


def _mesh_for(mesh: Any, args: tuple[Any, ...]) -> Any:
    """The mesh of a call: the one given, the current one, or that of the enclosing map.

    An abstract mesh is replaced by that of the arguments, which must have the same axes."""
    context = get_abstract_mesh()
    if mesh is None:
        mesh = mesh_in_force()
        if mesh.empty and state.trace is not None and tracing.mesh is not None:
            mesh = tracing.mesh
        if mesh.empty:
            raise ValueError(
                "The context mesh cannot be empty. Use `toile.set_mesh(mesh)` to enter into a mesh "
                "context, or pass mesh= to shard_map" + here()
            )
    elif not context.empty and mesh.shape_tuple != context.shape_tuple:
        raise ValueError(
            f"The context mesh {context} should match the mesh passed to shard_map {mesh}{here()}"
        )
    if isinstance(mesh, Mesh) or state.trace is not None:
        return mesh
    for x in flatten(args)[0]:
        if isinstance(x, Sharded) and isinstance(x._sharding, NamedSharding):
            own = x._sharding.mesh
            if own.shape_tuple != mesh.shape_tuple:
                raise ValueError(
                    f"Mesh shape of the input {own.shape_tuple} does not match the mesh shape "
                    f"passed to shard_map {mesh.shape_tuple} for shape {x.aval.str_short()}{here()}"
                )
            mesh = own
    return mesh


def smap(
    f: Callable[..., Any] | None = None, /, *, in_axes: PyTree = Infer, out_axes: PyTree,
    axis_name: Hashable
) -> Callable[..., Any]:
    """Run a function on each device along a mesh axis, with that device's parts of the arguments.

    `smap` is `shard_map` over one axis of the current mesh, with array axes instead of specs. If
    `f` is omitted, `smap` returns a decorator.

    Args:
        f: the function, which is called on each device with that device's parts of the arguments.
        in_axes: a tuple, or a tree with the structure of the arguments, that contains the axis
            along which each argument is divided. An argument whose axis is None is passed to each
            device as a whole. By default, arguments are divided according to their current
            shardings.
        out_axes: axis along which the parts of each result are joined; None for a result that is
            the same on all devices.
        axis_name: name of the mesh axis.

    Returns:
        A function whose arguments and results are whole arrays.

    >>> f = toile.smap(lambda x: x.sum(keepdims=True), in_axes=0, out_axes=0, axis_name="x")
    >>> with toile.sharding.use_abstract_mesh(toile.sharding.AbstractMesh((4,), ("x",))):
    ...     print(f(jnp.arange(8)))
    [ 1  5  9 13]
    """
    if f is None:
        return lambda g: smap(g, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (tuple, list, set, frozenset)):
        raise TypeError(
            f"smap axis_name should be a `str` or a `Hashable`, but got {axis_name}{here()}")

    def spec(axis: int | None) -> Any:
        return P() if axis is None else P(*(None,) * axis, axis_name)

    def specs(axes: Any) -> Any:
        leaves, tree = flatten(axes, is_leaf=lambda x: x is None)
        return unflatten(tree, [spec(a) for a in leaves])

    in_specs = Infer if in_axes is Infer else specs(in_axes)
    return shard_map(f, in_specs=in_specs, out_specs=specs(out_axes), axis_names={axis_name})


class _Sharded:
    """One call: divide the arguments, map the function, join the results."""

    def __init__(self, f: Callable[..., Any], mesh: Any, names: Any, in_specs: Any, out_specs: Any,
                 check: bool):
        self.f, self.in_specs, self.out_specs, self.check = f, in_specs, out_specs, check
        manual = set(names) or set(mesh.axis_names)
        if not manual <= set(mesh.axis_names):
            raise ValueError(
                f"jax.shard_map requires axis_names={frozenset(manual)} to be a subset of "
                f"mesh.axis_names={mesh.axis_names}{here()}"
            )
        self.mesh = mesh
        self.axes = [(n, s) for n, s in mesh.shape_tuple if n in manual]
        self.sizes = dict(self.axes)

    # ---- on devices
    def on_devices(self, args: tuple[Any, ...], forms: Forms) -> Any:
        """The results of the function on each device of the mesh, traced once per kind of
        arguments."""
        given = self._given(args)
        rests = self._other_layouts(given.arrays)
        fixed = given.static_key()
        if fixed is None:
            return self._traced(given, rests)(given.arrays)
        key = (given.tree, tuple([aval_of(x) for x in given.arrays]), tuple(given.specs), fixed,
               rests, self.mesh, config.trace_context(), state.axes)
        return forms.find(key, lambda: self._traced(given, rests))(given.arrays)

    def _given(self, args: tuple[Any, ...]) -> _Given:
        leaves, tree = flatten(args)
        if self.in_specs is Infer:
            return _Given(leaves, tree, [self._inferred(x, i) for i, x in enumerate(leaves)])
        return _Given(leaves, tree, self._specs(self.in_specs, args, "in_specs"))

    def _inferred(self, x: Any, number: int) -> P:
        """The spec of an argument from its layout, without axes that `f` is not mapped over."""
        own: Any = UNKNOWN if self._is_inside() else sharding_of(x)
        if own is None:
            return P()
        if own is UNKNOWN:
            if math.prod(self.sizes.values()) == 1:
                return P()  # there is one part, whatever the spec
            raise self._not_known(x, number)
        if not alike(own.mesh, self.mesh):
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed argument leaf {number} on the "
                f"mesh {self.mesh} to infer in_specs, got one on {own.mesh} (use toile.device_put "
                f"to move it there, or pass in_specs){here()}"
            )
        if own.mapped & set(self.sizes):
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed axis_names that vmap does not map "
                f"over, got {sorted(own.mapped & set(self.sizes), key=str)}, which divide the "
                f"mapped axis of argument leaf {number}{here()}"
            )
        return P(*[self._manual(names, own.layout) for names in own.layout])

    def _manual(self, names: tuple[Any, ...], layout: Layout) -> tuple[Any, ...]:
        """The mesh axes that `f` is mapped over, which must be the first names of an array axis."""
        kept = tuple(n for n in names if n in self.sizes)
        if kept != names[: len(kept)]:
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed the axes {list(self.sizes)} "
                f"before others in each entry of an argument's spec, got {P(*layout)}{here()}"
            )
        return kept

    def _is_inside(self) -> bool:
        """Whether the mesh is abstract and some of its axes are already mapped, as array axes."""
        return isinstance(self.mesh, AbstractMesh) and any(
            n in self.mesh.axis_names for n, _ in state.axes)

    def _not_known(self, x: Any, number: int) -> TypeError:
        traced = x.traced_for() if isinstance(x, Tracer) else ""
        return TypeError(
            f"shard_map applied to {name_of(self.f)}: needed the sharding of argument leaf "
            f"{number} to infer in_specs, got {aval_of(x).str_short()}, a traced value{traced} "
            "whose sharding is not known (pass in_specs, or in_axes to smap; or set it with "
            f"toile.reshard(x, P(...)) in the traced function){here()}"
        )

    def _other_layouts(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments' layouts along the other mesh axes, for nested maps over those axes."""
        others = set(self.mesh.axis_names) - set(self.sizes)
        return tuple([along(sharding_of(x), self.mesh, others) if others else None for x in arrays])

    def _traced(self, given: _Given, rests: Sequence[Any]) -> Form:
        grid = Grid(tuple(self.axes), self.mesh)
        ins = [self._layout(aval_of(x), s, i) for i, x, s in given.cut()]
        avals = [self._part(aval_of(x), layout)
                 for x, layout in zip(given.arrays, ins, strict=True)]
        found: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            remember(xs, rests)
            outs, out_tree = flatten(self.f(*given.joined(xs)))
            found[:] = [out_tree]
            return [as_array(o) for o in outs]

        inputs = [frozenset(n for names in x for n in names) for x in ins]
        with tracing_on(grid, list(self.mesh.devices.flat)), self._checked(inputs):
            program, consts = trace_program(flat, avals, name_of(self.f))
        dummy = unflatten(found[0], [object()] * len(program.outputs))
        wanted = self._out_specs(dummy)
        for o, spec in zip(program.outputs, wanted, strict=True):
            self._check_rank("out_specs", spec, len(o.aval.shape), "the result")
        whole: list[Layout] = [((),) * c.ndim for c in consts]
        if self.check:
            self._check_replicas(program, whole + ins, wanted)
        outs = [self._entries(s, len(o.aval.shape))
                for o, s in zip(program.outputs, wanted, strict=True)]
        op = Spmd(program, grid, tuple(whole + ins), tuple(outs), name_of(self.f))
        return Form(op, consts, found[0])

    def _checked(self, inputs: Sequence[Any]) -> Any:
        return checked(self.axes, inputs) if self.check else nullcontext()

    def _entries(self, spec: P, rank: int) -> Layout:
        return tuple([axes_of(e) for e in spec] + [()] * (rank - len(spec)))

    def _layout(self, aval: Any, spec: P, number: int) -> Layout:
        """The mesh axes that divide each axis of an argument; sizes must be divisible."""
        self._check_rank("in_specs", spec, aval.ndim, f"argument leaf {number}")
        layout = self._entries(spec, aval.ndim)
        seen: set[Any] = set()
        for i, (size, names) in enumerate(zip(aval.shape, layout, strict=True)):
            self._check_division(i, size, names, number, aval.shape)
            if seen & set(names):
                raise DuplicateSpecError(
                    "A single NamedSharding spec specification can map every mesh axis to at most "
                    f"one positional dimension, but {spec} of in_specs has duplicate entries for "
                    f"`{min(seen & set(names), key=str)}`{here()}"
                )
            seen |= set(names)
        return layout

    def _part(self, aval: Any, layout: Layout) -> Any:
        return aval.with_shape(tuple(
            n // math.prod(self.sizes[a] for a in names)
            for n, names in zip(aval.shape, layout, strict=True)
        ))

    def _check_replicas(self, program: Any, ins: Sequence[Layout], wanted: Sequence[P]) -> None:
        """Raise an error if results may differ along mesh axes that their specs do not name."""
        if all(set(self.sizes) <= {n for e in s for n in axes_of(e)} for s in wanted):
            return
        mapped = [[n for n, _ in self.axes if any(n in names for names in x)] for x in ins]
        varying: list[list[Any]] = []

        def flat(*xs: Any) -> list[Any]:
            outs, found = nested_maps(lambda *ys: evaluate(program, ys), xs, mapped, self.axes)
            varying[:] = found
            return outs

        avals = [a.with_shape((*(self.sizes[n] for n in m), *a.shape))
                 for a, m in zip(program.in_avals, mapped, strict=True)]
        trace_program(flat, avals, name_of(self.f))
        for names, spec in zip(varying, wanted, strict=True):
            for n in names:
                if n not in [a for e in spec for a in axes_of(e)]:
                    raise self._differs(spec, n)

    def _differs(self, spec: P, name: Any) -> ValueError:
        return ValueError(
            f"shard_map applied to {name_of(self.f)} was given out_specs which require replication "
            f"which can't be statically inferred given the mesh: out_specs is {spec}, which needs "
            f"a result that is replicated over mesh axis {name!r}, got one that may vary over it "
            "(mention the axis in out_specs, reduce over it with psum or pmean, or pass "
            f"check_vma=False){here()}"
        )

    def _check_rank(self, what: str, spec: P, rank: int, whose: str) -> None:
        """Raise an error if a spec is longer than the rank of its value."""
        if len(spec) > rank:
            hint = "" if rank else f" (consider using an {what} entry of `P()`, the empty spec)"
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed an {what} entry no longer than "
                f"the rank of {whose}, got {spec}, which has length {len(spec)}, for a value which "
                f"has rank {rank}{hint}{here()}"
            )

    def _check_division(
        self, axis: int, size: int, names: tuple[Any, ...], number: int, shape: Any
    ) -> int:
        parts = math.prod(self.sizes[n] for n in names)
        if size % parts:
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed axis {axis} of argument leaf "
                f"{number} to be evenly divisible by {parts} (the mesh axes {names}), got shape "
                f"{shape}{here()}"
            )
        return parts

    # ---- without devices: mesh axes as array axes
    def run(self, args: tuple[Any, ...]) -> Any:
        given = self._given(args)
        cut = [self._cut(x, s, i) for i, x, s in given.cut()]
        out_tree: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            outs, found = flatten(self.f(*given.joined(xs)))
            out_tree.append(found)
            return [as_array(o) for o in outs]

        mapped = [axes for _, axes in cut]
        outs, varying = nested_maps(flat, [x for x, _ in cut], mapped, self.axes)
        dummy = unflatten(out_tree[0], [object()] * len(outs))
        wanted = self._out_specs(dummy)
        joined = [self._join(o, v, s) for o, v, s in zip(outs, varying, wanted, strict=True)]
        return unflatten(out_tree[0], joined)

    def _out_specs(self, tree: Any) -> list[P]:
        return [P() if s is None else s for s in self._specs(self.out_specs, tree, "out_specs")]

    def _specs(self, given: Any, tree: Any, what: str) -> list[Any]:
        """One spec, or None, per leaf; all names are axes of the mesh."""
        try:
            specs = broadcast_prefix(given, tree, is_leaf=lambda x: x is None)
        except ValueError as e:
            told = message(e).replace("broadcast_prefix prefix_tree", f"shard_map {what}")
            raise ValueError(
                f"shard_map {what}: needed a prefix of {structure(tree)}, got {given!r}: "
                f"{told}{here()}"
            ) from e
        for s in specs:
            if s is None:
                continue
            if not isinstance(s, P):
                raise TypeError(
                    f"shard_map {what} argument must be a pytree of `jax.sharding.PartitionSpec` "
                    f"instances, but got {s!r} of type {type(s).__name__}{here()}"
                )
            unknown = [n for e in s for n in axes_of(e) if n not in self.sizes]
            if unknown:
                raise ValueError(
                    f"shard_map {what} argument must refer to an axis marked as manual "
                    f"({sorted(self.sizes, key=str)}), but {what} refers to {unknown[0]!r}{here()}"
                )
        return specs

    def _cut(self, x: Any, spec: P, number: int) -> tuple[Any, list[Any]]:
        """The array with one leading axis for each mesh axis that divides it, in mesh order."""
        self._check_rank("in_specs", spec, x.ndim, f"argument leaf {number}")
        shape: list[int] = []
        found: dict[Any, int] = {}
        rest: list[int] = []
        entries = [axes_of(e) for e in spec] + [()] * (x.ndim - len(spec))
        for i, (size, names) in enumerate(zip(x.shape, entries, strict=True)):
            parts = self._check_division(i, size, names, number, x.shape)
            for n in names:
                found[n] = len(shape)
                shape.append(self.sizes[n])
            rest.append(len(shape))
            shape.append(size // parts)
        order = [n for n, _ in self.axes if n in found]
        if order:
            x = _transposed(reshape(x, tuple(shape)), [*(found[n] for n in order), *rest])
        return x, order

    def _join(self, out: Any, varying: Sequence[Any], spec: P) -> Any:
        """Join a result's parts along the axes of its spec."""
        wanted = [n for e in spec for n in axes_of(e)]
        rank = out.ndim - len(varying)
        self._check_rank("out_specs", spec, rank, "the result")
        names = list(varying)
        for n in [n for n in varying if n not in wanted]:
            if self.check:
                raise self._differs(spec, n)
            out = slice_axis(move_axis(out, names.index(n), 0), 0, 1, 0)
            out = reshape(out, out.shape[1:])
            names.remove(n)
        for n in reversed([n for n in wanted if n not in names]):
            out = bdim_at(out, None, self.sizes[n], 0)
            names.insert(0, n)
        entries = [axes_of(e) for e in spec] + [()] * (rank - len(spec))
        order: list[int] = []
        shape: list[int] = []
        for i, axes in enumerate(entries):
            order += [names.index(n) for n in axes] + [len(names) + i]
            size = out.shape[len(names) + i]
            shape.append(size * math.prod(self.sizes[n] for n in axes))
        return reshape(_transposed(out, order), tuple(shape)) if names else out


class _Given:
    """The arguments of a call: divided leaves, as arrays, and static leaves, with spec None."""

    __slots__ = ("tree", "specs", "arrays", "static")

    def __init__(self, leaves: Sequence[Any], tree: Any, specs: Sequence[Any]):
        self.tree, self.specs = tree, specs
        self.arrays = [as_array(x)
                       for x, s in zip(leaves, specs, strict=True) if s is not None]
        self.static = [x for x, s in zip(leaves, specs, strict=True) if s is None]

    def cut(self) -> list[tuple[int, Any, P]]:
        """The index among all leaves, the array and the spec of each divided leaf."""
        numbered = [(i, s) for i, s in enumerate(self.specs) if s is not None]
        return [(i, x, s) for (i, s), x in zip(numbered, self.arrays, strict=True)]

    def joined(self, parts: Sequence[Any]) -> Any:
        """The arguments with other values in place of the divided arrays."""
        moving, fixed = iter(parts), iter(self.static)
        return unflatten(self.tree, [next(fixed if s is None else moving) for s in self.specs])

    def static_key(self) -> tuple[Any, ...] | None:
        """Equal for static values that may share a trace; None if they cannot be hashed."""
        key = tuple([(type(x), x, str(x) if isinstance(x, _SIGNED) else "") for x in self.static])
        try:
            hash(key)
        except TypeError:  # arrays, traced values
            return None
        return key


_SIGNED = (float, complex, np.inexact)  # 0.0 and -0.0 are equal but not identical


def _transposed(x: Any, order: Sequence[int]) -> Any:
    """The axes of `x` in another order."""
    names = list(range(x.ndim))
    for to, n in enumerate(order):
        at = names.index(n)
        if at != to:
            x = move_axis(x, at, to)
            names.insert(to, names.pop(at))
    return x
