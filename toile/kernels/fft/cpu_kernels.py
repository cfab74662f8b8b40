"""The kernels of Fourier transforms on the CPU: see `cpu` for what they compute together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from toile.kernels.copy.cpu import Reader, decode
from toile.kernels.fft.cpu_passes import Pair, Vectors, pass_function, passes
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.elements import transposed


class VectorType(NamedTuple):
    """The types of a kernel: numbers ("float" or "double"), and how many are in a vector."""

    type: str
    lanes: int

    @classmethod
    def of(cls, dtype: Any) -> VectorType:
        """The types for a complex dtype."""
        size = dtype.itemsize // 2
        return cls("float" if size == 4 else "double", native.vector_bytes() // size)


@lru_cache(maxsize=256)
def kernel_text(
    how: VectorType, n: int, loads: str, stores: str, real: str, powers: bool, rank: int
) -> str:
    """Units are blocks of signals: see `_launch` for the arguments."""
    f = ir.kernel()
    v = Vectors(f, how.type, how.lanes)
    functions = [pass_function(how.type, how.lanes, one) for one in passes(n)]
    r = Reader(f)
    x, out, scratch, factors = (r.buffer() for _ in range(4))
    tables = [r.buffer() for _ in range(3 * powers or bool(real))]
    low = r.one() if powers else ""
    count, blocks, grain, bytes, inverse, scale = r.many(6)
    (lane_in, step_in), (lane_out, step_out) = r.many(2), r.many(2)
    extents, ins, outs = (r.many(rank) for _ in range(3))
    # Real parts are the second vectors of elements where the inverse is computed.
    second = f.mul(inverse, v.plane)
    planes = (second, f.sub(v.plane, second))
    one = f.step(scratch, f.udiv("%lo", grain), f.mul(bytes, 2))
    two = f.offset(one, bytes)
    factor = f.value(f"bitcast i64 {scale} to double")
    if how.type == "float":
        factor = f.value(f"fptrunc double {factor} to float")
    load, store = _loader(how, loads), _storer(how, stores)

    def root(k: str) -> Pair:
        """The factor that splits or merges number k of a spectrum."""
        return v.factor(f.step(tables[0], k, 2 * v.size))

    with f.loop("%lo", "%hi") as unit:
        outer, block = f.divided(unit, blocks)
        first = f.mul(block, how.lanes)
        used = f.smin(f.sub(count, first), how.lanes)
        given, taken = decode(f, outer, extents, ins, outs)
        source = f.offset(x, f.add(given, f.mul(first, lane_in)))
        target = f.offset(out, f.add(taken, f.mul(first, lane_out)))
        if real == "merge":
            f.call(load, source, two, n + 1, lane_in, step_in, used, 0, v.plane)
            _merge(v, two, one, root, n, planes)
        else:
            f.call(load, source, one, n, lane_in, step_in, used, *planes)
        result, other = one, two
        for function in functions:
            f.call(function, result, other, factors)
            result, other = other, result
        if powers:
            _apply_powers(v, result, n, tables, low, first)
        kept = n
        if real == "split":
            _split(v, result, other, root, n)
            result, kept = other, n + 1
        f.call(store, result, target, kept, lane_out, step_out, used, *planes, factor)
    return ir.module(*functions, load, store, f)


def _apply_powers(
    v: Vectors, buffer: str, n: int, tables: list[str], low: str, first: str
) -> None:
    """Multiply element k of the columns from `first` on by a root of unity to the power of k times
    the column: see `_powers`."""
    f = v.f
    inside, high, lower = tables
    with f.loop(0, n) as k:
        turned = v.multiply(v.load(v.at(inside, k)), _root(v, high, lower, low, f.mul(k, first)))
        place = v.at(buffer, k)
        v.store(v.multiply(v.load(place), turned), place)


def _root(v: Vectors, high: str, lower: str, low: str, power: str) -> Pair:
    """A power of a root of unity in every lane, from two tables: see `_roots`."""
    f, whole = v.f, Vectors(v.f, "double", 1)
    over, under = f.divided(power, low)
    w = whole.multiply(whole.factor(f.step(high, over, 16)), whole.factor(f.step(lower, under, 16)))
    if v.scalar == "float":
        w = (f.value(f"fptrunc double {w[0]} to float"),
             f.value(f"fptrunc double {w[1]} to float"))
    return f.splat(v.scalar, w[0], v.lanes), f.splat(v.scalar, w[1], v.lanes)


def _split(v: Vectors, z: str, x: str, root: Callable[[str], Pair], n: ir.Operand) -> None:
    """The spectrum of a real signal; `z` is the transform of its pairs of numbers."""
    f = v.f
    a, b = v.load(z)
    zero, half = v.number(0.0), v.number(0.5)
    t = v.type
    v.store((f.value(f"fadd {t} {a}, {b}"), zero), x)
    v.store((f.value(f"fsub {t} {a}, {b}"), zero), v.at(x, n))
    with f.loop(1, n) as k:
        even, odd = _halves_of(v, v.load(v.at(z, k)), v.load(v.at(z, f.sub(n, k))))
        odd = v.times_minus_i(odd)
        v.store(v.scaled(v.add(even, v.multiply(odd, root(k))), half), v.at(x, k))


def _merge(
    v: Vectors, x: str, z: str, root: Callable[[str], Pair], n: ir.Operand, planes: tuple[str, str]
) -> None:
    """The reverse of `_split`, times 2, with the parts of the results in `planes`."""
    f = v.f
    a, b = v.load(x)[0], v.load(v.at(x, n))[0]
    t = v.type

    def store(value: Pair, place: str) -> None:
        for part, plane in zip(value, planes, strict=True):
            f.store(t, part, f.offset(place, plane), v.size)

    store((f.value(f"fadd {t} {a}, {b}"), f.value(f"fsub {t} {a}, {b}")), z)
    with f.loop(1, n) as k:
        even, odd = _halves_of(v, v.load(v.at(x, k)), v.load(v.at(x, f.sub(n, k))))
        real, imaginary = root(k)
        odd = v.multiply(odd, (real, v.negated(imaginary)))
        store(v.add(even, (v.negated(odd[1]), odd[0])), v.at(z, k))


def _halves_of(v: Vectors, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """a + conj(b) and a - conj(b)."""
    f, t = v.f, v.type
    return ((f.value(f"fadd {t} {a[0]}, {b[0]}"), f.value(f"fsub {t} {a[1]}, {b[1]}")),
            (f.value(f"fsub {t} {a[0]}, {b[0]}"), f.value(f"fadd {t} {a[1]}, {b[1]}")))


# ------------------------------------------------------------------------------- loads and stores

_MOVE = ("ptr noalias %in, ptr noalias %out, i64 %n, i64 %lane, i64 %step, i64 %used, i64 %real, "
         "i64 %imaginary")


def _loader(how: VectorType, mode: str) -> ir.Function:
    """Loads signals into a buffer: `lane` and `step` are strides in bytes in memory."""
    f = ir.inner("load", _MOVE, ir.NOINLINE)
    v = Vectors(f, how.type, how.lanes)
    whole = f.compare("eq", "%used", how.lanes)
    with f.when(whole):
        if mode == "lanes":
            with f.loop(0, "%n") as k:
                _deinterleave(v, f.step("%in", k, "%step"), v.at("%out", k))
        else:
            _transpose_in(v)
    with f.unless(whole):
        with f.loop(0, f.mul("%n", 2 * how.lanes)) as i:
            f.store(how.type, "0.0", f.at("%out", i, how.type), v.size)
        with f.loop(0, "%used") as j, f.loop(0, "%n") as k:
            _move_in(v, j, k)
    return f


def _move_in(v: Vectors, j: str, k: str) -> None:
    """Load one number of one lane."""
    f = v.f
    source = f.offset("%in", f.add(f.mul(j, "%lane"), f.mul(k, "%step")))
    place = f.at(v.at("%out", k), j, v.scalar)
    for i, plane in enumerate(("%real", "%imaginary")):
        value = f.load(v.scalar, f.offset(source, i * v.size), v.size)
        f.store(v.scalar, value, f.offset(place, plane), v.size)


def _move_out(v: Vectors, j: str, k: str) -> None:
    """Store one number of one lane."""
    f = v.f
    target = f.offset("%out", f.add(f.mul(j, "%lane"), f.mul(k, "%step")))
    place = f.at(v.at("%in", k), j, v.scalar)
    for i, plane in enumerate(("%real", "%imaginary")):
        value = f.load(v.scalar, f.offset(place, plane), v.size)
        value = f.value(f"fmul {v.scalar} {value}, %scale")
        f.store(v.scalar, value, f.offset(target, i * v.size), v.size)


def _mask(places: Any) -> str:
    places = list(places)
    return f"<{len(places)} x i32> <{', '.join(f'i32 {p}' for p in places)}>"


def _deinterleave(v: Vectors, source: str, place: str) -> None:
    """Load one element: the numbers of neighboring lanes."""
    f, t = v.f, v.type
    a, b = (f.load(t, f.offset(source, k * v.plane), v.size) for k in range(2))
    for first, plane in ((0, "%real"), (1, "%imaginary")):
        part = f.value(f"shufflevector {t} {a}, {t} {b}, {_mask(range(first, 2 * v.lanes, 2))}")
        f.store(t, part, f.offset(place, plane), v.size)


def _interleave(v: Vectors, place: str, target: str) -> None:
    """The reverse of `_deinterleave`."""
    f, t = v.f, v.type
    a, b = (f.load(t, f.offset(place, plane), v.size) for plane in ("%real", "%imaginary"))
    factor = f.splat(v.scalar, "%scale", v.lanes)
    a, b = (f.value(f"fmul {t} {part}, {factor}") for part in (a, b))
    for half in range(2):
        places = (k + v.lanes * part for k in range(half * v.lanes // 2, (half + 1) * v.lanes // 2)
                  for part in range(2))
        value = f.value(f"shufflevector {t} {a}, {t} {b}, {_mask(places)}")
        f.store(t, value, f.offset(target, half * v.plane), v.size)


def _transpose_in(v: Vectors) -> None:
    """Load all numbers of all lanes: a vector from a row has the parts of half as many numbers as
    there are lanes, and the transpose of a block of rows has a vector for each part."""
    f = v.f
    block = v.lanes // 2
    blocked = f.sub("%n", f.urem("%n", block))
    with f.loop(0, blocked, block) as k:
        corner = f.offset("%in", f.mul(k, 2 * v.size))
        rows = [f.load(v.type, f.step(corner, "%lane", i), v.size) for i in range(v.lanes)]
        for i, part in enumerate(transposed(f, rows, v.type)):
            place = v.at("%out", f.add(k, i // 2))
            f.store(v.type, part, f.offset(place, ("%real", "%imaginary")[i % 2]), v.size)
    with f.loop(0, v.lanes) as j, f.loop(blocked, "%n") as k:
        _move_in(v, j, k)


def _transpose_out(v: Vectors) -> None:
    """The reverse of `_transpose_in`."""
    f = v.f
    block = v.lanes // 2
    blocked = f.sub("%n", f.urem("%n", block))
    factor = f.splat(v.scalar, "%scale", v.lanes)
    with f.loop(0, blocked, block) as k:
        parts = []
        for i in range(v.lanes):
            place = v.at("%in", f.add(k, i // 2))
            part = f.load(v.type, f.offset(place, ("%real", "%imaginary")[i % 2]), v.size)
            parts.append(f.value(f"fmul {v.type} {part}, {factor}"))
        corner = f.offset("%out", f.mul(k, 2 * v.size))
        for i, row in enumerate(transposed(f, parts, v.type)):
            f.store(v.type, row, f.step(corner, "%lane", i), v.size)
    with f.loop(0, v.lanes) as j, f.loop(blocked, "%n") as k:
        _move_out(v, j, k)


def _storer(how: VectorType, mode: str) -> ir.Function:
    """The reverse of `_loader`."""
    f = ir.inner("store", f"{_MOVE}, {how.type} %scale", ir.NOINLINE)
    v = Vectors(f, how.type, how.lanes)
    whole = f.compare("eq", "%used", how.lanes)
    with f.when(whole):
        if mode == "lanes":
            with f.loop(0, "%n") as k:
                _interleave(v, v.at("%in", k), f.step("%out", k, "%step"))
        else:
            _transpose_out(v)
    with f.unless(whole), f.loop(0, "%used") as j, f.loop(0, "%n") as k:
        _move_out(v, j, k)
    return f


# ------------------------------------------------------------------------------------ small kernels


@cache
def multiply_text(type: str) -> str:
    """Rows times a table: see `_multiply` in `cpu`."""
    f = ir.kernel()
    v, r = Vectors(f, type, 1), Reader(f)
    x, out, table = (r.buffer() for _ in range(3))
    n, width, used = r.many(3)
    with f.loop("%lo", "%hi") as row:
        source, target = v.at(x, f.mul(row, width)), v.at(out, f.mul(row, n))
        with f.loop(0, used) as k:
            v.store(v.multiply(v.load(v.at(source, k)), v.load(v.at(table, k))), v.at(target, k))
        with f.loop(used, n) as k:
            v.store(("0.0", "0.0"), v.at(target, k))
    return ir.module(f)


@cache
def halves_text(type: str, real: str) -> str:
    """`_split` or `_merge` for rows in memory."""
    f = ir.kernel()
    v, r = Vectors(f, type, 1), Reader(f)
    x, out, high, lower, low, n = *(r.buffer() for _ in range(4)), *r.many(2)
    root, more = partial(_root, v, high, lower, low), f.add(n, 1)
    with f.loop("%lo", "%hi") as row:
        if real == "split":
            _split(v, v.at(x, f.mul(row, n)), v.at(out, f.mul(row, more)), root, n)
        else:
            _merge(v, v.at(x, f.mul(row, more)), v.at(out, f.mul(row, n)), root, n,
                   ("0", str(v.size)))
    return ir.module(f)


@cache
def parts_text(type: str) -> str:
    """Complex numbers from their real parts."""
    f = ir.kernel()
    v, r = Vectors(f, type, 1), Reader(f)
    x, out = r.buffer(), r.buffer()
    with f.loop("%lo", "%hi") as i:
        v.store((f.load(type, f.at(x, i, type), v.size), "0.0"), v.at(out, i))
    return ir.module(f)


@cache
def mirror_text(type: str) -> str:
    """Whole spectra of odd length from their first halves."""
    f = ir.kernel()
    v, r = Vectors(f, type, 1), Reader(f)
    x, out, n = r.buffer(), r.buffer(), r.one()
    half = f.udiv(f.add(n, 1), 2)
    with f.loop("%lo", "%hi") as row:
        source, target = v.at(x, f.mul(row, half)), v.at(out, f.mul(row, n))
        real, _ = v.load(source)
        v.store((real, "0.0"), target)
        with f.loop(1, half) as k:
            real, imaginary = v.load(v.at(source, k))
            v.store((real, imaginary), v.at(target, k))
            v.store((real, v.negated(imaginary)), v.at(target, f.sub(n, k)))
    return ir.module(f)
