"""Floats combined by atomics, with the same bits in any order: for narrow rows, without sorting.

The bits of floats are ordered like integers, in reverse if they are negative, so that extrema are
atomics of integers; NaN becomes the integer that wins against all others.

Sums are exact sums of integers. The largest exponent of an element's updates is found first, then
each update is added as a multiple of a power of two: the smallest for which no sum overflows 63
bits. The rounding of an update depends on this exponent only. In the end, one kernel adds the sums
to the result.

If there are many updates, one kernel first finds the range of their exponents. If it is small
enough, each element has several integers for its sum, one for each range of exponents (`DIGITS`).
Every update is added to one of them, so that the exponents of single elements are not needed. Most
updates belong to the first range, whose integers are side by side. If these do not fit in a cache,
the updates are first sorted roughly by place.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.compiler.scalar.builder import UINT32
from toile.kernels.copy.gpu import fill_launch
from toile.kernels.scatter.gpu_updates import Key, Problem, Reader, Rows, arguments, key_of
from toile.kernels.sort.gpu_radix import sort_rows
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, Words, decode, divisor, divisors, kernel_text
from toile.targets.cuda.units import aligned, unit_type

# The most elements of a row: with more, an atomic for each costs more than sorting the row's number
# once.
NARROW = 16
# The fewest elements of all places, if there are more updates than MANY: atomics on few elements
# are executed one after the other, and the numbers of few places are sorted in one pass.
FEWEST, MANY = 1 << 14, 1 << 16
# The most elements of all places that a cache holds: if there are more, they are not read before
# they are changed.
CACHED = 1 << 23
# The most places for each row of updates: with more, filling and reading the tables moves more
# bytes than sorting.
MOST_PLACES = 4
SUM_BITS = 62  # of the magnitude of a sum
MANTISSA = 24  # bits of a float32
# If updates are many, an element has two integers if their exponents cover this range, else DIGITS.
DIGITS, RANGE = 3, 32
NEAR = 24 << 20  # bytes of integers of one range that an L2 cache may hold besides what is read
MOST_BLOCKS = 1024  # of a kernel whose threads process several units each


def _elements(p: Problem) -> int:
    """The elements of a row."""
    return p.width * p.unit // p.dtype.itemsize


def has_extrema(p: Problem) -> bool:
    """Whether updates are combined by `extremum`."""
    return (p.combine in ("min", "max") and p.dtype.name in ("float32", "float64")
            and _elements(p) <= NARROW)  # fmt: skip


def extremum(combine: str, dtype: Any) -> str:
    """`extremum(p, x)`: sets *p to the minimum or maximum of *p and x; NaN is kept, and -0 < +0.

    Most updates of a place change nothing, so it is read first; that the value may be outdated does
    not matter, because values only move in one direction. A NaN that was replaced is put back, as
    the NaN that nothing replaces."""
    wide = dtype.itemsize == 8
    own, of, back = (("double", "__double_as_longlong", "__longlong_as_double") if wide else
                     ("float", "__float_as_int", "__int_as_float"))  # fmt: skip
    signed, unsigned = ("i64", "u64") if wide else ("int", "u32")
    most = combine == "max"
    positive, negative = ("atomicMax", "atomicMin") if most else ("atomicMin", "atomicMax")
    wins = f"(~({unsigned})0 >> 1)" if most else f"~({unsigned})0"
    winner = signed if most else unsigned
    return f"""\
