"""Fourier transforms on a GPU, by cuFFT.

The library takes batches whose signals are one step apart, with the numbers of a signal any step
apart; other layouts are copied. It does not divide inverse transforms by their length.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import collapse, in_place, room
from toile.compiler.ir.operands import Operand, Ref
from toile.engine import dtypes
from toile.primitives.fft import FftType
from toile.targets.cuda import cufft
from toile.targets.cuda.launches import THREADS, Launch
from toile.targets.cuda.text import kernel_text

_EACH = 8  # numbers that a thread scales


_KINDS = {FftType.FFT: "c2c", FftType.IFFT: "c2c", FftType.RFFT: "r2c", FftType.IRFFT: "c2r"}


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Fft."""
    (x,), (out,) = ins, outs
    kind, lengths, engine = _KINDS[op.fft_type], op.fft_lengths, cufft.engine()
    if engine is None or not x.size or not out.size or not 1 <= len(lengths) <= 3:
        return False
    inverse = op.fft_type in (FftType.IFFT, FftType.IRFFT)
    x, source = _given(plan, x, kind, len(lengths))
    made, target = _made(plan, x, out, inverse, len(lengths))
    layout = cufft.Layout(kind, dtypes.to_complex_dtype(x.dtype).name, lengths, source, target,
                          prod(x.shape[: len(x.shape) - len(lengths)]))
    nbytes = engine.plan(layout).workspace
    direction = cufft.INVERSE if inverse else cufft.FORWARD
    plan.call(cufft.Transform(layout, direction, x.ref, made.ref,
                              plan.scratch(nbytes) if nbytes else None))
    if inverse:
        plan.stage(_scaled(made, prod(lengths)))
    if made is not out:
        plan.copy(out, made)
    return True


def _given(plan: Any, x: Operand, kind: str, rank: int) -> tuple[Operand, cufft.Side]:
    """The source, or a copy of it: of another layout, or because the library overwrites it."""
    side = _side(x, rank)
    if side is None or (kind == "c2r" and rank > 1):
        x = _copied(plan, x)
        side = _side(x, rank)
    assert side is not None
    return x, side


def _made(
    plan: Any, x: Operand, out: Operand, inverse: bool, rank: int
) -> tuple[Operand, cufft.Side]:
    """Where the library stores the result: there, or in scratch memory."""
    side = _side(out, rank)
    if side is None or (inverse and not out.contiguous) or _overlaps(x, out):
        out = room(plan, out.shape, out.dtype)
        side = _side(out, rank)
    assert side is not None
    return out, side


def _copied(plan: Any, x: Operand) -> Operand:
    """A copy of an array in scratch memory."""
    made = room(plan, x.shape, x.dtype)
    plan.copy(made, x)
    return made


def _overlaps(x: Operand, out: Operand) -> bool:
    """Whether source and result share memory without being one array of one size."""
    if x.ref.buffer is not out.ref.buffer:
        return False
    return x.dtype != out.dtype or not in_place(x, out)


def _side(x: Operand, rank: int) -> cufft.Side | None:
    """The layout of signals in an array, whose last axes they are; None if the library has none."""
    outer = len(x.shape) - rank
    batch = collapse(x.shape[:outer], x.strides[:outer])
    if len(batch[0]) > 1:
        return None
    apart = batch[1][0][0] if batch[0] else 1
    step, extents = 0, list[int]()
    for n, stride in zip(reversed(x.shape[outer:]), reversed(x.strides[outer:]), strict=True):
        if not extents:
            step = stride if n > 1 else 1
        elif n > 1:  # the step of an axis with one number does not matter
            unit = step * prod(extents[1:])
            if stride < unit * extents[0] or stride % unit:
                return None
            extents[0] = stride // unit
        extents.insert(0, n)
        if step <= 0:
            return None
    return cufft.Side(tuple(extents), step, apart) if apart > 0 else None


# ------------------------------------------------------------------------------------------ scaling


def _scaled(x: Operand, length: int) -> Launch:
    """Divides a dense array by a length, in place."""
    real = dtypes.dtype_to_real(x.dtype)
    count = x.size * (2 if x.dtype != real else 1)
    args: tuple[int | Ref, ...] = (x.ref, count, length)
    return Launch.over(count, _scaling_text(real.itemsize), args, "divide by length",
                       THREADS * _EACH, 2 * count * real.itemsize)


@cache
def _scaling_text(size: int) -> str:
    number = "float" if size == 4 else "double"
    return kernel_text(f"""\
  {number}* x = ({number}*)w[0];
  const {number} factor = ({number})(1.0 / (double)w[2]);
  i64 i = (i64)block * (THREADS * {_EACH}) + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < {_EACH}; ++k, i += THREADS)
    if (i < w[1]) x[i] *= factor;
""", wide=None)
