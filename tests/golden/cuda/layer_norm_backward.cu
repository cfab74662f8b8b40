// 1: row
#define THREADS 128
#define BOUNDS 128, 2
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
#if __CUDA_ARCH__ >= 800
template <class T> __device__ __forceinline__ void later(T* to, const T* from) {
  const u32 place = (u32)__cvta_generic_to_shared(to);
  if constexpr (sizeof(T) < 16)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :: "r"(place), "l"(from), "n"(sizeof(T)) : "memory");
  else for (int k = 0; k < sizeof(T); k += 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(place + k), "l"((const u8*)from + k) : "memory");
}
__device__ __forceinline__ void sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void arrived() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}
#else
template <class T> __device__ __forceinline__ void later(T* to, const T* from) { *to = *from; }
__device__ __forceinline__ void sent() {}
template <int N> __device__ __forceinline__ void arrived() {}
#endif
__device__ void body(const Word* w, unsigned block) {
  const int n1 = (int)w[5];
  const int s0_0 = (int)w[6];
  const int rows = (int)w[7];
  const int step = (int)w[8];
  const float* const p0 = (const float*)w[9];
  const float* const p1 = (const float*)w[10];
  const float* const p2 = (const float*)w[11];
  float* const p5 = (float*)w[12];
  float* const o20 = (float*)w[13];
  float* const o24 = (float*)w[14];
  const float v1 = __int_as_float((int)w[0]);
  const float v2 = __int_as_float((int)w[1]);
  const float v3 = __int_as_float((int)w[2]);
  const float v4 = __int_as_float((int)w[3]);
  const float v5 = __int_as_float((int)w[4]);
  const int lane = (int)threadIdx.x % 32;
  const int packs = n1;
  float t20[32];
  #pragma unroll
  for (int j = 0; j < 32; j++) {
    t20[j] = (-0.0f);
  }
  float t24[32];
  #pragma unroll
  for (int j = 0; j < 32; j++) {
    t24[j] = (-0.0f);
  }
  const int first = (int)block * 4 + __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
  Pack<float, 4> a0[8];
  Pack<float, 4> a1[8];
  Pack<float, 4> a2[8];
  extern __shared__ __align__(16) unsigned char dynamic[];
  Pack<float, 4>* const h0 = (Pack<float, 4>*)(dynamic + 0) + threadIdx.x;
  Pack<float, 4>* const h1 = (Pack<float, 4>*)(dynamic + 32768) + threadIdx.x;
  const int v6 = first;
  if (v6 < rows) {
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v7 = lane + u * 32;
      later(h0 + (0 * 8 + u) * 128, (const Pack<float, 4>*)(p0 + (v6 * s0_0 + v7 * 4)));
      later(h1 + (0 * 8 + u) * 128, (const Pack<float, 4>*)(p1 + (v6 * s0_0 + v7 * 4)));
    }
  }
  sent();
  int slot = 0;
  Pack<float, 4>* const h2 = (Pack<float, 4>*)(dynamic + 65536 + packs * 0);
  #pragma unroll 1
  for (int t = threadIdx.x; t < packs; t += 128) {
    h2[t] = *(const Pack<float, 4>*)(p2 + (t * 4));
  }
  __syncthreads();
  const int v8 = first < rows ? first : rows - 1;
  for (int row = first; row < rows; row += step) {
    arrived<0>();
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      a0[u] = h0[(slot * 8 + u) * 128];
      a1[u] = h1[(slot * 8 + u) * 128];
    }
    const int v9 = slot == 0 ? 1 : slot - 1;
    slot = slot == 1 ? 0 : slot + 1;
    const int v10 = row + step;
    if (v10 < rows) {
      #pragma unroll
      for (int u = 0; u < 8; u++) {
        const int v11 = lane + u * 32;
        later(h0 + (v9 * 8 + u) * 128, (const Pack<float, 4>*)(p0 + (v10 * s0_0 + v11 * 4)));
        later(h1 + (v9 * 8 + u) * 128, (const Pack<float, 4>*)(p1 + (v10 * s0_0 + v11 * 4)));
      }
    }
    sent();
    const int from = 0, to = packs;
    const float* const b0 = p0 + (row * s0_0);
    const float* const b1 = p1 + (row * s0_0);
    float* const b5 = p5 + (row * s0_0);
    const int start = from + lane;
    float t1 = (-0.0f);
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v12 = start + u * 32;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v13 = a0[u].e[j];
        const float v14 = a1[u].e[j];
        const float v15 = v5 * v14;
        const float v16 = t1 + v13;
        t1 = v16;
        const float v17 = t20[u * 4 + j] + v15;
        t20[u * 4 + j] = v17;
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float v18 = __shfl_xor_sync(0xffffffffu, t1, o);
      const float v19 = t1 + v18;
      t1 = v19;
    }
    const float v20 = t1 / v1;
    float t8 = (-0.0f);
    float t27 = (-0.0f);
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v21 = start + u * 32;
      a2[u] = h2[v21];
    }
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v22 = start + u * 32;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v23 = a0[u].e[j];
        const float v24 = v23 - v20;
        const float v25 = v24 * v24;
        const float v26 = a1[u].e[j];
        const float v27 = v5 * v26;
        const float v28 = a2[u].e[j];
        const float v29 = v27 * v28;
        const float v30 = v29 * v24;
        const float v31 = t8 + v25;
        t8 = v31;
        const float v32 = t27 + v30;
        t27 = v32;
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float v33 = __shfl_xor_sync(0xffffffffu, t8, o);
      const float v34 = t8 + v33;
      t8 = v34;
      const float v35 = __shfl_xor_sync(0xffffffffu, t27, o);
      const float v36 = t27 + v35;
      t27 = v36;
    }
    const float v37 = t8 / v1;
    const float v38 = v37 + v3;
    const float v39 = rsqrtf(v38);
    const float v40 = v39 / v38;
    const float v41 = v4 * v40;
    const float v42 = t27 * v41;
    const float v43 = v42 / v1;
    float t30 = (-0.0f);
    float t35 = (-0.0f);
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v44 = start + u * 32;
      a2[u] = h2[v44];
    }
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v45 = start + u * 32;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v46 = a0[u].e[j];
        const float v47 = v46 - v20;
        const float v48 = v2 * v47;
        const float v49 = v47 * v39;
        const float v50 = a1[u].e[j];
        const float v51 = v5 * v50;
        const float v52 = v51 * v49;
        const float v53 = a2[u].e[j];
        const float v54 = v51 * v53;
        const float v55 = v54 * v39;
        const float v56 = -v55;
        const float v57 = v43 * v48;
        const float v58 = -v57;
        const float v59 = t30 + v56;
        t30 = v59;
        const float v60 = t35 + v58;
        t35 = v60;
        const float v61 = t24[u * 4 + j] + v52;
        t24[u * 4 + j] = v61;
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const float v62 = __shfl_xor_sync(0xffffffffu, t30, o);
      const float v63 = t30 + v62;
      t30 = v63;
      const float v64 = __shfl_xor_sync(0xffffffffu, t35, o);
      const float v65 = t35 + v64;
      t35 = v65;
    }
    const float v66 = t30 + t35;
    const float v67 = v66 / v1;
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v68 = start + u * 32;
      a2[u] = h2[v68];
    }
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const int v69 = start + u * 32;
      Pack<float, 4> q2;
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v70 = a0[u].e[j];
        const float v71 = v70 - v20;
        const float v72 = v2 * v71;
        const float v73 = a1[u].e[j];
        const float v74 = v5 * v73;
        const float v75 = a2[u].e[j];
        const float v76 = v74 * v75;
        const float v77 = v76 * v39;
        const float v78 = v43 * v72;
        const float v79 = v77 + v78;
        const float v80 = v79 + v67;
        q2.e[j] = v80;
      }
      *(Pack<float, 4>*)(b5 + (v69 * 4)) = q2;
    }
  }
  __syncthreads();
  Pack<float, 4>* const x20 = (Pack<float, 4>*)dynamic;
  #pragma unroll
  for (int u = 0; u < 8; u++) {
    Pack<float, 4> q;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      q.e[j] = t20[u * 4 + j];
    }
    x20[u * 128 + threadIdx.x] = q;
  }
  __syncthreads();
  #pragma unroll 1
  for (int t = threadIdx.x; t < packs; t += 128) {
    const Pack<float, 4>* const of = x20 + t / 32 * 128 + t % 32;
    Pack<float, 4> q = of[0];
    #pragma unroll 1
    for (int g = 1; g < 4; g++) {
      const Pack<float, 4> other = of[g * 32];
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v81 = q.e[j];
        const float v82 = other.e[j];
        const float v83 = v81 + v82;
        q.e[j] = v83;
      }
    }
    *(Pack<float, 4>*)(o20 + ((int)block * packs + t) * 4) = q;
  }
  __syncthreads();
  Pack<float, 4>* const x24 = (Pack<float, 4>*)dynamic;
  #pragma unroll
  for (int u = 0; u < 8; u++) {
    Pack<float, 4> q;
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      q.e[j] = t24[u * 4 + j];
    }
    x24[u * 128 + threadIdx.x] = q;
  }
  __syncthreads();
  #pragma unroll 1
  for (int t = threadIdx.x; t < packs; t += 128) {
    const Pack<float, 4>* const of = x24 + t / 32 * 128 + t % 32;
    Pack<float, 4> q = of[0];
    #pragma unroll 1
    for (int g = 1; g < 4; g++) {
      const Pack<float, 4> other = of[g * 32];
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const float v84 = q.e[j];
        const float v85 = other.e[j];
        const float v86 = v84 + v85;
        q.e[j] = v86;
      }
    }
    *(Pack<float, 4>*)(o24 + ((int)block * packs + t) * 4) = q;
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
  const int right = (int)threadIdx.x % 4;
  const int down = (int)threadIdx.x / 4;
  const int tile = (int)block, from = 0, to = n0;
  const int place = tile * 4 + right;
  const bool live = place < units;
  const int column = live ? place : units - 1;
  const float* const b0 = p0 + (column * 4);
  float* const b1 = p1 + (column * 4);
  float t1[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    t1[j] = (-0.0f);
  }
  for (int start = from + down; start < to; start += 256) {
    Pack<float, 4> a0[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v1 = start + u * 64 < to ? start + u * 64 : to - 1;
      a0[u] = *(const Pack<float, 4>*)(b0 + (v1 * s0_0));
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int v2 = start + u * 64;
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
  for (int half = 32; half > 0; half >>= 1) {
    if (down < half) {
      #pragma unroll
      for (int j = 0; j < 4; j++) {
        const int mine = j * 256 + (int)threadIdx.x;
        const int other = mine + half * 4;
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
