"""shard_map: a function of the devices' parts of arrays, over the named axes of a mesh.

Arguments are cut along mesh axes as `in_specs` says, results joined as `out_specs` says; inside,
collectives see the mesh's axis names. Over a mesh of devices one Program runs on each of them
(`parallel.spmd`); over an abstract mesh each axis becomes a vmapped one, so that the meaning does
not depend on how many devices there are. May import staging and below.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from toile.engine import config
from toile.engine.avals import aval_of
from toile.engine.conversion import as_array
from toile.engine.devices import Device
from toile.engine.program import evaluate, trace_program
from toile.engine.sharded import Sharded as ShardedBase
from toile.engine.source import here, message
from toile.engine.tracing import Array, state
from toile.engine.trees import broadcast_prefix, flatten, structure, unflatten
from toile.parallel.meshes import AbstractMesh, Mesh, mesh_in_force
from toile.parallel.specs import NamedSharding, P, axes_of
from toile.parallel.spmd import Form, Forms, Grid, Layout, Spmd, tracing_on
from toile.parallel.varying import checked, nested_maps
from toile.primitives.families import bdim_at, move_axis, reshape
from toile.primitives.shapes import slice_axis
from toile.staging.flattening import name_of


class _Infer:
    """In place of in_specs or in_axes: take the arguments' own shardings."""

    def __repr__(self) -> str:
        return "toile.sharding.Infer"


Infer = _Infer()


def shard_map(
    f: Any = None, /, *, out_specs: Any, in_specs: Any = Infer, mesh: Any = None,
    axis_names: Any = frozenset(), check_vma: bool = True,
) -> Any:
    """`f` on each device's parts of the arguments; decorates when `f` is not given."""
    if f is None:
        return lambda g: shard_map(g, out_specs=out_specs, in_specs=in_specs, mesh=mesh,
                                   axis_names=axis_names, check_vma=check_vma)
    if not callable(f):
        raise TypeError(f"shard_map: needed a callable, got {f!r}{here()}")
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f"shard_map: needed a Mesh or an AbstractMesh, got {mesh!r}{here()}")

    forms = Forms()

    @functools.wraps(f)
    def mapped(*args: Any) -> Any:
        used = mesh_in_force() if mesh is None else mesh
        if used.empty:
            raise ValueError(
                "shard_map: the context mesh cannot be empty (pass mesh=, or use "
                "`toile.set_mesh(mesh)` to enter into a mesh context)" + here()
            )
        sharded = _Sharded(f, used, axis_names, in_specs, out_specs, check_vma)
        if isinstance(used, Mesh) and all(isinstance(d, Device) for d in used.devices.flat):
            return sharded.on_devices(args, forms)
        return sharded.run(args)

    return mapped


def smap(f: Any = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any) -> Any:
    """`f` on each device's parts along one mesh axis; the mesh is the one in force."""
    if f is None:
        return lambda g: smap(g, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)

    def spec(axis: int | None) -> Any:
        return P() if axis is None else P(*(None,) * axis, axis_name)

    def specs(axes: Any) -> Any:
        leaves, tree = flatten(axes, is_leaf=lambda x: x is None)
        return unflatten(tree, [spec(a) for a in leaves])

    in_specs = Infer if in_axes is Infer else specs(in_axes)
    return shard_map(f, in_specs=in_specs, out_specs=specs(out_axes), axis_names={axis_name})


