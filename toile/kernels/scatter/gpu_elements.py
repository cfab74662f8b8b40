"""Floats combined by atomics, with the same bits in any order: for narrow rows, without sorting.

The bits of floats are ordered like integers, in reverse if they are negative, so that extrema are
atomics of integers; NaN becomes the integer that wins against all others.

Sums are exact sums of integers. The largest exponent of an element's updates is found first, then
each update is added as a multiple of a power of two: the smallest for which no sum overflows 63
bits. The rounding of an update depends on this exponent only. In the end, one kernel adds the sums
to the result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.kernels.copy.gpu import fill_launch
from toile.kernels.scatter.gpu_updates import Key, Problem, Reader, arguments, key_of
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner
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
    sums = plan.scratch(12 * n)
    exponents = sums.at(8 * n)
    power = SUM_BITS - p.count.bit_length()
    plan.stage(fill_launch(sums, 12 * n, bytes(4)))
    for mode in ("exponents" if n <= CACHED else "all exponents", "sums"):
        args = arguments(p, exponents, sums, power)
        plan.stage(Launch.over(p.count * p.width, _updates_text(key_of(p, mode)), args,
                               f"scatter_{p.combine}: {mode}"))  # fmt: skip
    units = p.places * p.width
    args = (
        exponents, sums, power, p.out, units, divisor(p.width), *divisors(p.place.shape),
        *p.place.first, *divisors(p.columns.shape), *p.columns.first,
    )  # fmt: skip
    text = _result_text(p.dtype, p.unit, len(p.place.shape), len(p.columns.shape))
    plan.stage(Launch.over(units, text, args, f"scatter_{p.combine}: result"))


# An exponent is that of the bits plus 1, so that 0 means no update; INFINITE is that of infinities
# and NaN, for which the sum holds flags. Numbers of exponent e are below 2^(e - 127), also
# subnormal ones; in units of 2^-digits they are below 2^power, which is at least 2^31: the largest
# one is exact.
_HEAD = """\
const u32 INFINITE = 256;
__device__ inline int digits(u32 e, int power) { return power + 127 - (int)e; }
__device__ inline double two_to(int n) { return __longlong_as_double((i64)(1023 + n) << 52); }
"""

_ACTS = {
    "exponents": "if (exponents[at + k] < mine) atomicMax(exponents + at + k, mine);",
    "all exponents": "atomicMax(exponents + at + k, mine);",
    "sums": """\
const u32 e = exponents[at + k];
    if (e < INFINITE)
      atomicAdd(sums + at + k, (u64)llrint((double)x * two_to(digits(e, power))));
    else if (mine == INFINITE) atomicOr(sums + at + k, x != x ? 4ull : x > 0 ? 1ull : 2ull);""",
}


@lru_cache(maxsize=256)
def _updates_text(key: Key) -> str:
    """Each thread processes a unit of the updates; modes: "exponents", "all exponents", "sums".

    Adding -0 changes no number, not even -0, so that it does not count as an update."""
    r = Reader(key, 3)
    exponents, sums, power = r.own
    lanes = key.unit // key.dtype.itemsize
    return kernel_text(f"""\
{r.start()}\
  u32* exponents = (u32*){exponents};
  u64* sums = (u64*){sums};
  const int power = (int){power};
  Index c = block * {THREADS}u + threadIdx.x;
  const Index row = cut(c, {r.by_width});
  if (row >= count) return;
  {r.place("row")}
  if (b == {r.places}) return;
  const Word at = (b * width + c) * {lanes};
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
""", r.head() + _HEAD)


@lru_cache(maxsize=64)
def _result_text(dtype: Any, unit: int, place: int, columns: int) -> str:
    """Each thread adds the sums to a unit of the result."""
    r = Words()
    exponents, sums, power = r.pointer("const u32"), r.pointer("const u64"), r.one()
    out, units, by_width = r.pointer(), r.one(), r.one()
    axes = [(r.many(n), r.many(n)) for n in (place, columns)]
    to_place, to_column = (decode("i", extents, [("to", steps)]) for extents, steps in axes)
    lanes = unit // dtype.itemsize
    each = f"#pragma unroll\n  for (int k = 0; k < {lanes}; ++k)"
    nan, inf = (numbers.literal(x, dtype, "double") for x in (float("nan"), float("inf")))
    total = f"(float)({numbers.load(dtype, 'h.p[k]')} + more)"
    return kernel_text(f"""\
  const u32* exponents = {exponents};
  const u64* sums = {sums};
  char* out = {out};
  const int power = (int){power};
  const bool fits = {aligned(unit, "out")};
  Index c = block * {THREADS}u + threadIdx.x;
  if (c >= (u32){units}) return;
  const Word at = (Word)c * {lanes};
  u32 any = 0, e[{lanes}];
{each} any |= e[k] = exponents[at + k];
  if (!any) return;
  Word to = 0;
  {{ Index i = cut(c, {by_width}); {to_place} }}
  {{ Index i = c; {to_column} }}
  Held h = {{take(out + to, fits)}};
{each} {{
    if (!e[k]) continue;
    const u64 sum = sums[at + k];
    const double more = e[k] < INFINITE ? (double)(i64)sum * two_to(-digits(e[k], power))
      : sum == 1 ? {inf} : sum == 2 ? -{inf} : {nan};
    h.p[k] = {numbers.store(dtype, total)};
  }}
  put(out + to, h.u, fits);
""", numbers.conversions(dtype) + unit_type(unit, dtype.itemsize, numbers.memory_type(dtype))
        + _HEAD)
