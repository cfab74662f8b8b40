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
        const float v17 = fabsf(v15);
        const float v18 = fabsf(v16);
        const bool v19 = v17 == __int_as_float(0x7f800000);
        const bool v20 = v18 == __int_as_float(0x7f800000);
        const bool v21 = v19 | v20;
        const bool v22 = v17 < v18;
        const float v23 = v22 ? v18 : v17;
        const float v24 = v22 ? v17 : v18;
        const bool v25 = v23 >= 1.152921504606847e+18f;
        const bool v26 = v23 < 9.094947017729282e-13f;
        const float v27 = v26 ? 1.2676506002282294e+30f : 1.0f;
        const float v28 = v25 ? 7.888609052210118e-31f : v27;
        const float v29 = v26 ? 7.888609052210118e-31f : 1.0f;
        const float v30 = v25 ? 1.2676506002282294e+30f : v29;
        const float v31 = v23 * v28;
        const float v32 = v24 * v28;
        const float v33 = fmaf(v31, v31, (-0.0f));
        const float v34 = fmaf(v32, v32, (-0.0f));
        const float v35 = v33 + v34;
        const float v36 = -v33;
        const float v37 = fmaf(v31, v31, v36);
        const float v38 = -v34;
        const float v39 = fmaf(v32, v32, v38);
        const float v40 = v37 + v39;
        const float v41 = v35 - v33;
        const float v42 = v34 - v41;
        const float v43 = v40 + v42;
        const float v44 = sqrtf(v35);
        const float v45 = -v44;
        const float v46 = fmaf(v45, v44, v35);
        const float v47 = v46 + v43;
        const float v48 = v44 + v44;
        const float v49 = v47 / v48;
        const float v50 = v44 + v49;
        const float v51 = v50 * v30;
        const bool v52 = v35 == 0.0f;
        const float v53 = v52 ? 0.0f : v51;
        const float v54 = v21 ? __int_as_float(0x7f800000) : v53;
        q0.e[j] = v54;
      }
      *(Pack<float, 4>*)(p2 + (v4 * 4)) = q0;
    }
  }
}
