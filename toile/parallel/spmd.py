"""One Program on many devices: the operation behind pmap and shard_map.

`Spmd` contains the Program of one device. `ins` and `outs` list, for each axis of each operand and
result, the mesh axes that divide it. Along a mesh axis that no entry names, all devices have equal
values. The rules of the operation are built from those of the Program, with the axes of the mesh in
scope. The Program is compiled once; its collectives run through `parallel.exchange`. This module
may import control and the layers below it.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from toile.control.call import (
    Carrier,
    move_mapped,
    nonzero_mask,
    pick,
    program_flops,
    pruned,
    spread,
)
from toile.engine.avals import Aval, aval_of
from toile.engine.cached import cached_property
from toile.engine.config import flags
from toile.engine.conversion import as_array, leaving, raw_operand, wrap_aval
from toile.engine.devices import process_count, process_index
from toile.engine.exchange import slot
from toile.engine.locks import shared_lock
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.platform_registry import platform_at, platform_of
from toile.engine.program import Program, derive, evaluate
from toile.engine.records import dataclass
from toile.engine.sharded import Sharded, fetched, from_parts, gathered, replicas, split
from toile.engine.source import here
from toile.engine.trace import Tracer, state
from toile.engine.trace import current as current_trace
from toile.engine.trees import unflatten
from toile.parallel.agreement import begin
from toile.parallel.buckets import in_buckets
from toile.parallel.exchange import Place, ThreadExchange
from toile.parallel.launch import launch
from toile.parallel.meshes import Mesh
from toile.parallel.process_exchange import ProcessExchange
from toile.parallel.runs import Run
from toile.parallel.specs import NamedSharding, PartitionSpec
from toile.platforms import cpu
from toile.primitives.collectives import AllReduce
from toile.primitives.families import mul, reshape, scalar
from toile.primitives.rules import frame_rule
from toile.targets.llvm.thread_count import current, threads
from toile.transforms.jvp import jvp_program
from toile.transforms.linearize import split_program
from toile.transforms.transpose import transpose_program
from toile.transforms.vmap import vmap_program

# For each axis of an array, the names of the mesh axes that divide it, the slowest first.
Layout = tuple[tuple[Any, ...], ...]


class _Tracing(threading.local):
    """The devices and the mesh of the mapping that is being traced; nested mappings share them."""

    devices: tuple[Any, ...] | None = None
    size: int = 1
    mesh: Mesh | None = None


tracing = _Tracing()


class tracing_on:
    """A block in which the function of each device of a grid is traced."""

    def __init__(self, grid: Grid, devices: Sequence[Any]):
        self.grid, self.devices = grid, tuple(devices)

    def __enter__(self) -> None:
        self.before = tracing.devices, tracing.size, tracing.mesh, state.axes
        tracing.devices, tracing.size = self.devices, math.prod(s for _, s in self.grid.bound)
        tracing.mesh = self.grid.mesh
        state.axes = (*state.axes, *self.grid.bound)

    def __exit__(self, *_: Any) -> None:
        tracing.devices, tracing.size, tracing.mesh, state.axes = self.before


class bound_axes:
    """Bind the axes of a mesh for a block."""

    def __init__(self, axes: Sequence[tuple[Any, int]]):
        self.axes = axes

    def __enter__(self) -> None:
        self.before = state.axes
        state.axes = (*self.before, *self.axes)

    def __exit__(self, *_: Any) -> None:
        state.axes = self.before


@dataclass(frozen=True)
class Grid:
    """The axes over which a Program is mapped, and the mesh over which its results are laid out.

    In pmap, both belong to this process. If the only axis extends over other processes, `owners`
    contains the process of each index along the axis, and `everyone` contains the device. A mesh
    with devices of other processes is common to all of them; each process runs the Program on its
    own devices."""

    axes: tuple[tuple[Any, int], ...]
    mesh: Mesh
    owners: tuple[int, ...] | None = None
    everyone: tuple[Any, ...] | None = None

    @cached_property
    def bound(self) -> tuple[tuple[Any, int], ...]:
        """The axes as the Program sees them: over all processes."""
        if self.owners is None:
            return self.axes
        return ((self.axes[0][0], len(self.owners)),)

    @cached_property
    def names(self) -> tuple[Any, ...]:
        return tuple(n for n, _ in self.axes)

    @cached_property
    def spans(self) -> bool:
        """Whether the mesh has devices of other processes."""
        return process_count() > 1 and self.mesh.is_multi_process

    @cached_property
    def processes(self) -> tuple[int, ...] | None:
        """The process of each position along the axes; None if all are in this process."""
        if self.spans:
            return tuple([d.process_index for d in self.mesh.devices.flat])
        return self.owners

    @cached_property
    def runs(self) -> list[int]:
        """The indices of the positions that this process runs."""
        if self.spans:
            return [k for k, p in enumerate(self.processes or ()) if p == process_index()]
        return list(range(self.size))

    @cached_property
    def size(self) -> int:
        return math.prod(s for _, s in self.axes)

    @cached_property
    def places(self) -> list[Place]:
        """Each device's indices along the axes, in row-major order."""
        if self.owners is not None:
            ((name, size),) = self.bound
            return [((name, size, i),) for i, p in enumerate(self.owners) if p == process_index()]
        indices = list(itertools.product(*(range(s) for _, s in self.axes)))
        return [tuple((n, s, i) for (n, s), i in zip(self.axes, indices[k], strict=True))
                for k in self.runs]

    @cached_property
    def is_whole(self) -> bool:
        """Whether the axes are all axes of the mesh, in its order."""
        return self.axes == self.mesh.shape_tuple

    @cached_property
    def shardings(self) -> dict[Any, NamedSharding]:
        return {}

    def sharding(self, layout: Layout) -> NamedSharding:
        """The sharding of an array with this layout; the same object each time."""
        entries = [names or None for names in layout]
        while entries and entries[-1] is None:
            entries.pop()
        found = self.shardings.get(tuple(entries))
        if found is None:
            made = NamedSharding(self.mesh, PartitionSpec(*entries))
            found = self.shardings.setdefault(tuple(entries), made)
        return found


