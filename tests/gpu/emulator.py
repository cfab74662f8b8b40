"""Loop nests on the host: Programs whose kernels `fibers` runs, block by block.

The few instructions that the helpers of `gpu.scalars` name are written in C++ for it.
"""

import re

import numpy as np

import toile
from tests.gpu import fibers
from toile.compiler.ir.groups import Limits
from toile.compiler.ir.operands import Ref, Scratch
from toile.compiler.passes.joined_parts import read_parts
from toile.compiler.pipeline import optimize
from toile.compiler.plan.fuse import fuse
from toile.compiler.plan.nests import build, rounding
from toile.engine.program import Literal
from toile.kernels.nest import gpu as nests
from toile.kernels.nest.gpu import can_fuse
from toile.platforms.gpu.target import TARGET
from toile.targets.cuda import scalars
from toile.targets.cuda.modules import threads_of

LIMITS = Limits(total_row=1 << 13)

HOST = {
    "to_half": """u16 to_half(float x) {
  u32 b = (u32)__float_as_int(x), s = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return (u16)(s | 0x7e00u);
  if (a >= 0x477ff000u) return (u16)(s | 0x7c00u);
  if (a < 0x38800000u) {  // subnormal: adding 1/2 rounds where it ends
    float y = __int_as_float((int)a) + 0.5f;
    return (u16)(s | ((u32)__float_as_int(y) - 0x3f000000u));
  }
  a += 0xfffu + (a >> 13 & 1u);
  return (u16)(s | ((a - 0x38000000u) >> 13));
}""",
    "from_half": """float from_half(u16 h) {
  u32 e = h >> 10 & 31, m = h & 1023, s = (u32)(h >> 15) << 31;
  float x = e == 31 ? __int_as_float((int)(0x7f800000u | m << 13))
    : e ? __int_as_float((int)((e + 112) << 23 | m << 13)) : (float)m / 16777216.0f;
  return __int_as_float((int)((u32)__float_as_int(x) | s));
}""",
    "later": """struct Copy { char* to; const char* from; int size, turn; };
static Copy copies[THREADS][256];  // that threads have begun, made when they are waited for
static int begun[THREADS], turns[THREADS];
template <class T> void later(T* to, const T* from) {
  int i = threadIdx.x;
  copies[i][begun[i]++] = Copy{(char*)to, (const char*)from, (int)sizeof(T), turns[i]};
}
void sent() { ++turns[threadIdx.x]; }
template <int N> void arrived() {
  int i = threadIdx.x, kept = 0;
  for (int k = 0; k < begun[i]; ++k) {
    Copy x = copies[i][k];
    if (x.turn < turns[i] - N) memcpy(x.to, x.from, x.size); else copies[i][kept++] = x;
  }
  begun[i] = kept;
}""",
    "quick_exp2": "float quick_exp2(float x) { return exp2f(x); }",
    "quick_log2": "float quick_log2(float x) { return log2f(x); }",
    "quick_reciprocal": "float quick_reciprocal(float x) { return 1.0f / x; }",
    "quick_rsqrt": "float quick_rsqrt(float x) { return 1.0f / sqrtf(x); }",
}

BEFORE = r"""
static int __popcll(u64 x) { return __builtin_popcountll(x); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
using std::signbit;
template <class T, class F> static T __clamped(F x) {
  const T low = (T)1 << (8 * sizeof(T) - 1);
  if ((T)-1 > 0) return x != x || x <= 0 ? 0 : x >= ldexp((F)1, 8 * sizeof(T)) ? (T)-1 : (T)x;
  F edge = ldexp((F)1, 8 * sizeof(T) - 1);
  return x != x ? 0 : x >= edge ? (T)~low : x < -edge ? low : (T)x;
}
static int __float2int_rz(float x) { return __clamped<int>(x); }
static u32 __float2uint_rz(float x) { return __clamped<u32>(x); }
static i64 __float2ll_rz(float x) { return __clamped<i64>(x); }
static u64 __float2ull_rz(float x) { return __clamped<u64>(x); }
static int __double2int_rz(double x) { return __clamped<int>(x); }
static u32 __double2uint_rz(double x) { return __clamped<u32>(x); }
static i64 __double2ll_rz(double x) { return __clamped<i64>(x); }
static u64 __double2ull_rz(double x) { return __clamped<u64>(x); }
alignas(16) static unsigned char dynamic[1 << 18];
"""


