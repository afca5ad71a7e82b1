// Rotary embedding on CUDA, with the optional norm of each head. A group of lanes takes heads of one row: each lane holds V pairs (i, i +
// half). In place, so q and k are read and written once.
#include <algorithm>
#include <bit>
#include <limits>

#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// Sum over the `lanes` neighboring lanes of a group (a power of two).
__device__ __forceinline__ float group_sum(float x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// Which heads of which row a group of lanes takes: kHeads of them, `groups` heads apart, so that the lanes read an angle's cosine and
// sine once for all of them and have every read in flight together (bf16 heads of 128: 3.6 TB/s forward and 3.8 backward on an H200,
// against 3.2 and 2.7 with one head). 32-bit arithmetic: 64-bit divisions cost more than the rotation.
constexpr int kHeads = 2;
constexpr int kResident = 4;  // blocks on a processor

struct Heads {
  unsigned lane_bits, groups;
  unsigned blocks;
};

struct Place {
  unsigned row, group, lane;
  __device__ explicit Place(const Heads& heads) {
    const unsigned thread = blockIdx.x * kThreads + threadIdx.x, item = thread >> heads.lane_bits;
    row = item / heads.groups;
    group = item % heads.groups;
    lane = thread & ((1u << heads.lane_bits) - 1);
  }
};

template <int V>
__device__ __forceinline__ void read_angles(const float* from, float (&to)[V]) {
#pragma unroll
  for (int i = 0; i < V; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

template <typename T, int V, bool NORM>
__global__ void __launch_bounds__(kThreads, NORM ? kResident - 1 : kResident) forward_by_vectors(RopeForward a, Heads heads) {
  const Place place(heads);
  const int half = int(a.head_dim / 2);
  const unsigned count = unsigned(a.heads + a.kv_heads);
  const auto offset = [&](int n) { return std::int64_t(place.group + n * heads.groups) * a.head_dim + place.lane * V; };
  const auto there = [&](int n) { return place.row < a.rows && place.group + n * heads.groups < count; };
  const auto* in = static_cast<const T*>(a.in) + place.row * a.in_stride;
  Packed<T, V> x[kHeads] = {}, y[kHeads] = {};
#pragma unroll
  for (int n = 0; n < kHeads; ++n)
    if (there(n)) {
      x[n] = packed<V>(in + offset(n));
      y[n] = packed<V>(in + offset(n) + half);
    }
  const unsigned position = !there(0) ? 0 : a.positions ? unsigned(a.positions[place.row]) : place.row % unsigned(a.time);
  float c[V], s[V];
  read_angles<V>(a.cosine + std::int64_t(position) * half + place.lane * V, c);
  read_angles<V>(a.sine + std::int64_t(position) * half + place.lane * V, s);
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    float p[V], q[V], first[V], second[V];
    unpack(x[n], p);
    unpack(y[n], q);
    if constexpr (NORM) {
      const auto* weight = static_cast<const T*>(place.group + n * heads.groups < a.heads ? a.q_weight : a.k_weight) + place.lane * V;
      float squares = 0, w[V], u[V];
#pragma unroll
      for (int j = 0; j < V; ++j) squares += p[j] * p[j] + q[j] * q[j];
      const float rstd = 1.0f / sqrtf(group_sum(squares, 1 << heads.lane_bits) / float(a.head_dim) + a.eps);
      read<T, V>(weight, w);
      read<T, V>(weight + half, u);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        p[j] = p[j] * rstd * w[j];
        q[j] = q[j] * rstd * u[j];
      }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      first[j] = p[j] * c[j] - q[j] * s[j];
      second[j] = q[j] * c[j] + p[j] * s[j];
    }
    if (there(n)) {
      auto* out = static_cast<T*>(a.out) + place.row * a.out_stride + offset(n);
      write<T, V>(out, first);
      write<T, V>(out + half, second);
    }
  }
}

// Heads that vectors do not fit: a warp a head, one pair a lane and turn.
template <typename T>
__global__ void forward_by_pairs(RopeForward a) {
  const int half = int(a.head_dim / 2), heads = int(a.heads + a.kv_heads), lane = threadIdx.x % 32;
  const std::int64_t item = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (item >= a.rows * heads) return;
  const std::int64_t row = item / heads, head = item % heads;
  const auto* in = static_cast<const T*>(a.in) + row * a.in_stride + head * a.head_dim;
  auto* out = static_cast<T*>(a.out) + row * a.out_stride + head * a.head_dim;
  const auto* weight = static_cast<const T*>(head < a.heads ? a.q_weight : a.k_weight);
  const auto position = a.positions ? std::int64_t(a.positions[row]) : row % a.time;
  float rstd = 1;
  if (weight) {
    float squares = 0;
    for (int i = lane; i < half; i += 32) squares += load(in[i]) * load(in[i]) + load(in[half + i]) * load(in[half + i]);
    rstd = 1.0f / sqrtf(group_sum(squares, 32) / float(a.head_dim) + a.eps);
  }
  for (int i = lane; i < half; i += 32) {
    float x = load(in[i]), y = load(in[half + i]);
    if (weight) {
      x = x * rstd * load(weight[i]);
      y = y * rstd * load(weight[half + i]);
    }
    const float c = a.cosine[position * half + i], s = a.sine[position * half + i];
    store(out[i], x * c - y * s);
    store(out[half + i], y * c + x * s);
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

// A pair's gradient before the rotation.
__device__ __forceinline__ void turn_back(float& x, float& y, float cosine, float sine) {
  const float turned = x * cosine + y * sine;
  y = y * cosine - x * sine;
  x = turned;
}

// Without norms. A head of keys or values sums the gradients of its kv_repeat query heads.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kResident) backward_by_vectors(RopeBackward a, Heads heads) {
  const Place place(heads);
  if (place.row >= a.rows) return;
  const int half = int(a.head_dim / 2), rotated = int(a.heads + a.kv_heads), all = rotated + int(a.kv_heads);
  const unsigned batch = place.row / unsigned(a.time), time = place.row % unsigned(a.time);
  const T* data[kHeads];
  Packed<T, V> x[kHeads], y[kHeads];
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const int head = int(place.group + n * heads.groups);
    if (head >= all) break;
    const bool is_q = head < a.heads, is_v = head >= rotated;
    const HeadGradient& from = is_q ? a.dq : (is_v ? a.dv : a.dk);
    const std::int64_t first = is_q ? head : (head - a.heads - (is_v ? a.kv_heads : 0)) * a.kv_repeat;
    data[n] =
        static_cast<const T*>(from.data) + batch * from.batch_stride + time * from.time_stride + first * from.head_stride + place.lane * V;
    x[n] = packed<V>(data[n]);
    y[n] = packed<V>(data[n] + half);
  }
  const std::int64_t position = a.positions ? a.positions[place.row] : time;
  float c[V], s[V];
  read_angles<V>(a.cosine + position * half + place.lane * V, c);
  read_angles<V>(a.sine + position * half + place.lane * V, s);
#pragma unroll
  for (int n = 0; n < kHeads; ++n) {
    const int head = int(place.group + n * heads.groups);
    if (head >= all) break;
    float p[V], q[V];
    unpack(x[n], p);
    unpack(y[n], q);
    const std::int64_t head_stride = head >= rotated ? a.dv.head_stride : a.dk.head_stride;
    for (int m = 1; head >= a.heads && m < a.kv_repeat; ++m) {
      float more[V], other[V];
      read<T, V>(data[n] + m * head_stride, more);
      read<T, V>(data[n] + m * head_stride + half, other);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        p[j] += more[j];
        q[j] += other[j];
      }
    }
    if (head < rotated) {
#pragma unroll
      for (int j = 0; j < V; ++j) turn_back(p[j], q[j], c[j], s[j]);
    }
    auto* out = static_cast<T*>(a.dqkv) + (std::int64_t(place.row) * all + head) * a.head_dim + place.lane * V;
    write<T, V>(out, p);
    write<T, V>(out + half, q);
  }
}

