"""Arrays put on devices, and the shardings of compiled functions' results.

`put` lays an array out over the devices of a sharding. `place` finds the shardings of the results
of a Program from those of its operands, equation by equation; a result without a rule is stored
whole on every device. `Constraint` is the identity with a sharding for its result. This module may
import control and the layers below it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from toile.compiler.passes.calls import inline_calls
from toile.engine import devices as engine_devices
from toile.engine import dtypes, sharded
from toile.engine.arrays import ConcreteArray
from toile.engine.avals import Aval
from toile.engine.buffers import Placement
from toile.engine.config import flags
from toile.engine.conversion import as_array, leaving, placed, wrap_aval
from toile.engine.devices import Device
from toile.engine.operation import Axis, Dim
from toile.engine.platform_registry import platform_of, registry
from toile.engine.program import Equation, Program, Var
from toile.engine.records import dataclass
from toile.engine.sharded import Sharded, common_sharding, from_data
from toile.engine.shardings import Format, Sharding, SingleDeviceSharding
from toile.engine.source import here, message
from toile.engine.trace import Tracer
from toile.parallel.meshes import AbstractMesh, Mesh, mesh_in_force
from toile.parallel.specs import UNCONSTRAINED, NamedSharding, PartitionSpec, axes_of
from toile.primitives.families import Identity


def concrete(sharding: Any, what: str) -> Any:
    """A PartitionSpec on the current mesh; any other sharding unchanged."""
    if isinstance(sharding, PartitionSpec):
        mesh = mesh_in_force()
        if mesh.empty:
            raise ValueError(
                f"{what}: needed a current mesh for {sharding}, got none (use toile.set_mesh, or "
                "pass a NamedSharding)" + here()
            )
        return NamedSharding(mesh, sharding)
    if isinstance(sharding, Format) and isinstance(sharding.sharding, Sharding):
        return sharding.sharding
    if not isinstance(sharding, Sharding):
        raise TypeError(f"{what}: needed a Sharding or a PartitionSpec, got {sharding!r}{here()}")
    return sharding


def check_fit(shape: tuple[int, ...], sharding: Any, what: str) -> None:
    """Raise an error if an array of this shape cannot have the sharding."""
    try:
        sharding.check_compatible_aval(shape)
    except ValueError as e:
        raise ValueError(
            f"One of {what} is incompatible with its sharding annotation {sharding}: "
            f"{message(e)}{here()}"
        ) from e
    sharding.shard_shape(shape)  # raises IndivisibleError


def put(x: Any, target: Any) -> Any:
    """Put an array on a device or under a sharding, or at its default place if `target` is None."""
    made = as_array(x)
    if isinstance(made, ConcreteArray) and made.dtype == dtypes.float0:
        return leaving(made)
    return _put_by_default(made) if target is None else _put(made, target)


def _put(made: Any, target: Any) -> Any:
    sharding = SingleDeviceSharding(target) if isinstance(target, Device) else target
    if isinstance(made, Tracer):
        return Constraint(sharding)(made) if isinstance(sharding, NamedSharding) else made
    if isinstance(made, Sharded) and made._sharding == sharding and made._is_committed:
        return made
    platform = sharded.platform_over(sharding)
    if platform is not None:
        return _put_elsewhere(made, sharding, platform)
    if engine_devices.process_count() > 1 and not sharding.is_fully_addressable:
        return sharded.from_parts(sharded.split(made._data, made.shape, sharding), made.aval,
                                  sharding)
    if _is_only_device() and not isinstance(made, Sharded) and not isinstance(
        sharding, NamedSharding
    ):
        return placed(made, None)
    return from_data(sharded.fetched(made._data), made.aval, sharding)


def _is_only_device() -> bool:
    """Whether one CPU device is the only device, so that arrays cannot be anywhere else."""
    return engine_devices.cpu_count() == 1 and not any(p.devices() for p in registry.active)


def _put_by_default(x: Any) -> Any:
    """An array on the default device, if that is a CPU device other than the first."""
    default = flags.default_device
    if not isinstance(default, Device) or default is engine_devices.first_device() or (
        default.platform != "cpu" or isinstance(x, (Sharded, Tracer))
    ):
        return x
    return from_data(x._data, x.aval, SingleDeviceSharding(default), committed=False)


def _put_elsewhere(x: Any, sharding: Sharding, platform: Any) -> Any:
    """An array under a sharding over another platform's devices, copied there now."""
    if len(platform.all_devices()) == 1 and not isinstance(x, Sharded) and not isinstance(
        sharding, NamedSharding
    ):
        return placed(x, platform.devices()[0])
    return sharded.from_parts(sharded.split(x._data, x.shape, sharding), x.aval, sharding)


