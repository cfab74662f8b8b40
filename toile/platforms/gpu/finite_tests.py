"""Which arrays on a GPU contain a NaN or an infinity: one launch reads up to 71 arrays.

Such a number has all bits of its exponent set. The kernel sets a flag for each array that contains
one; then the flags are copied to the host. This module may import platforms.gpu and targets.cuda.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from toile.targets.cuda import modules as kernels
from toile.targets.cuda.driver import driver, words_of
from toile.targets.cuda.launches import THREADS
from toile.targets.cuda.modules import Kernel

SHARE = 1 << 16  # bytes that a thread block reads

# The exponent's bits in the two halves of a 32-bit word; of a 64-bit number, only the upper word
# has an exponent.
_HALVES = {"e": (0x7C00, 0x7C000000), "E": (0x7F80, 0x7F800000)}
_WORDS = {"f": 0x7F800000, "F": 0x7F800000, "d": 0x7FF00000, "D": 0x7FF00000}

# w: the flag's address, the data's address, its bytes, two masks, and whether numbers have 64 bits.
TEXT = f"""\
#define THREADS {THREADS}
__device__ bool bad(u32 x, u32 a, u32 b) {{ return (x & a) == a || (x & b) == b; }}
__device__ void body(const Word* w, unsigned block) {{
  const char* data = (const char*)w[1];
  Word first = (Word)block * {SHARE}, last = first + {SHARE};
  if (last > w[2]) last = w[2];
  u32 a = (u32)w[3], b = (u32)w[4];
  bool wide = w[5] != 0, found = false;
  Word whole = last & ~15ll;
  for (Word i = first + threadIdx.x * 16; i < whole; i += THREADS * 16) {{
    uint4 x = *(const uint4*)(data + i);
    found = found || bad(x.y, a, b) || bad(x.w, a, b);
    if (!wide) found = found || bad(x.x, a, b) || bad(x.z, a, b);
  }}
  for (Word i = whole + threadIdx.x * 2; i < last; i += THREADS * 2) {{
    u32 x = (u32)*(const u16*)(data + i) << (i & 2 ? 16 : 0);
    u32 upper = (i & 2) ? 0xffff0000u : 0x0000ffffu;
    bool half = (a & 0xffffu) != 0;  // each half is a number; otherwise, only the upper one counts
    if (half) found = found || (x & (a & upper ? a : b)) == (a & upper ? a : b);
    else if ((i & 2) && (!wide || (i & 4))) found = found || bad(x, a, b);
  }}
  if (found) *(int*)w[0] = 1;
}}
"""
KERNELS = (Kernel(TEXT), Kernel(TEXT, many=True))


def can_read(x: Any) -> bool:
    """Whether the kernel can read a CuPy array of floating-point or complex numbers."""
    known = x.dtype.char in _HALVES or x.dtype.char in _WORDS
    return known and x.flags.c_contiguous and not x.data.ptr % 16


def launches(
    flags: int, arrays: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[bool, list[int], int]]:
    """The launches for arrays (address, bytes, dtype's letter): kernel, argument and blocks.

    The flags are 32-bit integers at the address `flags`."""
    parts = []
    for i, (address, nbytes, char) in enumerate(arrays):
        a, b = _HALVES.get(char) or (_WORDS[char], _WORDS[char])
        words = [flags + 4 * i, address, nbytes, a, b, int(char in "dD")]
        if nbytes:
            parts.append((ceil(nbytes / SHARE), words))
    room = kernels.capacity(6)
    for i in range(0, len(parts), room):
        yield kernels.joined(parts[i : i + room])


def not_finite(device: Any, arrays: Sequence[Any], xp: Any) -> list[bool]:
    """Whether CuPy arrays on a device, in row-major order, contain a NaN or an infinity."""
    with device.current():
        flags = xp.zeros(len(arrays), "int32")
        functions = kernels.functions(KERNELS, device)
        given = [(x.data.ptr, x.nbytes, x.dtype.char) for x in arrays]
        for many, words, blocks in launches(flags.data.ptr, given):
            kernel = KERNELS[many]
            driver().launch(functions[kernel], blocks, THREADS, 0, device.stream,
                            words_of(words, kernel.room))
        device.synchronize()
        return [bool(flag) for flag in flags.get()]
