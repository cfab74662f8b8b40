"""Fourier transforms on the CPU: many signals at once, each in a lane of the vectors.

A unit of a launch loads some signals into the lanes of a buffer, runs the passes (`cpu_passes`) and
stores the result. Along an axis that is not the last one, neighbors in memory are lanes; along the
last one, blocks are transposed while they are loaded and stored. A few long signals become many
short ones: a signal of n1 n2 numbers is a matrix, whose columns are transformed, multiplied by
powers of a root of unity, and whose rows are transformed then. Signals whose length has a large
prime factor are convolutions with a chirp (Bluestein). A real signal of even length is a complex
one of half the length. The inverse of a transform is the transform with real and imaginary parts
exchanged before and after.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.geometry import collapse, dense, permuted, room
from toile.compiler.ir.operands import Args, Operand, Ref
from toile.engine import dtypes
from toile.kernels.copy.cpu import Reader, decode
from toile.kernels.fft.cpu_passes import (
    Pair,
    Vectors,
    factors,
    pass_function,
    passes,
    roots,
    table,
)
from toile.primitives.fft import FftType
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.elements import transposed
from toile.targets.llvm.launches import Launch

_DIRECT = 8192  # the longest signal that is transformed in the lanes of one buffer
_SHORT = 256  # the longest one for which empty lanes cost less than a division
_BLOCK = 8
_CHUNK_NS = 5_000.0  # that a chunk should take at least


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Fft."""
    (x,), (out,) = ins, outs
    kind, lengths = op.fft_type, op.fft_lengths
    if not x.size or not lengths:
        return False
    rank = len(out.shape)
    last, others = rank - 1, range(rank - len(lengths), rank - 1)
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    if kind is FftType.IRFFT:
        for axis in others:
            made = room(plan, x.shape, x.dtype) if axis == others[0] else x
            _transform(plan, x, made, axis, True)
            x = made
        _to_real(plan, x, out, lengths[-1])
        return True
    if kind is FftType.RFFT:
        _from_real(plan, x, out, lengths[-1])
    else:
        _transform(plan, x, out, last, inverse)
    for axis in others:
        _transform(plan, out, out, axis, inverse)
    return True


# ------------------------------------------------------------------------------------------ planning


