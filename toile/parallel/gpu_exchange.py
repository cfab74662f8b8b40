"""Collectives of GPU devices: through NCCL, in the memory of one GPU, or on the host.

The devices of a run first synchronize as threads, so that a failed or missing device is noticed
before anything is enqueued on a stream, where the work would wait forever. Then, if each device has
its own GPU, each device enqueues its part of the collective on its own stream, through NCCL. If the
devices are logical devices of one GPU, the last device to arrive enqueues the whole collective, and
the streams wait for each other. Devices that share GPUs in any other way exchange NumPy arrays.
This module may import platforms and the layers below it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.devices import process_index
from toile.engine.exchange import Groups, Span
from toile.engine.program import Program, derive
from toile.parallel.exchange import Group, Path, Place, ThreadExchange, World, flat_index
from toile.parallel.process_exchange import ProcessExchange
from toile.parallel.runs import Run
from toile.platforms.gpu.devices import ALIGNMENT, GpuDevice
from toile.platforms.gpu.executables import executable_of
from toile.primitives.choices import convert
from toile.primitives.elementwise import Max, Min
from toile.primitives.families import add
from toile.targets.cuda import nccl
from toile.targets.cuda.driver import driver

Spans = Sequence[Span]
Perm = Sequence[tuple[int, int]]

_communicators: dict[tuple[tuple[GpuDevice, ...], int], nccl.Communicator] = {}


class OnGpus(ThreadExchange):
    """Base of the exchanges of GPU devices; `devices` has the run's devices in all processes."""

    devices: tuple[GpuDevice, ...]

    def device(self, path: Path) -> GpuDevice:
        """The device at a path."""
        return self.devices[flat_index(path[0][1], [size for _, size, _ in self.levels[0][1]])]

    def here(self, axes: tuple[Any, ...], groups: Groups) -> Group:
        """The devices of a group that belong to this process."""
        return self.group(axes, groups)

    def beside(self, axes: tuple[Any, ...], groups: Groups) -> int | None:
        members = [self.device(p) for p in self.group(axes, groups).members]
        by_nccl = 1 < len(members) == len({d.hardware for d in members})
        return self.device(self.path).side_stream if by_nccl else None

    def issue(
        self, kind: str, sources: Spans, targets: Spans, axes: tuple[Any, ...], groups: Groups,
        perm: Perm, stream: int,
    ) -> None:
        group = self.group(axes, groups)
        members = tuple([self.device(p) for p in group.members])
        gpus = {d.hardware for d in members}
        what = (kind if kind in ("gather", "scatter", "exchange", "permute") else f"p{kind}", axes)
        if group.size == 1:
            moved = kind != "permute" or (0, 0) in perm
            for x, y in zip(sources, targets, strict=True):
                _copy(x, y, stream) if moved else _clear(y, stream)
        elif len(gpus) == group.size:
            self._by_nccl(kind, sources, targets, members, group, axes, groups, perm, stream, what)
        elif len(gpus) == 1 and all(d.process_index == process_index() for d in members):
            self._in_memory(kind, sources, targets, group, members[group.place], perm, stream, what)
        else:
            self._on_host(kind, sources, targets, axes, groups, perm, stream)

    # ---- NCCL
    def _by_nccl(
        self, kind: str, sources: Spans, targets: Spans, members: tuple[GpuDevice, ...],
        group: Group, axes: tuple[Any, ...], groups: Groups, perm: Perm, stream: int, what: Any,
    ) -> None:
        own = self.here(axes, groups)
        self.world.meet(own, what, None, _nothing)
        try:
            found = _communicators.get((members, group.place))
            if found is None:
                found = self._joined(members, group, axes, groups)
            if not found.issue(kind, sources, targets, perm, stream):
                _clear(targets[0], stream)
        except BaseException:
            abort(members)
            raise

    def _joined(
        self, members: tuple[GpuDevice, ...], group: Group, axes: tuple[Any, ...], groups: Groups
    ) -> nccl.Communicator:
        """A communicator of the group; all its devices call this method, and the first supplies the
        id."""
        calls = nccl.functions()
        id = np.zeros(nccl.ID_BYTES, np.uint8)
        if group.place == 0:
            id = np.frombuffer(nccl.unique_id(calls), np.uint8)
        (id,) = self.all_reduce("max", [id], axes, groups)
        made = nccl.Communicator(calls, id.tobytes(), group.size, group.place)
        _communicators[members, group.place] = made
        return made

    # ---- several devices of one GPU
    def _in_memory(
        self, kind: str, sources: Spans, targets: Spans, group: Group, device: GpuDevice,
        perm: Perm, stream: int, what: Any,
    ) -> None:
        def combine(values: list[Any]) -> None:
            others = [s for _, _, s in values if s != stream]
            for other in others:
                driver().wait(stream, other)
            _move(kind, [v[0] for v in values], [v[1] for v in values], perm, device, stream)
            for other in others:
                driver().wait(other, stream)

        self.world.meet(group, what, (sources, targets, stream), combine)

    # ---- the host
    def _on_host(
        self, kind: str, sources: Spans, targets: Spans, axes: tuple[Any, ...], groups: Groups,
        perm: Perm, stream: int,
    ) -> None:
        given = [_downloaded(x, stream) for x in sources]
        results: Sequence[Any]
        if kind == "gather":
            results = [self.all_gather(given[0], axes[0], groups)]
        elif kind == "scatter":
            results = [self.reduce_scatter(given[0], axes[0], groups)]
        elif kind == "exchange":
            results = [self.all_to_all(given[0], axes[0], groups)]
        elif kind == "permute":
            found = self.permute(given[0], axes[0], perm)
            results = [np.zeros_like(given[0]) if found is None else found]
        else:
            results = self.all_reduce(kind, given, axes, groups)
        for y, value in zip(targets, results, strict=True):
            data = np.ascontiguousarray(value)
            driver().upload(y.address, data.ctypes.data, data.nbytes, stream)


