// SwiGLU on its way out of the matmul before it, and back on its way into the one behind it, on Hopper. Alone SwiGLU reads and writes
// 3 numbers an element forward and 5 backward while the tensor cores stand still; here those copies run beside the next tile's products.
//
// A cluster is two blocks that work on neighbouring rows and the same columns: each reads half of the columns' factor for both. In a
// block one thread asks for tiles, stages ahead; two warpgroups take output tiles in turn, so that one multiplies while the other
// finishes. An adapter's thin product is a few more steps of the same sum, over its own two factors.
#include <algorithm>

#include "rank/kernels/cuda.cuh"
#include "rank/kernels/hopper.cuh"
#include "rank/kernels/swiglu.cuh"
#include "rank/kernels/tile_map.h"

namespace lockstep::kernels::cuda {

namespace {

using namespace hopper;

constexpr int kRows = 128, kStep = 64;  // of an output tile, and how much of the sum a stage holds
constexpr int kBox = 64;                // columns of what one copy moves: rows of 128 bytes
constexpr int kLeftBytes = kRows * kStep * 2;
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
  CUtensorMap gate, up, out;
};

struct Sizes {
  int row_tiles, column_tiles;  // row tiles are those of a cluster: kBlocks * kRows
  int steps, low_steps, rank;
};

// Larger tiles read less a product, and power is what limits this chip. Smaller ones leave registers and time for more outputs.
template <Pass kPass>
struct Layout {
  static constexpr bool kBackward = kPass != Pass::forward;
  static constexpr int kColumns = kPass == Pass::backward ? 192 : 128;  // of a tile; forward, half of them are gate's and half up's
  static constexpr int kSums = kColumns / 2;                            // that a thread has of 64 rows
  static constexpr int kStageBytes = kLeftBytes + kColumns * kStep * 2;
  static constexpr int kOutBuffers = kBackward ? 2 : 1;  // of a worker
  static constexpr int kStages = (224 * 1024 - kWorkers * kOutBuffers * kOutBytes) / kStageBytes;
  static constexpr int kOut = kStages * kStageBytes;
  static constexpr int kBarriers = kOut + kWorkers * kOutBuffers * kOutBytes;
  static constexpr int kBytes = kBarriers + (2 * kStages + 2 * kWorkers) * 8;
  // Registers of a thread: what the third warpgroup gives up, the other two take.
  static constexpr int kProducerRegisters = kColumns > 128 ? 24 : 40, kWorkerRegisters = kColumns > 128 ? 240 : 232;
};

// Barriers in shared memory, 8 bytes each.
template <typename L>
struct Barriers {
  std::uint32_t shared;
  __device__ std::uint32_t full(int stage) const { return shared + L::kBarriers + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return full(L::kStages + stage); }
  __device__ std::uint32_t turn(int worker) const { return empty(L::kStages + worker); }
  __device__ std::uint32_t ready(int worker) const { return turn(kWorkers + worker); }
};

struct Tile {
  int row, column;
};

__device__ __forceinline__ Tile tile_of(int index, const Sizes& sizes) {
  const int band = kBandRows * sizes.column_tiles, first = index / band * kBandRows;
  const int rows = min(kBandRows, sizes.row_tiles - first), in_band = index % band;
  return {first + in_band % rows, in_band / rows};
}

using Number = __nv_bfloat16;
__device__ __forceinline__ std::uint32_t two(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  std::uint32_t word;
  memcpy(&word, &pair, 4);
  return word;
}
__device__ __forceinline__ float low_half(std::uint32_t word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_half(std::uint32_t word) { return __uint_as_float(word & 0xffff0000u); }

__device__ __forceinline__ void put(std::uint32_t address, std::uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ std::uint32_t get(std::uint32_t address) {
  std::uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}

// Two neighbours in a row, of the 32 that a thread has of a tile's [128 rows, 64 columns]: half of the rows, eighth of the columns, and
// upper or lower 8 of 16 rows.
struct Pair {
  int half, eighth, lower;
};
constexpr int kPairs = 32;
__device__ constexpr Pair pair_of(int i) { return {i / 16, i / 2 % 8, i % 2}; }

// Where they lie in a buffer. Rows are of 128 bytes, their 16-byte parts swizzled.
__device__ __forceinline__ std::uint32_t place(Pair pair) {
  const int thread = threadIdx.x % kGroupThreads, lane = thread % 32;
  const int row = pair.half * 64 + thread / 32 * 16 + pair.lower * 8 + lane / 4;
  return std::uint32_t(row * 128 + ((pair.eighth ^ (lane / 4)) << 4) + lane % 4 * 4);
}

// Asks for every tile of the factors, as long as stages are free. Of the right one each block reads its share for both: forward gate's
// columns or up's, backward some rows of every box.
template <typename L>
__device__ void produce(const Maps& maps, const Sizes& sizes, std::uint32_t shared, int tiles, int cluster, int clusters) {
  const Barriers<L> barriers{shared};
  const int block = int(block_in_cluster());
  constexpr std::uint16_t both = 0b11;
  int stage = 0, parity = 1;
  const auto ask = [&](const CUtensorMap& left, const CUtensorMap& right, int at, int row, int column, int before) {
    wait(barriers.empty(stage), parity);
    const std::uint32_t to = shared + stage * L::kStageBytes, barrier = barriers.full(stage);
    expect_bytes(barrier, L::kStageBytes);
    load_tile(left, at, row, to, barrier);
    if constexpr (L::kBackward) {
      constexpr int rows = kStep / kBlocks;
#pragma unroll
      for (int box = 0; box < L::kColumns / kBox; ++box)
        load_tile_for(both, right, column + box * kBox, at + block * rows, to + kLeftBytes + (box * kStep + block * rows) * kBox * 2,
                      barrier);
    } else {
      load_tile_for(both, right, at - before, column, to + kLeftBytes + block * kBox * kStep * 2, barrier);
    }
    if (++stage == L::kStages) stage = 0, parity ^= 1;
  };
  for (int index = cluster; index < tiles; index += clusters) {
    const Tile tile = tile_of(index, sizes);
    const int row = (tile.row * kBlocks + block) * kRows, column = tile.column * (L::kBackward ? L::kColumns : kBox);
    for (int step = 0; step < sizes.steps; ++step) ask(maps.left, maps.right[block], step * kStep, row, column, 0);
    // Up's share of the low-rank product stands behind gate's; what lies before its factor reads as 0.
    for (int step = 0; step < sizes.low_steps; ++step)
      ask(maps.low_left, maps.low_right[block], step * kStep, row, column, block * sizes.rank);
  }
}

// One worker's products of the turn-th tile. A barrier tells its last phase from the one before and no more, so a worker looks at
// stages only once the other has seen all of its own.
template <typename L>
__device__ __forceinline__ void multiply(float (&sum)[2][L::kSums], std::uint32_t shared, int turn, int steps) {
  const Barriers<L> barriers{shared};
  const int thread = int(threadIdx.x) % kGroupThreads, worker = turn % kWorkers, other = 1 - worker;
  const auto release = [&](int stage) {
    if (thread < kBlocks) arrive_at(barriers.empty(stage), std::uint32_t(thread));
  };
  wait(barriers.turn(worker), (turn / kWorkers + other) & 1);
  const int position = turn * steps;
  int stage = position % L::kStages, parity = position / L::kStages & 1, last = 0;
  for (int step = 0; step < steps; ++step) {
    wait(barriers.full(stage), parity);
    const std::uint32_t left = shared + stage * L::kStageBytes, right = left + kLeftBytes;
    begin_products();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      const std::uint64_t factor = L::kBackward ? down_rows(right + k * 16 * kBox * 2, kStep * kBox * 2) : along_rows(right + k * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_64<L::kBackward>(sum[half], along_rows(left + half * kLeftBytes / 2 + k * 32), factor, step + k > 0);
    }
    commit_products();
    if (step > 0) {
      wait_for_products<1>();
      release(last);
    }
    last = stage;
    if (++stage == L::kStages) stage = 0, parity ^= 1;
  }
  if (thread % 32 == 0) arrive(barriers.turn(other));
  wait_for_products<0>();
  release(last);
}

// A buffer of this worker goes out once all of its threads have written their parts, which `write` does.
template <typename Write>
__device__ __forceinline__ void send(int name, bool leader, const CUtensorMap& to, int x, int y, std::uint32_t buffer, Write write) {
  if (leader) wait_for_stores_to_read();
  group_sync(name);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) put(buffer + place(pair_of(i)), write(i, pair_of(i)));
  publish_to_copies();
  group_sync(name);
  if (leader) {
    store_tile(to, x, y, buffer);
    commit_stores();
  }
}

// A tile's columns are 64 of gate, then the same 64 of up.
__device__ void finish_forward(const Maps& maps, const float (&sum)[2][64], int name, bool leader, std::uint32_t buffer, int row,
                               int column) {
  const auto word = [&](Pair pair, int first) {
    const float* x = &sum[pair.half][(first + pair.eighth) * 4 + pair.lower * 2];
    return two(x[0], x[1]);
  };
  send(name, leader, maps.gate, column, row, buffer, [&](int, Pair pair) { return word(pair, 0); });
  send(name, leader, maps.up, column, row, buffer, [&](int, Pair pair) { return word(pair, 8); });
  send(name, leader, maps.out, column, row, buffer, [&](int, Pair pair) {  // from what backward will read
    const std::uint32_t g = word(pair, 0), u = word(pair, 8);
    return two(swiglu<Number>(low_half(g), low_half(u)), swiglu<Number>(high_half(g), high_half(u)));
  });
}

// gate and up of 64 columns come into the worker's two buffers, become their gradients there and go back.
struct Strips {
  const Maps& maps;
  std::uint32_t gate, up, ready;
  int row, column, parity;

  __device__ void ask(int strip) const {
    wait_for_stores_to_read();
    expect_bytes(ready, 2 * kOutBytes);
    load_tile(maps.gate, column + strip * kBox, row, gate, ready);
    load_tile(maps.up, column + strip * kBox, row, up, ready);
  }
};

// The products of 64 columns become gradients of gate and up, and where it is wanted SwiGLU's output.
template <Pass kPass, typename L = Layout<kPass>>
__device__ __forceinline__ void differentiate(const Strips& at, const float (&sum)[2][L::kSums], int strip, std::uint32_t* again) {
  constexpr int kBatch = L::kColumns > 128 ? 4 : 8;  // as many as there are registers for
#pragma unroll
  for (int first = 0; first < kPairs; first += kBatch) {  // a batch is read before any of it is written
    std::uint32_t g[kBatch], u[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::uint32_t offset = place(pair_of(first + i));
      g[i] = get(at.gate + offset);
      u[i] = get(at.up + offset);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const Pair pair = pair_of(first + i);
      const float* dout = &sum[pair.half][(strip * 8 + pair.eighth) * 4 + pair.lower * 2];
      float g0 = low_half(g[i]), g1 = high_half(g[i]), u0 = low_half(u[i]), u1 = high_half(u[i]);
      const float out0 = differentiate_swiglu<Number>(g0, u0, dout[0]), out1 = differentiate_swiglu<Number>(g1, u1, dout[1]);
      g[i] = two(g0, g1);
      u[i] = two(u0, u1);
      if constexpr (kPass == Pass::backward_and_again) again[first + i] = two(out0, out1);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::uint32_t offset = place(pair_of(first + i));
      put(at.gate + offset, g[i]);
      put(at.up + offset, u[i]);
    }
  }
}

template <Pass kPass, typename L = Layout<kPass>>
__device__ void finish_backward(Strips& at, const float (&sum)[2][L::kSums], int name, bool leader) {
#pragma unroll
  for (int strip = 0; strip < L::kColumns / kBox; ++strip) {
    if (strip > 0 && leader) at.ask(strip);
    wait(at.ready, at.parity);
    at.parity ^= 1;
    std::uint32_t again[kPairs];
    differentiate<kPass>(at, sum, strip, again);
    publish_to_copies();
    group_sync(name);
    if (leader) {
      store_tile(at.maps.gate, at.column + strip * kBox, at.row, at.gate);
      store_tile(at.maps.up, at.column + strip * kBox, at.row, at.up);
      commit_stores();
    }
    if constexpr (kPass == Pass::backward_and_again)
      send(name, leader, at.maps.out, at.column + strip * kBox, at.row, at.gate, [&](int i, Pair) { return again[i]; });
  }
}

template <Pass kPass>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1) fused(const __grid_constant__ Maps maps, const Sizes sizes) {
  using L = Layout<kPass>;
  extern __shared__ unsigned char memory[];
  const std::uint32_t shared = (shared_address(memory) + kAlignment - 1) / kAlignment * kAlignment;
  const Barriers<L> barriers{shared};
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      init(barriers.full(i), 1);
      init(barriers.empty(i), kBlocks);
    }
    for (int i = 0; i < kWorkers; ++i) {
      init(barriers.turn(i), kGroupThreads / 32);
      init(barriers.ready(i), 1);
    }
    publish_barriers();
  }
  __syncthreads();
  cluster_sync();

  const int group = int(threadIdx.x) / kGroupThreads;
  const int tiles = sizes.row_tiles * sizes.column_tiles;
  const int cluster = int(blockIdx.x) / kBlocks, clusters = int(gridDim.x) / kBlocks;
  if (group == kWorkers) {
    give_registers<L::kProducerRegisters>();
    if (threadIdx.x % kGroupThreads == 0) produce<L>(maps, sizes, shared, tiles, cluster, clusters);
  } else {
    take_registers<L::kWorkerRegisters>();
    const bool leader = threadIdx.x % kGroupThreads == 0;
    const int name = 1 + group, steps = sizes.steps + sizes.low_steps;
    const std::uint32_t buffer = shared + L::kOut + group * L::kOutBuffers * kOutBytes;
    Strips strips{maps, buffer, buffer + kOutBytes, barriers.ready(group), 0, 0, 0};
    float sum[2][L::kSums];
    for (int turn = group, index = cluster + group * clusters; index < tiles; turn += kWorkers, index += kWorkers * clusters) {
      const Tile tile = tile_of(index, sizes);
      const int row = (tile.row * kBlocks + int(block_in_cluster())) * kRows;
      if constexpr (L::kBackward) {
        strips.row = row;
        strips.column = tile.column * L::kColumns;
        if (leader) strips.ask(0);
        multiply<L>(sum, shared, turn, steps);
        finish_backward<kPass>(strips, sum, name, leader);
      } else {
        multiply<L>(sum, shared, turn, steps);
        finish_forward(maps, sum, name, leader, buffer, row, tile.column * kBox);
      }
    }
    if (leader) wait_for_stores();
  }
  cluster_sync();  // the other block still reads and signals here
}

