"""Convolutions by tile registers (AMX), as matrix products of shifted rows.

x is copied with zeros around it, and with a part of its own for each residue of a position by the
stride. In the copy, the windows of adjacent outputs begin at adjacent positions; so for each tap,
the rows of A are those of the copy, some positions further. Outputs are computed for all positions
of the copy, and those that do not exist are not stored.

The gradient of the kernels is a product for each of its few outputs. Its sum runs over all images
and positions of the copy; where the other operand has no element, its copy has zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from toile.compiler.ir.geometry import dense, part
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.contraction import cpu as contractions
from toile.kernels.contraction import cpu_amx as amx
from toile.kernels.contraction import cpu_amx_launches as launches
from toile.kernels.contraction import cpu_axes as contraction_axes
from toile.kernels.contraction.cpu_cuts import rounded
from toile.kernels.contraction.cpu_panels import mask_of
from toile.kernels.contraction.cpu_tiles import FIRST, PACKED, arguments
from toile.kernels.contraction.shared import Axis as ProductAxis
from toile.kernels.convolution.cpu import layouts, pointwise
from toile.kernels.convolution.cpu.arguments import Coordinates
from toile.kernels.convolution.cpu.problem import (
    SPATIAL,
    Axis,
    Problem,
    plain_parts,
    problem_of,
)
from toile.kernels.copy import cpu as copies
from toile.primitives.conv import ConvGeneralDilated
from toile.targets.llvm import elements
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.product_types import element
from toile.targets.llvm.text import Function, inner, typed

LEAST = 1 << 19  # multiplications below which the copies take longer than the products
WASTE = 3  # how many times as many multiplications as needed are made at most
SMALL = 128  # positions of an image below which images are not processed one by one
MOST_TAPS = 400
_NUMBERS = ("pitch0", "pitch1", "pitch2", "outs0", "outs1", "outs2", "y_image", "y0", "y1", "y2",
            "tiles", "taps")  # fmt: skip
_WINDOW = FIRST + len(amx.LAYOUT) + 5  # where they begin, after one outer axis


# ---- the kernel
@cache
def product_text(spec: amx.Kernel) -> str:
    """The kernel of a product of shifted rows.

    After the arguments of a product with one outer axis: _NUMBERS, and for each tap its place."""
    return _Writer(spec, listed=True).text()


class _Writer(amx.ProductWriter):
    """Writes the kernel of a product of shifted rows."""

    def begin(self) -> None:
        """Write the list of the places of all tiles of the sum."""
        f = self.f
        taps, tiles = (f.argument(_WINDOW + _NUMBERS.index(name)) for name in ("taps", "tiles"))
        self.table = f.alloca("i64", f.mul(taps, tiles), 8)
        first = _WINDOW + len(_NUMBERS)
        with f.loop(0, taps) as tap:
            place = f.load("i64", f.at("%args", f.add(tap, first), "i64"), 8)
            into = f.at(self.table, f.mul(tap, tiles), "i64")
            with f.loop(0, tiles) as k:
                f.store("i64", f.add(place, f.mul(k, amx.ROW_BYTES)), f.at(into, k, "i64"), 8)

    def places(self, k: str) -> tuple[str, str]:
        return "0", self.f.at(self.table, k, "i64")

    def store_tile(self, sums: str, c: str, row: str, n: str, extent: tuple[str, str]) -> None:
        f = self.f
        place = f.at(c, f.mul(n, self.size["c_column"]), self.spec.c.llvm)
        f.call(self.store, sums, place, row, f.at("%args", _WINDOW, "i64"), *extent)

    def store_function(self) -> Function:
        """Store the sums of the positions that exist."""
        f = inner("store", "ptr noalias %sums, ptr noalias %y, i64 %first, ptr noalias %numbers, "
                  "i64 %height, i64 %width", amx.PLAIN)
        spec, side = self.spec, amx.SIDE
        n = {name: f.load("i64", f.at("%numbers", i, "i64"), 8)
             for i, name in enumerate(_NUMBERS[:-2])}
        at = Coordinates(f, "%first", [n[f"pitch{d}"] for d in range(3)])
        masks = [mask_of(f, f.sub("%width", j), side) for j in range(0, amx.WIDTH, side)]
        out = typed(spec.c.llvm, side)
        whole = f.compare("eq", "%width", amx.WIDTH)
        with f.loop(0, "%height", vectorize=False) as i:
            image = f.load("i64", at.outer)
            inside, y = "", f.mul(image, n["y_image"])
            for d, slot in enumerate(at.slots):
                index = f.load("i64", slot)
                inside = f.all(inside, f.compare("slt", index, n[f"outs{d}"]))
                y = f.add(y, f.mul(index, n[f"y{d}"]))
            with f.when(inside):
                row, held = f.at("%y", y, spec.c.llvm), f.at(
                    "%sums", f.mul(i, amx.WIDTH), spec.work.llvm)
                values = []
                for j in range(0, amx.WIDTH, side):
                    sums = f.load(typed(spec.work.llvm, side), f.at(held, j, spec.work.llvm), 4)
                    values.append((amx.rounded_sums(f, sums, spec.work, spec.c),
                                   f.at(row, j, spec.c.llvm)))
                with f.when(whole):
                    for value, place in values:
                        f.store(out, value, place, spec.c.size)
                with f.unless(whole):
                    for (value, place), mask in zip(values, masks, strict=True):
                        f.masked_store(spec.c.llvm, value, place, mask, side, spec.c.size)
            f.store("i64", f.add(image, at.advance("1")), at.outer)
        return f


# ---- copies of x
class _Grid(NamedTuple):
    """One axis of the copy of x: how many positions, and which residues by `step` have a part."""

    size: int
    step: int
    residues: tuple[int, ...]

    def place(self, position: int) -> tuple[int, int]:
        """The part with a position of the padded axis, and the position there."""
        index, residue = divmod(position, self.step)
        return self.residues.index(residue), index


def _grid(axis: Axis, step: int, starts: Sequence[int], length: int) -> _Grid:
    """The parts for windows of `length` positions, `step` apart, that begin at `starts`."""
    residues = tuple(sorted({s % step for s in starts}))
    return _Grid(max(s // step for s in starts) + length, step, residues)


def _copy_parts(x: Operand, axes: Sequence[Axis], grids: Sequence[_Grid], held: Operand,
                place: Operand, plan: Planner) -> None:
    """Copy the elements of x, [n, c, 0, 1, 2], to the parts of `held`, which come first in it, and
    zeros to all other places. `place`: the first part, with its dimensions in the order of x."""
    copies.fill(held, 0, plan)
    for at in product(*(range(len(g.residues)) for g in grids)):
        starts, source, sizes, steps = [0, 0], [0, 0], list(x.shape[:2]), [1, 1]
        for axis, grid, number in zip(axes, grids, at, strict=True):
            residue = grid.residues[number]
            first = max(0, -((residue - axis.low) // grid.step))  # of an element that exists
            last = min(grid.size, (axis.size - 1 + axis.low - residue) // grid.step + 1)
            starts.append(first)
            source.append(first * grid.step + residue - axis.low)
            sizes.append(last - first)
            steps.append(grid.step)
        if min(sizes) > 0:
            taken = part(x, source, sizes)
            strides = tuple(s * step for s, step in zip(x.strides, steps, strict=True))
            offset = sum(i * s for i, s in zip(at, held.strides[:3], strict=True))
            into = part(place._replace(ref=held.ref.at(offset * x.dtype.itemsize)), starts, sizes)
            copies.copy(into, taken._replace(strides=strides), plan)


def _shifted(x: Operand, axes: Sequence[Axis], grids: Sequence[_Grid], wide: int, plan: Planner
             ) -> Operand:
    """A copy of x as [parts 0, 1, 2, images, positions 0, 1, 2, `wide` channels]."""
    parts, sizes = [len(g.residues) for g in grids], [g.size for g in grids]
    shape = (*parts, x.shape[0], *sizes, wide)
    slack = 2 * amx.WIDTH * wide  # rows of the last tile that belong to no position
    held = dense(plan.scratch((prod(shape) + slack) * x.dtype.itemsize), shape, x.dtype)
    image, s0, s1, s2, _ = held.strides[3:]
    place = Operand(held.ref, (x.shape[0], x.shape[1], *sizes), (image, 1, s0, s1, s2), x.dtype)
    _copy_parts(x, axes, grids, held, place, plan)
    return held


def _rows_of(w: Operand, shape: tuple[int, int], plan: Planner) -> Operand:
    """A copy of w [taps.., c, o] as [taps.., wide c, o] with zeros, unless it is so already."""
    wide, last = shape
    if w.contiguous and w.shape[-2] == wide:
        return w
    target = dense(plan.scratch(prod(w.shape[:-2]) * wide * last * w.dtype.itemsize),
                   (*w.shape[:-2], wide, last), w.dtype)
    if w.shape[-2] != wide:
        copies.fill(target, 0, plan)
    copies.copy(target._replace(shape=w.shape), w, plan)
    return target


# ---- lowering
def lower(op: ConvGeneralDilated, types: tuple[Operand, Operand, Operand], plan: Planner) -> bool:
    """Add the stages of a convolution; False if other kernels should compute it."""
    spec = _spec_of(types)
    if spec is None:
        return False
    p = problem_of(op, *types, "bfloat" if spec.a.size == 2 else "i8")
    if p.groups > 1 or p.y_feature != 1 or p.flops < 2 * LEAST:
        return False
    found = pointwise.matrices(p)
    if found is not None:
        dot, ins, out = found
        ins = [a._replace(dtype=b.dtype) for a, b in zip(ins, types, strict=False)]
        return contractions.lower(dot, ins, [out._replace(dtype=types[2].dtype)], plan)
    if p.taps > p.positions:
        return _gradient(p, types, spec, plan)
    return _forward(p, types, spec, plan)


def _spec_of(types: tuple[Operand, Operand, Operand]) -> amx.Kernel | None:
    """The kernel's types; None if this machine does not multiply tiles of them."""
    if not all(elements.supported(x.dtype) and x.size for x in types):
        return None
    a, b, c = (element(x.dtype) for x in types)
    if len(types[0].shape) - 2 > SPATIAL or not amx.supports(a, b, c):
        return None
    assert a and b and c
    return amx.Kernel(a, b, c)


