// 1: row
#define THREADS 128
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int n1 = (int)w[5];
  const int rows = (int)w[6];
  const int step = (int)w[7];
  const int s0_0 = (int)w[8];
  const float* const p2 = (const float*)w[9];
  const float* const p0 = (const float*)w[10];
  const float* const p1 = (const float*)w[11];
  float* const p5 = (float*)w[12];
  float* const o20 = (float*)w[13];
  float* const o24 = (float*)w[14];
  const float v1 = __int_as_float((int)w[0]);
  const float v2 = __int_as_float((int)w[1]);
  const float v3 = __int_as_float((int)w[2]);
  const float v4 = __int_as_float((int)w[3]);
  const float v5 = __int_as_float((int)w[4]);
  const int lane = (int)threadIdx.x % 128;
  const int packs = n1;
  float t20[8];
  #pragma unroll
  for (int j = 0; j < 8; j++) {
    t20[j] = (-0.0f);
  }
  float t24[8];
  #pragma unroll
  for (int j = 0; j < 8; j++) {
    t24[j] = (-0.0f);
  }
  const int first = (int)block * step;
  const int end = first + step < rows ? first + step : rows;
  Pack<float, 4> a0[2];
  Pack<float, 4> a1[2];
  Pack<float, 4> a2[2];
  Pack<float, 4> y0[2];
  Pack<float, 4> y1[2];
  {
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int v6 = lane + u * 128;
      a2[u] = *(const Pack<float, 4>*)(p2 + (v6 * 4));
    }
  }
  {
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int v7 = lane + u * 128;
      y0[u] = *(const Pack<float, 4>*)(p0 + (first * s0_0 + v7 * 4));
      y1[u] = *(const Pack<float, 4>*)(p1 + (first * s0_0 + v7 * 4));
    }
  }
  for (int row = first; row < end; row++) {
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      a0[u] = y0[u];
      a1[u] = y1[u];
    }
    const int v8 = row + 1 < end ? row + 1 : row;
    {
      #pragma unroll
      for (int u = 0; u < 2; u++) {
        const int v9 = lane + u * 128;
        y0[u] = *(const Pack<float, 4>*)(p0 + (v8 * s0_0 + v9 * 4));
        y1[u] = *(const Pack<float, 4>*)(p1 + (v8 * s0_0 + v9 * 4));
      }
    }
    const int from = 0, to = packs;
    const float* const b0 = p0 + (row * s0_0);
    const float* const b1 = p1 + (row * s0_0);
    float* const b5 = p5 + (row * s0_0);
    const int start = from + lane;
    float t1 = (-0.0f);
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int v10 = start + u * 128;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v11 = a0[u].e[j];
        const float v12 = a1[u].e[j];
        const float v13 = v5 * v12;
        const float v14 = t1 + v11;
        t1 = v14;
        const float v15 = t20[u * 4 + j] + v13;
        t20[u * 4 + j] = v15;
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float v16 = __shfl_xor_sync(0xffffffffu, t1, o);
      const float v17 = t1 + v16;
      t1 = v17;
    }
    __shared__ float rt1[4];
    if (lane % 32 == 0) {
      rt1[lane / 32] = t1;
    }
    __syncthreads();
    t1 = rt1[lane % 4];
    #pragma unroll
    for (int o = 2; o > 0; o >>= 1) {
      const float v18 = __shfl_xor_sync(0xffffffffu, t1, o);
      const float v19 = t1 + v18;
      t1 = v19;
    }
    const float v20 = t1 / v1;
    float t8 = (-0.0f);
    float t27 = (-0.0f);
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int v21 = start + u * 128;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v22 = a0[u].e[j];
        const float v23 = v22 - v20;
        const float v24 = v23 * v23;
        const float v25 = a1[u].e[j];
        const float v26 = v5 * v25;
        const float v27 = a2[u].e[j];
        const float v28 = v26 * v27;
        const float v29 = v28 * v23;
        const float v30 = t8 + v24;
        t8 = v30;
        const float v31 = t27 + v29;
        t27 = v31;
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float v32 = __shfl_xor_sync(0xffffffffu, t8, o);
      const float v33 = t8 + v32;
      t8 = v33;
      const float v34 = __shfl_xor_sync(0xffffffffu, t27, o);
      const float v35 = t27 + v34;
      t27 = v35;
    }
    __shared__ float rt8[4];
    __shared__ float rt27[4];
    if (lane % 32 == 0) {
      rt8[lane / 32] = t8;
      rt27[lane / 32] = t27;
    }
    __syncthreads();
    t8 = rt8[lane % 4];
    t27 = rt27[lane % 4];
    #pragma unroll
    for (int o = 2; o > 0; o >>= 1) {
      const float v36 = __shfl_xor_sync(0xffffffffu, t8, o);
      const float v37 = t8 + v36;
      t8 = v37;
      const float v38 = __shfl_xor_sync(0xffffffffu, t27, o);
      const float v39 = t27 + v38;
      t27 = v39;
    }
    const float v40 = t8 / v1;
    const float v41 = v40 + v3;
    const float v42 = rsqrtf(v41);
    const float v43 = v42 / v41;
    const float v44 = v4 * v43;
    const float v45 = t27 * v44;
    const float v46 = v45 / v1;
    float t30 = (-0.0f);
    float t35 = (-0.0f);
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int v47 = start + u * 128;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v48 = a0[u].e[j];
        const float v49 = v48 - v20;
        const float v50 = v2 * v49;
        const float v51 = v49 * v42;
        const float v52 = a1[u].e[j];
        const float v53 = v5 * v52;
        const float v54 = v53 * v51;
        const float v55 = a2[u].e[j];
        const float v56 = v53 * v55;
        const float v57 = v56 * v42;
        const float v58 = -v57;
        const float v59 = v46 * v50;
        const float v60 = -v59;
        const float v61 = t30 + v58;
        t30 = v61;
        const float v62 = t35 + v60;
        t35 = v62;
        const float v63 = t24[u * 4 + j] + v54;
        t24[u * 4 + j] = v63;
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float v64 = __shfl_xor_sync(0xffffffffu, t30, o);
      const float v65 = t30 + v64;
      t30 = v65;
      const float v66 = __shfl_xor_sync(0xffffffffu, t35, o);
      const float v67 = t35 + v66;
      t35 = v67;
    }
    __shared__ float rt30[4];
    __shared__ float rt35[4];
    if (lane % 32 == 0) {
      rt30[lane / 32] = t30;
      rt35[lane / 32] = t35;
    }
    __syncthreads();
    t30 = rt30[lane % 4];
    t35 = rt35[lane % 4];
    #pragma unroll
    for (int o = 2; o > 0; o >>= 1) {
      const float v68 = __shfl_xor_sync(0xffffffffu, t30, o);
      const float v69 = t30 + v68;
      t30 = v69;
      const float v70 = __shfl_xor_sync(0xffffffffu, t35, o);
      const float v71 = t35 + v70;
      t35 = v71;
    }
    const float v72 = t30 + t35;
    const float v73 = v72 / v1;
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int v74 = start + u * 128;
      Pack<float, 4> q2;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v75 = a0[u].e[j];
        const float v76 = v75 - v20;
        const float v77 = v2 * v76;
        const float v78 = a1[u].e[j];
        const float v79 = v5 * v78;
        const float v80 = a2[u].e[j];
        const float v81 = v79 * v80;
        const float v82 = v81 * v42;
        const float v83 = v46 * v77;
        const float v84 = v82 + v83;
        const float v85 = v84 + v73;
        q2.e[j] = v85;
      }
      *(Pack<float, 4>*)(b5 + (v74 * 4)) = q2;
    }
    __syncthreads();
  }
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int v86 = lane + u * 128;
    if (v86 < packs) {
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        o20[((int)block * packs + v86) * 4 + j] = t20[u * 4 + j];
        o24[((int)block * packs + v86) * 4 + j] = t24[u * 4 + j];
      }
    }
  }
}

