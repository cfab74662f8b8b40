// 1: row
#define THREADS 128
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
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
  const int n1 = (int)w[1];
  const int rows = (int)w[2];
  const int s0_0 = (int)w[3];
  const float* const p0 = (const float*)w[4];
  float* const p1 = (float*)w[5];
  const float v1 = __int_as_float((int)w[0]);
  const int lane = (int)threadIdx.x % 32;
  const int packs = n1;
  const int from = 0, to = packs;
  const int place = (int)block * 4 + (int)threadIdx.x / 32;
  const int row = place < rows ? place : rows - 1;
  const bool live = place < rows;
  const float* const b0 = p0 + (row * s0_0);
  float* const b1 = p1 + (row * s0_0);
  Pack<float, 4> a0[1];
  const int start = from + lane;
  float k5[4];
  float t1 = (-__int_as_float(0x7f800000));
  {
    const int u = 0;
    const int v2 = start + u * 32 < to ? start + u * 32 : to - 1;
    a0[u] = *(const Pack<float, 4>*)(b0 + (v2 * 4));
  }
  {
    const int u = 0;
    const int v3 = start + u * 32;
    const bool ok = u < 0 || v3 < to;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const float v4 = a0[u].e[j];
      const float v5 = most(t1, v4);
      t1 = ok ? v5 : t1;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v6 = __shfl_xor_sync(0xffffffffu, t1, o);
    const float v7 = most(t1, v6);
    t1 = v7;
  }
  const float v8 = most(v1, t1);
  float t6 = (-0.0f);
  {
    const int u = 0;
    const int v9 = start + u * 32;
    const bool ok = u < 0 || v9 < to;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const float v10 = a0[u].e[j];
      const float v11 = v10 - v8;
      const float v12 = expf(v11);
      k5[u * 4 + j] = v12;
      const float v13 = t6 + v12;
      t6 = ok ? v13 : t6;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v14 = __shfl_xor_sync(0xffffffffu, t6, o);
    const float v15 = t6 + v14;
    t6 = v15;
  }
  {
    const int u = 0;
    const int v16 = start + u * 32;
    const bool ok = u < 0 || v16 < to;
    Pack<float, 4> q0;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const float v17 = fabsf(t6);
      const bool v18 = v17 < 1.1754943508222875e-38f;
      const float v19 = v18 ? 1.8446744073709552e+19f : 1.0f;
      const bool v20 = v17 > 8.507059173023462e+37f;
      const float v21 = v20 ? 5.421010862427522e-20f : v19;
      const float v22 = k5[u * 4 + j] * v21;
      const float v23 = t6 * v21;
      const float v24 = 1.0f / v23;
      const float v25 = v22 * v24;
      q0.e[j] = v25;
    }
    if (ok && live) *(Pack<float, 4>*)(b1 + (v16 * 4)) = q0;
  }
}
