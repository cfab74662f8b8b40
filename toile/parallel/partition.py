"""The partition pass, which runs jitted functions with sharded arguments on all devices of a mesh.

The layouts of a Program's inputs and its sharding constraints determine the Program of one device,
with collectives where devices need each other's data. The Program of one device runs like a Program
of shard_map. A Program runs on one device if it has effects, refers to different meshes, or
contains nothing that is divided. This module may import staging and the layers below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from toile.control.division import SETTLED, State
from toile.engine.exchange import slot
from toile.engine.operation import Operation
from toile.engine.program import Atom, Program
from toile.engine.records import dataclass
from toile.engine.sharded import Sharded, common_sharding, describe_devices, from_parts
from toile.engine.source import here
from toile.parallel.buckets import in_buckets
from toile.parallel.collective_order import together
from toile.parallel.meshes import Mesh
from toile.parallel.partition_programs import divided, inlined
from toile.parallel.placement import Constraint
from toile.parallel.specs import UNCONSTRAINED, NamedSharding, axes_of
from toile.parallel.spmd import Grid, Layout, Spmd, tracing_on


@dataclass(frozen=True)
class Partition:
    """A Program divided among the devices of a mesh."""

    op: Spmd
    notes: tuple[str, ...]  # which equations gather their operands
    named: tuple[Any, ...]  # the results' shardings that the user asked for

    @property
    def program(self) -> Program:
        """The Program of one device."""
        return self.op.program

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        outs = self.op(*args)
        return [o if s is None else from_parts(o._parts, o._aval, s)
                for o, s in zip(outs, self.named, strict=True)]

    def describe(self) -> list[str]:
        """A description of the devices, a call's collectives and the gathered operands."""
        mesh = self.op.grid.mesh
        sizes = ", ".join(f"{n!r}: {s}" for n, s in mesh.shape_tuple)
        found = collectives(in_buckets(self.program))
        texts = [f"{count} {name}" for name, count in sorted(found.items())]
        lines = [f"partition: {mesh.size} devices ({sizes}); {', '.join(texts) or 'none'} "
                 f"{'collective' if sum(found.values()) == 1 else 'collectives'}"]
        return lines + [f"    {note}" for note in self.notes]


def collectives(program: Program) -> Counter[str]:
    """How many collectives a Program has, by kind; those in a loop's body count once."""
    found: Counter[str] = Counter()
    for e in program.equations:
        if e.op.exchange_name:
            found[e.op.exchange_name] += 1
        for p in e.op.programs():
            found += collectives(p)
    return found


def _named_in(program: Program) -> Iterator[Any]:
    """The shardings, and the meshes of mapped functions, that occur anywhere in a Program."""
    for e in program.equations:
        if isinstance(e.op, Constraint):
            yield e.op.sharding
        elif isinstance(e.op, Spmd):
            yield e.op.grid
        else:
            for p in e.op.programs():
                yield from _named_in(p)


def layout_of(sharding: NamedSharding, rank: int) -> Layout:
    """The mesh axes that divide each axis of an array of this rank."""
    entries = [axes_of(e) for e in sharding.spec][:rank]
    return tuple(entries + [()] * (rank - len(entries)))


def _mesh(named: Sequence[Any], wanted: Sequence[Any], args: Sequence[Any]) -> Mesh | None:
    """The one mesh that a Program, its wanted results and its operands refer to."""
    given = [s for s in wanted if isinstance(s, NamedSharding)]
    meshes = {id(x.mesh): x.mesh for x in (*named, *given)}
    if not meshes:
        own = [a._sharding for a in args if isinstance(a, Sharded)
               and isinstance(a._sharding, NamedSharding) and any(a._sharding.spec)]
        return own[0].mesh if own else None
    mesh = next(iter(meshes.values()))
    fits = len(meshes) == 1 and isinstance(mesh, Mesh)
    return mesh if fits and all(getattr(x, "owners", None) is None for x in named) else None


