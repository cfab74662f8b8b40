"""Which arrays on a GPU contain a NaN or an infinity: one launch reads up to 71 arrays.

Both have all bits of their exponent set. For each array, a kernel sets one number in memory of the
host if it finds a NaN, and another if it finds an infinity; nothing else is copied. This module may
import platforms.gpu and targets.cuda.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from toile.targets.cuda import modules as kernels
from toile.targets.cuda.driver import driver, words_of
from toile.targets.cuda.launches import THREADS
from toile.targets.cuda.modules import Kernel

SHARE = 1 << 16  # bytes that a thread block reads
ALIGNMENT = 16  # of addresses
_MAX_PLANS = 256

# The bytes of a number, and its exponent's bits; of a number of 64 bits, those in the upper half.
_FORMS = {"e": (2, 0x7C00), "E": (2, 0x7F80), "f": (4, 0x7F800000), "F": (4, 0x7F800000),
          "d": (8, 0x7FF00000), "D": (8, 0x7FF00000)}

# w: the address of the two numbers to set, the data's address and its bytes, the bytes of a number,
# and its exponent's bits.
TEXT = f"""\
#define THREADS {THREADS}
__device__ bool full(u32 x, u32 mask) {{ return (x & mask) == mask; }}
// What the numbers from byte `first` on are: 1 is a NaN, 2 an infinity, 3 both, 0 neither.
__device__ int kinds(const char* data, Word first, Word last, Word step, int size, u32 exponent) {{
  int found = 0;
  for (Word i = first; i < last; i += step) {{
    u32 x = size == 2 ? *(const u16*)(data + i) : *(const u32*)(data + i + size - 4);
    u32 rest = x & ((size == 2 ? 0x7fffu : 0x7fffffffu) ^ exponent);
    if (size == 8) rest |= *(const u32*)(data + i);
    if (full(x, exponent)) found |= rest ? 1 : 2;
  }}
  return found;
}}
__device__ void body(const Word* w, unsigned block) {{
  const char* data = (const char*)w[1];
  Word first = (Word)block * {SHARE}, last = first + {SHARE};
  if (last > w[2]) last = w[2];
  int size = (int)w[3], found = 0;
  u32 exponent = (u32)w[4], both = exponent << 16;
  Word whole = last & ~15ll;
  bool seen = false;
  #pragma unroll 4
  for (Word i = first + threadIdx.x * 16; i < whole; i += THREADS * 16) {{
    uint4 x = *(const uint4*)(data + i);
    seen |= full(x.y, exponent) | full(x.w, exponent);
    seen |= (size < 8) & (full(x.x, exponent) | full(x.z, exponent));
    seen |= (size == 2) & (full(x.x, both) | full(x.y, both) | full(x.z, both) | full(x.w, both));
  }}
  if (seen)  // rare: read the same bytes again
    for (Word i = first + threadIdx.x * 16; i < whole; i += THREADS * 16)
      found |= kinds(data, i, i + 16, size, size, exponent);
  found |= kinds(data, whole + threadIdx.x * size, last, THREADS * size, size, exponent);
  if (found & 1) ((int*)w[0])[0] = 1;
  if (found & 2) ((int*)w[0])[1] = 1;
}}
"""
KERNELS = (Kernel(TEXT), Kernel(TEXT, many=True))
_WIDTH = 5

# A launch: whether its kernel serves many arrays, its argument, and its blocks.
Form = tuple[bool, list[int], int]


def can_read(signature: Any) -> bool:
    """Whether the kernel knows the dtype of arrays of floating-point or complex numbers."""
    return signature.buffer_dtype.char in _FORMS


def launches(found: int, arrays: Sequence[tuple[int, int, str]]) -> Iterator[Form]:
    """The launches for arrays (address, bytes, dtype's letter).

    Each array has two 32-bit integers; those of the first array are at the address `found`."""
    parts = []
    for i, (address, nbytes, char) in enumerate(arrays):
        if nbytes:
            parts.append((ceil(nbytes / SHARE), [found + 8 * i, address, nbytes, *_FORMS[char]]))
    room = kernels.capacity(_WIDTH)
    for i in range(0, len(parts), room):
        yield kernels.joined(parts[i : i + room])


class _Plan:
    """Prepared launches for arrays of some sizes and dtypes on a device, for one thread.

    The addresses of arrays are unknown until they are tested: array i has the address -1 - i."""

    def __init__(self, device: Any, forms: Sequence[tuple[int, str]]):
        self.device = device
        self.found, address, self.memory = device.host_words(2 * len(forms))
        self.found[:] = 0
        self.functions = kernels.functions(KERNELS, device)
        self.launches = []
        given = [(-1 - i, *form) for i, form in enumerate(forms)]
        for many, words, blocks in launches(address, given):
            argument = words_of(words, KERNELS[many].room)
            view = np.frombuffer(argument, np.int64)
            places = np.flatnonzero(view < 0)
            self.launches.append((self.functions[KERNELS[many]], blocks, argument, view, places,
                                  -1 - view[places]))

    def run(self, addresses: Any) -> bool:
        """Test the arrays at some addresses; returns whether nothing was found."""
        device, launch = self.device, driver().launch
        with device.current():
            for function, blocks, argument, view, places, which in self.launches:
                view[places] = addresses[which]
                launch(function, blocks, THREADS, 0, device.stream, argument)
            device.synchronize()
        return not self.found.any()

    def answers(self) -> list[tuple[bool, bool]]:
        """What the last run has found in each array."""
        found = [(bool(nan), bool(inf)) for nan, inf in self.found.reshape(-1, 2)]
        self.found[:] = 0
        return found


class _Plans(threading.local):
    """The plans of a thread by the signatures of arrays."""

    def __init__(self) -> None:
        self.plans: dict[Any, _Plan | None] = {}

    def of(self, signatures: tuple[Any, ...]) -> _Plan | None:
        """The plan for arrays; None if they are on several devices, or not all can be read."""
        if signatures in self.plans:
            return self.plans[signatures]
        if len(self.plans) >= _MAX_PLANS:
            self.plans.clear()
        devices = {s.device for s in signatures}
        plan = None
        if len(devices) == 1 and None not in devices and all(map(can_read, signatures)):
            forms = [(prod(s.buffer_shape) * s.buffer_dtype.itemsize, s.buffer_dtype.char)
                     for s in signatures]
            plan = _Plan(signatures[0].device, forms)
        self.plans[signatures] = plan
        return plan


_plans = _Plans()


def _run(arrays: Sequence[Any]) -> tuple[_Plan | None, bool]:
    """The plan that has run for arrays, if there is one, and whether it has found nothing."""
    plan = _plans.of(tuple([x._signature for x in arrays]))
    if plan is None:
        return None, False
    addresses = np.array([x._pointer for x in arrays], np.int64)
    if (addresses % ALIGNMENT).any():
        return None, False
    return plan, plan.run(addresses)


def all_finite(arrays: Sequence[Any]) -> bool | None:
    """Whether arrays contain no NaN and no infinity. None: the kernel cannot read all of them, or
    they are on several devices."""
    plan, clean = _run(arrays)
    if plan is None:
        return None
    if not clean:
        plan.found[:] = 0
    return clean


def non_finite(arrays: Sequence[Any]) -> list[tuple[bool, bool]] | None:
    """For each array, whether it contains a NaN, and whether it contains an infinity. None: see
    `all_finite`."""
    plan, _ = _run(arrays)
    return None if plan is None else plan.answers()
