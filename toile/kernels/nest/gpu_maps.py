"""Maps as CUDA text: each thread computes some packs of adjacent elements of the results.

All loads of a thread come before its first store: several are in flight at once, and a result may
overwrite an operand. If an operand runs along another axis than the results, squares of it go
through shared memory (`Tiles`), so that both are read and written in whole cache lines.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from toile.compiler.ir.loop_nests import LoopNest
from toile.compiler.scalar.builder import Value
from toile.kernels.nest.gpu_text import Body, Form, Kernel
from toile.targets.cuda.scalars import memory


@functools.lru_cache(4096)
def map_kernel(nest: LoopNest, form: Form) -> Kernel:
    """A block processes threads x items packs."""
    return _Map(nest, form).kernel()


class _Map(Body):
    def write(self) -> None:
        code, items, threads = self.code, self.items, self.form.threads
        units = self.number("units", "units")
        code(f"const {self.index} first = ({self.index})block * {threads * items}"
             f" + (int)threadIdx.x;")
        wanted = [n for n, _ in self.nest.stores]
        nodes = self.needed(wanted)
        loads = self.loads_of(nodes)
        for i in loads:
            self.declare(i, items)
        axes = list(range(self.nest.rank))
        if loads:
            with code.unrolled("u", items):
                at = self.split(self._unit(units), axes)
                for i in loads:
                    self.fetch(i, "u", at)
        with code.unrolled("u", items), code.block(f"if (first + u * {threads} < units)"):
            at = self.split(self._unit(units), axes)
            stores = list(range(len(self.nest.stores)))
            with self.elements(stores, at):
                self.evaluate(nodes, "u")
                self.put_all(stores)

    def _unit(self, units: str) -> str:
        """The number of a pack, clamped to the last one."""
        i = f"first + u * {self.form.threads}"
        return self.code.let(self.index, f"{i} < {units} ? {i} : {units} - 1")


@dataclass(frozen=True)
class TileForm(Form):
    """A map with loads (`tiled`) along `axis`: squares of `size` go through shared memory."""

    axis: int
    tiled: tuple[int, ...]
    size: int


@functools.lru_cache(1024)
def tile_kernel(nest: LoopNest, form: TileForm) -> Kernel:
    """A block processes a square of size x size elements along `axis` and the innermost axis."""
    return _Tiles(nest, form).kernel()


class _Tiles(Body):
    form: TileForm

    def write(self) -> None:
        code, form = self.code, self.form
        size, b, last = form.size, form.axis, self.last
        others = [a for a in range(self.nest.rank) if a not in (b, last)]
        across = self.number("across", "tiles", last)
        down = self.number("down", "tiles", b)
        code(f"{self.index} rest = ({self.index})block;")
        code(f"const {self.index} column = rest % {across} * {size};")
        code(f"rest /= {across};")
        code(f"const {self.index} row = rest % {down} * {size};")
        code(f"rest /= {down};")
        at = self._others(others)
        for i in form.tiled:
            type = memory(self.accesses[i].dtype)
            code(f"__shared__ {type} h{i}[{size}][{size + 1}];")
        steps = size * size // form.threads
        with code.unrolled("u", steps):  # adjacent threads along `axis`
            self._cell()
            here = {**at, b: "row + right_", last: "column + down_"}
            inside = f"row + right_ < {self.extent(b)} && column + down_ < {self.extent(last)}"
            with code.block(f"if ({inside})"):
                for i in form.tiled:
                    code(f"h{i}[down_][right_] = {self.pointer(i)}[{self._offset(i, here)}];")
        code("__syncthreads();")
        nodes = self.needed([n for n, _ in self.nest.stores])
        with code.unrolled("u", steps):  # adjacent threads along the innermost axis
            self._cell()
            inside = f"row + down_ < {self.extent(b)} && column + right_ < {self.extent(last)}"
            with code.block(f"if ({inside})"):
                y = code.let(self.index, "row + down_")
                x = code.let(self.index, "column + right_")
                here = {**at, b: y, last: x}
                stores = list(range(len(self.nest.stores)))
                for i in self.loads_of(nodes):
                    if i not in form.tiled:
                        self.declare(i, 1)
                        self.fetch(i, "0", here)
                with self.elements(stores, here):
                    self.evaluate(nodes, "0")
                    self.put_all(stores)

    def _others(self, others: list[int]) -> dict[int, str]:
        """The square's coordinates along the other axes, from the rest of the block number."""
        out = {}
        for a in reversed(others):
            if a == others[0]:
                out[a] = "rest"
            else:
                out[a] = self.code.let(self.index, f"rest % {self.extent(a)}")
                self.code(f"rest /= {self.extent(a)};")
        return out

    def _cell(self) -> None:
        """The thread's element of the square in step u."""
        size = self.form.size
        self.code(f"const int cell = (int)threadIdx.x + u * {self.form.threads};")
        self.code(f"const int down_ = cell / {size}, right_ = cell % {size};")

    def _offset(self, i: int, at: dict[int, str]) -> str:
        return self.offset(i, {a: f"({x})" for a, x in at.items()})

    def element(self, i: int, slot: str) -> Value:
        if i in self.form.tiled:
            return self.k.from_memory(f"h{i}[right_][down_]", self.accesses[i].dtype)
        return super().element(i, slot)
