// 1: column
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
