"""Scatter: updates combined into the result in the order of their indices.

Each element of the result belongs to one chunk, which applies the updates in order: results do not
depend on how work is divided. Chunks own positions along axes that the indices do not address
(rows of a batch, ranges of columns) or, if these are too few, ranges of the longest addressed axis;
then every chunk reads all indices. 16-bit floats are summed in float32 and rounded once.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.extents import larger
from toile.compiler.ir.geometry import Axes, axes_of, collapse, in_place, room
from toile.compiler.ir.operands import Operand
from toile.kernels.copy.cpu import CHUNK, Reader, clamped, copy, decode, element_type, integer
from toile.kernels.gather.shared import components_of
from toile.kernels.scatter.shared import combined_dtype, window_sizes
from toile.targets.llvm import elements
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.scalars import X86

_BLOCK = 64  # bytes: the least width of a range of columns
_FEW = 1 << 14  # elements of updates below which one chunk does everything
_MANY = 8  # threads, or elements of a window, for which ranges of places pay
_FLOAT32 = np.dtype(np.float32)


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower Scatter, all combinations and modes."""
    (x, indices, updates), (out,) = ins, outs
    dtype = combined_dtype(op, x, indices)
    if dtype is None:
        return False
    if not in_place(x, out):
        copy(out, x, plan)
    if elements.is_short(dtype) and op.combine in ("add", "sub", "mul"):
        total = room(plan, out.shape, _FLOAT32)
        plan.stage(_convert(total, out))
        plan.stage(_launch(op, total, indices, updates, _FLOAT32, dtype, plan.threads))
        plan.stage(_convert(out, total))
    else:
        plan.stage(_launch(op, out, indices, updates, dtype, dtype, plan.threads))
    return True