@dataclass(frozen=True)
class Spmd(Carrier):
    """Run a Program on every device of a grid, each with its parts of the operands."""

    program: Program
    grid: Grid
    ins: tuple[Layout, ...]
    outs: tuple[Layout, ...]
    label: str = "pmap"

    name = "spmd"
    divided = True
    checked = frame_rule("spmd")

    def programs(self) -> Sequence[Program]:
        return (self.program,)

    @property
    def axis_names(self) -> tuple[Any, ...]:
        own = self.grid.names
        return tuple(n for n in self.program.axis_names if n not in own)

    def _scaled(self, aval: Aval, layout: Layout) -> Aval:
        sizes = dict(self.grid.axes)
        return aval.with_shape(tuple(
            n * math.prod(sizes[a] for a in names)
            for n, names in zip(aval.shape, layout, strict=True)
        ))

    def infer(self, *avals: Aval) -> list[Aval]:
        return self.out_avals

    @cached_property
    def out_avals(self) -> list[Aval]:
        return [self._scaled(a, x) for a, x in zip(self.program.out_avals, self.outs, strict=True)]

    # ---- running
    @cached_property
    def in_shardings(self) -> list[NamedSharding]:
        return [self.grid.sharding(x) for x in self.ins]

    @cached_property
    def out_shardings(self) -> list[NamedSharding]:
        return [self.grid.sharding(x) for x in self.outs]

    def result_shardings(self) -> list[NamedSharding]:
        """The shardings of the results, used when they are wrapped."""
        return self.out_shardings

    @cached_property
    def device_numbers(self) -> list[int]:
        """For each local device of the mesh, which run of the Program has its parts."""
        if self.grid.is_whole:
            return list(range(len(self.grid.runs)))
        at = [self.grid.mesh.axis_names.index(n) for n in self.grid.names]
        sizes = [s for _, s in self.grid.axes]
        return [int(np.ravel_multi_index([place[i] for i in at], sizes)) if at else 0
                for place in itertools.product(*map(range, self.grid.mesh.axis_sizes))]

    @cached_property
    def first_of(self) -> list[int]:
        """For each run of the Program, the first mesh device that has its parts."""
        return [self.device_numbers.index(k) for k in range(len(self.grid.runs))]

    def _parts(self, x: Any, i: int) -> list[Any]:
        """The buffer of an operand for each run of the Program."""
        sharding = self.in_shardings[i]
        if isinstance(x, Sharded):
            own = x._sharding
            rank = len(x._aval.shape)
            if own is sharding or own == sharding or own.is_equivalent_to(sharding, rank):
                parts = x._parts
                if parts.__class__ is not list:
                    x.block_until_ready()  # if deleted, raises an error that says why
                return parts if self.grid.is_whole else [parts[k] for k in self.first_of]
        data = raw_operand(x)
        if not any(self.ins[i]):
            if self.elsewhere is not None and platform_of(data) is not None:
                return replicas(data, self.elsewhere)
            return [data] * len(self.grid.runs)
        parts = split(data if self.elsewhere else fetched(data), aval_of(x).shape, sharding)
        return parts if self.grid.is_whole else [parts[k] for k in self.first_of]

    @cached_property
    def elsewhere(self) -> list[Any] | None:
        """The device of each run of the Program; None on the host."""
        flat = self.grid.mesh.devices.flat
        devices = [flat[k] for k in (self.grid.runs if self.grid.spans else self.first_of)]
        if len({d.platform for d in devices}) > 1:
            raise ValueError(
                f"{self.label}: needed devices of one platform, got {devices}{here()}")
        return None if devices[0].platform == "cpu" else devices

    def prepare(self) -> Program:
        """The Program, compiled for devices with one thread each."""
        program = self.bucketed()
        if program.executable is None:
            with threads(1 if self.grid.size > 1 else current()), bound_axes(self.grid.bound):
                program.executable = cpu.compiled(program)
        return program

    def run(self, parts: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """The results of each device, from the operands' buffers for each device."""
        owners = self.grid.processes
        if self.grid.spans and (not self.grid.is_whole or slot.exchange is not None):
            raise NotImplementedError(
                f"{self.label}: needed all axes of a mesh with devices of other processes, and no "
                f"other mapping around it, got {self.grid.names} of {self.grid.mesh}{here()}"
            )
        module = self._module()
        if owners is None:
            return (self._on_cpu(parts, ThreadExchange) if module is None
                    else self._elsewhere(module, parts, None))
        run = begin(self.bucketed() if module is None else self._overlapped(module), owners)
        try:
            if module is not None:
                return self._elsewhere(module, parts, run)
            return self._on_cpu(parts, partial(ProcessExchange, owners=owners, run=run))
        finally:
            run.end()

    def _on_cpu(self, parts: Sequence[Sequence[Any]], make: Any) -> list[Sequence[Any]]:
        program = self.prepare()
        own = self.elsewhere if slot.exchange is None else None

        def device(k: int) -> Sequence[Any]:
            results = cpu.run(program, [fetched(p[k]) for p in parts])
            return results if own is None else [own[k].put(r) for r in results]

        return launch(device, self.grid.places, make)

    def _module(self) -> Any:
        """The platform's module for running a Program on several devices (`Platform.replicated`);
        None if host threads run it: without such a module, and inside another mapping."""
        if self.elsewhere is None or slot.exchange is not None:
            return None
        return platform_at(self.elsewhere[0]).replicated()

    def _everyone(self) -> tuple[Any, ...]:
        """The devices of all processes that take part."""
        grid = self.grid
        return tuple(grid.mesh.devices.flat) if grid.spans else (
            grid.everyone or tuple(self.elsewhere or ()))

    def _overlapped(self, module: Any) -> Program:
        """The Program in the form for devices that communicate while they compute."""
        everyone = self._everyone()
        if 1 < len(everyone) == len({d.hardware for d in everyone}):
            return self.program.memoized("overlapped", lambda: module.overlapped(self.program))
        return self.bucketed()

    def _elsewhere(
        self, module: Any, parts: Sequence[Sequence[Any]], run: Run | None
    ) -> list[Sequence[Any]]:
        devices = self.elsewhere or ()
        with bound_axes(self.grid.bound):
            ready = module.compiled_for(self._overlapped(module), devices)
        return module.run_on_devices(
            ready, self.grid.places, devices, parts, self.grid.processes, self._everyone(), run)

    def bucketed(self) -> Program:
        """The Program in the form that runs."""
        return self.program.memoized("buckets", lambda: in_buckets(self.program))

    def __call__(self, *args: Any) -> Any:
        if state.trace is not None:
            return state.trace.process(self, args)
        arrays = [as_array(a) for a in args]
        results = self.run([self._parts(a, i) for i, a in enumerate(arrays)])
        numbers = self.device_numbers
        return [
            from_parts([results[k][i] for k in numbers], aval, sharding)
            for i, (aval, sharding) in enumerate(
                zip(self.out_avals, self.out_shardings, strict=True))
        ]

    def eager(self, xp: Any, *xs: Any) -> Any:
        parts = []
        for i, x in enumerate(xs):
            if any(self.ins[i]):
                shape = x.shape[: len(self.ins[i])]
                found = split(x, shape, self.in_shardings[i])
                parts.append([found[k] for k in self.first_of])
            else:
                parts.append([x] * len(self.grid.runs))  # NumPy memory, which each device copies
        results = self.run(parts)
        outs = []
        for i, (aval, sharding) in enumerate(
                zip(self.out_avals, self.out_shardings, strict=True)):
            made = from_parts([results[k][i] for k in self.device_numbers], aval, sharding)
            outs.append(gathered(made))
        return outs

    def replayed(self, f: Any, ins: Sequence[Any]) -> list[list[Any]]:
        """For each device, the results of its Program in a Replay (`engine.value_origins`)."""
        if self.grid.processes is not None:
            return []  # the other processes do not take part
        parts = [self._parts(v.array, i) for i, v in enumerate(ins)]
        avals = self.program.in_avals

        def device(k: int) -> Any:
            own = f.on_device(k)
            with current_trace(None):
                given = [own.part(wrap_aval(fetched(p[k]), a), v)
                         for p, a, v in zip(parts, avals, ins, strict=True)]
                return own.program(self.program, given)

        return launch(device, self.grid.places, ThreadExchange)

    # ---- rules
    def with_program(
        self, program: Program, ins: Sequence[Layout], outs: Sequence[Layout]
    ) -> Spmd:
        return Spmd(program, self.grid, tuple(ins), tuple(outs), self.label)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        nonzero = nonzero_mask(tangents)
        with bound_axes(self.grid.bound):
            program, moving = jvp_program(self.program, nonzero)
        op = self.with_program(program, [*self.ins, *pick(self.ins, nonzero)],
                               [*self.outs, *pick(self.outs, moving)])
        outs = op(*primals, *pick(tangents, nonzero))
        n = len(moving)
        return outs[:n], spread(outs[n:], moving, outs[:n])

    def split(self, linear: Sequence[bool], args: Sequence[Any]) -> tuple[Any, Any, Any]:
        with bound_axes(self.grid.bound):
            parts = split_program(self.program, linear)
        known_ins = pick(self.ins, linear, False)
        saved = [a for a, f in zip(parts.residuals, parts.forwarded, strict=True) if f is None]
        n = sum(not z for z in parts.is_linear)
        stacked: Layout = (self.grid.names,)
        layouts = [stacked + ((),) * a.ndim for a in saved]
        outs = self.with_program(
            self._stacking(parts.known, n), known_ins,
            [*pick(self.outs, parts.is_linear, False), *layouts],
        )(*pick(args, linear, False))
        if not any(parts.is_linear):
            return outs[:n], None, None
        residuals = parts.residual_values(pick(args, linear, False), outs[n:])
        given = iter(layouts)
        residual_ins = [next(given) if f is None else known_ins[f] for f in parts.forwarded]
        op = self.with_program(
            self._unstacking(parts.linear, [f is None for f in parts.forwarded]),
            [*residual_ins, *pick(self.ins, linear)], pick(self.outs, parts.is_linear),
        )
        return parts.known_outputs(outs[:n]), op, [*residuals, *pick(args, linear)]

    def _derived(
        self, program: Program, key: Any, fun: Callable[..., Any], avals: Sequence[Aval]
    ) -> Program:
        def make() -> Program:
            with bound_axes(self.grid.bound):
                return derive(fun, avals, program.name)

        return program.memoized(key, make)

    def _stacking(self, program: Program, n: int) -> Program:
        """The Program with an axis of size 1 in front of its outputs from number `n` on."""

        def run(*args: Any) -> list[Any]:
            outs = evaluate(program, args)
            return [*outs[:n], *(reshape(o, (1, *aval_of(o).shape)) for o in outs[n:])]

        return self._derived(program, ("stacking", n), run, program.in_avals)

    def _unstacking(self, program: Program, which: Sequence[bool]) -> Program:
        """The Program for leading inputs that have this additional axis."""
        mask = [*which, *([False] * (len(program.inputs) - len(which)))]

        def run(*args: Any) -> list[Any]:
            given = [reshape(a, aval_of(a).shape[1:]) if m else a
                     for a, m in zip(args, mask, strict=True)]
            return evaluate(program, given)

        avals = [a.with_shape((1, *a.shape)) if m else a
                 for a, m in zip(program.in_avals, mask, strict=True)]
        return self._derived(program, ("unstacking", tuple(mask)), run, avals)

    def _unnamed(self, layout: Layout) -> tuple[Any, ...]:
        """The mesh axes along which all devices hold the same value."""
        used = {n for names in layout for n in names}
        return tuple(n for n in self.grid.names if n not in used)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        linear = [type(x) is Aval for x in xs]
        arriving = nonzero_mask(ct)
        with bound_axes(self.grid.bound):
            program, nonzero = transpose_program(self.program, linear, arriving)
        known_ins, linear_ins = pick(self.ins, linear, False), pick(self.ins, linear)
        ct_ins = pick(self.outs, arriving)
        found = pick(linear_ins, nonzero)
        summed = [self._unnamed(x) for x in found]
        shared = [self._unnamed(x) for x in ct_ins]
        made = self._summing(program, len(known_ins), shared, summed)
        op = self.with_program(made, [*known_ins, *ct_ins], found)
        outs = op(*pick(xs, linear, False), *pick(ct, arriving))
        results = iter(spread(outs, nonzero, pick(xs, linear)))
        return tuple(next(results) if z else None for z in linear)

    def _summing(
        self, program: Program, n: int, shared: Sequence[Any], summed: Sequence[Any]
    ) -> Program:
        """A transposed Program in which each cotangent counts only once, not once per device.

        If a result is the same on k devices, each device receives 1/k of its cotangent; the
        cotangents of an operand that all devices share are summed."""
        if not any(shared) and not any(summed):
            return program
        sizes = dict(self.grid.bound)

        def run(*args: Any) -> list[Any]:
            cts = [
                mul(c, scalar(1 / math.prod(sizes[a] for a in names), c.dtype)) if names else c
                for c, names in zip(args[n:], shared, strict=True)
            ]
            outs = evaluate(program, [*args[:n], *cts])
            return [AllReduce("sum", names)(o) if names else o
                    for o, names in zip(outs, summed, strict=True)]

        key = ("summing", n, tuple(shared), tuple(summed))
        return self._derived(program, key, run, program.in_avals)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        mapped = [None if d is None else 0 for d in dims]
        with bound_axes(self.grid.bound):
            program, out_dims = vmap_program(self.program, axis, mapped)
        ins = [x if d is None else ((), *x) for x, d in zip(self.ins, mapped, strict=True)]
        outs = [x if d is None else ((), *x) for x, d in zip(self.outs, out_dims, strict=True)]
        op = self.with_program(program, ins, outs)
        return op(*move_mapped(xs, dims, axis[1])), out_dims

    def dce(self, used: Sequence[bool]) -> tuple[Operation, list[bool], list[bool]]:
        program, kept = pruned(self.program, used)
        op = self.with_program(program, pick(self.ins, kept), pick(self.outs, used))
        return op, kept, list(used)

    def physical(self, *avals: Aval) -> Operation:
        return self

    def flops(self, *avals: Aval) -> int:
        return self.grid.size * program_flops(self.program)

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """Run the Program on the parts of its operands: shard_map already defines one device's
        work."""
        if self.grid.mesh is not f.mesh or self.grid.owners is not None:
            return super().divide(f, ins, outs)
        found = evaluate(self.program, [f.to(v, x) for v, x in zip(ins, self.ins, strict=True)])
        return f.placed_all(self, outs, self.outs, found)


class Form:
    """A mapped function, traced for a kind of input: what to call, and the structure of the result.

    `given_up` contains the positions of the donated arguments that a call deletes."""

    __slots__ = ("op", "consts", "out_tree", "given_up")

    def __init__(
        self, op: Spmd, consts: list[Any], out_tree: Any, given_up: tuple[int, ...] = ()
    ):
        self.op, self.consts, self.out_tree, self.given_up = op, consts, out_tree, given_up

    def __call__(self, leaves: Sequence[Any]) -> Any:
        return unflatten(self.out_tree, [leaving(x) for x in self.op(*self.consts, *leaves)])

    def stale(self) -> bool:
        """Whether the function closed over a tracer whose trace has ended."""
        return any(isinstance(c, Tracer) and not c._trace.alive for c in self.consts)


class Forms:
    """The traced forms of one mapped function; the oldest are evicted when there are many."""

    MOST = 256

    def __init__(self) -> None:
        self.forms: OrderedDict[Any, Form] = OrderedDict()
        self.lock = shared_lock()

    def find(self, key: Any, make: Callable[[], Form]) -> Form:
        """The cached form for a key; made if missing, and always under `disable_jit`."""
        if flags.disable_jit:
            return make()
        found = self.forms.get(key)
        if found is None or found.stale():
            with self.lock:
                found = self.forms.get(key)
                if found is None or found.stale():
                    found = self.forms[key] = make()
                    if len(self.forms) > self.MOST:
                        self.forms.popitem(last=False)
        return found
