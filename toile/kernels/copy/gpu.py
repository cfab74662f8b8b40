"""Copies between strided arrays.

A copy is arranged once, when it is planned: axes are ordered by the strides of the destination and
merged where both sides allow; dense inner runs move in units of up to 16 bytes. If the two sides
disagree on which axis is dense, tiles go through shared memory. Positions that are known only at
run time are read, clamped and added by the kernel.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import Arranged, Dynamic, arranged, bits_of, collapse
from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.copy.shared import Moves, tiles_of, turned
from toile.targets.cuda.launches import THREADS, Launch, blocks_of
from toile.targets.cuda.text import MOST, Words, clamped, decode, divisors, integer, kernel_text
from toile.targets.cuda.units import UNITS, aligned, unit_type, widest

EACH = 4  # units that a thread moves
_LEAST = 8  # elements on either side of a tile that is worth transposing


def copy_launch(
    dst: Operand, src: Operand, moving: str = "", dynamic: Dynamic | None = None, note: str = "copy"
) -> Launch:
    """dst[...] = src[...], equal in shape; the `moving` side ("to", "source") starts at
    `dynamic`."""
    a = arranged(dst, src)
    window: list[int | Ref] = []
    starts, dtype, steps = 0, None, tuple[int, ...]()
    if dynamic is not None:
        starts, dtype = len(dynamic.starts), dynamic.dtype
        steps = tuple(s * a.size for s in dynamic.strides)
        window = dynamic.words(a.size)
    head = lambda a: [dst.ref.at(a.to_offset), src.ref.at(a.source_offset), *window]
    key = (moving, starts, dtype)
    nbytes = (dst.size + min(src.size, _distinct(src))) * a.size
    tiles = tiles_of(turned(a), _LEAST, _tile(a.size))
    if tiles is not None:
        args = (*head(turned(a)), *tiles.sizes, *tiles.steps, *divisors(tiles.counts),
                *divisors(tiles.shape), *tiles.to, *tiles.source)
        text = _tiles_text(a.size, len(tiles.shape), *key)
        return Launch(text, args, tiles.number, THREADS, 0, note, nbytes=nbytes)
    return _units(a, head(a), key, steps, note, nbytes)


def _distinct(x: Operand) -> int:
    """How many distinct elements a view reads."""
    return prod(n for n, s in zip(x.shape, x.strides, strict=True) if s)


def _moved(r: Words, moving: str, starts: int, dtype: Any) -> str:
    """Statements that move a pointer to a window whose starts are read at run time."""
    lines = []
    for _ in range(starts):
        at, limit, step = r.pointer("const char"), r.one(), r.one()
        lines.append(
            f"  {{ Word s = {integer(dtype, at)}; {moving} += {clamped(dtype, 's', limit)} * "
            f"{step}; }}\n"
        )
    return "".join(lines)


# ------------------------------------------------------------------------------------------- units


def _units(
    a: Arranged, head: list[Any], moved: tuple[Any, ...], starts: tuple[int, ...], note: str,
    nbytes: int,
) -> Launch:  # fmt: skip
    shape, to, source, unit = list(a.shape), list(a.to), list(a.source), a.size
    spread = bool(shape) and to[-1] == a.size and source[-1] == 0
    if shape and to[-1] == a.size and (spread or source[-1] == a.size):
        run = shape[-1] * a.size
        fixed = () if spread else source[:-1]
        unit = widest(a.size, run, *to[:-1], *fixed, *starts)
        shape[-1] = run // unit
        to[-1], source[-1] = unit, 0 if spread else unit
        shape, (to, source) = collapse(shape, to, source)
    total = prod(shape)
    wide = total > MOST
    text = _units_text(unit, a.size, len(shape), spread and unit > a.size, wide, *moved)
    args = (*head, total, *divisors(shape, wide), *to, *source)
    return Launch.over(total, text, args, note, THREADS * EACH, nbytes)


@lru_cache(maxsize=512)
def _units_text(
    unit: int, piece: int, rank: int, spread: bool, wide: bool, moving: str, starts: int, dtype: Any
) -> str:
    """Each thread moves a few units; `spread`: one element of the source fills a unit."""
    r = Words()
    to, source = r.pointer(), r.pointer("const char")
    moved = _moved(r, moving, starts, dtype)
    total, extents = r.one(), r.many(rank)
    steps = [("a", r.many(rank)), ("b", r.many(rank))]
    take, tested, head = "take(source + b, fits)", ["to", "source"], unit_type(unit, piece)
    if spread:
        take, tested = "filled(*(const Piece*)(source + b))", ["to"]
        filled = "".join(f"  h.p[{k}] = x;\n" for k in range(unit // piece))
        head += f"__device__ inline Unit filled(Piece x) {{\n  Held h;\n{filled}  return h.u;\n}}\n"
    start = f"  char* to = {to};\n  const char* source = {source};\n{moved}"
    find = f"Word a = 0, b = 0;\n    {decode('i', extents, steps)}"
    body = moves_text(start, aligned(unit, *tested), total, find, take)
    return kernel_text(f"{body} {{\n    {PUT}\n  }}\n", head, wide)


PUT = f"if (first + k * {THREADS} < total) put(to + place[k], held[k], fits);"


def moves_text(start: str, fits: str, total: str, find: str, take: str) -> str:
    """A block's moves of units, up to the loop over PUT: all units are read before one is written.

    fits: whether memory is aligned to units; find: adds offsets in the target to `a`, and what
    `take` needs."""
    return f"""\
{start}  const bool fits = {fits};
  const Index total = (Index){total};
  const Index first = (Index)block * {THREADS * EACH} + threadIdx.x;
  Unit held[{EACH}];
  Word place[{EACH}];