// ---- the host's side ----

// What forward writes and backward turns into gradients: gate and up side by side, and their product.
void map_outputs(Maps& maps, void* gate_up, void* out, std::int64_t rows, std::int64_t width) {
  auto* gate = static_cast<Number*>(gate_up);
  maps.gate = tile_map({gate, rows, width, 2 * width}, kRows);
  maps.up = tile_map({gate + width, rows, width, 2 * width}, kRows);
  if (out) maps.out = tile_map({out, rows, width, width}, kRows);
}

struct Extent {
  std::int64_t rows, width, inner, low, rank;  // low: what an adapter's product sums over
};

template <Pass kPass>
void launch(const Maps& maps, const Extent& a, Stream stream) {
  using L = Layout<kPass>;
  constexpr int bytes = L::kBytes + kAlignment;
  const Sizes sizes{.row_tiles = int(ceil_div(a.rows, kBlocks * kRows)),
                    .column_tiles = int(ceil_div(a.width, L::kBackward ? L::kColumns : kBox)),
                    .steps = int(ceil_div(a.inner, kStep)),
                    .low_steps = int(ceil_div(a.low, kStep)),
                    .rank = int(a.rank)};
  const auto kernel = fused<kPass>;
  if (const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes); error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: SwiGLU with its matmul: ") + cudaGetErrorString(error));
  const int blocks = std::min(processors() / kBlocks, sizes.row_tiles * sizes.column_tiles) * kBlocks;
  kernel<<<blocks, kThreads, bytes, native(stream)>>>(maps, sizes);
  launched("SwiGLU with its matmul");
}

}  // namespace