@dataclass(frozen=True)
class Constraint(Identity):
    """The operand itself, laid out over devices by a sharding."""

    sharding: NamedSharding

    name = "sharding_constraint"

    def result_shardings(self) -> list[NamedSharding]:
        """The sharding of the result, used when it is wrapped."""
        return [self.sharding]

    def __call__(self, *args: Any) -> Any:
        (x,) = args
        if isinstance(x, ConcreteArray):
            return put(x, self.sharding)
        return super().__call__(x)

    def transpose(self, ct: Any, x: Any) -> Any:
        return self(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        (x,), (d,) = xs, dims
        if d is None:
            return self(x), None
        entries = list(self.sharding.spec)
        entries += [None] * (d - len(entries))
        entries.insert(d, None)
        return Constraint(self.sharding.update(spec=PartitionSpec(*entries)))(x), d

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        (x,) = ins
        entries = list(self.sharding.spec) + [None] * (x.aval.ndim - len(self.sharding.spec))
        named = {n for e in entries for n in axes_of(e)}
        layout = tuple(
            tuple(n for n in own if n not in named) if e is UNCONSTRAINED else axes_of(e)
            for e, own in zip(entries, x.layout, strict=True)
        )
        with f.without_notes():  # the user asked for it
            return [f.placed(outs[0], layout, f.to(x, layout))]


def constrained(x: Any, sharding: Any, what: str = "with_sharding_constraint") -> Any:
    """`x` laid out by a sharding, or by a PartitionSpec on the current mesh."""
    found = concrete(sharding, what)
    x = as_array(x)
    if not isinstance(found, NamedSharding):
        return put(x, found)
    if isinstance(found.mesh, AbstractMesh):
        return x
    if isinstance(x, Tracer) and what == "with_sharding_constraint":
        found = _dividing(found, x.shape)
    check_fit(x.shape, found, f"{what} arguments")
    return Constraint(found)(x)


def _dividing(sharding: NamedSharding, shape: tuple[int, ...]) -> NamedSharding:
    """A sharding restricted to the axes that it can divide; inside jit, it is only a hint."""
    if len(sharding.spec) > len(shape):
        return sharding
    counts = [p for _, p in sharding._tiling(len(shape))]
    entries = [None if n % p else e
               for e, n, p in zip(sharding.spec, shape, counts, strict=False)]
    if entries == list(sharding.spec):
        return sharding
    while entries and entries[-1] is None:
        entries.pop()
    return sharding.update(spec=entries)


# ----------------------------------------------------------------------------- shardings of results

Env = dict[Any, Any]


class Wrapping:
    """How to wrap the raw results of a Program: the sharding of each, and whether they are
    committed to it."""

    __slots__ = ("outputs", "shardings", "is_committed")

    def __init__(self, outputs: Sequence[Any], shardings: list[Any], is_committed: bool):
        self.outputs, self.shardings, self.is_committed = outputs, shardings, is_committed

    def __call__(self, results: Sequence[Any]) -> list[Any]:
        return [
            from_data(r, o.aval, s, self.is_committed)
            if r.__class__ is np.ndarray or platform_of(r) is not None else wrap_aval(r, o.aval)
            for r, o, s in zip(results, self.outputs, self.shardings, strict=True)
        ]

    @property
    def placements(self) -> list[Placement] | None:
        """The placement of each result; None if a result is divided among several devices."""
        if any(s.num_devices > 1 for s in self.shardings):
            return None
        return [(s, self.is_committed) for s in self.shardings]


def place(program: Program, args: Sequence[Any]) -> Wrapping | None:
    """How to wrap the raw results of a Program for these operands; None for the default way."""
    fixed = program.memoized("placing", lambda: _placing(program))
    first = common_sharding(program.name, args)
    if first is None and fixed is False:
        return None
    given = tuple([a._sharding if isinstance(a, Sharded) else None for a in args])
    found = program.memoized(("layouts", given), lambda: _layouts(program, given))
    rest = (first._sharding if first is not None else fixed).everywhere()
    committed = first is None or first._is_committed
    return Wrapping(program.outputs, [s or rest for s in found], committed)


def _layouts(program: Program, given: Sequence[Any]) -> list[Any]:
    """The sharding of each result, from those of the inputs; None where there is no rule."""
    inlined = inline_calls(program)
    env: Env = {v: s for v, s in zip(inlined.inputs, given, strict=True) if s is not None}
    for e in inlined.equations:
        for out, found in zip(e.outs, _results(e, env), strict=True):
            if found is not None:
                env[out] = found
    return [env.get(v) if v.__class__ is Var else None for v in inlined.outputs]


def _placing(program: Program) -> Any:
    """A sharding that occurs in the Program; False if there is none."""
    for e in program.equations:
        found = getattr(e.op, "result_shardings", None)
        if found is not None:
            return found()[0]
        if e.op.is_inlined:
            inner = e.op.programs()[0]
            named = inner.memoized("placing", partial(_placing, inner))
            if named is not False:
                return named
    return False


def _results(e: Equation, env: Env) -> Sequence[Any]:
    """The shardings of the results of an equation, None where there is no rule."""
    own = getattr(e.op, "result_shardings", None)
    if own is not None:
        return own()
    ins = [env.get(a) if a.__class__ is Var else None for a in e.ins]
    if not any(isinstance(s, NamedSharding) for s in ins):
        return [None] * len(e.outs)
    avals = [a.aval for a in e.ins]
    if e.op.multiple:
        return [None] * len(e.outs)
    if e.op.keeps_layout or isinstance(e.op, Identity):
        shape = e.outs[0].aval.shape
        return [next((s for s, a in zip(ins, avals, strict=True)
                      if s is not None and a.shape == shape), None)]
    return [_of_result(e.op, ins, avals)]


def result(op: Any, args: Sequence[Any], aval: Aval) -> NamedSharding | None:
    """The sharding of the result of an operation outside `jit`; None if there is no rule."""
    ins = [a._sharding if isinstance(a, Sharded) else None for a in args]
    if op.multiple or not any(isinstance(s, NamedSharding) for s in ins):
        return None
    return _of_result(op, ins, [a.aval for a in args])


def _of_result(op: Any, ins: Sequence[Any], avals: Sequence[Aval]) -> NamedSharding | None:
    """The sharding of an operation's single result, according to the operation's division rule."""
    mesh = next(s.mesh for s in ins if isinstance(s, NamedSharding))
    if not isinstance(mesh, Mesh):
        return None
    programs = importlib.import_module("toile.parallel.partition_programs")
    layouts = tuple([_layout(s, a) for s, a in zip(ins, avals, strict=True)])
    entries = list(programs.result_layout(op, mesh, layouts, tuple(avals)))
    while entries and not entries[-1]:
        entries.pop()
    named = [names[0] if len(names) == 1 else names or None for names in entries]
    return NamedSharding(mesh, PartitionSpec(*named))


def _layout(sharding: Any, aval: Aval) -> tuple[Any, ...]:
    """The mesh axes that divide each axis of an array."""
    spec = [axes_of(e) for e in sharding.spec] if isinstance(sharding, NamedSharding) else []
    return tuple(spec + [()] * (aval.ndim - len(spec)))


def divide(program: Program, args: Sequence[Any], wanted: Sequence[Any] = ()) -> list[Any] | None:
    """The results of a Program on all devices of a mesh; None if it runs on one device.

    The `partition` module, which does the work, is imported only when it may be needed."""
    plain = program.memoized("placing", lambda: _placing(program)) is False
    if plain and not wanted and not any(isinstance(a, Sharded) for a in args):
        return None
    return importlib.import_module("toile.parallel.partition").divide(program, args, wanted)


sharded.placing.fill(result, place, divide)