__device__ inline void extremum({own}* p, {own} x) {{
  const {own} seen = *p;
  const {signed} bits = x != x ? ({signed}){wins} : {of}(x);
  if (seen {">" if most else "<"} x || {of}(seen) == bits) return;
  const {signed} old = bits >= 0 ? {positive}(({signed}*)p, bits)
    : ({signed}){negative}(({unsigned}*)p, ({unsigned})bits);
  if ({back}(old) != {back}(old)) atomicMax(({winner}*)p, ({winner}){wins});
}}
"""


# -------------------------------------------------------------------------------------------- sums


def has_sums(p: Problem) -> bool:
    """Whether updates are combined by `add`."""
    n = _elements(p)
    return (
        p.combine in ("add", "sub") and numbers.is_float(p.dtype)
        and numbers.work_type(p.dtype) == "float" and n <= NARROW
        and (p.count <= MANY or FEWEST <= p.places * n) and p.places * n <= MOST
        and p.places <= MOST_PLACES * p.count
    )  # fmt: skip


def add(p: Problem, plan: Planner) -> None:
    """Find the largest exponents, add integers, then add the sums to the result."""
    n = p.places * _elements(p)
    many, most = p.count * _elements(p) > MANY, p.count // _batches(p)
    if many and _is_scattered(p):
        p = _partitioned(p, plan)
    power = SUM_BITS - most.bit_length()
    digits = (DIGITS if 2 * (power + 1 - MANTISSA) < RANGE else 2) if many else 1
    each = max(8 * digits, 12)
    sums = plan.scratch(each * n + 8)
    own = (sums.at(8 * n), sums, power, sums.at(each * n), power + 1 - MANTISSA)
    first = "exponents" if n <= CACHED else "all exponents"
    plan.stage(fill_launch(sums, each * n + 8, bytes(4)))
    if many:
        _stage_loop(p, "bounds", digits, own, plan)
        _stage(p, f"digits, or {first}", digits, own, plan)
        _stage_loop(p, "sums without digits", digits, own, plan)
    else:
        _stage(p, first, digits, own, plan)
        _stage(p, "sums", digits, own, plan)
    _stage_result(p, digits, own, plan)


def _batches(p: Problem) -> int:
    """The number of batches, or of places that share an index: of the updates with the same index,
    each place gets at most one."""
    return prod(n for n, step in zip(p.rows.shape, p.rows.places, strict=True) if step)


def _is_scattered(p: Problem) -> bool:
    """Whether updates that are processed together have places that are too far apart for a cache,
    and are cheap to move: single numbers of 4 bytes."""
    near = 8 * p.places // _batches(p) <= NEAR
    return not near and p.dtype.name == "float32" and _elements(p) == 1


def _partitioned(p: Problem, plan: Planner) -> Problem:
    """The same updates, ordered by the first bits of their places' numbers."""
    places, values = ((plan.scratch(4 * p.count), plan.scratch(4 * p.count)) for _ in range(2))
    args = arguments(p, places[0], values[0])
    text = _pairs_text(key_of(p, "pairs"))
    plan.stage(Launch.over(p.count, text, args, f"scatter_{p.combine}: pairs"))
    bits = p.places.bit_length()
    found, moved = sort_rows(plan, places, values, "u32", 1, p.count, bits, low=max(bits - 8, 0))
    assert moved is not None
    return p._replace(
        rows=Rows([p.count], [4], [0], [4], [0]), components=[(0, 0, p.places - 1, 1)],
        clips=False, updates=moved[0], indices=found[0], index_dtype=UINT32)  # fmt: skip


@lru_cache(maxsize=32)
def _pairs_text(key: Key) -> str:
    """The number of the place of each row, and the bits of its number."""
    r = Reader(key, 2)
    return kernel_text(f"""\
  const char *updates = {r.updates}, *indices = {r.indices};
  const u32 row = block * {THREADS}u + threadIdx.x;
  if (row >= (u32){r.count}) return;
  {r.place("row")}
  Word u = 0;
  {{ Index i = row; {decode("i", r.row_shape, [("u", r.row_updates)])} }}
  ((u32*){r.own[0]})[row] = (u32)b;
  ((u32*){r.own[1]})[row] = *(const u32*)(updates + u);
""")


def _stage(p: Problem, mode: str, digits: int, own: tuple[int | Ref, ...], plan: Planner) -> None:
    """Add a launch whose threads process one unit of the updates each."""
    text = _updates_text(key_of(p, mode), digits)
    plan.stage(Launch.over(p.count * p.width, text, arguments(p, *own, 0),
                           f"scatter_{p.combine}: {mode}"))  # fmt: skip


def _stage_loop(
    p: Problem, mode: str, digits: int, own: tuple[int | Ref, ...], plan: Planner
) -> None:
    """Add a launch whose threads process units at a distance from each other."""
    blocks = min(blocks_of(p.count * p.width, THREADS), MOST_BLOCKS)
    text = _loop_text(key_of(p, mode), digits)
    plan.stage(Launch(text, arguments(p, *own, blocks * THREADS), blocks, THREADS, 0,
                      f"scatter_{p.combine}: {mode}"))  # fmt: skip


def _stage_result(p: Problem, digits: int, own: tuple[Any, ...], plan: Planner) -> None:
    """Add the launch that adds the sums to the result."""
    units = p.places * p.width
    args = (
        *own, p.out, units, divisor(p.width), *divisors(p.place.shape),
        *p.place.first, *divisors(p.columns.shape), *p.columns.first,
    )  # fmt: skip
    text = _result_text(p.dtype, p.unit, len(p.place.shape), len(p.columns.shape), digits)
    plan.stage(Launch.over(units, text, args, f"scatter_{p.combine}: result"))


