// Scales of tensors and their copies in 8 bits on CUDA. Measuring reads 2 bytes an element; casting reads 2 and writes 1 a copy.
// The cast goes from the end to the start: what the measurement read last is still in the L2 cache.
#include <cuda_fp8.h>

#include <algorithm>
#include <cfloat>

#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/fp8_table.h"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kMeasureThreads = 512, kMeasureBlocks = 264, kMeasureUnroll = 4;  // two blocks a processor of an H200: one wave
constexpr float kLargestE4m3 = 448.0f, kLargestE5m2 = 57344.0f;

__device__ __forceinline__ __nv_bfloat162 larger(__nv_bfloat162 most, std::uint32_t pair) {
  return __hmax2_nan(most, __habs2(reinterpret_cast<const __nv_bfloat162&>(pair)));
}

__device__ __forceinline__ __nv_bfloat162 larger(__nv_bfloat162 most, uint4 eight) {
  return larger(larger(larger(larger(most, eight.x), eight.y), eight.z), eight.w);
}

// The block that ends last knows the largest of all: it leaves the scale, and the counters as it found them.
__global__ void __launch_bounds__(kMeasureThreads) measure(Fp8Measure a, float format_largest) {
  __shared__ std::uint32_t largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  const auto* in = static_cast<const uint4*>(a.in);
  const std::int64_t vectors = a.count / 8, stride = std::int64_t(gridDim.x) * kMeasureThreads;
  auto most = __float2bfloat162_rn(0.0f);
  std::int64_t at = std::int64_t(blockIdx.x) * kMeasureThreads + threadIdx.x;
  for (; at + (kMeasureUnroll - 1) * stride < vectors; at += kMeasureUnroll * stride) {
    uint4 read[kMeasureUnroll];
#pragma unroll
    for (int i = 0; i < kMeasureUnroll; ++i) read[i] = in[at + i * stride];
#pragma unroll
    for (int i = 0; i < kMeasureUnroll; ++i) most = larger(most, read[i]);
  }
  for (; at < vectors; at += stride) most = larger(most, in[at]);
  // Magnitudes compare as their bits do; a NaN is above all of them.
  const std::uint32_t mine = __float_as_uint(__bfloat162float(__hmax_nan(__low2bfloat16(most), __high2bfloat16(most))));
  const std::uint32_t of_warp = __reduce_max_sync(0xffffffffu, mine);
  if (threadIdx.x % 32 == 0) atomicMax(&largest, of_warp);
  __syncthreads();
  if (threadIdx.x != 0) return;
  atomicMax(&a.scale->largest, largest);
  __threadfence();
  if (atomicAdd(&a.scale->done, 1u) + 1 != gridDim.x) return;
  const float whole = __uint_as_float(atomicExch(&a.scale->largest, 0u));
  a.scale->done = 0;
  float multiply = format_largest / whole;
  if (multiply > FLT_MAX) multiply = whole > 0.0f ? FLT_MAX : 1.0f;
  a.scale->multiply = multiply;
  a.scale->factor = 1.0f / multiply;
}

constexpr int kTile = 128, kCastThreads = 256, kSide = 8;  // a thread casts 8 x 8 numbers of a tile of 128 x 128

template <Fp8 format>
__device__ __forceinline__ std::uint32_t cast4(std::uint32_t first, std::uint32_t second, float multiply) {
  constexpr auto kind = format == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2;
  const float2 a = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(first));
  const float2 b = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(second));
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a.x * multiply, a.y * multiply), __NV_SATFINITE, kind);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(b.x * multiply, b.y * multiply), __NV_SATFINITE, kind);
  return low | high << 16;
}

