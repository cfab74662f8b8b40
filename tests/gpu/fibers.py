"""Runs the text of CUDA kernels on the host: the threads of a block are fibers of one thread.

g++ compiles a text with the words of CUDA that it uses defined around it. A fiber runs until it
meets a barrier of its warp or block, or ends; nothing runs in parallel, so results are exact and
repeatable, and a barrier that not all threads of a warp or block reach is an error.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from toile.targets.cuda.modules import PRELUDE, threads_of

MOST_STACK = 1 << 16  # bytes of a fiber

_BEFORE = r"""
#include <cmath>
#include <cstring>
#include <cstdio>
#include <cstdlib>
#include <csetjmp>
#include <ucontext.h>
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(8) uint2 { unsigned x, y; };
struct Index3 { unsigned x, y, z; };
static Index3 threadIdx;

namespace fibers {
enum State { RUNS, AT_WARP, AT_BLOCK, DONE };
const int MOST = 1024;
static ucontext_t contexts[MOST];  // where fibers begin; later switches need no system calls
static jmp_buf scheduler, jumps[MOST];
static bool fresh[MOST];
static State states[MOST];
static unsigned turns[MOST];
static unsigned long long held[2][MOST];
static int gathered[2];
static bool voted[2][MOST];
static int count;

static void stop(State state) {
  unsigned me = threadIdx.x;
  states[me] = state;
  if (_setjmp(jumps[me]) == 0) _longjmp(scheduler, 1);
}
}  // namespace fibers

static void __syncthreads() { fibers::stop(fibers::AT_BLOCK); }
static void __syncwarp(unsigned = ~0u) { fibers::stop(fibers::AT_WARP); }
static void __threadfence() {}
static void __threadfence_block() {}

template <class T> static unsigned __exchange(T x) {  // the row in which all lanes' values lie
  unsigned me = threadIdx.x, row = fibers::turns[me]++ & 1;
  fibers::held[row][me] = 0;
  memcpy(&fibers::held[row][me], &x, sizeof(T));
  fibers::voted[row][me] = true;
  fibers::stop(fibers::AT_WARP);
  return row;
}
template <class T> static T __value(unsigned row, unsigned lane) {
  T x; unsigned at = (threadIdx.x & ~31u) + lane;
  if ((int)at >= fibers::count) at = threadIdx.x;
  memcpy(&x, &fibers::held[row][at], sizeof(T)); return x;
}
template <class T> static T __shfl_sync(unsigned, T x, int lane, int width = 32) {
  unsigned row = __exchange(x), me = threadIdx.x & 31;
  return __value<T>(row, (me & ~(width - 1)) | (lane & (width - 1)));
}
template <class T> static T __shfl_up_sync(unsigned, T x, unsigned d, int width = 32) {
  unsigned row = __exchange(x), me = threadIdx.x & 31;
  return __value<T>(row, (int)(me & (width - 1)) - (int)d < 0 ? me : me - d);
}
template <class T> static T __shfl_down_sync(unsigned, T x, unsigned d, int width = 32) {
  unsigned row = __exchange(x), me = threadIdx.x & 31;
  return __value<T>(row, (me & (width - 1)) + d >= (unsigned)width ? me : me + d);
}
template <class T> static T __shfl_xor_sync(unsigned, T x, int mask, int = 32) {
  unsigned row = __exchange(x);
  return __value<T>(row, (threadIdx.x & 31) ^ mask);
}
static unsigned __ballot_sync(unsigned, bool x) {
  unsigned row = __exchange<unsigned char>(x), out = 0, base = threadIdx.x & ~31u;
  for (int lane = 0; lane < 32 && (int)base + lane < fibers::count; ++lane)
    if (fibers::states[base + lane] != fibers::DONE && (fibers::held[row][base + lane] & 1))
      out |= 1u << lane;
  return out;
}
static bool __any_sync(unsigned m, bool x) { return __ballot_sync(m, x) != 0; }
static bool __all_sync(unsigned m, bool x) { return __ballot_sync(m, !x) == 0; }
static int __syncthreads_count(bool x) {
  static int total;
  if (x) ++fibers::gathered[0];
  __syncthreads();
  total = fibers::gathered[0];
  __syncthreads();
  fibers::gathered[0] = 0;
  int mine = total;
  __syncthreads();
  return mine;
}
static int __syncthreads_or(bool x) { return __syncthreads_count(x) != 0; }

