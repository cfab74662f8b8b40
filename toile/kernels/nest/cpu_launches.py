"""How loop nests become launches on the CPU, divided into chunks.

Rows and elements are divided by their cost; long sums and sums over outer axes are computed in
parts that depend on extents only, and the parts are added in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from toile.compiler.ir.geometry import is_plain, room
from toile.compiler.ir.loop_nests import (
    Access,
    Apply,
    Index,
    Load,
    LoopNest,
    Loops,
    Node,
    Place,
    Reduce,
    Total,
)
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.views import row_major
from toile.compiler.scalar.builder import FLOAT32, FLOAT64
from toile.compiler.scalar.totals import accumulator
from toile.kernels.nest.cpu import text
from toile.kernels.nest.cpu_bodies import length_class
from toile.kernels.nest.cpu_short_rows import unrolled
from toile.kernels.nest.shared import address, constant_words, sum_of_row_parts
from toile.primitives.elementwise import ConvertElementType
from toile.targets.llvm import spans
from toile.targets.llvm.chunk_sizes import (
    cost,
    grain_of_map,
    grain_of_rows,
    rows_with_totals,
    split_columns,
    split_row,
)
from toile.targets.llvm.launches import Launch, Rows, Span

_SHORT = 16  # elements of a row that is worth joining with the next
_ENOUGH = 1024  # the fewest elements of an operand that is worth copying
_WORTH_ORDERING = 1 << 15  # the fewest elements of a map
_LINE, _CACHED = 64, 1 << 14  # bytes of a cache line, and bytes that every first cache holds


def plan_nest(x: Loops, plan: Any) -> None:
    """Stage the launches of a loop nest."""
    x = _with_dense_loads(_in_order(_with_longer_rows(unrolled(x, plan), plan)), plan)
    x, copies = _with_dense_stores(x, plan)
    _stage(x, plan)
    for target, made in copies:
        plan.begin({target.ref.buffer})
        plan.copy(target, made)


def _stage(x: Loops, plan: Any) -> None:
    """Stage the launches that compute a nest as it is."""
    nest = x.nest
    if nest.kind == "partial":
        _parts(x, plan)
    elif nest.kind == "column":
        _columns(x, plan)
    elif any(isinstance(nest.nodes[n], Total) for n, _ in nest.stores):
        _rows_with_totals(x, plan)
    else:
        n = nest.outer if nest.kind == "row" else max(nest.rank - 1, 0)
        units = prod(x.extents[:n]) if n or nest.kind == "row" else x.extents[0]
        per_unit = 1 if nest.kind == "map" and nest.rank == 1 else prod(x.extents[n:])
        grain = grain_of_map(nest) if per_unit == 1 else grain_of_rows(nest, per_unit)
        across = 1 if nest.kind == "map" and nest.rank == 1 else n
        plan.stage(_launch(plan, x, [], units, grain, going=(across,)))


def _in_order(x: Loops) -> Loops:
    """The map with its outer axes in the order that touches the fewest cache lines, if these are at
    most half as many as in the given order, which is that of the result."""
    nest, rank = x.nest, len(x.extents)
    if nest.kind != "map" or not 3 <= rank <= 5 or prod(x.extents) < _WORTH_ORDERING or any(
            isinstance(node, Index) for node in nest.nodes) or any(a.picked for a in nest.loads):
        return x
    orders = [(*order, rank - 1) for order in permutations(range(rank - 1))]
    best = min(orders, key=partial(_lines, x))
    if 2 * _lines(x, best) > _lines(x, orders[0]):
        return x
    loads, stores = ([p._replace(strides=tuple(p.strides[i] for i in best)) for p in places]
                     for places in (x.loads, x.stores))
    return replace(x, extents=tuple(x.extents[i] for i in best), loads=loads, stores=stores)


def _lines(x: Loops, order: Sequence[int]) -> int:
    """About how many cache lines the loops of a map read and write, with its axes in this order:
    lines that the inner loops touch are read once if all of them fit into the cache."""
    places = [*x.loads, *x.stores]
    distinct, moved = [1] * len(places), [1] * len(places)
    for axis in reversed(order):
        n, held = x.extents[axis], _LINE * sum(distinct) <= _CACHED
        for i, p in enumerate(places):
            step = abs(p.strides[axis]) * p.dtype.itemsize
            more = n if step >= _LINE else max(1, n * step // _LINE)
            distinct[i], moved[i] = distinct[i] * more, (distinct[i] * more if held
                                                         else moved[i] * n)
    return sum(moved)


def _with_longer_rows(x: Loops, plan: Any) -> Loops:
    """Merge a short innermost axis with the next one, if copies of small operands make that
    possible. For example, a mean of each group of four channels is repeated for all four."""
    nest, extents = x.nest, x.extents
    apart = _repeated(x)
    if not apart or any(isinstance(node, Index) for node in nest.nodes):
        return x
    accesses, places = list(nest.loads), list(x.loads)
    for i, shape in apart.items():
        p, access = places[i], accesses[i]
        made = room(plan, shape, p.dtype)
        plan.copy(made, Operand(address(p, plan), shape, p.strides, p.dtype))
        strides = tuple(d if m > 1 else 0 for d, m in zip(made.strides, shape, strict=True))
        places[i] = Place(made.ref, 0, strides, p.dtype)
        accesses[i] = access._replace(inner=1, varies=access.varies or nest.kind == "map")
    loads, stores = ([p._replace(strides=(*p.strides[:-2], p.strides[-1])) for p in found]
                     for found in (places, x.stores))
    nest = replace(nest, loads=tuple(accesses), outer=nest.outer - (nest.kind == "map"),
                   inner=nest.inner - (nest.kind == "column"))
    return replace(x, nest=nest, loads=loads, stores=stores,
                   extents=(*extents[:-2], extents[-2] * extents[-1]))


def _repeated(x: Loops) -> dict[int, tuple[int, ...]]:
    """The operands that keep the last two axes from being one, and the shapes of their copies;
    none if one of them cannot be copied, or if copies would be large."""
    nest, n, found = x.nest, x.extents[-1], {}
    if {"map": nest.outer, "column": nest.inner}.get(nest.kind, 0) < 2 or n >= _SHORT:
        return {}
    for i, p in enumerate((*x.loads, *x.stores)):
        if p.strides[-2:] != (n * p.strides[-1], p.strides[-1]):
            found[i] = (*(m if s else 1 for m, s in zip(x.extents[:-2], p.strides[:-2],
                                                        strict=True)), *x.extents[-2:])
            if i >= len(x.loads) or nest.loads[i].picked or not is_plain(p.dtype) or (
                    4 * prod(found[i]) > prod(x.extents)):
                return {}
    return found


def _with_dense_loads(x: Loops, plan: Any) -> Loops:
    """Replace operands that are not dense along the innermost axis by copies that are, if the nest
    computes costly functions: code that loads numbers one by one is not vectorized."""
    nest = x.nest
    if not _needs_vectors(x):
        return x
    accesses, places = list(nest.loads), list(x.loads)
    for i, (access, p) in enumerate(zip(nest.loads, x.loads, strict=True)):
        shape = [n if s else 1 for n, s in zip(x.extents, p.strides, strict=True)]
        if access.inner != 2 or access.picked or prod(shape) < _ENOUGH or not is_plain(p.dtype):
            continue
        made = room(plan, shape, p.dtype)
        plan.copy(made, Operand(address(p, plan), tuple(shape), p.strides, p.dtype))
        strides = tuple(d if s else 0 for d, s in zip(made.strides, p.strides, strict=True))
        places[i] = Place(made.ref, 0, strides, p.dtype)
        accesses[i] = access._replace(inner=1)
    if accesses == list(nest.loads):
        return x
    return replace(x, nest=replace(nest, loads=tuple(accesses)), loads=places)


def _with_dense_stores(x: Loops, plan: Any) -> tuple[Loops, list[tuple[Operand, Operand]]]:
    """The same for results, which are then copied: returns each result and where it is computed."""
    if not _needs_vectors(x):
        return x, []
    stores, places, copies = list(x.nest.stores), list(x.stores), []
    for i, ((n, access), p) in enumerate(zip(x.nest.stores, x.stores, strict=True)):
        by_element = isinstance(x.nest.nodes[n], Apply) and is_plain(p.dtype) and all(
            s for s, m in zip(p.strides, x.extents, strict=True) if m > 1)
        if access.inner != 2 or not by_element or prod(x.extents) < _ENOUGH:
            continue  # (sums have the strides of rows)
        made = room(plan, x.extents, p.dtype)
        copies.append((Operand(address(p, plan), x.extents, p.strides, p.dtype), made))
        stores[i] = n, access._replace(inner=1)
        places[i] = Place(made.ref, 0, made.strides, p.dtype)
    return replace(x, nest=replace(x.nest, stores=tuple(stores)), stores=places), copies


def _needs_vectors(x: Loops) -> bool:
    """Whether a nest computes costly functions along an axis that is long enough for vectors."""
    costly = any(isinstance(node, Apply) and node.op.costly for node in x.nest.nodes)
    return costly and x.extents[-1] >= 8


def _launch(
    plan: Any, x: Loops, extra: list[int], units: int, grain: int, totals: Sequence[Ref] = (),
    going: tuple[Any, ...] | None = None,
) -> Launch:
    """A launch of a loop nest; `going`: its division by rows, see `rows_of`."""
    args: list[int | Ref] = [*x.extents, *extra]
    places = [*x.loads, *x.stores]
    refs = [address(p, plan) for p in places]
    for p, ref in zip(places, refs, strict=True):
        args.append(ref)
        size = p.dtype.itemsize
        args += [s * size for s in p.strides]
    args += totals
    for c in x.constants:
        args += constant_words(c)
    reads = frozenset([ref.buffer for ref in refs[: len(x.loads)]])
    work = prod(x.extents) * cost(x.nest) + 100
    rows = None if going is None else partial(rows_of, x, refs, *going)
    code = text(x.nest, length_class(x.nest, x.extents[-1]))
    return Launch(code, tuple(args), units, grain, x.nest.kind, reads, work,
                  rows=rows)


def _parts(x: Loops, plan: Any) -> None:
    """Long sums: each part of a row separately, then the sums of the parts."""
    nest = x.nest
    outer = nest.outer
    rows = prod(x.extents[:outer])
    parts, step = split_row(x.extents[outer:])
    sums, stores, places = [], [], []
    for (n, access), place in zip(nest.stores, x.stores, strict=True):
        node = nest.nodes[n]
        if not isinstance(node, Reduce):
            stores.append((n, access))
            places.append(place)
            continue
        dtype = accumulator(node.dtype)
        ref = plan.scratch(rows * parts * dtype.itemsize)
        stores.append((n, Access(dtype, 0, False)))
        places.append(Place(ref, 0, (0,) * nest.rank, dtype))
        sums.append((node, ref, place))
    nest = replace(nest, stores=tuple(stores))
    part = replace(x, nest=nest, stores=places)
    plan.stage(_launch(plan, part, [parts, step], rows * parts, 1))
    for node, ref, place in sums:
        call = sum_of_row_parts(node, ref, place, parts, x.extents[:outer], x.group)
        plan.stage(_launch(plan, call, [], rows, grain_of_rows(call.nest, parts)))


def _rows_with_totals(x: Loops, plan: Any) -> None:
    """Rows, and sums over them: one sum for each chunk of rows, then the sums of these."""
    nest, outer = x.nest, x.nest.outer
    rows, inner = prod(x.extents[:outer]), x.extents[outer:]
    step = rows_with_totals(nest, rows, prod(inner), plan.threads)
    parts = -(-rows // step)
    sums, stores, places = [], [], []
    for (n, access), place in zip(nest.stores, x.stores, strict=True):
        node = nest.nodes[n]
        if isinstance(node, Total):
            dtype = accumulator(node.dtype)
            ref = plan.scratch(parts * prod(inner) * dtype.itemsize)
            sums.append((Reduce(node.kind, 0, node.dtype), ref, place))
            access = Access(dtype, 1, True)
            place = Place(ref, 0, ((0,) * outer + row_major(inner)), dtype)
        stores.append((n, access))
        places.append(place)
    whole = replace(x, nest=replace(nest, stores=tuple(stores)), stores=places)
    going = (outer, step, [ref.buffer for _, ref, _ in sums])
    plan.stage(_launch(plan, whole, [step], parts, 1, going=going))
    for node, ref, place in sums:
        out = place._replace(strides=place.strides[outer:])
        _sum_parts(plan, x, node, ref, out, parts, inner)


def _columns(x: Loops, plan: Any) -> None:
    """Sums over outer axes: parts of rows, blocks of columns, then the sums of the parts."""
    nest = x.nest
    outer, reduced = nest.outer, nest.reduced
    kept = (*x.extents[:outer], *x.extents[outer + reduced:])
    rows, columns = prod(kept[:outer]), prod(kept[outer:])
    parts, step, blocks, width = split_columns(
        rows, x.extents[outer: outer + reduced], x.extents[outer + reduced:])
    totals, later = [], []
    for n, node in enumerate(nest.nodes):
        if not isinstance(node, Reduce):
            continue
        places = [p for (m, _), p in zip(nest.stores, x.stores, strict=True) if m == n]
        dtype = accumulator(node.dtype)
        direct = parts == 1 and places and places[0].dtype == dtype and _fills(
            places[0], kept, outer, reduced)
        if direct:
            totals.append(plan.ref(places[0].base))
            # A larger batch would need this text: compiled now, it need not be compiled then.
            plan.also.add(text(_parts_nest(node, len(kept), dtype)))
            places = places[1:]
        else:
            totals.append(plan.scratch(parts * rows * columns * dtype.itemsize))
        later += [(node, totals[-1], p) for p in places]
    units = rows * parts * blocks
    going = None
    if rows * blocks == 1 and parts > 1:  # each unit sums some rows
        going = (outer + 1, step, [ref.buffer for ref in totals])
    plan.stage(_launch(plan, x, [parts, step, blocks, width], units, 1, totals, going))
    for node, ref, place in later:
        out = (*place.strides[:outer], *place.strides[outer + reduced:])
        _sum_parts(plan, x, node, ref, place._replace(strides=out), parts, kept)


def _sum_parts(
    plan: Any, x: Loops, node: Reduce, ref: Ref, out: Place, parts: int, kept: Sequence[int]
) -> None:
    """Sum `parts` arrays of totals: a short strided row for each element."""
    dtype = accumulator(node.dtype)
    nest = _parts_nest(node, len(kept), out.dtype)
    strides = (*row_major(kept), prod(kept))
    source = Place(ref, 0, strides, dtype)
    target = out._replace(strides=(*out.strides, 0))
    call = Loops(nest, (*kept, parts), [source], [target], [], x.group)
    plan.stage(_launch(plan, call, [], prod(kept), grain_of_rows(nest, parts)))


def rows_of(
    x: Loops, refs: Sequence[Ref], outer: int, count: int = 1, totals: Sequence[Any] = ()
) -> Rows:
    """Which bytes of the operands and of `totals` belong to each `count` outer indices.

    `refs`: the addresses of the operands in memory."""
    rows = -(-prod(x.extents[:outer]) // count)
    found: list[tuple[Any, Span | None]] = [
        (room, Span(0, room.nbytes // rows, room.nbytes // rows)) for room in totals]
    picked = [a.picked for a in x.nest.loads] + [False] * len(x.stores)
    for p, ref, anywhere in zip((*x.loads, *x.stores), refs, picked, strict=True):
        if ref.buffer in totals:
            continue
        if anywhere:
            found.append((ref.buffer, None))
            continue
        size = p.dtype.itemsize
        axes = [(n, s * size) for n, s in zip(x.extents, p.strides, strict=True)]
        here = spans.span(ref.offset, size, axes[:outer], axes[outer:])
        found.append((ref.buffer, spans.several(here, count)))
    return Rows(spans.together(found), frozenset([r.buffer for r in refs[len(x.loads):]]))


def _parts_nest(node: Reduce, rank: int, dtype: np.dtype) -> LoopNest:
    """The nest that sums a short strided row for each element of an array of totals.

    Sums of float32 are accumulated in float64 here: the largest numbers are added in the last few
    steps, where rounding errors would be largest."""
    kept = accumulator(node.dtype)
    nodes: tuple[Node, ...] = (Load(0), Reduce(node.kind, 0, node.dtype))
    if node.kind == "reduce_sum" and kept == FLOAT32:
        nodes = (
            Load(0), Apply(ConvertElementType(FLOAT64), (0,), FLOAT64),
            Reduce(node.kind, 1, FLOAT64), Apply(ConvertElementType(FLOAT32), (2,), FLOAT32),
        )
    store = (len(nodes) - 1, Access(dtype, 0, False))
    return LoopNest("row", rank, 1, 0, nodes, (Access(kept, 2, True),), (store,), ())


def _fills(place: Place, kept: Sequence[int], outer: int, reduced: int) -> bool:
    """Whether a store is a row-major array over the axes that are kept."""
    strides = (*place.strides[:outer], *place.strides[outer + reduced:])
    expected = row_major(kept)
    return place.offset == 0 and all(
        s == e or n == 1 for s, e, n in zip(strides, expected, kept, strict=True))
