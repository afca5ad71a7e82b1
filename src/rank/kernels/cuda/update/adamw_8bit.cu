// AdamW with 8-bit moments on CUDA: a warp a block of 256 numbers, 8 neighbors a lane. With bf16 gradients it moves 18 bytes a
// parameter beside f32 masters, 12 where bf16 weights are their own. What it waits for is not memory but finding the nearest codes.
#include <algorithm>

#include "rank/kernels/cuda/update/update.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kLane = 8;  // numbers a lane takes
constexpr int kWarps = 8;
constexpr int kResident = 4;  // blocks on a processor
static_assert(kLane * 32 == kQuantBlock);

// Where the search for a code begins. Numbers in [-1, 1] fall into buckets by sign, exponent (2^-24 is the least) and the first bits of
// the mantissa; code[sign][bucket] is the code nearest to the lowest number of the bucket, so the right one is that or one of the next
// few. Halving 256 codes for every number took twice the time of everything else.
struct Starts {
  static constexpr int kMantissa = 6, kShift = 23 - kMantissa, kOctaves = 24;
  static constexpr int kBefore = (127 - kOctaves) << kMantissa;  // buckets of magnitudes below 2^-24, which share the first
  static constexpr int kBuckets = (kOctaves << kMantissa) + 2;   // the last is 1 alone
  std::uint8_t code[2][kBuckets];

  __device__ static float lower_end(int bucket) { return bucket == 0 ? 0.0f : __uint_as_float(unsigned(bucket - 1 + kBefore) << kShift); }

  __device__ static int bucket_of(float x) {
    const int bucket = int((__float_as_uint(x) & 0x7fffffffu) >> kShift) - kBefore + 1;
    return bucket < 0 ? 0 : bucket;
  }

  // Every thread of the block fills its share.
  __device__ void fill(const float* map) {
    for (int i = threadIdx.x; i < 2 * kBuckets; i += blockDim.x) {
      const int sign = i / kBuckets, bucket = i % kBuckets;
      code[sign][bucket] = nearest_code(map, sign == 0 ? lower_end(bucket) : -lower_end(bucket + 1), 1.0f);
    }
  }

  // What nearest_code gives, to the bit.
  __device__ __forceinline__ std::uint8_t nearest(const float* map, float x, float inverse) const {
    const float scaled = x * inverse, wanted = scaled > 1.0f ? 1.0f : (scaled < -1.0f ? -1.0f : scaled);
    if (wanted != wanted) return 0;
    int found = code[wanted < 0][bucket_of(wanted)];
    while (found < 255 && fabsf(map[found + 1] - wanted) < fabsf(wanted - map[found])) ++found;
    return std::uint8_t(found);
  }
};

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// The first `valid` of a lane's numbers, in whole vectors where the buffers allow it.
template <typename T>
__device__ __forceinline__ void take(const T* from, float (&to)[kLane], int valid, bool vectors) {
  constexpr int V = kFullVector<T> < kLane ? kFullVector<T> : kLane;
  if (vectors && valid == kLane) {
#pragma unroll
    for (int part = 0; part < kLane / V; ++part) {
      float some[V];
      read<T, V>(from + part * V, some);
#pragma unroll
      for (int i = 0; i < V; ++i) to[part * V + i] = some[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kLane; ++i) to[i] = i < valid ? load(from[i]) : 0.0f;
}

template <typename T>
__device__ __forceinline__ void give(T* to, const float (&from)[kLane], int valid, bool vectors) {
  constexpr int V = kFullVector<T> < kLane ? kFullVector<T> : kLane;
  if (vectors && valid == kLane) {
#pragma unroll
    for (int part = 0; part < kLane / V; ++part) {
      float some[V];
#pragma unroll
      for (int i = 0; i < V; ++i) some[i] = from[part * V + i];
      write<T, V>(to + part * V, some);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kLane; ++i)
    if (i < valid) store(to[i], from[i]);
}

__device__ __forceinline__ void decode(const std::uint8_t* codes, const float* map, float scale, float (&to)[kLane], int valid,
                                       bool vectors) {
  Vector<std::uint8_t, kLane> packed = {};
  if (vectors && valid == kLane) {
    packed = *reinterpret_cast<const Vector<std::uint8_t, kLane>*>(codes);
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i)
      if (i < valid) packed.value[i] = codes[i];
  }
#pragma unroll
  for (int i = 0; i < kLane; ++i) to[i] = i < valid ? map[packed.value[i]] * scale : 0.0f;
}

__device__ __forceinline__ void encode(std::uint8_t* codes, const float* map, const Starts& starts, float* scale,
                                       const float (&from)[kLane], int valid, bool vectors) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kLane; ++i) most = fmaxf(most, i < valid ? fabsf(from[i]) : 0.0f);
  most = warp_max(most);
  const float inverse = most > 0 ? 1.0f / most : 0.0f;
  Vector<std::uint8_t, kLane> packed;
#pragma unroll
  for (int i = 0; i < kLane; ++i) packed.value[i] = starts.nearest(map, from[i], inverse);
  if (vectors && valid == kLane) {
    *reinterpret_cast<Vector<std::uint8_t, kLane>*>(codes) = packed;
  } else {
#pragma unroll
    for (int i = 0; i < kLane; ++i)
      if (i < valid) codes[i] = packed.value[i];
  }
  if (threadIdx.x % 32 == 0) *scale = most;
}

