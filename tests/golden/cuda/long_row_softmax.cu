// 1: row
#define THREADS 1024
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
  const int s0_0 = (int)w[2];
  const float* const p0 = (const float*)w[3];
  float* const p1 = (float*)w[4];
  const float v1 = __int_as_float((int)w[0]);
  const int lane = (int)threadIdx.x % 1024;
  const int packs = n1;
  const int from = 0, to = packs;
  const int row = (int)block;
  const float* const b0 = p0 + (row * s0_0);
  float* const b1 = p1 + (row * s0_0);
  extern __shared__ __align__(16) unsigned char dynamic[];
  Pack<float, 1>* const h0 = (Pack<float, 1>*)(dynamic + packs * 0);
  float t1 = (-__int_as_float(0x7f800000));
  for (int start = from + lane; start < to; start += 4096) {
    Pack<float, 1> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v2 = start + u * 1024 < to ? start + u * 1024 : to - 1;
      a0[u] = *(const Pack<float, 1>*)(b0 + (v2));
      h0[v2] = a0[u];
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v3 = start + u * 1024;
      if (v3 < to) {
        {
          const int j = 0;
          const float v4 = a0[u].e[j];
          const float v5 = most(t1, v4);
          t1 = v5;
        }
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v6 = __shfl_xor_sync(0xffffffffu, t1, o);
    const float v7 = most(t1, v6);
    t1 = v7;
  }
  __shared__ float rt1[32];
  if (lane % 32 == 0) {
    rt1[lane / 32] = t1;
  }
  __syncthreads();
  t1 = rt1[lane % 32];
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v8 = __shfl_xor_sync(0xffffffffu, t1, o);
    const float v9 = most(t1, v8);
    t1 = v9;
  }
  const float v10 = most(v1, t1);
  float t6 = (-0.0f);
  for (int start = from + lane; start < to; start += 4096) {
    Pack<float, 1> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v11 = start + u * 1024 < to ? start + u * 1024 : to - 1;
      a0[u] = h0[v11];
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v12 = start + u * 1024;
      if (v12 < to) {
        {
          const int j = 0;
          const float v13 = a0[u].e[j];
          const float v14 = v13 - v10;
          const float v15 = expf(v14);
          const float v16 = t6 + v15;
          t6 = v16;
        }
      }
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v17 = __shfl_xor_sync(0xffffffffu, t6, o);
    const float v18 = t6 + v17;
    t6 = v18;
  }
  __shared__ float rt6[32];
  if (lane % 32 == 0) {
    rt6[lane / 32] = t6;
  }
  __syncthreads();
  t6 = rt6[lane % 32];
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float v19 = __shfl_xor_sync(0xffffffffu, t6, o);
    const float v20 = t6 + v19;
    t6 = v20;
  }
  for (int start = from + lane; start < to; start += 4096) {
    Pack<float, 1> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v21 = start + u * 1024 < to ? start + u * 1024 : to - 1;
      a0[u] = h0[v21];
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v22 = start + u * 1024;
      if (v22 < to) {
        Pack<float, 1> q0;
        {
          const int j = 0;
          const float v23 = a0[u].e[j];
          const float v24 = v23 - v10;
          const float v25 = expf(v24);
          const float v26 = fabsf(t6);
          const bool v27 = v26 < 1.1754943508222875e-38f;
          const float v28 = v27 ? 1.8446744073709552e+19f : 1.0f;
          const bool v29 = v26 > 8.507059173023462e+37f;
          const float v30 = v29 ? 5.421010862427522e-20f : v28;
          const float v31 = v25 * v30;
          const float v32 = t6 * v30;
          const float v33 = 1.0f / v32;
          const float v34 = v31 * v33;
          q0.e[j] = v34;
        }
        *(Pack<float, 1>*)(b1 + (v22)) = q0;
      }
    }
  }
}
