// Weights into NF4 or int8 codes and back on CUDA: the same bits as on a CPU. Bound by memory: dequantizing reads half a byte (int8:
// one) and writes 2 or 4 a weight; scales cost 1/64 byte where they are codes themselves, resolved here so that no pass writes them out.
#include "rank/kernels/rules/nf4.h"

#include "rank/kernels/cuda/cuda.cuh"

namespace lockstep::kernels::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

__constant__ float device_values[16] = {nf4_values[0],  nf4_values[1],  nf4_values[2],  nf4_values[3], nf4_values[4],  nf4_values[5],
                                        nf4_values[6],  nf4_values[7],  nf4_values[8],  nf4_values[9], nf4_values[10], nf4_values[11],
                                        nf4_values[12], nf4_values[13], nf4_values[14], nf4_values[15]};
__constant__ float device_bounds[15] = {nf4_bounds[0],  nf4_bounds[1],  nf4_bounds[2],  nf4_bounds[3],  nf4_bounds[4],
                                        nf4_bounds[5],  nf4_bounds[6],  nf4_bounds[7],  nf4_bounds[8],  nf4_bounds[9],
                                        nf4_bounds[10], nf4_bounds[11], nf4_bounds[12], nf4_bounds[13], nf4_bounds[14]};

__device__ __forceinline__ std::uint32_t nf4_code(float value) {
  std::uint32_t code = 0;
#pragma unroll
  for (int i = 0; i < 15; ++i) code += !(value <= device_bounds[i]);
  return code;
}

__device__ __forceinline__ float warp_largest(float most) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) most = larger(most, __shfl_xor_sync(0xffffffffu, most, offset));
  return most;
}

// A warp takes a block, a lane two neighbors: one byte of NF4.
template <typename T>
__global__ void __launch_bounds__(kThreads) quantize(QuantizeBlocks a) {
  const std::int64_t block = std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  const std::int64_t first = block * kWeightBlock, at = first + 2 * (threadIdx.x % 32);
  if (first >= a.count) return;
  const T* in = static_cast<const T*>(a.in);
  const float x = at < a.count ? load(in[at]) : 0.0f, y = at + 1 < a.count ? load(in[at + 1]) : 0.0f;
  const float most = warp_largest(larger(larger(0.0f, fabsf(x)), fabsf(y)));
  if (a.kind == Codes::int8) {
    const Int8Scale scale(most);
    if (threadIdx.x % 32 == 0) a.scales[block] = scale.step;
    if (at < a.count) a.codes[at] = scale(x);
    if (at + 1 < a.count) a.codes[at + 1] = scale(y);
    return;
  }
  const Nf4Scale scale(most, first + kWeightBlock <= a.count);
  if (threadIdx.x % 32 == 0) a.scales[block] = scale.most;
  if (at < a.count) a.codes[at / 2] = std::uint8_t(nf4_code(scale(x)) << 4 | nf4_code(at + 1 < a.count ? scale(y) : 0.0f));
}

// A thread block takes one run of kScaleBlock scales.
__global__ void __launch_bounds__(kScaleBlock) quantize_scale_blocks(QuantizeScales a) {
  __shared__ float map[256], warps[kScaleBlock / 32];
  const std::int64_t at = std::int64_t(blockIdx.x) * kScaleBlock + threadIdx.x;
  map[threadIdx.x] = a.map[threadIdx.x];
  const float value = at < a.count ? __fsub_rn(a.in[at], a.offset) : 0.0f;
  float most = fmaxf(0.0f, fabsf(value));  // as on a CPU, NaN does not count
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kScaleBlock / 32; ++warp) most = fmaxf(most, warps[warp]);
  if (threadIdx.x == 0) a.outer[blockIdx.x] = most;
  if (at < a.count) a.codes[at] = scale_code(map, value, most);
}

// Entry `code` of a table whose entries wait in the lanes of each half of the warp. Every lane asks.
__device__ __forceinline__ float looked_up(float mine, std::uint32_t code) { return __shfl_sync(0xffffffffu, mine, int(code), 16); }

template <Codes kind, int V>
struct WeightCodes;  // the codes of V neighbors; `mine` is the lane's entry of the NF4 values
template <>
struct WeightCodes<Codes::nf4, 8> {
  std::uint32_t bits = 0;
  __device__ void read(const std::uint8_t* codes, std::int64_t at) {
    bits = __ldcs(reinterpret_cast<const std::uint32_t*>(codes) + at / 8);
  }
  __device__ float value(float mine, int i) const { return looked_up(mine, bits >> (i / 2 * 8 + (i % 2 == 0 ? 4 : 0)) & 15u); }
};
template <>
struct WeightCodes<Codes::nf4, 1> {
  std::uint32_t bits = 0;
  __device__ void read(const std::uint8_t* codes, std::int64_t at) { bits = at % 2 == 0 ? codes[at / 2] >> 4 : codes[at / 2] & 15u; }
  __device__ float value(float mine, int) const { return looked_up(mine, bits); }
};
template <>
struct WeightCodes<Codes::int8, 8> {
  uint2 bits{0, 0};
  __device__ void read(const std::uint8_t* codes, std::int64_t at) { bits = __ldcs(reinterpret_cast<const uint2*>(codes) + at / 8); }
  __device__ float value(float, int i) const { return float(static_cast<signed char>((i < 4 ? bits.x : bits.y) >> (8 * (i % 4)))); }
};
template <>
struct WeightCodes<Codes::int8, 1> {
  signed char code = 0;
  __device__ void read(const std::uint8_t* codes, std::int64_t at) { code = static_cast<signed char>(codes[at]); }
  __device__ float value(float, int) const { return float(code); }
};