class _Sharded:
    """One call: arguments are cut, the function is mapped, results are joined."""

    def __init__(self, f: Callable[..., Any], mesh: Any, names: Any, in_specs: Any, out_specs: Any,
                 check: bool):
        self.f, self.in_specs, self.out_specs, self.check = f, in_specs, out_specs, check
        manual = set(names) or set(mesh.axis_names)
        if not manual <= set(mesh.axis_names):
            raise ValueError(
                f"shard_map: needed axis_names among the mesh axes {mesh.axis_names}, got "
                f"{sorted(manual - set(mesh.axis_names))}{here()}"
            )
        self.mesh = mesh
        self.axes = [(n, s) for n, s in mesh.shape_tuple if n in manual]
        self.sizes = dict(self.axes)

    # ---- on devices
    def on_devices(self, args: tuple[Any, ...], forms: Forms) -> Any:
        """The results of the function on each device of the mesh, traced once for a kind."""
        leaves, tree = flatten(args)
        leaves = [x if isinstance(x, Array) else as_array(x) for x in leaves]
        specs = self._in_specs(args, leaves)
        key = (tree, tuple([aval_of(x) for x in leaves]), tuple(specs), self.mesh,
               config.trace_context(), state.axes)
        return forms.find(key, lambda: self._traced(leaves, tree, specs))(leaves)

    def _in_specs(self, args: Any, leaves: Sequence[Any]) -> list[P]:
        if self.in_specs is not Infer:
            return self._specs(self.in_specs, args, "in_specs")
        found = []
        for x in leaves:
            own = x._sharding if isinstance(x, ShardedBase) else None
            named = isinstance(own, NamedSharding) and own.mesh == self.mesh
            found.append(own.spec if named else P())  # type: ignore[union-attr]
        return found

    def _traced(self, leaves: Sequence[Any], tree: Any, specs: Sequence[P]) -> Form:
        grid = Grid(tuple(self.axes), self.mesh)
        ins = [self._layout(aval_of(x), s, i)
               for i, (x, s) in enumerate(zip(leaves, specs, strict=True))]
        avals = [self._part(aval_of(x), layout) for x, layout in zip(leaves, ins, strict=True)]
        found: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            outs, out_tree = flatten(self.f(*unflatten(tree, xs)))
            found[:] = [out_tree]
            return [o if isinstance(o, Array) else as_array(o) for o in outs]

        inputs = [frozenset(n for names in x for n in names) for x in ins]
        with tracing_on(grid, list(self.mesh.devices.flat)), self._checked(inputs):
            program, consts = trace_program(flat, avals, name_of(self.f))
        dummy = unflatten(found[0], [object()] * len(program.outputs))
        wanted = self._specs(self.out_specs, dummy, "out_specs")
        for o, spec in zip(program.outputs, wanted, strict=True):
            self._check_rank(spec, len(o.aval.shape))
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
        """The names that divide each axis of an argument, which must be divisible."""
        if len(spec) > aval.ndim:
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed an in_specs entry no longer than "
                f"the rank of argument leaf {number}, got {spec} for shape {aval.shape}{here()}"
            )
        layout = self._entries(spec, aval.ndim)
        seen: set[Any] = set()
        for i, (size, names) in enumerate(zip(aval.shape, layout, strict=True)):
            self._check_division(i, size, names, number, aval.shape)
            if seen & set(names):
                raise ValueError(f"shard_map in_specs: needed each mesh axis once, got {spec}"
                                 f"{here()}")
            seen |= set(names)
        return layout

    def _part(self, aval: Any, layout: Layout) -> Any:
        return aval.with_shape(tuple(
            n // math.prod(self.sizes[a] for a in names)
            for n, names in zip(aval.shape, layout, strict=True)
        ))

    def _check_replicas(self, program: Any, ins: Sequence[Layout], wanted: Sequence[P]) -> None:
        """Refuse results that may differ along mesh axes that their specs do not name."""
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
            f"shard_map applied to {name_of(self.f)}: out_specs is {spec}, which needs a "
            f"result that is replicated over mesh axis {name!r}, got one that may vary over "
            "it (mention the axis in out_specs, reduce over it with psum or pmean, or pass "
            f"check_vma=False){here()}"
        )

    def _check_rank(self, spec: P, rank: int) -> None:
        if len(spec) > rank:
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed an out_specs entry no longer than "
                f"the rank of the result, got {spec} for a result of rank {rank}{here()}"
            )

    def _check_division(
        self, axis: int, size: int, names: tuple[Any, ...], number: int, shape: Any
    ) -> int:
        parts = math.prod(self.sizes[n] for n in names)
        if size % parts:
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed axis {axis} of argument leaf "
                f"{number} to be divisible by {parts} (the mesh axes {names}), got shape "
                f"{shape}{here()}"
            )
        return parts

    # ---- on no devices: the mesh axes as axes of the arrays
    def run(self, args: tuple[Any, ...]) -> Any:
        leaves, tree = flatten(args)
        leaves = [x if isinstance(x, Array) else as_array(x) for x in leaves]
        specs = self._specs(self.in_specs, args, "in_specs")
        cut = [self._cut(x, s, i) for i, (x, s) in enumerate(zip(leaves, specs, strict=True))]
        out_tree: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            outs, found = flatten(self.f(*unflatten(tree, xs)))
            out_tree.append(found)
            return [o if isinstance(o, Array) else as_array(o) for o in outs]

        mapped = [axes for _, axes in cut]
        outs, varying = nested_maps(flat, [x for x, _ in cut], mapped, self.axes)
        dummy = unflatten(out_tree[0], [object()] * len(outs))
        wanted = self._specs(self.out_specs, dummy, "out_specs")
        joined = [self._join(o, v, s) for o, v, s in zip(outs, varying, wanted, strict=True)]
        return unflatten(out_tree[0], joined)

    def _specs(self, given: Any, tree: Any, what: str) -> list[P]:
        """One spec per leaf; all names are axes of the mesh."""
        if given is Infer:
            return [P()] * len(flatten(tree)[0])
        try:
            found = broadcast_prefix(given, tree, is_leaf=lambda x: x is None)
        except ValueError as e:
            raise ValueError(
                f"shard_map {what}: needed a prefix of {structure(tree)}, got {given!r}: "
                f"{message(e)}{here()}"
            ) from e
        specs = [P() if s is None else s for s in found]
        for s in specs:
            if not isinstance(s, P):
                raise TypeError(f"shard_map {what}: needed PartitionSpecs, got {s!r}{here()}")
            unknown = [n for e in s for n in axes_of(e) if n not in self.sizes]
            if unknown:
                raise ValueError(
                    f"shard_map {what} argument must refer to an axis marked as manual "
                    f"({sorted(self.sizes, key=str)}), but {what} refers to {unknown[0]!r}{here()}"
                )
        return specs

    def _cut(self, x: Any, spec: P, number: int) -> tuple[Any, list[Any]]:
        """The array with one leading axis for each mesh axis it is cut along, in mesh order."""
        if len(spec) > x.ndim:
            raise ValueError(
                f"shard_map applied to {name_of(self.f)}: needed an in_specs entry no longer than "
                f"the rank of argument leaf {number}, got {spec} for shape {x.shape}{here()}"
            )
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
        """A result's parts put together along the axes of its spec."""
        wanted = [n for e in spec for n in axes_of(e)]
        rank = out.ndim - len(varying)
        self._check_rank(spec, rank)
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


def _transposed(x: Any, order: Sequence[int]) -> Any:
    """The axes of `x` in another order."""
    names = list(range(x.ndim))
    for to, n in enumerate(order):
        at = names.index(n)
        if at != to:
            x = move_axis(x, at, to)
            names.insert(to, names.pop(at))
    return x
