"""What determines the texts of loop nests besides their structure: packs, indices, row lengths.

Packs are as wide as extents, strides and the addresses of operands allow; a thread loads several of
them before it uses the first, so that enough bytes are in flight. Rows are distributed to lanes,
warps or blocks by their length, and stay in registers or shared memory if they fit. GPUs differ in
shared memory: rows that do not fit are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import gcd, prod

from toile.compiler.ir.loop_nests import (
    Access,
    Apply,
    LoopNest,
    Loops,
    Pick,
    Place,
    Reduce,
    Total,
    levels,
)
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.steps import alignment
from toile.compiler.scalar.totals import accumulator
from toile.kernels.nest.gpu_rows import WARP, RowForm, passes, shared_loads
from toile.kernels.nest.gpu_text import UNIT, ZERO, Pattern
from toile.kernels.nest.gpu_totals import TotalForm
from toile.targets.cuda import driver
from toile.targets.cuda.launches import THREADS

Refs = Callable[[Place], Ref]

BYTES_AT_ONCE = 64  # of loads in flight for each thread
MOST_SHARED = 200 << 10  # bytes of shared memory for one row, if a GPU has as much
REGISTERS = 1 << 16  # of a multiprocessor
MOST_OF_LANE, MOST_OF_THREAD = 144, 48  # registers for a part of a row, and of totals
BYTES_UNDER_WAY = 32 << 10  # of the next rows, in flight on a multiprocessor
SHARED_OF_ROWS = 96 << 10  # bytes of shared memory for several rows, which most GPUs have
MOST_WARPS = 32  # of a block
SHORT_ROW, MANY_ROWS = 4, 1 << 15  # elements of a row that one thread adds; fewest such rows
COMMON_ROW = 256  # elements of a row that is the same for many threads
# With several elements at places of their own, adjacent threads should read adjacent elements.
MANY_PICKS, PICKED_BYTES = 3, 8  # the fewest, and the bytes of each that a thread may then read
FAR = 2**31 - 2**17  # indices beyond this need 64 bits


def operands_of(x: Loops) -> list[tuple[Place, Access]]:
    """Loads, then stores, each with its kind of access."""
    accesses = [*x.nest.loads, *(a for _, a in x.nest.stores)]
    return list(zip([*x.loads, *x.stores], accesses, strict=True))


def pattern_of(x: Loops) -> Pattern:
    """Which strides are known, and which operands have the same strides."""
    first: dict[tuple[int, ...], int] = {}
    out = []
    for i, (place, access) in enumerate(operands_of(x)):
        of = first.setdefault(place.strides, i)
        row = [ZERO if s == 0 else of for s in place.strides]
        if access.inner == 1:
            row[-1] = UNIT
        out.append(tuple(row))
    return tuple(out)


def is_wide(x: Loops) -> bool:
    """Whether indices need 64 bits."""
    if prod(x.extents) >= FAR:
        return True
    reach = lambda p: sum(abs(s) * (n - 1) for s, n in zip(p.strides, x.extents, strict=True))
    return any(reach(p) >= FAR for p, _ in operands_of(x))


def vector_of(x: Loops, where: Refs) -> int:
    """Elements of a pack: up to 16 bytes of the narrowest operand, if extents and alignment fit."""
    units = [(p, p.dtype.itemsize) for p, a in operands_of(x) if a.inner == 1]
    if not units:
        return 1
    sizes = [size for _, size in units]
    vector = 16 if max(sizes) == 1 else min(8, 16 // min(sizes))
    picked = _picked_at_once(x.nest)
    if len(picked) >= MANY_PICKS:
        vector = min(vector, max(1, PICKED_BYTES // max(picked)))
    if len(operands_of(x)) > 12:  # registers are limited
        vector = min(vector, 4)
    while vector > 1:
        if x.extents[-1] % vector == 0 and all(
            is_aligned(where(p), min(16, vector * size), _outer_steps(p, x.extents))
            for p, size in units
        ):
            break
        vector //= 2
    return max(vector, 1)


def _picked_at_once(nest: LoopNest) -> list[int]:
    """The sizes of the elements that threads read at places of their own, one by one."""
    _, varies = levels(nest)
    return [nest.loads[n.operand].dtype.itemsize
            for n, v in zip(nest.nodes, varies, strict=True) if v and isinstance(n, Pick)]


def _outer_steps(place: Place, extents: Sequence[int]) -> list[int]:
    """The byte strides of all axes but the last."""
    outer = zip(place.strides[:-1], extents[:-1], strict=True)
    return [s * place.dtype.itemsize for s, n in outer if n > 1]


def is_aligned(ref: Ref, nbytes: int, steps: Iterable[int]) -> bool:
    """Whether packs of `nbytes` begin at multiples of that, with these steps between them."""
    return gcd(alignment(ref), *steps) % nbytes == 0


def _is_costly(nest: LoopNest) -> bool:
    return any(isinstance(n, Apply) and n.op.costly for n in nest.nodes)


def items_of(nest: LoopNest, vector: int, moving: Callable[[Access], bool]) -> int:
    """Packs that a thread loads before it uses the first."""
    loaded = vector * sum(
        a.dtype.itemsize for a in nest.loads if a.inner and moving(a) and not a.picked)
    if _picked_at_once(nest):  # which come after the loads
        return 1
    most = 16 if _is_costly(nest) else 32
    items = max(1, BYTES_AT_ONCE // max(loaded, 16))
    return max(1, min(items, most // vector, 4))


def row_form_of(x: Loops, vector: int, packs: int) -> RowForm:
    """How rows of `packs` packs are distributed to threads, and where they are kept."""
    nest = x.nest
    each = registers_of(nest, vector)
    saved = len(nest.scratch) * vector
    wide, pattern = is_wide(x), pattern_of(x)

    def form(items: int, threads: int, group: int, held: str = "registers",
             kept: tuple[int, ...] = ()) -> RowForm:
        exact = held == "registers" and packs == items * group
        return RowForm(vector, items, wide, pattern, threads, group, held, False, exact, kept)

    rows = prod(x.extents[: nest.outer])
    if packs * vector <= COMMON_ROW and _have_one_row(x, rows):
        return form(min(4, packs), THREADS // 2, 1, "")
    if vector == 1 and _are_beside(x):  # a thread for each row
        held = packs * each <= MOST_OF_THREAD
        items = packs if held else max(1, min(4, 16 // each))
        return form(items, THREADS // 2, 1, "registers" if held else "")
    group = _lanes_of(packs, packs * vector, rows, packs * each)
    items = -(-packs // group)
    if items * each <= 32 or items == 1:
        return form(items, THREADS // 2, group)
    threads = _threads_of(packs, each, saved)
    if threads:
        return form(-(-packs // threads), threads, threads)
    kept = _kept_in_shared(nest, packs * vector)
    return form(max(1, min(4, 16 // each)), 1024, 1024, "shared" if kept else "", kept)


def _threads_of(packs: int, each: int, saved: int) -> int:
    """The threads of a block that holds a row in registers; 0 if it is too long."""
    for threads, room in ((128, 32), (256, 32), (512, 32), (512, 64), (1024, 32)):
        items = -(-packs // threads)
        fits = items * (each + saved) <= min(2 * room, 40 if threads == 1024 else 64)
        if items * each <= room and fits and (threads > 128 or items <= 4):
            return threads
    return 0


def _kept_in_shared(nest: LoopNest, elements: int) -> tuple[int, ...]:
    """The loads of a row of so many elements that fit into shared memory."""
    room, kept = room_of(nest, MOST_SHARED) // elements, []
    for i in shared_loads(nest):
        size = nest.loads[i].dtype.itemsize
        if size <= room:
            kept.append(i)
            room -= size
    return tuple(kept)


def _are_beside(x: Loops) -> bool:
    """Whether neighboring rows are adjacent in memory, and the elements of a row are not."""
    across = x.nest.outer - 1
    return across >= 0 and contiguous_bytes(x, across) > contiguous_bytes(x, x.nest.rank - 1)


def _have_one_row(x: Loops, rows: int) -> bool:
    """Whether many rows read the same elements, such as the numbers that each is compared with.

    Then threads that each process a row read the same addresses at the same time."""
    varying = [load for a, load in zip(x.nest.loads, x.loads, strict=True) if a.varies]
    whole = any(a.picked for a in x.nest.loads) or any(a.varies for _, a in x.nest.stores)
    return rows >= MANY_ROWS and not whole and not any(
        any(load.strides[: x.nest.outer]) for load in varying)


def _lanes_of(packs: int, elements: int, rows: int, registers: int) -> int:
    """The lanes of a short row: one if there are many rows of a few elements each.

    registers: those for the loads of a whole row."""
    if elements <= SHORT_ROW and rows >= MANY_ROWS and registers <= 32:
        return 1
    return min(WARP, 1 << max(0, packs - 1).bit_length())


def room_of(nest: LoopNest, most: int) -> int:
    """Bytes of shared memory for rows: what the GPU has, less what joining warps' sums needs."""
    sums = [accumulator(n.dtype).itemsize for n in nest.nodes if isinstance(n, Reduce)]
    return min(most, driver.shared_limit() - MOST_WARPS * sum(sums))


