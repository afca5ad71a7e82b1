// Rotary embedding on CUDA, with the optional norm of each head. A group of lanes takes one head of one row: each lane holds V
// pairs (i, i + half). In place, so q and k are read and written once.
#include "rank/kernels/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// Sum over the `lanes` neighbouring lanes of a group (a power of two).
__device__ __forceinline__ float group_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

template <typename T, int V>
__global__ void forward(RopeForward a, int lanes) {
  const int half = int(a.head_dim / 2), heads = int(a.heads + a.kv_heads);
  const std::int64_t group = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) / lanes;
  const int lane = threadIdx.x % lanes;
  const bool alive = group < a.rows * heads;
  const std::int64_t row = alive ? group / heads : 0;
  const int head = alive ? int(group % heads) : 0;
  const auto* in = static_cast<const T*>(a.in) + row * a.in_stride + head * a.head_dim;
  auto* out = static_cast<T*>(a.out) + row * a.out_stride + head * a.head_dim;
  const auto* weight = static_cast<const T*>(head < a.heads ? a.q_weight : a.k_weight);
  const auto position = a.positions ? std::int64_t(a.positions[row]) : row % a.time;
  const auto *cosine = a.cosine + position * half, *sine = a.sine + position * half;

  float rstd = 1;
  if (a.q_weight) {
    float squares = 0;
    for (int i = lane * V; i < half; i += lanes * V) {
      float x[V], y[V];
      read<T, V>(in + i, x);
      read<T, V>(in + half + i, y);
#pragma unroll
      for (int j = 0; j < V; ++j) squares += x[j] * x[j] + y[j] * y[j];
    }
    rstd = 1.0f / sqrtf(group_sum(squares, lanes) / float(a.head_dim) + a.eps);
  }
  if (!alive) return;
  for (int i = lane * V; i < half; i += lanes * V) {
    float x[V], y[V], c[V], s[V];
    read<T, V>(in + i, x);
    read<T, V>(in + half + i, y);
    if (weight) {
      float w[V], u[V];
      read<T, V>(weight + i, w);
      read<T, V>(weight + half + i, u);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        x[j] = x[j] * rstd * w[j];
        y[j] = y[j] * rstd * u[j];
      }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      c[j] = cosine[i + j];
      s[j] = sine[i + j];
    }
    float first[V], second[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      first[j] = x[j] * c[j] - y[j] * s[j];
      second[j] = y[j] * c[j] + x[j] * s[j];
    }
    write<T, V>(out + i, first);
    write<T, V>(out + half + i, second);
  }
}

template <typename T, int V>
__device__ __forceinline__ void gather(const T* data, std::int64_t head_stride, int count, float (&sum)[V]) {
  read<T, V>(data, sum);
  for (int n = 1; n < count; ++n) {
    float more[V];
    read<T, V>(data + n * head_stride, more);
#pragma unroll
    for (int j = 0; j < V; ++j) sum[j] += more[j];
  }
}

// Grid-stride over heads. With norms, each group adds its weight gradients to a slot of its own in shared memory; the slots
// are summed in order at the end, so the result does not depend on timing.
template <typename T, int V, bool NORM>
__global__ void backward(RopeBackward a, int lanes) {
  extern __shared__ float slots[];  // [groups a block][2 x head_dim]
  const int half = int(a.head_dim / 2), heads = int(a.heads + 2 * a.kv_heads), dim = int(a.head_dim);
  const int groups = kThreads / lanes, own = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  float* slot = slots + own * 2 * dim;
  if (NORM) {
    for (int i = threadIdx.x; i < groups * 2 * dim; i += kThreads) slots[i] = 0;
    __syncthreads();
  }
  const std::int64_t total = a.rows * heads;
  for (std::int64_t base = std::int64_t(blockIdx.x) * groups; base < total; base += std::int64_t(gridDim.x) * groups) {
    const std::int64_t group = base + own;
    const bool alive = group < total;
    const std::int64_t row = alive ? group / heads : 0;
    const int head = alive ? int(group % heads) : 0;
    const std::int64_t batch = row / a.time, time = row % a.time;
    const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
    const HeadGradient& from = is_q ? a.dq : (is_v ? a.dv : a.dk);
    const std::int64_t first_head = is_q ? head : (head - a.heads - (is_v ? a.kv_heads : 0)) * a.kv_repeat;
    const int count = is_q ? 1 : int(a.kv_repeat);
    const auto* data =
        static_cast<const T*>(from.data) + batch * from.batch_stride + time * from.time_stride + first_head * from.head_stride;
    auto* out = static_cast<T*>(a.dqkv) + row * heads * dim + head * dim;
    const auto* raw = static_cast<const T*>(a.qkv) + row * heads * dim + head * dim;
    const auto* weight = static_cast<const T*>(is_q ? a.q_weight : a.k_weight);
    const std::int64_t position = a.positions ? a.positions[row] : time;
    const auto *cosine = a.cosine + position * half, *sine = a.sine + position * half;

    float squares = 0, dot = 0;
    for (int pass = NORM ? 0 : 1; pass < 2; ++pass) {
      float rstd = 1, slope = 0;
      if (NORM && pass == 1) {
        squares = group_sum(squares, lanes);
        dot = group_sum(dot, lanes);
        rstd = 1.0f / sqrtf(squares / float(dim) + a.eps);
        slope = dot * rstd * rstd * rstd / float(dim);
      }
      if (!alive || (NORM && pass == 0 && is_v)) continue;
      for (int i = lane * V; i < half; i += lanes * V) {
        float x[V], y[V];
        gather<T, V>(data + i, from.head_stride, count, x);
        gather<T, V>(data + half + i, from.head_stride, count, y);
        if (!is_v) {
#pragma unroll
          for (int j = 0; j < V; ++j) {
            const float c = cosine[i + j], s = sine[i + j];
            const float turned = x[j] * c + y[j] * s;
            y[j] = y[j] * c - x[j] * s;
            x[j] = turned;
          }
          if (NORM) {
            float p[V], q[V], w[V], u[V];
            read<T, V>(raw + i, p);
            read<T, V>(raw + half + i, q);
            read<T, V>(weight + i, w);
            read<T, V>(weight + half + i, u);
#pragma unroll
            for (int j = 0; j < V; ++j) {
              if (pass == 0) {
                squares += p[j] * p[j] + q[j] * q[j];
                dot += x[j] * p[j] * w[j] + y[j] * q[j] * u[j];
              } else {
                float* dweight = slot + (is_q ? 0 : dim);
                dweight[i + j] += x[j] * p[j] * rstd;
                dweight[half + i + j] += y[j] * q[j] * rstd;
                x[j] = x[j] * w[j] * rstd - p[j] * slope;
                y[j] = y[j] * u[j] * rstd - q[j] * slope;
              }
            }
          }
        }
        if (pass == 1) {
          write<T, V>(out + i, x);
          write<T, V>(out + half + i, y);
        }
      }
    }
  }
  if (NORM) {
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * dim; i += kThreads) {
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += slots[g * 2 * dim + i];
      a.partials[std::int64_t(blockIdx.x) * 2 * dim + i] = sum;
    }
  }
}

