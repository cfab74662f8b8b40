"""Fourier transforms on a GPU, by cuFFT.

The library takes batches whose signals lie a constant step apart, as do the numbers of each signal;
other layouts are copied. It does not divide inverse transforms by their length.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import collapse, dense, in_place, room
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.steps import alignment
from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import fuses
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Program
from toile.engine.records import dataclass
from toile.primitives.families import broadcast_in_dim, mul, scalar
from toile.primitives.fft import Fft, FftType
from toile.targets.cuda import cufft
from toile.targets.cuda.launches import THREADS, Launch
from toile.targets.cuda.libraries import LibraryError
from toile.targets.cuda.text import kernel_text

_EACH = 8  # numbers that a thread scales


@dataclass(frozen=True)
class UndividedFft(Fft):
    """An inverse transform that is not divided by its length."""

    divides = False

    def eager(self, xp: Any, x: Any) -> Any:
        return super().eager(xp, x) * prod(self.fft_lengths)


def divide_later(program: Program) -> Program:
    """Let the division of real inverse transforms be fused with the operations after it."""
    if not any(e.op.kernel_family == "fft" for e in program.equations):
        return program
    readers, returned = readers_of(program), set(program.outputs)

    def only_fused(v: Atom) -> bool:
        """Whether all readers of a value, or of views of it, can be fused with its computation."""
        found = readers.get(v, ())
        return v not in returned and bool(found) and all(
            fuses(e) or e.op.moves_axes and only_fused(e.outs[0]) for e in found)

    def rule(new: Rewriter, e: Equation) -> Replacement:
        op: Any = e.op
        if op.kernel_family != "fft" or op.fft_type is not FftType.IRFFT or not op.divides:
            return None
        return [spliced(new, e, _divided, e.ins)] if only_fused(e.outs[0]) else None

    return rewrite(program, rule)


def _divided(op: Any, x: Any) -> Any:
    y = UndividedFft(op.fft_type, op.fft_lengths)(x)
    factor = scalar(1 / prod(op.fft_lengths), y.dtype)
    return mul(y, broadcast_in_dim(factor, y.shape, ()))


_KINDS = {FftType.FFT: "c2c", FftType.IFFT: "c2c", FftType.RFFT: "r2c", FftType.IRFFT: "c2r"}


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Fft."""
    (x,), (out,) = ins, outs
    engine = cufft.engine()
    if engine is None or not x.size or not out.size or not 1 <= len(op.fft_lengths) <= 3:
        return False
    inverse = op.fft_type in (FftType.IFFT, FftType.IRFFT)
    layout, copies, moves = _layout(op, x, out, inverse)
    try:
        nbytes = engine.plan(layout).workspace
    except LibraryError:  # too large for the library
        return False
    given = _copied(plan, x) if copies else x
    made = room(plan, out.shape, out.dtype) if moves else out
    direction = cufft.INVERSE if inverse else cufft.FORWARD
    plan.call(cufft.Transform(layout, direction, given.ref, made.ref,
                              plan.scratch(nbytes) if nbytes else None))
    if inverse and op.divides:
        plan.stage(_scaled(made, prod(op.fft_lengths)))
    if moves:
        plan.copy(out, made)
    return True


def _layout(
    op: Any, x: Operand, out: Operand, inverse: bool
) -> tuple[cufft.Layout, bool, bool]:
    """The transforms, whether to copy the source first, and whether to copy the result
    afterwards."""
    kind, rank = _KINDS[op.fft_type], len(op.fft_lengths)
    dtype = dtypes.to_complex_dtype(x.dtype)
    source, target = _side(x, rank, dtype.itemsize), _side(out, rank, dtype.itemsize)
    # The library overwrites the source of a complex-to-real transform.
    copies = source is None or kind == "c2r"
    scaled = inverse and op.divides
    moves = target is None or (scaled and not out.contiguous) or _overlaps(x, out)
    if copies:
        source = _side(dense(Ref(None), x.shape, x.dtype), rank, dtype.itemsize)
    if moves:
        target = _side(dense(Ref(None), out.shape, out.dtype), rank, dtype.itemsize)
    assert source is not None and target is not None
    count = prod(x.shape[: len(x.shape) - rank])
    return cufft.Layout(kind, dtype.name, op.fft_lengths, source, target, count), copies, moves


def _copied(plan: Any, x: Operand) -> Operand:
    """A copy of an array in scratch memory."""
    made = room(plan, x.shape, x.dtype)
    plan.copy(made, x)
    return made


def _overlaps(x: Operand, out: Operand) -> bool:
    """Whether source and result share memory without being the same array."""
    if x.ref.buffer is not out.ref.buffer:
        return False
    return x.dtype != out.dtype or not in_place(x, out)


def _side(x: Operand, rank: int, item: int) -> cufft.Side | None:
    """The layout of the signals along the last axes of an array; None if it is not supported.

    Addresses must be multiples of the bytes of a complex number, `item`."""
    if alignment(x.ref) % item:
        return None
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