// The weight gradients of a block: its groups' slots in their order.
__device__ __forceinline__ void sum_slots(const float* slots, int groups, int width, float* to) {
  __syncthreads();
  for (int i = threadIdx.x; i < width; i += kThreads) {
    float sum = 0;
    for (int g = 0; g < groups; ++g) sum += slots[g * width + i];
    to[i] = sum;
  }
}

// The others. Grid-stride over heads. With norms, each group adds its weight gradients to a slot of its own in shared memory; the slots
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
          for (int j = 0; j < V; ++j) turn_back(x[j], y[j], cosine[i + j], sine[i + j]);
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
  if (NORM) sum_slots(slots, groups, 2 * dim, a.partials + std::int64_t(blockIdx.x) * 2 * dim);
}

// Vectors where a head divides into them evenly; otherwise a warp a head, one pair a lane.
template <typename T>
int vector_lanes(std::int64_t half, bool can_vector) {
  for (int lanes = 1; can_vector && lanes <= 32; lanes *= 2)
    if (half == std::int64_t(lanes) * kFullVector<T>) return lanes;
  return 0;
}

Heads heads_of(std::int64_t rows, std::int64_t heads, int lanes) {
  const auto groups = ceil_div(heads, kHeads), threads = rows * groups * lanes;
  if (threads > std::numeric_limits<int>::max()) throw std::runtime_error("rope on CUDA: " + std::to_string(rows) + " rows in one call");
  return {unsigned(std::countr_zero(unsigned(lanes))), unsigned(groups), unsigned(ceil_div(threads, kThreads))};
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
                     aligned16(a.k_weight) && aligned16(a.cosine) && aligned16(a.sine);
    const auto count = a.heads + a.kv_heads;
    if (const int lanes = vector_lanes<T>(a.head_dim / 2, can)) {
      const Heads heads = heads_of(a.rows, count, lanes);
      const auto kernel = a.q_weight ? forward_by_vectors<T, full, true> : forward_by_vectors<T, full, false>;
      kernel<<<heads.blocks, kThreads, 0, native(stream)>>>(a, heads);
    } else {
      forward_by_pairs<T><<<unsigned(ceil_div(a.rows * count * 32, kThreads)), kThreads, 0, native(stream)>>>(a);
    }
  });
  launched("rope_forward");
}

