"""NVIDIA GPUs as a platform.

This module may import platforms.base, platforms.gpu, targets.cuda and the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import Aval
from toile.engine.buffers import Placement
from toile.engine.devices import Device
from toile.engine.operation import Operation
from toile.engine.out_of_bounds import Bounds
from toile.engine.platform_registry import array_platforms, registry, wanted_platform
from toile.engine.program import Program
from toile.engine.sharded import filled, own_places
from toile.engine.shardings import Sharding
from toile.platforms.base import Platform
from toile.platforms.gpu import late
from toile.targets.cuda.presence import driver_library


class GpuPlatform(Platform):
    """GPUs, whose buffers are CuPy arrays."""

    name = "gpu"
    aliases = ("cuda",)
    is_default = True
    needs = "an NVIDIA driver and CuPy that see a GPU"
    quickly: Callable[..., Any]  # loaded late, like the next two
    unary: Callable[..., Any]
    called: Callable[..., Any]
    _devices: Any = None  # the module `platforms.gpu.devices`, once it is loaded

    def load(self) -> Any:
        """Load the modules of devices and arrays: slow, and only useful with a GPU."""
        if self._devices is None:
            arrays, eager = late.arrays(), late.eager()
            self.array, self.sharded = arrays.GpuArray, arrays.ShardedGpuArray
            self.quickly, self.unary, self.called = eager.quickly, eager.unary, arrays.called
            array_platforms[self.array] = self
            self._devices = late.devices()
        return self._devices

    # ---- devices
    def devices(self) -> tuple[Device, ...]:
        return self._devices.gpu_devices() if self.may_be_there() else ()

    def may_be_there(self) -> bool:
        """Whether there may be a GPU, as far as is known without asking the driver."""
        if self._devices is None:
            absent = wanted_platform() == "cpu" or driver_library() is None
            if absent and not late.has_devices():  # nor has any other code loaded the devices
                registry.retire(self)
                return False
            self.load()
        return True

    def all_devices(self) -> tuple[Device, ...]:
        return self.load().all_gpu_devices() if self.devices() else ()

    def usable(self) -> int:
        return self.load().usable() if self.may_be_there() else 0

    def use(self, numbers: Sequence[int]) -> None:
        self.load().fleet.use(numbers)

    def join(self, index: int, names: Sequence[Sequence[str]]) -> None:
        self.load().fleet.join(index, names)

    def leave(self) -> None:
        if self._devices is not None:
            self._devices.fleet.leave()

    # ---- buffers
    def owns(self, kind: type) -> bool:
        return kind.__module__.startswith("cupy")

    def device_of(self, data: Any) -> Device:
        return self.load().device_of(data)

    def get(self, data: Any) -> Any:
        with data.device:
            return data.get()

    def non_finite(self, arrays: Sequence[Any]) -> list[tuple[bool, bool]]:
        """Arrays are tested on their device. Only arrays that the kernel cannot read are copied."""
        tests = late.finite_tests()
        found: list[Any] = [None] * len(arrays)
        by_device: dict[Any, list[int]] = {}
        for i, x in enumerate(arrays):
            form = x._signature
            if form.device is not None and tests.can_read(form):
                by_device.setdefault(form.device, []).append(i)
        for places in by_device.values():
            answers = tests.non_finite([arrays[i] for i in places])
            for i, answer in zip(places, answers or (), strict=False):
                found[i] = answer
        rest = iter(super().non_finite([x for x, a in zip(arrays, found, strict=True) if not a]))
        return [answer or next(rest) for answer in found]

    def all_finite(self, arrays: Sequence[Any]) -> bool:
        found = late.finite_tests().all_finite(arrays)
        return super().all_finite(arrays) if found is None else found

    def wrap(self, data: Any, weak_type: bool) -> Any:
        self.load()
        return self.array(data, weak_type)

    def converted(self, data: Any, dtype: Any, copy: bool) -> Any:
        if not self.load().has_dtype(dtype):
            return self.wrap(data, False).astype(dtype)._data
        return data.astype(dtype, copy=copy)

    def address(self, data: Any) -> tuple[Any, int]:
        if not data.flags.c_contiguous or data.data.ptr % self.load().ALIGNMENT:
            data = data.copy()
        return data, data.data.ptr

    def block(self, data: Any) -> Any:
        return late.arrays().blocks.of(data)

    def joined(self, parts: Sequence[Any], aval: Aval, sharding: Sharding) -> Any:
        devices = self.load()
        owners: list[Any] = list(own_places(sharding, aval.shape))
        home = owners[0].primary
        if sharding.is_fully_replicated:
            return home.moved(parts[0], owners[0])
        dtype = parts[0].dtype
        with home.current():
            bits = [devices.as_bits(home.moved(p, d)) for p, d in zip(parts, owners, strict=True)]
            return devices.viewed(filled(bits, aval, sharding, devices.cupy().empty), dtype)

    def placed_by_default(self, x: Any) -> Any:
        return late.arrays().placed_by_default(x) if self.may_be_there() else x

    def from_dlpack(self, x: Any) -> Any:
        return self.load().shared(x) if self.devices() else None

    # ---- operations outside jit
    def run_eagerly(self, op: Operation, args: Sequence[Any]) -> Any:
        found = self.quickly(op, args)
        return super().run_eagerly(op, args) if found is NotImplemented else found

    def has_run(self, op: Operation, args: Sequence[Any], program: Program, device: Any) -> None:
        late.eager().learn(op, args, program, device)

    def check_indices(self, x: Any, bounds: Bounds) -> None:
        late.executables().check_indices(x._data, bounds, self.device_of(x._data))

    # ---- Programs
    def compiled(self, program: Program, device: Any) -> Any:
        return late.executables().executable_of(program, device)

    def exit_of(
        self, program: Program, consts: Sequence[Any], out_tree: Any, device: Any,
        hosted: Sequence[int], donated: Sequence[int], placements: Sequence[Placement],
    ) -> Any:
        return late.exits().exit_of(
            program, consts, out_tree, device, hosted, donated, placements)

    # Results of the general path are not blocks that a later call can overwrite, so that graphs
    # would begin a call later. A function that donates its arguments is called again.
    writes_before_runs = True

    def worth_writing(self, leaves: int, donates: bool) -> int:
        return 1 if donates else super().worth_writing(leaves, donates)

    def replicated(self) -> Any:
        return late.replicas()

    def inspection(self) -> Any:
        return late.inspection()

    def release_code(self) -> None:
        memory = sys.modules.get("toile.platforms.gpu.memory")
        if memory is not None:
            memory.shelf.clear()
        kernels = sys.modules.get("toile.targets.cuda.modules")
        if kernels is not None:
            kernels.unload()
