// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
template <class T> struct alignas(2 * sizeof(T)) Pair { T re, im; };
__device__ void body(const Word* w, unsigned block) {
  const int units = (int)w[2];
  const Pair<float>* const p0 = (const Pair<float>*)w[3];
  const Pair<float>* const p1 = (const Pair<float>*)w[4];
  float* const p2 = (float*)w[5];
  const float v1 = __int_as_float((int)w[1]);
  const float v2 = __int_as_float((int)w[0]);
  const int first = (int)block * 256 + (int)threadIdx.x;
  Pack<Pair<float>, 4> a0[1];
  Pack<Pair<float>, 4> a1[1];
  {
    const int u = 0;
    const int v3 = first + u * 256 < units ? first + u * 256 : units - 1;
    a0[u] = *(const Pack<Pair<float>, 4>*)(p0 + (v3 * 4));
    a1[u] = *(const Pack<Pair<float>, 4>*)(p1 + (v3 * 4));
  }
  {
    const int u = 0;
    if (first + u * 256 < units) {
      const int v4 = first + u * 256 < units ? first + u * 256 : units - 1;
      Pack<float, 4> q0;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v5 = a0[u].e[j].re;
        const float v6 = a0[u].e[j].im;
        const float v7 = a1[u].e[j].re;
        const float v8 = a1[u].e[j].im;
        const float v9 = v5 * v7;
        const float v10 = v6 * v8;
        const float v11 = v9 - v10;
        const float v12 = v5 * v8;
        const float v13 = v6 * v7;
        const float v14 = v12 + v13;
        const float v15 = v11 + v1;
        const float v16 = v14 + v2;
        const double v17 = (double)v15;
        const double v18 = (double)v16;
        const double v19 = fabs(v17);
        const double v20 = fabs(v18);
        const bool v21 = v19 > v20;
        const double v22 = v21 ? v19 : v20;
        const double v23 = v20 * v20;
        const double v24 = fma(v19, v19, v23);
        const double v25 = sqrt(v24);
        const double v26 = fabs(v17);
        const bool v27 = v26 == __longlong_as_double(0x7ff0000000000000LL);
        const double v28 = fabs(v18);
        const bool v29 = v28 == __longlong_as_double(0x7ff0000000000000LL);
        const bool v30 = v27 | v29;
        const double v31 = v30 ? __longlong_as_double(0x7ff0000000000000LL) : v25;
        const float v32 = (float)v31;
        q0.e[j] = v32;
      }
      *(Pack<float, 4>*)(p2 + (v4 * 4)) = q0;
    }
  }
}
