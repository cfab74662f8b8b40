// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int units = (int)w[4];
  const float* const p0 = (const float*)w[5];
  float* const p1 = (float*)w[6];
  const float v1 = __int_as_float((int)w[0]);
  const float v2 = __int_as_float((int)w[1]);
  const float v3 = __int_as_float((int)w[2]);
  const float v4 = __int_as_float((int)w[3]);
  const int first = (int)block * 1024 + (int)threadIdx.x;
  Pack<float, 4> a0[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int v5 = first + u * 256 < units ? first + u * 256 : units - 1;
    a0[u] = *(const Pack<float, 4>*)(p0 + (v5 * 4));
  }
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    if (first + u * 256 < units) {
      const int v6 = first + u * 256 < units ? first + u * 256 : units - 1;
      Pack<float, 4> q0;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v7 = a0[u].e[j];
        const float v8 = v7 * v7;
        const float v9 = v7 * v8;
        const float v10 = v1 * v9;
        const float v11 = v7 + v10;
        const float v12 = v2 * v11;
        const float v13 = tanhf(v12);
        const float v14 = v3 + v13;
        const float v15 = v4 * v14;
        const float v16 = v7 * v15;
        q0.e[j] = v16;
      }
      *(Pack<float, 4>*)(p1 + (v6 * 4)) = q0;
    }
  }
}
