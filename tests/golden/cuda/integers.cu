// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int units = (int)w[6];
  const int* const p0 = (const int*)w[7];
  const int* const p1 = (const int*)w[8];
  int* const p2 = (int*)w[9];
  const int v1 = ((int)w[0]);
  const int v2 = ((int)w[1]);
  const int v3 = ((int)w[2]);
  const int v4 = ((int)w[3]);
  const int v5 = ((int)w[4]);
  const bool v6 = ((u8)w[5]) & 1;
  const int first = (int)block * 512 + (int)threadIdx.x;
  Pack<int, 4> a0[2];
  Pack<int, 4> a1[2];
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int v7 = first + u * 256 < units ? first + u * 256 : units - 1;
    a0[u] = *(const Pack<int, 4>*)(p0 + (v7 * 4));
    a1[u] = *(const Pack<int, 4>*)(p1 + (v7 * 4));
  }
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    if (first + u * 256 < units) {
      const int v8 = first + u * 256 < units ? first + u * 256 : units - 1;
      Pack<int, 4> q0;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const int v9 = a0[u].e[j];
        const int v10 = (int)((u32)v9 * (u32)v1);
        const int v11 = a1[u].e[j];
        const int v12 = (int)((u32)v10 + (u32)v11);
        const bool v13 = v2 == 0;
        const bool v14 = v2 == (-1);
        const bool v15 = v13 | v14;
        const int v16 = v15 ? 1 : v2;
        const int v17 = v12 / v16;
        const bool v18 = v2 == (-1);
        const int v19 = (int)((u32)0 - (u32)v12);
        const int v20 = v18 ? v19 : v17;
        const bool v21 = v2 == 0;
        const int v22 = v21 ? (-1) : v20;
        const bool v23 = v2 == 0;
        const bool v24 = v2 == (-1);
        const bool v25 = v23 | v24;
        const int v26 = v25 ? 1 : v2;
        const int v27 = v12 % v26;
        const bool v28 = v2 == 0;
        const int v29 = v28 ? v12 : v27;
        const bool v30 = v29 != v3;
        const bool v31 = v12 < 0;
        const int v32 = v31 ? (-1) : v12;
        const bool v33 = v12 > 0;
        const int v34 = v33 ? 1 : v32;
        const bool v35 = v34 != v4;
        const bool v36 = v35 & v30;
        const int v37 = (int)((u32)v22 - (u32)v4);
        const int v38 = v36 ? v37 : v22;
        const bool v39 = v5 == 0;
        const bool v40 = v5 == (-1);
        const bool v41 = v39 | v40;
        const int v42 = v41 ? 1 : v5;
        const int v43 = v38 % v42;
        const bool v44 = v5 == 0;
        const int v45 = v44 ? v38 : v43;
        const bool v46 = v45 < v3;
        const bool v47 = v46 != v6;
        const bool v48 = v45 != v3;
        const bool v49 = v47 & v48;
        const int v50 = (int)((u32)v45 + (u32)v5);
        const int v51 = v49 ? v50 : v45;
        q0.e[j] = v51;
      }
      *(Pack<int, 4>*)(p2 + (v8 * 4)) = q0;
    }
  }
}