def _needs_mesh(mesh: Mesh) -> bool:
    """Whether a mapped function inside a Program requires that the whole Program run on the mesh.
    If the Program ran on one device, the results of the function would come through the host or
    from other processes."""
    return bool(mesh.devices.flat[0].platform != "cpu" or mesh.is_multi_process)


def _is_divided_inside(named: Sequence[Any], mesh: Mesh) -> bool:
    """Whether the shardings in a Program divide something, or force all of it onto the mesh."""
    return any(any(x.spec) if isinstance(x, NamedSharding) else _needs_mesh(mesh) for x in named)


def find(program: Program, args: Sequence[Any], wanted: Sequence[Any] = ()) -> Partition | None:
    """How to divide a Program for these operands and wanted shardings; None to run it undivided."""
    named = program.memoized("named shardings", lambda: tuple(_named_in(program)))
    if not named and not any(isinstance(a, Sharded) for a in args) or slot.exchange is not None:
        return None
    first = common_sharding(program.name, args)
    mesh = _mesh(named, wanted, args)
    if mesh is None or mesh.size == 1 or program.effects:
        return None
    if named:
        _check_devices(program, first, mesh)
    ins = tuple([_operand_layout(a, v.aval.ndim, mesh)
                 for a, v in zip(args, program.inputs, strict=True)])
    if not any(map(any, ins)) and not _is_divided_inside(named, mesh):
        return None
    outs = tuple(wanted) or (None,) * len(program.outputs)
    return program.memoized(("partition", mesh, ins, outs),
                            lambda: partition(program, mesh, ins, outs))


def _check_devices(program: Program, first: Sharded | None, mesh: Mesh) -> None:
    """Raise an error if an operand was put on devices other than those that the Program names."""
    if first is None or not first._is_committed:
        return
    if first._sharding.device_set != set(mesh.devices.flat):
        raise ValueError(
            f"Received incompatible devices for jitted computation. Got an argument of "
            f"{program.name} with {describe_devices(first)} and sharding_constraint inside jit "
            f"with device ids {sorted(d.id for d in mesh.devices.flat)} (use toile.device_put to "
            f"move it there){here()}"
        )


def _operand_layout(x: Any, rank: int, mesh: Mesh) -> Layout:
    """How an operand is divided over a mesh; an operand that is elsewhere counts as whole."""
    sharding = x._sharding if isinstance(x, Sharded) else None
    if isinstance(sharding, NamedSharding) and sharding.mesh is mesh:
        return layout_of(sharding, rank)
    return ((),) * rank


def partition(
    program: Program, mesh: Mesh, ins: Sequence[Layout], wanted: Sequence[Any] = ()
) -> Partition:
    """Divide a Program for inputs in these layouts; `wanted` has the results' NamedShardings."""
    wanted = list(wanted) or [None] * len(program.outputs)
    asked = [s if isinstance(s, NamedSharding) else None for s in wanted]
    states = [SETTLED if s is None else State(layout_of(s, o.aval.ndim))
              for s, o in zip(asked, program.outputs, strict=True)]
    grid = Grid(mesh.shape_tuple, mesh)
    with tracing_on(grid, list(mesh.devices.flat)):
        part = divided(mesh, program, [State(x) for x in ins], states, {})
    outs = tuple(s.layout for s in part.outs)
    op = Spmd(together(part.program), grid, tuple(ins), outs, program.name)
    plain = inlined(program)
    made: dict[Atom, Operation] = {o: e.op for e in plain.equations for o in e.outs}
    named = []
    for o, s in zip(plain.outputs, asked, strict=True):
        maker = made.get(o)
        if s is None and isinstance(maker, Constraint) and UNCONSTRAINED not in [
                *maker.sharding.spec]:
            s = maker.sharding
        named.append(s)
    return Partition(op, part.notes, tuple(named))


def divide(program: Program, args: Sequence[Any], wanted: Sequence[Any] = ()) -> list[Any] | None:
    """The results of a Program on all devices of a mesh; None if it runs on one device."""
    found = find(program, args, wanted)
    return None if found is None else found(args)


__all__ = ["Partition", "collectives", "divide", "find", "partition"]
