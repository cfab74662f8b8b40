// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ __forceinline__ u32 divide(u32 n, Word m) {
  return (__umulhi(n, (u32)m) + n) >> (u32)(m >> 32);
}
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ float most(float x, float y) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
#else
__device__ __forceinline__ float most(float x, float y) {
  return x > y || x != x ? x : y > x || y != y ? y : signbit(x) ? y : x;
}
#endif
__device__ void body(const Word* w, unsigned block) {
  const int units = (int)w[1];
  const int n1 = (int)w[2];
  const Word m1 = w[3];
  const float* const p0 = (const float*)w[4];
  const int s0_0 = (int)w[5];
  const float* const p1 = (const float*)w[6];
  float* const p2 = (float*)w[7];
  const float v1 = __int_as_float((int)w[0]);
  const int first = (int)block * 512 + (int)threadIdx.x;
  Pack<float, 4> a0[2];
  Pack<float, 4> a1[2];
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int v2 = first + u * 256 < units ? first + u * 256 : units - 1;
    const int v3 = (int)divide((u32)v2, m1);
    const int v4 = v2 - v3 * n1;
    a0[u] = *(const Pack<float, 4>*)(p0 + (v4 * 4 + v3 * s0_0));
    a1[u] = *(const Pack<float, 4>*)(p1 + (v4 * 4));
  }
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    if (first + u * 256 < units) {
      const int v5 = first + u * 256 < units ? first + u * 256 : units - 1;
      const int v6 = (int)divide((u32)v5, m1);
      const int v7 = v5 - v6 * n1;
      Pack<float, 4> q0;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v8 = a0[u].e[j];
        const float v9 = a1[u].e[j];
        const float v10 = v8 + v9;
        const float v11 = most(v10, v1);
        q0.e[j] = v11;
      }
      *(Pack<float, 4>*)(p2 + (v7 * 4 + v6 * s0_0)) = q0;
    }
  }
}
