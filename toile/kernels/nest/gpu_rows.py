"""Rows as CUDA text: passes over a row, each computing reductions that later ones use.

A row belongs to `group` adjacent threads: some lanes of a warp (several rows per block), or a whole
block. If a row fits, its packs are loaded once and stay in registers from pass to pass (`held`
"registers"), or in shared memory ("shared"); otherwise every pass reads them again (""). With
`split`, a block processes a part of a row and stores one partial result for each reduction. Rows
with sums over all rows are in `gpu_totals`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from toile.compiler.ir.loop_nests import Apply, LoopNest, rounds_total
from toile.compiler.scalar.builder import Value, kind
from toile.compiler.scalar.fusible import narrowed
from toile.kernels.nest.gpu_text import Body, Form, Kernel
from toile.targets.cuda.scalars import register

WARP = 32


@dataclass(frozen=True)
class RowForm(Form):
    """How rows are distributed to threads."""

    group: int
    held: str
    split: bool = False
    exact: bool = False  # every thread of a row has `items` packs
    kept: tuple[int, ...] = ()  # loads kept in shared memory, the widest first


class Pass(NamedTuple):
    """One pass over a row: its reductions (nodes), totals, stores, and loads."""

    sums: list[int]
    totals: list[int]
    stores: list[int]
    loads: list[int]


@functools.lru_cache(4096)
def row_kernel(nest: LoopNest, form: RowForm) -> Kernel:
    """A block processes threads / group rows; with `split`, a part of one."""
    return Rows(nest, form).kernel()


@functools.lru_cache(4096)
def passes(nest: LoopNest) -> tuple[Pass, ...]:
    """The passes that a nest needs."""
    return tuple(Rows(nest, RowForm(1, 1, False, (), 1, 1, "")).passes())


class Rows(Body):
    form: RowForm

    def is_pack(self, i: int) -> bool:
        return self.accesses[i].varies

    def passes(self) -> list[Pass]:
        full = [s for s, (n, a) in enumerate(self.nest.stores)
                if (self.varies[n] or a.varies) and n not in self.totals]
        found = [Pass(*stage, []) for stage in self.stages(full, list(self.totals))]
        return [p._replace(loads=self.loads_of(self.needed(self._wanted(p)))) for p in found]

    def _wanted(self, p: Pass) -> list[int]:
        return [self.summed(n).arg for n in (*p.sums, *p.totals)] + [
            self.nest.stores[s][0] for s in p.stores]

    def write(self) -> None:
        code = self.code
        self.fetched: set[int] = set()
        self.live = ""
        found = self.passes()
        code(f"const int lane = (int)threadIdx.x % {self.form.group};")
        packs = " * ".join(self.extent(a) for a in range(self.nest.outer, self.nest.rank))
        code(f"const {self.index} packs = {packs};")
        self.rows(found)

    def rows(self, found: list[Pass]) -> None:
        """Write the work on the block's rows."""
        self.row(found)

    def row(self, found: list[Pass]) -> None:
        """All passes over one row."""
        nest, code = self.nest, self.code
        self._place()
        self._hold(found)
        for p in found:
            self._pass(p)
        full = {s for p in found for s in p.stores}
        scalar = [s for s, (n, _) in enumerate(nest.stores)
                  if s not in full and n not in self.totals]
        self.evaluate(self.needed([nest.stores[s][0] for s in scalar]), None)
        if not scalar:
            return
        with code.block(f"if ({' && '.join(['lane == 0', *filter(None, [self.live])])})"):
            for s in scalar:
                n, access = nest.stores[s]
                value, i = self.values[n], len(nest.loads) + s
                if self.form.split:
                    self._partial(n)
                else:
                    self.k.store(Value(value.name, access.dtype, value.imag), self.pointer(i), 0)

    def slot(self) -> str:
        """The index, among a thread's totals, of element j of pack u."""
        return f"[u * {self.vector} + j]" if self.items * self.vector > 1 else ""

    # ---- positions of the threads
    def _place(self) -> None:
        """The row, the part of it, and the operands' pointers there."""
        nest, code, form, type = self.nest, self.code, self.form, self.index
        if form.split:
            parts = self.number("parts", "parts")
            step = self.number("step", "step")
            code(f"const {type} row = ({type})block / {parts};")
            code(f"const {type} from = (({type})block - row * {parts}) * {step};")
            code(f"const {type} to = from + {step} < packs ? from + {step} : packs;")
        else:
            code(f"const {type} from = 0, to = packs;")
            self.find_row()
        at = self.split("row", range(nest.outer)) if nest.outer else {}
        self.outer = self.coordinates = at
        self.move(at, totals=not form.split)

    def find_row(self) -> None:
        """The row of the threads, and whether it exists."""
        code, form, type = self.code, self.form, self.index
        if form.group == form.threads:
            code(f"const {type} row = ({type})block;")
            return
        rows = self.number("rows", "rows")
        code(f"const {type} place = ({type})block * {form.threads // form.group}"
             f" + (int)threadIdx.x / {form.group};")
        code(f"const {type} row = place < {rows} ? place : {rows} - 1;")
        code(f"const bool live = place < {rows};")
        self.live = "live"

    def _hold(self, found: list[Pass]) -> None:
        """Declare memory for packs that stay from pass to pass."""
        form, code = self.form, self.code
        if form.held == "registers":
            for i in dict.fromkeys(i for p in found for i in p.loads):
                if i not in self.fetched:
                    self.declare(i, self.items)
            code(f"const {self.index} start = from + lane;")
            for n in sorted(self.nest.scratch):
                type, count = register(self._dtype(n)), self.items * self.vector
                for name in self._saved_names(n):
                    code(f"{type} {name}[{count}];")
        elif form.held == "shared":
            code("extern __shared__ __align__(16) unsigned char dynamic[];")
            size = 0
            for i in form.kept:
                access = self.accesses[i]
                code(f"{self.pack(access.dtype)}* const h{i} ="
                     f" ({self.pack(access.dtype)}*)(dynamic + packs * {size});")
                size += access.dtype.itemsize * self.vector

    # ---- costly values used by several passes
    def _dtype(self, n: int) -> np.dtype:
        node = self.nest.nodes[n]
        assert isinstance(node, Apply)
        return node.dtype

    def _saved_names(self, n: int) -> list[str]:
        return [f"k{n}", f"k{n}i"] if kind(self._dtype(n)) == "c" else [f"k{n}"]

    def node(self, n: int, slot: str | None) -> Value:
        if slot is None or self.form.held != "registers" or n not in self.nest.scratch:
            return super().node(n, slot)
        dtype = self._dtype(n)
        places = [f"{x}[u * {self.vector} + j]" for x in self._saved_names(n)]
        if n in self.saved:
            return Value(places[0], dtype, places[1] if len(places) > 1 else "")
        value = super().node(n, slot)
        for place, x in zip(places, (value.name, value.imag), strict=False):
            self.code(f"{place} = {x};")
        return value

    # ---- passes
    def _pass(self, p: Pass) -> None:
        code = self.code
        nodes = self.needed(self._wanted(p))
        self.coordinates = self.outer
        self.evaluate([n for n in nodes if not self.varies[n]], None)
        for n in p.sums:
            self.begin(n)
        varying = [n for n in nodes if self.varies[n]]
        if self.form.held == "registers":
            self._load([i for i in p.loads if i not in self.fetched or i in self.form.kept])
            self._compute(p, varying)
        else:
            step = self.form.group * self.items
            head = f"for ({self.index} start = from + lane; start < to; start += {step})"
            with code.block(head):
                for i in p.loads:
                    self.declare(i, self.items)
                self._load(p.loads)
                self._compute(p, varying)
        self.fetched.update(p.loads)
        if self.form.held == "registers":
            self.saved.update(self.nest.scratch.intersection(varying))
        if p.sums:
            self._join(p.sums)
        for n in p.sums:
            total = self.total(n)
            self.values[n] = narrowed(self.k, total) if rounds_total(self.nest, n) else total

    def _load(self, loads: list[int]) -> None:
        """Load packs; those beyond the end repeat the last one."""
        if not loads:
            return
        with self.code.unrolled("u", self.items):
            place = f"start + u * {self.form.group}"
            if not self.form.exact:
                place = f"{place} < to ? {place} : to - 1"
            t = self.code.let(self.index, place)
            at = self.along(t)
            for i in loads:
                if i in self.form.kept and i in self.fetched:
                    self.code(f"a{i}[u] = h{i}[{t}];")
                    continue
                self.fetch(i, "u", at)
                if i in self.form.kept:
                    self.code(f"h{i}[{t}] = a{i}[u];")

    def along(self, t: str) -> dict[int, str]:
        """Coordinates along the reduced axes."""
        return self.split(t, range(self.nest.outer, self.nest.rank))

    def _compute(self, p: Pass, varying: list[int]) -> None:
        """Write the nodes of the packs that were loaded: sums and stores.

        If registers hold a whole row there are no branches, so that the compiler finds
        subexpressions that passes have in common. Only the last of a thread's packs may be beyond
        the end."""
        code, ok = self.code, ""
        with code.unrolled("u", self.items):
            t = code.let(self.index, f"start + u * {self.form.group}")
            if self.form.held != "registers":
                with code.block(f"if ({t} < to)"):
                    self._pack(p, varying, t, "")
                return
            if not self.form.exact:
                ok = "ok"
                code(f"const bool ok = u < {self.items - 1} || {t} < to;")
            self._pack(p, varying, t, ok)

    def _pack(self, p: Pass, varying: list[int], t: str, ok: str) -> None:
        """Write the nodes of one pack."""
        conditions = " && ".join(filter(None, [ok, self.live]))
        self.guard = f"if ({conditions}) " if conditions else ""
        with self.elements(p.stores, {**self.outer, **self.along(t)}):
            self.evaluate(varying, "u")
            for n in p.sums:
                self.accumulate(n, self.values[self.reductions[n].arg], where=ok)
            for n in p.totals:
                self.accumulate(n, self.values[self.totals[n].arg], self.slot(), ok)
            self.put_all(p.stores)

    # ---- joining the totals of the threads of a row
    def _join(self, sums: list[int]) -> None:
        code, form = self.code, self.form
        self._butterfly(sums, min(form.group, WARP))
        if form.group <= WARP:
            return
        warps = form.group // WARP
        parts = [(n, x) for n in sums for x in self.names(n)]
        for n, x in parts:
            code(f"__shared__ {register(self.reductions[n].dtype)} r{x}[{warps}];")
        with code.block(f"if (lane % {WARP} == 0)"):
            for _, x in parts:
                code(f"r{x}[lane / {WARP}] = {x};")
        code("__syncthreads();")
        for _, x in parts:
            code(f"{x} = r{x}[lane % {warps}];")
        self._butterfly(sums, warps)

    def _butterfly(self, sums: list[int], width: int) -> None:
        """A butterfly sum: every lane gets the same total of `width` lanes."""
        if width == 1:
            return
        code = self.code
        code("#pragma unroll")
        with code.block(f"for (int o = {width // 2}; o > 0; o >>= 1)"):
            for n in sums:
                dtype = self.reductions[n].dtype
                type = register(dtype)
                small = kind(dtype) == "b" or dtype.itemsize < 4 and kind(dtype) in "iu"
                to, cast = ("(int)", f"({type})") if small else ("", "")
                got = [code.let(type, f"{cast}__shfl_xor_sync(0xffffffffu, {to}{x}, o)")
                       for x in self.names(n)]
                self.accumulate(n, Value(got[0], dtype, got[1] if len(got) > 1 else ""))

    # ---- parts of rows
    def _partial(self, n: int) -> None:
        """Store the part's total of a reduction, one for each block."""
        dtype, pointer = self.partial_results(n)
        value = self.values[n]
        self.k.store(Value(value.name, dtype, value.imag), pointer, "block")


def shared_loads(nest: LoopNest) -> list[int]:
    """The loads that several passes use, the widest first."""
    uses = [i for p in passes(nest) for i in p.loads]
    several = [i for i in dict.fromkeys(uses) if uses.count(i) > 1 and nest.loads[i].inner]
    return sorted(several, key=lambda i: -nest.loads[i].dtype.itemsize)
