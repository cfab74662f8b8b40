"""Copies that change the layout of an array: strides, a margin of zeros, a part removed.

`window` fills a strided array from another one: elements outside the source are zero. `Fill`
writes zeros; `addresses` writes the addresses of a batch of matrices for cuBLAS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.nest.gpu_forms import is_aligned
from toile.targets.cuda.driver import driver
from toile.targets.cuda.launches import THREADS, Call, Launch, Pointers, blocks_of
from toile.targets.cuda.text import divisor, kernel_text

PER_THREAD = 4
VECTOR = 16  # bytes that a thread writes at once
FAR = 2**31 - 2**20  # from so many packs on, indices need 64 bits
_WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


def window(out: Operand, x: Operand, low: Sequence[int] | None = None, note: str = "copy"
           ) -> Launch:
    """out[i] = x[i - low] if that is an element of x, else 0; both have the same rank and dtype."""
    low = (0,) * len(x.shape) if low is None else low
    size = out.dtype.itemsize
    parts = 2 if size == 16 else 1
    axes = sorted(range(len(out.shape)), key=lambda d: -abs(out.strides[d]))
    axes = [d for d in axes if out.shape[d] > 1 or x.shape[d] != 1 or low[d]]
    rows = _merged([(out.shape[d], x.shape[d], low[d], out.strides[d], x.strides[d])
                    for d in axes])
    vector, whole = _packs(rows, out.ref, x.ref, size)
    packs = out.size // vector
    far = packs >= FAR
    args: list[int | Ref] = [out.ref, x.ref, packs]
    for i, (n, *rest) in enumerate(rows, 1):
        args += divisor(n // vector if i == len(rows) else n, far), *rest
    text = _window_text(_WORDS[size // parts], len(rows), parts, vector, whole, far)
    return _launch(text, args, out, x, note)


def _launch(text: str, args: Sequence[int | Ref], out: Operand, x: Operand, note: str) -> Launch:
    """A launch over the packs of out; their number is the third argument."""
    packs = args[2]
    assert isinstance(packs, int)
    return Launch(text, tuple(args), max(blocks_of(packs, THREADS * PER_THREAD), 1), THREADS,
                  note=note, reads=frozenset((x.ref.buffer,)),
                  nbytes=(out.size + min(x.size, out.size)) * out.dtype.itemsize)


def _packs(rows: Sequence[Sequence[int]], out: Ref, x: Ref, size: int) -> tuple[int, bool]:
    """How many elements of the last axis a thread writes at once, and whether it reads as many."""
    if not rows or rows[-1][3] != 1 or size == 16:
        return 1, False
    n, m, low, _, source = rows[-1]
    vector = VECTOR // size
    while vector > 1 and (n % vector or not _fits(out, [r[3] for r in rows[:-1]], vector, size)):
        vector //= 2
    whole = source == 1 and not m % vector and not low % vector and _fits(
        x, [r[4] for r in rows[:-1]], vector, size)
    return vector, whole and vector > 1


def _fits(ref: Ref, strides: Sequence[int], vector: int, size: int) -> bool:
    """Whether packs begin at multiples of their size, for all indices of the other axes."""
    return is_aligned(ref, vector * size, (s * size for s in strides))


def _merged(rows: list[tuple[int, int, int, int, int]]) -> list[tuple[int, int, int, int, int]]:
    """Merge adjacent axes that are contiguous in both arrays."""
    merged: list[tuple[int, int, int, int, int]] = []
    for n, m, low, to, source in rows:
        if merged and n == m and not low:
            n0, m0, low0, to0, source0 = merged[-1]
            if n0 == m0 and not low0 and to0 == n * to and source0 == n * source:
                merged[-1] = (n0 * n, m0 * n, 0, to, source)
                continue
        merged.append((n, m, low, to, source))
    return merged


def _window_text(
    word: str, rank: int, parts: int, vector: int, whole: bool, far: bool
) -> str:
    """For each pack of out in the order of its memory: the source's elements, or zeros.

    Extents (the last one in packs), source extents, margins and both strides of each axis follow
    the number of packs."""
    lines = []
    for d in reversed(range(rank)):
        n, m, low, to, source = (f"w[{3 + 5 * d + j}]" for j in range(5))
        lines.append("    { Index c = r;" + (f" r = cut(c, {n});" if d else ""))
        if d == rank - 1 and vector > 1:
            lines.append(f"      first = (i64)c * {vector}; to += first; first -= {low}; }}")
            continue
        lines.append(
            f"      i64 at = (i64)c - {low}; inside &= at >= 0 && at < {m};\n"
            f"      from += at * {source}; to += (i64)c * {to}; }}"
        )
    last = 3 + 5 * (rank - 1)
    if vector == 1:
        moves = "\n".join(
            f"    out[to * {parts} + {p}] = inside ? x[from * {parts} + {p}] : ({word})0;"
            for p in range(parts))
    elif whole:
        moves = (f"    Pack p = {{}};\n    if (inside && first >= 0 && first < w[{last + 1}])\n"
                 "      p = *(const Pack*)(x + from + first);\n    *(Pack*)(out + to) = p;")
    else:
        moves = (f"    Pack p;\n    #pragma unroll\n    for (int j = 0; j < {vector}; ++j) {{\n"
                 f"      bool in = inside && first + j >= 0 && first + j < w[{last + 1}];\n"
                 f"      p.v[j] = in ? x[from + (first + j) * w[{last + 4}]] : ({word})0;\n    }}\n"
                 "    *(Pack*)(out + to) = p;")
    pack = _pack(word, vector) if vector > 1 else ""
    return _each(word, pack, "from = 0, to = 0, first = 0", [*lines, moves], far)


def _pack(word: str, vector: int) -> str:
    return f"struct alignas(sizeof({word}) * {vector}) Pack {{ {word} v[{vector}]; }};\n"


def _each(word: str, types: str, places: str, lines: Sequence[str], far: bool) -> str:
    """A kernel that runs these lines for each of w[2] packs, of which `r` is the number: they
    compute its `places` in out and x, and whether it is `inside` x."""
    return kernel_text(f"""\
  {word}* out = ({word}*)w[0];
  const {word}* x = (const {word}*)w[1];
  Index i = (Index)block * (THREADS * {PER_THREAD}) + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < {PER_THREAD}; ++k, i += THREADS) {{
    if (i >= (Index)w[2]) return;
    Index r = i;
    i64 {places};
    bool inside = true;
{chr(10).join(lines)}
  }}