void rope_backward(const RopeBackward& a, Stream stream) {
  if (a.rows == 0) return;
  const bool norm = a.q_weight != nullptr;
  int blocks = 0;
  by_type(a.type, [&]<typename T>(T) {
    constexpr int full = kFullVector<T>;
    const bool can = vectors_fit<T>(a.dq) && vectors_fit<T>(a.dk) && vectors_fit<T>(a.dv) && aligned16(a.dqkv) && aligned16(a.qkv) &&
                     aligned16(a.q_weight) && aligned16(a.k_weight) && aligned16(a.cosine) && aligned16(a.sine);
    const int vectors = vector_lanes<T>(a.head_dim / 2, can), lanes = vectors ? vectors : 32;
    const auto count = a.heads + 2 * a.kv_heads, needed = ceil_div(a.rows * count * lanes, kThreads);
    if (norm) {
      blocks = int(std::min<std::int64_t>(needed, kPartialRows));
      const auto bytes = std::size_t(kThreads / lanes) * 2 * a.head_dim * sizeof(float);
      const auto kernel = vectors ? backward<T, full, true> : backward<T, 1, true>;
      kernel<<<blocks, kThreads, bytes, native(stream)>>>(a, lanes);
    } else if (vectors) {
      const Heads heads = heads_of(a.rows, count, lanes);
      backward_by_vectors<T, full><<<heads.blocks, kThreads, 0, native(stream)>>>(a, heads);
    } else {
      backward<T, 1, false><<<unsigned(needed), kThreads, 0, native(stream)>>>(a, lanes);
    }
  });
  launched("rope_backward");
  if (a.dq_weight) {
    add_partials(a.partials, blocks, 2 * a.head_dim, a.head_dim, a.dq_weight, a.gradient_type, native(stream));
    add_partials(a.partials + a.head_dim, blocks, 2 * a.head_dim, a.head_dim, a.dk_weight, a.gradient_type, native(stream));
  }
}

}  // namespace lockstep::kernels::cuda