class GpuExchange(OnGpus):
    """The exchange of a GPU device of this process."""

    def __init__(
        self, world: World, levels: tuple[tuple[int, Place], ...], devices: tuple[GpuDevice, ...]
    ):
        super().__init__(world, levels)
        self.devices = devices


class GpuProcessExchange(OnGpus, ProcessExchange):
    """The exchange of a GPU device among those of several processes."""

    def __init__(
        self, world: World, levels: tuple[tuple[int, Place], ...], owners: tuple[int, ...],
        devices: tuple[GpuDevice, ...], run: Run,
    ):
        ProcessExchange.__init__(self, world, levels, owners, run)
        self.devices = devices

    def here(self, axes: tuple[Any, ...], groups: Groups) -> Group:
        return self.team(axes, groups).local


def abort(members: tuple[GpuDevice, ...]) -> None:
    """Abort a group's communicators in this process, whose devices wait for a failed device."""
    for key in [k for k in _communicators if k[0] == members]:
        found = _communicators.pop(key, None)
        if found is not None:
            found.abort()


def _nothing(_: list[Any]) -> None:
    return None


def _nbytes(x: Span) -> int:
    return prod(x.shape) * x.dtype.itemsize


def _copy(x: Span, y: Span, stream: int) -> None:
    driver().copy(y.address, x.address, _nbytes(x), stream)


def _clear(y: Span, stream: int) -> None:
    driver().clear(y.address, _nbytes(y), stream)


def _downloaded(x: Span, stream: int) -> Any:
    out = np.empty(x.shape, x.dtype)
    driver().download(out.ctypes.data, x.address, out.nbytes, stream)
    return out


def _move(
    kind: str, sources: Sequence[Spans], targets: Sequence[Spans], perm: Perm, device: GpuDevice,
    stream: int,
) -> None:
    """A collective among devices of one GPU, by copies and additions on one stream."""
    if kind in ("sum", "max", "min"):
        _reduce_all(kind, sources, targets, device, stream)
        return
    xs, ys = [s[0] for s in sources], [t[0] for t in targets]
    if kind == "permute":
        back = {b: a for a, b in perm}
        for i, y in enumerate(ys):
            _copy(xs[back[i]], y, stream) if i in back else _clear(y, stream)
        return
    # A gathered array goes to all devices whole; otherwise each device gets its own part.
    size = _nbytes(xs[0])
    part, step = (size, 0) if kind == "gather" else (size // len(xs), size // len(xs))
    for j, y in enumerate(ys):
        given = [x.address + j * step for x in xs]
        if kind == "scatter":
            _reduce("sum", given, y.address, y, device, stream)
            continue
        for i, p in enumerate(given):
            driver().copy(y.address + i * part, p, part, stream)


def _reduce_all(
    kind: str, sources: Sequence[Spans], targets: Sequence[Spans], device: GpuDevice, stream: int
) -> None:
    """Reduce each array over all devices, and give all of them the result."""
    for same, outs in zip(zip(*sources, strict=True), zip(*targets, strict=True), strict=True):
        _reduce(kind, [x.address for x in same], outs[0].address, same[0], device, stream)
        for y in outs[1:]:
            _copy(outs[0], y, stream)


def _reduce(
    kind: str, addresses: Sequence[int], out: int, like: Span, device: GpuDevice, stream: int
) -> None:
    """Reduce the spans at some addresses, in order, on the device's stream.

    Kernels read aligned memory, so an unaligned span (a row of an array) is copied."""
    program = _reduction(kind, len(addresses), prod(like.shape), np.dtype(like.dtype))
    nbytes, held = _nbytes(like), []  # freed memory is reused only later on the same stream
    places = []
    for p in (*addresses, out):
        if p % ALIGNMENT:
            memory, p = device.allocate(nbytes)
            held.append(memory)
        places.append(p)
    for p, q in zip(addresses, places, strict=False):
        if p != q:
            driver().copy(q, p, nbytes, stream)
    executable_of(program, device).run(places, False)
    if places[-1] != out:
        driver().copy(out, places[-1], nbytes, stream)


@functools.lru_cache(4096)
def _reduction(kind: str, count: int, size: int, dtype: np.dtype) -> Program:
    """An elementwise reduction, which needs no temporaries; narrow floats are added as float32."""
    if dtype == np.bool_:
        kind, dtype = "max" if kind == "sum" else kind, np.dtype(np.uint8)
    narrow = kind == "sum" and dtypes.is_inexact(dtype) and dtype.itemsize < 4
    join = {"sum": add, "max": Max(), "min": Min()}[kind]

    def taken_together(*xs: Any) -> list[Any]:
        wide = [convert(x, np.float32) for x in xs] if narrow else list(xs)
        total = functools.reduce(join, wide)
        return [convert(total, dtype) if narrow else total]

    return derive(taken_together, [Aval((size,), dtype)] * count, f"p{kind}")
