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
  const int n1 = (int)w[2];
  const int rows = (int)w[3];
  const int s0_0 = (int)w[4];
  const int* const p0 = (const int*)w[5];
  const int s1_0 = (int)w[6];
  const float* const p1 = (const float*)w[7];
  float* const p2 = (float*)w[8];
  const float v1 = __int_as_float((int)w[0]);
  const float v2 = __int_as_float((int)w[1]);
  const int lane = (int)threadIdx.x % 32;
  const int packs = n1;
  const int from = 0, to = packs;
  const int place = (int)block * 4 + (int)threadIdx.x / 32;
  const int row = place < rows ? place : rows - 1;
  const bool live = place < rows;
  const int* const b0 = p0 + (row * s0_0);
  const float* const b1 = p1 + (row * s1_0);
  float* const b2 = p2 + (row * s1_0);
  Pack<float, 4> a1[1];
  const int start = from + lane;
  float k9[4];
  const int v3 = b0[0];
  float t5 = (-__int_as_float(0x7f800000));
  float t14 = (-0.0f);
  {
    const int u = 0;
    const int v4 = start + u * 32 < to ? start + u * 32 : to - 1;
    a1[u] = *(const Pack<float, 4>*)(b1 + (v4 * 4));
  }
  {
    const int u = 0;
    const int v5 = start + u * 32;
    const bool ok = u < 0 || v5 < to;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const bool v6 = v3 == (v5 * 4 + j);
      const float v7 = (float)v6;
      const float v8 = a1[u].e[j];
      const float v9 = v2 * v7;
      const float v10 = -v9;
      const float v11 = most(t5, v8);
      t5 = ok ? v11 : t5;
      const float v12 = t14 + v10;
      t14 = ok ? v12 : t14;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v13 = __shfl_xor_sync(0xffffffffu, t5, o);
    const float v14 = most(t5, v13);
    t5 = v14;
    const float v15 = __shfl_xor_sync(0xffffffffu, t14, o);
    const float v16 = t14 + v15;
    t14 = v16;
  }
  const float v17 = most(v1, t5);
  float t10 = (-0.0f);
  {
    const int u = 0;
    const int v18 = start + u * 32;
    const bool ok = u < 0 || v18 < to;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const float v19 = a1[u].e[j];
      const float v20 = v19 - v17;
      const float v21 = expf(v20);
      k9[u * 4 + j] = v21;
      const float v22 = t10 + v21;
      t10 = ok ? v22 : t10;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v23 = __shfl_xor_sync(0xffffffffu, t10, o);
    const float v24 = t10 + v23;
    t10 = v24;
  }
  const float v25 = t14 / t10;
  {
    const int u = 0;
    const int v26 = start + u * 32;
    const bool ok = u < 0 || v26 < to;
    Pack<float, 4> q0;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const bool v27 = v3 == (v26 * 4 + j);
      const float v28 = (float)v27;
      const float v29 = v2 * v28;
      const float v30 = v25 * k9[u * 4 + j];
      const float v31 = v29 + v30;
      q0.e[j] = v31;
    }
    if (ok && live) *(Pack<float, 4>*)(b2 + (v26 * 4)) = q0;
  }
}
