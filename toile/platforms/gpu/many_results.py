"""The exit of a Program with many results: a loop, instead of code for each result.

Compiling the text of an exit takes 0.1 ms per result, which a function with hundreds of results
would pay in each of its first calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from toile.engine.buffers import Block, Signature, owned
from toile.platforms.call_exits import class_of_result
from toile.platforms.gpu.arrays import GpuArray
from toile.platforms.gpu.devices import entered
from toile.platforms.gpu.kept_results import released

Found = tuple[int, Callable[[], Block]]


class ManyResults:
    """`leave(pointers, memory)` of an exit.

    `hosted` are the arguments on the host: number, bytes, and where they are copied to. `found`
    has, for each result, the number of the argument that it overwrites, or -1, and a function that
    allocates other memory for it."""

    def __init__(
        self, executable: Any, consts: Sequence[int], hosted: Sequence[tuple[int, int, int]],
        found: Sequence[Found], outs: Sequence[Signature], build: Callable[[list[Any]], Any],
        patience: int,
    ):
        self.executable, self.consts, self.hosted, self.found = executable, consts, hosted, found
        self.build, self.patience = build, patience
        self.forms = [(class_of_result(form, GpuArray), form) for form in outs]
        self.direct = executable.direct()
        device = executable.device
        self.lock, self.current = device.lock, device.current
        self.sole = getattr(device, "sole", False)
        if self.sole:
            self.current = nullcontext

    def __call__(self, pointers: Any, memory: Any) -> Any:
        if self.sole and not entered.here:
            self.executable.device.enter()
        blocks: list[Block] = []
        places: list[int] = []
        with self.lock, self.current():
            try:
                pointers = self._on_device(pointers)
                again = self._place(pointers, memory, blocks, places)
                self._run((*self.consts, *pointers, *places), again)
                return self.build(self._arrays(blocks, places))
            except BaseException:  # whose frames would keep the memory
                memory = None
                blocks.clear()
                raise

    def _on_device(self, pointers: Any) -> Any:
        """Copy arguments from the host."""
        if self.hosted:
            pointers = list(pointers)
            for i, nbytes, where in self.hosted:
                self.executable.upload(where, pointers[i], nbytes)
                pointers[i] = where
        return pointers

    def _place(self, pointers: Any, memory: Any, blocks: list[Block], places: list[int]) -> bool:
        """Find the memory of the results; returns whether all results that should overwrite an
        argument do."""
        all_in_place = True
        for j, allocate in self.found:
            if j >= 0:
                block = memory[j]
                if owned(block) or released(block) and owned(block):
                    blocks.append(block)
                    places.append(pointers[j])
                    continue
                all_in_place = False
            blocks.append(allocate())
            places.append(blocks[-1][1])
        return all_in_place

    def _run(self, pointers: Sequence[int], in_place: bool) -> None:
        if self.direct:
            self.direct(pointers)
            return
        if not in_place:
            self.patience -= 1
        self.executable.run(pointers, in_place or self.patience < 0)

    def _arrays(self, blocks: list[Block], places: list[int]) -> list[Any]:
        results = []
        for (kind, form), block, place in zip(self.forms, blocks, places, strict=True):
            x = object.__new__(kind)
            x._signature, x._memory, x._pointer = form, block, place
            results.append(x)
        return results
