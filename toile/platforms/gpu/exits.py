"""The exit of a Program on a GPU: memory for the results, the launch, the tree of results.

See `platforms.call_exits`. Arguments on the host (numbers, NumPy arrays, small arrays that no GPU
has used yet) are copied to buffers that the Program keeps for them. A result overwrites a donated
argument once nothing reads it any longer; memory of other results is reused when it is free, so
that graphs find their pointers unchanged.
This module may import platforms and the engine.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from toile.engine.buffers import Block, Placement, Signature, owned, recycled
from toile.engine.treedefs import PyTreeDef
from toile.platforms.call_exits import (
    MAX_LEAVES,
    missed,
    result_lines,
    signatures_of_results,
    written,
)
from toile.platforms.gpu.arrays import GpuArray
from toile.platforms.gpu.devices import entered, keepers
from toile.platforms.gpu.executables import executable_of
from toile.platforms.gpu.kept_results import Turns, noting, released
from toile.platforms.gpu.many_results import ManyResults

MOST_WRITTEN = 32  # results of an exit that is written as text, whose calls take the least time
PATIENCE = 3  # calls without a graph that wait for results to overwrite donated arguments


def oldest(pool: list[Block], nbytes: int, allocate: Callable[[int], Block]) -> Block:
    """The block that was returned first, or a new one.

    Leaves are returned in order: with many of one size, each then alternates between two addresses,
    and two graphs serve all calls. Last in, first out would give four addresses, or ever more."""
    try:
        return pool.pop(0)
    except IndexError:
        return allocate(nbytes)


class GpuExit:
    """The exit of one Program on one device, for arguments of which some are on the host.

    `keeps`: whether later calls reuse the memory of results."""

    __slots__ = ("executable", "consts", "hosted", "spare", "placed", "pools", "leave", "keeps",
                 "__weakref__")

    def __init__(
        self, executable: Any, consts: Sequence[Any], hosted: Sequence[int],
        outs: Sequence[Signature], build: Callable[[list[Any]], Any], donated: Sequence[int],
        keeps: bool = True,
    ):
        self.executable, self.keeps = executable, keeps
        device = executable.device
        with device.current():
            self.consts = [executable.given(c) for c in consts]
            first = len(self.consts)
            self.hosted = [
                (i, executable.sizes[first + i], executable.room(executable.sizes[first + i]))
                for i in hosted
            ]
        self.spare = [Turns((None, None)) for _ in outs]
        # The number of the argument that each result overwrites, by the result's number.
        self.placed = {i: j - first for i, j in executable.overwritten(
            [first + j for j in donated if j not in hosted]).items()}
        self.pools: dict[int, tuple[list[Block], int]] = {}
        others = [n for i, n in enumerate(executable.out_bytes) if i not in self.placed]
        for n in others if donated else ():
            self.pools.setdefault(n, ([], others.count(n)))
        self.leave = self._function(outs, build)
        if keeps:
            keepers.add(self)
            executable.exits.append(weakref.ref(self))

    def close(self) -> None:
        """Send calls to the general path."""
        self.give_up()
        keepers.discard(self)  # it has no device any longer
        self.leave, self.executable = missed, None

    def give_up(self) -> None:
        """Free the memory of earlier results."""
        for turns in self.spare:
            turns[:] = None, None
        for pool, _ in self.pools.values():
            pool.clear()

    def _uploads(self) -> list[str]:
        """Statements that copy arguments from the host."""
        lines = ["pointers = list(pointers)"] if self.hosted else []
        for i, nbytes, (_, where) in self.hosted:
            lines += [f"upload({where}, pointers[{i}], {nbytes})", f"pointers[{i}] = {where}"]
        return lines

    def _place(self, scope: dict[str, Any], i: int, nbytes: int) -> list[str]:
        """Statements that find the memory of a result, m, and its address, p."""
        scope[f"room{i}"] = self.executable.maker(i)
        if i in self.placed:
            j = self.placed[i]
            return [f"m{i} = memory[{j}]",
                    f"if owned(m{i}) or released(m{i}) and owned(m{i}): p{i} = pointers[{j}]",
                    f"else: m{i} = room{i}({nbytes}); p{i} = m{i}[1]; again = False"]
        if not self.keeps:
            found = f"room{i}({nbytes})"
        elif nbytes in self.pools:
            scope[f"pool{nbytes}"] = self.pools[nbytes][0]
            found = f"next(pool{nbytes}, {nbytes}, room{i})"
        else:
            scope[f"room{i}"] = noting(self.spare[i], scope[f"room{i}"])
            found = f"recycled(spare[{i}], {nbytes}, room{i})"
        return [f"m{i} = {found}", f"p{i} = m{i}[1]"]

    def _function(
        self, outs: Sequence[Signature], build: Callable[[list[Any]], Any]
    ) -> Callable[[Any, Any], Any]:
        """leave(pointers, memory) -> the tree of results."""
        if len(outs) > MOST_WRITTEN:
            return self._many(outs, build)
        program = self.executable
        device = program.device
        scope: dict[str, Any] = {
            "new": object.__new__, "recycled": recycled, "next": oldest,
            "run": program.direct() or program.run, "build": build, "spare": self.spare,
            "current": device.current, "lock": device.lock, "upload": program.upload,
            "owned": owned, "released": released, "entered": entered,
            "enter": getattr(device, "enter", None),
        }
        # Results that could not overwrite their donated arguments, as in the first calls, have
        # addresses that do not come again: a graph of such a call would not be used twice.
        again = ", again" if self.placed and scope["run"] == program.run else ""
        sole = getattr(device, "sole", False)
        lines = ["if not entered.here: enter()"] if sole else []
        lines += ["again = True"] if again else []
        lines += self._uploads()
        for i, nbytes in enumerate(program.out_bytes):
            lines += self._place(scope, i, nbytes)
        consts = "".join(f"{c.data.ptr}, " for c in self.consts)
        results = "".join(f"p{i}, " for i in range(len(outs)))
        if again:
            scope["patience"] = [PATIENCE]
            lines.append("if not again: patience[0] -= 1; again = patience[0] < 0")
        lines.append(f"run(({consts}*pointers, {results}){again})")
        lines += result_lines(scope, outs, GpuArray, [(i, 0) for i in range(len(outs))])
        # An exception keeps its frame alive, which must not hold the memory of unused results.
        gone = "".join(f"m{i} = " for i in range(len(outs)))
        body = "".join(f"            {line}\n" for line in lines)
        text = (
            "def leave(pointers, memory):\n    try:\n"
            f"        with lock{'' if sole else ', current()'}:\n"
            f"{body}    except BaseException:\n        {gone}memory = None\n        raise\n"
        )
        return written(text, "exit of a GPU", scope, "leave")

    def _memory_of(self, i: int, nbytes: int) -> Callable[[], Block]:
        """A function that finds the memory of a result that does not overwrite an argument."""
        room = self.executable.maker(i)
        if i in self.placed or not self.keeps:
            return partial(room, nbytes)
        if nbytes in self.pools:
            return partial(oldest, self.pools[nbytes][0], nbytes, room)
        return partial(recycled, self.spare[i], nbytes, noting(self.spare[i], room))

    def _many(
        self, outs: Sequence[Signature], build: Callable[[list[Any]], Any]
    ) -> Callable[[Any, Any], Any]:
        """`_function` for many results."""
        hosted = [(i, nbytes, where) for i, nbytes, (_, where) in self.hosted]
        found = [(self.placed.get(i, -1), self._memory_of(i, nbytes))
                 for i, nbytes in enumerate(self.executable.out_bytes)]
        consts = [c.data.ptr for c in self.consts]
        return ManyResults(self.executable, consts, hosted, found, outs, build, PATIENCE)


def exit_of(
    program: Any, consts: Sequence[Any], out_tree: PyTreeDef, device: Any, hosted: Sequence[int],
    donated: Sequence[int], placements: Sequence[Placement] = (),
) -> GpuExit | None:
    """The exit of a Program that has run on a device; None if there cannot be one."""
    executable = executable_of(program, device)
    outs = _results(program, executable, placements)
    if len(program.outputs) > MAX_LEAVES or outs is None:
        return None
    return GpuExit(executable, consts, hosted, outs, out_tree.unflatten, donated)


def _results(
    program: Any, executable: Any, placements: Sequence[Placement] = ()
) -> list[Signature] | None:
    """The signatures of results; None if the buffers have another form."""
    outs = signatures_of_results(program, executable.device, placements)
    same = [(s.buffer_shape, s.buffer_dtype) for s in outs] == executable.out_specs
    return outs if same else None


def way_of(program: Any, device: Any, multiple: bool) -> Callable[[Any, Any], Any] | None:
    """The fast path of an operation outside jit, whose results get new memory."""
    executable = executable_of(program, device)
    outs = _results(program, executable)
    if outs is None:
        return None
    build = (lambda results: results) if multiple else itemgetter(0)
    return GpuExit(executable, (), (), outs, build, (), keeps=False).leave