#pragma unroll
  for (int k = 0; k < {EACH}; ++k) {{
    Index i = first + k * {THREADS};
    if (i >= total) continue;
    {find}
    place[k] = a;
    held[k] = {take};
  }}
#pragma unroll
  for (int k = 0; k < {EACH}; ++k)"""


# ------------------------------------------------------------------------------------------- tiles


def _tile(size: int) -> int:
    return 64 if size <= 2 else 32


@lru_cache(maxsize=128)
def _tiles_text(size: int, rank: int, moving: str, starts: int, dtype: Any) -> str:
    """A block copies a tile: rows are read along b and written along a."""
    r = Words()
    to, source = r.pointer(), r.pointer("const char")
    moved = _moved(r, moving, starts, dtype)
    na, nb, sa, db, ta, tb = r.many(6)
    extents = r.many(rank)
    steps = [("to", r.many(rank)), ("source", r.many(rank))]
    tile = _tile(size)
    rows = THREADS // tile
    pad = max(1, 4 // size)  # one word, so that columns of the tile are in different banks
    return kernel_text(
        f"  __shared__ Unit tile[{tile}][{tile + pad}];\n"
        f"  char* to = {to};\n  const char* source = {source};\n{moved}"
        "  Index i = block;\n"
        f"  Index rest = cut(i, {tb});\n  const Word b0 = (Word)i * {tile};\n"
        f"  Index outer = cut(rest, {ta});\n  const Word a0 = (Word)rest * {tile};\n"
        f"  {decode('outer', extents, steps)}\n"
        f"  const int x = threadIdx.x % {tile}, y = threadIdx.x / {tile};\n"
        f"  const Word na = {na} - a0, nb = {nb} - b0;\n"
        f"  source += a0 * {sa} + (b0 + x) * {size};\n"
        f"  to += (a0 + x) * {size} + b0 * {db};\n"
        "#pragma unroll\n"
        f"  for (int k = y; k < {tile}; k += {rows})\n"
        f"    if (x < nb && k < na) tile[k][x] = *(const Unit*)(source + k * {sa});\n"
        "  __syncthreads();\n"
        "#pragma unroll\n"
        f"  for (int k = y; k < {tile}; k += {rows})\n"
        f"    if (x < na && k < nb) *(Unit*)(to + k * {db}) = tile[x][k];\n",
        f"typedef {UNITS[size]} Unit;\n")


# ------------------------------------------------------------------------------------------- fills


def fill_launch(ref: Ref, nbytes: int, bits: bytes) -> Launch:
    """Fill a dense run with equal elements, given as the bytes of one."""
    args = (ref, nbytes, *bits_of(bits * (16 // len(bits))))
    return Launch.over(blocks_of(nbytes, 16), _fill_text(len(bits)), args, "fill", THREADS * EACH,
                       nbytes)


@lru_cache(maxsize=8)
def _fill_text(piece: int) -> str:
    """Units of 16 bytes, except for the last and where memory is not aligned."""
    return kernel_text(
        "  char* to = (char*)w[0];\n  const Word n = w[1];\n"
        "  Held x;\n  x.h[0] = (u64)w[2];\n  x.h[1] = (u64)w[3];\n"
        f"  const bool fits = {aligned(16, 'to')};\n"
        "#pragma unroll\n"
        f"  for (int k = 0; k < {EACH}; ++k) {{\n"
        f"    const Word i = ((Word)block * {THREADS * EACH} + k * {THREADS} + threadIdx.x) * 16;\n"
        "    if (fits && i + 16 <= n) *(uint4*)(to + i) = x.u;\n"
        f"    else for (int j = 0; j < {16 // piece}; ++j)\n"
        f"      if (i + j * {piece} < n) *(Piece*)(to + i + j * {piece}) = x.p[j];\n"
        "  }\n",
        f"typedef {UNITS[piece]} Piece;\n"
        f"union Held {{ uint4 u; u64 h[2]; Piece p[{16 // piece}]; }};\n", wide=None)


moves = Moves(copy_launch, fill_launch)
copy, fill, lower, lower_rev = moves.copy, moves.fill, moves.lower, moves.lower_rev
lower_concatenate, lower_reshape, lower_pad = (
    moves.lower_concatenate, moves.lower_reshape, moves.lower_pad)
lower_dynamic_slice = moves.lower_dynamic_slice
lower_dynamic_update_slice = moves.lower_dynamic_update_slice
