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
  const int n1 = (int)w[0];
  const int rows = (int)w[1];
  const int s0_0 = (int)w[2];
  const float* const p0 = (const float*)w[3];
  const int s1_0 = (int)w[4];
  float* const p1 = (float*)w[5];
  u8* const p2 = (u8*)w[6];
  const int lane = (int)threadIdx.x % 32;
  const int packs = n1;
  const int from = 0, to = packs;
  const int place = (int)block * 4 + (int)threadIdx.x / 32;
  const int row = place < rows ? place : rows - 1;
  const bool live = place < rows;
  const float* const b0 = p0 + (row * s0_0);
  float* const b1 = p1 + (row * s1_0);
  u8* const b2 = p2 + (row * s1_0);
  Pack<float, 4> a0[1];
  const int start = from + lane;
  float t1 = (-__int_as_float(0x7f800000));
  {
    const int u = 0;
    const int v1 = start + u * 32 < to ? start + u * 32 : to - 1;
    a0[u] = *(const Pack<float, 4>*)(b0 + (v1 * 4));
  }
  {
    const int u = 0;
    const int v2 = start + u * 32;
    const bool ok = u < 0 || v2 < to;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const float v3 = a0[u].e[j];
      const float v4 = most(t1, v3);
      t1 = ok ? v4 : t1;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v5 = __shfl_xor_sync(0xffffffffu, t1, o);
    const float v6 = most(t1, v5);
    t1 = v6;
  }
  bool t3 = false;
  {
    const int u = 0;
    const int v7 = start + u * 32;
    const bool ok = u < 0 || v7 < to;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      const float v8 = a0[u].e[j];
      const bool v9 = v8 == t1;
      const bool v10 = t3 | v9;
      t3 = ok ? v10 : t3;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const bool v11 = (bool)__shfl_xor_sync(0xffffffffu, (int)t3, o);
    const bool v12 = t3 | v11;
    t3 = v12;
  }
  if (lane == 0 && live) {
    b1[0] = t1;
    b2[0] = t3;
  }
}