def _stored(p: Problem, which: str, order: str, like: Operand) -> Operand:
    return layouts.view(p, which, order)._replace(dtype=like.dtype)


def _forward(p: Problem, types: tuple[Operand, Operand, Operand], spec: amx.Kernel, plan: Planner
             ) -> bool:
    """Add the stages of a convolution, which is several ones if x is dilated."""
    _, w, y = types
    found = [replace(p, axes=axes, y=p.y.at(at_y * y.dtype.itemsize),
                     w=p.w.at(at_w * w.dtype.itemsize))
             for axes, at_y, at_w in plain_parts(p.axes)]
    if not all(q.taps and q.taps <= MOST_TAPS and q.positions and _pays(q, spec) for q in found):
        return False
    for q in found:
        _windows(q, types, spec, plan)
    return True


def _pays(p: Problem, spec: amx.Kernel) -> bool:
    """Whether few of the products are those of zeros and of positions that do not exist."""
    words = amx.SIDE * spec.terms
    merged = _merges(p)
    taps = prod(a.taps for a in (p.axes[:2] if merged else p.axes))
    sums = taps * rounded(p.channels * (p.axes[2].taps if merged else 1), words)
    rows = prod(a.outs + -(-(a.taps - 1) * a.dilation // a.stride) for a in p.axes)
    wasted = sums * rows * rounded(p.features, amx.SIDE)
    return wasted <= WASTE * p.taps * p.channels * p.positions * p.features


def _merges(p: Problem) -> bool:
    """Whether channels are so few that those of adjacent taps become one row."""
    axis = p.axes[2]
    return p.channels <= layouts.FEW and axis.taps > 1 and axis.dilation == 1


def _windows(p: Problem, types: tuple[Operand, Operand, Operand], spec: amx.Kernel, plan: Planner
             ) -> None:
    """Add the stages of a convolution without dilated operands."""
    x, w = _stored(p, "x", "nc012", types[0]), _stored(p, "w", "012co", types[1])
    axes = p.axes
    if _merges(p):
        x, w, axes = _merged(x, w, axes, plan)
    channels, words = x.shape[1], amx.SIDE * spec.terms
    wide = rounded(channels, words)
    grids = [_grid(a, a.stride, [t * a.dilation for t in range(a.taps)], a.outs) for a in axes]
    pitches = [g.size for g in grids]
    single = p.positions >= SMALL
    last = 0
    for a, pitch in zip(axes, pitches, strict=True):
        last = last * pitch + a.outs - 1
    held = _shifted(x, axes, grids, wide, plan)
    places = []
    for taps in product(*(range(a.taps) for a in axes)):
        at = [g.place(t * a.dilation) for t, a, g in zip(taps, axes, grids, strict=True)]
        places.append(sum(i * s for i, s in zip(
            [number for number, _ in at] + [index for _, index in at],
            [*held.strides[:3], *held.strides[4:7]], strict=True)) * spec.a.size)
    b = _rows_of(w, (wide, p.features), plan)
    k, n = len(places) * wide, p.features
    panel = spec.panel
    blocks = k // words
    packed = plan.scratch(-(-n // panel.width) * blocks * amx.SIDE * panel.width * amx.WORD.size)
    plan.stage(Launch(amx.pack_b_kernel(panel), (b.ref, packed, k, n, n, 1), blocks,
                      max(1, blocks // (4 * plan.threads)), "pack kernels"))
    image = prod(pitches)
    rows = last + 1 if single else (p.images - 1) * image + last + 1
    outer = ProductAxis(p.images, image * wide, 0, p.y_image) if single else ProductAxis(1, 0, 0, 0)
    row_step, column_step, grain = launches.steps(rows, n, k, outer.extent, plan.threads)
    row_blocks, column_blocks = -(-rows // row_step), -(-n // column_step)
    sizes = arguments(
        amx.LAYOUT, m=rows, n=n, k=k, blocks=blocks, a_row=wide, a_step=wide, a_block=words,
        last_row=1 << 60, b_sum=n, b_column=1, c_row=0, c_column=1, row_step=row_step,
        column_step=column_step, row_blocks=row_blocks, column_blocks=column_blocks, b_mode=PACKED)
    numbers = arguments(
        _NUMBERS, pitch0=pitches[0], pitch1=pitches[1], pitch2=pitches[2], outs0=axes[0].outs,
        outs1=axes[1].outs, outs2=axes[2].outs, y_image=p.y_image, y0=axes[0].y, y1=axes[1].y,
        y2=axes[2].y, tiles=wide // words, taps=len(places))
    args: Args = (held.ref, packed, p.y, *sizes, 1, *outer, *numbers, *places)
    plan.stage(Launch(product_text(spec), args, outer.extent * row_blocks * column_blocks, grain,
                      "convolution", apart="it computes positions that do not exist"))


def _merged(x: Operand, w: Operand, axes: tuple[Axis, ...], plan: Planner
            ) -> tuple[Operand, Operand, tuple[Axis, ...]]:
    """x with the channels of all taps of the last axis, and w to match."""
    axis, channels = axes[2], x.shape[1]
    width = (axis.outs - 1) * axis.stride + axis.taps
    grids = [_Grid(a.size, 1, (0,)) for a in axes[:2]] + [_Grid(width, 1, (0,))]
    still = [replace(a, low=0) for a in axes[:2]] + [axis]
    held = _shifted(x, still, grids, channels, plan)
    n, s0, s1, s2 = held.strides[3:7]
    together = axis.taps * channels
    x = Operand(held.ref, (x.shape[0], together, axes[0].size, axes[1].size, axis.outs),
                (n, 1, s0, s1, s2 * axis.stride), x.dtype)
    w = plan.contiguous(w)
    t0, t1, _, _, o = w.shape
    w = w._replace(shape=(t0, t1, together, o), strides=(t1 * together * o, together * o, o, 1))
    last = replace(axis, size=axis.outs, taps=1, stride=1, low=0)
    return x, w, (*axes[:2], last)


def _gradient(p: Problem, types: tuple[Operand, Operand, Operand], spec: amx.Kernel, plan: Planner
              ) -> bool:
    """Add the stages of the gradient of kernels: few outputs, which are sums over many taps."""
    if any(a.base > 1 for a in p.axes):
        return False
    words = amx.SIDE * spec.terms
    grids = [_grid(a, a.dilation, [q * a.stride for q in range(a.outs)], a.taps) for a in p.axes]
    image = prod(g.size for g in grids)
    terms = rounded(p.channels * image, words)
    sums = rounded(p.images, amx.SIDE) * rounded(p.features, amx.SIDE) * terms
    wasteful = sums > WASTE * p.images * p.features * p.channels * p.taps
    if wasteful or not launches.pays(p.images, p.features, terms, spec.terms):
        return False
    x, w = _stored(p, "x", "nc012", types[0]), _stored(p, "w", "c012o", types[1])
    _gradient_products(p, (x, w, types[2]), grids, (image, terms), plan)
    return True


def _gradient_products(
    p: Problem, operands: tuple[Operand, Operand, Operand], grids: Sequence[_Grid],
    sizes: tuple[int, int], plan: Planner,
) -> None:  # fmt: skip
    """Add the copies and the products, one for each combination of residues."""
    (x, w, like), (image, terms) = operands, sizes
    row = terms + image  # some outputs begin later in it
    shape = (*(len(g.residues) for g in grids), p.images, row)
    held = dense(plan.scratch(prod(shape) * x.dtype.itemsize), shape, x.dtype)
    pitches = (grids[1].size * grids[2].size, grids[2].size, 1)
    place = Operand(held.ref, (p.images, p.channels, *(g.size for g in grids)),
                    (row, image, *pitches), x.dtype)
    _copy_parts(x, p.axes, grids, held, place, plan)
    other = dense(plan.scratch(terms * p.features * w.dtype.itemsize), (terms, p.features), w.dtype)
    copies.fill(other, 0, plan)
    strides = (*(s * p.features for s in (image, *pitches)), 1)
    copies.copy(other._replace(shape=w.shape, strides=strides), w, plan)
    types = contraction_axes.element_types(x.dtype, w.dtype, like.dtype)
    assert types is not None
    for at in product(*(range(len(g.residues)) for g in grids)):
        axes, start, target = [], 0, 0
        for axis, grid, pitch, number in zip(p.axes, grids, pitches, at, strict=True):
            chosen = [q for q in range(axis.outs)
                      if q * axis.stride % grid.step == grid.residues[number]]
            step = grid.step // gcd(axis.stride, grid.step)
            start += chosen[0] * axis.stride // grid.step * pitch
            target += chosen[0] * axis.y
            axes.append(ProductAxis(len(chosen), step * axis.stride // grid.step * pitch, 0,
                                    step * axis.y))
        first = sum(i * s for i, s in zip(at, held.strides[:3], strict=True))
        problem = contraction_axes.Problem(
            held.ref.at((first + start) * x.dtype.itemsize), other.ref,
            p.y.at(target * like.dtype.itemsize),
            tuple(a for a in axes if a.extent > 1), (ProductAxis(p.images, row, 0, p.y_image),),
            (ProductAxis(p.features, 0, 1, 1),), (ProductAxis(terms, 1, p.features, 0),),
            types)
        assert launches.lower(problem, plan)
