"""The exit of a Program on the CPU: memory for the results, the run, the tree of results.

See `platforms.call_exits`. An `Exit` is made only for a Program that has run before: by then the
compiler is loaded, and this module need not load it. This module may import platforms, targets and
the engine.
"""

from __future__ import annotations

import struct
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from toile.engine.arrays import DeviceArray
from toile.engine.buffers import Block, Placement, Signature, allocate, recycled, taken
from toile.engine.treedefs import PyTreeDef
from toile.platforms import cpu
from toile.platforms.call_exits import (
    MAX_LEAVES,
    MISS,
    missed,
    result_lines,
    signatures_of_results,
    written,
)
from toile.platforms.cpu import runner
from toile.platforms.cpu.execution import SMALL, Context, Executable, failure
from toile.targets.llvm import thread_count as threads


def _fresh(executable: Executable, consts: Sequence[Any]) -> Context:
    """A context for one more concurrent call."""
    context = Context(executable)
    for i, x in enumerate(consts):
        context.pointers[i] = x.ctypes.data
    return context


RECYCLED = 1 << 16  # bytes of a result whose memory later calls use again: allocating takes 2 us


class Exit:
    """The exit of a Program: memory, the run, and the tree of results.

    `pools` keeps memory that was donated to earlier calls, by size: as many blocks of a size as
    there are results that need one."""

    __slots__ = ("leave", "pools", "executable", "consts", "free", "__weakref__")

    def __init__(
        self, executable: Executable, consts: Sequence[Any], outs: Sequence[Signature],
        out_tree: PyTreeDef, recycles: bool,
    ):
        self.executable: Executable | None = executable
        self.consts = [np.ascontiguousarray(c) if c.ndim else c for c in consts]
        self.free: list[Context] = []
        self.pools: dict[int, tuple[list[Block], int]] = {}
        large = [n for n in executable.blocks if n > SMALL] if recycles else []
        for n in large:
            self.pools.setdefault(n, ([], large.count(n)))
        self.leave = self._function(executable, outs, out_tree)
        executable.exits.append(weakref.ref(self))

    def close(self) -> None:
        """Send calls to the general path; calls that are running continue with what they hold."""
        self.leave, self.executable = missed, None
        self.free, self.pools = [], {}

    def _function(
        self, program: Executable, outs: Sequence[Signature], out_tree: PyTreeDef
    ) -> Callable[[Any, Any], Any]:
        """leave(pointers, memory) -> the tree of results, or MISS if an argument was deleted.

        It refers to all that a call needs, but not to the Exit, which may be closed meanwhile."""
        members = Counter(block for block, _ in program.places)
        shared = {b for b, n in members.items() if n > 1 or program.blocks[b] <= SMALL}
        given = program.inputs - len(self.consts)
        scope: dict[str, Any] = {
            "MISS": MISS, "new": object.__new__,
            "pack": struct.Struct(f"{given + len(program.blocks)}Q").pack_into,
            "packing_error": struct.error, "allocate": allocate, "recycled": recycled,
            "taken": taken, "fresh": partial(_fresh, program, self.consts), "free": self.free,
            "run": program.run, "again": partial(cpu.allocated_again, program, program.blocks),
            "native": runner.function(), "threads": threads.current, "failure": failure,
            "build": out_tree.unflatten,
        }
        lines = ["try: context = free.pop()", "except IndexError: context = fresh()"]
        rooms = []
        for i, nbytes in enumerate(program.blocks):
            if i in shared:
                found = f"recycled(context.spare[{i}], {nbytes})"
            elif nbytes in self.pools:
                scope[f"pool{nbytes}"] = self.pools[nbytes][0]
                found = f"taken(pool{nbytes}, {nbytes})"
            elif nbytes <= RECYCLED:
                found = f"recycled(context.spare[{i}], {nbytes})"
            else:
                found = f"allocate({nbytes})"
            rooms += [f"m{i} = {found}", f"p{i} = m{i}[1]"]
        if rooms:
            blocks = "".join(f"m{i}, " for i in range(len(program.blocks)))
            lines += ["try:", *(f"    {line}" for line in rooms), "except MemoryError:",
                      f"    {blocks}= again()", *(f"    {line}" for line in rooms[1::2])]
        starts = "".join(f", p{i}" for i in range(len(program.blocks)))
        lines += [
            f"try: pack(context.pointers, {8 * len(self.consts)}, *pointers{starts})",
            "except packing_error:", "    free.append(context)", "    return MISS",
        ]
        if program.is_simple:
            lines.append(f"code = native({program.address}, context.address, threads())")
            # A context whose run was stopped is not reused.
            lines += ["if code: raise failure(code)", "free.append(context)"]
        else:
            lines += ["run(context)", "free.append(context)"]
        lines += result_lines(scope, outs, DeviceArray, program.places)
        body = "".join(f"    {line}\n" for line in lines)
        return written(f"def leave(pointers, memory):\n{body}", "exit", scope, "leave")


def exit_of(
    program: Any, consts: Sequence[Any], out_tree: PyTreeDef, recycles: bool,
    placements: Sequence[Placement] = (),
) -> Exit | None:
    """The exit of a Program that has run; None if there is no native code for it."""
    executable = program.executable
    if not isinstance(executable, Executable) or len(program.outputs) > MAX_LEAVES:
        return None
    outs = signatures_of_results(program, None, placements)
    if [(s.buffer_shape, s.buffer_dtype) for s in outs] != executable.out_specs:
        return None
    return Exit(executable, consts, outs, out_tree, recycles)
