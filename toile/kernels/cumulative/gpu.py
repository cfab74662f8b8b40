"""Running sums, products, extrema and log-sum-exps along one axis, and linear recurrences.

Along the innermost axis a warp processes a short row, a block a tile of a long one; along other
axes a thread processes a column. Long rows and few columns are divided: totals of the parts,
running totals of those, then the parts, each starting from the total before it. float32 sums and
products of long axes run in float64 and 16-bit floats in float32, as in the eager rule. Products of
complex numbers hold each number as a pair. The steps of a recurrence, h -> a h + b, are combined as
pairs of a coefficient and a term; a thread that processes a whole column needs only h.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.cumulative.shared import running_of, shift_of
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import MOST, divisor, kernel_text

_SHORT = 512  # elements of a row that one warp processes
_ITEMS = 8  # of a thread in a tile
_ENOUGH = 1 << 17  # threads that keep a GPU busy
_STEPS = 1 << 14  # the fewest columns of a recurrence that are not divided: parts are read twice
_AHEAD = 64  # bytes of a column that are read before they are combined
_PART = 64  # least rows of a part of a column

_LOGADDEXP = """\
__device__ inline double combine(double a, double b) {
  const double gap = a - b;
  if (gap != gap) return a + b;  // equal infinities, or a NaN
  return (a > b ? a : b) + log1p(exp(-fabs(gap)));
}
"""


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Cumsum, Cumprod, Cummax, Cummin, Cumlogsumexp."""
    return _lower(op, ins[0], None, outs[0], plan)


