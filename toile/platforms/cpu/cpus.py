"""The host's CPU as a platform: buffers are NumPy arrays, and devices share memory."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import buffers, devices
from toile.engine.arrays import DeviceArray
from toile.engine.buffers import Placement
from toile.engine.devices import Device
from toile.engine.garbage import paused
from toile.engine.host_memory import program_error
from toile.engine.locks import compiling, loading
from toile.engine.program import Program
from toile.engine.sharded import ShardedArray
from toile.platforms import cpu
from toile.platforms.base import Platform


class CpuPlatform(Platform):
    """The host's CPU. The engine itself calls NumPy for its operations outside jit."""

    name = "cpu"
    array = DeviceArray
    sharded = ShardedArray

    def __init__(self) -> None:
        self._run: Callable[[Program, Sequence[Any]], Sequence[Any]] = self._first_run

    def devices(self) -> tuple[Device, ...]:
        return tuple(devices.cpu_devices())

    def all_devices(self) -> tuple[Device, ...]:
        return tuple(devices.all_cpu_devices())

    def compiled(self, program: Program, device: Any) -> Any:
        with compiling:
            if program.executable is None:
                program.executable = cpu.compiled(program)
        return program.executable

    def _first_run(self, program: Program, raws: Sequence[Any]) -> Sequence[Any]:
        """The first run, which loads the compiler; later runs call it directly."""
        with compiling, paused():
            self._run = cpu.run
        return self._run(program, raws)

    def run(self, program: Program, raws: Sequence[Any], device: Any) -> Sequence[Any]:
        try:
            return self._run(program, raws)
        except MemoryError as error:
            if "needed" in str(error):
                raise
            raise program_error(program.name, program) from None

    def exit_of(
        self, program: Program, consts: Sequence[Any], out_tree: Any, device: Any,
        hosted: Sequence[int], donated: Sequence[int], placements: Sequence[Placement],
    ) -> Any:
        with loading:
            exits = importlib.import_module("toile.platforms.cpu.exits")
        return exits.exit_of(program, consts, out_tree, bool(donated), placements)

    def worth_writing(self, leaves: int, donates: bool) -> int:
        return 2 + leaves // 64  # writing the code costs about 50 us per leaf

    def release_code(self) -> None:
        execution = sys.modules.get("toile.platforms.cpu.execution")
        if execution is not None:
            execution.shelf.clear()
        native = sys.modules.get("toile.targets.llvm.native")
        if native is not None:
            native.forget_recent()

    def release_memory(self) -> None:
        with compiling:
            execution = sys.modules.get("toile.platforms.cpu.execution")
        if execution is None:  # nothing has been compiled for the CPU
            buffers.release()
        else:
            execution.release_arenas()
