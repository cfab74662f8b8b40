"""Small kernels around the libraries' decompositions: triangles, orders of rows, failures."""

from __future__ import annotations

from functools import cache
from typing import Any

from toile.compiler.ir.operands import Args, Ref
from toile.engine import dtypes
from toile.targets.cuda.launches import THREADS, Launch
from toile.targets.cuda.text import kernel_text

_EACH = 4  # numbers of a thread
_HELD = 4096  # rows whose order is found in shared memory
_REAL = {"float32": "float", "float64": "double", "complex64": "float", "complex128": "double"}
_NAN = {"float": "__int_as_float(0x7fc00000)",
        "double": "__longlong_as_double(0x7ff8000000000000LL)"}  # fmt: skip


def _parts(dtype: Any) -> int:
    """How many real numbers an element has."""
    return 2 if dtypes.kind(dtype) == "c" else 1


def _launch(text: str, args: Args, units: int, note: str, nbytes: int) -> Launch:
    return Launch.over(units, text, args, note, THREADS * _EACH, nbytes)


def _each(count: str, lines: str, before: str) -> str:
    """A kernel that runs lines for each `i` below a count."""
    return kernel_text(f"""\
{before}  i64 i = (i64)block * (THREADS * {_EACH}) + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < {_EACH}; ++k, i += THREADS) {{
    if (i >= {count}) return;
{lines}  }}
""", wide=None)


def lower_triangle(x: Ref, status: Ref, dtype: Any, n: int, count: int) -> Launch:
    """Zeros above the diagonals of square matrices; NaN in the rest where the status is not 0."""
    total = count * n * n
    text = _lower_text(_REAL[dtype.name], _parts(dtype))
    return _launch(text, (x, status, n, total), total, "lower triangle", total * dtype.itemsize)


@cache
def _lower_text(real: str, parts: int) -> str:
    puts = "".join(f" x[i * {parts} + {p}] = value;" for p in range(parts))
    return _each("w[3]", f"""\
    const i64 row = i / w[2], column = i - row * w[2], matrix = row / w[2];
    const bool above = column > row - matrix * w[2];
    if (above || status[matrix]) {{
      const {real} value = above ? ({real})0 : {_NAN[real]};
     {puts}
    }}
""", before=f"  {real}* x = ({real}*)w[0];\n  const int* status = (const int*)w[1];\n")


def upper_triangle(
    out: Ref, x: Ref, dtype: Any, sizes: tuple[int, int, int], count: int
) -> Launch:
    """The upper triangles of matrices stored by columns; `sizes` are the rows and the columns of
    the result, and the rows of the source."""
    k, n, m = sizes
    total = count * k * n
    return _launch(_upper_text(_REAL[dtype.name], _parts(dtype)), (out, x, k, n, m, total), total,
                   "upper triangle", total * dtype.itemsize)


@cache
def _upper_text(real: str, parts: int) -> str:
    puts = "".join(
        f"    out[i * {parts} + {p}] = inside ? x[from * {parts} + {p}] : ({real})0;\n"
        for p in range(parts))
    return _each("w[5]", f"""\
    const i64 rows = i / w[3], column = i - rows * w[3], matrix = rows / w[2];
    const i64 row = rows - matrix * w[2];
    const bool inside = column >= row;
    const i64 from = (matrix * w[3] + column) * w[4] + row;
{puts}""", before=f"  {real}* out = ({real}*)w[0];\n  const {real}* x = (const {real}*)w[1];\n")


def nan_where_failed(x: Ref, status: Ref, dtype: Any, size: int, count: int) -> Launch:
    """NaN for all elements, `size` for each matrix, of the matrices whose status is not 0."""
    each = size * _parts(dtype)
    return _launch(_failed_text(_REAL[dtype.name]), (x, status, each, count * each), count * each,
                   "NaN where it failed", 4 * count)


@cache
def _failed_text(real: str) -> str:
    return _each("w[3]", f"    if (status[i / w[2]]) x[i] = {_NAN[real]};\n",
                 before=f"  {real}* x = ({real}*)w[0];\n  const int* status = (const int*)w[1];\n")


def conjugate(x: Ref, dtype: Any, size: int) -> Launch:
    """Changes the sign of imaginary parts, in place."""
    return _launch(_conjugate_text(_REAL[dtype.name]), (x, size), size, "conjugate",
                   size * dtype.itemsize)


@cache
def _conjugate_text(real: str) -> str:
    return _each("w[1]", "    x[2 * i + 1] = -x[2 * i + 1];\n",
                 before=f"  {real}* x = ({real}*)w[0];\n")


def one_less(x: Ref, size: int) -> Launch:
    """Subtracts 1 from integers: LAPACK counts from 1."""
    text = _each("w[1]", "    x[i] -= 1;\n", before="  int* x = (int*)w[0];\n")
    return _launch(text, (x, size), size, "row swaps", 8 * size)


def row_order(out: Ref, swaps: Ref, rows: int, count: int, matrices: int) -> Launch:
    """The order of rows after `count` swaps, which are done one after the other."""
    return Launch(_order_text(rows <= _HELD), (out, swaps, rows, count), matrices, THREADS,
                  note="order of rows", nbytes=4 * matrices * (rows + count))


@cache
def _order_text(held: bool) -> str:
    """Each block processes one matrix."""
    shared = f"  __shared__ int order[{_HELD}], swap[{_HELD}];\n" if held else (
        "  int* order = out;\n  const int* swap = swaps;\n")
    load = "  for (int i = threadIdx.x; i < count; i += THREADS) swap[i] = swaps[i];\n"
    store = "  for (int i = threadIdx.x; i < rows; i += THREADS) out[i] = order[i];\n"
    return kernel_text(f"""\
  const int rows = (int)w[2], count = (int)w[3];
  int* out = (int*)w[0] + (i64)block * rows;
  const int* swaps = (const int*)w[1] + (i64)block * count;
{shared}  for (int i = threadIdx.x; i < rows; i += THREADS) order[i] = i;
{load if held else ""}  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < count; ++i) {{
      const int j = swap[i], row = order[i];
      if ((u32)j >= (u32)rows) continue;  // the user may have supplied the swaps
      order[i] = order[j];
      order[j] = row;
    }}
  __syncthreads();
{store if held else ""}""", wide=None)


def rows_moved(
    out: Ref, x: Ref, order: Ref, sizes: tuple[int, int, int, int], back: bool
) -> Launch:
    """Row i of a result is row order[i] of the source; `back`: the reverse. `sizes` are the bytes
    of an element, columns, rows and matrices."""
    size, columns, rows, matrices = sizes
    unit = min(size, 8)
    each = columns * size // unit
    total = matrices * rows * each
    return _launch(_rows_text(unit, back), (out, x, order, each, rows, total), total,
                   "rows in order", 2 * total * unit)


@cache
def _rows_text(unit: int, back: bool) -> str:
    word = {4: "u32", 8: "u64"}[unit]
    move = "out[there] = x[i];" if back else "out[i] = x[there];"
    return _each("w[5]", f"""\
    const i64 row = i / w[3], place = i - row * w[3], first = row - row % w[4];
    const i64 there = (first + order[row]) * w[3] + place;
    {move}
""", before=f"  {word}* out = ({word}*)w[0];\n  const {word}* x = (const {word}*)w[1];\n"
                "  const int* order = (const int*)w[2];\n")
