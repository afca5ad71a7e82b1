// How SwiGLU's matmul cuts its work: sizes of tiles, what shared memory holds, and where a thread's numbers of a tile lie.
#pragma once

#include <cuda.h>

#include "rank/kernels/cuda/cuda.cuh"
#include "rank/kernels/cuda/hopper/hopper.cuh"

namespace lockstep::kernels::cuda {

namespace {

using namespace hopper;
using Number = __nv_bfloat16;

// An output tile is as large as registers allow: it reads less a product, and power is what limits this chip.
constexpr int kRows = 128, kColumns = 192;
constexpr int kStep = 64;            // how much of the sum a stage holds
constexpr int kPart = kColumns / 2;  // forward, a tile has as many columns of gate and the same of up
constexpr int kSums = kColumns / 2;  // that a thread has of 64 rows
constexpr int kBox = 64;             // columns of what one copy moves: rows of 128 bytes
constexpr int kLeftBytes = kRows * kStep * 2, kStageBytes = kLeftBytes + kColumns * kStep * 2;
constexpr int kOutBytes = kRows * kBox * 2;  // a buffer for outputs
constexpr int kAlignment = 1024;             // of tiles in shared memory
constexpr int kBlocks = 2;                   // of a cluster
constexpr int kWorkers = 2;                  // warpgroups that multiply
constexpr int kThreads = (kWorkers + 1) * kGroupThreads;
constexpr int kBandRows = 8;  // of tiles that are worked on together, so that what they share stays in the cache

enum class Pass { forward, backward, backward_and_again };  // again: SwiGLU's output as well

struct Maps {
  CUtensorMap left, right[2];          // forward: x, gate's and up's weights; backward: dout, down's weights twice
  CUtensorMap low_left, low_right[2];  // the adapter's; unused without one
  CUtensorMap gate, up;                // backward
};

// A matrix that threads write themselves.
struct Output {
  Number* data;
  int stride, rows, columns;
};
struct Outputs {
  Output gate, up, out;  // gate and up: forward
};

struct Sizes {
  int row_tiles, column_tiles;  // row tiles are those of a cluster: kBlocks * kRows
  int steps, low_steps, rank;
};

// What shared memory holds: stages, buffers for outputs, barriers.
template <Pass kPass>
struct Layout {
  static constexpr bool kBackward = kPass != Pass::forward;
  static constexpr int kOutBuffers = kBackward ? 2 : 0;  // of a worker
  static constexpr int kStages = (224 * 1024 - kWorkers * kOutBuffers * kOutBytes) / kStageBytes;
  static constexpr int kOut = kStages * kStageBytes;
  static constexpr int kBarriers = kOut + kWorkers * kOutBuffers * kOutBytes;
  // Turns whose tiles a block knows. Its loads are at most kStages ahead of its products, each perhaps a turn of its own; even, so that a
  // worker finds all of its turns in places that are its own.
  static constexpr int kTurns = (kStages + 3) / 2 * 2;
  static constexpr int kDealt = kBarriers + (2 * kStages + 2 * kWorkers) * 8;
  static constexpr int kBytes = kDealt + kTurns * (8 + 4);
};

// Barriers in shared memory, 8 bytes each.
template <typename L>
struct Barriers {
  std::uint32_t shared;
  __device__ std::uint32_t full(int stage) const { return shared + L::kBarriers + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return full(L::kStages + stage); }
  __device__ std::uint32_t turn(int worker) const { return empty(L::kStages + worker); }
  __device__ std::uint32_t ready(int worker) const { return turn(kWorkers + worker); }
  __device__ std::uint32_t dealt(int place) const { return shared + L::kDealt + 8 * place; }
};

// Which tile a cluster works on at its turn-th turn. Tiles are dealt out while the kernel runs, to whoever is next: what lasts beside it,
// as a gather does, takes multiprocessors away and with them their share of the work. Dealt out beforehand, the work of a cluster that
// finds no place would begin when the others end, and the kernel take twice its time.
template <typename L>
class Deal {
 public:
  __device__ Deal(std::uint32_t shared, int tiles, int* next) : barriers_{shared}, tiles_(tiles), next_(next) {}

