"""Rows with sums over all rows, as CUDA text: the backward pass of layer norm, for example.

A row belongs to a warp or, if a warp's registers cannot hold it, to a block. Its threads process
one row after another and accumulate totals in registers, each for its own positions in a row; at
the end a block adds the totals of its warps, and stores them. While a row is processed the next
ones are being copied to shared memory: each thread copies the packs that it will use itself, so
that it alone has to wait for them. (On an H200 this reaches 92% of a copy's bandwidth; with loads
into registers it was 78%.) Values that all rows share are in shared memory, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from toile.compiler.ir.loop_nests import Load, LoopNest
from toile.compiler.scalar.builder import Value
from toile.compiler.scalar.totals import combine
from toile.kernels.nest.gpu_rows import WARP, Pass, RowForm, Rows
from toile.kernels.nest.gpu_text import Kernel
from toile.targets.cuda.scalars import memory


@dataclass(frozen=True)
class TotalForm(RowForm):
    """How rows with totals are distributed to threads; `kept` are loads that all rows share."""

    ahead: int = 0  # rows in flight; 0: the next one, in registers
    resident: int = 1  # blocks that must fit on a multiprocessor


@functools.lru_cache(4096)
def total_kernel(nest: LoopNest, form: TotalForm) -> Kernel:
    """A block processes threads / group rows at a time."""
    return _Rows(nest, form).kernel()


class _Rows(Rows):
    form: TotalForm

    def rows(self, found: list[Pass]) -> None:
        """Process the rows of a group of threads, one after the other."""
        code, type, form = self.code, self.index, self.form
        code.resident = form.resident
        for n in self.totals:
            self.begin(n, self.items * self.vector)
        loads = list(dict.fromkeys(i for p in found for i in p.loads))
        moves = lambda i: any(self.stride(i, a) for a in range(self.nest.outer))
        self.moving = [i for i in loads if moves(i)]
        self.carried = [x.operand for x in self.nest.nodes if isinstance(x, Load)
                        and not self.is_pack(x.operand) and moves(x.operand)]
        self.groups = form.threads // form.group
        self._first_row()
        self._prepare(loads)
        self.fetched.update(loads)
        with code.block(f"for ({type} row = first; row < rows; row += step)"):
            self._next()
            self.row(found)
            if form.group > WARP and sum(bool(p.sums) for p in found) == 1:
                code("__syncthreads();")  # shared memory for joining the sums of a row is reused
        self._leave()

    def _first_row(self) -> None:
        """The first row of the threads, which process every `step`-th row."""
        for name in ("rows", "step"):
            self.number(name, name)
        first = f"({self.index})block"
        if self.groups > 1:  # a shuffle tells the compiler that all lanes have the same row
            first = (f"{first} * {self.groups}"
                     f" + __shfl_sync(0xffffffffu, (int)threadIdx.x / {WARP}, 0)")
        self.code(f"const {self.index} first = {first};")

    def find_row(self) -> None:
        """Write nothing: the loop sets the row."""

    # ---- loads
    def _prepare(self, loads: list[int]) -> None:
        """Load what all rows share, and the first rows."""
        code, form = self.code, self.form
        for i in loads:
            self.declare(i, self.items)
        if form.ahead or form.kept or self.groups > 1:
            code("extern __shared__ __align__(16) unsigned char dynamic[];")
        size = self._ring() if form.ahead else 0
        self._share(size)
        first = code.let(self.index, "first < rows ? first : rows - 1")
        self._packs([i for i in loads if i not in self.moving and i not in form.kept], first, "a")
        if not form.ahead:
            for i in self.moving:
                self.declare(i, self.items, "y")
            self._packs(self.moving, first, "y")
        for i in self.carried:
            code(f"{memory(self.accesses[i].dtype)} c{i}, z{i};")
        self._carry(first)

    def _ring(self) -> int:
        """Start loading the first rows; returns the bytes of rows in flight."""
        code, form, size = self.code, self.form, 0
        code.use("later")
        for i in self.moving:
            dtype = self.accesses[i].dtype
            type = self.pack(dtype)
            code(f"{type}* const h{i} = ({type}*)(dynamic + {size}) + threadIdx.x;")
            size += (form.ahead + 1) * self.items * form.threads * self.vector * dtype.itemsize
        for k in range(form.ahead):
            self._send(code.let(self.index, f"first + {k} * step" if k else "first"), str(k))
        code("int slot = 0;")
        return size

    def _send(self, row: str, slot: str) -> None:
        """Start copying a row's packs, each thread its own; rows beyond the last are skipped."""
        code, form = self.code, self.form
        with code.block(f"if ({row} < rows)"), self._places(row) as at:
            for i in self.moving:
                type = self.pack(self.accesses[i].dtype)
                code(f"later(h{i} + ({slot} * {self.items} + u) * {form.threads},"
                     f" (const {type}*)({self.pointer(i)} + ({self.offset(i, at)})));")
        code("sent();")

    def _next(self) -> None:
        """Wait for the row's packs, and start loading another row.

        The new row replaces the previous one, which has been read completely."""
        code, form = self.code, self.form
        if form.ahead:
            code(f"arrived<{form.ahead - 1}>();")
            with code.unrolled("u", self.items):
                for i in self.moving:
                    code(f"a{i}[u] = h{i}[(slot * {self.items} + u) * {form.threads}];")
            before = code.let("int", f"slot == 0 ? {form.ahead} : slot - 1")
            code(f"slot = slot == {form.ahead} ? 0 : slot + 1;")
            far = f"{form.ahead} * step" if form.ahead > 1 else "step"
            self._send(code.let(self.index, f"row + {far}"), before)
        else:
            with code.unrolled("u", self.items):
                for i in self.moving:
                    code(f"a{i}[u] = y{i}[u];")
        for i in self.carried:
            code(f"c{i} = z{i};")
        if self.carried or self.moving and not form.ahead:
            after = code.let(self.index, "row + step < rows ? row + step : row")
            if not form.ahead:
                self._packs(self.moving, after, "y")
            self._carry(after)

    def _share(self, size: int) -> None:
        """Put what all rows share into shared memory, after `size` bytes."""
        code, form = self.code, self.form
        if not form.kept:
            return
        width = 0
        for i in form.kept:
            dtype = self.accesses[i].dtype
            type = self.pack(dtype)
            code(f"{type}* const h{i} = ({type}*)(dynamic + {size} + packs * {width});")
            width += self.vector * dtype.itemsize
        code("#pragma unroll 1")
        with code.block(f"for ({self.index} t = threadIdx.x; t < packs; t += {form.threads})"):
            for i in form.kept:
                self.fetch(i, "t", self.along("t"), "h")
        code("__syncthreads();")

    def _packs(self, loads: list[int], row: str, name: str) -> None:
        """Load packs of a row into registers."""
        if loads:
            with self.code.block(""), self._places(row) as at:
                for i in loads:
                    self.fetch(i, "u", at, name)

    @contextmanager
    def _places(self, row: str) -> Iterator[dict[int, str]]:
        """A loop over a thread's packs of a row; yields their coordinates."""
        outer = self.split(row, range(self.nest.outer)) if self.nest.outer else {}
        with self.code.unrolled("u", self.items):
            place = f"lane + u * {self.form.group}"
            if not self.form.exact:
                place = f"{place} < packs ? {place} : packs - 1"
            yield {**outer, **self.along(self.code.let(self.index, place))}

    def _carry(self, row: str) -> None:
        """Load the values of which a row has only one."""
        if self.carried:
            with self.code.block(""):
                at = self.split(row, range(self.nest.outer))
                for i in self.carried:
                    self.code(f"z{i} = {self.pointer(i)}[{self.offset(i, at)}];")

    def node(self, n: int, slot: str | None) -> Value:
        node = self.nest.nodes[n]
        if isinstance(node, Load) and node.operand in self.carried:
            return self.k.from_memory(f"c{node.operand}", self.accesses[node.operand].dtype)
        return super().node(n, slot)

    # ---- totals
    def _leave(self) -> None:
        """Write the block's totals, one row of them per block."""
        for n in self.totals:
            dtype, pointer = self.partial_results(n)
            if self.groups > 1:
                self._join_groups(n, dtype, pointer)
                continue
            with self.code.unrolled("u", self.items):
                t = self.code.let(self.index, f"lane + u * {self.form.group}")
                with self.code.block("" if self.form.exact else f"if ({t} < packs)"):
                    self._pack_of(n, dtype)
                    self._store(pointer, dtype, t)

    def _pack_of(self, n: int, dtype: np.dtype) -> None:
        """Pack u of a thread's totals."""
        self.code(f"{self.pack(dtype)} q;")
        with self.code.unrolled("j", self.vector):
            x = self.total(n, self.slot())
            self.code(f"q.e[j] = {self.k.to_memory(Value(x.name, dtype, x.imag))};")

    def _store(self, pointer: str, dtype: np.dtype, t: str) -> None:
        place = f"(({self.index})block * packs + {t}) * {self.vector}"
        self.code(f"*({self.pack(dtype)}*)({pointer} + {place}) = q;")

    def _join_groups(self, n: int, dtype: np.dtype, pointer: str) -> None:
        """Add the totals of the block's rows, in order."""
        code, form, type = self.code, self.form, self.pack(dtype)
        code("__syncthreads();")  # shared memory was used for something else
        code(f"{type}* const x{n} = ({type}*)dynamic;")
        with code.unrolled("u", self.items):
            self._pack_of(n, dtype)
            code(f"x{n}[u * {form.threads} + threadIdx.x] = q;")
        code("__syncthreads();")
        code("#pragma unroll 1")
        with code.block(f"for ({self.index} t = threadIdx.x; t < packs; t += {form.threads})"):
            code(f"const {type}* const of ="
                 f" x{n} + t / {form.group} * {form.threads} + t % {form.group};")
            code(f"{type} q = of[0];")
            code("#pragma unroll 1")
            with code.block(f"for (int g = 1; g < {self.groups}; g++)"):
                code(f"const {type} other = of[g * {form.group}];")
                with code.unrolled("j", self.vector):
                    x, y = (self.k.from_memory(f"{name}.e[j]", dtype) for name in ("q", "other"))
                    z = combine(self.k, self.totals[n].kind, x, y)
                    code(f"q.e[j] = {self.k.to_memory(Value(z.name, dtype, z.imag))};")
            self._store(pointer, dtype, "t")
