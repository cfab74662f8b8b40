"""Cholesky and LU factors of tiny real matrices, and solutions from them: one kernel each.

A matrix of at most 32 rows and columns lies in shared memory, and a warp works on it: one lane for
each row. The libraries need several kernels even for one number; in loops, as in Kalman filters,
that is nearly all of the time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.cuda.launches import Launch, blocks_of
from toile.targets.cuda.text import kernel_text

MOST = 32  # rows and columns
_THREADS = 256
_WARPS = _THREADS // 32
_MATRICES = 4  # of a block whose warps have a matrix each: 33 KiB of float64
_SHARE = 64  # right-hand sides of a block
_NAMES = {"float32": "float", "float64": "double"}
_NAN = {"float": "__int_as_float(0x7fc00000)",
        "double": "__longlong_as_double(0x7ff8000000000000LL)"}  # fmt: skip
_INFINITY = {"float": "__int_as_float(0x7f800000)",
             "double": "__longlong_as_double(0x7ff0000000000000LL)"}  # fmt: skip
_SIZE = {"float": 4, "double": 8}


def fits(dtype: Any, *sizes: int) -> bool:
    """Whether there are kernels for such matrices."""
    return dtype.name in _NAMES and max(sizes) <= MOST


def _functions(real: str) -> dict[str, str]:
    """The names of mathematical functions for a type."""
    suffix = "f" if real == "float" else ""
    return {"root": f"sqrt{suffix}", "size": f"fabs{suffix}"}


def _matrix_of_a_warp(real: str, count: str, sizes: str) -> str:
    """Statements that find a warp's matrix `number`, with `a[row * 33 + column]` in memory."""
    return f"""\
  __shared__ {real} tiles[{_MATRICES}][32 * 33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 number = (i64)block * {_MATRICES} + warp;
  if (number >= {count}) return;
  {real}* const a = tiles[warp];
{sizes}"""


def cholesky(out: Ref, x: Ref, dtype: Any, n: int, count: int) -> Launch:
    """The lower triangular factors of dense matrices; NaN for those that have none."""
    real = _NAMES[dtype.name]
    return Launch(_cholesky_text(real), (out, x, n, count), blocks_of(count, _MATRICES),
                  32 * _MATRICES, note="Cholesky of tiny matrices",
                  nbytes=2 * count * n * n * _SIZE[real])


@cache
def _cholesky_text(real: str) -> str:
    names = _functions(real)
    head = _matrix_of_a_warp(real, "w[3]", "  const int n = (int)w[2];\n")
    return kernel_text(f"""\
{head}  {real}* const out = ({real}*)w[0] + number * n * n;
  const {real}* const x = (const {real}*)w[1] + number * n * n;
  for (int i = lane; i < n * n; i += 32) a[i / n * 33 + i % n] = x[i];
  __syncwarp();
  bool failed = false;
  for (int j = 0; j < n; ++j) {{
    const {real} pivot = a[j * 33 + j];
    failed |= !(pivot > 0);
    const {real} root = {names["root"]}(pivot);
    {real} own = 0;
    __syncwarp();
    if (lane >= j && lane < n) {{
      own = lane == j ? root : a[lane * 33 + j] / root;
      a[lane * 33 + j] = own;
    }}
    __syncwarp();
    if (lane > j && lane < n)
      for (int k = j + 1; k <= lane; ++k) a[lane * 33 + k] -= own * a[k * 33 + j];
    __syncwarp();
  }}
  for (int i = lane; i < n * n; i += 32) {{
    const int row = i / n, column = i % n;
    out[i] = column > row ? ({real})0 : failed ? {_NAN[real]} : a[row * 33 + column];
  }}
""", wide=None, threads=32 * _MATRICES)


def lu(
    packed: Ref, pivots: Ref, order: Ref | None, x: Ref, dtype: Any, m: int, n: int, count: int
) -> Launch:
    """Packed factors, row swaps and, unless `order` is None, the order of rows."""
    real = _NAMES[dtype.name]
    args = (packed, pivots, pivots if order is None else order, x, m, n, count)
    return Launch(_lu_text(real, order is not None), args, blocks_of(count, _MATRICES),
                  32 * _MATRICES, note="LU of tiny matrices",
                  nbytes=2 * count * m * n * _SIZE[real])


@cache
def _lu_text(real: str, ordered: bool) -> str:
    names = _functions(real)
    head = _matrix_of_a_warp(real, "w[6]", """\
  const int m = (int)w[4], n = (int)w[5], small = m < n ? m : n;
""")
    order = "  if (lane < m) ((int*)w[2])[number * m + lane] = order;\n" if ordered else ""
    return kernel_text(f"""\
{head}  {real}* const packed = ({real}*)w[0] + number * m * n;
  int* const pivots = (int*)w[1] + number * small;
  const {real}* const x = (const {real}*)w[3] + number * m * n;
  for (int i = lane; i < m * n; i += 32) a[i / n * 33 + i % n] = x[i];
  __syncwarp();
  int order = lane;
  for (int j = 0; j < small; ++j) {{
    {real} best = -1;
    int at = lane;
    if (lane >= j && lane < m) {{
      best = {names["size"]}(a[lane * 33 + j]);
      if (best != best) best = {_INFINITY[real]};
    }}
    for (int d = 16; d; d >>= 1) {{
      const {real} other = __shfl_xor_sync(~0u, best, d);
      const int there = __shfl_xor_sync(~0u, at, d);
      if (other > best || (other == best && there < at)) best = other, at = there;
    }}
    const int one = __shfl_sync(~0u, order, j), two = __shfl_sync(~0u, order, at);
    order = lane == j ? two : lane == at ? one : order;
    if (lane == 0) pivots[j] = at;
    if (at != j && lane < n) {{
      const {real} upper = a[j * 33 + lane];
      a[j * 33 + lane] = a[at * 33 + lane];
      a[at * 33 + lane] = upper;
    }}
    __syncwarp();
    const {real} pivot = a[j * 33 + j];
    if (lane > j && lane < m) {{
      const {real} factor = pivot != 0 ? a[lane * 33 + j] / pivot : a[lane * 33 + j];
      a[lane * 33 + j] = factor;
      for (int c = j + 1; c < n; ++c) a[lane * 33 + c] -= factor * a[j * 33 + c];
    }}
    __syncwarp();
  }}
  for (int i = lane; i < m * n; i += 32) packed[i] = a[i / n * 33 + i % n];
{order}""", wide=None, threads=32 * _MATRICES)


