"""Products of float32 matrices on tensor cores, in TF32; convolutions read images in place.

cuDNN and cuBLAS are made for large problems: they take 23 us for a convolution of one channel that
these kernels compute in 9, and 0.2 s to start. If the result has few tiles, sums are split into
parts, which a second kernel adds in a fixed order. cuBLAS does not do so for every shape: it takes
78 us for 32 by 64 sums of 100,000 terms, which take 21 us here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.operands import Args, Operand, Ref
from toile.compiler.ir.steps import alignment
from toile.kernels.contraction import gpu_tensor_text as texts
from toile.kernels.contraction.gpu_tensor_text import Side, Tile, Walk, WalkForm
from toile.targets.cuda import cublas
from toile.targets.cuda.launches import Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, Words, divisor, divisors, kernel_text

VECTOR = 4  # numbers in 16 bytes
BLOCKS = 264  # up to which sums are split: two for each multiprocessor of a large GPU
LONG, SHORTEST = 1024, 256  # fewest terms of a split sum and of a part: adding parts takes 5 us
# The fewest terms of sums that cuBLAS may not split, and the limits of the shorter and the longer
# side of a result with few such sums.
VERY_LONG, ONE_TILE, FEW_TILES = 8192, 64, 256
ITEM = 4  # bytes of a float32
MOST_TERMS = 1 << 28  # multiplications of a product that counts as small
ADDERS, LANES = 8, 32  # threads that add the parts of a number, and numbers per block


def _tile(rows: int, columns: int, depth: int) -> Tile:
    deep = 16 if depth <= 16 else 32
    if rows <= 16:
        return Tile(16, 32, deep, 1)
    if rows <= 32:
        return Tile(32, 32, deep, 2)
    if columns > 32:
        return Tile(64, 64, deep, 2)
    return Tile(128, 32, deep, 4) if rows > 64 else Tile(64, 32, deep, 2)


def has_tensor_cores() -> bool:
    """Whether the current device supports TF32 (from Ampere on), and has enough shared memory."""
    try:
        number = cublas.current_device()
    except Exception:  # no device: the plan is for another machine
        return True
    return _capability(number) >= 80


@cache
def _capability(number: int) -> int:
    import cupy

    return int(cupy.cuda.Device(number).compute_capability)


def tiles_of(rows: int, columns: int, depth: int) -> int:
    """How many blocks compute such a product if its sums are not split."""
    tile = _tile(rows, columns, depth)
    return blocks_of(rows, tile.rows) * blocks_of(columns, tile.columns)


def lower_dot(
    op: Any, x: Operand, y: Operand, out: Operand, plan: Planner, only_long: bool = False
) -> bool:
    """Add a product of matrices; False if it has a batch, or is large.

    only_long: only few sums of many terms, whose operands are read once."""
    labels = _matrix_labels(op)
    if labels is None or not all(map(is_near, (x, y, out))):
        return False
    rows, columns, summed = labels
    at = [{c: (n, s * ITEM) for c, n, s in zip(names, a.shape, a.strides, strict=True)}
          for names, a in ((op.lhs, x), (op.rhs, y), (op.out, out))]
    sizes = [prod(at[side][c][0] for c in group)
             for side, group in ((2, rows), (2, columns), (0, summed))]
    if not _suits(sizes[0], sizes[1], sizes[2], only_long):
        return False

    def walk(labels: list[str], side: int) -> Walk:
        return Walk.along([at[side][c][0] for c in labels], [at[side][c][1] for c in labels])

    left, right = (_side(a.ref, walk(outer, i), walk(summed, i))
                   for i, (a, outer) in enumerate(((x, rows), (y, columns))))
    product(left, right, out.ref, walk(rows, 2), walk(columns, 2), plan, "product (tf32)")
    return True


def _suits(rows: int, columns: int, terms: int, only_long: bool) -> bool:
    """Whether a product is computed here: few long sums, or any small product."""
    least, most = sorted((rows, columns))
    if terms >= VERY_LONG and 1 < least < ONE_TILE and most <= FEW_TILES:
        return has_tensor_cores()
    return not only_long and 0 < rows * columns * terms <= MOST_TERMS


def _matrix_labels(op: Any) -> tuple[list[str], list[str], list[str]] | None:
    """Labels of rows, columns and sums; None if there are others, such as batch axes."""
    rows, columns = ([c for c in op.out if c in side] for side in (op.lhs, op.rhs))
    summed = [c for c in op.lhs if c in op.rhs]
    if set(rows) & set(columns):
        return None
    alone = len(rows) + len(summed) < len(op.lhs) or len(columns) + len(summed) < len(op.rhs)
    return None if alone else (rows, columns, summed)


def is_near(a: Operand) -> bool:
    """Whether offsets within an operand fit into 32 bits."""
    return sum((n - 1) * abs(s) for n, s in zip(a.shape, a.strides, strict=True)) < MOST // ITEM


def _side(ref: Ref, outer: Walk, inner: Walk) -> Side:
    """A matrix, read in vectors along the sum or across it, if it is contiguous in that
    direction."""
    for deep, one, other in ((True, inner, outer), (False, outer, inner)):
        if one.extents and one.steps[-1] == ITEM and not one.extents[-1] % VECTOR and not any(
                s % (VECTOR * ITEM) for s in (*one.steps[:-1], *other.steps)) and is_aligned(
                ref, VECTOR * ITEM):
            return Side(ref, outer, inner, (), deep, VECTOR)
    return Side(ref, outer, inner)


def product(left: Side, right: Side, out: Ref, rows: Walk, columns: Walk, plan: Planner,
            note: str) -> None:
    """Add a product; `rows` and `columns` map its rows and columns to the result."""
    m, n, depth = left.outer.size, right.outer.size, left.inner.size
    tile = _tile(m, n, depth)
    tiles = blocks_of(m, tile.rows), blocks_of(n, tile.columns)
    parts = _parts(tiles[0] * tiles[1], depth)
    each = blocks_of(blocks_of(depth, parts), tile.depth) * tile.depth
    parts = blocks_of(depth, each)
    target, to_rows, to_columns = out, rows, columns
    if parts > 1:
        target = plan.scratch(parts * m * n * ITEM)
        to_rows, to_columns = Walk("axes", (m,), (n * ITEM,)), Walk("axes", (n,), (ITEM,))
    paired = (to_columns.form == ("axes", 1) and to_columns.steps == (ITEM,) and n % 2 == 0
              and not any(s % (2 * ITEM) for s in to_rows.steps) and is_aligned(target, 2 * ITEM))
    head: Args = (left.ref, right.ref, target, m, n, depth, each, m * n * ITEM, *divisors(tiles))
    args = (*head, *[0] * (texts.WORDS - len(head)), *left.words, *right.words, *to_rows.words,
            *to_columns.words)
    text = texts.product_text(left.form, right.form, to_rows.form, to_columns.form, tile, paired)
    shared = texts.STAGES * tile.shared * ITEM
    plan.stage(Launch(text, args, tiles[0] * tiles[1] * parts, texts.THREADS, shared, note))
    if parts > 1:
        plan.stage(_added(target, parts, out, rows, columns))


def _parts(tiles: int, depth: int) -> int:
    """How many parts a sum is split into, so that all multiprocessors have work."""
    if depth < LONG or 4 * tiles > BLOCKS:
        return 1
    return min(BLOCKS // tiles, depth // SHORTEST)


def is_aligned(ref: Ref, unit: int = cublas.ALIGNED) -> bool:
    """Whether an address is a multiple of `unit` bytes, in every iteration of a loop."""
    return alignment(ref) % unit == 0


def _added(parts: Ref, count: int, out: Ref, rows: Walk, columns: Walk) -> Launch:
    """The launch that adds the parts of sums, which are stored one after the other."""
    size = rows.size * columns.size
    args: Args = (parts, out, size, count, divisor(columns.size), *rows.words, *columns.words)
    text = _added_text(rows.form, columns.form)
    return Launch(text, args, blocks_of(size, LANES), ADDERS * LANES, 0, "sum of parts")


@lru_cache(maxsize=32)
def _added_text(rows: WalkForm, columns: WalkForm) -> str:
    r = Words()
    parts, to, size, count, width = r.pointer("const float"), r.pointer(), *r.many(3)
    places = texts.walk_text("row_at", rows, r) + texts.walk_text("column_at", columns, r)
    return kernel_text(f"""\
  __shared__ float sums[{ADDERS}][{LANES + 1}];
  const u32 lane = threadIdx.x % {LANES}u, adder = threadIdx.x / {LANES}u;
  const u32 size = (u32){size}, count = (u32){count}, i = block * {LANES}u + lane;
  const float* parts = {parts};
  float sum = 0;
  if (i < size) {{
#pragma unroll 4
    for (u32 k = adder; k < count; k += {ADDERS}) sum += parts[(Word)k * size + i];
  }}
  sums[adder][lane] = sum;
  __syncthreads();
  if (adder || i >= size) return;
#pragma unroll
  for (u32 k = 1; k < {ADDERS}; ++k) sum += sums[k][lane];
  Index column = i;
  const Index row = cut(column, {width});
  *(float*)({to} + row_at(w, row).at + column_at(w, column).at) = sum;
""", f"struct Place {{ int at; }};\n{places}", threads=ADDERS * LANES)
