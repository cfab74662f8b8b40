"""Sums over outer axes as CUDA text.

A block has `lanes` threads along the axes kept, and threads / lanes along those summed over: each
adds its packs in registers, then the block adds those of equal columns in shared memory, in pairs.
With `split`, each block sums a part of the reduced axes and stores totals, an array for each part.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from toile.compiler.ir.loop_nests import LoopNest, Reduce
from toile.compiler.scalar.builder import Value
from toile.kernels.nest.gpu_text import Body, Form, Kernel
from toile.targets.cuda.scalars import register


@dataclass(frozen=True)
class ColumnForm(Form):
    """How columns are distributed to threads."""

    lanes: int
    split: bool = False


@functools.lru_cache(4096)
def column_kernel(nest: LoopNest, form: ColumnForm) -> Kernel:
    """A block processes a tile of columns; with `split`, a part of one."""
    return _Columns(nest, form).kernel()


class _Columns(Body):
    form: ColumnForm

    def write(self) -> None:
        nest, code, form = self.nest, self.code, self.form
        self.deep = form.threads // form.lanes
        self._place()
        sums = list(self.reductions)
        full = [s for s, (n, _) in enumerate(nest.stores) if not isinstance(nest.nodes[n], Reduce)]
        wanted = [self.reductions[n].arg for n in sums] + [nest.stores[s][0] for s in full]
        nodes = self.needed(wanted)
        loads = self.loads_of(nodes)
        for n in sums:
            self.begin(n, self.vector)
        fixed = [i for i in loads if not self.accesses[i].varies]
        for i in fixed:
            self.declare(i, 1)
            self.fetch(i, "0", {})
        step = self.deep * self.items
        self.fixed = set(fixed)
        moving = [i for i in loads if i not in self.fixed]
        head = f"for ({self.index} start = from + down; start < to; start += {step})"
        with code.block(head):
            for i in moving:
                self.declare(i, self.items)
            if moving:
                with code.unrolled("u", self.items):
                    i_ = f"start + u * {self.deep}"
                    at = self._along(code.let(self.index, f"{i_} < to ? {i_} : to - 1"))
                    for i in moving:
                        self.fetch(i, "u", at)
            with code.unrolled("u", self.items):
                t = code.let(self.index, f"start + u * {self.deep}")
                live = " && live" if full else ""
                with code.block(f"if ({t} < to{live})"):
                    self._add(t, nodes, sums, full)
        self._join(sums)
        with code.block("if (down == 0 && live)"):
            self._write(sums)

    def _place(self) -> None:
        """The thread's columns and its part of the reduced axes."""
        nest, code, form, type = self.nest, self.code, self.form, self.index
        code(f"const int right = (int)threadIdx.x % {form.lanes};")
        code(f"const int down = (int)threadIdx.x / {form.lanes};")
        summed = list(range(nest.outer, nest.outer + nest.reduced))
        count = " * ".join(self.extent(a) for a in summed)
        units = self.number("units", "units")
        if form.split:
            tiles = self.number("tiles", "tiles")
            step = self.number("step", "step")
            code(f"const {type} part = ({type})block / {tiles};")
            code(f"const {type} tile = ({type})block - part * {tiles};")
            code(f"const {type} from = part * {step};")
            code(f"const {type} to = from + {step} < {count} ? from + {step} : {count};")
        else:
            code(f"const {type} tile = ({type})block, from = 0, to = {count};")
        code(f"const {type} place = tile * {form.lanes} + right;")
        code(f"const bool live = place < {units};")
        code(f"const {type} column = live ? place : {units} - 1;")
        kept = [a for a in range(nest.rank) if a not in summed]
        self.kept = self.split("column", kept)
        self.over = summed
        self.move(self.kept, totals=not form.split)

    def _along(self, t: str) -> dict[int, str]:
        return self.split(t, self.over)

    def node(self, n: int, slot: str | None) -> Value:
        at = self.nest.nodes[n]
        if slot is not None and getattr(at, "operand", None) in self.fixed:
            slot = "0"
        return super().node(n, slot)

    def _add(self, t: str, nodes: list[int], sums: list[int], full: list[int]) -> None:
        """Add a pack of one row to the totals."""
        place = "[j]" if self.vector > 1 else ""
        with self.elements(full, {**self.kept, **self._along(t)}):
            self.evaluate(nodes, "u")
            for n in sums:
                self.accumulate(n, self.values[self.reductions[n].arg], place)
            self.put_all(full)

    def _join(self, sums: list[int]) -> None:
        """Add the totals of threads with the same columns, in pairs."""
        if self.deep == 1:
            return
        code, place = self.code, "[j]" if self.vector > 1 else ""
        threads = self.form.threads
        for n in sums:
            type = register(self.reductions[n].dtype)
            for x in self.names(n):
                code(f"__shared__ {type} h{x}[{threads * self.vector}];")
        with code.unrolled("j", self.vector):
            for n in sums:
                for x in self.names(n):
                    code(f"h{x}[j * {threads} + (int)threadIdx.x] = {x}{place};")
        code("__syncthreads();")
        code("#pragma unroll")
        with code.block(f"for (int half = {self.deep // 2}; half > 0; half >>= 1)"):
            with code.block("if (down < half)"), code.unrolled("j", self.vector):
                code(f"const int mine = j * {threads} + (int)threadIdx.x;")
                code(f"const int other = mine + half * {self.form.lanes};")
                for n in sums:
                    names = self.names(n)
                    got = [f"h{x}[other]" for x in names]
                    dtype = self.reductions[n].dtype
                    self.accumulate(n, Value(got[0], dtype, got[1] if len(got) > 1 else ""), place)
                    for x in names:
                        code(f"h{x}[mine] = {x}{place};")
            code("__syncthreads();")

    def _write(self, sums: list[int]) -> None:
        """Store totals: the results, or those of a part."""
        place = "[j]" if self.vector > 1 else ""
        if self.form.split:
            for n in sums:
                dtype, pointer = self.partial_results(n)
                with self.code.unrolled("j", self.vector):
                    x = self.total(n, place)
                    index = f"(part * {self.number('units', 'units')} + column) * {self.vector} + j"
                    self.k.store(Value(x.name, dtype, x.imag), pointer, index)
            return
        stores = [s for s, (n, _) in enumerate(self.nest.stores) if n in self.reductions]
        with self.elements(stores, {}):
            for s in stores:
                self.put(s, self.total(self.nest.stores[s][0], place))