  // Past the last one: there is no such turn.
  __device__ int tile(int turn) const {
    if (turn == 0) return own();
    wait(barriers_.dealt(place(turn)), (turn - 1) / L::kTurns & 1);
    return int(get(word(place(turn))));
  }
  __device__ bool is_tile(int tile) const { return tile < tiles_; }

  // By one thread of each block, which asks for the turn's tile before anyone waits for it.
  __device__ void ask(int turn) const {
    deal(turn, [&] { return clusters() + atomicAdd(next_, 1); });
  }
  __device__ void end(int turn) const {
    deal(turn, [&] { return tiles_; });
  }

 private:
  __device__ int own() const { return int(blockIdx.x) / kBlocks; }
  __device__ int clusters() const { return int(gridDim.x) / kBlocks; }
  __device__ static int place(int turn) { return (turn - 1) % L::kTurns; }  // the first one is not dealt
  __device__ std::uint32_t word(int place) const { return barriers_.dealt(L::kTurns) + 4 * place; }
  template <typename Next>
  __device__ void deal(int turn, const Next& next) const {
    const std::uint32_t barrier = barriers_.dealt(place(turn));
    expect_bytes(barrier, 4);
    if (block_in_cluster() != 0) return;
    const int tile = next();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) send_word(word(place(turn)), std::uint32_t(tile), barrier, std::uint32_t(block));
  }

  Barriers<L> barriers_;
  int tiles_;
  int* next_;  // how many were dealt beyond each cluster's first
};

struct Tile {
  int row, column;
};

__device__ __forceinline__ Tile tile_of(int index, const Sizes& sizes) {
  const int band = kBandRows * sizes.column_tiles, first = index / band * kBandRows;
  const int rows = min(kBandRows, sizes.row_tiles - first), in_band = index % band;
  return {first + in_band % rows, in_band / rows};
}

__device__ __forceinline__ std::uint32_t two(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  std::uint32_t word;
  memcpy(&word, &pair, 4);
  return word;
}
__device__ __forceinline__ float low_half(std::uint32_t word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_half(std::uint32_t word) { return __uint_as_float(word & 0xffff0000u); }

// Two neighbors in a row of a product: which half of the tile's rows, which 8 columns, and whether in the upper or lower 8 of 16 rows.
struct Pair {
  int half, eighth, lower;
};

__device__ __forceinline__ int row_of(int half, int lower) {
  const int thread = threadIdx.x % kGroupThreads;
  return half * 64 + thread / 32 * 16 + lower * 8 + thread % 32 / 4;
}

// Where they lie in a buffer of 64 columns. Rows are of 128 bytes, their 16-byte parts swizzled.
__device__ __forceinline__ std::uint32_t place(Pair pair) {
  const int lane = threadIdx.x % 32;
  return std::uint32_t(row_of(pair.half, pair.lower) * 128 + ((pair.eighth ^ (lane / 4)) << 4) + lane % 4 * 4);
}

// Where a thread writes in the tile at (row, column) of a matrix. Neighbors swap, so that each writes 8 bytes and the four of a row 32 in
// a line.
struct Places {
  Number* first;
  int stride, rows, columns;  // the latter two: what is left of the matrix from there on

  __device__ Places(const Output& to, int row, int column) : stride(to.stride) {
    const int lane = threadIdx.x % 32, y = row + row_of(0, 0), x = column + lane % 2 * 8 + lane % 4 / 2 * 4;
    first = to.data + std::int64_t(y) * to.stride + x;
    rows = to.rows - y;
    columns = to.columns - x;
  }
  // What the warp has of 8 rows and 16 columns, so many from the tile's own.
  __device__ __forceinline__ void write(int row, int column, std::uint32_t left, std::uint32_t right) const {
    const bool odd = threadIdx.x % 2 == 1;
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? left : right, 1);
    if (row < rows && column < columns)
      *reinterpret_cast<uint2*>(first + row * stride + column) = odd ? uint2{got, right} : uint2{left, got};
  }
};

}  // namespace

}  // namespace lockstep::kernels::cuda