// 2: column
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int n0 = (int)w[0];
  const int units = (int)w[1];
  const float* const p0 = (const float*)w[2];
  float* const p1 = (float*)w[3];
  const int s0_0 = (int)w[4];
  const int right = (int)threadIdx.x % 32;
  const int down = (int)threadIdx.x / 32;
  const int tile = (int)block, from = 0, to = n0;
  const int place = tile * 32 + right;
  const bool live = place < units;
  const int column = live ? place : units - 1;
  const float* const b0 = p0 + (column * 4);
  float* const b1 = p1 + (column * 4);
  float t1[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    t1[j] = (-0.0f);
  }
  for (int start = from + down; start < to; start += 32) {
    Pack<float, 4> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v1 = start + u * 8 < to ? start + u * 8 : to - 1;
      a0[u] = *(const Pack<float, 4>*)(b0 + (v1 * s0_0));
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v2 = start + u * 8;
      if (v2 < to) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
          const float v3 = a0[u].e[j];
          const float v4 = t1[j] + v3;
          t1[j] = v4;
        }
      }
    }
  }
  __shared__ float ht1[1024];
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    ht1[j * 256 + (int)threadIdx.x] = t1[j];
  }
  __syncthreads();
  #pragma unroll
  for (int half = 4; half > 0; half >>= 1) {
    if (down < half) {
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const int mine = j * 256 + (int)threadIdx.x;
        const int other = mine + half * 32;
        const float v5 = t1[j] + ht1[other];
        t1[j] = v5;
        ht1[mine] = t1[j];
      }
    }
    __syncthreads();
  }
  if (down == 0 && live) {
    Pack<float, 4> q0;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      q0.e[j] = t1[j];
    }
    *(Pack<float, 4>*)(b1 + (0)) = q0;
  }
}
