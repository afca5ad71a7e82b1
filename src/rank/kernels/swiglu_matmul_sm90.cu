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

namespace lockstep::kernels::cuda {

namespace {

using namespace hopper;

constexpr int kRows = 128, kColumns = 128, kStep = 64;  // an output tile, and how much of the sum a stage holds
constexpr int kBox = 64;                                // sides of what is read at once of the right factor, half of its tile
constexpr int kBoxBytes = kBox * kBox * 2;
constexpr int kLeftBytes = 2 * kBoxBytes, kStageBytes = 4 * kBoxBytes;
constexpr int kOutBytes = kRows * 64 * 2;  // half an output tile
constexpr int kAlignment = 1024;           // of tiles in shared memory
constexpr int kBlocks = 2;                 // of a cluster
constexpr int kWorkers = 2;                // warpgroups that multiply
constexpr int kThreads = (kWorkers + 1) * kGroupThreads;
constexpr int kBatch = 8;     // of a thread's pairs
constexpr int kBandRows = 8;  // of tiles that are worked on together, so that what they share stays in the cache

struct Maps {
  CUtensorMap left, right[2];          // forward: x, gate's and up's weights; backward: dout, down's weights twice
  CUtensorMap low_left, low_right[2];  // the adapter's; unused without one
  CUtensorMap gate, up, out;
};

struct Sizes {
  int row_tiles, column_tiles;  // row tiles are those of a cluster: kBlocks * kRows
  int steps, low_steps, rank;
};

template <bool kBackward>
struct Layout {
  static constexpr int kStages = kBackward ? 5 : 6;
  static constexpr int kOutBuffers = kBackward ? 2 : 1;  // of a worker
  static constexpr int kOut = kStages * kStageBytes;
  static constexpr int kBarriers = kOut + kWorkers * kOutBuffers * kOutBytes;
  static constexpr int kBytes = kBarriers + (2 * kStages + 2 * kWorkers) * 8;
};

// Barriers in shared memory, 8 bytes each.
template <bool kBackward>
struct Barriers {
  std::uint32_t shared;
  __device__ std::uint32_t full(int stage) const { return shared + Layout<kBackward>::kBarriers + 8 * stage; }
  __device__ std::uint32_t empty(int stage) const { return full(Layout<kBackward>::kStages + stage); }
  __device__ std::uint32_t turn(int worker) const { return empty(Layout<kBackward>::kStages + worker); }
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
__device__ constexpr Pair pair_of(int i) { return {i / 16, i / 2 % 8, i % 2}; }

// Where they lie in a buffer. Rows are of 128 bytes, their 16-byte parts swizzled.
__device__ __forceinline__ std::uint32_t place(Pair pair) {
  const int thread = threadIdx.x % kGroupThreads, lane = thread % 32;
  const int row = pair.half * 64 + thread / 32 * 16 + pair.lower * 8 + lane / 4;
  return std::uint32_t(row * 128 + ((pair.eighth ^ (lane / 4)) << 4) + lane % 4 * 4);
}

// Asks for every tile of the factors, as long as stages are free.
template <bool kBackward>
__device__ void produce(const Maps& maps, const Sizes& sizes, std::uint32_t shared, int tiles, int cluster, int clusters) {
  using L = Layout<kBackward>;
  const std::uint32_t block = block_in_cluster();
  const Barriers<kBackward> barriers{shared};
  const int half = int(block);  // of the right factor's tile
  int stage = 0, parity = 1;
  const auto ask = [&](const CUtensorMap& left, const CUtensorMap& right, int left_x, int left_y, int right_x, int right_y) {
    wait(barriers.empty(stage), parity);
    const std::uint32_t to = shared + stage * kStageBytes, barrier = barriers.full(stage);
    expect_bytes(barrier, kStageBytes);
    load_tile(left, left_x, left_y, to, barrier);
    load_tile_for(0b11, right, right_x, right_y, to + kLeftBytes + half * kBoxBytes, barrier);
    if (++stage == L::kStages) stage = 0, parity ^= 1;
  };
  for (int index = cluster; index < tiles; index += clusters) {
    const Tile tile = tile_of(index, sizes);
    const int row = (tile.row * kBlocks + int(block)) * kRows;
    const int column = kBackward ? tile.column * kColumns + half * 64 : tile.column * 64;
    for (int step = 0; step < sizes.steps; ++step) {
      const int at = step * kStep;
      ask(maps.left, maps.right[half], at, row, kBackward ? column : at, kBackward ? at : column);
    }
    // Up's share of the low-rank product stands behind gate's; what lies before its factor reads as 0.
    for (int step = 0; step < sizes.low_steps; ++step) {
      const int at = step * kStep;
      ask(maps.low_left, maps.low_right[half], at, row, kBackward ? column : at - half * sizes.rank, kBackward ? at : column);
    }
  }
}

// One worker's products of the turn-th tile. A barrier tells its last phase from the one before and no more, so a worker looks at
// stages only once the other has seen all of its own.
template <bool kBackward>
__device__ __forceinline__ void multiply(float (&sum)[2][64], std::uint32_t shared, int turn, int steps) {
  using L = Layout<kBackward>;
  const Barriers<kBackward> barriers{shared};
  const int thread = int(threadIdx.x) % kGroupThreads, worker = turn % kWorkers, other = 1 - worker;
  const auto release = [&](int stage) {
    if (thread < kBlocks) arrive_at(barriers.empty(stage), std::uint32_t(thread));
  };
  wait(barriers.turn(worker), turn / kWorkers + other & 1);
  const int position = turn * steps;
  int stage = position % L::kStages, parity = position / L::kStages & 1, last = 0;
  for (int step = 0; step < steps; ++step) {
    wait(barriers.full(stage), parity);
    const std::uint32_t left = shared + stage * kStageBytes, right = left + kLeftBytes;
    begin_products();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      const std::uint64_t factor = kBackward ? down_rows(right + k * 16 * 128, kBoxBytes) : along_rows(right + k * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_64x128<kBackward>(sum[half], along_rows(left + half * kBoxBytes + k * 32), factor, step + k > 0);
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
  for (int i = 0; i < 32; ++i) put(buffer + place(pair_of(i)), write(i, pair_of(i)));
  publish_to_copies();
  group_sync(name);
  if (leader) {
    store_tile(to, x, y, buffer);
    commit_stores();
  }
}

// A tile's columns are 64 of gate, then the same 64 of up.
__device__ void finish_forward(const Maps& maps, float (&sum)[2][64], int name, bool leader, std::uint32_t buffer, int row, int column) {
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

// gate and up of half a tile come into the worker's two buffers, become their gradients there and go back.
struct Halves {
  const Maps& maps;
  std::uint32_t gate, up, ready;
  int row, column, parity;

  __device__ void ask(int half) const {
    wait_for_stores_to_read();
    expect_bytes(ready, 2 * kOutBytes);
    load_tile(maps.gate, column + half * 64, row, gate, ready);
    load_tile(maps.up, column + half * 64, row, up, ready);
  }
};

template <bool kAgain>
__device__ void finish_backward(Halves& at, float (&sum)[2][64], int name, bool leader) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (side == 1 && leader) at.ask(1);
    wait(at.ready, at.parity);
    at.parity ^= 1;
    std::uint32_t again[kAgain ? 32 : 1];
#pragma unroll
    for (int first = 0; first < 32; first += kBatch) {  // of the thread's pairs; a batch is read before any of it is written
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
        const float* dout = &sum[pair.half][(side * 8 + pair.eighth) * 4 + pair.lower * 2];
        float g0 = low_half(g[i]), g1 = high_half(g[i]), u0 = low_half(u[i]), u1 = high_half(u[i]);
        const float out0 = differentiate_swiglu<Number>(g0, u0, dout[0]), out1 = differentiate_swiglu<Number>(g1, u1, dout[1]);
        g[i] = two(g0, g1);
        u[i] = two(u0, u1);
        if constexpr (kAgain) again[first + i] = two(out0, out1);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t offset = place(pair_of(first + i));
        put(at.gate + offset, g[i]);
        put(at.up + offset, u[i]);
      }
    }
    publish_to_copies();
    group_sync(name);
    if (leader) {
      store_tile(at.maps.gate, at.column + side * 64, at.row, at.gate);
      store_tile(at.maps.up, at.column + side * 64, at.row, at.up);
      commit_stores();
    }
    if constexpr (kAgain) send(name, leader, at.maps.out, at.column + side * 64, at.row, at.gate, [&](int i, Pair) { return again[i]; });
  }
}

template <bool kBackward, bool kAgain>
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 1) fused(const __grid_constant__ Maps maps, const Sizes sizes) {
  using L = Layout<kBackward>;
  extern __shared__ unsigned char memory[];
  const std::uint32_t shared = (shared_address(memory) + kAlignment - 1) / kAlignment * kAlignment;
  const Barriers<kBackward> barriers{shared};
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
    give_registers<40>();
    if (threadIdx.x % kGroupThreads == 0) produce<kBackward>(maps, sizes, shared, tiles, cluster, clusters);
  } else {
    take_registers<232>();
    const bool leader = threadIdx.x % kGroupThreads == 0;
    const int name = 1 + group, steps = sizes.steps + sizes.low_steps;
    const std::uint32_t buffer = shared + L::kOut + group * L::kOutBuffers * kOutBytes;
    Halves halves{maps, buffer, buffer + kOutBytes, barriers.ready(group), 0, 0, 0};
    float sum[2][64];
    for (int turn = group, index = cluster + group * clusters; index < tiles; turn += kWorkers, index += kWorkers * clusters) {
      const Tile tile = tile_of(index, sizes);
      const int row = (tile.row * kBlocks + int(block_in_cluster())) * kRows;
      if constexpr (kBackward) {
        halves.row = row;
        halves.column = tile.column * kColumns;
        if (leader) halves.ask(0);
        multiply<true>(sum, shared, turn, steps);
        finish_backward<kAgain>(halves, sum, name, leader);
      } else {
        multiply<false>(sum, shared, turn, steps);
        finish_forward(maps, sum, name, leader, buffer, row, tile.column * 64);
      }
    }
    if (leader) wait_for_stores();
  }
  cluster_sync();  // the other block still reads and signals here
}

// ---- the host's side ----

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                            const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) throw std::runtime_error("CUDA: the driver has no tile maps");
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