def on_host(text):
    """A kernel's text for g++."""
    for name, function in HOST.items():
        function = function if name == "later" else f"static {function}"
        text = text.replace(scalars.HELPERS[name], f"{function}\n")
    text = re.sub(r"#if __CUDA_ARCH__ >= 800\n.*?#else\n(.*?)#endif\n", r"\1", text, flags=re.S)
    assert "asm(" not in text
    text = text.replace("extern __shared__ __align__(16) unsigned char dynamic[];", "")
    return f"#define THREADS {threads_of(text)}\n{BEFORE}" + text.split("\n", 1)[1]


class Nests:
    """The loop nests of a Program with the launches that compute them; a `launches.Planner`."""

    def __init__(self, f, *shapes, excess=True, limits=LIMITS, parts=False):
        self.program = optimize(toile.make_jaxpr(f)(*shapes).jaxpr)
        if parts:  # nests read the parts of concatenations
            self.program, limits = read_parts(self.program, can_fuse), TARGET.limits
        self.fused = fuse(self.program, can_fuse, limits)
        self.stages, self.launches, self.kinds = [], [], []
        for group in self.fused.groups:
            assert group.fusible, group.members[0].equation.op.name
            if any(v in self.fused.stored for v in group.maps):
                x = build(self.fused, group, group.row_by_row(limits))
                x.nest = rounding(x.nest, excess)
                self.kinds.append(x.nest.kind)
                nests.plan_nest(x, self.place, self)

    def place(self, p):
        return Ref(p.base, p.offset * p.dtype.itemsize)

    def scratch(self, nbytes):
        return Ref(Scratch(nbytes))

    def stage(self, *launches):
        assert launches and all(x.threads == threads_of(x.text) for x in launches)
        self.stages.append(launches)
        self.launches += launches

    # ---- running
    def __call__(self, *args):
        """The results of the Program on arrays."""
        self.held = {}
        flat, _ = toile.tree.flatten(args)
        for v, a in zip(self.program.inputs, flat, strict=True):
            self._hold(v, np.asarray(a))
        for launches in self.stages:
            for x in reversed(launches):
                words = [self._address(a) if isinstance(a, Ref) else a for a in x.args]
                fibers.execute(on_host(x.text), words, x.blocks)
        return [self._result(o) for o in self.program.outputs]

    def _memory(self, nbytes):
        room = np.full(nbytes + 512, 0xA5, np.uint8)
        start = -room.ctypes.data % 256
        return room[start: start + nbytes]

    def _hold(self, buffer, array):
        memory = self._memory(array.nbytes)
        memory[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        self.held[buffer] = memory

    def _address(self, ref):
        buffer = ref.buffer
        if buffer not in self.held:
            if isinstance(buffer, Literal):
                self._hold(buffer, np.asarray(buffer.val))
            else:
                nbytes = buffer.nbytes if isinstance(buffer, Scratch) else buffer.aval.nbytes
                self.held[buffer] = self._memory(nbytes)
        return self.held[buffer].ctypes.data + ref.offset

    def _result(self, o):
        if isinstance(o, Literal):
            return np.asarray(o.val)
        view = self.fused.view(o)
        dtype = np.dtype(o.aval.dtype)
        self._address(Ref(view.base))
        elements = self.held[view.base].view(dtype)
        strides = tuple(s * dtype.itemsize for s in view.strides)
        return np.lib.stride_tricks.as_strided(elements[view.offset:], view.shape, strides).copy()
