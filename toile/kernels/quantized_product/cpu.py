"""Products of few rows with a matrix of 8-bit or 4-bit numbers, which are converted in registers.

If the summed axis comes first, a chunk is a range of columns of the result. It reads a few rows of
the matrix at a time, from left to right, as memory is read fastest; rows that come next are
prefetched. Its sums are kept in an array that fits into a cache. If the summed axis comes last, a
chunk is a range of rows of the matrix, and a few of them are multiplied at a time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from toile.compiler.ir.operands import Args, Operand
from toile.compiler.passes.quantized_products import FEW, QuantizedProduct
from toile.kernels.copy.cpu import Reader
from toile.kernels.quantized_product import cpu_digits
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.text import Operand as Value
from toile.targets.llvm.text import typed

HELD = 1 << 14  # sums that a chunk keeps: 64 KiB
STEPS = 16  # rows of stored values that are read side by side
WIDE_ENOUGH = 512  # columns of a matrix for one or two rows of x: digits are computed once
MANY = 128  # rows of x up to which products with `cpu_digits` are faster than those of floats
DIRECT = 2  # rows of x up to which `cpu_digits` interleaves stored numbers again for each row
BLOCK = 32  # more rows of x, for which it interleaves them once
STEPS_OF_MANY = {8: 64, 4: 16}  # then, the rows of stored values that are read side by side
LINE = 64  # bytes of a cache line
SERIAL = 1 << 15  # stored bytes below which one thread computes everything
TOGETHER = 4  # rows of a matrix whose products are computed together


class Kind(NamedTuple):
    """What the text of a kernel depends on."""

    bits: int
    signed: bool
    zeros: bool
    rows: int  # of x
    lanes: int  # numbers of a vector
    vectors: int  # vectors of a tile of columns, or rows of the matrix of a tile of rows
    digits: int = 0  # of an input of products that are computed with integers; see `cpu_digits`

    @property
    def corrected(self) -> bool:
        """Whether the stored numbers are larger than the integers that they stand for."""
        return self.zeros or self.bits == 4


def lower(op: QuantizedProduct, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """One launch over tiles of columns of the result."""
    x, *rest = (plan.contiguous(a) for a in ins)
    values, scales, *zeros = rest[op.has_sums:]
    (out,) = outs
    (m, k), n, groups = x.shape, out.shape[1], scales.shape[1 if op.transposed else 0]
    lanes = native.vector_bytes() // 4
    kind = Kind(op.bits, values.dtype.name == "int8", bool(zeros), m, lanes, 1)
    if op.transposed:
        kind = kind._replace(vectors=_at_most(TOGETHER if m < 4 else 2, n))
        text, width, per_chunk = _rows_text(kind), kind.vectors, n
    else:
        kind = _of_columns(kind, _digits(op, m, n), n)
        text = _digits_text(kind) if kind.digits else _columns_text(kind)
        width, per_chunk = kind.lanes * kind.vectors, HELD // kind.rows
    tiles = -(-n // width)
    threads = 1 if values.size < SERIAL else plan.threads
    grain = max(1, min(-(-tiles // threads), per_chunk // width))
    sums = rest[0] if op.has_sums else x  # not read without `has_sums`
    refs = [a.ref for a in (out, x, sums, values, scales, (zeros or [scales])[0])]
    args: Args = (*refs, n, k, op.group, groups, *([m] if kind.digits else []))
    plan.stage(Launch(text, args, tiles, grain, f"int{op.bits} product"))
    return True


def _of_columns(kind: Kind, digits: int, n: int) -> Kind:
    """The kernel for a matrix with n columns whose summed axis comes first."""
    m, lanes, free = kind.rows, kind.lanes, 16 if kind.lanes == 16 else 8  # registers for sums
    width = lanes * (4 if m <= free // 4 else 2 if m <= free // 2 else 1)
    if digits:
        width, m = cpu_digits.WIDTH, m if m <= DIRECT else BLOCK
    while width > n:
        width //= 2
    lanes = min(lanes, width)
    return kind._replace(rows=m, lanes=lanes, vectors=width // lanes, digits=digits)


def most_rows() -> int:
    """How many rows x may have if the matrix is not transposed.

    Instructions that multiply bfloat16 numbers are faster if a number is used for many rows."""
    return MANY if cpu_digits.instruction() and not native.has("avx512bf16") else FEW


def _digits(op: QuantizedProduct, m: int, n: int) -> int:
    """How many digits the inputs have; 0 if products are computed with floats.

    Where reading memory takes longer than converting 8-bit numbers, floats are as fast."""
    pays = m > FEW or (op.bits == 4 and m <= DIRECT and n >= WIDE_ENOUGH)
    if not pays or n < cpu_digits.WIDTH or not cpu_digits.instruction():
        return 0
    return 2 if op.short else 3


def _at_most(most: int, n: int) -> int:
    return most if n >= most else 1


class _Writer:
    """Writes the parts that both kernels have."""

    def __init__(self, f: ir.Function, kind: Kind):
        self.f, self.kind = f, kind
        self.vector = typed("float", kind.lanes)
        self.words = typed("i32", kind.lanes)

    def numbers(self, place: str) -> list[str]:
        """The numbers in a vector of bytes: one vector, or (4 bits) the low and the high ones."""
        f, kind, lanes = self.f, self.kind, self.kind.lanes
        stored = f.load(typed("i8", lanes), place, 1)
        how = "sext" if kind.signed else "zext"
        words = f.value(f"{how} {typed('i8', lanes)} {stored} to {self.words}")
        found = [words]
        if kind.bits == 4:
            low = f.value(f"and {self.words} {words}, {ir.constant(15, lanes)}")
            found = [low, f.value(f"lshr {self.words} {words}, {ir.constant(4, lanes)}")]
        return [f.value(f"sitofp {self.words} {x} to {self.vector}") for x in found]

    def number(self, place: str) -> str:
        """The float32 at an address."""
        return self.f.load("float", place, 4)

    def spread(self, value: str) -> str:
        return self.f.splat("float", value, self.kind.lanes)

    def multiply(self, a: str, b: str) -> str:
        return self.f.value(f"fmul {self.vector} {a}, {b}")

    def add_product(self, slot: str, a: str, b: str) -> None:
        """Add a product to a variable."""
        f = self.f
        total = f.load(self.vector, slot)
        f.store(self.vector, f.multiply_add(a, b, total, "float", self.kind.lanes), slot)

    def sums(self, starts: list[list[str]]) -> list[list[str]]:
        """Variables for the sums of each row of x and each vector."""
        return [[self.f.variable(self.vector, start) for start in row] for row in starts]

    def add_products(self, sums: list[list[str]], factors: list[list[str]], places: list[str]
                     ) -> None:
        """Add the products of vectors of stored numbers with the factors of each row of x."""
        for v, place in enumerate(places):
            for p, numbers in enumerate(self.numbers(place)):
                for row, factor in zip(sums, factors, strict=True):
                    self.add_product(row[v], factor[p], numbers)

    def add_scaled(self, sums: list[list[str]], scales: list[str], to: str, stride: int) -> None:
        """Add the scaled sums to an array, where vectors are `stride` numbers apart."""
        f, count = self.f, len(scales)
        for v, scale in enumerate(scales):
            for m, row in enumerate(sums):
                place = f.at(to, (m * count + v) * stride, "float")
                total = f.multiply_add(scale, f.load(self.vector, row[v]),
                                       f.load(self.vector, place, 4), "float", self.kind.lanes)
                f.store(self.vector, total, place, 4)

    def starts(self, offsets: list[str], factors: list[str]) -> list[list[str]]:
        """The first values of sums: products of the offsets of vectors and factors of rows."""
        zero = "zeroinitializer" if self.kind.lanes > 1 else "0.0"
        if not offsets:
            return [[zero] * self.kind.vectors for _ in range(self.kind.rows)]
        return [[self.multiply(factor, offset) for offset in offsets] for factor in factors]

    def offset(self, place: str, lanes: int) -> str:
        """What is subtracted from stored numbers: zeros from an address on, or 8."""
        if self.kind.zeros:
            return self.f.load(typed("float", lanes), place, 4)
        return self.spread("8.0") if lanes > 1 else "8.0"


def _negative_sum(f: ir.Function, sums: str, index: str | int) -> str:
    return f.value(f"fneg float {f.load('float', f.at(sums, index, 'float'), 4)}")


@lru_cache(maxsize=64)
def _columns_text(kind: Kind) -> str:
    """Tiles [lo, hi) of columns; the last tile of all overlaps the one before it.

    Arguments: refs of the result, x, sums (which are computed here instead), values, scales, zeros;
    n, k, group, groups."""
    f, tile, sum_ = ir.kernel(), _tile_function(kind), _sum_function()
    r = Reader(f)
    out, x, _, values, scales, zeros = (r.buffer() for _ in range(6))
    n, k, group, groups = r.many(4)
    width, per_row = kind.lanes * kind.vectors, 8 // kind.bits
    held, sums = f.alloca("float", HELD, 64), f.alloca("float", kind.rows, 64)
    room = f.mul(f.mul(f.sub("%hi", "%lo"), width), kind.rows)
    f.do(f"call void @llvm.memset.p0.i64(ptr {held}, i8 0, i64 {f.mul(room, 4)}, i1 false)")
    last = f.sub(n, width)
    rows, step = f.udiv(k, per_row), f.udiv(group, per_row)
    with f.loop(0, groups, vectorize=False) as g:
        first = f.mul(g, step)
        end = f.smin(f.add(first, step), rows)
        place = f.mul(g, n)
        if kind.corrected:
            start = f.mul(g, group)
            terms = f.smin(f.sub(k, start), group)
            for m in range(kind.rows):
                row = f.at(x, f.add(f.mul(m, k), start), "float")
                f.call(sum_, f.at(sums, m, "float"), row, terms)
        with f.loop(first, end, STEPS, vectorize=False) as row:
            count = f.smin(f.sub(end, row), STEPS)
            begins = f.select(f.compare("eq", row, first), 1, 0)
            # The rows that are read next, in this group or in the next one.
            ahead = f.mul(f.smin(count, f.sub(f.sub(rows, row), count)), n)
            with f.loop("%lo", "%hi", vectorize=False) as t:
                j = f.smin(f.mul(t, width), last)
                at = f.add(place, j)
                f.call(tile, f.at(held, f.mul(f.sub(t, "%lo"), width * kind.rows), "float"),
                       f.at(x, f.mul(row, per_row), "float"), sums,
                       f.at(values, f.add(f.mul(row, n), j), "i8"), f.at(scales, at, "float"),
                       f.at(zeros, at, "float"), count, n, k, begins, ahead)
    _store_held(f, kind, kind.rows, held, out, n)
    return ir.module(*([tile, sum_] if kind.corrected else [tile]), f)


def _store_held(f: ir.Function, kind: Kind, rows: Value, held: str, out: str, n: str) -> None:
    """Store `rows` of the sums of tiles [lo, hi)."""
    vector, width = typed("float", kind.lanes), kind.lanes * kind.vectors
    with f.loop("%lo", "%hi", vectorize=False) as t:
        source = f.at(held, f.mul(f.sub(t, "%lo"), width * kind.rows), "float")
        to = f.at(out, f.smin(f.mul(t, width), f.sub(n, width)), "float")
        with f.loop(0, rows, vectorize=False) as m:
            for v in range(kind.vectors):
                own = f.at(f.at(source, f.mul(m, width), "float"), v * kind.lanes, "float")
                place = f.at(f.at(to, f.mul(m, n), "float"), v * kind.lanes, "float")
                f.store(vector, f.load(vector, own, 4), place, 4)


@lru_cache(maxsize=64)
def _digits_text(kind: Kind) -> str:
    """The kernel of `_columns_text` for processors that multiply 8-bit integers.

    There is another argument, the number of rows of x. They are divided into blocks of as many
    rows as `kind` has."""
    many = kind.rows > DIRECT
    steps = STEPS_OF_MANY[kind.bits] if many else STEPS
    span = cpu_digits.Span(kind.bits, steps, kind.digits)
    together, single = min(kind.rows, 2), kind._replace(rows=1)
    offset = 128 * kind.signed + 8 * (kind.bits == 4 and not kind.zeros)
    digits_of = cpu_digits.digits_function(span, offset)
    whole = cpu_digits.tile_function(span, together, kind.signed, kind.zeros, many)
    words_of = [cpu_digits.words_function(span, kind.signed)] if many else []
    f, tile, sum_ = ir.kernel(), _tile_function(single), _sum_function()
    r = Reader(f)
    out, x, _, values, scales, zeros = (r.buffer() for _ in range(6))
    n, k, group, groups, count_m = r.many(5)
    width, per_tile = cpu_digits.WIDTH, cpu_digits.WIDTH * kind.rows
    held, sums, fits = f.alloca("float", HELD, 64), f.alloca("float"), f.alloca("i64")
    digits, words = (f.alloca("i8", size, 64) for size in (
        span.size * kind.rows, span.terms * width if many else 1))
    info = f.alloca("i32", cpu_digits.INFO * kind.rows, 64)
    last = f.sub(n, width)
    all_rows, step = f.udiv(k, span.parts), f.udiv(group, span.parts)

    def places(t: str, row: str, g: str) -> list[str]:
        """The sums, values, scales and zeros of a tile."""
        j = f.smin(f.mul(t, width), last)
        at = f.add(f.mul(g, n), j)
        return [f.at(held, f.mul(f.sub(t, "%lo"), per_tile), "float"),
                f.at(values, f.add(f.mul(row, n), j), "i8"), f.at(scales, at, "float"),
                f.at(zeros, at, "float")]

    with f.loop(0, count_m, kind.rows, vectorize=False) as block:
        rows = f.smin(f.sub(count_m, block), kind.rows)
        size = f.mul(f.sub("%hi", "%lo"), 4 * per_tile)
        f.do(f"call void @llvm.memset.p0.i64(ptr {held}, i8 0, i64 {size}, i1 false)")
        with f.loop(0, groups, vectorize=False) as g:
            first = f.mul(g, step)
            end = f.smin(f.add(first, step), all_rows)
            with f.loop(first, end, span.rows, vectorize=False) as row:
                count = f.smin(f.sub(end, row), span.rows)
                ahead = f.mul(f.smin(count, f.sub(f.sub(all_rows, row), count)), n)
                start = f.mul(row, span.parts)
                terms = f.smin(f.mul(count, span.parts), f.sub(k, start))
                inputs = f.at(x, f.add(f.mul(block, k), start), "float")
                f.store("i64", 1, fits)
                with f.loop(0, rows, vectorize=False) as m:
                    own = f.value(
                        f"call i64 @digits(ptr {f.at(digits, f.mul(m, span.size), 'i8')}, "
                        f"ptr {f.at(info, f.mul(m, cpu_digits.INFO), 'i32')}, "
                        f"ptr {f.at(inputs, f.mul(m, k), 'float')}, i64 {terms})")
                    f.store("i64", f.value(f"and i64 {f.load('i64', fits)}, {own}"), fits)
                exact = f.compare("ne", f.load("i64", fits), 0)
                with f.when(exact), f.loop("%lo", "%hi", vectorize=False) as t:
                    to, own, scale, zero = places(t, row, g)
                    for function in words_of:
                        f.call(function, words, own, count, n, ahead)
                        own = words
                    # The last two rows may contain one that is not part of x and is not stored.
                    with f.loop(0, rows, together, vectorize=False) as m:
                        f.call(whole, f.at(to, f.mul(m, width), "float"),
                               f.at(digits, f.mul(m, span.size), "i8"),
                               f.at(info, f.mul(m, cpu_digits.INFO), "i32"), own, scale, zero,
                               count, n, ahead)
                with f.unless(exact), f.loop("%lo", "%hi", vectorize=False) as t:
                    to, own, scale, zero = places(t, row, g)
                    with f.loop(0, rows, vectorize=False) as m:
                        source = f.at(inputs, f.mul(m, k), "float")
                        if kind.corrected:
                            f.call(sum_, sums, source, terms)
                        f.call(tile, f.at(to, f.mul(m, width), "float"), source, sums, own, scale,
                               zero, count, n, k, 1, 0)
        _store_held(f, kind, rows, held, f.at(out, f.mul(block, n), "float"), n)
    return ir.module(digits_of, whole, *words_of, tile, *([sum_] if kind.corrected else []), f)


def _sum_function() -> ir.Function:
    """to = the sum of some numbers."""
    f = ir.inner("sum", "ptr noalias %to, ptr noalias %x, i64 %count", ir.NOINLINE)
    total = f.variable("float", "0.0")
    with f.loop(0, "%count", vectorize=True) as i:
        value = f.load("float", f.at("%x", i, "float"), 4)
        f.store("float", f.value(f"fadd reassoc float {f.load('float', total)}, {value}"), total)
    f.store("float", f.load("float", total), "%to", 4)
    return f


def _tile_function(kind: Kind) -> ir.Function:
    """held += scales (x values - zeros sums) for some rows of one group and a tile of columns.

    The sums are only taken into account if `begins` is 1. Rows `ahead` bytes are prefetched."""
    f = ir.inner(
        "tile", "ptr noalias %held, ptr noalias %x, ptr noalias %sums, ptr noalias %values, "
        "ptr noalias %scales, ptr noalias %zeros, i64 %count, i64 %n, i64 %k, i64 %begins, "
        "i64 %ahead", ir.NOINLINE)
    w, lanes, pairs = _Writer(f, kind), kind.lanes, 8 // kind.bits
    offsets, products = [], []
    columns = [v * lanes for v in range(kind.vectors)]
    if kind.corrected:
        counts = f.value("uitofp i64 %begins to float")
        offsets = [w.offset(f.at("%zeros", j, "float"), lanes) for j in columns]
        negative = (_negative_sum(f, "%sums", m) for m in range(kind.rows))
        products = [w.spread(f.value(f"fmul float {x}, {counts}")) for x in negative]
    sums = w.sums(w.starts(offsets, products))
    with f.loop(0, "%count", vectorize=False) as i:
        at = f.at("%values", f.mul(i, "%n"), "i8")
        for byte in range(0, lanes * kind.vectors, LINE):
            place = f.offset(f.offset(at, "%ahead"), byte)
            f.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
        first = f.mul(i, pairs)
        factors = [[w.spread(w.number(f.at("%x", f.add(f.mul(m, "%k"), f.add(first, p)), "float")))
                    for p in range(pairs)] for m in range(kind.rows)]
        w.add_products(sums, factors, [f.at(at, j, "i8") for j in columns])
    scales = [f.load(w.vector, f.at("%scales", j, "float"), 4) for j in columns]
    w.add_scaled(sums, scales, "%held", lanes)
    return f


@lru_cache(maxsize=64)
def _rows_text(kind: Kind) -> str:
    """Tiles [lo, hi) of rows of the matrix; the last tile of all overlaps the one before it.

    Arguments: those of `_columns_text`."""
    f = ir.kernel()
    r = Reader(f)
    out, x, sums, values, scales, zeros = (r.buffer() for _ in range(6))
    n, k, group, groups = r.many(4)
    pairs = 8 // kind.bits
    bytes_, step = f.udiv(k, pairs), f.udiv(group, pairs)
    parts = [_dot_function(kind, lanes) for lanes in dict.fromkeys((kind.lanes, 1))]
    count = kind.rows * kind.vectors * kind.lanes
    totals = f.alloca("float", count, 64)
    last = f.sub(n, kind.vectors)
    with f.loop("%lo", "%hi", vectorize=False) as t:
        j = f.smin(f.mul(t, kind.vectors), last)
        f.do(f"call void @llvm.memset.p0.i64(ptr {totals}, i8 0, i64 {4 * count}, i1 false)")
        row, own = f.at(values, f.mul(j, bytes_), "i8"), f.mul(j, groups)
        with f.loop(0, groups, vectorize=False) as g:
            first = f.mul(g, step)
            end = f.smin(f.add(first, step), bytes_)
            at = f.add(own, g)
            whole = f.mul(f.udiv(f.sub(end, first), kind.lanes), kind.lanes)
            middle = f.add(first, whole)
            ends = [(first, middle), (middle, end)] if len(parts) == 2 else [(first, end)]
            for function, (lo, hi) in zip(parts, ends, strict=True):
                f.call(function, totals, x, f.at(sums, g, "float"), row,
                       f.at(scales, at, "float"), f.at(zeros, at, "float"), lo, hi, bytes_, k,
                       groups)
        for m in range(kind.rows):
            for v in range(kind.vectors):
                place = f.at(totals, (m * kind.vectors + v) * kind.lanes, "float")
                value = f.load(typed("float", kind.lanes), place, 4)
                if kind.lanes > 1:
                    value = f.value(f"call reassoc float @llvm.vector.reduce.fadd.v{kind.lanes}f32("
                                    f"float 0.0, {typed('float', kind.lanes)} {value})")
                place = f.at(f.at(out, f.add(f.mul(m, n), j), "float"), v, "float")
                f.store("float", value, place, 4)
    return ir.module(*parts, f)


def _dot_function(kind: Kind, lanes: int) -> ir.Function:
    """totals += scales (x values - zeros sums) for bytes [lo, hi) of a group, of a few rows.

    A total is a vector, whose elements are added up at the end."""
    f = ir.inner(
        f"dot{lanes}", "ptr noalias %totals, ptr noalias %x, ptr noalias %sums, "
        "ptr noalias %values, ptr noalias %scales, ptr noalias %zeros, i64 %lo, i64 %hi, "
        "i64 %bytes, i64 %k, i64 %groups", ir.NOINLINE)
    w, pairs = _Writer(f, kind._replace(lanes=lanes)), 8 // kind.bits
    offsets, products = [], []
    of_rows = [f.mul(v, "%groups") for v in range(kind.vectors)]
    if kind.corrected and lanes == 1:
        offsets = [w.offset(f.at("%zeros", at, "float"), 1) for at in of_rows]
        products = [_negative_sum(f, "%sums", f.mul(m, "%groups")) for m in range(kind.rows)]
    sums = w.sums(w.starts(offsets, products))
    with f.loop("%lo", "%hi", lanes, vectorize=False) as i:
        parts = [f.add(f.mul(p, "%bytes"), i) for p in range(pairs)]
        factors = [[f.load(w.vector, f.at("%x", f.add(f.mul(m, "%k"), part), "float"), 4)
                    for part in parts] for m in range(kind.rows)]
        w.add_products(sums, factors, [f.at("%values", f.add(f.mul(v, "%bytes"), i), "i8")
                                       for v in range(kind.vectors)])
    scales = [w.spread(w.number(f.at("%scales", at, "float"))) for at in of_rows]
    w.add_scaled(sums, scales, "%totals", kind.lanes)
    return f