// A matrix of bf16 in memory, `stride` numbers from row to row, in boxes of 64 columns.
struct Matrix {
  const void* data;
  std::int64_t rows, columns, stride;
};

CUtensorMap map_of(const Matrix& m, int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {cuuint64_t(m.columns), cuuint64_t(m.rows)}, strides[] = {cuuint64_t(m.stride) * sizeof(Number)};
  const cuuint32_t box[] = {64, cuuint32_t(box_rows)}, each[] = {1, 1};
  const auto result = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(m.data), sizes, strides, box, each,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA: no tile map for a matrix (error " + std::to_string(int(result)) + ")");
  return map;
}

// What forward writes and backward turns into gradients: gate and up side by side, and their product.
void map_outputs(Maps& maps, void* gate_up, void* out, std::int64_t rows, std::int64_t width) {
  auto* gate = static_cast<Number*>(gate_up);
  maps.gate = map_of({gate, rows, width, 2 * width}, kRows);
  maps.up = map_of({gate + width, rows, width, 2 * width}, kRows);
  if (out) maps.out = map_of({out, rows, width, width}, kRows);
}

template <bool kBackward, bool kAgain>
void launch(const Maps& maps, const Sizes& sizes, Stream stream) {
  constexpr int bytes = Layout<kBackward>::kBytes + kAlignment;
  const auto kernel = fused<kBackward, kAgain>;
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
    maps[0] = map_of({weight, a.width, inner, inner}, kBox);
    maps[1] = map_of({static_cast<const Number*>(weight) + a.width * inner, a.width, inner, inner}, kBox);
  };
  Maps maps{.left = map_of({a.x, a.rows, a.inner, a.inner}, kRows)};
  halves(maps.right, a.weight, a.inner);
  map_outputs(maps, a.gate_up, a.out, a.rows, a.width);
  if (a.low) {
    maps.low_left = map_of({a.low, a.rows, 2 * a.rank, 2 * a.rank}, kRows);
    halves(maps.low_right, a.b, a.rank);
  }
  launch<false, false>(maps,
                       {.row_tiles = int(ceil_div(a.rows, kBlocks * kRows)),
                        .column_tiles = int(ceil_div(a.width, kColumns / 2)),
                        .steps = int(ceil_div(a.inner, kStep)),
                        .low_steps = a.low ? int(ceil_div(2 * a.rank, kStep)) : 0,
                        .rank = int(a.rank)},
                       stream);
}

void down_backward_swiglu(const DownBackwardSwiglu& a, Stream stream) {
  if (a.rows == 0) return;
  Maps maps{.left = map_of({a.dout, a.rows, a.inner, a.inner}, kRows)};
  maps.right[0] = maps.right[1] = map_of({a.weight, a.inner, a.width, a.width}, kBox);
  map_outputs(maps, a.gate_up, a.out, a.rows, a.width);
  if (a.dlow) {
    maps.low_left = map_of({a.dlow, a.rows, a.rank, a.rank}, kRows);
    maps.low_right[0] = maps.low_right[1] = map_of({a.a, a.rank, a.width, a.width}, kBox);
  }
  const Sizes sizes{.row_tiles = int(ceil_div(a.rows, kBlocks * kRows)),
                    .column_tiles = int(ceil_div(a.width, kColumns)),
                    .steps = int(ceil_div(a.inner, kStep)),
                    .low_steps = a.dlow ? int(ceil_div(a.rank, kStep)) : 0,
                    .rank = int(a.rank)};
  if (a.out) {
    launch<true, true>(maps, sizes, stream);
  } else {
    launch<true, false>(maps, sizes, stream);
  }
}

}  // namespace lockstep::kernels::cuda