# An exponent is that of the bits plus 1, so that 0 means no update; INFINITE is that of infinities
# and NaN, for which the sum holds flags. Numbers of exponent e are below 2^(e - 127), also
# subnormal ones; in units of 2^-digits they are below 2^power, which is at least 2^31: the largest
# one is exact.
#
# With `digits` integers for each element, the first one is for the largest exponents; those of all
# elements for one range of exponents are side by side. The bounds are those of all updates but
# zeros: the largest exponent, and how far the smallest is from INFINITE. Nothing is rounded: the
# mantissa, shifted by less than `spacing` bits, is added.
_HEAD = """\
const u32 INFINITE = 256, LEAST = 2;  // subnormal numbers have the unit of exponent LEAST
__device__ inline u32 larger(u32 a, u32 b) { return a < b ? b : a; }
__device__ inline int digits(u32 e, int power) { return power + 127 - (int)e; }
__device__ inline double two_to(int n) { return __longlong_as_double((i64)(1023 + n) << 52); }
__device__ inline bool close(const u32* bounds, int most) {
  return bounds[0] < INFINITE && (int)(bounds[0] + bounds[1]) - (int)INFINITE < most;
}
__device__ inline void add_digits(u64* sums, Word next, u32 bits, int below, int spacing) {
  const u32 field = bits >> 23 & 255;
  const i64 mantissa = (bits & 0x7FFFFF) | (field ? 0x800000 : 0);
  while (below >= spacing) { sums += next; below -= spacing; }
  atomicAdd(sums, (u64)((bits >> 31 ? -mantissa : mantissa) << (spacing - 1 - below)));
}
"""

_EXPONENT = "if (exponents[at + k] < mine) atomicMax(exponents + at + k, mine);"
_ANY_EXPONENT = "atomicMax(exponents + at + k, mine);"
_DIGITS = """\
if (!bits) continue;
    const int below = (int)(bounds[0] - larger(mine, LEAST));
    if (are_close) add_digits(sums + at + k, elements, bits, below, spacing);
    else """
_SUMS = """\
const u32 e = exponents[at + k];
    if (e < INFINITE)
      atomicAdd(sums + at + k, (u64)llrint((double)x * two_to(digits(e, power))));
    else if (mine == INFINITE) atomicOr(sums + at + k, x != x ? 4ull : x > 0 ? 1ull : 2ull);"""
_ACTS = {
    "exponents": _EXPONENT,
    "all exponents": _ANY_EXPONENT,
    "sums": _SUMS,
    "sums without digits": _SUMS,
    "bounds": """\
if (!bits) continue;
    largest = larger(largest, larger(mine, LEAST));
    distance = larger(distance, INFINITE - larger(mine, LEAST));""",
    "digits, or exponents": _DIGITS + _EXPONENT,
    "digits, or all exponents": _DIGITS + _ANY_EXPONENT,
}


def _begin(r: Reader, key: Key, digits: int) -> str:
    """Statements that name the arguments."""
    exponents, sums, power, bounds, spacing, _ = r.own
    return f"""\
{r.start()}\
  u32* exponents = (u32*){exponents};
  u64* sums = (u64*){sums};
  u32* bounds = (u32*){bounds};
  const int power = (int){power}, spacing = (int){spacing}, MANY = {digits};
  const Word elements = (Word){r.places} * width * {key.unit // key.dtype.itemsize};
"""


def _unit(r: Reader, key: Key) -> str:
    """Statements that process unit c of the updates; those of places outside are left out.

    Adding -0 changes no number, not even -0, so that it does not count as an update."""
    lanes = key.unit // key.dtype.itemsize
    place = "" if key.mode == "bounds" else f"""\
  {r.place("row")}
  if (b == {r.places}) continue;
  const Word at = (b * width + c) * {lanes};
"""
    return f"""\
  const Index row = cut(c, {r.by_width});
{place}\
  Word u = 0;
  {{ Index i = row; {decode("i", r.row_shape, [("u", r.row_updates)])} }}
  {{ Index i = c; {decode("i", r.columns[0], [("u", r.columns[2])])} }}
  const Held h = {{take(updates + u, fits)}};
#pragma unroll
  for (int k = 0; k < {lanes}; ++k) {{
    const float x = {"-" if key.combine == "sub" else ""}{numbers.load(key.dtype, "h.p[k]")};
    const u32 bits = (u32)__float_as_int(x), mine = (bits >> 23 & 255) + 1;
    if (bits == 0x80000000u) continue;
    {_ACTS[key.mode]}
  }}
"""