template <typename G, typename P>
__global__ void __launch_bounds__(kWarps * 32, kResident) step(AdamW8bit a, std::int64_t blocks, bool vectors) {
  __shared__ UpdateNumbers shared;
  __shared__ float first_map[256], second_map[256];
  __shared__ Starts first_starts, second_starts;
  const bool skip = a.control->skip != 0;
  if (skip && !a.zero_gradient) return;
  for (int i = threadIdx.x; i < 256; i += kWarps * 32) {
    first_map[i] = a.first_map[i];
    second_map[i] = a.second_map[i];
  }
  if (threadIdx.x == 0 && !skip) shared = numbers_of(a);
  __syncthreads();
  first_starts.fill(first_map);
  second_starts.fill(second_map);
  __syncthreads();
  const UpdateNumbers n = shared;
  for (std::int64_t block = std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32; block < blocks;
       block += std::int64_t(gridDim.x) * kWarps) {
    const std::int64_t at = block * kQuantBlock + threadIdx.x % 32 * kLane;
    const std::int64_t left = a.count - at;
    const int valid = left <= 0 ? 0 : (left < kLane ? int(left) : kLane);
    auto* gradient = static_cast<G*>(a.gradient) + at;
    float g[kLane];
    if (!skip) {
      float p[kLane], m[kLane], v[kLane];
      auto* exact = static_cast<P*>(a.exact) + at;
      take<G>(gradient, g, valid, vectors);
      take<P>(exact, p, valid, vectors);
      decode(a.first_codes + at, first_map, a.first_scale[block], m, valid, vectors);
      decode(a.second_codes + at, second_map, a.second_scale[block], v, valid, vectors);
      __syncwarp();  // every lane has read the scales that lane 0 will write
#pragma unroll
      for (int i = 0; i < kLane; ++i) update_one<Rule::adamw>(n, g[i], p[i], m[i], v[i]);
      encode(a.first_codes + at, first_map, first_starts, a.first_scale + block, m, valid, vectors);
      encode(a.second_codes + at, second_map, second_starts, a.second_scale + block, v, valid, vectors);
      if constexpr (sizeof(P) == 2) {
#pragma unroll
        for (int i = 0; i < kLane; ++i) {  // a number that bf16 holds: giving it is exact
          const std::uint32_t bits = stochastic_bf16(p[i], for_weight(random_word(n, std::uint64_t(a.place + at + i))));
          p[i] = __uint_as_float(bits << 16);
        }
      } else if (a.weights != nullptr) {
        if (a.weight_type == Type::f16)
          give<__half>(static_cast<__half*>(a.weights) + at, p, valid, vectors);
        else
          give<__nv_bfloat16>(static_cast<__nv_bfloat16*>(a.weights) + at, p, valid, vectors);
      }
      give<P>(exact, p, valid, vectors);
    }
    if (a.zero_gradient) {
      const float zero[kLane] = {};
      give<G>(gradient, zero, valid, vectors);
    }
  }
}

}  // namespace

void adamw_8bit(const AdamW8bit& a, Stream stream) {
  if (a.count == 0) return;
  const auto blocks = ceil_div(a.count, kQuantBlock);
  const bool vectors =
      aligned16(a.gradient) && aligned16(a.exact) && aligned16(a.weights) && aligned16(a.first_codes) && aligned16(a.second_codes);
  const auto grid = unsigned(std::min<std::int64_t>(ceil_div(blocks, kWarps), processors() * kResident));
  by_type(a.gradient_type, [&]<typename G>(G) {
    if (a.exact_type == Type::f32)
      step<G, float><<<grid, kWarps * 32, 0, native(stream)>>>(a, blocks, vectors);
    else
      step<G, __nv_bfloat16><<<grid, kWarps * 32, 0, native(stream)>>>(a, blocks, vectors);
  });
  launched("adamw_8bit");
}

}  // namespace lockstep::kernels::cuda