// Two roundings, as bitsandbytes: never a fused multiply-add.
__device__ __forceinline__ float scale_of(const QuantizedPiece& piece, std::int64_t block) {
  if (piece.scales != nullptr) return piece.scales[block];
  return __fadd_rn(__fmul_rn(piece.map[piece.scale_codes[block]], piece.outer[block / kScaleBlock]), piece.offset);
}

// blockIdx.y: the piece. A warp takes kRounds stretches of 32 x V neighbors, and no thread waits for another warp: with tables in shared
// memory, filled behind a barrier, NF4 ran at half of memory's speed, with a value a lane at 91 % of it. V neighbors never straddle two
// blocks.
constexpr int kRounds = 4;
constexpr int kResident = 1536 / kThreads;

template <typename T, Codes kind, int V>
__global__ void __launch_bounds__(kThreads, kResident) dequantize_pieces(const __grid_constant__ Dequantize a) {
  const QuantizedPiece& piece = a.pieces[blockIdx.y];
  const int lane = threadIdx.x % 32;
  const std::int64_t first = (std::int64_t(blockIdx.x) * kWarps + threadIdx.x / 32) * (32 * V * kRounds), start = first + lane * V;
  if (first >= piece.count) return;  // the whole warp: another piece is longer
  WeightCodes<kind, V> codes[kRounds];
  float scales[kRounds] = {};
#pragma unroll
  for (int round = 0; round < kRounds; ++round)  // every load is on its way before the first is waited for
    if (const auto at = start + round * (32 * V); at < piece.count) codes[round].read(piece.codes, at);
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
    if (const auto at = start + round * (32 * V); at < piece.count) scales[round] = scale_of(piece, at / kWeightBlock);
  const float mine = kind == Codes::nf4 ? device_values[lane % 16] : 0.0f;

  T* out = static_cast<T*>(a.out) + piece.first;
  constexpr int W = V < kFullVector<T> ? V : kFullVector<T>;  // numbers written at once
#pragma unroll
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int part = 0; part < V; part += W) {
      float numbers[W];
#pragma unroll
      for (int i = 0; i < W; ++i) numbers[i] = codes[round].value(mine, part + i) * scales[round];
      if (const auto at = start + round * (32 * V); at < piece.count) write<T, W>(out + at + part, numbers);
    }
}

template <typename T, Codes kind>
void launch(const Dequantize& a, cudaStream_t stream) {
  std::int64_t largest = 0;
  bool vectors = aligned16(a.out);
  for (int p = 0; p < a.piece_count; ++p) {
    const QuantizedPiece& piece = a.pieces[p];
    largest = std::max(largest, piece.count);
    vectors &= piece.count % 8 == 0 && piece.first % 8 == 0 && aligned16(piece.codes);
  }
  if (largest == 0) return;
  const auto grid = [&](int vector) { return dim3(unsigned(ceil_div(largest, kThreads * vector * kRounds)), unsigned(a.piece_count)); };
  if (vectors) {
    dequantize_pieces<T, kind, 8><<<grid(8), kThreads, 0, stream>>>(a);
  } else {
    dequantize_pieces<T, kind, 1><<<grid(1), kThreads, 0, stream>>>(a);
  }
}

}  // namespace

void quantize_blocks(const QuantizeBlocks& a, Stream stream) {
  if (a.count == 0) return;
  const auto blocks = ceil_div(ceil_div(a.count, kWeightBlock), kWarps);
  by_type(a.type, [&]<typename T>(T) { quantize<T><<<unsigned(blocks), kThreads, 0, native(stream)>>>(a); });
  launched("quantize_blocks");
}

void quantize_scales(const QuantizeScales& a, Stream stream) {
  if (a.count == 0) return;
  quantize_scale_blocks<<<unsigned(ceil_div(a.count, kScaleBlock)), kScaleBlock, 0, native(stream)>>>(a);
  launched("quantize_scales");
}

void dequantize(const Dequantize& a, Stream stream) {
  by_type(a.type, [&]<typename T>(T) {
    if (a.kind == Codes::nf4) {
      launch<T, Codes::nf4>(a, native(stream));
    } else {
      launch<T, Codes::int8>(a, native(stream));
    }
  });
  launched("dequantize");
}

}  // namespace lockstep::kernels::cuda