""", types, wide=far)


def patches(out: Operand, x: Operand, along: Sequence[tuple[int, int]], low: Sequence[int]
            ) -> Launch:
    """Elements of x, or zeros outside it: axis k of out runs along axis `along[k][0]` of x in
    steps of `along[k][1]`; the steps of axes that share one are added, starting at -`low`."""
    size = out.dtype.itemsize
    axis, step = along[-1]
    vector = VECTOR // size
    alone = [a for a, _ in along].count(axis) == 1 and not low[axis] and step == 1
    others = [s for d, s in enumerate(x.strides) if d != axis]
    if not (alone and x.strides[axis] == out.strides[-1] == 1):
        vector = 1
    while vector > 1 and (out.shape[-1] % vector or not (
            _fits(out.ref, out.strides[:-1], vector, size)
            and _fits(x.ref, others, vector, size))):
        vector //= 2
    extents = [*out.shape[:-1], out.shape[-1] // vector]
    packs = out.size // vector
    far = packs >= FAR
    args: list[int | Ref] = [out.ref, x.ref, packs]
    for n, (_, step), to in zip(extents, along, out.strides, strict=True):
        args += divisor(n, far), step, to
    for n, below, source in zip(x.shape, low, x.strides, strict=True):
        args += n, below, source
    text = _patches_text(_WORDS[size], [a for a, _ in along], len(x.shape), vector, far)
    return _launch(text, args, out, x, "patches")


def _patches_text(word: str, along: Sequence[int], rank: int, vector: int, far: bool) -> str:
    """A kernel whose arguments after the number of packs are extents, steps and strides of the axes
    of out, then sizes, margins and strides of those of x."""
    lines, last = [], len(along) - 1
    for k in reversed(range(len(along))):
        n, _, to = (f"w[{3 + 3 * k + j}]" for j in range(3))
        lines.append(f"    Index c{k} = r;" + (f" r = cut(c{k}, {n});" if k else ""))
        if k == last and vector > 1:
            lines.append(f"    c{k} *= {vector};")
        lines.append(f"    to += (i64)c{k} * {to};")
    for d in range(rank):
        m, low, source = (f"w[{3 + 3 * len(along) + 3 * d + j}]" for j in range(3))
        steps = [f"(i64)c{k} * w[{4 + 3 * k}]" for k, a in enumerate(along) if a == d]
        lines.append(f"    i64 p{d} = {' + '.join([*steps, f'-{low}'])};\n"
                     f"    inside &= p{d} >= 0 && p{d} < {m}; from += p{d} * {source};")
    lines.append("    Pack p = {};\n    if (inside) p = *(const Pack*)(x + from);\n"
                 "    *(Pack*)(out + to) = p;")
    return _each(word, _pack(word, vector), "from = 0, to = 0", lines, far)


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
    count = prod(axis[0] for axis in axes)
    args = (out, *starts, count, len(axes), *(n for axis in axes for n in axis))
    return Launch(_ADDRESSES, args, -(-count // THREADS), THREADS, note="addresses",
                  reads=frozenset(), nbytes=24 * count)


@dataclass(frozen=True)
class Fill(Call):
    """Sets bytes to zero."""

    ref: Ref
    nbytes: int
    note: str = field(default="zeros", compare=False)
    reads = frozenset[Any]()

    @property
    def writes(self) -> frozenset[Any]:
        return frozenset((self.ref.buffer,))

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the call."""
        driver().clear(pointer(self.ref), self.nbytes, stream)