// Four rows of four bytes become four columns.
__device__ __forceinline__ void transpose4(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  const std::uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const std::uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

// The tile waits in shared memory as its transpose: 128 lines of 16 groups of 8 bytes. A line's groups are exchanged by the bits of
// line / 8, so that threads which write one group of different lines, and those which read one line, meet no bank twice.
template <Fp8 format, bool as_is, bool transposed>
__global__ void __launch_bounds__(kCastThreads) cast(Fp8Cast a) {
  __shared__ __align__(16) unsigned char tile[transposed ? kTile * kTile : 16];
  const std::int64_t across = (a.columns + kTile - 1) / kTile, place = std::int64_t(gridDim.x) - 1 - blockIdx.x;
  const std::int64_t first_row = place / across * kTile, first_column = place % across * kTile;
  const int group = int(threadIdx.x) % (kTile / kSide), line = int(threadIdx.x) / (kTile / kSide);
  const std::int64_t row = first_row + line * kSide, column = first_column + group * kSide;
  const float multiply = a.scale->multiply;

  if (row < a.rows && column < a.columns) {  // both come in eights
    uint4 read[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i)
      read[i] = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.in) + (row + i) * a.columns + column);
    std::uint32_t low[kSide], high[kSide];  // a row's columns 0 to 3 and 4 to 7
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      low[i] = cast4<format>(read[i].x, read[i].y, multiply);
      high[i] = cast4<format>(read[i].z, read[i].w, multiply);
    }
    if constexpr (as_is) {
#pragma unroll
      for (int i = 0; i < kSide; ++i)
        *reinterpret_cast<uint2*>(static_cast<unsigned char*>(a.out) + (row + i) * a.columns + column) = make_uint2(low[i], high[i]);
    }
    if constexpr (transposed) {
      transpose4(low[0], low[1], low[2], low[3]);
      transpose4(low[4], low[5], low[6], low[7]);
      transpose4(high[0], high[1], high[2], high[3]);
      transpose4(high[4], high[5], high[6], high[7]);
      const auto put = [&](int of, std::uint32_t top, std::uint32_t bottom) {
        *reinterpret_cast<uint2*>(tile + (group * kSide + of) * kTile + (line ^ group) * kSide) = make_uint2(top, bottom);
      };
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        put(i, low[i], low[i + 4]);
        put(i + 4, high[i], high[i + 4]);
      }
    }
  }
  if constexpr (transposed) {
    __syncthreads();
    constexpr int pieces = kTile / 16;  // of 16 bytes a line
#pragma unroll
    for (int i = threadIdx.x; i < kTile * pieces; i += kCastThreads) {
      const int from = i / pieces, piece = i % pieces, exchange = from / kSide;
      const std::int64_t out_row = first_column + from, out_column = first_row + piece * 16;
      if (out_row >= a.columns || out_column >= a.rows) continue;
      uint4 bytes = *reinterpret_cast<const uint4*>(tile + from * kTile + (piece ^ exchange / 2) * 16);
      if (exchange % 2 == 1) bytes = make_uint4(bytes.z, bytes.w, bytes.x, bytes.y);
      *reinterpret_cast<uint4*>(static_cast<unsigned char*>(a.transposed) + out_row * a.rows + out_column) = bytes;
    }
  }
}

template <Fp8 format>
void cast_to(const Fp8Cast& a, cudaStream_t stream) {
  const auto tiles = unsigned(ceil_div(a.rows, kTile) * ceil_div(a.columns, kTile));
  if (a.out && a.transposed) {
    cast<format, true, true><<<tiles, kCastThreads, 0, stream>>>(a);
  } else if (a.out) {
    cast<format, true, false><<<tiles, kCastThreads, 0, stream>>>(a);
  } else {
    cast<format, false, true><<<tiles, kCastThreads, 0, stream>>>(a);
  }
}

void fp8_measure(const Fp8Measure& a, Stream stream) {
  const auto blocks = unsigned(std::clamp<std::int64_t>(ceil_div(a.count / 8, kMeasureThreads), 1, kMeasureBlocks));
  measure<<<blocks, kMeasureThreads, 0, native(stream)>>>(a, a.format == Fp8::e4m3 ? kLargestE4m3 : kLargestE5m2);
  launched("fp8_measure");
}

void fp8_cast(const Fp8Cast& a, Stream stream) {
  if (a.format == Fp8::e4m3) {
    cast_to<Fp8::e4m3>(a, native(stream));
  } else {
    cast_to<Fp8::e5m2>(a, native(stream));
  }
  launched("fp8_cast");
}

}  // namespace

bool fp8_matmul(const Fp8Matmul&, Stream);

const Fp8Table& fp8_table() {
  static constexpr Fp8Table table{.measure = fp8_measure, .cast = fp8_cast, .matmul = fp8_matmul};
  return table;
}

}  // namespace lockstep::kernels::cuda
