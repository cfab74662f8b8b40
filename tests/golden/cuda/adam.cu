// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int units = (int)w[5];
  const float* const p0 = (const float*)w[6];
  const float* const p1 = (const float*)w[7];
  const float* const p2 = (const float*)w[8];
  const float* const p3 = (const float*)w[9];
  float* const p4 = (float*)w[10];
  float* const p5 = (float*)w[11];
  float* const p6 = (float*)w[12];
  const float v1 = __int_as_float((int)w[0]);
  const float v2 = __int_as_float((int)w[1]);
  const float v3 = __int_as_float((int)w[2]);
  const float v4 = __int_as_float((int)w[3]);
  const float v5 = __int_as_float((int)w[4]);
  const int first = (int)block * 256 + (int)threadIdx.x;
  Pack<float, 4> a0[1];
  Pack<float, 4> a1[1];
  Pack<float, 4> a2[1];
  Pack<float, 4> a3[1];
  {
    const int u = 0;
    const int v6 = first + u * 256 < units ? first + u * 256 : units - 1;
    a0[u] = *(const Pack<float, 4>*)(p0 + (v6 * 4));
    a1[u] = *(const Pack<float, 4>*)(p1 + (v6 * 4));
    a2[u] = *(const Pack<float, 4>*)(p2 + (v6 * 4));
    a3[u] = *(const Pack<float, 4>*)(p3 + (v6 * 4));
  }
  {
    const int u = 0;
    if (first + u * 256 < units) {
      const int v7 = first + u * 256 < units ? first + u * 256 : units - 1;
      Pack<float, 4> q0;
      Pack<float, 4> q1;
      Pack<float, 4> q2;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v8 = a0[u].e[j];
        const float v9 = v1 * v8;
        const float v10 = a1[u].e[j];
        const float v11 = v2 * v10;
        const float v12 = v9 + v11;
        const float v13 = a2[u].e[j];
        const float v14 = v3 * v13;
        const float v15 = v4 * v10;
        const float v16 = v15 * v10;
        const float v17 = v14 + v16;
        const float v18 = v4 * v12;
        const float v19 = sqrtf(v17);
        const float v20 = v19 + v5;
        const float v21 = v18 / v20;
        const float v22 = a3[u].e[j];
        const float v23 = v22 - v21;
        q0.e[j] = v17;
        q1.e[j] = v12;
        q2.e[j] = v23;
      }
      *(Pack<float, 4>*)(p4 + (v7 * 4)) = q0;
      *(Pack<float, 4>*)(p5 + (v7 * 4)) = q1;
      *(Pack<float, 4>*)(p6 + (v7 * 4)) = q2;
    }
  }
}