static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
template <class A, class B> static A __as(B x) { A y; memcpy(&y, &x, sizeof y); return y; }
static float __int_as_float(int x) { return __as<float>(x); }
static float __uint_as_float(unsigned x) { return __as<float>(x); }
static int __float_as_int(float x) { return __as<int>(x); }
static unsigned __float_as_uint(float x) { return __as<unsigned>(x); }
static double __longlong_as_double(long long x) { return __as<double>(x); }
static long long __double_as_longlong(double x) { return __as<long long>(x); }
template <class T> static T __ldg(const T* p) { return *p; }
template <class T> static T atomicAdd(T* p, T x) { T old = *p; *p = old + x; return old; }
template <class T> static T atomicMax(T* p, T x) { T old = *p; if (x > old) *p = x; return old; }
template <class T> static T atomicMin(T* p, T x) { T old = *p; if (x < old) *p = x; return old; }
template <class T> static T atomicOr(T* p, T x) { T old = *p; *p = old | x; return old; }
// A condition of a graph is the address of its value.
extern "C" inline void cudaGraphSetConditional(unsigned long long condition, unsigned value) {
  *(unsigned*)condition = value;
}
using std::fmaf; using std::fma; using std::fmaxf; using std::fminf;
using std::isnan; using std::log1p; using std::exp; using std::fabs;
"""

_AFTER = r"""
namespace fibers {
static const Word* words; static unsigned block;
static void enter() {
  body(words, block);
  states[threadIdx.x] = DONE;
  _longjmp(scheduler, 1);
}

static void resume(int i) {
  threadIdx.x = i;
  states[i] = RUNS;
  if (_setjmp(scheduler)) return;
  if (!fresh[i]) _longjmp(jumps[i], 1);
  fresh[i] = false;
  setcontext(&contexts[i]);
}

static int one(char* stacks) {
  count = THREADS;
  for (int i = 0; i < THREADS; ++i) {
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stacks + (size_t)i * STACK;
    contexts[i].uc_stack.ss_size = STACK;
    contexts[i].uc_link = 0;
    makecontext(&contexts[i], enter, 0);
    states[i] = RUNS; turns[i] = 0; fresh[i] = true;
  }
  for (int i = THREADS - 1; i >= 0; --i) resume(i);
  for (;;) {
    int live = 0, waiting = 0; bool moved = false;
    for (int base = 0; base < THREADS; base += 32) {
      int warp = 0, block_ = 0, end = base + 32 < THREADS ? base + 32 : THREADS;
      for (int i = base; i < end; ++i) {
        warp += states[i] == AT_WARP;
        block_ += states[i] == AT_BLOCK;
      }
      if (warp && block_) return 1;
      live += warp + block_; waiting += block_;
      if (warp) { moved = true;
        for (int i = base; i < end; ++i) if (states[i] == AT_WARP) resume(i); }
    }
    if (!live) return 0;
    if (moved) continue;
    if (waiting == live) {
      bool was[MOST];
      for (int i = 0; i < THREADS; ++i) was[i] = states[i] == AT_BLOCK;
      for (int i = THREADS - 1; i >= 0; --i) if (was[i]) resume(i);
    }
  }
}
}  // namespace fibers

// Called where a pointer is not a multiple of the alignment of its type: an error on a GPU.
static int misaligned;
extern "C" void __ubsan_handle_type_mismatch_v1(void*, void*) { misaligned = 1; }

extern "C" int run(const Word* w, unsigned blocks) {
  static char* stacks = (char*)malloc((size_t)THREADS * STACK);
  misaligned = 0;
  fibers::words = w;
  for (unsigned b = blocks; b-- > 0;) {
    fibers::block = b;
    if (fibers::one(stacks)) return 1;
  }
  return misaligned ? 2 : 0;
}
"""


def available():
    """Whether kernels can be run here."""
    return shutil.which("g++") is not None


# Kernels need nothing of the C++ library, which takes longer to link than they take to compile, and
# C++17 makes its header twice as long.
OPTIONS = ["-std=c++14", "-O1", "-w", "-U_FORTIFY_SOURCE", "-ffp-contract=off", "-fPIC",
           "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
           "-fno-asynchronous-unwind-tables", "-fsanitize=alignment"]
LINKED = ["-shared", "-nostdlib", "-lm", "-lgcc"]


@functools.cache
def _folder():
    """Where this process compiles kernels, with what stands before all of them compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="kernels"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    header = folder / "before.h"
    header.write_text(_BEFORE + PRELUDE)
    subprocess.run(["g++", *OPTIONS, "-x", "c++-header", str(header)], check=True)
    return folder


def _libraries():
    """Where compiled kernels lie: with those of the other workers of a run, if it has any."""
    shared = os.environ.get("TOILE_TEST_FOLDER")
    return Path(shared) if shared else _folder()


@functools.cache
def _function(text):
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    library = _libraries() / f"{name}.so"
    if not library.exists():
        source, made = _folder() / f"{name}.cpp", _folder() / f"{name}.new"
        after = f"\n#define STACK {MOST_STACK}\n" + _AFTER
        source.write_text('#include "before.h"\n' + text + after)
        command = ["g++", *OPTIONS, "-o", str(made), str(source), *LINKED]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{done.stderr[:4000]}\n{text}")
        os.replace(made, library)
    run = ctypes.CDLL(str(library)).run
    run.argtypes, run.restype = (ctypes.c_void_p, ctypes.c_uint), ctypes.c_int
    return run


def execute(text, words, blocks):
    """Run all blocks of a launch; `words` are integers, addresses of host memory among them."""
    given = np.array([w - 2**64 if w >= 2**63 else w for w in words], np.int64)
    threads_of(text)
    failed = _function(text)(given.ctypes.data, blocks)
    if failed:
        what = ["threads of a warp wait at different barriers", "a misaligned address"][failed - 1]
        raise RuntimeError(f"{what}\n{text}")
