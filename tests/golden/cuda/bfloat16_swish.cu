// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ u16 to_bf16(float x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#else
__device__ __forceinline__ u16 to_bf16(float x) {
  const u32 b = (u32)__float_as_int(x);
  return x != x ? 0x7fff : (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
#endif
__device__ __forceinline__ float from_bf16(u16 x) {
  return __int_as_float((int)((u32)x << 16));
}
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ u32 two_bf16(float x, float y) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(y));
  return r;
}
#else
__device__ __forceinline__ u32 two_bf16(float x, float y) {
  return (u32)to_bf16(x) << 16 | to_bf16(y);
}
#endif
__device__ __forceinline__ float quick_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float quick_reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float quick_exp(float x) {
  return quick_exp2(1.4426950408889634f * x);
}
__device__ __forceinline__ float quick_logistic(float x) {
  return quick_reciprocal(1.0f + quick_exp(-x));
}
__device__ void body(const Word* w, unsigned block) {
  const int units = (int)w[0];
  const u16* const p0 = (const u16*)w[1];
  u16* const p1 = (u16*)w[2];
  const int first = (int)block * 512 + (int)threadIdx.x;
  Pack<u16, 8> a0[2];
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int v1 = first + u * 256 < units ? first + u * 256 : units - 1;
    a0[u] = *(const Pack<u16, 8>*)(p0 + (v1 * 8));
  }
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    if (first + u * 256 < units) {
      const int v2 = first + u * 256 < units ? first + u * 256 : units - 1;
      float f0[8];
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        const float v3 = from_bf16(a0[u].e[j]);
        const float v4 = quick_logistic(v3);
        const float v5 = v3 * v4;
        f0[j] = v5;
      }
      Pack<u32, 4> q0;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        q0.e[j] = two_bf16(f0[2 * j + 1], f0[2 * j]);
      }
      *(Pack<u32, 4>*)(p1 + (v2 * 8)) = q0;
    }
  }
}