def lower_recurrence(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """LinearRecurrence."""
    return _lower(op, ins[1], ins[0], outs[0], plan)


def _lower(op: Any, x: Operand, a: Operand | None, out: Operand, plan: Planner) -> bool:
    """Running values of x; `a` are the coefficients of a recurrence."""
    found = running_of(op, x)
    if found is None or found.outer * found.n * found.inner > MOST:
        return False
    kind, dtype, wide, outer, n, inner = found
    x = plan.contiguous(x)
    more = () if a is None else (plan.contiguous(a).ref, shift_of(op, inner))
    if a is not None and inner > 1 and _parts_of(kind, outer * inner, n) == 1:
        wide = False  # step after step, errors shrink with the coefficients
    work = "double" if wide else numbers.work_type(numbers.real_part(dtype))
    work = f"Pair<{work}>" if dtype.kind == "c" else work
    key = (kind, dtype, work, op.reverse)
    if inner == 1 and n <= _SHORT:
        args = (out.ref, x.ref, n, outer, *more)
        blocks = blocks_of(outer, THREADS // 32)
        plan.stage(Launch(_warp_text(*key), args, blocks, THREADS, 0, op.name))
    elif inner == 1:
        _tiles(key, out.ref, x.ref, outer, n, more, plan)
    else:
        _columns(key, out.ref, x.ref, outer, n, inner, more, plan)
    return True


def _cell(key: Any) -> int:
    """Bytes that are enough for a running value."""
    return 8 * (1 + key[2].startswith("Pair")) * (1 + (key[0] == "recurrence"))


def _items(key: Any, n: int) -> int:
    """Elements of a thread in a tile: as many as fit into shared memory and as a row needs."""
    return _ITEMS if _cell(key) <= 16 and n > THREADS * _ITEMS // 2 else _ITEMS // 2


def _tiles(key: Any, out: Ref, x: Ref, outer: int, n: int, more: Any, plan: Planner) -> None:
    items = _items(key, n)
    tiles = blocks_of(n, THREADS * items)
    totals: Ref | int = plan.scratch(_cell(key) * outer * tiles) if tiles > 1 else 0
    args = (out, x, n, divisor(tiles), totals, *more)
    note = f"running {key[0]}"
    if tiles > 1:
        assert isinstance(totals, Ref)
        plan.stage(Launch(_tile_text(*key, items, "totals"), args, outer * tiles, THREADS, 0, note))
        # The totals before each tile: running totals, in place.
        rows = key[0], None, key[2], False
        if tiles > _SHORT:
            _tiles(rows, totals, totals, outer, tiles, (), plan)
        else:
            before = (totals, totals, tiles, outer)
            plan.stage(Launch(_warp_text(*rows), before, blocks_of(outer, THREADS // 32), THREADS,
                              0, note))  # fmt: skip
    role = "parts" if tiles > 1 else "whole"
    plan.stage(Launch(_tile_text(*key, items, role), args, outer * tiles, THREADS, 0, note))


def _parts_of(kind: str, columns: int, n: int) -> int:
    """Parts into which a column is divided."""
    if kind == "recurrence" and columns >= _STEPS:
        return 1
    return max(1, min(n // _PART, blocks_of(_ENOUGH, columns)))


def _columns(key: Any, out: Ref, x: Ref, outer: int, n: int, inner: int, more: Any,
             plan: Planner) -> None:
    columns = outer * inner
    parts = _parts_of(key[0], columns, n)
    step = blocks_of(n, parts)
    parts = blocks_of(n, step)
    totals: Ref | int = plan.scratch(_cell(key) * columns * parts) if parts > 1 else 0
    args = (out, x, n, divisor(inner), totals, step, divisor(parts), columns * parts, *more)
    blocks, note = blocks_of(columns * parts, THREADS), f"running {key[0]}"
    if parts == 1:
        plan.stage(Launch(_column_text(*key, "whole"), args, blocks, THREADS, 0, note))
        return
    plan.stage(Launch(_column_text(*key, "totals"), args, blocks, THREADS, 0, note))
    before = (totals, totals, parts, divisor(inner), 0, parts, divisor(1), columns)
    text = _column_text(key[0], None, key[2], False, "whole")
    plan.stage(Launch(text, before, blocks_of(columns, THREADS), THREADS, 0, note))
    plan.stage(Launch(_column_text(*key, "parts"), args, blocks, THREADS, 0, note))


# ------------------------------------------------------------------------------------------- texts


def _head(kind: str, dtype: Any, work: str) -> str:
    """Types, and `read`, `written`, `combine`, `nothing`; dtype None: totals of type `work`."""
    if kind == "recurrence":
        return _recurrence_head(dtype, work)
    if work.startswith("Pair"):
        memory = work if dtype is None else f"Pair<{numbers.work_type(numbers.real_part(dtype))}>"
        return f"{HELPERS['Pair']}typedef {memory} Memory;\ntypedef {work} Number;\n{_PRODUCT}"
    like = numbers.dtype_of(work) if dtype is None else dtype
    combine = _LOGADDEXP if kind == "logsumexp" else numbers.combine_function(kind, like, work)
    neutral = numbers.literal(float("-inf"), like, work) if kind == "logsumexp" else (
        numbers.neutral(kind, like, work))  # fmt: skip
    memory, load, store = _memory(dtype, work)
    return (
        ("" if dtype is None else numbers.conversions(dtype))
        + f"typedef {memory} Memory;\ntypedef {work} Number;\n{combine}"
        + f"__device__ inline Number read(Memory x) {{ return (Number){load}; }}\n"
        + f"__device__ inline Memory written(Number x) {{ return {store}; }}\n"
        + f"__device__ inline Number nothing() {{ return {neutral}; }}\n"
        + "__device__ inline Number before(Number x, u32 d) { return __shfl_up_sync(~0u, x, d); }\n"
        + "__device__ inline Number last(Number x) { return __shfl_sync(~0u, x, 31); }\n"
    )


def _memory(dtype: Any, work: str) -> tuple[str, str, str]:
    """The type of a number in memory, and the texts that convert a number x to `work` and back."""
    if dtype is None:
        return work, "x", "x"
    memory = numbers.memory_type(dtype)
    narrowed = "(float)x" if work == "double" and memory != "double" else "x"
    return memory, numbers.load(dtype, "x"), numbers.store(dtype, narrowed)


def _recurrence_head(dtype: Any, work: str) -> str:
    """The same for the steps h -> a h + b; `next` combines only the b of two steps."""
    if work.startswith("Pair"):
        part = "" if dtype is None else numbers.work_type(numbers.real_part(dtype))
        memory, arithmetic = f"Pair<{part}>", HELPERS["Pair"] + _COMPLEX_STEP.format(work=work)
        load, store, one = "{(Real)x.re, (Real)x.im}", f"{{({part})x.re, ({part})x.im}}", "{1, 0}"
    else:
        memory, load, store = _memory(dtype, work)
        whole = numbers.dtype_of(work).kind in "iu"
        arithmetic = f"typedef {work} Part;\n" + (_INTEGER_STEP if whole else _FLOAT_STEP)
        load, store, one = f"(Part){load}", store, "1"
    head = arithmetic + _STEP.format(one=one)
    if dtype is None:
        return head + ("typedef Number Memory;\n"
                       "__device__ inline Number read(Number x) { return x; }\n"
                       "__device__ inline Number written(Number x) { return x; }\n")
    return (numbers.conversions(dtype) + head + f"typedef {memory} Memory;\n"
            f"__device__ inline Part part(Memory x) {{ return {load}; }}\n"
            "__device__ inline Number read(Memory a, Memory x) { return {part(a), part(x)}; }\n"
            f"__device__ inline Memory stored(Part x) {{ return {store}; }}\n"
            "__device__ inline Memory written(Number x) { return stored(x.b); }\n")


def _after(kind: str) -> str:
    """The function that combines a start value, which may be neutral, with an element."""
    return "after" if kind == "recurrence" else "combine"


# Steps of a recurrence; a neutral start is not multiplied: the product of 0 and inf is NaN.
_STEP = """\
struct alignas(sizeof(Part) < 8 ? 2 * sizeof(Part) : 16) Number {{ Part a, b; }};
__device__ inline Number next(Number x, Number y) {{ return {{y.a, plus(y.b, y.a, x.b)}}; }}
__device__ inline Number combine(Number x, Number y) {{
  return {{times(x.a, y.a), plus(y.b, y.a, x.b)}};
}}
__device__ inline Number after(Number x, Number y) {{
  return is_one(x.a) && is_zero(x.b) ? y : combine(x, y);
}}
__device__ inline Number nothing() {{ return {{{one}, {{}}}}; }}
__device__ inline Number before(Number x, u32 d) {{ return {{up(x.a, d), up(x.b, d)}}; }}
__device__ inline Number last(Number x) {{ return {{end(x.a), end(x.b)}}; }}
"""
_REAL_STEP = """\
__device__ inline bool is_one(Part x) { return x == 1; }
__device__ inline bool is_zero(Part x) { return x == 0; }
__device__ inline Part up(Part x, u32 d) { return __shfl_up_sync(~0u, x, d); }
__device__ inline Part end(Part x) { return __shfl_sync(~0u, x, 31); }
"""
_FLOAT_STEP = _REAL_STEP + """\
__device__ inline Part times(Part x, Part y) { return x * y; }
__device__ inline Part plus(Part sum, Part x, Part y) { return fma(x, y, sum); }
"""
_INTEGER_STEP = _REAL_STEP + """\
__device__ inline Part times(Part x, Part y) { return (Part)((u64)x * (u64)y); }
__device__ inline Part plus(Part sum, Part x, Part y) { return (Part)((u64)sum + (u64)x * (u64)y); }
"""
_COMPLEX_STEP = """\
typedef {work} Part;
typedef decltype(Part::re) Real;
__device__ inline bool is_one(Part x) {{ return x.re == 1 && x.im == 0; }}
__device__ inline bool is_zero(Part x) {{ return x.re == 0 && x.im == 0; }}
__device__ inline Part up(Part x, u32 d) {{
  return {{__shfl_up_sync(~0u, x.re, d), __shfl_up_sync(~0u, x.im, d)}};
}}
__device__ inline Part end(Part x) {{
  return {{__shfl_sync(~0u, x.re, 31), __shfl_sync(~0u, x.im, 31)}};
}}
__device__ inline Part plus(Part sum, Part x, Part y) {{
  return {{fma(-x.im, y.im, fma(x.re, y.re, sum.re)), fma(x.im, y.re, fma(x.re, y.im, sum.im))}};
}}
__device__ inline Part times(Part x, Part y) {{ return plus({{0, 0}}, x, y); }}
"""


# Complex numbers; the neutral element is not multiplied: the product of 0 and inf is NaN.
_PRODUCT = """\
__device__ inline Number combine(Number a, Number b) {
  if (a.re == 1 && a.im == 0) return b;
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ inline Number read(Memory x) { return {x.re, x.im}; }
__device__ inline Memory written(Number x) {
  Memory y;
  y.re = x.re, y.im = x.im;
  return y;
}
__device__ inline Number nothing() { return {1, 0}; }
__device__ inline Number before(Number x, u32 d) {
  return {__shfl_up_sync(~0u, x.re, d), __shfl_up_sync(~0u, x.im, d)};
}
__device__ inline Number last(Number x) {
  return {__shfl_sync(~0u, x.re, 31), __shfl_sync(~0u, x.im, 31)};
}
"""


_WARP_SCAN = """\
__device__ inline Number running(Number x) {
  const u32 lane = threadIdx.x & 31;
#pragma unroll
  for (u32 d = 1; d < 32; d <<= 1) {
    const Number y = before(x, d);
    if (lane >= d) x = combine(y, x);
  }
  return x;
}
"""


def _element(kind: str, dtype: Any, word: int, base: str) -> tuple[str, str]:
    """The declaration of the coefficients, given from `word` on, and element i as a number."""
    if kind != "recurrence" or dtype is None:
        return "", "read(x[at])"
    declared = f"  const Memory* a = (const Memory*)w[{word}] + {base} + w[{word + 1}];\n"
    return declared, "read(i ? a[at] : Memory(), x[at])"  # the first element has none


@lru_cache(maxsize=128)
def _warp_text(kind: str, dtype: Any, work: str, reverse: bool) -> str:
    """Each warp processes a row."""
    at = "n - 1 - i" if reverse else "i"
    more, element = _element(kind, dtype, 4, "(Word)row * n")
    return kernel_text(f"""\
  const u32 n = (u32)w[2], row = block * {THREADS // 32}u + (threadIdx.x >> 5);
  if (row >= (u32)w[3]) return;
  Memory* out = (Memory*)w[0] + (Word)row * n;
  const Memory* x = (const Memory*)w[1] + (Word)row * n;
{more}\
  Number start = nothing();
  for (u32 first = 0; first < n; first += 32) {{
    const u32 i = first + (threadIdx.x & 31), at = {at};
    const Number sum = {_after(kind)}(start, running(i < n ? {element} : nothing()));
    if (i < n) out[at] = written(sum);
    start = last(sum);
  }}
""", _head(kind, dtype, work) + _WARP_SCAN)


@lru_cache(maxsize=128)
def _tile_text(
    kind: str, dtype: Any, work: str, reverse: bool, items: int, role: str
) -> str:
    """A block processes a tile of a row; elements go through shared memory to be read in order."""
    at = "n - 1 - i" if reverse else "i"
    tile, warps, after = THREADS * items, THREADS // 32, _after(kind)
    more, element = _element(kind, dtype, 5, "(Word)row * n")
    save = f"  if (threadIdx.x == {THREADS - 1}) totals[block] = {after}(start, y[{items - 1}]);"
    write = f"""\
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) held[mine + k] = {after}(start, y[k]);
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) {{
    const u32 j = k * {THREADS} + threadIdx.x, i = tile * {tile}u + j, at = {at};
    if (i < n) out[at] = written(held[j + j / {items}]);
  }}"""
    start = "tile ? totals[block - 1] : nothing()" if role == "parts" else "nothing()"
    return kernel_text(f"""\
  __shared__ Number held[{tile + THREADS}], sums[{warps}];
  const u32 n = (u32)w[2];
  Index tile = block;
  const Index row = cut(tile, w[3]);
  Memory* out = (Memory*)w[0] + (Word)row * n;
  const Memory* x = (const Memory*)w[1] + (Word)row * n;
{more}\
  Number* totals = (Number*)w[4];
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) {{
    const u32 j = k * {THREADS} + threadIdx.x, i = tile * {tile}u + j, at = {at};
    held[j + j / {items}] = i < n ? {element} : nothing();
  }}
  __syncthreads();
  const u32 mine = threadIdx.x * {items + 1}, warp = threadIdx.x >> 5;
  Number y[{items}];
#pragma unroll
  for (u32 k = 0; k < {items}; ++k)
    y[k] = k ? combine(y[k - 1], held[mine + k]) : held[mine];
  const Number sum = running(y[{items - 1}]);
  const Number left = before(sum, 1);
  if ((threadIdx.x & 31) == 31) sums[warp] = sum;
  __syncthreads();
  Number start = {start};
  for (u32 k = 0; k < warp; ++k) start = {after}(start, sums[k]);
  if (threadIdx.x & 31) start = {after}(start, left);
{save if role == "totals" else write}
""", _head(kind, dtype, work) + _WARP_SCAN)


@lru_cache(maxsize=128)
def _column_text(kind: str, dtype: Any, work: str, reverse: bool, role: str) -> str:
    """A thread processes a column, or a part of one."""
    at = "(n - 1 - i)" if reverse else "i"
    start = "part ? totals[number - inner] : nothing()" if role == "parts" else "nothing()"
    more, element = _element(kind, dtype, 8, "base")
    own = element.replace("x[at]", "u[k]").replace("i ? a[at] : Memory()", "c[k]")
    combined = f"{_after(kind)}(sum, {own})"
    if more and role == "totals":
        combined = f"i > low ? combine(sum, {own}) : {own}"
    elif more:  # of the elements before, only the state is needed
        combined = f"next(sum, {own})"

    def batch(count: int) -> str:
        """Statements that read some elements, without waiting for any, and combine them."""
        each = (f"#pragma unroll\n    for (u32 k = 0; k < {count}; ++k) {{\n      "
                f"const u32 i = first + k; const Word at = (Word){at} * inner;\n      ")
        arrays, fetch = f"Memory u[{count}]", "u[k] = x[at];"
        if more:
            arrays, fetch = f"{arrays}, c[{count}]", f"{fetch} c[k] = i ? a[at] : Memory();"
        store = "" if role == "totals" else " out[at] = written(sum);"
        return (f"    {arrays};\n{each}{fetch}\n    }}\n"
                f"{each}sum = {combined};{store}\n    }}\n")

    ahead = max(4, _AHEAD // (16 if dtype is None else dtype.itemsize))
    return kernel_text(f"""\
  const u32 unit = block * {THREADS}u + threadIdx.x;
  if (unit >= (u32)w[7]) return;
  const u32 n = (u32)w[2], inner = (u32)w[3], step = (u32)w[5];
  Index column = unit, part = cut(column, w[3]);
  const Index outer = cut(part, w[6]);
  const Word base = (Word)outer * n * inner + column;
  const Word number = ((Word)outer * (u32)w[6] + part) * inner + column;
  Memory* out = (Memory*)w[0] + base;
  const Memory* x = (const Memory*)w[1] + base;
{more}\
  Number* totals = (Number*)w[4];
  const u32 low = part * step, high = low + step < n ? low + step : n;
  Number sum = {start};
  u32 first = low;
  for (; first + {ahead} <= high; first += {ahead}) {{
{batch(ahead)}  }}
  for (; first < high; ++first) {{
{batch(1)}  }}
  {"totals[number] = sum;" if role == "totals" else ""}
""", _head(kind, dtype, work))