void gate_up_swiglu(const GateUpSwiglu& a, Stream stream) {
  if (a.rows == 0) return;
  const auto halves = [&](CUtensorMap(&maps)[2], const void* weight, std::int64_t inner) {  // gate's rows, then up's
    maps[0] = tile_map({weight, a.width, inner, inner}, kBox);
    maps[1] = tile_map({static_cast<const Number*>(weight) + a.width * inner, a.width, inner, inner}, kBox);
  };
  Maps maps{.left = tile_map({a.x, a.rows, a.inner, a.inner}, kRows)};
  halves(maps.right, a.weight, a.inner);
  map_outputs(maps, a.gate_up, a.out, a.rows, a.width);
  if (a.low) {
    maps.low_left = tile_map({a.low, a.rows, 2 * a.rank, 2 * a.rank}, kRows);
    halves(maps.low_right, a.b, a.rank);
  }
  launch<Pass::forward>(maps, {a.rows, a.width, a.inner, a.low ? 2 * a.rank : 0, a.rank}, stream);
}

void down_backward_swiglu(const DownBackwardSwiglu& a, Stream stream) {
  if (a.rows == 0) return;
  Maps maps{.left = tile_map({a.dout, a.rows, a.inner, a.inner}, kRows)};
  maps.right[0] = maps.right[1] = tile_map({a.weight, a.inner, a.width, a.width}, kStep / kBlocks);
  map_outputs(maps, a.gate_up, a.out, a.rows, a.width);
  if (a.dlow) {
    maps.low_left = tile_map({a.dlow, a.rows, a.rank, a.rank}, kRows);
    maps.low_right[0] = maps.low_right[1] = tile_map({a.a, a.rank, a.width, a.width}, kStep / kBlocks);
  }
  const Extent extent{a.rows, a.width, a.inner, a.dlow ? a.rank : 0, a.rank};
  if (a.out) {
    launch<Pass::backward_and_again>(maps, extent, stream);
  } else {
    launch<Pass::backward>(maps, extent, stream);
  }
}

}  // namespace lockstep::kernels::cuda
