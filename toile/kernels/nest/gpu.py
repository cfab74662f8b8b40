"""Loop nests on a GPU: which kernel computes one, with how many blocks and which arguments.

Texts depend on structure: the nest, which strides are 0 or 1 or shared, the width of packs (by
alignment and extents) and of indices, and for rows their length. How work is divided depends only
on extents, not on the GPU, so that sums are the same everywhere (except totals of rows on GPUs with
less shared memory than `SHARED_OF_ROWS`, those before Ampere).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from toile.compiler.ir import loop_nests
from toile.compiler.ir.loop_nests import Access, Index, Load, LoopNest, Loops, Place, Reduce, Total
from toile.compiler.ir.operands import Ref
from toile.compiler.ir.views import row_major
from toile.compiler.plan.row_buffers import with_row_buffers
from toile.compiler.scalar import fusible
from toile.compiler.scalar.builder import BOOL
from toile.compiler.scalar.totals import accumulator
from toile.kernels.nest import gpu_forms
from toile.kernels.nest.gpu_columns import ColumnForm, column_kernel
from toile.kernels.nest.gpu_forms import (
    Refs,
    bytes_at,
    contiguous_bytes,
    is_wide,
    items_of,
    operands_of,
    pattern_of,
    vector_of,
)
from toile.kernels.nest.gpu_maps import TileForm, map_kernel, tile_kernel
from toile.kernels.nest.gpu_rows import WARP, RowForm, row_kernel
from toile.kernels.nest.gpu_text import Form, Kernel, Word
from toile.kernels.nest.gpu_totals import total_kernel
from toile.kernels.nest.shared import constant_words, sum_of_row_parts
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.scalars import Code, Scalars

can_fuse = fusible.rule(lambda: Scalars(Code()), lambda dtype: "true" if dtype == BOOL else "x",
                        lambda op: True, short_rows=True)
PROCESSORS = 132  # multiprocessors that work is divided for
FEW_PACKS = 1 << 16  # of a sum that is too small for a second kernel
LARGE = 32 << 20  # bytes of an array that no cache holds as a whole
MOST_TILED = 40  # bytes per element, of all loads whose squares go through shared memory


def plan_nest(x: Loops, refs: Refs, plan: Planner) -> None:
    """Stage the launches of a loop nest; `refs` gives the address of a memory operand."""
    def where(p: Place) -> Ref:
        return p.base.at(p.offset * p.dtype.itemsize) if isinstance(p.base, Ref) else refs(p)

    if x.nest.kind == "map":
        plan.stage(_map(x, where))
        return
    if any(isinstance(n, Total) for n in x.nest.nodes):
        _rows_with_totals(x, where, plan)
        return
    x = _as_columns(x)
    if x.nest.kind == "column":
        _columns(x, where, plan)
    elif x.nest.kind == "partial" or _is_few_and_long(x):
        _parts(x, where, plan)
    else:
        plan.stage(_rows(x, where))


# ---- launches


def magic(n: int) -> int:
    """The multiplier with which `divide` divides by n: a factor in the low 32 bits, a shift above.

    The quotient is exact for numbers below 2**31."""
    shift = (n - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - n) // n + 1) | shift << 32


def _launch(
    x: Loops, where: Refs, kernel: Kernel, form: Form, blocks: int, shared: int = 0,
    **numbers: Any,
) -> Launch:
    """A launch with the words that the kernel needs; `numbers` are those of its kind."""
    places = [p for p, _ in operands_of(x)]
    extents = list(x.extents)
    extents[-1] //= form.vector

    def value(word: Word) -> int | Ref:
        match word:
            case ("extent", a):
                return extents[a]
            case ("elements", a):
                return x.extents[a]
            case ("magic", a):
                return magic(extents[a])
            case ("pointer", i):
                return where(places[i])
            case ("stride", i, a):
                return places[i].strides[a]
            case ("constant", c, h):
                return constant_words(x.constants[c])[h]
            case ("tiles", a):
                return numbers["tiles"][a]
            case ("total", n):
                return numbers["totals"][n]
            case (name,):
                return numbers[name]
        raise AssertionError(word)

    return Launch(
        kernel.text, tuple(value(word) for word in kernel.words), blocks, form.threads, shared,
        x.nest.kind, frozenset(where(p).buffer for p in x.loads), _nbytes(x),
    )


def _nbytes(x: Loops) -> int:
    """How many bytes must be read and written."""
    return sum(bytes_at(p, x.extents, access.picked) for p, access in operands_of(x))


# ---- maps


def _map(x: Loops, where: Refs) -> Launch:
    tiles = _tiles(x, where)
    if tiles is not None:
        return tiles
    vector = vector_of(x, where)
    items = items_of(x.nest, vector, lambda a: True)
    form = Form(vector, items, is_wide(x), pattern_of(x), THREADS)
    units = prod(x.extents) // vector
    return _launch(x, where, map_kernel(x.nest, form), form, -(-units // (THREADS * items)),
                   units=units)


def _loads_along(x: Loops) -> dict[int, list[int]]:
    """Loads that run along an axis other than the innermost, by that axis, if it is long."""
    along: dict[int, list[int]] = {}
    for i, (place, access) in enumerate(zip(x.loads, x.nest.loads, strict=True)):
        axes = [a for a in range(x.nest.rank - 1)
                if abs(place.strides[a]) == 1 and x.extents[a] >= 16]
        if access.inner == 2 and axes and not access.picked:
            along.setdefault(axes[0], []).append(i)
    return along


def _tiles(x: Loops, where: Refs) -> Launch | None:
    """The launch of a map that transposes; None if it does not, or is small."""
    nest, last = x.nest, x.nest.rank - 1
    if nest.rank < 2 or x.extents[last] < 16 or prod(x.extents) < 4096:
        return None
    if nest.stores[0][1].inner != 1:
        return None
    along = _loads_along(x)
    if not along:
        return None
    axis = max(along, key=lambda a: (sum(x.loads[i].dtype.itemsize for i in along[a]), a))
    room = sum(x.loads[i].dtype.itemsize for i in along[axis])
    size = 64 if room <= 2 and min(x.extents[axis], x.extents[last]) >= 64 else 32
    while room > MOST_TILED:  # the others are read directly
        room -= x.loads[along[axis].pop()].dtype.itemsize
    tiled = tuple(along[axis])
    form = TileForm(1, 1, is_wide(x), pattern_of(x), THREADS, axis, tiled, size)
    counts = {a: -(-x.extents[a] // size) for a in (axis, last)}
    others = prod(x.extents) // (x.extents[axis] * x.extents[last])
    return _launch(x, where, tile_kernel(nest, form), form, prod(counts.values()) * others,
                   tiles=counts)


# ---- rows


def _rows(x: Loops, where: Refs) -> Launch:
    """Whole rows: a few lanes, a warp or a block for each."""
    nest = with_row_buffers(x.nest, 1)  # buffer costly nodes, however long rows are
    x = replace(x, nest=nest)
    vector = vector_of(x, where)
    rows, packs = prod(x.extents[: nest.outer]), prod(x.extents[nest.outer:]) // vector
    form = gpu_forms.row_form_of(x, vector, packs)
    kernel = row_kernel(nest, form)
    shared = packs * vector * sum(nest.loads[i].dtype.itemsize for i in form.kept)
    return _launch(x, where, kernel, form, -(-rows // (form.threads // form.group)), shared,
                   rows=rows)


def _rows_with_totals(x: Loops, where: Refs, plan: Planner) -> None:
    """Rows, and sums over all rows: each block processes some rows and stores their sums, which
    are then summed."""
    x = replace(x, nest=with_row_buffers(x.nest, 1))
    nest, kept = x.nest, range(x.nest.outer, x.nest.rank)
    form, shared = gpu_forms.total_form_of(x, vector_of(x, where))
    rows = prod(x.extents[: nest.outer])
    at_once = form.threads // form.group
    blocks = min(PROCESSORS * form.resident, -(-rows // at_once))
    totals = _totals(nest, blocks * prod(x.extents[a] for a in kept), plan, Total)
    plan.stage(_launch(x, where, total_kernel(nest, form), form, blocks, shared, rows=rows,
                       step=blocks * at_once, totals=totals))
    plan.stage(*_sums_of_parts(x, totals, blocks, kept, where))


def _is_few_and_long(x: Loops) -> bool:
    """Whether rows are too few for all multiprocessors, and only their totals are needed."""
    rows, row = prod(x.extents[: x.nest.outer]), prod(x.extents[x.nest.outer:])
    return _in_one_pass(x.nest) and rows < PROCESSORS and row > 1 << 14


def _in_one_pass(nest: LoopNest) -> bool:
    """Whether only totals are needed, and numbers that do not depend on them."""
    level, _ = loop_nests.levels(nest)
    return max(level) <= 1 and all(
        isinstance(nest.nodes[n], Reduce) or level[n] == 0 and a.varies for n, a in nest.stores)


def _parts(x: Loops, where: Refs, plan: Planner) -> None:
    """Long rows: a block for each part of a row, then the sums of the parts."""
    nest = x.nest
    vector = vector_of(x, where)
    rows, packs = prod(x.extents[: nest.outer]), prod(x.extents[nest.outer:]) // vector
    items = items_of(nest, vector, lambda a: a.varies)
    wanted = min(-(-8 * PROCESSORS // rows), packs // (THREADS * items), 1024)
    if wanted <= 1:
        plan.stage(_rows(x, where))
        return
    step = -(-packs // (wanted * THREADS)) * THREADS
    parts = -(-packs // step)
    form = RowForm(vector, items, is_wide(x), pattern_of(x), THREADS, THREADS, "", True)
    totals = _totals(nest, rows * parts, plan)
    kernel = row_kernel(nest, form)
    plan.stage(_launch(x, where, kernel, form, rows * parts, parts=parts, step=step,
                       totals=totals))
    later = []
    outer = x.extents[: nest.outer]
    for (n, _), place in zip(nest.stores, x.stores, strict=True):
        node = nest.nodes[n]
        if not isinstance(node, Reduce):
            continue
        call = sum_of_row_parts(node, totals[n], place, parts, outer, x.group)
        # one text for all numbers of parts: a block processes 1024 of them at once
        form = RowForm(1, 4, is_wide(call), pattern_of(call), THREADS, THREADS, "")
        later.append(_launch(call, where, row_kernel(call.nest, form), form, rows))
    plan.stage(*later)


def _totals(
    nest: LoopNest, count: int, plan: Planner, of: type[Reduce] | type[Total] = Reduce
) -> dict[int, Ref]:
    """Memory for partial results, by reduction."""
    return {n: plan.scratch(count * accumulator(node.dtype).itemsize)
            for n, node in enumerate(nest.nodes) if isinstance(node, of)}


# ---- columns


def _as_columns(x: Loops) -> Loops:
    """Rows that are strided in memory and summed in one pass, as columns; others unchanged.

    If as much is contiguous along the rows as across them, columns are faster for large arrays:
    neighboring threads read what is contiguous across, and the caches keep the rest for the next
    rows."""
    nest = x.nest
    if nest.kind == "column" or not nest.outer or not _in_one_pass(nest):
        return x
    across, along = (contiguous_bytes(x, axis) for axis in (nest.outer - 1, nest.rank - 1))
    if across < along or (across == along and across < LARGE):
        return x
    order = [*range(nest.outer, nest.rank), *range(nest.outer)]
    loads, stores = ([p._replace(strides=tuple(p.strides[a] for a in order)) for p in places]
                     for places in (x.loads, x.stores))
    nodes = tuple(Index(tuple(map(order.index, n.axes)), n.dtype) if isinstance(n, Index) else n
                  for n in nest.nodes)
    turned = replace(
        nest, kind="column", outer=0, inner=nest.outer, nodes=nodes, scratch=frozenset(),
        loads=tuple(map(_moved_access, nest.loads, loads)),
        stores=tuple((n, _moved_access(a, p)) for (n, a), p in zip(nest.stores, stores,
                                                                  strict=True)))
    return Loops(turned, tuple(x.extents[a] for a in order), loads, stores, x.constants, x.group)


def _moved_access(access: Access, place: Place) -> Access:
    """How a place is accessed after another axis has become the innermost."""
    return access._replace(inner=_inner(place.strides))


def _inner(strides: Sequence[int]) -> int:
    """The value of `Access.inner` for strides: 0, 1, or 2 for all others."""
    return strides[-1] if strides[-1] in (0, 1) else 2


def _columns(x: Loops, where: Refs, plan: Planner) -> None:
    """Sums over outer axes: parts of them, then the sums of the parts."""
    nest = x.nest
    form, units, count = _column_form(x, where)
    if count <= 16:  # too little to divide
        form = replace(form, lanes=form.threads)
    elif units * count <= FEW_PACKS:  # narrow tiles, so that one pass has enough blocks
        form = _narrower(form, units)
    deep = form.threads // form.lanes
    tiles = -(-units // form.lanes)
    wanted = min(-(-8 * PROCESSORS // tiles), count // (deep * form.items * 2))
    if units * count <= FEW_PACKS and count <= 8 * deep * form.items:
        wanted = 1
    if wanted <= 1:
        plan.stage(_launch(x, where, column_kernel(nest, form), form, tiles, units=units))
        return
    form = replace(form, split=True)
    step = -(-count // wanted)
    parts = -(-count // step)
    kept = [*range(nest.outer), *range(nest.outer + nest.reduced, nest.rank)]
    totals = _totals(nest, parts * prod(x.extents[a] for a in kept), plan)
    kernel = column_kernel(nest, form)
    plan.stage(_launch(x, where, kernel, form, tiles * parts, units=units, tiles=tiles,
                       step=step, totals=totals))
    plan.stage(*_sums_of_parts(x, totals, parts, kept, where))


def _column_form(x: Loops, where: Refs) -> tuple[ColumnForm, int, int]:
    """The form of a sum over outer axes, the packs kept, and the number of terms of each."""
    nest = x.nest
    vector = vector_of(x, where)
    sums = sum(isinstance(n, Reduce) for n in nest.nodes)
    vector = min(vector, 4 if sums <= 4 else 2)  # totals use registers and shared memory
    if sums > 8:
        vector = 1
    count = prod(x.extents[nest.outer: nest.outer + nest.reduced])
    units = prod(x.extents) // count // vector
    lanes = min(WARP, 1 << max(0, units - 1).bit_length())
    items = items_of(nest, vector, lambda a: a.varies)
    form = ColumnForm(vector, items, is_wide(x), pattern_of(x), THREADS, lanes)
    return form, units, count


def _sums_of_parts(
    x: Loops, totals: dict[int, Ref], parts: int, axes: Sequence[int], where: Refs
) -> list[Launch]:
    """Sum the totals of the parts of a nest, which are arrays along the axes kept."""
    kept = tuple(x.extents[a] for a in axes)
    made = []
    for (n, access), place in zip(x.nest.stores, x.stores, strict=True):
        node = x.nest.nodes[n]
        if isinstance(node, (Reduce, Total)) and n in totals:
            out = place._replace(strides=tuple(place.strides[a] for a in axes))
            made.append(_sum_of_parts(x, node, totals[n], access.dtype, out, parts, kept, where))
    return made


def _sum_of_parts(
    x: Loops, node: Reduce | Total, ref: Ref, dtype: np.dtype, out: Place, parts: int,
    kept: Sequence[int], where: Refs,
) -> Launch:
    """Sum `parts` arrays of totals."""
    size, own = prod(kept), accumulator(node.dtype)
    dense = all(s == e or n == 1 for s, e, n in
                zip(out.strides, row_major(kept), kept, strict=True))
    shape, strides = ((size,), (1,)) if dense else (tuple(kept), out.strides)
    nest = LoopNest(
        "column", 0, 1, len(shape), (Load(0), Reduce(node.kind, 0, node.dtype)),
        (Access(own, 1, True),), ((1, Access(dtype, _inner(strides), False)),), ())
    source = Place(ref, 0, (size, *row_major(shape)), own)
    target = out._replace(strides=(0, *strides))
    call = Loops(nest, (parts, *shape), [source], [target], [], x.group)
    form, units, _ = _column_form(call, where)
    form = _narrower(form, units)
    return _launch(call, where, column_kernel(nest, form), form, -(-units // form.lanes),
                   units=units)


def _narrower(form: ColumnForm, units: int) -> ColumnForm:
    """A form with narrower tiles, so that there are about 64 of them."""
    while form.lanes > 4 and units < 64 * form.lanes:
        form = replace(form, lanes=form.lanes // 2)
    return form
