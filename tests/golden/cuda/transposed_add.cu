// 1: map
#define THREADS 256
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T e[N]; };
__device__ void body(const Word* w, unsigned block) {
  const int across = (int)w[0];
  const int down = (int)w[1];
  const int n0 = (int)w[2];
  const int n1 = (int)w[3];
  const float* const p1 = (const float*)w[4];
  const int s1_0 = (int)w[5];
  const int s1_1 = (int)w[6];
  const float* const p0 = (const float*)w[7];
  const int s0_0 = (int)w[8];
  float* const p2 = (float*)w[9];
  int rest = (int)block;
  const int column = rest % across * 32;
  rest /= across;
  const int row = rest % down * 32;
  rest /= down;
  __shared__ float h1[32][33];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int cell = (int)threadIdx.x + u * 256;
    const int down_ = cell / 32, right_ = cell % 32;
    if (row + right_ < n0 && column + down_ < n1) {
      h1[down_][right_] = p1[(row + right_) * s1_0 + (column + down_) * s1_1];
    }
  }
  __syncthreads();
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int cell = (int)threadIdx.x + u * 256;
    const int down_ = cell / 32, right_ = cell % 32;
    if (row + down_ < n0 && column + right_ < n1) {
      const int v1 = row + down_;
      const int v2 = column + right_;
      Pack<float, 1> a0[1];
      a0[0] = *(const Pack<float, 1>*)(p0 + (v1 * s0_0 + v2));
      Pack<float, 1> q0;
      {
        const int j = 0;
        const float v3 = a0[0].e[j];
        const float v4 = h1[right_][down_];
        const float v5 = v3 + v4;
        q0.e[j] = v5;
      }
      *(Pack<float, 1>*)(p2 + (v1 * s0_0 + v2)) = q0;
    }
  }
}
