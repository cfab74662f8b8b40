"""Copies that change how an array lies: other strides, a margin of zeros, a part left out.

`window` fills a strided array from another one: what lies outside of the source is zero. `Fill`
writes zeros; `addresses` writes the addresses of a batch's matrices, as cuBLAS takes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toile.backends.gpu import driver, libraries
from toile.backends.gpu.launches import Launch, Pointers
from toile.compiler.operands import Operand, Ref
from toile.compiler.views import row_major

THREADS = 256
PER_THREAD = 4
_WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def window(out: Operand, x: Operand, low: Sequence[int] | None = None, note: str = "copy"
           ) -> Launch:
    """out[i] = x[i - low] where that is an element of x, else 0; both of one rank and dtype."""
    low = (0,) * len(x.shape) if low is None else low
    size = out.dtype.itemsize
    parts = 2 if size == 16 else 1
    axes = sorted(range(len(out.shape)), key=lambda d: -abs(out.strides[d]))
    axes = [d for d in axes if out.shape[d] > 1 or x.shape[d] != 1 or low[d]]
    rows = [(out.shape[d], x.shape[d], low[d], out.strides[d], x.strides[d]) for d in axes]
    blocks = -(-out.size // (THREADS * PER_THREAD))
    args: list[int | Ref] = [out.ref, x.ref, out.size]
    for row in _merged(rows):
        args += row
    rank = (len(args) - 3) // 5
    return Launch(_window_text(_WORDS[size // parts], rank, parts), tuple(args), max(blocks, 1),
                  THREADS, note=note, reads=frozenset((x.ref.buffer,)),
                  nbytes=(out.size + min(x.size, out.size)) * size)


def _merged(rows: list[tuple[int, int, int, int, int]]) -> list[tuple[int, int, int, int, int]]:
    """Neighbouring axes that both arrays hold as one become one."""
    merged: list[tuple[int, int, int, int, int]] = []
    for n, m, low, to, source in rows:
        if merged and n == m and not low:
            n0, m0, low0, to0, source0 = merged[-1]
            if n0 == m0 and not low0 and to0 == n * to and source0 == n * source:
                merged[-1] = (n0 * n, m0 * n, 0, to, source)
                continue
        merged.append((n, m, low, to, source))
    return merged


def _window_text(word: str, rank: int, parts: int) -> str:
    """For each element of out in the order of its memory: the source's, or zero.

    Extents, source extents, margins and both strides of each axis follow the size."""
    lines = []
    for d in reversed(range(rank)):
        n, m, low, to, source = (f"w[{3 + 5 * d + j}]" for j in range(5))
        last = d == 0
        lines.append(
            f"    {{ i64 c = {'r' if last else f'r % {n}'} - {low}; inside &= c >= 0 && c < {m};\n"
            f"      from += c * {source}; to += (c + {low}) * {to};"
            + ("" if last else f" r /= {n};") + " }"
        )
    moves = "\n".join(
        f"    out[to * {parts} + {p}] = inside ? x[from * {parts} + {p}] : ({word})0;"
        for p in range(parts)
    )
    return f"""\
#define THREADS {THREADS}
__device__ void body(const Word* w, unsigned block) {{
  {word}* out = ({word}*)w[0];
  const {word}* x = (const {word}*)w[1];
  i64 i = (i64)block * (THREADS * {PER_THREAD}) + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < {PER_THREAD}; ++k, i += THREADS) {{
    if (i >= w[2]) return;
    i64 r = i, from = 0, to = 0;
    bool inside = true;
{chr(10).join(lines)}
{moves}
  }}
}}
"""


def scratch_like(ref: Ref, shape: Sequence[int], dtype: object) -> Operand:
    """A row-major array at a place."""
    return Operand(ref, tuple(shape), row_major(shape), dtype)


_ADDRESSES = f"""\
#define THREADS {THREADS}
__device__ void body(const Word* w, unsigned block) {{
  i64 i = (i64)block * THREADS + threadIdx.x, count = w[4];
  if (i >= count) return;
  i64 r = i, a = w[1], b = w[2], c = w[3];
  for (int d = (int)w[5] - 1; d >= 0; --d) {{
    const Word* axis = w + 6 + 4 * d;
    i64 at = r % axis[0];
    r /= axis[0];
    a += at * axis[1], b += at * axis[2], c += at * axis[3];
  }}
  i64* out = (i64*)w[0];
  out[i] = a, out[count + i] = b, out[2 * count + i] = c;
}}
"""


def addresses(out: Ref, starts: Sequence[int | Ref], axes: Sequence[Sequence[int]]) -> Launch:
    """The addresses of all matrices of a batch: of A, then of B, then of C.

    Each axis: its extent, and the bytes from one matrix to the next in A, B and C."""
    count = 1
    for axis in axes:
        count *= axis[0]
    numbers = (n for axis in axes for n in axis)
    args: tuple[int | Ref, ...] = (out, *starts, count, len(axes), *numbers)
    return Launch(_ADDRESSES, args, -(-count // THREADS), THREADS, note="addresses",
                  reads=frozenset(), nbytes=24 * count)


@dataclass(frozen=True)
class Fill:
    """Bytes set to zero."""

    ref: Ref
    nbytes: int
    note: str = field(default="zeros", compare=False)
    origin: Any = field(default=None, compare=False, repr=False)

    @property
    def reads(self) -> frozenset[Any]:
        return frozenset()

    @property
    def writes(self) -> frozenset[Any]:
        return frozenset((self.ref.buffer,))

    def prepare(self) -> None:
        """Nothing is needed."""

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue it."""
        set_bytes = driver.library().cuMemsetD8Async
        set_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]
        status = set_bytes(pointer(self.ref), 0, self.nbytes, stream)
        if status:
            raise libraries.LibraryError(f"toile: cuMemsetD8Async failed with status {status}")