# ---------------------------------------------------------------------------------------- solutions


def triangular(
    out: Ref, a: Ref, b: Ref, dtype: Any, sizes: tuple[int, int, int, int],
    how: tuple[bool, bool, bool, bool],
) -> Launch:
    """X with op(A) X = B or X op(A) = B; `sizes` are the rows of A, the rows and columns of B, and
    the number of matrices; `how` says left side, lower, transposed, unit diagonal."""
    n, rows, columns, count = sizes
    left, lower, transposed, unit = how
    flipped = transposed if left else not transposed  # rows are columns of the transpose
    free = columns if left else rows
    steps = (columns, 1) if left else (1, columns)  # within, and between right-hand sides
    return _solved(_triangular_text(_NAMES[dtype.name], lower, flipped, unit), (out, a, b),
                   (n, free, rows * columns, *steps, count))


def factored(
    out: Ref, packed: Ref, pivots: Ref, b: Ref, dtype: Any, sizes: tuple[int, int, int],
    transposed: bool,
) -> Launch:
    """X with A X = B, or with the transpose of A, from its factors; `sizes` are the rows and the
    columns of B, and the number of matrices."""
    n, columns, count = sizes
    return _solved(_factored_text(_NAMES[dtype.name], transposed), (out, packed, b, pivots),
                   (n, columns, n * columns, columns, 1, count))


def _solved(text: str, refs: tuple[Ref, ...], sizes: tuple[int, ...]) -> Launch:
    """A launch with blocks of right-hand sides; the last size is the number of matrices."""
    *sizes_, count = sizes
    shares = blocks_of(sizes_[1], _SHARE)
    refs = (*refs, *[refs[0]] * (4 - len(refs)))
    return Launch(text, (*refs, *sizes_, shares), count * shares, _THREADS,
                  note="solve of tiny systems", nbytes=8 * count * sizes_[2])


def _right_hand_sides(real: str, before: str, lines: str) -> str:
    """A kernel that runs lines for `x`, a lane's element of each right-hand side of a block."""
    return kernel_text(f"""\
  __shared__ {real} a[32 * 33];
  const int lane = threadIdx.x % 32, n = (int)w[4];
  const i64 number = block / (unsigned)w[9];
  const i64 first = (i64)(block - (unsigned)number * (unsigned)w[9]) * {_SHARE};
  const i64 last = first + {_SHARE} < w[5] ? first + {_SHARE} : w[5];
  {real}* const out = ({real}*)w[0] + number * w[6];
  const {real}* const matrix = (const {real}*)w[1] + number * n * n;
  const {real}* const b = (const {real}*)w[2] + number * w[6];
  for (int i = threadIdx.x; i < n * n; i += THREADS) a[i / n * 33 + i % n] = matrix[i];
{before}  __syncthreads();
  for (i64 c = first + threadIdx.x / 32; c < last; c += {_WARPS}) {{
{lines}  }}
""", wide=None, threads=_THREADS)


def _substituted(real: str, lower: bool, flipped: bool, unit: bool) -> str:
    """Statements that solve with a triangle of `a`, or of its transpose if `flipped`."""
    place = "k * 33 + lane" if flipped else "lane * 33 + k"
    down = lower != flipped
    loop = "int k = 0; k < n; ++k" if down else "int k = n - 1; k >= 0; --k"
    value = "__shfl_sync(~0u, x, k)" + ("" if unit else " / a[k * 33 + k]")
    after = "lane > k && lane < n" if down else "lane < k"
    return f"""\
    for ({loop}) {{
      const {real} value = {value};
      if (lane == k) x = value;
      if ({after}) x -= a[{place}] * value;
    }}
"""


@cache
def _triangular_text(real: str, lower: bool, flipped: bool, unit: bool) -> str:
    return _right_hand_sides(real, "", f"""\
    {real} x = lane < n ? b[lane * w[7] + c * w[8]] : ({real})0;
{_substituted(real, lower, flipped, unit)}\
    if (lane < n) out[lane * w[7] + c * w[8]] = x;
""")


@cache
def _factored_text(real: str, transposed: bool) -> str:
    order = """\
  __shared__ int order[32];
  if (threadIdx.x == 0) {
    const int* swaps = (const int*)w[3] + number * n;
    for (int i = 0; i < n; ++i) order[i] = i;
    for (int i = 0; i < n; ++i) {
      const int j = swaps[i], row = order[i];
      if ((u32)j >= (u32)n) continue;
      order[i] = order[j];
      order[j] = row;
    }
  }
"""
    # Solve with L, then with U; or with the transpose of U, then with that of L.
    one = _substituted(real, not transposed, transposed, not transposed)
    two = _substituted(real, transposed, transposed, transposed)
    source, target = ("lane", "order[lane]") if transposed else ("order[lane]", "lane")
    return _right_hand_sides(real, order, f"""\
    {real} x = lane < n ? b[{source} * w[7] + c * w[8]] : ({real})0;
{one}{two}\
    if (lane < n) out[{target} * w[7] + c * w[8]] = x;
""")
