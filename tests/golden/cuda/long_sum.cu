// 1: partial
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int n0 = (int)w[0];
  const int parts = (int)w[1];
  const int step = (int)w[2];
  const float* const p0 = (const float*)w[3];
  float* const o2 = (float*)w[4];
  const int lane = (int)threadIdx.x % 256;
  const int packs = n0;
  const int row = (int)block / parts;
  const int from = ((int)block - row * parts) * step;
  const int to = from + step < packs ? from + step : packs;
  float t2 = (-0.0f);
  for (int start = from + lane; start < to; start += 1024) {
    Pack<float, 4> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v1 = start + u * 256 < to ? start + u * 256 : to - 1;
      a0[u] = *(const Pack<float, 4>*)(p0 + (v1 * 4));
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v2 = start + u * 256;
      if (v2 < to) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          const float v3 = a0[u].e[j];
          const float v4 = v3 * v3;
          const float v5 = t2 + v4;
          t2 = v5;
        }
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v6 = __shfl_xor_sync(0xffffffffu, t2, o);
    const float v7 = t2 + v6;
    t2 = v7;
  }
  __shared__ float rt2[8];
  if (lane % 32 == 0) {
    rt2[lane / 32] = t2;
  }
  __syncthreads();
  t2 = rt2[lane % 8];
  #pragma unroll
  for (int o = 4; o > 0; o >>= 1) {
    const float v8 = __shfl_xor_sync(0xffffffffu, t2, o);
    const float v9 = t2 + v8;
    t2 = v9;
  }
  if (lane == 0) {
    o2[block] = t2;
  }
}

// 2: row
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int n0 = (int)w[0];
  const float* const p0 = (const float*)w[1];
  float* const p1 = (float*)w[2];
  const int lane = (int)threadIdx.x % 256;
  const int packs = n0;
  const int from = 0, to = packs;
  const int row = (int)block;
  float t1 = (-0.0f);
  for (int start = from + lane; start < to; start += 1024) {
    Pack<float, 1> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v1 = start + u * 256 < to ? start + u * 256 : to - 1;
      a0[u] = *(const Pack<float, 1>*)(p0 + (v1));
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v2 = start + u * 256;
      if (v2 < to) {
        {
          const int j = 0;
          const float v3 = a0[u].e[j];
          const float v4 = t1 + v3;
          t1 = v4;
        }
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v5 = __shfl_xor_sync(0xffffffffu, t1, o);
    const float v6 = t1 + v5;
    t1 = v6;
  }
  __shared__ float rt1[8];
  if (lane % 32 == 0) {
    rt1[lane / 32] = t1;
  }
  __syncthreads();
  t1 = rt1[lane % 8];
  #pragma unroll
  for (int o = 4; o > 0; o >>= 1) {
    const float v7 = __shfl_xor_sync(0xffffffffu, t1, o);
    const float v8 = t1 + v7;
    t1 = v8;
  }
  if (lane == 0) {
    p1[0] = t1;
  }
}