class _Lanes(NamedTuple):
    """The types of a kernel: numbers ("float" or "double"), and how many are in a vector."""

    type: str
    lanes: int

    @classmethod
    def of(cls, dtype: Any) -> _Lanes:
        """The types for a complex dtype."""
        size = dtype.itemsize // 2
        return cls("float" if size == 4 else "double", native.vector_bytes() // size)


class _Step(NamedTuple):
    """What one kernel does besides a transform along one axis."""

    inverse: bool
    scale: float = 1.0
    real: str = ""  # "split": numbers of a real signal's spectrum; "merge": the reverse
    columns: int = 0  # of the matrix that is a long signal; results are multiplied by roots


def _transform(plan: Any, x: Operand, out: Operand, axis: int, inverse: bool) -> None:
    """The complex transform along an axis, with the inverse divided by the length."""
    n = x.shape[axis]
    step = _Step(inverse, 1 / n if inverse else 1.0)
    lanes = _lanes_of(x, out, axis)
    if lanes is not None and _is_direct(plan, n, lanes.count, x):
        _launch(plan, x, out, axis, step, lanes)
    elif axis == len(x.shape) - 1:
        _rows(plan, plan.contiguous(x), out, step)
    else:  # the axis becomes the last one
        order = (*(d for d in range(len(x.shape)) if d != axis), axis)
        moved = room(plan, [x.shape[d] for d in order], x.dtype)
        seen = permuted(moved, [order.index(d) for d in range(len(order))])
        plan.copy(seen, x)
        _rows(plan, moved, moved, step)
        plan.copy(out, seen)


class _Signals(NamedTuple):
    """The signals along an axis: which are lanes, and where the others are.

    Strides count elements: of the source, then of the target."""

    count: int
    lanes: tuple[int, int]
    outer: list[int]
    strides: list[list[int]]


def _lanes_of(x: Operand, out: Operand, axis: int) -> _Signals | None:
    """The axis whose signals are lanes: one whose numbers are neighbors in memory, or, if numbers
    of a signal are neighbors, the longest. None if there is none on either side."""
    others = [d for d in range(len(x.shape)) if d != axis]
    shape, strides = collapse([x.shape[d] for d in others],
                              *([a.strides[d] for d in others] for a in (x, out)))
    if not shape:
        shape, strides = [1], [[0], [0]]

    def loads(k: int) -> int:
        """How many sides are read or written by vectors of neighbors."""
        return sum(side[k] == 1 for side in strides)

    best = max(range(len(shape)), key=lambda k: (min(shape[k], 16) * (1 + loads(k)), k))
    for side, a in zip(strides, (x, out), strict=True):
        if side[best] != 1 and a.strides[axis] != 1:
            return None
    outer = [k for k in range(len(shape)) if k != best]
    return _Signals(shape[best], (strides[0][best], strides[1][best]), [shape[k] for k in outer],
                    [[side[k] for k in outer] for side in strides])


def _is_direct(plan: Any, n: int, lanes: int, x: Operand) -> bool:
    """Whether signals of n numbers are transformed in the lanes of one buffer."""
    if factors(n) is None or n > _DIRECT:
        return False
    width = _Lanes.of(x.dtype).lanes
    if n <= _SHORT or _divided(n, width) is None:
        return True
    units = -(-x.size // n // width)
    return 2 * lanes >= width and (units >= plan.threads or n < 4096)


@cache
def _divided(n: int, width: int) -> tuple[int, int] | None:
    """Rows and columns of the matrix that a long signal becomes; None if it is not worthwhile."""
    best = None
    for rows in range(2, _DIRECT + 1):
        columns, rest = divmod(n, rows)
        if columns < width:
            break
        if rest == 0 and columns <= _DIRECT:
            padded = -(-columns // width) * -(-rows // width)
            price = padded * width * width / n + 0.1 * abs(math.log(rows / columns))
            if best is None or price < best[0]:
                best = price, rows, columns
    return None if best is None else best[1:]


def _rows(plan: Any, x: Operand, out: Operand, step: _Step) -> None:
    """The complex transform along the last axis of arrays in row-major order."""
    n = x.shape[-1]
    batch = x.size // n
    x, out = (dense(a.ref, (batch, n), a.dtype) for a in (x, out))
    if _is_direct(plan, n, batch, x):
        _launch(plan, x, out, 1, step)
    elif factors(n) is not None and (cut := _divided(n, _Lanes.of(x.dtype).lanes)) is not None:
        rows, columns = cut
        made = room(plan, (batch, rows, columns), x.dtype)
        source = dense(x.ref, (batch, rows, columns), x.dtype)
        _launch(plan, source, made, 1, _Step(step.inverse, columns=columns))
        # Number k2 of row k1 is result k1 + rows k2.
        target = Operand(out.ref, (batch, rows, columns), (n, 1, rows), out.dtype)
        _launch(plan, made, target, 2, step)
    else:
        _by_chirp(plan, x, out, step)


def _by_chirp(plan: Any, x: Operand, out: Operand, step: _Step) -> None:
    """j k = (j^2 + k^2 - (j - k)^2) / 2 makes the transform a convolution, done by transforms whose
    lengths have small factors only."""
    batch, n = x.shape
    m = 1 << (2 * n - 2).bit_length()
    m = min((m >> 2) * k for k in (3, 4) if (m >> 2) * k >= 2 * n - 1)
    j = np.arange(n)
    chirp = roots(j * j % (2 * n), 2 * n)
    around = np.zeros(m, complex)
    around[:n] = chirp.conj()
    around[m - n + 1 :] = chirp[:0:-1].conj()
    spectrum = np.fft.fft(around) / m
    if step.inverse:
        chirp, spectrum = chirp.conj(), np.roll(spectrum.conj()[::-1], 1)
    padded = room(plan, (batch, m), x.dtype)
    _multiply(plan, x, padded, chirp, n)
    _rows(plan, padded, padded, _Step(False))
    _multiply(plan, padded, padded, spectrum, m)
    _rows(plan, padded, padded, _Step(True))
    _multiply(plan, padded, out, chirp * step.scale, n)


def _from_real(plan: Any, x: Operand, out: Operand, n: int) -> None:
    """The first half of the spectrum of real signals along the last axis."""
    x = plan.contiguous(x)
    batch, half = x.size // n, n // 2
    whole = dense(out.ref, (batch, half + 1), out.dtype)
    if n % 2:
        wide = room(plan, (batch, n), out.dtype)
        _parts(plan, wide, dense(x.ref, (batch, n), x.dtype))
        _rows(plan, wide, wide, _Step(False))
        plan.copy(whole, wide._replace(shape=(batch, half + 1)))
        return
    pairs = dense(x.ref, (batch, half), out.dtype)  # an even number and the next as one complex
    if _is_direct(plan, half, batch, pairs):
        _launch(plan, pairs, whole, 1, _Step(False, real="split"))
        return
    made = room(plan, (batch, half), out.dtype)
    _rows(plan, pairs, made, _Step(False))
    _halves(plan, made, whole, "split")


def _to_real(plan: Any, x: Operand, out: Operand, n: int) -> None:
    """Real signals from the first half of their spectrum, along the last axis."""
    x = plan.contiguous(x)
    batch, half = x.size // (n // 2 + 1), n // 2
    whole = dense(x.ref, (batch, half + 1), x.dtype)
    step = _Step(True, 1 / n)
    if n % 2:
        wide = room(plan, (batch, n), x.dtype)
        _mirror(plan, whole, wide)
        _rows(plan, wide, wide, step)
        numbers = Operand(wide.ref, (batch, n), (2 * n, 2), out.dtype)
        plan.copy(dense(out.ref, (batch, n), out.dtype), numbers)
        return
    pairs = dense(out.ref, (batch, half), x.dtype)
    if _is_direct(plan, half, batch, pairs):
        _launch(plan, whole, pairs, 1, step._replace(real="merge"))
        return
    made = room(plan, (batch, half), x.dtype)
    _halves(plan, whole, made, "merge")
    _rows(plan, made, pairs, step)


# ------------------------------------------------------------------------------------------ launches


def _table(plan: Any, values: np.ndarray, dtype: Any) -> Ref:
    """The address of a table in a dtype."""
    return plan.table(values.astype(dtype))


def _bits(value: float) -> int:
    """The bits of a float64, as kernels get them."""
    return int(np.float64(value).view(np.int64))


def _launch(
    plan: Any, x: Operand, out: Operand, axis: int, step: _Step, signals: _Signals | None = None
) -> None:  # fmt: skip
    """Transform along an axis."""
    signals = signals or _lanes_of(x, out, axis)
    assert signals is not None
    how, size, n = _Lanes.of(x.dtype), x.dtype.itemsize, x.shape[axis]
    n = min(n, out.shape[axis])  # real signals have one more number on one side
    count, shape = signals.count, signals.outer
    loads, stores = ("lanes" if stride == 1 else "rows" for stride in signals.lanes)
    text = _kernel_text(how, n, loads, stores, step.real, bool(step.columns), len(shape))
    blocks = -(-count // how.lanes)
    units = math.prod(shape) * blocks
    cost = 500.0 + n * (5.0 + 2.5 * math.log2(n + 1)) * 0.25 * how.lanes
    # Chunks have buffers of their own: with few of them, the buffers stay in the cache.
    grain = max(int(_CHUNK_NS / cost), -(-units // (2 * plan.threads)))
    chunks = -(-units // grain)
    # The buffers are apart by half a page more than pages: CPUs take a load for one that depends on a
    # store before it if their addresses are equal but for the page.
    buffer = -(-(n + 1) * 2 * native.vector_bytes() // 4096) * 4096 + 2048
    numbers = np.dtype(np.float32 if how.type == "float" else np.float64)
    complexes = dtypes.to_complex_dtype(numbers)
    more: Args = ()
    if step.real:
        more = (_table(plan, roots(np.arange(n + 1), 2 * n), complexes),)
    if step.columns:
        more = _powers(plan, n, step.columns, how.lanes, numbers)
    args: Args = (
        x.ref, out.ref, plan.scratch(2 * buffer * chunks), _table(plan, table(n), complexes), *more,
        count, blocks, grain, buffer, int(step.inverse), _bits(step.scale),
        *(v * size for k, a in enumerate((x, out)) for v in (signals.lanes[k], a.strides[axis])),
        *shape, *(v * size for side in signals.strides for v in side),
    )  # fmt: skip
    plan.stage(Launch(text, args, units, grain, "fft", cost=units * cost))


def _powers(plan: Any, rows: int, columns: int, lanes: int, numbers: Any) -> Args:
    """Tables for exp(-2 pi i k j / n), n = rows columns, where j is a multiple of the lanes plus a
    lane: of k times the lane, and, for k times the multiple, of high and low parts of numbers."""
    n = rows * columns
    low = 1 << (n.bit_length() // 2)
    k = np.arange(rows)
    inside = roots(np.multiply.outer(k, np.arange(lanes)), n)
    planes = np.stack([inside.real, inside.imag], 1)  # a vector of each, like elements of buffers
    high = roots(np.arange(-(-n // low)) * low, n)
    return (_table(plan, planes, numbers), _table(plan, high, np.complex128),
            _table(plan, roots(np.arange(low), n), np.complex128), low)


def _multiply(plan: Any, x: Operand, out: Operand, by: np.ndarray, used: int) -> None:
    """The first `used` columns of the result are products of a row by a table; others are 0."""
    rows, n = out.shape
    how = _Lanes.of(x.dtype)
    args: Args = (x.ref, out.ref, _table(plan, by, x.dtype), n, x.shape[1], used)
    plan.stage(Launch(_multiply_text(how.type), args, rows, max(1, 4096 // n), "fft"))


def _halves(plan: Any, x: Operand, out: Operand, real: str) -> None:
    """Split or merge the spectra of long signals."""
    how = _Lanes.of(x.dtype)
    n = x.shape[1] if real == "split" else out.shape[1]
    args: Args = (x.ref, out.ref, _table(plan, roots(np.arange(n + 1), 2 * n), x.dtype), n)
    plan.stage(Launch(_halves_text(how.type, real), args, x.shape[0], 1, "fft"))


def _parts(plan: Any, wide: Operand, x: Operand) -> None:
    """Complex numbers with real parts from `x` and no imaginary parts."""
    args: Args = (x.ref, wide.ref)
    plan.stage(Launch(_parts_text(_Lanes.of(wide.dtype).type), args, x.size, 1 << 14, "fft"))


def _mirror(plan: Any, x: Operand, out: Operand) -> None:
    """The whole spectra of real signals of odd length, from their first halves."""
    args: Args = (x.ref, out.ref, out.shape[1])
    how = _Lanes.of(x.dtype)
    plan.stage(Launch(_mirror_text(how.type), args, x.shape[0], 1, "fft"))


# ------------------------------------------------------------------------------------------ kernels


@lru_cache(maxsize=256)
def _kernel_text(
    how: _Lanes, n: int, loads: str, stores: str, real: str, powers: bool, rank: int
) -> str:
    """Units are blocks of signals: see `_launch` for the arguments."""
    f = ir.kernel()
    v = Vectors(f, how.type, how.lanes)
    functions = [pass_function(how.type, how.lanes, one) for one in passes(n)]
    r = Reader(f)
    x, out, scratch, factors = (r.buffer() for _ in range(4))
    tables = [r.buffer() for _ in range(3 if powers else 1 if real else 0)]
    low = r.one() if powers else ""
    count, blocks, grain, bytes, inverse, scale = r.many(6)
    (lane_in, step_in), (lane_out, step_out) = r.many(2), r.many(2)
    extents, ins, outs = (r.many(rank) for _ in range(3))
    # Real parts are the second vectors of elements where the inverse is computed.
    second = f.mul(inverse, v.plane)
    planes = (second, f.sub(v.plane, second))
    natural = ("0", str(v.plane))
    one = f.step(scratch, f.udiv("%lo", grain), f.mul(bytes, 2))
    two = f.offset(one, bytes)
    factor = f.value(f"bitcast i64 {scale} to double")
    if how.type == "float":
        factor = f.value(f"fptrunc double {factor} to float")
    load, store = _loader(how, loads), _storer(how, stores)
    with f.loop("%lo", "%hi") as unit:
        outer, block = f.divided(unit, blocks)
        first = f.mul(block, how.lanes)
        used = f.smin(f.sub(count, first), how.lanes)
        given, taken = decode(f, outer, extents, ins, outs)
        source = f.offset(x, f.add(given, f.mul(first, lane_in)))
        target = f.offset(out, f.add(taken, f.mul(first, lane_out)))
        loaded = n + 1 if real == "merge" else n
        start = two if real == "merge" else one
        where = natural if real == "merge" else planes
        f.call(load, source, start, loaded, lane_in, step_in, used, *where)
        if real == "merge":
            _merge(v, two, one, tables[0], n, planes)
        result, other = one, two
        for function in functions:
            f.call(function, result, other, factors)
            result, other = other, result
        if powers:
            _apply_powers(v, result, n, tables, low, first)
        kept = n
        if real == "split":
            _split(v, result, other, tables[0], n)
            result, kept = other, n + 1
        f.call(store, result, target, kept, lane_out, step_out, used, *planes, factor)
    return ir.module(*functions, load, store, f)


def _apply_powers(
    v: Vectors, buffer: str, n: int, tables: list[str], low: str, first: str
) -> None:
    """Multiply element k of the columns from `first` on by a root of unity to the k times column:
    see `_powers`."""
    f = v.f
    inside, high, lower = tables
    whole = Vectors(f, "double", 1)
    with f.loop(0, n) as k:
        over, under = f.divided(f.mul(k, first), low)
        w = whole.multiply(whole.factor(f.step(high, over, 16)),
                           whole.factor(f.step(lower, under, 16)))
        if v.scalar == "float":
            w = tuple(f.value(f"fptrunc double {part} to float") for part in w)  # type: ignore
        real, imaginary = (f.splat(v.scalar, part, v.lanes) for part in w)
        turned = v.multiply(v.load(v.at(inside, k)), (real, imaginary))
        place = v.at(buffer, k)
        v.store(v.multiply(v.load(place), turned), place)


def _split(v: Vectors, z: str, x: str, table: str, n: ir.Operand) -> None:
    """The spectrum of a real signal, of which `z` is the transform of pairs of numbers."""
    f = v.f
    a, b = v.load(z)
    zero, half = v.number(0.0), v.number(0.5)
    t = v.type
    v.store((f.value(f"fadd {t} {a}, {b}"), zero), x)
    v.store((f.value(f"fsub {t} {a}, {b}"), zero), v.at(x, n))
    with f.loop(1, n) as k:
        even, odd = _halves_of(v, v.load(v.at(z, k)), v.load(v.at(z, f.sub(n, k))))
        odd = v.times_minus_i(odd)
        w = v.factor(f.step(table, k, 2 * v.size))
        v.store(v.scaled(v.add(even, v.multiply(odd, w)), half), v.at(x, k))


def _merge(v: Vectors, x: str, z: str, table: str, n: ir.Operand, planes: tuple[str, str]) -> None:
    """The reverse of `_split`, times 2, with the parts of the results in `planes`."""
    f = v.f
    a, b = v.load(x)[0], v.load(v.at(x, n))[0]
    t = v.type
    results: list[tuple[Pair, str]] = [
        ((f.value(f"fadd {t} {a}, {b}"), f.value(f"fsub {t} {a}, {b}")), z)]

    def store(value: Pair, place: str) -> None:
        for part, plane in zip(value, planes, strict=True):
            f.store(t, part, f.offset(place, plane), v.size)

    store(*results[0])
    with f.loop(1, n) as k:
        even, odd = _halves_of(v, v.load(v.at(x, k)), v.load(v.at(x, f.sub(n, k))))
        real, imaginary = v.factor(f.step(table, k, 2 * v.size))
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


def _loader(how: _Lanes, mode: str) -> ir.Function:
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
    """One number of one lane."""
    f = v.f
    source = f.offset("%in", f.add(f.mul(j, "%lane"), f.mul(k, "%step")))
    place = f.at(v.at("%out", k), j, v.scalar)
    for i, plane in enumerate(("%real", "%imaginary")):
        value = f.load(v.scalar, f.offset(source, i * v.size), v.size)
        f.store(v.scalar, value, f.offset(place, plane), v.size)


def _move_out(v: Vectors, j: str, k: str) -> None:
    """One number of one lane."""
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
    """One element: the numbers of neighboring lanes."""
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
    """All numbers of all lanes: a vector of a row has the parts of half as many numbers as lanes,
    and the transpose of a block of rows has a vector for each part."""
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


def _storer(how: _Lanes, mode: str) -> ir.Function:
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


class _Singles(Vectors):
    """Complex numbers in memory, one at a time."""

    def __init__(self, f: ir.Function, type: str):
        super().__init__(f, type, 1)


@cache
def _multiply_text(type: str) -> str:
    f = ir.kernel()
    v, r = _Singles(f, type), Reader(f)
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
def _halves_text(type: str, real: str) -> str:
    f = ir.kernel()
    v, r = _Singles(f, type), Reader(f)
    x, out, table, n = r.buffer(), r.buffer(), r.buffer(), r.one()
    more = f.add(n, 1)
    with f.loop("%lo", "%hi") as row:
        if real == "split":
            _split(v, v.at(x, f.mul(row, n)), v.at(out, f.mul(row, more)), table, n)
        else:
            _merge(v, v.at(x, f.mul(row, more)), v.at(out, f.mul(row, n)), table, n,
                   ("0", str(v.size)))
    return ir.module(f)


@cache
def _parts_text(type: str) -> str:
    f = ir.kernel()
    v, r = _Singles(f, type), Reader(f)
    x, out = r.buffer(), r.buffer()
    with f.loop("%lo", "%hi") as i:
        v.store((f.load(type, f.at(x, i, type), v.size), "0.0"), v.at(out, i))
    return ir.module(f)


@cache
def _mirror_text(type: str) -> str:
    f = ir.kernel()
    v, r = _Singles(f, type), Reader(f)
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