@lru_cache(maxsize=256)
def _updates_text(key: Key, digits: int) -> str:
    """Each thread processes a unit of the updates; modes: "exponents", "all exponents", "sums", and
    the first two after "digits, or "."""
    r = Reader(key, 6)
    are_close = "const bool are_close = close(bounds, spacing * MANY);" * (digits > 1)
    return kernel_text(f"""\
{_begin(r, key, digits)}\
  {are_close}
  Index c = block * {THREADS}u + threadIdx.x;
  if (c < count * width) do {{
  {_unit(r, key)}\
  }} while (false);
""", r.head() + _HEAD)


@lru_cache(maxsize=256)
def _loop_text(key: Key, digits: int) -> str:
    """Each thread processes units of the updates; modes: "bounds", "sums without digits"."""
    r = Reader(key, 6)
    before, after = "  if (close(bounds, spacing * MANY)) return;\n", ""
    if key.mode == "bounds":
        before = "  __shared__ u32 found[2];\n  u32 largest = 0, distance = 0;\n"
        after = """\
  if (threadIdx.x < 2) found[threadIdx.x] = 0;
  __syncthreads();
  if (found[0] < largest) atomicMax(found, largest);
  if (found[1] < distance) atomicMax(found + 1, distance);
  __syncthreads();
  if (threadIdx.x < 2 && bounds[threadIdx.x] < found[threadIdx.x])
    atomicMax(bounds + threadIdx.x, found[threadIdx.x]);
"""
    return kernel_text(f"""\
{_begin(r, key, digits)}{before}\
  for (u64 n = (u64)block * {THREADS}u + threadIdx.x; n < (u64)count * width; n += {r.own[5]}) {{
  Index c = (Index)n;
  {_unit(r, key)}\
  }}
{after}""", r.head() + _HEAD)


@lru_cache(maxsize=64)
def _result_text(dtype: Any, unit: int, place: int, columns: int, digits: int) -> str:
    """Each thread adds the sums to a unit of the result."""
    r = Words()
    exponents, sums, power = r.pointer("const u32"), r.pointer("const u64"), r.one()
    bounds, spacing = r.pointer("const u32"), r.one()
    out, units, by_width = r.pointer(), r.one(), r.one()
    axes = [(r.many(n), r.many(n)) for n in (place, columns)]
    to_place, to_column = (decode("i", extents, [("to", steps)]) for extents, steps in axes)
    lanes = unit // dtype.itemsize
    each = f"#pragma unroll\n  for (int k = 0; k < {lanes}; ++k)"
    nan, inf = (numbers.literal(x, dtype, "double") for x in (float("nan"), float("inf")))
    total = f"(float)({numbers.load(dtype, 'h.p[k]')} + more)"
    several = f"""\
  double much[{lanes}] = {{}};
  const bool are_close = close(bounds, spacing * {digits});
  const Word elements = (Word)(u32){units} * {lanes};
  if (are_close) {{
  {each}
    for (int j = {digits} - 1; j >= 0; --j)
      if (const i64 sum = (i64)sums[at + k + j * elements]) {{
        much[k] += (double)sum * two_to((int)bounds[0] - 150 - spacing * (j + 1));
        any = e[k] = 1;
      }}
  }} else
""" if digits > 1 else ""
    one = f"""\
    const u64 sum = sums[at + k];
    const double more = e[k] < INFINITE ? (double)(i64)sum * two_to(-digits(e[k], power))
      : sum == 1 ? {inf} : sum == 2 ? -{inf} : {nan};
"""
    if digits > 1:
        one = one.replace("const double more", "if (!are_close) more")
        one = "    double more = much[k];\n" + one
    return kernel_text(f"""\
  const u32 *exponents = {exponents}, *bounds = {bounds};
  const u64* sums = {sums};
  char* out = {out};
  const int power = (int){power}, spacing = (int){spacing};
  const bool fits = {aligned(unit, "out")};
  Index c = block * {THREADS}u + threadIdx.x;
  if (c >= (u32){units}) return;
  const Word at = (Word)c * {lanes};
  u32 any = 0, e[{lanes}] = {{}};
{several}\
{each} any |= e[k] = exponents[at + k];
  if (!any) return;
  Word to = 0;
  {{ Index i = cut(c, {by_width}); {to_place} }}
  {{ Index i = c; {to_column} }}
  Held h = {{take(out + to, fits)}};
{each} {{
    if (!e[k]) continue;
{one}\
    h.p[k] = {numbers.store(dtype, total)};
  }}
  put(out + to, h.u, fits);
""", numbers.conversions(dtype) + unit_type(unit, dtype.itemsize, numbers.memory_type(dtype))
        + _HEAD)
