"""QR decompositions of many small real matrices: one block of threads for each, in shared memory.

The matrix lies there by columns. For each column in turn, every warp computes the reflector and one
warp stores it; then each warp applies it to its share of the columns behind. Columns of Q do not
depend on each other: a warp applies all reflectors to a unit vector, a few rows in each lane.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.cuda.driver import shared_limit
from toile.targets.cuda.launches import Launch
from toile.targets.cuda.text import kernel_text

MOST = 128  # rows and columns
_THREADS = 256
_NAMES = {"float32": "float", "float64": "double"}


def fits(dtype: Any, m: int, n: int) -> bool:
    """Whether the kernel can decompose such matrices."""
    return dtype.name in _NAMES and max(m, n) <= MOST and _shared(dtype, m, n) <= shared_limit()


def _shared(dtype: Any, m: int, n: int) -> int:
    """The bytes of shared memory that a block needs."""
    return -(-(m * n + min(m, n)) * dtype.itemsize // 16) * 16


def launch(q: Ref, r: Ref, x: Ref, dtype: Any, sizes: tuple[int, int, int], count: int) -> Launch:
    """Q and R of row-major matrices; `sizes` are rows, columns, and columns of Q."""
    m, n, k = sizes
    size = dtype.itemsize
    nbytes = count * (m * n + m * k + k * n) * size
    return Launch(_text(_NAMES[dtype.name]), (q, r, x, m, n, k), count, _THREADS,
                  _shared(dtype, m, n), "QR of small matrices", nbytes=nbytes)


@cache
def _text(real: str) -> str:
    root, size, sign = ("sqrtf", "fabsf", "copysignf") if real == "float" else (
        "sqrt", "fabs", "copysign")
    head = f"""\
typedef {real} Real;
__device__ inline Real total(Real x) {{
  for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
  return x;
}}
__device__ inline Real largest(Real x) {{
  for (int d = 16; d; d >>= 1) {{
    const Real y = __shfl_xor_sync(~0u, x, d);
    x = y > x || y != y ? y : x;
  }}
  return x;
}}
"""
    return kernel_text(f"""\
  extern __shared__ __align__(16) unsigned char dynamic[];
  const int m = (int)w[3], n = (int)w[4], k = (int)w[5], small = m < n ? m : n;
  Real* const a = (Real*)dynamic;
  Real* const taus = a + m * n;
  Real* const q = (Real*)w[0] + (i64)block * m * k;
  Real* const r = (Real*)w[1] + (i64)block * k * n;
  const Real* const x = (const Real*)w[2] + (i64)block * m * n;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = THREADS / 32;
  for (int i = threadIdx.x; i < m * n; i += THREADS) a[i % n * m + i / n] = x[i];
  __syncthreads();
  for (int j = 0; j < small; ++j) {{
    Real* const v = a + j * m;
    Real most = 0;
    for (int i = j + 1 + lane; i < m; i += 32) {{
      const Real y = {size}(v[i]);
      most = y > most || y != y ? y : most;
    }}
    most = largest(most);
    const Real first = v[j];
    Real tau = 0, divisor = 1, diagonal = first;
    if (most != 0) {{
      const Real scale = most > {size}(first) ? most : {size}(first);
      Real sum = 0;
      for (int i = j + 1 + lane; i < m; i += 32) sum += v[i] / scale * (v[i] / scale);
      sum = total(sum) + first / scale * (first / scale);
      diagonal = -{sign}(scale * {root}(sum), first);
      tau = (diagonal - first) / diagonal;
      divisor = first - diagonal;
    }}
    __syncthreads();
    for (int i = j + 1 + threadIdx.x; i < m; i += THREADS) v[i] /= divisor;
    if (threadIdx.x == 0) v[j] = diagonal, taus[j] = tau;
    __syncthreads();
    for (int c = j + 1 + warp; c < n; c += warps) {{
      Real* const y = a + c * m;
      Real dot = 0;
      for (int i = j + 1 + lane; i < m; i += 32) dot += v[i] * y[i];
      dot = (total(dot) + y[j]) * tau;
      __syncwarp();
      for (int i = j + 1 + lane; i < m; i += 32) y[i] -= dot * v[i];
      if (lane == 0) y[j] -= dot;
    }}
    __syncthreads();
  }}
  for (int i = threadIdx.x; i < k * n; i += THREADS) {{
    const int row = i / n, column = i % n;
    r[i] = row <= column ? a[column * m + row] : (Real)0;
  }}
  for (int c = warp; c < k; c += warps) {{
    Real y[{MOST // 32}];
    #pragma unroll
    for (int t = 0; t < {MOST // 32}; ++t) y[t] = t * 32 + lane == c ? (Real)1 : (Real)0;
    for (int j = c < small ? c : small - 1; j >= 0; --j) {{
      const Real* const v = a + j * m;
      Real dot = 0;
      #pragma unroll
      for (int t = 0; t < {MOST // 32}; ++t) {{
        const int i = t * 32 + lane;
        if (i > j && i < m) dot += v[i] * y[t];
        if (i == j) dot += y[t];
      }}
      dot = total(dot) * taus[j];
      #pragma unroll
      for (int t = 0; t < {MOST // 32}; ++t) {{
        const int i = t * 32 + lane;
        if (i > j && i < m) y[t] -= dot * v[i];
        if (i == j) y[t] -= dot;
      }}
    }}
    #pragma unroll
    for (int t = 0; t < {MOST // 32}; ++t)
      if (t * 32 + lane < m) q[(t * 32 + lane) * k + c] = y[t];
  }}
""", head, wide=None, threads=_THREADS)