def contiguous_bytes(x: Loops, axis: int) -> int:
    """The bytes of what is read contiguously along an axis."""
    return sum(bytes_at(p, x.extents, access.picked)
               for p, access in zip(x.loads, x.nest.loads, strict=True) if p.strides[axis] == 1)


def bytes_at(place: Place, extents: Sequence[int], every: bool) -> int:
    """The bytes of the elements at a place; `every`: of one per position, even if they repeat."""
    return place.dtype.itemsize * prod(
        n for n, s in zip(extents, place.strides, strict=True) if s or every)


def registers_of(nest: LoopNest, vector: int) -> int:
    """Registers for one pack of all loads."""
    loads = {i for p in passes(nest) for i in p.loads}
    sizes = [nest.loads[i].dtype.itemsize for i in loads if nest.loads[i].inner]
    return max(1, sum(max(1, size // 4) for size in sizes)) * vector


class _Totals:
    """The registers and shared memory that a nest with totals needs."""

    def __init__(self, x: Loops):
        self.x, self.nest = x, x.nest
        self.row = prod(x.extents[x.nest.outer:])
        self.loads = sorted({i for p in passes(x.nest) for i in p.loads})
        self.moving = [i for i in self.loads if any(x.loads[i].strides[: x.nest.outer])]
        shared = [i for i in self.loads if i not in self.moving and x.nest.loads[i].inner == 1]
        self.kept = tuple(sorted(shared, key=lambda i: -self.size([i])))  # widest first, so aligned
        self.sums = [accumulator(n.dtype).itemsize for n in x.nest.nodes if isinstance(n, Total)]
        self.room = room_of(x.nest, SHARED_OF_ROWS)

    def size(self, loads: Sequence[int]) -> int:
        """The total bytes of one element of each of these loads."""
        return sum(self.nest.loads[i].dtype.itemsize for i in loads)

    def copies(self, vector: int) -> bool:
        """Whether packs can be copied into shared memory while others are being processed."""
        return bool(self.moving) and all(
            self.nest.loads[i].inner == 1 and vector * self.size([i]) >= 4 for i in self.moving)

    def registers(self, vector: int, ahead: int, kept: Sequence[int]) -> int:
        """Registers of a pack: what is loaded, and what is accumulated or saved."""
        held = [i for i in self.loads if i not in kept] + ([] if ahead else self.moving)
        return (sum(max(1, vector * self.size([i]) // 4) for i in held)
                + vector * (sum(max(1, s // 4) for s in self.sums) + len(self.nest.scratch)))

    def form(self, vector: int, threads: int, group: int, ahead: int,
             kept: tuple[int, ...]) -> TotalForm:
        items = -(-self.row // (vector * group))
        return TotalForm(
            vector, items, is_wide(self.x), pattern_of(self.x), threads, group, "registers", False,
            self.row == items * group * vector, kept, ahead)

    def shared(self, form: TotalForm) -> int:
        """Bytes of shared memory: rows in flight and what rows share; at the end, totals."""
        held = form.items * form.threads * form.vector
        rows = (form.ahead + 1) * held * self.size(self.moving) if form.ahead else 0
        totals = held * max(self.sums) if form.group < form.threads else 0
        return max(rows + self.row * self.size(form.kept), totals)

    def of_warps(self, vector: int) -> TotalForm | None:
        """One row per warp; None if a row takes too many registers or too much shared memory."""
        ahead = int(self.copies(vector))
        held = -(-self.row // (vector * WARP)) * self.registers(vector, ahead, self.kept)
        if held > MOST_OF_LANE:
            return None
        warps = 4 if held > 64 else 8
        resident = max(1, REGISTERS // (WARP * (held + 80)) // warps)
        if ahead:
            together = resident * warps * self.row * self.size(self.moving)
            ahead = min(3, -(-BYTES_UNDER_WAY // together))
        form = self.form(vector, warps * WARP, WARP, ahead, self.kept)
        return replace(form, resident=resident) if self.shared(form) <= self.room else None

    def of_blocks(self, vector: int) -> TotalForm:
        """One row per block."""
        for ahead, kept in ((1, self.kept), (0, self.kept), (0, ())):
            by = vector
            while by > 1 and self.registers(by, ahead, kept) > MOST_OF_THREAD:
                by //= 2
            for threads in (128, 256, 512, 1024):
                held = -(-self.row // (by * threads)) * self.registers(by, ahead, kept)
                if held <= MOST_OF_THREAD:
                    break
            form = self.form(by, threads, threads, ahead, kept)
            if self.shared(form) <= self.room and (self.copies(by) or not ahead):
                break
        fit = REGISTERS // (threads * (held + 56)), 2 * SHARED_OF_ROWS // max(1, self.shared(form))
        return replace(form, resident=max(1, min(fit)))


def total_form_of(x: Loops, vector: int) -> tuple[TotalForm, int]:
    """How rows with totals are distributed to threads, and a block's shared memory."""
    nest = _Totals(x)
    form = nest.of_warps(vector) or nest.of_blocks(vector)
    return form, nest.shared(form)
