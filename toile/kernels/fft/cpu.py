"""Fourier transforms on the CPU: many signals at once, each in a lane of the vectors.

A unit of a launch loads some signals into the lanes of a buffer, runs the passes (`cpu_passes`) and
stores the result. Along an axis that is not the last one, neighbors in memory are lanes; along the
last one, blocks are transposed while they are loaded and stored. A few long signals become many
short ones: a signal of n1 n2 numbers is a matrix, whose columns are transformed and multiplied by
powers of a root of unity; then its rows are transformed. Signals whose length has a large prime
factor are transformed by convolutions with a chirp (Bluestein). A real signal of even length is a
complex one of half the length. The inverse of a transform is the transform with real and imaginary
parts exchanged before and after.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.geometry import collapse, dense, permuted, room
from toile.compiler.ir.operands import Args, Operand, Ref
from toile.engine import dtypes
from toile.kernels.fft.cpu_kernels import (
    VectorType,
    halves_text,
    kernel_text,
    mirror_text,
    multiply_text,
    parts_text,
)
from toile.kernels.fft.cpu_passes import factors, roots, table
from toile.primitives.fft import FftType
from toile.targets.llvm import native
from toile.targets.llvm.launches import Launch

_DIRECT = 8192  # the longest signal that is transformed in the lanes of one buffer
_SHORT = 224  # the longest signal for which empty lanes cost less than a division
_MOST_CHIRP = 1 << 17  # the longest signal for which a plan holds the tables of a chirp
_CHUNK_NS = 5_000.0  # nanoseconds that a chunk should take at least


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Fft."""
    (x,), (out,) = ins, outs
    kind, lengths = op.fft_type, op.fft_lengths
    if not x.size or not lengths or not _has_code(op, x):
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


# ----------------------------------------------------------------------------------------- planning


def _has_code(op: Any, x: Operand) -> bool:
    """Whether there is code for signals of these lengths: there is none above some tens of millions
    of numbers or, with large prime factors, above `_MOST_CHIRP`."""
    width = VectorType.of(dtypes.to_complex_dtype(x.dtype)).lanes
    *lengths, last = op.fft_lengths
    real = op.fft_type in (FftType.RFFT, FftType.IRFFT)
    lengths.append(last // 2 if real and last % 2 == 0 else last)
    return all(_has_passes(n, width) or n <= _MOST_CHIRP for n in lengths)


def _has_passes(n: int, width: int) -> bool:
    """Whether a signal is transformed by passes, at once or divided."""
    return factors(n) is not None and (n <= _DIRECT or _divided(n, width) is not None)


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
    if lanes is not None and _is_direct(plan, n, lanes.number, x):
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

    number: int
    lanes: tuple[int, int]
    outer: list[int]
    strides: list[list[int]]


def _lanes_of(x: Operand, out: Operand, axis: int) -> _Signals | None:
    """The axis whose signals are lanes, preferably a long one along which numbers are neighbors in
    memory. None if, on either side, neither those nor the numbers of a signal are neighbors."""
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


def _is_direct(plan: Any, n: int, lanes: int, x: Operand, real: bool = False) -> bool:
    """Whether signals of n numbers are transformed in the lanes of one buffer."""
    if factors(n) is None or n > _DIRECT:
        return False
    width = VectorType.of(x.dtype).lanes
    if n <= _SHORT or _divided(n, width) is None:
        return True
    units = -(-x.size // n // width)
    # Splitting or merging the spectra of real signals takes longer after a division.
    return lanes * (1 + real) >= width and (units >= plan.threads or n < 4096)


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
    elif factors(n) is not None and (cut := _divided(n, VectorType.of(x.dtype).lanes)) is not None:
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
    """Compute the transform as a convolution, since j k = (j^2 + k^2 - (j - k)^2) / 2. Convolutions
    are computed by longer transforms, whose lengths have small factors only."""
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
    pairs = dense(x.ref, (batch, half), out.dtype)  # two real numbers are read as one complex
    if _is_direct(plan, half, batch, pairs, True):
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
    if _is_direct(plan, half, batch, pairs, True):
        _launch(plan, whole, pairs, 1, step._replace(real="merge"))
        return
    made = room(plan, (batch, half), x.dtype)
    _halves(plan, whole, made, "merge")
    _rows(plan, made, pairs, step)


# ----------------------------------------------------------------------------------------- launches


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
    how, size, n = VectorType.of(x.dtype), x.dtype.itemsize, x.shape[axis]
    n = min(n, out.shape[axis])  # a real signal has one pair fewer than its spectrum has numbers
    count, shape = signals.number, signals.outer
    loads, stores = ("lanes" if stride == 1 else "rows" for stride in signals.lanes)
    text = kernel_text(how, n, loads, stores, step.real, bool(step.columns), len(shape))
    blocks = -(-count // how.lanes)
    units = math.prod(shape) * blocks
    cost = 500.0 + n * (5.0 + 2.5 * math.log2(n + 1)) * 0.25 * how.lanes
    # Chunks have buffers of their own: with few chunks, the buffers stay in the cache.
    grain = max(int(_CHUNK_NS / cost), -(-units // (2 * plan.threads)))
    chunks = -(-units // grain)
    # The two buffers must not start at the same offset within a page: CPUs compare only the lower
    # bits of addresses, and loads would wait for stores that they do not depend on.
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
    lane: one table for k times the lane, and those of `_roots` for k times the multiple."""
    n = rows * columns
    inside = roots(np.multiply.outer(np.arange(rows), np.arange(lanes)), n)
    planes = np.stack([inside.real, inside.imag], 1)  # a vector of each, like elements of buffers
    return (_table(plan, planes, numbers), *_roots(plan, n))


def _roots(plan: Any, n: int) -> Args:
    """Two short tables whose products are the powers of exp(-2 pi i / n), and the length of the
    second: power k is the product of entries k // length and k % length."""
    low = 1 << (n.bit_length() // 2)
    high = roots(np.arange(-(-n // low)) * low, n)
    return (_table(plan, high, np.complex128), _table(plan, roots(np.arange(low), n),
                                                      np.complex128), low)


def _multiply(plan: Any, x: Operand, out: Operand, by: np.ndarray, used: int) -> None:
    """Multiply the first `used` columns of each row by a table, and set the other columns to 0."""
    rows, n = out.shape
    how = VectorType.of(x.dtype)
    args: Args = (x.ref, out.ref, _table(plan, by, x.dtype), n, x.shape[1], used)
    plan.stage(Launch(multiply_text(how.type), args, rows, max(1, 4096 // n), "fft"))


def _halves(plan: Any, x: Operand, out: Operand, real: str) -> None:
    """Split or merge the spectra of long signals."""
    how = VectorType.of(x.dtype)
    n = x.shape[1] if real == "split" else out.shape[1]
    args: Args = (x.ref, out.ref, *_roots(plan, 2 * n), n)
    plan.stage(Launch(halves_text(how.type, real), args, x.shape[0], 1, "fft"))


def _parts(plan: Any, wide: Operand, x: Operand) -> None:
    """Complex numbers with real parts from `x` and no imaginary parts."""
    args: Args = (x.ref, wide.ref)
    plan.stage(Launch(parts_text(VectorType.of(wide.dtype).type), args, x.size, 1 << 14, "fft"))


def _mirror(plan: Any, x: Operand, out: Operand) -> None:
    """The whole spectra of real signals of odd length, from their first halves."""
    args: Args = (x.ref, out.ref, out.shape[1])
    how = VectorType.of(x.dtype)
    plan.stage(Launch(mirror_text(how.type), args, x.shape[0], 1, "fft"))