bool power_of_two(std::int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

// Vectors where a head divides into them evenly; otherwise a warp a head, one pair a lane.
template <typename T, typename F>
void with_lanes(std::int64_t half, bool can_vector, F body) {
  constexpr int full = kFullVector<T>;
  if (can_vector && half % full == 0 && power_of_two(half / full) && half / full <= 32)
    return body(std::integral_constant<int, full>{}, int(half / full));
  body(std::integral_constant<int, 1>{}, 32);
}

template <typename T>
bool vectors_fit(const HeadGradient& g) {
  constexpr int full = kFullVector<T>;
  return aligned16(g.data) && g.batch_stride % full == 0 && g.head_stride % full == 0 && g.time_stride % full == 0;
}

}  // namespace

void rope_forward(const RopeForward& a, Stream stream) {
  if (a.rows == 0) return;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    const bool can = aligned16(a.in) && aligned16(a.out) && a.in_stride % full == 0 && a.out_stride % full == 0 && aligned16(a.q_weight) &&
                     aligned16(a.k_weight);
    with_lanes<T>(a.head_dim / 2, can, [&](auto v, int lanes) {
      const auto blocks = ceil_div(a.rows * (a.heads + a.kv_heads) * lanes, kThreads);
      forward<T, v()><<<unsigned(blocks), kThreads, 0, native(stream)>>>(a, lanes);
    });
  });
  launched("rope_forward");
}

void rope_backward(const RopeBackward& a, Stream stream) {
  if (a.rows == 0) return;
  const bool norm = a.q_weight != nullptr;
  int blocks = 0;
  by_type(a.type, [&]<typename T>(T) {
    const bool can = vectors_fit<T>(a.dq) && vectors_fit<T>(a.dk) && vectors_fit<T>(a.dv) && aligned16(a.dqkv) && aligned16(a.qkv) &&
                     aligned16(a.q_weight) && aligned16(a.k_weight);
    with_lanes<T>(a.head_dim / 2, can, [&](auto v, int lanes) {
      const auto needed = ceil_div(a.rows * (a.heads + 2 * a.kv_heads) * lanes, kThreads);
      if (norm) {
        blocks = int(std::min<std::int64_t>(needed, kPartialRows));
        const auto bytes = std::size_t(kThreads / lanes) * 2 * a.head_dim * sizeof(float);
        backward<T, v(), true><<<blocks, kThreads, bytes, native(stream)>>>(a, lanes);
      } else {
        backward<T, v(), false><<<unsigned(needed), kThreads, 0, native(stream)>>>(a, lanes);
      }
    });
  });
  launched("rope_backward");
  if (a.dq_weight) {
    add_partials(a.partials, blocks, 2 * a.head_dim, a.head_dim, a.dq_weight, a.gradient_type, native(stream));
    add_partials(a.partials + a.head_dim, blocks, 2 * a.head_dim, a.head_dim, a.dk_weight, a.gradient_type, native(stream));
  }
}

}  // namespace lockstep::kernels::cuda