def _convert(to: Operand, source: Operand) -> Launch:
    text = _convert_text(to.dtype, source.dtype)
    return Launch(text, (to.ref, source.ref), to.size, CHUNK // 4, "convert")


@lru_cache(maxsize=16)
def _convert_text(to: Any, source: Any) -> str:
    """Convert between a 16-bit float and float32."""
    f, body = ir.kernel(), ir.inner("run", "ptr noalias %to, ptr noalias %from, i64 %a, i64 %b")
    with body.loop("%a", "%b", vectorize=True) as i:
        x = elements.load(body, source, body.step("%from", i, source.itemsize))
        elements.store(body, to, x, body.step("%to", i, to.itemsize))
    f.call(body, f.buffer(0), f.buffer(2), "%lo", "%hi")
    return ir.module(body, f)


# ------------------------------------------------------------------------------------- ownership


class _Group(NamedTuple):
    """Some merged axes, with steps in bytes; in a kernel, the names of these numbers."""

    shape: list[Any]
    updates: list[Any]
    out: list[Any]
    indices: list[Any]


def _group(axes: Axes, chosen: list[int]) -> _Group:
    pick = lambda column: [column[i] for i in chosen]
    shape, steps = collapse(pick(axes.shape), *(pick(c) for c in axes[1:4]))
    return _Group(shape, *steps)


def _split(axes: Axes, chosen: list[int], inside: list[bool], tail: list[int]) -> list[_Group]:
    """Split axes into those outside and inside the window; the `tail` of the latter is separate."""
    outside = _group(axes, [i for i in chosen if not inside[i]])
    window = _group(axes, [i for i in chosen if inside[i] and i not in tail])
    joined = (a + b for a, b in zip(window, _group(axes, tail), strict=True))
    return [outside, _Group(*joined)]


class _Key(NamedTuple):
    """What determines the text of a kernel."""

    combine: str
    dtype: Any  # of the result; the updates' may be narrower
    updates: Any
    align: int
    indices: Any
    clips: bool
    components: int
    owned: str  # "units": indices of the parallel axes; "columns"; "range": of component `ranged`
    ranged: int
    parallel: int  # numbers of axes: parallel, sequential, of the window
    sequence: int
    window: int
    row: bool  # the innermost axis of the window is dense
    repeated: bool  # the innermost axis is dense, but has a single update
    plain: bool  # single elements, all arrays dense: steps are constants, not factors


class _Ownership(NamedTuple):
    """What chunks own: `units` of what `owned` names, `grain` of them each."""

    owned: str
    units: int
    grain: int
    ranged: int = 0


def _launch(
    op: Any, out: Operand, indices: Operand, updates: Operand, dtype: Any, update_dtype: Any,
    threads: int,
) -> Launch:  # fmt: skip
    windows, inserted, mapped, batching, index_batching = op.dimension_numbers
    axes = axes_of(windows, inserted, batching, index_batching, updates, out, indices)
    inside = [d in windows for d in range(len(updates.shape))]
    free = _free_axes(axes, out, mapped)
    if out.dtype.kind == "c" and op.combine != "set":  # pairs of floats: one more window axis
        free.append(len(axes.shape))
        axes.append(2, dtype.itemsize, dtype.itemsize, 0, -1, -1)
        inside.append(True)
    size, update_size = dtype.itemsize, update_dtype.itemsize
    kept = _dense_tail(axes, free, inside, size, update_size)
    parallel = [i for i in free if i not in kept]
    units = prod(axes.shape[i] for i in parallel)
    row_bytes = size * prod(axes.shape[i] for i in kept) if kept else 0
    sizes = window_sizes(op, updates.shape, len(out.shape))
    ownership = _ownership(sizes, mapped, out, updates, units, row_bytes, threads)
    if ownership.owned != "units":
        parallel = []
    components = components_of(op, out, indices, sizes)
    # Columns are elements of the dense tail, which is not merged with axes before it.
    tail = kept if ownership.owned == "columns" else []
    rest = [i for i in range(len(axes.shape)) if i not in parallel]
    around, (sequence, window) = _group(axes, parallel), _split(axes, rest, inside, tail)
    plain = [c[1] for c in components] == [size] and sequence[1:] == (
        [update_size], [0], [indices.dtype.itemsize])
    own, given = (dtype, update_dtype) if op.combine != "set" else (None, np.dtype(f"V{size}"))
    key = _Key(
        op.combine, own, given, size, indices.dtype, op.clips, len(components), ownership.owned,
        ownership.ranged, len(around.shape), len(sequence.shape), len(window.shape),
        *_dense_row(window, size, update_size), plain and not window.shape,
    )  # fmt: skip
    args = [out.ref, updates.ref, indices.ref, *chain(*components, *around, *sequence, *window)]
    return Launch(_text(key), tuple(args), ownership.units, ownership.grain, str(op))


def _dense_row(window: _Group, size: int, update_size: int) -> tuple[bool, bool]:
    """Whether the innermost axis of the window is dense, and whether it has a single update."""
    if not window.shape or window.out[-1] != size or window.updates[-1] not in (update_size, 0):
        return False, False
    return True, not window.updates[-1]


def _ownership(
    sizes: list[int], mapped: tuple[int, ...], out: Operand, updates: Operand, units: int,
    row_bytes: int, threads: int,
) -> _Ownership:  # fmt: skip
    """What chunks own if the parallel axes have `units` indices and dense rows `row_bytes`."""
    if threads > 1 and units < 2 * threads and updates.size >= _FEW:
        if row_bytes >= _BLOCK * threads:
            blocks = -(-row_bytes // _BLOCK)
            return _Ownership("columns", blocks, -(-blocks // threads))
        single = [c for c, d in enumerate(mapped) if sizes[d] == 1]
        # Each chunk reads all indices and skips those of other chunks: 5 ns instead of 2 for each.
        pays = threads >= _MANY or prod(sizes) >= _MANY
        if single and units < threads and pays:
            ranged = max(single, key=lambda c: out.shape[mapped[c]])
            places = out.shape[mapped[ranged]]
            return _Ownership("range", places, -(-places // threads), ranged)
    return _Ownership("units", units, larger(1, _FEW * units // larger(1, updates.size)))


def _free_axes(axes: Axes, out: Operand, mapped: tuple[int, ...]) -> list[int]:
    """The axes along which different updates never reach the same element of the result."""
    found = []
    for i, (n, d) in enumerate(zip(axes.shape, axes.windows, strict=True)):
        # a window of the full extent can only start at 0
        window = d >= 0 and (d not in mapped or n == out.shape[d])
        if window or axes.paired[i] >= 0:
            found.append(i)
    return found


def _dense_tail(
    axes: Axes, free: list[int], inside: list[bool], size: int, update_size: int
) -> list[int]:
    """Free window axes that together form one dense run, for the innermost loop."""
    tail = [
        i for i in free if inside[i] and axes.shape[i] > 1
        and axes.operand[i] == size and axes.result[i] in (update_size, 0)
    ][-1:]  # fmt: skip
    if not tail:
        return []
    while True:
        last = tail[0]
        before = [
            i for i in free if i not in tail
            and all(axes[c][i] == axes[c][last] * axes.shape[last] for c in (1, 2))
            and axes.indices[i] == 0 and i < last
        ]  # fmt: skip
        if not before:
            return tail
        tail.insert(0, before[-1])


# ------------------------------------------------------------------------------------------ kernel


@lru_cache(maxsize=512)
def _text(key: _Key) -> str:
    f, row = ir.kernel(), _row(key)
    r = Reader(f)
    out, updates, indices = r.buffer(), r.buffer(), r.buffer()
    components: list[Any] = [tuple(r.many(3)) for _ in range(key.components)]
    parallel, sequence, window = (
        _Group(r.many(n), r.many(n), r.many(n), r.many(n))
        for n in (key.parallel, key.sequence, key.window)
    )
    if key.plain:
        components = [(c, key.align, limit) for c, _, limit in components]
        sequence = _Group(sequence.shape, [key.updates.itemsize], [0], [key.indices.itemsize])
    with ExitStack() as scope:
        if key.owned == "units":
            unit = scope.enter_context(f.loop("%lo", "%hi"))
            u, o, i = decode(f, unit, *parallel)
            updates, out, indices = f.offset(updates, u), f.offset(out, o), f.offset(indices, i)
        elif key.owned == "columns":
            out, updates, window = _columns(f, key, out, updates, window)
        for k in range(key.sequence):
            i = scope.enter_context(f.loop(0, sequence.shape[k]))
            updates = f.step(updates, i, sequence.updates[k])
            out = f.step(out, i, sequence.out[k])
            indices = f.step(indices, i, sequence.indices[k])
        place, legal = _place(f, key, components, indices)
        if legal:
            scope.enter_context(f.when(legal))
        _combine_window(f, key, f.offset(out, place), updates, window, row)
    return ir.module(row, f)


def _columns(
    f: ir.Function, key: _Key, out: str, updates: str, window: _Group
) -> tuple[str, str, _Group]:
    """The innermost axis, restricted to blocks lo..hi."""
    size = key.align
    block = _BLOCK // size
    first, last = f.mul("%lo", block), f.smin(f.mul("%hi", block), window.shape[-1])
    out = f.step(out, first, size)
    if not key.repeated:
        updates = f.step(updates, first, key.updates.itemsize)
    return out, updates, window._replace(shape=[*window.shape[:-1], f.sub(last, first)])


def _place(f: ir.Function, key: _Key, components: list[Any], vector: str) -> tuple[str, str]:
    """The offset in out of an index vector, and whether it counts ("" if it always does)."""
    offset, legal = "0", ""
    for c, (at, step, limit) in enumerate(components):
        x = integer(f, key.indices, f.offset(vector, at))
        if key.clips:
            x = clamped(f, key.indices, x, limit)
        else:
            legal = f.all(legal, f.compare("ule", x, limit))
        if key.owned == "range" and c == key.ranged:
            legal = f.all(legal, f.compare("ult", f.sub(x, "%lo"), f.sub("%hi", "%lo")))
        offset = f.add(offset, f.mul(x, step))
    return offset, legal


def _combine_window(
    f: ir.Function, key: _Key, out: str, updates: str, window: _Group, row: ir.Function
) -> None:
    """Loops around the rows or elements of one window."""
    loops = key.window - key.row
    with ExitStack() as scope:
        for k in range(loops):
            i = scope.enter_context(f.loop(0, window.shape[k]))
            updates = f.step(updates, i, window.updates[k])
            out = f.step(out, i, window.out[k])
        if key.row:
            f.call(row, out, updates, window.shape[-1])
        else:
            _combine(f, key, out, updates)


def _row(key: _Key) -> ir.Function:
    """The function that combines a dense run of the window."""
    f = ir.inner("row", "ptr noalias %out, ptr noalias %updates, i64 %n")
    if key.combine == "set" and not key.repeated:
        f.copy("%out", "%updates", f.mul("%n", key.align))
        return f
    with f.loop(0, "%n", vectorize=True) as i:
        update = "%updates" if key.repeated else f.step("%updates", i, key.updates.itemsize)
        _combine(f, key, f.step("%out", i, key.align), update)
    return f


def _combine(f: ir.Function, key: _Key, out: str, update: str) -> None:
    """Combine one element."""
    if key.combine == "set":
        type, align = element_type(key.align), min(key.align, 8)
        f.store(type, f.load(type, update, align), out, align)
        return
    x, u = elements.load(f, key.dtype, out), elements.load(f, key.updates, update)
    if X86 and key.combine in ("min", "max") and elements.is_float(key.dtype):
        value = _extremum(f, elements.work_type(key.dtype), key.combine, x, u)
    else:
        value = elements.combine(f, key.combine, key.dtype, x, u)
    elements.store(f, key.dtype, value, out)


def _extremum(f: ir.Function, type: str, kind: str, x: str, u: str) -> str:
    """The minimum or maximum, NaN if one is NaN, and of equal zeros the first, as NumPy does it.

    These are three instructions; `llvm.maximum`, which orders zeros, is one on ARM, but seven on
    x86."""
    beyond = f.value(f"fcmp {'ogt' if kind == 'max' else 'olt'} {type} {u}, {x}")
    found = f.value(f"select i1 {beyond}, {type} {u}, {type} {x}")
    return f.value(f"select i1 {f.value(f'fcmp uno {type} {u}, {u}')}, {type} {u}, {type} {found}")
